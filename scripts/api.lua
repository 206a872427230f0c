-- Makes docs/api.md and examples/.luacheckrc from the annotations in lua/meta/, the one source of what the API is.
--   lua5.4 scripts/api.lua           writes them
--   lua5.4 scripts/api.lua --check   says what is not current, or not documented; silent when there is nothing to say
-- Understands what those files use of the Lua language server's annotations, and refuses the rest.

local TESTING <const>, LOCKS <const> = 2, 3 -- of the sources: what tests see, and what lock files return
local hooks = dofile "lua/boot/hooks.lua"
local sources = { "lua/meta/lunarch.d.lua", "lua/meta/testing.d.lua", "lua/meta/lock.d.lua" }
local problems = {}

-- The library: a module in lua/lunarch/NAME.lua, described in lua/meta/lunarch/NAME.d.lua.
local function names_in(directory, ending)
	local list, listing = {}, assert(io.popen("ls " .. directory))
	for name in listing:lines() do list[#list + 1] = name:match("^([%w_]+)" .. ending .. "$") end
	listing:close()
	return list
end

local described = names_in("lua/meta/lunarch", "%.d%.lua")
for _, name in ipairs(described) do sources[#sources + 1] = "lua/meta/lunarch/" .. name .. ".d.lua" end

local function problem(where, text)
	problems[#problems + 1] = where .. ": " .. text
end

-- ---- reading ----

local function trim(s) return (s:gsub("^%s+", ""):gsub("%s+$", "")) end

-- A type may hold spaces inside brackets, quotes and unions: cut "TYPE rest" behind it.
local function cut_type(text)
	local depth, at = 0, 1
	while at <= #text do
		local c = text:sub(at, at)
		if c == '"' then
			at = text:find('"', at + 1, true) or #text
		elseif c:find "[%(%[{<]" then
			depth = depth + 1
		elseif c:find "[%)%]}>]" then
			depth = depth - 1
		elseif c == " " and depth == 0 and not text:sub(1, at - 1):find "[:,|]%s*$" and not text:sub(at):find "^%s*|" then
			return text:sub(1, at - 1), trim(text:sub(at))
		end
		at = at + 1
	end
	return text, ""
end

local items, classes, aliases = {}, {}, {}

local function new_notes() return { text = {}, params = {}, returns = {} } end

local function read(path)
	local notes, class, number, module = new_notes(), nil, 0, nil
	local function where() return path .. ":" .. number end

	local function annotation(tag, rest)
		if tag == "meta" then
			module = rest:match "^[%w_.]+$"
		elseif tag == "class" then
			class = { kind = "class", name = rest:match "[%w_.]+", text = notes.text, fields = {}, functions = {} }
			class.short = class.name:match "[^.]+$"
			class.module = class.name == module and module or nil
			classes[class.short] = class
			items[#items + 1] = class
			notes = new_notes()
		elseif tag == "field" then
			local name, type_and_text = rest:match "^([%w_]+%??)%s+(.*)$"
			local kind, text = cut_type(type_and_text or "")
			if not class then problem(where(), "a field outside a class") return end
			class.fields[#class.fields + 1] = { name = name, type = kind, text = text }
		elseif tag == "alias" then
			local alias = { kind = "alias", name = rest:match "[%w_.]+", text = notes.text, values = {} }
			aliases[#aliases + 1], items[#items + 1] = alias, alias
			notes = new_notes()
		elseif tag == "param" then
			local name, type_and_text = rest:match "^([%w_.]+%??)%s+(.*)$"
			local kind, text = cut_type(type_and_text or "")
			notes.params[#notes.params + 1] = { name = name, type = kind, text = text }
		elseif tag == "return" then
			local kind, text = cut_type(rest)
			notes.returns[#notes.returns + 1] = { type = kind, text = text }
		elseif tag ~= "type" then
			problem(where(), "annotation @" .. tag .. " is not understood")
		end
	end

	local function definition(name, arguments)
		local owner = name:match "^(.*)[.:][%w_]+$"
		local item = { kind = "function", name = name, arguments = arguments, text = notes.text, params = notes.params, returns = notes.returns }
		notes = new_notes()
		if #item.text == 0 then problem(where(), name .. " has no text") end
		for argument in arguments:gmatch "[%w_.]+" do
			local known = argument == "..."
			for _, p in ipairs(item.params) do known = known or p.name:gsub("%?", "") == argument end
			if not known then problem(where(), name .. ": its argument " .. argument .. " is not described") end
		end
		for _, p in ipairs(item.params) do
			if not (", " .. arguments .. ","):find(", " .. p.name:gsub("%?", ""):gsub("%.", "%%.") .. ",") then
				problem(where(), name .. ": describes an argument " .. p.name .. " that it does not have")
			end
		end
		local list = owner and classes[owner] and classes[owner].functions or items
		if owner and not classes[owner] then
			for _, other in ipairs(items) do
				if other.kind == "table" and other.name == owner then list = other.functions end
			end
		end
		list[#list + 1] = item
	end

	for line in io.lines(path) do
		number = number + 1
		local value, text = line:match '^%-%-%-|%s*"([^"]*)"%s*#?%s*(.*)$'
		local tag, rest = line:match "^%-%-%-@(%a+)%s*(.*)$"
		if value then
			local alias = aliases[#aliases]
			alias.values[#alias.values + 1] = { value = value, text = text }
		elseif tag then
			annotation(tag, rest)
		elseif line:find "^%-%-%-" then
			notes.text[#notes.text + 1] = trim(line:sub(4))
		elseif line:find "^function" then
			definition(line:match "^function%s+([%w_.:]+)%s*%(([^)]*)%)")
		else
			local name = line:match "^([%a_][%w_]*)%s*=%s*{"
			if name then
				local item = { kind = "table", name = name, text = notes.text, functions = {}, fields = {} }
				if class and #class.functions == 0 and #class.fields == 0 and #notes.text == 0 then
					class.name, class.short, class.kind, class.global = name, name, "table", true -- ---@class for a global table
					classes[name] = class
				else
					items[#items + 1] = item
				end
			end
			if line ~= "" then notes, class = new_notes(), line:find "^local" and class or nil end
		end
	end
end

-- ---- writing ----

local out = {}
local function put(fmt, ...) out[#out + 1] = select("#", ...) > 0 and fmt:format(...) or fmt end

local function cell(text) return (text:gsub("|", "\\|")) end
local function plain_type(kind) return (kind:gsub("lunarch%.", "")) end

-- Arguments that may be left out are in brackets.
local function signature(item, name)
	local optional, list = {}, {}
	for _, p in ipairs(item.params) do
		if p.name:find "%?$" then optional[p.name:sub(1, -2)] = true end
	end
	local text, closing = "", ""
	for argument in item.arguments:gmatch "[%w_.]+" do list[#list + 1] = argument end
	for i, argument in ipairs(list) do
		local comma = i > 1 and ", " or ""
		if optional[argument] then
			text, closing = text .. (i > 1 and " [" or "[") .. comma .. argument, closing .. "]"
		else
			text = text .. comma .. argument
		end
	end
	return name .. "(" .. text .. closing .. ")"
end

local function put_function(item, name)
	put("\n### `%s`\n", signature(item, name))
	put(table.concat(item.text, "\n"))
	if #item.params > 0 or #item.returns > 0 then put("") end
	for _, p in ipairs(item.params) do
		put("* `%s`: `%s`%s", p.name:gsub("%?", ""), plain_type(p.type) .. (p.name:match "%?$" or ""), p.text ~= "" and ": " .. p.text or "")
	end
	for _, r in ipairs(item.returns) do
		put("* returns `%s`%s", plain_type(r.type), r.text ~= "" and ": " .. r.text or "")
	end
end

local function put_fields(fields)
	if #fields == 0 then return end
	put("\n| | | |\n|---|---|---|")
	for _, f in ipairs(fields) do
		put("| `%s` | `%s` | %s |", f.name:gsub("%?", ""), cell(plain_type(f.type)) .. (f.name:match "%?$" or ""), cell(f.text))
	end
end

local shown_as = { Term = "term", Task = "task", Scope = "scope", Queue = "queue", Semaphore = "semaphore", Permit = "permit", Child = "child", Sim = "sim", Response = "response" }

local function put_item(item)
	if item.kind == "function" then
		return
	end
	put("\n%s %s", item.library and not item.module and "###" or "##", item.module or item.short or item.name:match "[^.]+$")
	if item.module then put('\n`local %s = require "%s"`', item.short, item.module) end
	if #item.text > 0 then put("\n%s", table.concat(item.text, "\n")) end
	if item.kind == "alias" then
		put("\n| | |\n|---|---|")
		for _, v in ipairs(item.values) do put('| `"%s"` | %s |', v.value, cell(v.text)) end
		return
	end
	put_fields(item.fields)
	for _, f in ipairs(item.functions) do
		local owner, separator, name = f.name:match "^(.*)([.:])([%w_]+)$"
		put_function(f, (shown_as[owner] or owner) .. separator .. name)
	end
end

local function make_docs()
	put "# The API\n"
	put "Made from `lua/meta/` by `scripts/api.lua`: correct it there. [scripting.md](scripting.md) tells it as a story, [testing.md](testing.md)"
	put "the part that tests see (`test`, `simulate` and what follows), [write-a-lock.md](write-a-lock.md) the part of lock files (LockFile and what follows)."
	put "`lunarch help api NAME` prints a part of this page.\n"
	put "A `?` behind a type: it may be nil, or left out. What can fail returns `nil, err`; misuse raises. Times are seconds."
	local functions = {}
	for _, item in ipairs(items) do
		if item.kind == "function" then functions[#functions + 1] = item end
	end
	put "\n## Functions"
	for _, item in ipairs(functions) do put_function(item, item.name) end
	for _, item in ipairs(items) do put_item(item) end
	return table.concat(out, "\n") .. "\n"
end

local function make_luacheckrc()
	local names = { script = {}, test = {} }
	for _, item in ipairs(items) do
		local list = item.testing and names.test or names.script
		if (item.kind == "function" or item.kind == "table") and not item.name:find "[.:]" then list[#list + 1] = item.name end
	end
	local function quoted(list)
		table.sort(list)
		return '"' .. table.concat(list, '", "') .. '"'
	end
	return ([[
-- For luacheck: the globals that scripts run by Lunarch see, and their tests. Made by scripts/api.lua.
std = "lua54"
max_line_length = false
unused_args = false
globals = { %s }
read_globals = { %s }
files["**/*_test.lua"] = { read_globals = { %s } }
]]):format(quoted { table.unpack(hooks.names) }, quoted(names.script), quoted(names.test))
end

for i, path in ipairs(sources) do
	local before = #items
	read(path)
	for j = before + 1, #items do items[j].testing, items[j].library = i == TESTING, i > LOCKS end
end

-- ---- the hooks: lua/meta describes each of them as a function of an election ----

local function check_hooks()
	local where, described_hooks = sources[1], {}
	for _, field in ipairs(classes.Election.fields) do
		local name = field.name:gsub("%?", "")
		described_hooks[name] = field.type:find "^fun%(" ~= nil
		if described_hooks[name] and not hooks.set[name] then
			problem(where, name .. " is described as a hook, but is none of lua/boot/hooks.lua")
		end
	end
	for _, name in ipairs(hooks.names) do
		if not described_hooks[name] then problem(where, "the hook " .. name .. " of lua/boot/hooks.lua is not described") end
	end
end

check_hooks()

-- ---- the library: what there is, and what is said of it ----

-- A module, loaded as lua/boot/prelude.lua does but in a world in which nothing works: loading one asks for nothing.
local function load_module(name)
	local nothing = setmetatable({}, { __index = function(t) return t end, __call = function(t) return t end })
	package.loaded.lunarch = nothing
	local function use(file)
		local name = file:gsub("^lunarch%.", "")
		for _, folder in ipairs { "lunarch", "boot", "api", "cron" } do
			local chunk = loadfile("lua/" .. folder .. "/" .. name .. ".lua")
			if chunk then return chunk(use) end
		end
		error("no " .. file)
	end
	package.searchers[2] = function(wanted)
		return wanted:find "^lunarch%." and function() return use(wanted)(nothing) end or nil
	end
	return use("lunarch." .. name)(nothing)
end

local function compare(name, module, class)
	local where = "lua/lunarch/" .. name .. ".lua"
	local known = {}
	for _, item in ipairs(class.functions) do
		local short = item.name:match "[%w_]+$"
		known[short] = true
		if type(module[short]) ~= "function" then problem(where, item.name .. " is described, but is not there") end
		local i = 0
		for argument in item.arguments:gmatch "[%w_]+" do
			i = i + 1
			local real = type(module[short]) == "function" and debug.getlocal(module[short], i)
			if real and real ~= argument then problem(where, ("%s: its argument %s is described as %s"):format(item.name, real, argument)) end
		end
	end
	for key, value in pairs(module) do
		if type(value) == "function" and not known[key] then problem(where, name .. "." .. key .. " is not described in lua/meta/lunarch/" .. name .. ".d.lua") end
	end
end

for _, name in ipairs(names_in("lua/lunarch", "%.lua")) do
	local class = classes[name]
	if class and class.module then
		compare(name, load_module(name), class)
	else
		problem("lua/lunarch/" .. name .. ".lua", "is not described: lua/meta/lunarch/" .. name .. ".d.lua has no ---@meta and ---@class lunarch." .. name)
	end
end
local made = { ["docs/api.md"] = make_docs(), ["examples/.luacheckrc"] = make_luacheckrc() }
for path, text in pairs(made) do
	local f = io.open(path)
	local now = f and f:read "a"
	if f then f:close() end
	if now ~= text and arg[1] == "--check" then
		problem(path, "is not what lua/meta says: run `make api` and commit it")
	elseif now ~= text then
		f = assert(io.open(path, "w"))
		f:write(text)
		f:close()
	end
end
for _, p in ipairs(problems) do io.stderr:write(p, "\n") end
os.exit(#problems == 0)

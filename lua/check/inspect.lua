-- inspect(text, chunk, known, is_lock): finds mistakes in a script without running it, as a list of { line, kind, text }.
-- kind "problem": the script fails at that line; "note": a warning. known: the set of globals that a script finds.
-- is_lock: it is a lock file, which runs in a driver and has no term. missing(module): what is wrong where that module is not
-- installed, else nil.
-- It reads the compiled chunk, as string.dump writes it for Lua 5.4 (ldump.c, lopcodes.h): the source text would leave doubts.

local use = ...
local suggest = use "suggest"

local LOADK <const>, GETUPVAL <const>, GETTABUP <const>, GETTABLE <const>, GETFIELD <const> = 3, 9, 11, 12, 14
local SETTABUP <const>, SETTABLE <const>, CALL <const> = 15, 16, 68
local FLOAT <const>, INTEGER <const>, SHORT <const>, LONG <const> = 0x13, 0x03, 0x04, 0x14

local hooks = use "hooks".set

local blocking = {
	["os.execute"] = "cannot be interrupted: it holds up every other task until it ends, and a lost lease has to kill it; exec can wait and stop",
	["io.popen"] = "is read without waiting for others: it holds up every other task; exec{..., background = true} has lines",
	["io.read"] = "holds up every other task until there is a line",
	["io.lines"] = "holds up every other task if what it reads is slow",
}

-- The same in a driver, where they are about other tasks than a term's.
local blocking_driver = {
	["os.execute"] = "blocks all elections that share the driver until it ends, and after two seconds of silence past a deadline the driver is killed; lunarch.exec can wait and stop",
}

local function reader(bytes)
	local at = 1
	local r = {}

	function r.byte()
		at = at + 1
		return bytes:byte(at - 1)
	end

	function r.skip(n)
		at = at + n
	end

	-- Seven bits in each byte, the highest first; the last byte has bit 7 set.
	function r.size()
		local n = 0
		while true do
			local b = r.byte()
			n = n << 7 | b & 0x7f
			if b & 0x80 ~= 0 then
				return n
			end
		end
	end

	function r.text()
		local size = r.size()
		if size == 0 then
			return nil
		end
		at = at + size - 1
		return bytes:sub(at - size + 1, at - 1)
	end

	function r.instruction()
		at = at + 4
		return (string.unpack("<I4", bytes, at - 4))
	end

	return r
end

local function read_constants(r)
	local constants = {}
	for i = 0, r.size() - 1 do
		local kind = r.byte()
		if kind == FLOAT or kind == INTEGER then
			r.skip(8)
		elseif kind == SHORT or kind == LONG then
			constants[i] = r.text()
		end
	end
	return constants
end

local function read_lines(r, first)
	local deltas, absolute, lines, line = {}, {}, {}, first
	for i = 0, r.size() - 1 do
		deltas[i] = string.unpack("b", string.char(r.byte()))
	end
	for _ = 1, r.size() do
		local pc = r.size()
		absolute[pc] = r.size()
	end
	for i = 0, #deltas do
		line = absolute[i] or line + (deltas[i] or 0)
		lines[i] = line
	end
	return lines
end

local read_function

local function read_rest(r, f)
	for _ = 1, r.size() do
		r.skip(3)
	end
	for _ = 1, r.size() do
		read_function(r, f.all)
	end
	f.lines = read_lines(r, f.first)
	for _ = 1, r.size() do
		r.text()
		r.size()
		r.size()
	end
	f.upvalues = {}
	for i = 0, r.size() - 1 do
		f.upvalues[i] = r.text()
	end
end

function read_function(r, all)
	local f = { all = all, code = {} }
	all[#all + 1] = f
	r.text()
	f.first = r.size()
	r.size()
	r.skip(3)
	for i = 0, r.size() - 1 do
		f.code[i] = r.instruction()
	end
	f.constants = read_constants(r)
	read_rest(r, f)
end

-- Calls got(name, line), set(name, line) and field(global, name, line) for each place.
local function walk(f, got, set, field)
	-- What each register holds: held, the value of the global of that name; env, the table of globals; texts, a text. The last two
	-- come in functions with more constants than an instruction can name.
	local held, env, texts = {}, {}, {}
	for pc = 0, #f.code do
		local i = f.code[pc]
		local op, a, b, c = i & 0x7f, i >> 7 & 0xff, i >> 16 & 0xff, i >> 24 & 0xff
		if op == GETTABUP and f.upvalues[b] == "_ENV" then
			got(f.constants[c], f.lines[pc])
			held[a] = f.constants[c]
		elseif op == SETTABUP and f.upvalues[a] == "_ENV" then
			set(f.constants[b], f.lines[pc])
		elseif op == GETUPVAL then
			env[a] = f.upvalues[b] == "_ENV"
		elseif op == LOADK then
			texts[a] = f.constants[i >> 15]
		elseif op == GETTABLE and env[b] and texts[c] then
			got(texts[c], f.lines[pc])
			held[a] = texts[c]
		elseif op == SETTABLE and env[a] and texts[b] then
			set(texts[b], f.lines[pc])
		elseif op == GETFIELD then
			if held[b] and f.constants[c] then
				field(held[b], f.constants[c], f.lines[pc])
			end
			held[a] = nil
		end
	end
end

-- Calls found(name, line) for each require "NAME", which is three instructions: get `require`, load the name, call.
local function requirements(f, found)
	for pc = 2, #f.code do
		local get, text, call = f.code[pc - 2], f.code[pc - 1], f.code[pc]
		local register = get >> 7 & 0xff
		if get & 0x7f == GETTABUP and f.upvalues[get >> 16 & 0xff] == "_ENV" and f.constants[get >> 24 & 0xff] == "require"
			and text & 0x7f == LOADK and text >> 7 & 0xff == register + 1 and call & 0x7f == CALL and call >> 7 & 0xff == register then
			found(f.constants[text >> 15], f.lines[pc])
		end
	end
end

-- Finds local functions with a hook's name that nothing uses: they are missing in the table that the script returns.
local function forgotten(text, add)
	local number = 0
	local code = text:gsub("%-%-[^\n]*", "")
	for line in (code .. "\n"):gmatch "(.-)\n" do
		number = number + 1
		local name = line:match "^%s*local%s+function%s+([%a_][%w_]*)" or line:match "^%s*local%s+([%a_][%w_]*)%s*=%s*function"
		if name and hooks[name] then
			local _, uses = code:gsub("%f[%w_]" .. name .. "%f[^%w_]", "")
			if uses == 1 then
				add(number, "problem", ("the local function %s is never used: put it into the table that the script returns"):format(name))
			end
		end
	end
end

-- What of the API and of the library is in a package of its own, by its module (natives.module).
local in_modules = {
	http = "http", ["lunarch.http"] = "http", ["lunarch.aws"] = "http", ["lunarch.gcp"] = "http", ["lunarch.azure"] = "http",
	["lunarch.kube"] = "http", ["lunarch.hash"] = "hash", ["lunarch.mysql"] = "mysql",
}

return function(text, chunk, known, is_lock, missing)
	local needs = in_modules
	local f, err = load(text:gsub("^\239\187\191", ""):gsub("^#[^\n]*", ""), chunk, "t")
	if not f then
		return nil, err
	end
	local bytes = string.dump(f)
	local r, functions, found, own = reader(bytes), {}, {}, {}
	r.skip(4 + 1 + 1 + 6 + 1 + 1 + 1 + 8 + 8 + 1) -- the header, and the number of the main function's upvalues
	read_function(r, functions)

	local function add(line, kind, what)
		found[#found + 1] = { line = line, kind = kind, text = what }
	end

	local function nothing() end
	local foreign = 0 -- how many modules outside the library it requires: these may define globals
	local declared = {} -- globals that the script itself assigns while it loads, outside of its functions
	walk(functions[1], nothing, function(name) declared[name] = true end, nothing)
	for _, one in ipairs(functions) do
		walk(one, function(name) foreign = foreign + (name == "require" and 1 or 0) end, function(name) own[name] = true end, nothing)
		requirements(one, function(name, line)
			if name and name:find "^lunarch%." then
				foreign = foreign - 1
				local wrong = use "library"(name)
				if wrong then
					add(line, "problem", wrong)
				end
			end
		end)
	end
	local requires = foreign > 0
	local function need(name, line) -- once for each module
		local wrong = needs[name] and missing(needs[name])
		if wrong then
			add(line, "problem", ("%s: %s"):format(name, wrong))
			needs = setmetatable({ [name] = false }, { __index = needs })
		end
	end
	local candidates = setmetatable({}, { __index = known })
	for name in pairs(known) do
		candidates[name] = true
	end
	for name in pairs(own) do
		candidates[name] = true
	end
	for _, one in ipairs(functions) do
		walk(one, function(name, line)
			if name and not known[name] and not own[name] then
				add(line, requires and "note" or "problem", ("undefined global '%s'%s%s"):format(name, (suggest(name, candidates)),
					requires and ", unless a module defines it" or ""))
			end
			need(name, line)
		end, function(name, line)
			if name and not known[name] and not declared[name] then
				add(line, "note", ("assignment to the undeclared global '%s'%s: an error once the script has loaded; make it local, or declare it at the top")
					:format(name, (suggest(name, known))))
			end
		end, function(global, name, line)
			local call = global .. "." .. name
			need(call, line)
			local why = is_lock and blocking_driver[call] or blocking[call]
			if why then
				add(line, "note", ("%s.%s %s"):format(global, name, why))
			end
		end)
	end
	for _, one in ipairs(functions) do
		requirements(one, need)
	end
	forgotten(text, add)
	table.sort(found, function(a, b) return a.line < b.line or a.line == b.line and a.text < b.text end)
	return found
end

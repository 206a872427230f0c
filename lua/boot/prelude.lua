-- The first file of lua/ that a worker runs: it makes the globals that scripts see, and returns the functions that C calls.
-- natives: the C functions on which lua/ builds (open_natives in runtime/script/script.c).

local use = ...

local hooks = use "hooks"
local unknown = use "unknown"

-- A function that make() makes when it is first called, so that a worker does not load what its script does not use.
local function later(make)
	local f
	return function(...)
		f = f or make()
		return f(...)
	end
end

-- The same for a table of functions, made when one is first used.
local function on_demand(name, make)
	return setmetatable({}, { __index = function(table, key)
		for field, f in pairs(make()) do
			rawset(table, field, f)
		end
		local index = unknown(name, table)
		setmetatable(table, { __index = index })
		return index(table, key)
	end })
end

-- From now on a name that the table does not have is an error.
local function strict(name, table, fields)
	return setmetatable(table, { __index = unknown(name, table, fields) })
end

local function make_api(natives)
	local every = later(function() return use "every"(natives.rest, natives.time.monotonic) end)
	local api = {
		version = natives.version,
		sleep = natives.sleep,
		spawn = natives.spawn,
		exec = later(function() return use "exec"(natives) end),
		json = strict("json", natives.json),
		log = strict("log", use "log"(natives.emit, natives.json)),
		time = strict("time", natives.time),
		exit = natives.exit,
	}
	function api.every(seconds, f, options)
		return every(natives.spawn, seconds, f, options)
	end
	function natives.term_methods.every(term, seconds, f, options)
		return every(function(...) return term:spawn(...) end, seconds, f, options)
	end
	api.http = on_demand("http", function() return use "http"(natives) end)
	api.tasks = on_demand("tasks", function() return use "tasks"(natives) end)
	local function checkpoint()
		natives.checkpoints = natives.checkpoints or use "checkpoint"(natives)
		return natives.checkpoints
	end
	function natives.term_methods.load(term)
		return checkpoint().load(term)
	end
	function natives.term_methods.save(term, data, options)
		return checkpoint().save(term, data, options)
	end
	function natives.term_methods.cron(term, expression, f, options)
		if not natives.cron_jobs then
			natives.cron_jobs, natives.cron_ask, natives.cron_drop = use "cron" {
				parse = natives.cron, fail = natives.fail, emit = natives.emit, now = natives.time.now, rest = natives.rest,
				signal = natives.signal, get = checkpoint().get, update = checkpoint().update,
			}
		end
		return natives.cron_jobs(term, expression, f, options)
	end
	function natives.next_methods.every(s, seconds, f, options)
		return every(function(...) return s:spawn(...) end, seconds, f, options)
	end
	for name in pairs(natives.term_methods) do
		natives.next_methods[name] = natives.next_methods[name] or function()
			error(("%s needs a term: this candidate comes next, and does not lead"):format(name), 2)
		end
	end
	strict("term", natives.term_methods, { token = true, identity = true, lock = true, address = true, warm = true })
	strict("s", natives.next_methods, { data = true, identity = true, lock = true })
	strict("child", natives.job_methods, { pid = true })
	strict("task", natives.task_methods)
	strict("election", election)
	return strict("lunarch", api)
end

local function open_globals(api)
	for _, name in ipairs { "sleep", "spawn", "every", "exec", "json", "log", "time", "tasks", "http" } do
		_G[name] = api[name]
	end
	_G.lunarch = api
	package.loaded.lunarch = api
	os.exit = api.exit -- luacheck: ignore 122
end

-- `require "lunarch.NAME"` finds the modules of the library (lua/lunarch/).
local function open_library(natives)
	table.insert(package.searchers, 2, function(name)
		if name:sub(1, 8) ~= "lunarch." then
			return nil
		end
		local wrong = use "library"(name)
		if wrong then
			error(wrong, 3)
		end
		return function() return strict(name, use(name)(natives)) end, "lunarch"
	end)
end

-- `require` looks beside the script first, and never in the working directory. directory nil: there is no file to look beside.
local function set_path(directory)
	local kept = {}
	for _, place in ipairs { "path", "cpath" } do
		local parts = {}
		for part in package[place]:gmatch("[^;]+") do
			if part:sub(1, 2) ~= "./" then
				parts[#parts + 1] = part
			end
		end
		kept[place] = table.concat(parts, ";")
	end
	package.path = (directory and directory .. "/?.lua;" .. directory .. "/?/init.lua;" or "") .. kept.path
	package.cpath = kept.cpath
end

-- A text given with -e is the body of on_leading, or a script. It is a script if it names a hook, or begins with a `return` of
-- something other than `false`.
local function is_body(text)
	for _, name in ipairs(hooks.names) do
		if text:find("%f[%w_]" .. name .. "%f[^%w_]") then
			return false
		end
	end
	return not text:find("^%s*return%f[^%w_]") or text:find("^%s*return%s+false%f[^%w_]") ~= nil
end

local function parse(text, chunk, is_text)
	if not is_text then
		text = text:gsub("^\239\187\191", ""):gsub("^#[^\n]*", "") -- without a byte order mark, and without a line #!...
	elseif is_body(text) then
		local body, err = load("local term <const> = ...; " .. text, chunk, "t")
		return body and function() return { on_leading = body } end, err
	end
	return load(text, chunk, "t")
end

local PRIORITY_MOST <const> = 1000000000

-- Calls may_lead, address and priority. Returns whether the election may lead, else why not; the address and the priority.
local function ask(election)
	local yes, why, address, priority = true, nil, nil, nil
	if election.may_lead then
		yes, why = election.may_lead()
	end
	if yes and type(election.address) == "function" then
		address = election.address()
		if type(address) ~= "string" or address:find("\0", 1, true) then
			error(("address: expected a text, found a %s"):format(type(address)), 0)
		end
	end
	if yes and type(election.priority) == "function" then
		priority = election.priority()
		if math.type(priority) ~= "integer" or priority < -PRIORITY_MOST or priority > PRIORITY_MOST then
			error(("priority: expected a whole number from %d to %d, found %s"):format(
				-PRIORITY_MOST, PRIORITY_MOST, type(priority) == "number" and tostring(priority) or "a " .. type(priority)), 0)
		end
	end
	if not yes and why ~= nil then
		why = tostring(why)
	end
	return not not yes, why, address, priority
end

return function(natives)
	if natives.stub then
		use "simulated"(natives)
	end
	local api = make_api(natives)
	open_globals(api)
	use "kept"(natives)
	open_library(natives)

	local builtin = {}
	for name in pairs(_G) do
		builtin[name] = true
	end

	local directory
	local script = { builtin = builtin }
	local seal = use "globals"(function(source)
		return source == script.chunk
			or (directory ~= nil and source:sub(1, #directory + 2) == "@" .. directory .. "/")
	end)

	-- The chunk of a script or a lock file, beside which `require` looks.
	local function load_beside(text, source, is_text)
		script.chunk = is_text and "=(-e)" or "@" .. source
		directory = not is_text and (source:match("^(.*)/[^/]*$") or ".") or nil
		if directory == "" then
			directory = "/"
		end
		set_path(directory)
		local chunk, err = parse(text, script.chunk, is_text)
		if not chunk then
			error(err, 0)
		end
		return chunk
	end

	local function compile(text, source, is_text, args)
		script.text = text
		script.name = is_text and "(-e)" or source
		args[0] = script.name
		_G.arg = args
		return load_beside(text, source, is_text), table.unpack(args)
	end

	local function elections(...)
		local list = use "elections"(script, natives.keys)(...)
		script.text = nil
		seal()
		return list
	end

	-- For the process of a lock file, which has no script: driver.lua. host: as there.
	local function driver(host)
		set_path(nil)
		return use "driver"(natives, host, function(text, path)
			local chunk = load_beside(text, path, false)
			return function()
				local result = chunk()
				seal()
				return result
			end
		end)
	end

	-- A command of the program (lua/commands/), which has no script either. Its exit status.
	local function command(name, options)
		return use("commands/" .. name)(natives, options)
	end

	return { compile = compile, elections = elections, ask = ask, driver = driver, command = command }
end

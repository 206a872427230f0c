-- Makes the globals of a test file: test, simulate, expect, equal, matches, raises. main(path, chunk, first) runs the tests and
-- prints TAP.

local use = ...
local suggest = use "suggest"
local check = use "options"

local RUN_UNTIL_S <const> = 3600
local EVENTS_SHOWN <const> = 20

-- ---- showing and comparing ----

local function show(value, depth)
	depth = depth or 0
	if type(value) == "string" then
		return ("%q"):format(value):gsub("\\\n", "\\n")
	elseif type(value) ~= "table" or depth > 4 then
		return tostring(value)
	end
	local parts, listed = {}, {}
	for i, item in ipairs(value) do
		parts[i], listed[i] = show(item, depth + 1), true
	end
	local keys = {}
	for key in pairs(value) do
		if not listed[key] then
			keys[#keys + 1] = key
		end
	end
	table.sort(keys, function(a, b) return tostring(a) < tostring(b) end)
	for _, key in ipairs(keys) do
		parts[#parts + 1] = tostring(key) .. " = " .. show(value[key], depth + 1)
	end
	return "{ " .. table.concat(parts, ", ") .. " }"
end

local function same(a, b)
	if type(a) ~= "table" or type(b) ~= "table" then
		return a == b
	end
	for key, value in pairs(a) do
		if not same(value, b[key]) then
			return false
		end
	end
	for key in pairs(b) do
		if a[key] == nil then
			return false
		end
	end
	return true
end

-- ---- assertions: an error has the line of the test's call ----

local function expect(value, message)
	if not value then
		error(message or "expected something true, found " .. tostring(value), 2)
	end
	return value
end

local function equal(got, want, message)
	if not same(got, want) then
		error(("%sexpected %s, found %s"):format(message and message .. ": " or "", show(want), show(got)), 2)
	end
end

local function matches(text, pattern, message)
	if type(text) ~= "string" or not text:find(pattern) then
		error(("%sexpected a text with %q, found %s"):format(message and message .. ": " or "", pattern, show(text)), 2)
	end
end

local function raises(f, pattern)
	local good, err = pcall(f)
	if good then
		error("expected an error, but there was none", 2)
	end
	if pattern and not tostring(err):find(pattern) then
		error(("expected an error with %q, found: %s"):format(pattern, tostring(err)), 2)
	end
end

return function(natives)
	local sim = { last_leader = false } -- the class of simulate's result
	sim.__index = function(_, key)
		if sim[key] == nil then
			error(("sim has no '%s'%s"):format(tostring(key), (suggest(tostring(key), sim))), 2)
		end
		return sim[key]
	end
	local current        -- the one open simulation: a process has only one clock and one log
	local directory = "."

	local function must(good, err)
		if not good then
			error(err, 3)
		end
		return good
	end

	-- ---- nodes and time ----

	local known = {
		script = "text", args = "table", options = "table", seed = "count", latency = "seconds",
		nodes = function(v)
			local fits = type(v) == "table" and #v > 0 or math.type(v) == "integer" and v >= 1 and v <= 100
			return not fits and "a list of names, or how many" or nil
		end,
	}

	local function names_of(nodes)
		if type(nodes) == "table" then
			return nodes
		end
		local names = {}
		for i = 1, nodes or 3 do
			names[i] = i <= 26 and string.char(96 + i) or "n" .. i
		end
		return names
	end

	local function close()
		if current then
			natives.close()
		end
		current = nil
	end

	local function answer(kind, request)
		local call = request
		call.kind = kind
		return current:answer(call)
	end

	local function simulate(options)
		if type(options) ~= "table" then
			error('simulate: expected a table, as in simulate { script = "backup.lua" }', 2)
		end
		local wrong = check("simulate", options, known) or not options.script and 'simulate: which script? script = "NAME.lua"'
		if wrong then
			error(wrong, 2)
		end
		if current then
			error("simulate: there is a simulation already: sim:close() first", 2)
		end
		local script = options.script:sub(1, 1) == "/" and options.script or directory .. "/" .. options.script
		local arguments = { "run" }
		for _, option in ipairs(options.options or {}) do
			arguments[#arguments + 1] = tostring(option)
		end
		arguments[#arguments + 1] = "--"
		for _, argument in ipairs(options.args or {}) do
			arguments[#arguments + 1] = tostring(argument)
		end
		local self = setmetatable({ stubs = {}, made = {}, log_lines = {}, errors_seen = 0, names = names_of(options.nodes) }, sim)
		local kept, err = natives.open(script, self.names, arguments, options.seed or 1, self.log_lines)
		if not kept then
			error(err, 2)
		end
		self.kept = kept
		current = self
		if options.latency then
			self:latency(options.latency)
		end
		return self
	end

	function sim.close(self)
		if self == current then
			close()
		end
	end

	function sim.now()
		return natives.now()
	end

	function sim.run(_, seconds)
		if type(seconds) ~= "number" or seconds < 0 then
			error("sim:run: expected a number of seconds", 2)
		end
		must(natives.run(natives.now() + seconds))
	end

	-- Returns f's result, and the seconds that it took.
	function sim.run_until(_, f, limit)
		limit = limit or RUN_UNTIL_S
		local begin = natives.now()
		while true do
			local value = f()
			if value then
				return value, natives.now() - begin
			end
			if natives.now() >= begin + limit - 1e-6 then -- 1e-6: the clock rounds
				error(("sim:run_until: it has not come true within %g s"):format(limit), 2)
			end
			must(natives.run(begin + limit, true))
		end
	end

	-- ---- what a test can ask ----

	function sim.leader(_, lock)
		return natives.leader(lock)
	end

	function sim.is_leading(_, node)
		return natives.leads(node)
	end

	function sim.nodes(self)
		return table.move(self.names, 1, #self.names, 1, {})
	end

	function sim.record(_, lock)
		local text = natives.record(lock)
		return text and natives.json.decode(text)
	end

	-- Waits for a leader.
	function sim.elect(self, lock)
		return (self:run_until(function() return natives.leader(lock) end))
	end

	-- Waits for another leader than the present or last one.
	function sim.next_leader(self, lock)
		local last = natives.leader(lock) or self.last_leader
		return self:run_until(function()
			local leader = natives.leader(lock)
			return leader ~= last and leader
		end)
	end

	local function fits(event, filter)
		for key, value in pairs(filter) do
			local field = event[key]
			if key == "message" and not (field and field:find(value)) or key ~= "message" and field ~= value then
				return false
			end
		end
		return true
	end

	function sim.events(self, filter)
		local list = {}
		for _, event in ipairs(self.log_lines) do
			if fits(event, type(filter) == "string" and { event = filter } or filter or {}) then
				list[#list + 1] = event
			end
		end
		return list
	end

	-- Lines that scripts printed or logged.
	function sim.printed(self, pattern, node)
		local list = {}
		for _, event in ipairs(self:events { message = pattern, node = node }) do
			if event.event == "print" or event.event == "log" then
				list[#list + 1] = event.message
			end
		end
		return list
	end

	-- The errors of hooks since the last call. An error that the test does not ask for makes it fail.
	function sim.errors(self)
		local list = {}
		for i = self.errors_seen + 1, #self.log_lines do
			if self.log_lines[i].level == "error" then
				list[#list + 1] = self.log_lines[i].message
			end
		end
		self.errors_seen = #self.log_lines
		return list
	end

	-- ---- faults ----

	local function each(what, nodes, number)
		for _, node in ipairs(nodes) do
			must(natives.fault(what, node, number))
		end
	end

	local function fault_of_nodes(what)
		sim[what] = function(_, ...)
			if select("#", ...) == 0 then
				error(("sim:%s: which node?"):format(what), 2)
			end
			each(what, { ... })
		end
	end
	for _, what in ipairs { "partition", "crash", "start", "stop", "kill_worker", "wake" } do
		fault_of_nodes(what)
	end

	function sim.heal(self, ...)
		each("heal", select("#", ...) > 0 and { ... } or self.names)
	end

	function sim.pause(_, node, seconds)
		if type(seconds) ~= "number" or seconds <= 0 then
			error('sim:pause: expected a node and seconds, as in sim:pause("a", 20)', 2)
		end
		must(natives.fault("pause", node, seconds))
	end

	function sim.clock(_, node, seconds)
		if type(seconds) ~= "number" or math.abs(seconds) > 1e9 then
			error('sim:clock: expected a node and seconds, as in sim:clock("a", -3600)', 2)
		end
		must(natives.fault("clock", node, seconds))
	end

	function sim.resign(_, node, seconds)
		must(natives.fault("resign", node, seconds or -1))
	end

	function sim.kill_leader(self, lock)
		local leader = natives.leader(lock)
		if not leader then
			error("sim:kill_leader: nobody leads", 2)
		end
		self.last_leader = leader
		must(natives.fault("crash", leader))
		return leader
	end

	function sim.delete_record(_, lock)
		must(natives.fault("delete_record", lock))
	end

	function sim.edit_checkpoint(_, value, lock)
		local text, err = natives.json.encode(value)
		if not text then
			error("sim:edit_checkpoint: " .. err, 2)
		end
		if not natives.edit_checkpoint(lock, text) then
			error("sim:edit_checkpoint: there is no record", 2)
		end
	end

	for _, what in ipairs { "store_down", "store_up" } do
		sim[what] = function() must(natives.fault(what)) end
	end

	for _, what in ipairs { "latency", "loss" } do
		sim[what] = function(_, number)
			if type(number) ~= "number" or number < 0 then
				error(("sim:%s: expected a number, 0 or more"):format(what), 2)
			end
			must(natives.fault(what, nil, number))
		end
	end

	-- ---- stubs ----

	-- name: a program, which for a shell line is its first word; or the beginning of a URL; or "*" for all others.
	function sim.stub(self, name, reply)
		local kind = type(reply)
		if type(name) ~= "string" or (kind ~= "table" and kind ~= "string" and kind ~= "function" and reply ~= nil) then
			error('sim:stub: expected a program and what it does, as in sim:stub("tar", { code = 0 }), or a function', 2)
		end
		self.stubs[name] = reply == nil and {} or reply
	end

	local http_keys = { status = "count", headers = "table", body = "text", json = function() end, takes = "seconds", unreachable = "boolean" }
	local exec_keys = { code = "count", signal = "count", stdout = "text", stderr = "text", takes = "seconds", missing = "boolean" }

	local function program_of(call)
		local first = call.argv[1]
		if first == "/bin/sh" and call.argv[2] == "-c" then
			call.shell = call.argv[3]
			first = call.shell:match "%S+" or ""
		end
		return first:match "[^/]+$" or first
	end

	local function begins(text, with)
		return text:sub(1, #with) == with
	end

	-- The stub whose name is the longest beginning of the URL.
	local function stub_of_url(self, url)
		local best
		for name in pairs(self.stubs) do
			if name:find("://", 1, true) and begins(url, name) and #name > #(best or "") then
				best = name
			end
		end
		return best and self.stubs[best]
	end

	local function find_stub(self, call)
		if call.kind == "http" then
			return stub_of_url(self, call.url) or self.stubs["*"], call.url
		end
		call.program = program_of(call)
		return self.stubs[call.argv[1]] or self.stubs[call.program] or self.stubs["*"], call.program
	end

	function sim.answer(self, call)
		local reply, name = find_stub(self, call)
		local is_http = call.kind == "http"
		self.made[#self.made + 1] = call
		if reply == nil then
			return nil, ('%s: "%s" has no stub: a test %s; sim:stub("%s", { %s = "..." })'):format(call.kind, name,
				is_http and "fetches nothing" or "runs no real programs", name, is_http and "body" or "stdout")
		end
		if type(reply) == "function" then
			reply = reply(call)
		end
		reply = type(reply) == "string" and { [is_http and "body" or "stdout"] = reply } or reply or {}
		local wrong = type(reply) ~= "table" and "a stub returns a table, a text or nothing"
			or check(('the stub of "%s"'):format(name), reply, is_http and http_keys or exec_keys)
		if not wrong and reply.json ~= nil then
			reply = { status = reply.status, headers = reply.headers, takes = reply.takes, body = natives.json.encode(reply.json) }
		end
		return not wrong and reply or nil, wrong
	end

	function sim.calls(self, name)
		local list = {}
		for _, call in ipairs(self.made) do
			if not name or call.program == name or (call.url and begins(call.url, name)) then
				list[#list + 1] = call
			end
		end
		return list
	end

	-- ---- running ----

	local tests = {}

	local function diagnose(text)
		for line in (text .. "\n"):gmatch "(.-)\n" do
			io.write("# ", line, "\n")
		end
	end

	local function tell_events()
		local lines = current and current.log_lines or {}
		for i = math.max(1, #lines - EVENTS_SHOWN + 1), #lines do
			local e = lines[i]
			diagnose(("%10.3f s  %-4s %s: %s"):format(e.time, e.node, e.event, e.message))
		end
	end

	local function unseen_errors()
		local errors = current and current:errors() or {}
		if #errors > 0 then
			error("a hook failed, and the test did not ask for it (sim:errors()): " .. errors[1], 0)
		end
	end

	local function run_one(number, t)
		natives.limit()
		local good, err = xpcall(function()
			t.f()
			unseen_errors()
		end, function(e) return (debug.traceback(tostring(e), 2):gsub("\n%s*%[C%]: in[^\n]*", "")) end)
		io.write(good and "ok " or "not ok ", number, " - ", (t.name:gsub("#", "\\#")), "\n")
		if not good then
			diagnose(err)
			tell_events()
		end
		close()
		io.stdout:flush()
		return good
	end

	function _G.test(name, f)
		if type(name) ~= "string" or type(f) ~= "function" then
			error('test: expected a sentence and a function, as in test("one leads", function() ... end)', 2)
		end
		tests[#tests + 1] = { name = name:gsub("%c", " "), f = f }
	end
	_G.simulate, _G.expect, _G.equal, _G.matches, _G.raises = simulate, expect, equal, matches, raises
	_G.json = natives.json
	natives.answers(answer)

	return function(path, chunk, first)
		directory = path:match "^(.*)/[^/]*$" or "."
		package.path = directory .. "/?.lua;" .. package.path
		setmetatable(_G, { __index = function(_, name)
			error(("undefined global '%s'%s"):format(tostring(name), (suggest(tostring(name), _G))), 2)
		end })
		chunk()
		if #tests == 0 then
			error(path .. ": has no test: expected test(\"what must hold\", function() ... end)", 0)
		end
		local failed = 0
		for i, t in ipairs(tests) do
			failed = failed + (run_one(first + i - 1, t) and 0 or 1)
		end
		return #tests, failed
	end
end

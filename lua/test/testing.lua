-- Makes the globals of a test file: test, simulate, expect, equal, matches, raises. main(path, chunk, first) runs the tests and
-- prints TAP; it returns how many there were and how many failed, or nil and why the file is no test.

local use = ...
local suggest = use "suggest"
local check = use "options"
local unknown = use "unknown"
local hooks = use "hooks"

local RUN_UNTIL_S <const> = 3600
local HANDOVER_S <const> = 30 -- as `lunarch ctl handover` waits

-- Globals that a script has and a test has not (lua/boot/prelude.lua).
local of_scripts <const> = {
	sleep = true, spawn = true, every = true, exec = true, log = true, time = true, tasks = true, http = true, lunarch = true,
	election = true, arg = true,
}
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
	local said = {} -- the log of the simulation that runs
	sim.__index = unknown("sim", sim)
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
		script = "text", args = "table", env = "table", options = "table", seed = "count", latency = "seconds",
		nodes = function(v)
			local fits = type(v) == "table" and #v > 0 or math.type(v) == "integer" and v >= 1 and v <= 100
			return not fits and "a list of names, or how many" or nil
		end,
	}
	local known_of_node = {
		name = "text", args = "table", env = "table", options = "table",
		priority = function(v) return math.type(v) ~= "integer" and "a whole number" or nil end,
	}

	local function texts(list)
		local copy = {}
		for i, value in ipairs(list or {}) do
			copy[i] = tostring(value)
		end
		return copy
	end

	-- "NAME=VALUE" for each variable; "NAME" for one that is to be missing (false).
	local function entries(...)
		local list = {}
		for _, env in ipairs { ... } do
			for name, value in pairs(env) do
				list[#list + 1] = value == false and name or name .. "=" .. tostring(value)
			end
		end
		return list
	end

	-- As behind `lunarch run`: the options of all nodes, and those of this one.
	local function arguments_of(options, node)
		local list = { "run" }
		for _, own in ipairs { texts(options.options), texts(node.options) } do
			table.move(own, 1, #own, #list + 1, list)
		end
		list[#list + 1] = node.priority and "--priority=" .. node.priority
		return list
	end

	-- The nodes as { name, args, arguments, env } each. A node of the test is a name, or such a table itself.
	local function nodes_of(options)
		local nodes, list = options.nodes or 3, {}
		for i = 1, type(nodes) == "table" and #nodes or nodes do
			local node = type(nodes) == "table" and nodes[i] or { name = i <= 26 and string.char(96 + i) or "n" .. i }
			node = type(node) == "string" and { name = node } or node
			local wrong = type(node) ~= "table" and "expected a name, or a table with one" or check("nodes", node, known_of_node)
				or not node.name and "a node has no name: { name = \"a\", env = { ... } }"
			if wrong then
				error("simulate: " .. wrong, 3)
			end
			list[i] = {
				name = node.name, args = texts(node.args or options.args), arguments = arguments_of(options, node),
				env = entries(options.env or {}, node.env or {}),
			}
		end
		return list
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
		local nodes, names = nodes_of(options), {}
		for i, node in ipairs(nodes) do
			names[i] = node.name
		end
		-- answered: the name of the stub that each call had
		local self = setmetatable({ stubs = {}, made = {}, answered = {}, log_lines = {}, errors_seen = 0, names = names }, sim)
		said = self.log_lines
		local kept, err = natives.open(script, nodes, options.seed or 1, self.log_lines)
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

	-- Returns f's result, and the seconds that it took. Its errors have the line that called the caller, which must not be left by a
	-- tail call.
	-- What most likely kept it from coming true.
	local function last_error()
		for i = #said, 1, -1 do
			local line = said[i]
			if line.level == "error" then
				return ("; the last error was %s on %s: %s"):format(line.event, line.node, (line.message:gsub("\n.*", "")))
			end
		end
		return ""
	end

	local function wait_until(f, limit, text)
		local begin = natives.now()
		while true do
			local value = f()
			if value then
				return value, natives.now() - begin
			end
			if natives.now() >= begin + limit - 1e-6 then -- 1e-6: the clock rounds
				error(text:format(limit) .. last_error(), 3)
			end
			local good, err = natives.run(begin + limit, true)
			if not good then
				error(err, 3)
			end
		end
	end

	function sim.run_until(_, f, limit)
		local value, took = wait_until(f, limit or RUN_UNTIL_S, "sim:run_until: it has not come true within %g s")
		return value, took
	end

	-- ---- what a test can ask ----
	-- `election` is its name, or its lock as the script or the options name it; nil: the first one. Another is an error.

	local function leader_of(election, level)
		local leader, err = natives.leader(election)
		if err then
			error(err, (level or 2) + 1)
		end
		return leader
	end

	function sim.leader(_, election)
		return leader_of(election)
	end

	function sim.is_leading(_, node)
		local leads, err = natives.leads(node)
		if err then
			error(err, 2)
		end
		return leads
	end

	function sim.nodes(self)
		return table.move(self.names, 1, #self.names, 1, {})
	end

	function sim.metric(self, name, labels, node)
		local text, wrong = use "labels"(labels)
		if node ~= nil then
			self:is_leading(node) -- an error if there is no such node
		end
		if wrong then
			error("sim:metric: " .. wrong, 2)
		end
		return natives.metric(name, text, node)
	end

	-- The record's checkpoint is what the script saved. What term:cron keeps beside it is `cron`. A checkpoint that Lunarch did not
	-- write is shown as it is.
	function sim.record(_, election)
		local text, err = natives.record(election)
		if err then
			error(err, 2)
		end
		local record = text and natives.json.decode(text)
		local saved = record and record.checkpoint
		if type(saved) == "table" and (saved.data ~= nil or saved.cron ~= nil) then
			record.checkpoint, record.cron = saved.data, saved.cron
		end
		return record
	end

	-- Waits for a leader.
	function sim.elect(_, election)
		leader_of(election)
		local leader = wait_until(function() return natives.leader(election) end, RUN_UNTIL_S, "sim:elect: nobody leads within %g s")
		return leader
	end

	-- Waits for another leader than the present or last one.
	function sim.next_leader(self, election)
		local last = leader_of(election) or self.last_leader
		local successor, took = wait_until(function()
			local leader = natives.leader(election)
			return leader ~= last and leader
		end, RUN_UNTIL_S, "sim:next_leader: nobody else leads within %g s")
		return successor, took
	end

	local function next_of(election)
		local node, err = natives.next(election)
		if err then
			error(err, 3)
		end
		return node
	end

	-- Who comes next, as the leader knows it; nil: nobody.
	function sim.next(_, election)
		local node = next_of(election)
		return node
	end

	-- Waits until somebody comes next.
	function sim.await_next(_, election)
		next_of(election)
		local next, took = wait_until(function() return natives.next(election) end, RUN_UNTIL_S, "sim:await_next: nobody comes next within %g s")
		return next, took
	end

	-- As `lunarch ctl handover` does it: who leads then, and for how long nobody did; or nil, and why the term goes on.
	function sim.handover(_, to, timeout, election)
		if timeout ~= nil and (type(timeout) ~= "number" or timeout <= 0) or to ~= nil and type(to) ~= "string" then
			error('sim:handover: expected a node and seconds, or nothing, as in sim:handover("b", 30)', 2)
		end
		local old = leader_of(election)
		must(natives.hand_over(election, to, timeout or HANDOVER_S))
		local refused, ended
		local leader = wait_until(function()
			refused = natives.not_handed_over()
			local leads = natives.leader(election)
			ended = ended or leads ~= old and natives.now()
			return refused or ended and leads
		end, RUN_UNTIL_S, "sim:handover: nobody leads within %g s")
		if refused then
			return nil, refused
		end
		return leader, natives.now() - ended
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

	local fields <const> = {
		time = "seconds", event = "text", message = "text", lock = "text", term = "count", token = "count",
		level = { debug = true, info = true, warn = true, error = true },
		node = function(v) return select(2, natives.leads(v)) and "a node's name" or nil end,
	}

	-- What is misspelled must not look like what has not happened.
	function sim.events(self, filter)
		filter = type(filter) == "string" and { event = filter } or filter or {}
		local wrong = type(filter) ~= "table" and 'sim:events: expected an event\'s name, or fields, as in { event = "became_leader", node = "a" }'
			or check("sim:events", filter, fields)
		if wrong then
			error(wrong, 2)
		end
		local list = {}
		for _, event in ipairs(self.log_lines) do
			if fits(event, filter) then
				list[#list + 1] = event
			end
		end
		return list
	end

	-- Lines that scripts printed or logged.
	function sim.printed(self, pattern, node)
		local list = {}
		if node ~= nil then
			self:is_leading(node) -- an error if there is no such node
		end
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

	function sim.kill_leader(self, election)
		local leader = leader_of(election)
		if not leader then
			error("sim:kill_leader: nobody leads", 2)
		end
		self.last_leader = leader
		must(natives.fault("crash", leader))
		return leader
	end

	for _, what in ipairs { "delete_record", "delete_next", "deny_next", "allow_next" } do
		sim[what] = function(_, election) must(natives.fault(what, election)) end
	end

	function sim.edit_checkpoint(_, value, election)
		local text, err = natives.json.encode(value)
		if not text then
			error("sim:edit_checkpoint: " .. err, 2)
		end
		local edited, why = natives.edit_checkpoint(election, text)
		if not edited then
			error("sim:edit_checkpoint: " .. (why or "there is no record"), 2)
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
	local mysql_keys = { rows = "table", count = "count", insert_id = "count", errno = "count", sqlstate = "text", message = "text", takes = "seconds",
		unreachable = "boolean" }
	local exec_keys = { code = "count", signal = "count", stdout = "text", stderr = "text", takes = "seconds", missing = "boolean" }

	local function begins(text, with)
		return text:sub(1, #with) == with
	end

	local function is_url(name)
		return name:find("://", 1, true) ~= nil or begins(name, "unix:")
	end

	-- The program as it was called (of a shell line the first word), and without its directory.
	local function add_program(call)
		local word = call.argv[1]
		if word == "/bin/sh" and call.argv[2] == "-c" then
			call.shell = call.argv[3]
			word = call.shell:match "%S+" or ""
		end
		call.program = word:match "[^/]+$" or word
		return word
	end

	-- The longest beginning of the URL that is the name of a stub.
	local function stub_of_url(self, url)
		local best
		for name in pairs(self.stubs) do
			if is_url(name) and begins(url, name) and #name > #(best or "") then
				best = name
			end
		end
		return best
	end

	-- The name of the stub that answers it, nil if none does; and what the call wants.
	local function find_stub(self, call)
		local others = self.stubs["*"] and "*" or nil
		if call.url then
			return stub_of_url(self, call.url) or others, call.url
		end
		local word = add_program(call)
		for _, name in ipairs { call.argv[1], word, call.program } do
			if self.stubs[name] then
				return name, word
			end
		end
		return others, word
	end

	function sim.answer(self, call)
		local stub, name = find_stub(self, call)
		local reply, is_http = self.stubs[stub], call.kind == "http"
		local first = is_http and "body" or call.kind == "mysql" and "message" or "stdout"
		self.made[#self.made + 1] = call
		self.answered[call] = stub
		if reply == nil then
			return nil, ('%s: "%s" has no stub: a test %s; sim:stub("%s", { %s })'):format(call.kind, name,
				call.url and "fetches nothing" or "runs no real programs", name, call.kind == "mysql" and "rows = {}" or first .. ' = "..."')
		end
		if type(reply) == "function" then
			reply = reply(call)
		end
		reply = type(reply) == "string" and { [first] = reply } or reply or {}
		local wrong = type(reply) ~= "table" and "a stub returns a table, a text or nothing"
			or check(('the stub of "%s"'):format(name), reply, is_http and http_keys or call.kind == "mysql" and mysql_keys or exec_keys)
		if not wrong and reply.json ~= nil then
			reply = { status = reply.status, headers = reply.headers, takes = reply.takes, body = natives.json.encode(reply.json) }
		end
		return not wrong and reply or nil, wrong
	end

	-- Whether a stub would answer such a call: what is misspelled must not look like what was never called.
	local function is_stubbed(self, name)
		local program = name:match "[^/]+$" or name
		for stub in pairs(self.stubs) do
			local matching = is_url(stub) and (begins(stub, name) or begins(name, stub)) or stub == name or stub == program
			if matching or stub == "*" or stub:match "[^/]+$" == name then
				return true
			end
		end
		return false
	end

	function sim.calls(self, name)
		if name and not is_stubbed(self, name) then
			error(("sim:calls: no stub answers '%s'%s"):format(name, (suggest(name, self.stubs))), 2)
		end
		local list = {}
		for _, call in ipairs(self.made) do
			if not name or self.answered[call] == name or call.program == name or (call.argv and call.argv[1] == name)
				or (call.shell and call.shell:match "%S+" == name) or (call.url and begins(call.url, name)) then
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

	-- Whether the file is a script and no test: it returned elections, defined a hook, or used a name that only scripts have.
	local function is_script(good, result)
		for _, name in ipairs(hooks.names) do
			if rawget(_G, name) or good and type(result) == "table" and (result[name] or type(result[1]) == "table" and result[1][name]) then
				return true
			end
		end
		local why = not good and type(result) == "string" and result or ""
		return of_scripts[why:match "undefined global '([%w_]+)'"] or why:find "module 'lunarch[%.']" ~= nil
	end

	return function(path, chunk, first)
		directory = path:match "^(.*)/[^/]*$" or "."
		package.path = directory .. "/?.lua;" .. package.path
		table.insert(package.searchers, 2, function(name)
			if name:sub(1, 8) == "lunarch." then
				error(("module '%s' is not there in a test: scripts that it simulates have it; what else asks for it needs a stand-in"):format(
					name), 3)
			end
		end)
		setmetatable(_G, { __index = function(_, name)
			error(("undefined global '%s'%s"):format(tostring(name), (suggest(tostring(name), _G))), 2)
		end })
		local good, result = xpcall(chunk, function(e) return type(e) == "string" and debug.traceback(e, 2) or e end)
		if #tests == 0 and is_script(good, result) then
			return nil, ("%s is a script and no test: a test simulates it, as `lunarch new` shows; docs/testing.md"):format(path)
		elseif not good then
			error(result, 0)
		elseif #tests == 0 then
			return nil, path .. ": has no test: expected test(\"what must hold\", function() ... end)"
		end
		local failed = 0
		for i, t in ipairs(tests) do
			failed = failed + (run_one(first + i - 1, t) and 0 or 1)
		end
		return #tests, failed
	end
end

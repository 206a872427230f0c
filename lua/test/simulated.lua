-- exec, http and lunarch.mysql under `lunarch test`: no program is run, and nothing is sent. The test's stubs answer, in simulated time. This file
-- replaces natives, so lua/api/exec.lua and lua/api/http.lua still check a script's arguments.

local next_pid = 1000

local function pairs_of(list)
	if not list then
		return nil
	end
	local env = {}
	for _, entry in ipairs(list) do
		local name, value = entry:match "^([^=]+)=(.*)$"
		env[name or entry] = value or false
	end
	return env
end

return function(natives)
	local now = natives.time.monotonic

	local function ask(kind, request)
		local reply, why = natives.stub(kind, request)
		if not reply then
			error(why, 0)
		end
		return reply
	end

	-- A program's result, from a stub's answer.
	local function stage(reply)
		local code = not reply.signal and (reply.code or 0) or nil
		return {
			ok = code == 0, code = code, signal = reply.signal, stdout = reply.stdout or "", stderr = reply.stderr or "",
			times = { elapsed = reply.takes or 0, user = 0, system = 0 },
		}
	end

	local job_type = { __name = "lunarch.child" }
	job_type.__index = natives.job_methods

	function natives.start(specs)
		local job = setmetatable({ stages = {}, started = now(), due = now(), unread = {}, changed = natives.signal() }, job_type)
		local input
		for i, spec in ipairs(specs) do
			local reply = ask("exec", {
				argv = spec.argv, stdin = input or spec.stdin, stdin_file = spec.stdin_file, cwd = spec.cwd, user = spec.user,
				env = pairs_of(spec.env), timeout = spec.timeout,
			})
			if reply.missing then
				return natives.fail("missing", ("exec: cannot run %s: no such program (the test's stub says so)"):format(spec.argv[1]))
			end
			job.stages[i] = stage(reply)
			input = job.stages[i].stdout
			job.due = math.max(job.due, job.started + (reply.takes or 0))
		end
		local timeout = specs[1].timeout
		if timeout and job.started + timeout < job.due then
			job.due, job.timed_out = job.started + timeout, true
		end
		next_pid = next_pid + 1
		job.pid = next_pid
		return job
	end

	function natives.await(job, timeout)
		local by = timeout and now() + timeout
		while now() < job.due and not (by and now() >= by) do
			job.changed:wait(math.min(job.due, by or job.due) - now())
		end
		return now() >= job.due
	end

	function natives.ends(job)
		for _, result in ipairs(job.stages) do
			if job.timed_out or job.killed then
				result.ok, result.code, result.signal = false, nil, job.killed or 15
				result.timed_out = job.timed_out
			end
		end
		return job.stages
	end

	function natives.streams() end

	-- A simulated program writes all its output when it ends.
	function natives.line(job, which)
		natives.await(job)
		local last = job.stages[#job.stages]
		local text = job.unread[which] or last[which]
		local line, rest = text:match "^([^\n]*)\n(.*)$"
		job.unread[which] = rest or ""
		if line or text ~= "" then
			return line or text
		end
	end

	local job = natives.job_methods

	function job.kill(self, signal)
		local there = now() < self.due
		if there then
			self.due, self.killed = now(), type(signal) == "number" and signal or 15
			repeat until not self.changed:wake()
		end
		return there
	end

	function job.running(self)
		return now() < self.due
	end

	job_type.__close = job.kill

	-- The functions of the HTTP client that lua/api/http.lua uses.
	local http = {}

	-- As the script wrote it: place() of lua/api/http.lua has taken the socket out.
	local function url_of(spec)
		return spec.unix and ("unix:%s:%s"):format(spec.unix, spec.url:match "^http://localhost(.*)$") or spec.url
	end

	local function request(call)
		local spec = call.spec
		local headers = {}
		for _, line in ipairs(spec.headers or {}) do
			local name, value = line:match "^([^:]+): ?(.*)$"
			headers[name:lower()] = value
		end
		call.reply = ask("http", { method = spec.method, url = url_of(spec), headers = headers, body = call.body, timeout = spec.timeout or spec.first_byte })
		local takes, limit = call.reply.takes or 0, spec.timeout or spec.first_byte or math.huge
		call.timed_out = takes > limit
		call.due = now() + math.min(takes, limit)
	end

	function http.start(spec)
		local call = { spec = spec, body = spec.body or "" }
		if not spec.streamed then
			request(call)
		end
		return call
	end

	function http.send(call, part)
		if part then
			call.body = call.body .. part
		else
			request(call)
		end
		return 0
	end

	function http.state(call)
		local ended = call.due ~= nil and now() >= call.due
		return ended, ended
	end

	function http.wait(call)
		natives.sleep(math.max(0, call.due - now()))
	end

	function http.failure(call)
		local code = call.timed_out and "timeout" or call.reply.unreachable and "unreachable"
		if not code then
			return nil
		end
		local nothing, err = natives.fail(code, ("%s %s: %s (the test's stub says so)"):format(call.spec.method, call.spec.url,
			call.timed_out and "no answer in time" or "it cannot be reached"))
		err.unsent = not call.timed_out
		return nothing, err
	end

	function http.answer(call)
		return call.reply.status or 200, call.reply.headers or {}, call.spec.url
	end

	function http.take(call)
		local body = call.taken and "" or call.reply.body or ""
		call.taken = true
		return body
	end

	function http.cancel() end

	natives.tcp = nil -- lunarch.tcp has no stand-in: a protocol is not told from its bytes

	-- The functions of the connections that lua/lunarch/mysql.lua uses: all statements are asked of the test's stubs.
	local mysql = {}

	function mysql.new()
		return {}
	end

	function mysql.alive(conn)
		return conn.open or false, false
	end

	function mysql.close(conn)
		conn.open = false
	end

	function mysql.connect(conn, spec)
		conn.url = ("mysql://%s/%s"):format(spec.unix or spec.host .. ":" .. spec.port, spec.database or "")
		conn.open = true
		return true
	end

	function mysql.run(conn, _, timeout, text, values)
		local reply = ask("mysql", { url = conn.url, statement = text, values = values, timeout = timeout })
		natives.sleep(math.min(reply.takes or 0, timeout))
		local code = (reply.takes or 0) > timeout and "timeout" or reply.unreachable and "unreachable" or reply.errno and "failed"
		if not code then
			local rows = table.move(reply.rows or {}, 1, #(reply.rows or {}), 1, {})
			rows.count, rows.insert_id = reply.count or reply.rows and #rows or 1, reply.insert_id
			return rows
		end
		conn.open = code == "failed"
		local nothing, err = natives.fail(code, reply.message or code == "timeout" and "no answer in time" or "the test's stub says so")
		err.errno, err.sqlstate, err.unsent = reply.errno, reply.sqlstate, code == "unreachable"
		return nothing, err
	end

	local simulated = { http = http, mysql = mysql }
	local real_module = natives.module
	function natives.module(name)
		return simulated[name] or real_module(name)
	end

	-- The locks of a test are the simulated ones, of which no other process reads.
	local function no_lock()
		error("lunarch.lock reads a real store, and a test has none: give what it would say to the function that the test calls", 0)
	end
	natives.lock_open, natives.lock_place = no_lock, no_lock

	local function refuse(name)
		return function()
			error(("%s runs a real program, and a test does not: use exec, which a test can answer"):format(name), 2)
		end
	end
	os.execute, io.popen = refuse "os.execute", refuse "io.popen" -- luacheck: ignore 122

	local real_time, real_date = os.time, os.date
	os.time = function(t) return t and real_time(t) or math.floor(natives.time.now()) end -- luacheck: ignore 122
	os.date = function(format, t) return real_date(format, t or math.floor(natives.time.now())) end -- luacheck: ignore 122
end

-- Runs one job of a crontab: the command with its environment, again after a failure that is known, its output, mail, history and metrics.
-- When it runs is decided before (term:cron).

local use = ...
local labels_text = use "labels"
local lunarch = require "lunarch"

local OUTPUT_MAX <const> = 262144 -- bytes of a run that are kept
local PAUSE <const>, PAUSE_MAX <const> = 10, 300 -- seconds before another attempt: the first pause, and the longest
local TELL_TIMEOUT <const> = 60 -- seconds for a mail, or for the command that is told of a failure
local CHECKPOINT_MAX <const>, NOTE_BYTES <const>, MARK_BYTES <const> = 15800, 20, 16 -- of 16 KB; of a note without its id; of a mark without its name
local KEPT <const> = { LANG = true, TZ = true }

-- The names of the variables that this process began with, which a job shall not see: cron(8) gives it those of the crontab alone.
local function foreign_variables()
	local file <close> = io.open("/proc/self/environ", "r")
	local names = {}
	for entry in (file and file:read "a" or ""):gmatch "[^%z]+" do
		local name = entry:match "^([^=]+)="
		if name and not KEPT[name] and not name:find "^LC_" and not name:find "^LUNARCH_" then
			names[name] = false
		end
	end
	return names
end

local function iso(time)
	return os.date("!%Y-%m-%dT%H:%M:%SZ", math.floor(time))
end

local function one_line(text)
	return (text:gsub("%c", " "))
end

local function is_file(path)
	local file <close> = io.open(path, "r")
	return file ~= nil
end

-- What came of an attempt: a status, a text for people, whether another attempt may follow, and an exit status as a shell has it, 124 as
-- timeout(1). It may follow if the command has ended by itself.
local function judge(result, err, job)
	local how = result or err.result
	if not how then
		return "failed", "it cannot be started: " .. err.message, false, 126
	elseif not result then
		return "timeout", ("it was stopped after its timeout of %d s"):format(job.timeout), false, 124
	elseif result.ok then
		return "ok", "exit status 0", false, 0
	elseif result.signal then
		return "failed", ("signal %d"):format(result.signal), true, 128 + result.signal
	end
	return "failed", ("exit status %d"):format(result.code), true, result.code
end

return function(natives, options, history)
	local foreign = foreign_variables()
	local now, monotonic = natives.time.now, natives.time.monotonic
	local started = setmetatable({}, { __mode = "k" }) -- run -> when, by the clock that nobody sets
	local runner = { running = {} } -- runs that have begun and not ended
	local idle = natives.signal()
	local mail_said = false
	local noted = {} -- by id: what is in the record of the runs of this term
	local cut = {} -- runs that the term's end has interrupted, and nobody was told yet: a list

	local function rewrite(term, change)
		natives.checkpoints = natives.checkpoints or use "checkpoint"(natives)
		return natives.checkpoints.update(term, "runs", function(all)
			all = type(all) == "table" and all or {}
			change(all)
			return next(all) and all or nil
		end, "lunarch cron", nil, true)
	end

	-- So that the next leader can tell of a run that was lost with its leader. In a record that is nearly full it is not noted.
	local function note(term, run, job)
		local _, text = natives.checkpoint(term)
		local bytes, size = #run.id + NOTE_BYTES, 0
		for _, other in ipairs(options.jobs) do
			size = size + #other.name + MARK_BYTES
		end
		for id in pairs(noted) do
			size = size + #id + NOTE_BYTES
		end
		if not job.again and text and math.max(#text, size) + bytes <= CHECKPOINT_MAX then
			noted[run.id] = true
			rewrite(term, function(all) all[run.id] = math.floor(run.began) end)
		end
	end

	local function forget(term, id)
		noted[id] = nil
		rewrite(term, function(all) all[id] = nil end)
	end

	local function metric(counter, name, job, value, more)
		local labels = more or {}
		labels.cron_job = job.name -- `job` is Prometheus' own: it would call ours exported_job
		natives.metric(counter, "lunarch_cron_" .. name, labels_text(labels), value)
	end

	local function environment(job, run)
		local env = {}
		for name in pairs(foreign) do
			env[name] = false
		end
		for name, value in pairs(job.env) do
			env[name] = value
		end
		env.LUNARCH_CRON_JOB, env.LUNARCH_CRON_TIME = job.name, run and iso(run.time) or nil
		return env
	end

	-- As cron(8), which reads a job's output to its end: what the command leaves in the background is a part of the run, unless its output
	-- goes elsewhere.
	local function attempt(job, run)
		local child, err = lunarch.exec { job.env.SHELL, "-c", job.command, stdin = job.stdin or "", stderr = "stdout", cwd = job.env.HOME,
			env = environment(job, run), timeout = job.timeout, max_output = OUTPUT_MAX, both_ends = true, until_closed = true, background = true }
		run.child = child
		if not child then
			return nil, err
		end
		return child:wait()
	end

	local function output_of(result, err)
		local how = result or err.result
		if not how then
			return err.message .. "\n"
		end
		return how.stdout
	end

	local function tell(what, job, argv)
		argv.timeout, argv.max_output, argv.stderr = TELL_TIMEOUT, 4096, "stdout"
		local result, err = lunarch.exec(argv)
		if not (result and result.ok) then
			local why = err and err.message or (result.signal and "signal " .. result.signal or "exit status " .. result.code) .. " " .. result.stdout
			natives.emit("warn", "cron_untold", ("the job \"%s\": %s failed: %s"):format(job.name, what, (why:gsub("%s+$", ""))))
		end
	end

	-- As cron does: whenever there is output; and here, too, when a job has failed without any.
	local function mail(job, run, output)
		local to = job.env.MAILTO or job.env.LOGNAME
		if to == "" or (output == "" and run.status == "ok") then
			return
		end
		if not is_file(options.sendmail) then
			if job.env.MAILTO and not mail_said then
				mail_said = true
				natives.emit("warn", "cron_no_mail", ("MAILTO is set, and there is no %s: no mail is sent; --on-failure tells a command instead"):format(
					options.sendmail))
			end
			return
		end
		local sender = (job.env.MAILFROM or ""):match "^[%w_][%w@%._+=:/!-]*$" -- as in cronie, another one counts for nothing
		local from = sender or job.env.LOGNAME .. "@" .. history.host
		local argv = { options.sendmail, "-FCronDaemon", "-i", "-oem", sender and "-f" or nil, sender }
		for address in to:gmatch "[^,%s]+" do
			argv[#argv + 1] = address
		end
		local head = ("From: \"(Cron Daemon)\" <%s>\nTo: %s\nSubject: Cron <%s@%s> %s%s\nMIME-Version: 1.0\nContent-Type: %s\n"
			.. "Content-Transfer-Encoding: %s\nAuto-Submitted: auto-generated\nX-Cron-Job: %s\n\n"):format(from, to, job.env.LOGNAME,
			history.host, one_line(job.command):sub(1, 500), run.status == "ok" and "" or " (" .. run.why .. ")",
			one_line(job.env.CONTENT_TYPE or "text/plain; charset=UTF-8"), one_line(job.env.CONTENT_TRANSFER_ENCODING or "8bit"), job.name)
		argv.stdin = head .. output
		tell("sendmail", job, argv)
	end

	local function tell_failure(job, run, output)
		if not options.on_failure or run.status == "ok" or run.status == "skipped" then
			return
		end
		local env = environment(job, run)
		env.LUNARCH_CRON_STATUS, env.LUNARCH_CRON_WHY = run.status, run.why
		env.LUNARCH_CRON_COMMAND, env.LUNARCH_CRON_LINE = job.command, ("%s:%d"):format(job.path, job.line)
		tell("--on-failure", job, { "/bin/sh", "-c", options.on_failure, stdin = output, env = env })
	end

	local function id_of(term, job, tick)
		return ("%s@%d.%d%s"):format(job.name, tick.time, term.token, tick.asked and ".asked" .. tick.asked.number or "")
	end

	-- Returns the run as the history has it.
	local function begin(term, job, tick)
		local run = {
			id = id_of(term, job, tick), job = job.name, time = tick.time, began = now(), token = term.token, machine = history.host, leader = term.identity, catch_up = tick.caught_up or nil,
			asked_by = tick.asked and tick.asked.by or nil,
		}
		options.store.record(run)
		runner.running[run], started[run] = job, monotonic()
		note(term, run, job)
		metric(false, "running", job, 1)
		options.board.began(job)
		natives.emit("info", "cron_started", ("the job \"%s\" (%s:%d) starts for %s%s"):format(job.name, job.path, job.line, iso(tick.time),
			tick.asked and ", as " .. tick.asked.by .. " has asked" or ""))
		return run
	end

	local function finish(job, run, status, why)
		run.status, run.why, run.took = status, why, monotonic() - started[run]
		options.store.record { id = run.id, token = run.token, status = status, why = why, took = run.took, attempts = run.attempts, output = run.output }
		metric(true, "runs_total", job, 1, { status = status })
		options.board.ended(job, run)
		metric(false, "last_duration_seconds", job, run.took)
		if status == "ok" then
			metric(false, "last_success_time_seconds", job, now())
		end
		local text = ("the job \"%s\" (%s:%d): %s, after %.1f s"):format(job.name, job.path, job.line, why, run.took)
		natives.emit(status == "ok" and "info" or "warn", status == "ok" and "cron_done" or "cron_failed", text)
	end

	local function leave(job, run)
		runner.running[run] = nil
		local others = false
		for _, other in pairs(runner.running) do
			others = others or other.name == job.name
		end
		metric(false, "running", job, others and 1 or 0)
		repeat until not idle:wake()
	end

	local function try(term, job, run)
		local pause = PAUSE
		run.attempts = 0
		while true do
			local began = monotonic()
			local result, err = attempt(job, run)
			run.attempts = run.attempts + 1
			local status, why, again, code = judge(result, err, job)
			run.code = code
			local output = output_of(result, err)
			run.output = options.store.output(job, ("%s token %d, attempt %d, %s, after %.1f s"):format(
				iso(now()), term.token, run.attempts, why, monotonic() - began), output) or run.output
			if not again or run.attempts > job.retries or not natives.rest(pause) then
				return status, why, output
			end
			pause = math.min(PAUSE_MAX, pause * 2)
		end
	end

	-- Runs the job to its end. However it is left: its end is recorded.
	-- done: of term:cron. Before anybody is told, which may outlast the term.
	function runner.run(term, job, tick, done)
		local run = begin(term, job, tick)
		tick.run = run
		local _ <close> = setmetatable({}, { __close = function()
			if not run.status then
				finish(job, run, "interrupted", "it was stopped, since the term ended")
				cut[#cut + 1] = { job = job, run = run }
			end
			leave(job, run)
		end })
		local status, why, output = try(term, job, run)
		finish(job, run, status, why)
		if noted[run.id] then
			forget(term, run.id)
		end
		done()
		mail(job, run, output)
		tell_failure(job, run, output)
		return run
	end

	-- Of runs that are noted in the record and whose end nobody has told: their leader, or its worker, has died.
	-- all: those of this term, too.
	function runner.tell_lost(term, all)
		local by_name = {}
		for _, job in ipairs(options.jobs) do
			by_name[job.name] = job
		end
		local _, text = natives.checkpoint(term) -- the newest, also if it is not saved yet
		local notes = text and natives.json.decode(text)
		notes = type(notes) == "table" and notes.runs
		for id, began in pairs(type(notes) == "table" and notes or {}) do
			local name, time, token = id:match "^(.*)@(%d+)%.(%d+)"
			token, time, began = math.tointeger(tonumber(token)), tonumber(time), tonumber(began)
			if token and time and began and (all or token < term.token) then
				local why = "it was lost with the process that ran it"
				local run = { id = id, job = name, time = time, began = began, token = token, status = "lost", why = why }
				-- Of a job that is no more nothing is known but its name.
				local job = by_name[name] or { name = name, env = { MAILTO = "" }, command = "?", path = "?", line = 0 }
				options.store.record(run)
				metric(true, "runs_total", job, 1, { status = "lost" })
				natives.emit("warn", "cron_failed", ("the job \"%s\" (%s:%d): %s, begun for %s"):format(name, job.path, job.line, why, iso(time)))
				mail(job, run, why .. "\n")
				tell_failure(job, run, why .. "\n")
				forget(term, id) -- when somebody was told: rather twice than never
			end
		end
	end

	-- The term is over, and nothing of it runs. Where the lease was lost the record cannot be written: then the next leader tells.
	function runner.stopped(term, reason)
		local list = cut
		cut = {}
		if reason == "expired" or reason == "lost" then
			noted = {}
			return
		end
		for _, it in ipairs(list) do
			local result, err
			if it.run.child then
				result, err = it.run.child:wait(0)
			end
			local output = it.run.child and output_of(result, err) or ""
			options.store.output(it.job, ("%s token %d, %s"):format(iso(now()), term.token, it.run.why), output)
			mail(it.job, it.run, output)
			tell_failure(it.job, it.run, output)
			if noted[it.run.id] then
				forget(term, it.run.id)
			end
		end
		runner.tell_lost(term, true)
		noted = {}
	end

	function runner.skip(term, job, tick, reason)
		local why = reason == "overlap" and "its last run had not ended" or reason == "ended" and "the term ended while it waited for its last run"
			or ("it was missed, and %d s late"):format(math.floor(tick.late))
		options.store.record { id = id_of(term, job, tick) .. ".skipped", job = job.name, time = tick.time, began = now(), token = term.token,
			machine = history.host, leader = term.identity, status = "skipped", why = why, took = 0, asked_by = tick.asked and tick.asked.by or nil }
		metric(true, "runs_total", job, 1, { status = "skipped" })
		options.board.skipped(job)
		natives.emit("warn", "cron_skipped", ("the job \"%s\" (%s:%d) is left out for %s: %s"):format(
			job.name, job.path, job.line, iso(tick.time), why))
	end

	-- When the run of this job began that began last and has not ended; nil: none is under way.
	function runner.running_since(job)
		local since
		for run, other in pairs(runner.running) do
			since = other.name == job.name and math.max(since or 0, run.began) or since
		end
		return since
	end

	-- Until nothing runs.
	function runner.wait()
		while next(runner.running) do
			idle:wait()
		end
	end

	return runner
end

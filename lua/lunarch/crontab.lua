-- lunarch.crontab: crontabs as they are, run by the leader alone. `lunarch cron` is this.

local use = ...
local check = use "options"
local lunarch = require "lunarch"

local LIST_TIMES <const> = 3 -- of each job
local LATEST <const> = 253402300799 -- the last second of the year 9999
local MARKS_MAX <const> = 15000 -- bytes of the checkpoint (16 KB) that the jobs' marks may take
local MARK_BYTES <const> = 16 -- of a mark without the job's name: quotes, colon, comma, and the time
-- Commands that run another, and how many arguments stand before it besides options and numbers.
local WRAPPERS <const> = { flock = 1, nice = 0, ionice = 0, timeout = 0, env = 0, exec = 0, nohup = 0, setsid = 0, time = 0, chronic = 0, sudo = 0,
	command = 0, chrt = 0, stdbuf = 0, ["systemd-cat"] = 0 }
local ENOENT <const>, ENOTDIR <const>, EISDIR <const> = 2, 20, 21
local TAIL <const> = 65536 -- bytes of each history, in which a leader looks for the jobs' last runs
local SENDMAIL <const> = "/usr/sbin/sendmail"

local function files_kind(value)
	if type(value) ~= "table" or #value == 0 then
		return "a list of at least one file"
	end
	for _, file in ipairs(value) do
		if type(file) ~= "string" or file == "" then
			return "a list of files"
		end
	end
end

local known = { files = files_kind, system = "boolean", user = "text", home = "text", directory = "text", on_failure = "text", sendmail = "text",
	catch_up = "seconds", env = files_kind, env_files = files_kind, need_shells = "boolean" }

-- The user of this process, and the home directory, by the file of passwords.
local function who_am_i()
	local status <close> = io.open("/proc/self/status", "r")
	local uid = status and status:read("a"):match "\nUid:%s+%d+%s+(%d+)"
	local passwords <close> = io.open("/etc/passwd", "r")
	for line in passwords and passwords:lines() or function() end do
		local name, its, home = line:match "^([^:]*):[^:]*:([^:]*):[^:]*:[^:]*:([^:]*):"
		if its == uid then
			return name, home
		end
	end
end

local function is_missing(path)
	local file <close>, _, code = io.open(path, "r")
	return not file and (code == ENOENT or code == ENOTDIR)
end

local function is_system(path)
	return path == "/etc/crontab" or path:find "^/etc/cron%.d/" ~= nil
end

return function(natives)
	local crontab = {}
	local history = use "cron_history"(natives)

	local function options_of(what, options)
		local wrong = type(options) ~= "table" and what .. ": expected a table of options, as { files = { \"crontab\" } }"
			or check(what, options, known) or (not options.files and what .. ": expected the option 'files'") or nil
		if wrong then
			error(wrong, 3)
		end
		local user, home = options.user, options.home
		if not (user and home) then
			local own, its = who_am_i()
			user, home = user or own, home or its
		end
		if not (user and home) then
			error(what .. ": this process's user is not in /etc/passwd: say user and home", 3)
		end
		return user, home
	end

	-- The files that a path stands for, with a zero between two. A directory stands for its files whose names cron(8) would take.
	local function files_of(path)
		local file <close>, why = io.open(path, "r")
		if not file then
			return nil, why
		elseif select(3, file:read(1)) ~= EISDIR then
			return path
		end
		local r, err = lunarch.exec { "find", "-L", path, "-maxdepth", "1", "-type", "f", timeout = 30 }
		local names = {}
		for name in (r and r.ok and r.stdout or ""):gmatch "[^\n]+" do
			names[#names + 1] = name:match "/[%w_-]+$" and name or nil
		end
		table.sort(names)
		if #names == 0 then
			return nil, ("%s: found no crontab in this directory%s"):format(path, err and ": " .. err.message or "")
		end
		return table.concat(names, "\0")
	end

	local function expand(files, errors)
		local list = {}
		for _, path in ipairs(files) do
			local its, why = files_of(path)
			for file in (its or ""):gmatch "[^\0]+" do
				list[#list + 1] = file
			end
			errors[#errors + 1] = why
		end
		return list
	end

	local function text_of(path)
		local file <close>, why = io.open(path, "r")
		local text = file and file:read "a"
		return text, why or path .. ": it cannot be read"
	end

	-- FNV-1a of 64 bits, of which the name has 32: names must differ in one crontab, and no more.
	local function hash(text)
		local value = 0xcbf29ce484222325
		for i = 1, #text do
			value = (value ~ text:byte(i)) * 0x100000001b3
		end
		return ("%08x"):format(value >> 32)
	end

	-- The program of a command, behind what only prepares it or runs it: "cd /x && A=b exec /usr/bin/nice -n 5 flock -n /lock make" is make.
	local function program_of(command)
		local waits, options -- for an argument of a wrapper that is no option, and whether options may follow
		for word in command:gsub("^%s*cd%s+%S+%s*[;&]+", ""):gmatch "[^%s;&|()]+" do
			local name = word:match "([%w_-]*)[^/]*$"
			local its = not (options and word:find "^%-") and not word:find "^[%a_][%w_]*=" and WRAPPERS[name]
			if its then
				waits, options = its, true
			elseif options and (word:find "^%-" or word:find "^%d+[smhd]?$") or word:find "^[%a_][%w_]*=" then
				options = options -- a wrapper's option or its number, or a variable
			elseif waits and waits > 0 then
				waits = waits - 1
			else
				return name
			end
		end
		return command:match "^%s*(%S+)":match "([%w_-]*)[^/]*$"
	end

	-- Jobs without a name get one that stays the same while time, user and command do, wherever the line stands.
	local function name_jobs(jobs, errors)
		local taken, bytes = {}, 0
		for _, job in ipairs(jobs) do
			if job.name and taken[job.name] then
				errors[#errors + 1] = ("%s:%d: the name '%s' is taken by %s:%d"):format(job.path, job.line, job.name, taken[job.name].path, taken[job.name].line)
			end
			taken[job.name or job] = job
		end
		for _, job in ipairs(jobs) do
			if not job.name then
				local program = program_of(job.command)
				local base = ("%s-%s"):format(program == "" and "job" or program:sub(1, 20), hash(job.zone .. "\n" .. job.time .. "\n" .. job.text))
				local name, number = base, 1
				while taken[name] do
					number = number + 1
					name = base .. "." .. number
				end
				job.name, taken[name] = name, job
			end
			bytes = bytes + #job.name + MARK_BYTES
		end
		if bytes > MARKS_MAX then
			errors[#errors + 1] = ("%d jobs are too many for one lock: their last runs take %d bytes of its record, of which there are %d. "
				.. "Give them shorter names, or take several locks"):format(#jobs, bytes, MARKS_MAX)
		end
	end

	-- Without its shell a job can never begin: this is said before the first of them is due. A name without a directory is looked for in PATH.
	local function check_shells(jobs, options, errors)
		local said = {}
		for _, job in ipairs(jobs) do
			local shell = job.env.SHELL
			if not said[shell] and shell:find("/", 1, true) and is_missing(shell) then
				said[shell] = true
				errors[#errors + 1] = ("%s:%d: there is no %s on this machine, the shell with which this command is run. Install it, or name another above "
					.. "the line: SHELL=PATH (Lunarch's own image has none: make one FROM it)"):format(job.path, job.line, shell)
			end
		end
		if options.on_failure and is_missing "/bin/sh" then
			errors[#errors + 1] = "--on-failure is run with /bin/sh, and there is none on this machine"
		end
	end

	-- A user before the command, where there is none to be: the first word is a user's name and no program's.
	local function check_users(jobs, warnings)
		local users = {}
		local passwords <close> = io.open("/etc/passwd", "r")
		for line in passwords and passwords:lines() or function() end do
			users[line:match "^[^:]*"] = true
		end
		local function is_program(name, path)
			for directory in path:gmatch "[^:]+" do
				if not is_missing(directory .. "/" .. name) then
					return true
				end
			end
		end
		for _, job in ipairs(jobs) do
			local word = job.command:match "^(%S+)%s+%S"
			if word and not job.system and users[word] and not is_program(word, job.env.PATH) then
				warnings[#warnings + 1] = ("%s:%d: the command begins with '%s', which is a user and no program: a system crontab has a user there, and wants "
					.. "--system; else remove it"):format(job.path, job.line, word)
			end
		end
	end

	-- All texts in one, as they are kept: of each what it is, its path, and its text.
	local function read_files(options, errors)
		local list = {}
		local function add(kind, path)
			local text, why = text_of(path)
			list[#list + 1] = text and ("s1s4s4"):pack(kind, path, text)
			errors[#errors + 1] = not text and why or nil
		end
		for _, path in ipairs(options.env_files or {}) do
			add("env", path)
		end
		for _, path in ipairs(expand(options.files, errors)) do
			add("crontab", path)
		end
		return table.concat(list)
	end

	-- NAME=VALUE, or NAME: then the value that this process has, and none if it has none. As docker has them: a value is what follows "=".
	local function add_variable(variables, line, path, number, errors)
		local name, value = line:match "^([^=]*)=(.*)$"
		name = name or line
		if not name:find "^[%a_][%w_]*$" then
			errors[#errors + 1] = ("%s:%d: expected the name of a variable, or NAME=VALUE"):format(path, number) -- a secret may stand there
			return
		end
		value = value or os.getenv(name)
		variables[#variables + 1] = value and { name = name, value = value, path = path, line = number } or nil
	end

	local function add_env_file(variables, text, path, errors)
		local number = 0
		for line in (text:gsub("^\239\187\191", "") .. "\n"):gmatch "(.-)\r?\n" do
			line, number = line:gsub("^%s+", ""), number + 1
			if line ~= "" and line:sub(1, 1) ~= "#" then
				add_variable(variables, line, path, number, errors)
			end
		end
	end

	-- anew: as the files are now, and not as this version of the script has them. The last result is for `keep`.
	local function read(what, options, anew)
		local user, home = options_of(what, options)
		local parse = use "crontab"(natives.cron)
		local jobs, errors, warnings = {}, {}, {}
		local kept = "crontabs " .. hash(table.concat(options.files, "\0") .. "\0\0" .. table.concat(options.env_files or {}, "\0"))
		local texts, wrong = natives.kept_find(kept)
		if wrong or not texts or anew then
			texts = wrong and "" or read_files(options, errors)
			errors[#errors + 1] = wrong
			if #errors == 0 and not anew then
				texts, errors[1] = natives.keep(kept, texts)
			end
		end
		local variables, found, at = {}, {}, 1
		while at <= #(texts or "") do
			local kind, path, text
			kind, path, text, at = ("s1s4s4"):unpack(texts, at)
			if kind == "env" then
				add_env_file(variables, text, path, errors)
			else
				found[#found + 1] = { path = path, text = text }
			end
		end
		for i, line in ipairs(options.env or {}) do
			add_variable(variables, line, "--env", i, errors)
		end
		for _, file in ipairs(found) do
			local path, text = file.path, file.text
			local system = options.system
			if system == nil then
				system = is_system(path)
			end
			local its, mistakes, odd = parse(text, path, { system = system, user = user, home = home, catch_up = options.catch_up,
				variables = variables })
			table.move(its, 1, #its, #jobs + 1, jobs)
			table.move(mistakes, 1, #mistakes, #errors + 1, errors)
			table.move(odd, 1, #odd, #warnings + 1, warnings)
		end
		name_jobs(jobs, errors)
		if #errors == 0 and #jobs == 0 then
			errors[1] = table.concat(options.files, ", ") .. ": found no job"
		end
		if options.need_shells then
			check_shells(jobs, options, errors)
		end
		check_users(jobs, warnings)
		return jobs, errors, warnings, function() return natives.keep(kept, texts, true) end
	end

	-- The jobs, or nil and an error with a line for each thing that is wrong. With the jobs: a list of warnings.
	function crontab.read(options)
		local jobs, errors, warnings = read("crontab.read", options)
		if #errors > 0 then
			return natives.fail("invalid", table.concat(errors, "\n"))
		end
		return jobs, nil, warnings
	end

	local function parsed(job)
		return assert(natives.cron(job.time, job.name, job.zone))
	end

	-- The next times of a job, after that time.
	function crontab.next(job, after, count)
		local cron, list = parsed(job), {}
		for i = 1, count or LIST_TIMES do
			local _, wake = cron:due(after, after, "skip")
			if not wake then
				break
			end
			list[i], after = wake, wake
		end
		return list
	end

	local function iso(time)
		local seconds = tonumber(time) or 0
		return os.date("!%Y-%m-%dT%H:%M:%SZ", seconds >= 0 and seconds <= LATEST and math.floor(seconds) or 0)
	end

	-- One of them as a JSON object. What is no UTF-8 in it is shown as a question mark.
	local function json_of(job, now)
		local object = { name = job.name, path = job.path, line = job.line, zone = job.zone, time = job.time, command = job.command, next = {} }
		for key, value in pairs(object) do
			object[key] = type(value) == "string" and not utf8.len(value) and value:gsub("[\x80-\xff]", "?") or value
		end
		for i, time in ipairs(crontab.next(job, now)) do
			object.next[i] = iso(time)
		end
		return natives.json.encode(object) .. "\n"
	end

	-- A text for people: the jobs, and when each runs next; or with json a JSON object for each, a line each.
	function crontab.list(options, json)
		local jobs, err = crontab.read(options)
		if not jobs then
			return nil, err
		end
		local lines, now = {}, math.floor(natives.time.now())
		for i, job in ipairs(json and jobs or {}) do
			lines[i] = json_of(job, now)
		end
		if json then
			return table.concat(lines)
		end
		for _, job in ipairs(jobs) do
			local cron = parsed(job)
			lines[#lines + 1] = ("%s  (%s:%d, %s)\n  %s  %s"):format(job.name, job.path, job.line, job.zone, job.time, job.command)
			for _, time in ipairs(crontab.next(job, now)) do
				lines[#lines + 1] = ("  next %s"):format(cron:text(time))
			end
		end
		return table.concat(lines, "\n") .. "\n"
	end

	-- The runs that this directory knows of, oldest first.
	function crontab.history(directory)
		if type(directory) ~= "string" or directory == "" then
			error("crontab.history: expected a directory", 2)
		end
		return history.read(directory)
	end

	-- The file may be of another machine, and anything may stand in it.
	local function line_of(run)
		local took = type(run.took) == "number" and ("%.1f s"):format(run.took) or "-"
		return ("%s  %-11s %8s  %s  for %s  %s%s%s"):format(iso(run.began), tostring(run.status), took, tostring(run.job), iso(run.time),
			tostring(run.machine), run.asked_by and "  asked for by " .. tostring(run.asked_by) or "",
			run.why and run.status ~= "ok" and "  " .. tostring(run.why) or "")
	end

	-- The same as a text: a line for each run, or with json a JSON object.
	function crontab.tell(directory, json)
		local runs, err = crontab.history(directory)
		if not runs then
			return nil, err
		end
		local lines = {}
		for i, run in ipairs(runs) do
			lines[i] = (json and natives.json.encode(run) or line_of(run)) .. "\n"
		end
		return table.concat(lines)
	end

	-- Beside the jobs, which do not wait for it.
	local function tell_all(term, jobs, runner, board, directory)
		term:spawn(function()
			runner.tell_lost(term)
			board.begin(term, jobs, directory and history.read(directory, TAIL) or {})
		end)
	end

	local function start(term, job, runner)
		term:cron(job.time, function(tick, done) runner.run(term, job, tick, done) end, {
			name = job.name, seed = job.name, zone = job.zone, catch_up = job.catch_up, again = job.again,
			overlap = job.overlap == "allow" and true or job.overlap == "skip" and "skip" or false,
			on_skip = function(tick, why) runner.skip(term, job, tick, why) end,
		})
	end

	-- Whether the line is the same; where it stands is no matter.
	local function is_same(a, b)
		for key, value in pairs(a) do
			local other = b[key]
			if key == "env" then
				for name, text in pairs(value) do
					if other[name] ~= text then
						return false
					end
				end
			elseif key ~= "path" and key ~= "line" and value ~= other then
				return false
			end
		end
		return true
	end

	-- Makes `jobs` what is wanted. Lists of those that are new, have changed, and are gone.
	local function change(jobs, wanted)
		local old, new, changed, gone = {}, {}, {}, {}
		for _, job in ipairs(jobs) do
			old[job.name] = job
		end
		for i, job in ipairs(wanted) do
			local its = old[job.name]
			old[job.name] = nil
			if its and is_same(its, job) and is_same(job, its) then
				its.path, its.line = job.path, job.line
				wanted[i] = its
			elseif its then
				changed[#changed + 1] = job
			else
				new[#new + 1] = job
			end
		end
		for _, job in pairs(old) do
			gone[#gone + 1] = job
		end
		for i = 1, math.max(#jobs, #wanted) do
			jobs[i] = wanted[i]
		end
		return new, changed, gone
	end

	-- In a term that runs: what runs of jobs that are changed or gone goes on, as with cron(8).
	local function carry_out(term, runner, board, new, changed, gone)
		for _, list in ipairs { changed, gone } do
			for _, job in ipairs(list) do
				natives.cron_drop(term, job.name)
			end
		end
		for _, list in ipairs { new, changed } do
			for _, job in ipairs(list) do
				start(term, job, runner)
				board.set(job)
			end
		end
		for _, job in ipairs(gone) do
			board.drop(job.name)
		end
	end

	-- The election that runs the jobs, as a script returns it. Raises what is wrong with the files.
	function crontab.election(options)
		local jobs, errors = read("crontab.election", options)
		if #errors > 0 then
			error(table.concat(errors, "\n"), 0)
		end
		local board = use "cron_board"(natives, function(job, after) return crontab.next(job, after, 1)[1] end)
		local runner = use "cron_run"(natives, { store = history.open(options.directory), sendmail = options.sendmail or SENDMAIL,
			on_failure = options.on_failure, board = board, jobs = jobs }, history)
		local leads -- the term, or the last one

		-- The elector of `lunarch cron` asks for this when its crontabs have changed: this worker goes on, and so does its term.
		natives.on_request(nil, function()
			local wanted, mistakes, _, keep = read("crontab.election", options, true)
			if #mistakes == 0 then
				mistakes[1] = select(2, keep()) -- for a worker that replaces this one
			end
			if #mistakes > 0 then
				return false, table.concat(mistakes, "\n"), 0
			end
			local new, changed, gone = change(jobs, wanted)
			natives.emit("info", "crontabs_taken", ("%d job%s: %d new, %d changed, %d gone; what runs goes on"):format(
				#jobs, #jobs == 1 and "" or "s", #new, #changed, #gone))
			if leads and leads:is_leading() then
				leads:spawn(carry_out, leads, runner, board, new, changed, gone)
			end
			return true, "", 0
		end)
		return {
			on_leading = function(term)
				leads = term
				for _, job in ipairs(jobs) do
					start(term, job, runner)
				end
				use "cron_asked"(natives, term, jobs, runner)
				tell_all(term, jobs, runner, board, options.directory)
			end,
			on_stopping = function() runner.wait() end,
			on_stopped = runner.stopped,
		}
	end

	return crontab
end

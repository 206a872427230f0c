-- crontab(text, path, options): the jobs of a crontab, as cron(8) of Debian and cronie read it. Runs nothing (cron_run.lua), and reads no file.
-- parse_time(expression, seed, zone): natives.cron. options: user, home; system: a user's name stands before each command.
-- variables: a list of { name, value, path, line }, which says where each is from.
-- Returns the jobs, and a list of errors: "file:line: what was found, what was expected". With errors the jobs are not to be used.
-- And a list of warnings: what is taken, and most likely not meant.

local use = ...
local suggest = use "suggest"

local LINE_MAX <const> = 65536
local ERRORS_MAX <const> = 20
local JOBS_MAX <const> = 1000 -- of one file
local EXPRESSION_MAX <const> = 1000 -- bytes, as for term:cron

local UNITS <const> = { s = 1, m = 60, h = 3600, d = 86400 }
local NEVER_SET <const> = { LOGNAME = true, USER = true }

-- "90s", "1h": seconds; nil if it is none.
local function duration(text)
	local number, unit = text:match "^(%d+)([smhd])$"
	number = number and #number < 8 and math.tointeger(tonumber(number))
	return number and number * UNITS[unit] or nil
end

local function word_of(...)
	local words = { ... }
	return function(value)
		for _, word in ipairs(words) do
			if value == word then
				return value
			end
		end
		return nil, "one of " .. table.concat(words, ", ")
	end
end

-- Each returns the value, or nil and what was expected.
local settings <const> = {
	name = function(v)
		if #v <= 60 and v:find "^[%w_][%w_.-]*$" then
			return v
		end
		return nil, "a name of at most 60 letters, digits, '_', '-' and '.'"
	end,
	catch_up = function(v)
		local seconds = v == "no" and "skip" or v == "always" and "last" or duration(v)
		return seconds, "a time, as 1h, or no, or always"
	end,
	overlap = word_of("allow", "skip", "wait"),
	on_crash = word_of("skip", "again"),
	timeout = function(v)
		local seconds = duration(v)
		return seconds and seconds > 0 and seconds or nil, "a time above 0, as 30m"
	end,
	retries = function(v)
		local number = v:find "^%d+$" and #v < 4 and math.tointeger(tonumber(v))
		return number and number <= 10 and number or nil, "a number from 0 to 10"
	end,
}

-- What follows "# lunarch:". Returns an error's text, or nil.
local function read_settings(text, into)
	for word in text:gmatch "%S+" do
		local key, value = word:match "^([%w_]+)=(.+)$"
		if not key then
			return ("found '%s', expected KEY=VALUE, as timeout=30m"):format(word)
		elseif not settings[key] then
			return ("there is no setting '%s'%s"):format(key, (suggest(key, settings)))
		elseif into[key] ~= nil then
			return ("'%s' is set twice"):format(key)
		end
		local got, expected = settings[key](value)
		if got == nil then
			return ("%s: found '%s', expected %s"):format(key, value, expected)
		end
		into[key] = got
	end
end

-- NAME = VALUE: the name, of whatever characters as in cron(8), and the value; or nil, and what is wrong with it if it was meant as one; or nil alone.
local function read_variable(line)
	local quote, name, rest = line:match "^([\"'])(.-)%1%s*=%s*(.*)$"
	if not quote then
		name, rest = line:match "^([^%s=\"'][^%s=]*)%s*=%s*(.*)$"
	end
	if not name then
		return nil
	end
	local value = rest:match "^(.*%S)" or "" -- in one pass, however many blanks there are
	local first = value:match "^[\"']"
	if first then
		local inside, after = value:match("^" .. first .. "([^" .. first .. "]*)" .. first .. "(.*)$")
		if not inside then
			return nil, ("the quote %s is not closed"):format(first)
		elseif after ~= "" then
			return nil, ("found '%s' behind the closing quote"):format(after)
		end
		value = inside
	end
	return name, value
end

-- The command and its input: a "%" that no backslash precedes ends the command, and each further one ends a line of the input.
-- In the command two backslashes are one, as for Debian's cron.
local function split_command(text)
	local parts, part, at = {}, {}, 1
	while at <= #text do
		local two = text:sub(at, at + 1)
		local one = two:sub(1, 1)
		if two == "\\%" or (two == "\\\\" and #parts == 0) then
			part[#part + 1] = two:sub(2)
			at = at + 2
		elseif one == "%" then
			parts[#parts + 1] = table.concat(part)
			part = {}
			at = at + 1
		else
			part[#part + 1] = one
			at = at + 1
		end
	end
	parts[#parts + 1] = table.concat(part)
	local command = table.remove(parts, 1)
	local input = #parts > 0 and table.concat(parts, "\n") or nil
	if input and input:find "[^\n]$" then
		input = input .. "\n"
	end
	return command, input
end

-- The fields of time, and what follows them; or nil and what is wrong.
local function split_time(line)
	local nickname, rest = line:match "^(@%S+)%s+(.*)$"
	if not nickname and line:sub(1, 1) == "@" then
		return nil, ("found no command behind '%s'"):format(line)
	elseif nickname == "@reboot" then
		return nil, "@reboot is about a machine, and this crontab is for whichever machine leads: leave that line to the machine's own cron, "
			.. "or run a service with `lunarch exec`"
	elseif nickname then
		return nickname, rest
	end
	local fields = {}
	rest = line:gsub("^%-", "") -- cronie: do not log this job
	for i = 1, 5 do
		local field, behind = rest:match "^(%S+)%s*(.*)$"
		if not field then
			return nil, ("found %d field%s, expected five (minute hour day month weekday) and a command, or NAME=VALUE"):format(
				i - 1, i == 2 and "" or "s")
		end
		fields[i], rest = field, behind
	end
	return table.concat(fields, " "), rest
end

-- What is taken as cron(8) takes it, or as it was meant, and may surprise: the settings of time that mean less than they seem to...
local STEPS <const> = { 59, 23, 30, 11, 7 } -- the largest that leads to a second value; */7 is Sunday, for those who mean both days
local function odd_time(time)
	local i = 0
	for field in time:gmatch "%S+" do
		i = i + 1
		for part in field:gmatch "[^,]+" do
			local from, step = part:match "^(.-)/(%d+)$"
			if from and tonumber(step) > STEPS[i] then
				return ("'%s' means its first value alone: the step is larger than the field"):format(part)
			elseif from and from:find "^%w+$" and from ~= "H" then
				return ("'%s' goes on to the end of the field here, and cron(8) refuses it: write a range, as 5-59/15"):format(part)
			end
		end
	end
end

-- ... variables, whose values cron(8) takes as they stand...
local function odd_variable(name, value, parse_time)
	local rest = value:match "^%S+%s+(.+)$"
	local time = rest and (rest:match "^(@%a+)%s+%S" or rest:match "^(%S+%s+%S+%s+%S+%s+%S+%s+%S+)%s+%S")
	if time and parse_time(time, "", "UTC") then
		return ("all of this line is the value of %s, and no job: put '%s' on a line of its own"):format(name, rest)
	elseif value:find "%$[%a_{]" then
		return ("%s is not expanded: the value is '%s' as it stands. Write it in full"):format(value:match "%$[%w_{}]+", value)
	end
end

-- ... and commands.
local function odd_command(text, input)
	local behind = input and (" " .. text):match "[^\\]%%(.*)$"
	return input and ("the command ends at its first %%, and '%s' is its input: if a %% was meant, write \\%%"):format(behind or "") or nil
end

-- Whether the first word of a command is a field of time, as in lines of six or seven fields.
local function sixth_field(command, parse_time)
	local word = command:match "^%S+" or ""
	return word:find "^%*" or word == "?" or (not word:find "^%l+$" and parse_time("0 0 * * " .. word, "", "UTC")) and word
end

local function mail_to(name, value)
	if value == "" then
		return value
	end
	for address in (value .. ","):gmatch "%s*([^,]*),?" do
		address = address:match "^(.*%S)" or ""
		if address ~= "" and not address:find "^[%w_][%w@%%._+=:/!-]*$" then
			return nil, ("%s: '%s' is no address"):format(name, address)
		end
	end
	return value
end

return function(parse_time)
	local reader = {}
	reader.__index = reader

	function reader:fail(text)
		if #self.errors < ERRORS_MAX then
			self.errors[#self.errors + 1] = ("%s:%d: %s"):format(self.path, self.number, text)
		elseif #self.errors == ERRORS_MAX then
			self.errors[#self.errors + 1] = self.path .. ": and more"
		end
	end

	function reader:warn(text)
		if text then
			self.warnings[#self.warnings + 1] = ("%s:%d: %s"):format(self.path, self.number, text)
		end
	end

	-- What is set above a line of another kind belongs to no job.
	function reader:no_settings(found)
		if next(self.settings) ~= nil then
			self.settings = {}
			self:fail(("found %s below '# lunarch: ...', expected the line of a job"):format(found))
		end
	end

	function reader:comment(line)
		local text = line:match "^#%s*lunarch:(.*)$"
		if text then
			local wrong = read_settings(text, self.settings)
			if wrong then
				self:fail(wrong)
			end
		end
	end

	function reader:variable(name, value)
		self:no_settings "a variable"
		self:warn(odd_variable(name, value, parse_time))
		if NEVER_SET[name] then
			return self:fail(("%s cannot be set: it is the user that runs the jobs"):format(name))
		elseif name == "RANDOM_DELAY" then
			return self:fail "RANDOM_DELAY is not supported: an H, or 0~30, in the field of minutes spreads jobs"
		elseif name:find "^LUNARCH_" then
			return self:fail(("%s cannot be set: these variables are the term's"):format(name))
		elseif name == "CRON_TZ" then
			local good, err = parse_time("0 0 * * *", "", value)
			if not good or value == "" then
				return self:fail("CRON_TZ: " .. (err and err.message or "found nothing, expected a time zone as Europe/Berlin"))
			end
			self.zone = value
			return
		elseif name == "MAILTO" or name == "MAILFROM" then
			local good, wrong = mail_to(name, value)
			if not good and name == "MAILTO" then
				return self:fail(wrong)
			end
			self:warn(wrong)
		end
		-- A job has the variables above it: what stands below changes a copy.
		local env = {}
		for key, old in pairs(self.env) do
			env[key] = old
		end
		env[name] = value
		self.env = env
	end

	-- The command without the user's name before it; nil: this is said to be wrong.
	function reader:take_user(rest)
		if not self.options.system then
			return rest
		end
		local user, command = rest:match "^(%S+)%s+(.*)$"
		if not user then
			return self:fail(("found '%s' behind the time, expected a user and a command, as a system crontab has them"):format(rest))
		elseif user ~= self.options.user then
			return self:fail(("found a job of the user '%s', and this runs as '%s': whether jobs have ended can be proved for one user alone. "
				.. "Run `lunarch cron` as '%s' for this line, with a crontab and a lock of its own"):format(user, self.options.user, user))
		end
		return command
	end

	function reader:settled()
		local s = self.settings
		self.settings = {}
		if s.on_crash == "again" and s.overlap == "allow" then
			self:fail "on_crash=again and overlap=allow exclude each other: with several runs at once it is not known which have ended"
		end
		s.overlap = s.overlap or (s.on_crash == "again" and "skip" or "allow")
		s.catch_up = s.catch_up or self.options.catch_up or 600
		return s
	end

	function reader:job(line)
		local time, rest = split_time(line)
		if not time then
			self.settings = {}
			return self:fail(rest)
		end
		local s = self:settled()
		if #time > EXPRESSION_MAX then
			return self:fail(("found a time of %d bytes, expected at most %d"):format(#time, EXPRESSION_MAX))
		end
		local parsed, err = parse_time(time, "", self.zone or "local")
		if not parsed then
			return self:fail(err.message)
		end
		local command = self:take_user(rest)
		if not command then
			return
		end
		local program, input = split_command(command)
		if program:find "^%s*$" then
			return self:fail "found no command behind the time"
		elseif sixth_field(program, parse_time) then
			return self:fail(("found '%s' where the command is expected: cron(8) has five fields (minute hour day month weekday), and none of seconds or years")
				:format(program:match "%S+"))
		elseif #self.jobs == JOBS_MAX then
			return self:fail(("found more than %d jobs"):format(JOBS_MAX))
		end
		self:warn(odd_time(time))
		self:warn(odd_command(command, input))
		self.jobs[#self.jobs + 1] = {
			path = self.path, line = self.number, time = time, zone = self.zone or "local", text = command, system = self.options.system,
			command = program, stdin = input, env = self.env, name = s.name, catch_up = s.catch_up, overlap = s.overlap,
			timeout = s.timeout, retries = s.retries or 0, again = s.on_crash == "again",
		}
	end

	function reader:line(line)
		if #line > LINE_MAX then
			return self:fail(("found a line of %d bytes, expected at most %d"):format(#line, LINE_MAX))
		elseif line:find("\0", 1, true) then
			return self:fail "found a zero byte"
		end
		if self.number == 1 and line:find "^\xEF\xBB\xBF" then
			self:warn "the file begins with a byte order mark, for which cron(8) refuses it or takes it for a name: save it as UTF-8 without one"
			line = line:sub(4)
		end
		if line:find "\r$" and not self.carriage_return then
			self.carriage_return = true
			self:warn "the lines end with a carriage return, which cron(8) gives to the command: save the file with the ends of lines of Unix (dos2unix)"
		end
		line = line:gsub("^[ \t]+", ""):gsub("\r$", "")
		if line == "" or line:sub(1, 1) == "#" then
			return self:comment(line)
		end
		local name, value = read_variable(line)
		if name then
			self:variable(name, value)
		elseif value then
			self.settings = {}
			self:fail(value)
		else
			self:job(line)
		end
	end

	return function(text, path, options)
		local self = setmetatable({ path = path, options = options, number = 0, jobs = {}, errors = {}, warnings = {}, settings = {} }, reader)
		self.env = { SHELL = "/bin/sh", PATH = "/usr/bin:/bin", HOME = options.home, LOGNAME = options.user }
		for _, given in ipairs(options.variables or {}) do -- as if they stood above the first line
			self.path, self.number = given.path, given.line
			self:variable(given.name, given.value)
		end
		self.path, self.number = path, 0
		for line in (text:sub(-1) == "\n" and text or text .. "\n"):gmatch "(.-)\n" do
			self.number = self.number + 1
			self:line(line)
		end
		self:no_settings "the end of the file"
		return self.jobs, self.errors, self.warnings
	end
end

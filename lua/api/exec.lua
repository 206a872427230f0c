-- exec{ "program", "argument", ..., option = ... } or exec("shell line", { option = ... }), or a list of such lists, which is a
-- pipeline. Checks the arguments, starts the programs (runtime/script/api/lua_exec.c), and makes the result.

local use = ...
local check = use "options"

return function(natives)

	local function file(value)
		return type(value) == "table" and type(value.file) == "string"
	end

	local function input(value)
		return not (type(value) == "string" or file(value)) and 'a text, or { file = "path" }' or nil
	end

	local function output(words)
		local known = {}
		for word in words:gmatch "%a+" do
			known[word] = true
		end
		return function(value)
			if not (known[value] or file(value)) then
				return ('one of "%s", or { file = "path" }'):format((words:gsub(" ", '", "')))
			end
		end
	end

	local known = {
		timeout = "seconds",
		kill_after = "seconds",
		cwd = "text",
		user = function(v) return math.type(v) ~= "integer" and (type(v) ~= "string" or v == "") and "a user's name or number" or nil end,
		env = "table",
		stdin = input,
		stdout = output "capture inherit null",
		stderr = output "capture inherit null stdout",
		max_output = "count",
		both_ends = "boolean",
		until_closed = "boolean",
		background = "boolean",
	}
	local of_a_stage = { timeout = "seconds", kill_after = "seconds", cwd = "text", user = known.user, env = "table", stderr = known.stderr,
		max_output = "count" }
	local of_a_file = { file = "text", append = "boolean" }

	local function text_argument(value, what)
		local kind = type(value)
		if kind ~= "string" and kind ~= "number" then
			error(("exec: %s: expected a text, found a %s"):format(what, kind), 0)
		end
		local text = tostring(value)
		if text:find("\0", 1, true) then
			error(("exec: %s holds a zero byte"):format(what), 0)
		end
		return text
	end

	local function environment(env)
		local list = {}
		for name, value in pairs(env) do
			if type(name) ~= "string" or name == "" or name:find("[=%z]") then
				error(("exec: env: '%s' is no name of a variable"):format(tostring(name)), 0)
			end
			-- false removes the variable
			list[#list + 1] = value == false and name or name .. "=" .. text_argument(value, "env " .. name)
		end
		return list
	end

	local function checked(given, names)
		local wrong = check("exec", given, names)
		if wrong then
			error(wrong, 0)
		end
	end

	-- The description that lua_exec.c's start takes.
	local function spec_of(argv, given, names)
		checked(given, names)
		local spec = { argv = argv }
		for key, value in pairs(given) do
			spec[key] = value
			if type(value) == "table" and key ~= "env" then
				checked(value, of_a_file)
				spec[key] = key ~= "stdin" and "file" or nil
				spec[key .. "_file"] = text_argument(value.file, key)
				spec[key .. "_append"] = value.append
			end
		end
		spec.cwd = given.cwd and text_argument(given.cwd, "cwd")
		spec.user = given.user and text_argument(given.user, "user")
		spec.env = given.env and environment(given.env)
		return spec
	end

	-- Splits { "program", "argument", option = ... } into arguments and options.
	local function split(call)
		local list, options, last = {}, {}, 0
		for key, value in pairs(call) do
			if math.type(key) == "integer" then
				list[key] = value
				last = math.max(last, key)
			else
				options[key] = value
			end
		end
		if last == 0 or #list ~= last or list[1] == "" then
			error("exec: expected a list, the program and its arguments", 0)
		end
		return list, options
	end

	local function argv_of(list)
		local argv = {}
		for i, value in ipairs(list) do
			argv[i] = text_argument(value, "argument " .. i)
		end
		return argv
	end

	-- The output of each program of a pipeline is the input of the next one. The timeout is for all of them together.
	local function pipeline(stages, given)
		checked(given, known)
		local specs, names = {}, {}
		for i, stage in ipairs(stages) do
			if type(stage) == "string" then
				stage = { "/bin/sh", "-c", stage }
			elseif type(stage) ~= "table" then
				error(("exec: program %d of the pipeline: expected a list or a shell line, found a %s"):format(i, type(stage)), 0)
			end
			local list, options = split(stage)
			local spec = spec_of(argv_of(list), options, of_a_stage)
			local common = spec_of(nil, given, known)
			for key, value in pairs(common) do
				local place = key:match "^std%a+"
				local meant = place ~= "stdin" and place ~= "stdout" or i == (place == "stdin" and 1 or #stages)
				if spec[key] == nil and meant and not (place == "stderr" and spec.stderr) then
					spec[key] = value
				end
			end
			if i < #stages then
				spec.stdout = "pipe"
			end
			specs[i], names[i] = spec, list[1]
		end
		return specs, table.concat(names, " | ")
	end

	local function prepare(call, options, extra)
		if type(call) == "table" and options == nil then
			local list, given = split(call)
			if type(list[1]) == "table" then
				local specs, name = pipeline(list, given)
				return specs, name, given.background
			end
			return { spec_of(argv_of(list), given, known) }, tostring(list[1]), given.background
		elseif type(call) == "string" and extra == nil and (options == nil or type(options) == "table") then
			options = options or {}
			local argv = { "/bin/sh", "-c", text_argument(call, "command") }
			return { spec_of(argv, options, known) }, call, options.background
		end
		error('exec: expected exec{"program", "argument", ...} or exec("shell line", {options})', 0)
	end

	local SIGPIPE <const> = 13

	-- Makes one result of those of a pipeline. A program that SIGPIPE has killed, because its reader had ended, has not failed.
	local function joined(stages)
		local result, ok, errors, timed_out, truncated = {}, true, {}, nil, nil
		for i, stage in ipairs(stages) do
			ok = ok and (stage.ok or (i < #stages and stage.signal == SIGPIPE))
			errors[i] = stage.stderr
			timed_out = timed_out or stage.timed_out
			truncated = truncated or stage.truncated
		end
		for key, value in pairs(stages[#stages]) do
			result[key] = value
		end
		result.ok, result.stages, result.stderr = ok, stages, table.concat(errors)
		result.timed_out, result.truncated = timed_out, truncated
		return result
	end

	local names = setmetatable({}, { __mode = "k" }) -- of jobs in the background, as are the next two
	local captured = setmetatable({}, { __mode = "k" })
	local results = setmetatable({}, { __mode = "k" })

	local function conclude(job, name)
		local stages = natives.ends(job)
		local result = results[job] or (#stages == 1 and stages[1] or joined(stages))
		results[job] = result
		if not result.timed_out then
			return result
		end
		local nothing, err = natives.fail("timeout", ("exec: %s has not ended in time and was stopped"):format(name))
		err.result = result
		return nothing, err
	end

	local job = natives.job_methods

	function job.wait(self, timeout)
		if timeout ~= nil and (type(timeout) ~= "number" or not (timeout >= 0 and timeout < math.huge)) then
			error(("child:wait: expected a number of seconds, found %s"):format(tostring(timeout)), 2)
		end
		if not natives.await(self, timeout, false) then
			return natives.fail("timeout", ("child:wait: %s has not ended within %g s, and goes on"):format(names[self], timeout))
		end
		return conclude(self, names[self])
	end

	function job.lines(self, which)
		which = which or "stdout"
		if which ~= "stdout" and which ~= "stderr" then
			error(('child:lines: expected "stdout" or "stderr", found %s'):format(tostring(which)), 2)
		end
		if not captured[self][which] then
			error(("child:lines: its %s is not captured: start it without %s = ..."):format(which, which), 2)
		end
		natives.streams(self, which, true)
		local reading = setmetatable({}, { __close = function() natives.streams(self, which, false) end })
		return function() return natives.line(self, which) end, nil, nil, reading
	end

	return function(...)
		local good, specs, name, background = pcall(prepare, ...)
		if not good then
			error(specs, 2)
		end
		local child, err = natives.start(specs, background)
		if not child then
			return nil, err
		end
		if background then
			local last = specs[#specs]
			names[child] = name
			captured[child] = { stdout = (last.stdout or "capture") == "capture", stderr = (last.stderr or "capture") == "capture" }
			return child
		end
		natives.await(child, nil, true)
		return conclude(child, name)
	end
end

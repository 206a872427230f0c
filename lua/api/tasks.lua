-- wait_all, first, with_timeout and scope run functions as tasks. When they return or raise, all these tasks have ended, and
-- the error of a task has been raised in the caller.

local use = ...
local check = use "options"

return function(natives)
	local tasks = {}

	-- However the function is left: cancels the tasks that still run. A caller that is cancelled itself cannot wait for them.
	local leaving = { __close = function(own)
		for task in pairs(own) do
			if not task:done() then
				natives.disown(task)
				task:cancel()
			end
		end
	end }

	local function start(group, own, f, ...)
		local task = natives.spawn_watched(f, ...)
		own[task] = true
		return natives.group_add(group, task), task
	end

	local function settle(own)
		for task in pairs(own) do
			task:cancel()
		end
		for task in pairs(own) do
			local _, err = task:wait()
			if natives.outcome(task) == "failed" then
				natives.emit("error", "script_error", "a task that was being cancelled: " .. err.traceback)
			end
		end
	end

	-- Raises the task's error, if it has one, when the others have ended.
	local function check_failure(task, own)
		if natives.outcome(task) ~= "failed" then
			return
		end
		local _, err = task:wait()
		own[task] = nil
		settle(own)
		error(err, 0)
	end

	local known = { timeout = "seconds" }

	local function options_of(what, options)
		if options ~= nil and type(options) ~= "table" then
			error(what .. ": the options are a table, as in { timeout = 5 }", 3)
		end
		local wrong = check(what, options or {}, known)
		if wrong then
			error(wrong, 3)
		end
		return options and options.timeout
	end

	local function check_list(what, list)
		if type(list) ~= "table" then
			error(("%s: expected a table of functions or tasks, found a %s"):format(what, type(list)), 3)
		end
		for key, each in pairs(list) do
			if type(each) ~= "function" and not natives.is_task(each) then
				error(("%s: expected functions or tasks, found a %s at %s"):format(what, type(each), tostring(key)), 3)
			end
		end
	end

	-- Returns keys: the number of a task in the group -> its key in the list.
	local function start_all(group, own, list)
		local keys = {}
		for key, each in pairs(list) do
			if type(each) == "function" then
				keys[start(group, own, each)] = key
			else
				keys[natives.group_add(group, each)] = key
			end
		end
		return keys
	end

	local function timed_out(what, seconds)
		return natives.fail("timeout", ("%s: not within %g s"):format(what, seconds))
	end

	local function left(deadline)
		return deadline and math.max(0, deadline - natives.time.monotonic())
	end

	-- wait_all{ f, g, task, ... } -> the first result of each, under the same key | nil, err
	function tasks.wait_all(list, options)
		local timeout = options_of("tasks.wait_all", options)
		check_list("tasks.wait_all", list)
		local own <close> = setmetatable({}, leaving)
		local group, results = natives.group(), {}
		local keys = start_all(group, own, list)
		local deadline = timeout and natives.time.monotonic() + timeout
		while true do
			local number, task = natives.group_next(group, left(deadline))
			if number == nil then
				return results
			elseif number == false then
				settle(own)
				return timed_out("tasks.wait_all", timeout)
			end
			check_failure(task, own)
			results[keys[number]] = (task:wait())
		end
	end

	-- first{ f, g, ... } -> the key of what ended first, and its results | nil, err
	function tasks.first(list, options)
		local timeout = options_of("tasks.first", options)
		check_list("tasks.first", list)
		if next(list) == nil then
			error("tasks.first: expected at least one function or task", 2)
		end
		local own <close> = setmetatable({}, leaving)
		local group = natives.group()
		local keys = start_all(group, own, list)
		local number, task = natives.group_next(group, timeout)
		if not number then
			settle(own)
			return timed_out("tasks.first", timeout)
		end
		check_failure(task, own)
		settle(own)
		return keys[number], task:wait()
	end

	-- with_timeout(seconds, f, ...) -> what f returns | nil, err
	function tasks.with_timeout(seconds, f, ...)
		if type(seconds) ~= "number" or not (seconds >= 0 and seconds < math.huge) then
			error(("tasks.with_timeout: expected a number of seconds, found %s"):format(tostring(seconds)), 2)
		elseif type(f) ~= "function" then
			error(("tasks.with_timeout: expected a function to call, found a %s"):format(type(f)), 2)
		end
		local own <close> = setmetatable({}, leaving)
		local group = natives.group()
		local _, task = start(group, own, f, ...)
		local number = natives.group_next(group, seconds)
		if not number then
			settle(own)
			return timed_out("tasks.with_timeout", seconds)
		end
		check_failure(task, own)
		return task:wait()
	end

	-- scope(f, ...): calls f(scope, ...), and returns when the tasks of scope:spawn have ended, too; raises the error of any of them.
	function tasks.scope(f, ...)
		if type(f) ~= "function" then
			error(("tasks.scope: expected a function to call, found a %s"):format(type(f)), 2)
		end
		local own <close> = setmetatable({}, leaving)
		local group, open = natives.group(), true
		local scope = {}
		function scope.spawn(_, g, ...)
			if not open then
				error("scope:spawn: the scope has been left", 2)
			elseif type(g) ~= "function" then
				error(("scope:spawn: expected a function, found a %s"):format(type(g)), 2)
			end
			local _, task = start(group, own, g, ...)
			return task
		end
		local _, body = start(group, own, f, scope, ...)
		while true do
			local number, task = natives.group_next(group)
			if not number then
				open = false
				return body:wait()
			end
			own[task] = nil
			check_failure(task, own)
		end
	end

	function tasks.queue(capacity)
		return use "queue"(natives).queue(capacity)
	end

	function tasks.semaphore(permits)
		return use "queue"(natives).semaphore(permits)
	end

	return tasks
end

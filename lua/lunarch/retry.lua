-- lunarch.retry: calls a function again, with growing pauses, until it succeeds or its error cannot go away.

local use = ...
local given = use "given"
local lunarch = require "lunarch"

local TRIES <const>, PAUSE <const>, PAUSE_MAX <const>, JITTER <const> = 5, 0.2, 30, 0.5

local function what_counts(value)
	return type(value) ~= "table" and type(value) ~= "function" and "a list of codes, or a function that is asked" or nil
end

local function a_number_of_tries(value)
	return (math.type(value) ~= "integer" or value < 1) and "a whole number, 1 or more" or nil
end

local function a_part(value)
	return (type(value) ~= "number" or not (value >= 0 and value <= 1)) and "a number from 0 to 1" or nil
end

local function a_function(value)
	return type(value) ~= "function" and "a function" or nil
end

local known = {
	tries = a_number_of_tries, timeout = "seconds", pause = "seconds", pause_max = "seconds", jitter = a_part, errors = what_counts,
	raised = "boolean", on_failure = a_function,
}

-- Errors that another call would meet again.
local function hopeless(err)
	return type(err) == "table" and (err.code == "invalid" or err.code == "ended")
end

local function worth_it(errors, err)
	if type(errors) == "function" then
		return errors(err)
	elseif errors == nil then
		return not hopeless(err)
	end
	for _, code in ipairs(errors) do
		if type(err) == "table" and err.code == code or err == code then
			return true
		end
	end
	return false
end

-- A function that returns nothing has succeeded.
local function good(results)
	return results.n == 0 or not not results[1]
end

local function attempt(f, options, try, left)
	local function run()
		if left then
			return lunarch.tasks.with_timeout(left, f, try)
		end
		return f(try)
	end
	if not options.raised then
		return table.pack(run())
	end
	local results = table.pack(pcall(run))
	if results[1] then
		return table.pack(table.unpack(results, 2, results.n))
	end
	return table.pack(nil, results[2])
end

local function pause_after(options, try)
	local pause = math.min(options.pause_max or PAUSE_MAX, (options.pause or PAUSE) * 2.0 ^ (try - 1))
	return pause * (1 - (options.jitter or JITTER) * math.random())
end

return function()
	local retry = {}

	function retry.call(f, options)
		if type(f) ~= "function" then
			error(("retry.call: expected a function, found a %s"):format(type(f)), 2)
		end
		options = given.options("retry.call", options, known)
		local now = lunarch.time.monotonic
		local deadline = options.timeout and now() + options.timeout
		local tries = options.tries or (deadline and math.huge or TRIES)
		local try = 1
		while true do
			local results = attempt(f, options, try, deadline and math.max(0, deadline - now()))
			local pause = pause_after(options, try)
			if good(results) or try >= tries or (deadline and now() + pause >= deadline) or not worth_it(options.errors, results[2]) then
				return table.unpack(results, 1, results.n)
			end
			if options.on_failure then
				options.on_failure(results[2], try, pause)
			end
			lunarch.sleep(pause)
			try = try + 1
		end
	end

	return retry
end

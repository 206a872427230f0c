-- The library (lua/lunarch/) in a real worker: what needs no server.
local tap = require "tap"
local ok, equal, raises, fails = tap.ok, tap.equal, tap.raises, tap.fails
local retry = require "lunarch.retry"

local function requiring()
	ok(require "lunarch.retry" == retry, "a module is made once")
	raises("the library has no module 'lunarch.retyr' (did you mean 'lunarch.retry'?)", "a typo is told, with what was meant",
		function() return require "lunarch.retyr" end)
	raises("library.lua:", "with the script's line", function() return require "lunarch.retyr" end)
	raises("there are lunarch.", "what is like none of them is told with all of them", function() return require "lunarch.unheardof" end)
	raises("module 'unheard' not found", "other names are no business of the library's", function() return require "unheard" end)
end

local function retrying()
	local count = 0
	local function third_time(try)
		count = count + 1
		equal(try, count, "the function gets the number of the try")
		if count < 3 then
			return nil, "not yet"
		end
		return count, "and more"
	end
	local quick = { pause = 0.001 }
	local a, b = retry.call(third_time, quick)
	ok(a == 3 and b == "and more", "what it returns at last is returned")
	count = 0
	a, b = retry.call(third_time, { tries = 2, pause = 0.001 })
	ok(a == nil and b == "not yet" and count == 2, "so many tries, then its error")
	count = 0
	retry.call(function() count = count + 1 end, quick)
	equal(count, 1, "a function that returns nothing has succeeded")
	local function failing(code)
		return function()
			count = count + 1
			return nil, setmetatable({ code = code, message = code }, { __tostring = function() return code end })
		end
	end
	for _, case in ipairs { { "timeout", nil, 3 }, { "invalid", nil, 1 }, { "timeout", { "unreachable", "timeout" }, 3 }, { "denied", { "timeout" }, 1 },
		{ "denied", function(err) return err.code == "denied" end, 3 } } do
		count = 0
		retry.call(failing(case[1]), { tries = 3, pause = 0.001, errors = case[2] })
		equal(count, case[3], ("an error %s: %d tries"):format(case[1], case[3]))
	end
	count = 0
	raises("boom", "an error that is raised goes on to the caller", retry.call, function() count = count + 1 error "boom" end, quick)
	equal(count, 1, "at once")
	a, b = retry.call(function(try) if try < 3 then error "boom" end return try end, { raised = true, pause = 0.001 })
	equal(a, 3, "unless raised = true")
	a, b = retry.call(function() sleep(60) return true end, { timeout = 0.05 })
	fails("timeout", "with_timeout", "a call that takes too long is cancelled", a, b)
	local begin = time.monotonic()
	a = retry.call(function() return nil, "no" end, { timeout = 0.1, pause = 0.02 })
	ok(a == nil and time.monotonic() - begin < 30, "the timeout is for all of it")
	raises("unknown option 'triess' (did you mean 'tries'?)", "an unknown option", retry.call, print, { triess = 3 })
	raises("expected a whole number, 1 or more", "no tries at all", retry.call, print, { tries = 0 })
	raises("expected a function, found a nil", "no function", retry.call)
	raises("library.lua:", "the error is where it was called", function() retry.call(print, { jitter = 2 }) end)
end

return tap.election { requiring, retrying }

-- every(seconds, f [, { now = true }]): calls f at fixed steps, one call at a time; a step that is missed is skipped.

local use = ...
local check = use "options"

return function(sleep, monotonic)
	local known = { now = "boolean" }

	local function tick(seconds, f, now)
		local due = monotonic() + (now and 0 or seconds)
		while true do
			sleep(math.max(0, due - monotonic()))
			f()
			local late = monotonic() - due
			due = due + seconds * math.max(1, math.ceil(late / seconds))
		end
	end

	-- spawn(f, ...) starts the task.
	return function(spawn, seconds, f, options)
		if type(seconds) ~= "number" or seconds <= 0 or seconds == math.huge or seconds ~= seconds then
			error(("every: expected a number of seconds above 0, found %s"):format(tostring(seconds)), 2)
		end
		if type(f) ~= "function" then
			error(("every: expected a function to call, found a %s"):format(type(f)), 2)
		end
		if options ~= nil and type(options) ~= "table" then
			error("every: the options are a table, as in { now = true }", 2)
		end
		local wrong = check("every", options or {}, known)
		if wrong then
			error(wrong, 2)
		end
		return spawn(tick, seconds, f, options and options.now)
	end
end

-- every(seconds, f [, { now =, jitter =, overlap = }]): calls f at fixed intervals, one call at a time. A call that is missed is
-- skipped. Neither long calls nor the jitter move the later ones. When the term drains (on_stopping), no call begins any more.

local use = ...
local check = use "options"

-- rest(seconds) waits; false: the term drains.
return function(rest, monotonic)
	local known = { now = "boolean", jitter = "seconds", overlap = "boolean" }

	local function tick(spawn, seconds, f, options)
		local due = monotonic() + (options.now and 0 or seconds)
		local jitter = options.jitter or 0
		while true do
			if not rest(math.max(0, due + math.random() * jitter - monotonic())) then
				return
			end
			if options.overlap then
				spawn(f)
			else
				f()
			end
			local late = monotonic() - due
			due = due + seconds * math.max(1, math.ceil(late / seconds))
		end
	end

	-- spawn(f, ...) starts the task.
	return function(spawn, seconds, f, options)
		if type(seconds) ~= "number" or seconds <= 0 or seconds == math.huge or seconds ~= seconds then
			error(("every: expected a number of seconds above 0, found %s%s"):format(type(seconds) == "string" and "the text " or "",
				type(seconds) == "string" and ("%q (tonumber makes a number of it)"):format(seconds) or tostring(seconds)), 2)
		end
		if type(f) ~= "function" then
			error(("every: expected a function to call, found a %s"):format(type(f)), 2)
		end
		if options ~= nil and type(options) ~= "table" then
			error("every: the options are a table, as in { now = true }", 2)
		end
		options = options or {}
		local wrong = check("every", options, known)
		if wrong then
			error(wrong, 2)
		elseif (options.jitter or 0) >= seconds then
			error(("every: option 'jitter': expected less than the %g seconds between two calls, found %g"):format(seconds, options.jitter), 2)
		end
		return spawn(tick, spawn, seconds, f, options)
	end
end

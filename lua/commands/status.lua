-- lunarch status: a record, once or as it changes; --watch of several locks is in board.lua.

local use = ...

local POLL <const> = 0.25
local DRAW <const> = 1 -- how often a drawing is made anew, since its times move on
local LOOK <const> = 60 -- with nobody leading and a store that gives notice: a look now and then

-- One after the other; 0 if somebody leads in one of them.
local function show_slots(options, say, record_text)
	local status = say.NOBODY
	for i, url in ipairs(options.locks) do
		local s, err = say.look(url, options.state_dir)
		if not s then
			return say.fail_of(err)
		end
		io.stdout:write(i > 1 and not options.json and "\n" or "", options.json and record_text.json(s) .. "\n" or record_text.lines(s))
		status = s.state == "leading" and 0 or status
	end
	return status
end

return function(natives, options)
	local say = use "commands/say"(natives, "status")
	local record_text = use "commands/record_text"(natives)
	local screen = options.screen
	if options.prefix or #options.locks > 1 and options.watch then
		return use "commands/board"(natives, options, say, record_text)
	end
	if #options.locks > 1 then
		return show_slots(options, say, record_text)
	end
	local handle, err = natives.lock_open(options.locks[1], options.state_dir)
	if not handle then
		return say.fail_of(err)
	end
	local watched

	-- The store may give notices from later on, as a lock in Lua does: asked before each read, so that nothing between the two is missed.
	local function look()
		watched = handle:watch()
		local good, why = handle:read(say.TIMEOUT)
		if not good then
			screen.leave()
			return nil, say.fail_of(why)
		end
		return handle:shown()
	end

	-- Waits for a change, for at most so many seconds; where the store gives no notices, for a moment.
	local function wait(seconds)
		handle:changed(watched and seconds or math.min(seconds, POLL))
	end

	-- Watches until the holder renews (or another takes over), or its lease has passed without that.
	local function verify(s)
		local status
		while s and s.held and not s.watched do
			wait(math.max(s.lease_left, 0)) -- it may have ended since `held` was looked at
			s, status = look()
		end
		return s, status
	end

	-- Ends by a signal or an error. A renewal changes nothing of the headline, and is not told.
	local function tell_changes(s)
		local told, status
		while s do
			local headline = record_text.headline(s)
			if headline ~= told then
				say.line(options.json and record_text.json(s) or say.now(s.now_us) .. headline)
			end
			told = headline
			wait(s.held and s.lease_left > 0 and s.lease_left or LOOK)
			s, status = look()
		end
		return status
	end

	local function draw_changes(s)
		local history_text, show, status = use "commands/history_text"(natives), use "commands/screen", nil
		screen.enter()
		while s do
			local columns, lines, colour = screen.measure()
			show(screen, natives.texts.plain(s.lock) .. "\n" .. record_text.headline(s) .. "\n\n"
				.. history_text.drawing(s, columns, colour) .. "\n" .. (history_text.table(s, true) or ""), columns, lines)
			handle:changed(DRAW)
			s, status = look()
		end
		return status
	end

	local s, status = look()
	if s and options.verify then
		s, status = verify(s)
	end
	if not s then
		return status
	elseif options.watch then
		return (not options.json and screen.possible() and draw_changes or tell_changes)(s)
	end
	io.stdout:write(options.json and record_text.json(s) .. "\n" or record_text.lines(s))
	return s.state == "leading" and 0 or say.NOBODY
end

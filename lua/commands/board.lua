-- status --watch of several locks: each is read by a task of its own, so that one that hangs holds up no other. On a terminal a line
-- each, with a bar of who led when, on one scale of time; each leader has a letter and a colour, which stay its own.

local use = ...

local DRAW <const>, GATHER <const> = 1, 0.05 -- seconds; what else happens so soon is shown together with the first
local POLL <const>, LOOK_AGAIN <const> = 1, 10 -- where the store gives no notices; where it does, and for new ones below the prefix
local NAME_LEAST <const>, BAR_LEAST <const>, LEGEND_LINES <const> = 10, 5, 2
local AROUND <const> = 4 -- lines beside those of the locks and the legend: title, times, what is not shown, an empty one
local RED <const>, PLAIN <const> = "\27[31m", "\27[0m"
-- Without 's' and 'x', which mark ends in a drawing.
local LETTERS <const> = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrtuvw"
local colours <const> = { "\27[32m", "\27[36m", "\27[33m", "\27[35m", "\27[34m" }

local function colour_of(letter)
	local at = LETTERS:find(letter, 1, true)
	return letter == "x" and RED or at and colours[(at - 1) % #colours + 1] or ""
end

local function between(n, least, most)
	return n < least and least or n > most and most or n
end

return function(natives, options, say, record_text)
	local history_text = use "commands/history_text"(natives)
	local plain, padded, short = natives.texts.plain, history_text.padded, history_text.short
	local locks = {} -- in the order in which they were named, or found
	local news, any = natives.signal(), false
	local more = false

	-- ---- reading ----

	local function take(l, good, err)
		local s = l.handle:shown()
		l.failed = not good and err or nil
		l.read_us = good and s.now_us or l.read_us
		l.answered = true
		l.hidden = l.name and (good and (not s.present or s.nomination) or err and err.outcome == "foreign")
		any = true
		news:wake()
	end

	local function follow(l)
		while true do
			local watched = l.handle:watch() -- a lock in Lua may give notices from later on
			take(l, l.handle:read(say.TIMEOUT))
			l.handle:changed(watched and not l.failed and LOOK_AGAIN or POLL)
		end
	end

	-- name: in the listing of the prefix; nil: it was named itself.
	local function add(url, name)
		local handle, err = natives.lock_open(url, options.state_dir)
		if not handle then
			return nil, err
		end
		local l = { handle = handle, name = name }
		locks[#locks + 1] = l
		natives.spawn(follow, l)
		return true
	end

	-- What cannot be a lock's name is nobody's.
	local function list(place, known)
		local names, err = place:list(say.TIMEOUT)
		if not names then
			return nil, err
		end
		more = err
		for _, name in ipairs(names) do
			if not known[name] then
				known[name] = add(place:beside(name), name)
			end
		end
		return true
	end

	local function open_prefix()
		local place, err = natives.lock_place(options.prefix, options.state_dir)
		if not place then
			return nil, err
		end
		local scheme, can = place:kind()
		if not can then
			return nil, { usage = true, message = scheme .. ":... cannot be listed" }
		end
		local known = {}
		local listed, why = list(place, known)
		natives.spawn(function()
			while true do
				natives.sleep(LOOK_AGAIN)
				list(place, known) -- it may fail: each lock says itself that it cannot be read
			end
		end)
		return listed, why
	end

	local function open_all()
		if options.prefix then
			return open_prefix()
		end
		for _, url in ipairs(options.locks) do
			local good, err = add(url)
			if not good then
				return nil, err
			end
		end
		return true
	end

	-- Until shortly after an answer, for at most so long.
	local function wait(seconds)
		if any or news:wait(seconds) then
			natives.sleep(GATHER)
		end
		any = false
	end

	-- ---- a line for each change ----

	local function tell(l)
		local s = l.handle:shown()
		local headline = l.failed and l.failed.message or record_text.headline(s)
		if headline == l.told then
			return
		end
		l.told = headline
		if options.json and l.failed then
			say.fail(0, headline)
		else
			say.line(options.json and record_text.json(s) or ("%s%s: %s"):format(say.now(s.now_us), plain(s.lock), headline))
		end
	end

	-- ---- the drawing ----

	local who = {} -- by letter, in the order in which they were seen first

	-- "=": there are more leaders than letters.
	local function letter_of(name)
		for i, known in ipairs(who) do
			if known == name then
				return LETTERS:sub(i, i)
			end
		end
		if #who == #LETTERS then
			return "="
		end
		who[#who + 1] = name
		return LETTERS:sub(#who, #who)
	end

	-- While it cannot be read, its last term is known to have lasted until it could.
	local function line_of(l)
		local s = l.handle:shown()
		local rows = s.past or {}
		local last = rows[#rows]
		if l.failed and last and last.lasts then
			last.lasts, last.to_us = false, l.read_us
		end
		return { lock = l, shown = s, rows = rows, label = s.lock }
	end

	-- What lasts covers the whole bar, and does not make it longer; unless there is nothing else.
	local function earliest(d, lasting)
		local from = d.now_us
		for _, line in ipairs(d) do
			for _, row in ipairs(line.rows) do
				if row.lasts == lasting and row.from_us then
					from = math.min(from, row.from_us)
				end
			end
		end
		return from
	end

	-- The directory, or what is like one, in which all of them are: what all labels begin with.
	local function common_part(d)
		local first = d[1].label
		local n = #first
		for i = 2, #d do
			while d[i].label:sub(1, n) ~= first:sub(1, n) do
				n = n - 1
			end
		end
		local place = first:sub(1, n):match "^.*[/#]" or ""
		return place ~= first and place or ""
	end

	local function measure(d)
		local longest, state = 4, between(d.columns * 2 // 5, 12, 34)
		d.place = #d > 1 and common_part(d) or ""
		for _, line in ipairs(d) do
			line.label = line.label:sub(#d.place + 1)
			longest = math.max(longest, #line.label)
		end
		d.label_width = between(longest, 4, between(d.columns // 4, NAME_LEAST, 40))
		d.bar_width = between(d.columns - d.label_width - state - 4, BAR_LEAST, d.columns)
		d.from_us = earliest(d, false)
		d.from_us = d.from_us == d.now_us and earliest(d, true) or d.from_us
		local room = between(d.lines - AROUND - LEGEND_LINES, 1, d.lines)
		d.shown = #d <= room + 1 and #d or room
	end

	local function times(d)
		local first, last = say.time(d.from_us, d.bar_width < 30 and "%T" or "%F %T"), say.time(d.now_us, "%T")
		local gap = d.bar_width - #first - #last
		return (" "):rep(d.label_width + 2) .. (gap > 0 and first or "") .. (" "):rep(gap > 0 and gap or math.max(d.bar_width - 8, 0)) .. last .. "\n"
	end

	local function bar_of(d, line)
		local bar = history_text.bar(d.bar_width, d.from_us, d.now_us)
		for i, row in ipairs(line.rows) do
			history_text.fill(bar, row, line.letters[i])
		end
		if not d.colour then
			return table.concat(bar) .. "|"
		end
		local before
		for i, letter in ipairs(bar) do
			bar[i] = (letter ~= before and PLAIN .. colour_of(letter) or "") .. letter
			before = letter
		end
		return table.concat(bar) .. PLAIN .. "|"
	end

	local function trouble(d, text)
		return d.colour and RED .. plain(text) .. PLAIN or plain(text)
	end

	-- "B web-2, 3m5s"
	local function leader(d, line)
		local last = line.rows[#line.rows]
		local left = d.columns - d.label_width - d.bar_width - 17
		local ms = last.lasted_ms
		return ("%s %s%s"):format(letter_of(last.who), short(last.who, who, math.max(left, NAME_LEAST)),
			ms and ", " .. natives.texts.duration(ms - ms % 1000) or "")
	end

	local function state(d, line)
		local l, s = line.lock, line.shown
		if not l.answered then
			return "not read yet"
		elseif l.failed then
			return trouble(d, l.failed.message)
		elseif not s.present then
			return trouble(d, "nobody: there is no record")
		elseif not s.held then
			return trouble(d, "nobody leads")
		end
		return s.state == "overdue" and trouble(d, "its leader does not renew") or leader(d, line)
	end

	local function not_shown(d)
		local leaderless, failed = 0, 0
		for i = d.shown + 1, #d do
			local l = d[i].lock
			failed = failed + (l.failed and 1 or 0)
			leaderless = leaderless + (l.answered and not l.failed and d[i].shown.state ~= "leading" and 1 or 0)
		end
		if d.shown < #d then
			return ("%d more not shown: nobody leads in %d, %d cannot be read\n"):format(#d - d.shown, leaderless, failed)
		end
		return more and "there are more than these: a longer prefix shows fewer\n" or ""
	end

	-- Whose letters are in the lines.
	local function legend(d)
		local used, out, column, lines = {}, { "\n" }, 0, 1
		local width = math.min(d.columns // 3, 24)
		for i = 1, d.shown do
			for _, letter in ipairs(d[i].letters) do
				used[letter] = true
			end
		end
		for i, name in ipairs(who) do
			local letter = LETTERS:sub(i, i)
			if used[letter] then
				if column + width + 4 > d.columns then
					lines, column = lines + 1, 0
					if lines > LEGEND_LINES then
						break
					end
					out[#out + 1] = "\n"
				end
				local text = padded(short(name, who, math.max(width, NAME_LEAST)), width)
				out[#out + 1] = d.colour and colour_of(letter) .. letter .. PLAIN .. " " .. text .. "  " or letter .. " " .. text .. "  "
				column = column + say.width(text) + 4
			end
		end
		return table.concat(out) .. "\n"
	end

	local function drawing()
		local d = { now_us = math.floor(natives.time.now() * 1e6) }
		d.columns, d.lines, d.colour = options.screen.measure()
		for _, l in ipairs(locks) do
			if not l.hidden and (l.answered or not l.name) then
				d[#d + 1] = line_of(l)
			end
		end
		if #d == 0 then
			return "no election yet\n", d
		end
		measure(d)
		local labels = {}
		for i, line in ipairs(d) do
			labels[i], line.letters = line.label, {}
			for k, row in ipairs(i <= d.shown and line.rows or {}) do
				line.letters[k] = letter_of(row.who)
			end
		end
		local out = { ("%s%s%d lock%s\n"):format(d.place, d.place ~= "" and "  " or "", #d, #d == 1 and "" or "s"), times(d) }
		for i = 1, d.shown do
			out[#out + 1] = ("%s |%s %s\n"):format(padded(short(d[i].label, labels, d.label_width), d.label_width), bar_of(d, d[i]), state(d, d[i]))
		end
		return table.concat(out) .. not_shown(d) .. legend(d), d
	end

	-- ---- until a signal: what cannot be read is shown as that ----

	local opened, err = open_all()
	if not opened then
		return say.fail_of(err)
	end
	local draws, show = not options.json and options.screen.possible(), use "commands/screen"
	wait(DRAW)
	if draws then
		options.screen.enter()
	end
	while true do
		if draws then
			local text, d = drawing()
			show(options.screen, text, d.columns, d.lines)
		else
			for _, l in ipairs(locks) do
				if l.answered and not l.hidden then
					tell(l)
				end
			end
		end
		wait(DRAW)
	end
end

-- The terms that a record tells of: a table, JSON, and a drawing of who led when. s: what `shown` of a lock's handle returns.

local use = ...

local NAME_COLUMNS <const> = 20 -- of a leader, in a drawing
local BAR_LEAST <const> = 10
local GREEN <const>, PLAIN <const> = "\27[32m", "\27[0m"
local vanished = { unknown = true, died = true, forced = true, expired = true, lost = true, deleted = true }

return function(natives)
	local say = use "commands/say"(natives)
	local quoted, plain, iso = natives.texts.quoted, natives.texts.plain, natives.texts.iso
	local text = {}

	-- ---- names that are too long for their place ----

	local function characters(name)
		local list = {}
		for c in plain(name):gmatch "[^\x80-\xbf][\x80-\xbf]*" do
			list[#list + 1] = c
		end
		return list
	end

	-- With how many characters both begin.
	local function common(a, b)
		local n = 0
		while a[n + 1] and a[n + 1] == b[n + 1] do
			n = n + 1
		end
		return n
	end

	-- The name in at most so many characters (10 or more). One that is too long keeps its beginning and the part by which it differs
	-- from each of the others, with ".." between: two identities of one host have much in common, and a number at their end.
	function text.short(name, others, most)
		local all, differs = characters(name), 0
		if #all > most then
			for _, other in ipairs(others) do
				differs = other ~= name and math.max(differs, common(all, characters(other))) or differs
			end
		end
		if differs < most then
			return table.concat(all, "", 1, math.min(most, #all))
		end
		local head = most // 3
		local part = most - head - 2
		local from = math.min(differs - 1, #all - part)
		return table.concat(all, "", 1, head) .. ".." .. table.concat(all, "", from + 1, from + part)
	end

	local function names(past)
		local list = {}
		for i, row in ipairs(past) do
			list[i] = row.who
		end
		return list
	end

	-- ---- table and JSON ----

	-- brief: below a drawing, with names that are cut as in it. nil: there are no terms.
	function text.table(s, brief)
		local past, rows = s.past or {}, {}
		for i, row in ipairs(past) do
			local ended = row.lasts and (s.state == "leading" and "leads" or s.state) or row.reason
			local from, length, gap = row.from_us and say.time(row.from_us), row.lasted_ms and say.length(row.lasted_ms), row.gap_ms and say.length(row.gap_ms)
			rows[i] = brief and { text.short(row.who, names(past), NAME_COLUMNS), row.token, from, length, ended, gap }
				or { row.who, row.token, from, row.to_us and say.time(row.to_us), length, ended, gap }
		end
		local titles = brief and { "LEADER", "TOKEN", "FROM", "LASTED", "ENDED", "GAP" } or { "LEADER", "TOKEN", "FROM", "TO", "LASTED", "ENDED", "GAP" }
		return #rows > 0 and say.lines(titles, rows) or nil
	end

	local function time(us)
		local known = us and iso(us) or ""
		return known ~= "" and quoted(known) or "null"
	end

	function text.json(s)
		local terms = {}
		for i, row in ipairs(s.past or {}) do
			terms[i] = ('{"identity":%s,"token":%s,"from":%s,"to":%s,"lastedMs":%s,"gapMs":%s,"reason":%s,"lasts":%s}'):format(quoted(row.who),
				row.token or "null", time(row.from_us), time(row.to_us), row.lasted_ms or "null", row.gap_ms or "null",
				row.reason and quoted(row.reason) or "null", row.lasts)
		end
		return ('{"lock":%s,"state":%s,"terms":[%s]}\n'):format(quoted(s.lock), quoted(s.state), table.concat(terms, ","))
	end

	-- ---- the drawing ----

	local function place(bar, us)
		if us <= bar.from_us then
			return 1
		elseif us >= bar.to_us then
			return bar.width
		end
		return math.floor((us - bar.from_us) / (bar.to_us - bar.from_us) * (bar.width - 1)) + 1
	end

	-- A bar of blanks: as many characters as it is wide.
	function text.bar(width, from_us, to_us)
		local bar = { width = width, from_us = from_us, to_us = to_us }
		for i = 1, width do
			bar[i] = " "
		end
		return bar
	end

	-- Fills the bar with the letter where the term lasted: 'x' at its end if its leader vanished, else `clean`, if there is such.
	function text.fill(bar, row, letter, clean)
		local to_us = row.lasts and bar.to_us or row.to_us
		if not row.from_us or to_us and to_us < bar.from_us then
			return
		end
		local first = place(bar, row.from_us)
		local last = to_us and place(bar, to_us) or first
		for i = first, last do
			bar[i] = letter
		end
		if last >= first and not row.lasts then
			bar[last] = vanished[row.reason] and "x" or clean or letter
		end
	end

	local function padded(name, columns)
		return name .. (" "):rep(columns - say.width(name))
	end
	text.padded = padded

	local function times(bar)
		local first, last = say.time(bar.from_us), say.time(bar.to_us, "%T")
		return (" "):rep(NAME_COLUMNS + 2) .. first .. (" "):rep(math.max(1, bar.width - #first - #last)) .. last .. "\n"
	end

	-- A line for each leader, as wide as the screen. "": there is nothing to draw.
	function text.drawing(s, columns, colour)
		local past, from_us, out, drawn = s.past or {}, s.now_us, {}, {}
		for _, row in ipairs(past) do
			from_us = math.min(from_us, row.from_us or from_us)
		end
		if from_us == s.now_us then
			return ""
		end
		local width, bar = math.max(columns - NAME_COLUMNS - 3, BAR_LEAST), nil
		for _, leader in ipairs(past) do
			if not drawn[leader.who] then
				drawn[leader.who] = true
				bar = text.bar(width, from_us, s.now_us)
				for _, row in ipairs(past) do
					if row.who == leader.who then
						text.fill(bar, row, "=", "s")
					end
				end
				out[#out + 1] = ("%s |%s%s%s|\n"):format(padded(text.short(leader.who, names(past), NAME_COLUMNS), NAME_COLUMNS),
					colour and GREEN or "", table.concat(bar), colour and PLAIN or "")
			end
		end
		return table.concat(out) .. times(bar)
	end

	return text
end

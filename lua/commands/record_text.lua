-- A record as people read it, and as JSON for programs. s: what `shown` of a lock's handle returns (runtime/script/api/lua_lock.c).
-- Not a judge: whether somebody leads, `state` says.

return function(natives)
	local quoted, plain = natives.texts.quoted, natives.texts.plain
	local duration, iso = natives.texts.duration, natives.texts.iso
	local text = {}

	-- ---- text ----

	function text.headline(s)
		if not s.present then
			return "nobody leads: there is no record"
		elseif s.nomination then
			return "no lock, but the record of who comes next beside one: " .. plain(s.holder or "nobody")
		elseif not s.holder then
			return (s.emptied and "nobody leads: somebody emptied the record" or "nobody leads: released")
				.. (s.previous_holder and ", last led by " .. plain(s.previous_holder) or "")
				.. (s.forced and "; by force, " .. plain(s.forced) or "")
		end
		if s.state == "fencing" then
			return "nobody leads: " .. plain(s.holder) .. " holds the lease, and fences earlier holders before its term begins"
		end
		return plain(s.holder) .. " leads" .. (s.token and ", token " .. s.token or "") .. (s.term and ", term " .. s.term or "")
			.. (s.address and ", at " .. plain(s.address) or "")
			.. (s.state ~= "overdue" and "" or s.watched == "silent" and ": but it has not renewed for its lease"
				or ": but overdue, it renewed longer ago than its lease")
	end

	local function line(label, value)
		return value and ("%-11s %s\n"):format(label, plain(tostring(value))) or ""
	end

	-- Negative if the holder's clock is ahead.
	local function ago_ms(then_us, now_us)
		return now_us < then_us and -((then_us - now_us) // 1000) or (now_us - then_us) // 1000
	end

	local function age(then_us, now_us)
		local ms = ago_ms(then_us, now_us)
		if ms >= 10000 then -- a person does not want the milliseconds of yesterday
			ms = ms - ms % 1000
		end
		return ("%s %s by the holder's clock"):format(duration(math.abs(ms)), ms < 0 and "ahead of here" or "ago")
	end

	local function time(label, us, now_us)
		return us and ("%-11s %s (%s)\n"):format(label, os.date("%F %T %z", us // 1000000), age(us, now_us)) or ""
	end

	local function candidate(label, who)
		return ("%-11s %s%s%s\n"):format(label, plain(who.identity), who.address and ", at " .. plain(who.address) or "",
			who.priority ~= 0 and ", priority " .. who.priority or "")
	end

	local function setting(label, ms)
		return ms and ms > 0 and label .. duration(ms) or ""
	end

	-- Who comes next, as the leader publishes it; of a record that is released, for whom it was.
	local function advice(s)
		return (s.next and candidate("next", s.next) or s.holder and line("next", "nobody") or "")
			.. line("wanted", s.wanted) -- as next, by `ctl handover --to`
			.. line("for", s.released_for)
	end

	-- Who may still act. The holder's own entry is there for as long as it leads, and says nothing.
	local function unfenced(s)
		local out = {}
		for _, o in ipairs(s.unfenced or {}) do
			out[#out + 1] = not o.own and line("unfenced", o.identity .. (o.token and ", token " .. o.token or "")
				.. (o.address and ", at " .. o.address or "")) or nil
		end
		return table.concat(out)
	end

	local function nomination(s)
		local n = s.nomination
		return line("record", s.lock) .. line("of", "who comes next in an election. It is no lock: that is beside it")
			.. (n.who and candidate("next", n.who) or line("next", "nobody"))
			.. time("since", n.since_us, s.now_us) .. time("written", n.written_us, s.now_us)
	end

	local function verified(s)
		if s.watched and s.held then
			return line("verified", s.watched == "renews" and "it renews" or "it did not renew while watched for its lease")
		end
		return s.state == "overdue" and line("note", "overdue, renewed longer ago than its lease: perhaps gone; --verify finds out") or ""
	end

	function text.lines(s)
		if s.nomination then
			return nomination(s)
		end
		local head = line("lock", s.lock) .. line("leader", s.held and s.holder or "nobody")
			.. line("fences", s.state == "fencing" and s.holder)
		if not s.present then
			return head .. line("record", "there is none")
		end
		return head .. line("address", s.address)
			.. (s.holder and time("since", s.acquired_us, s.now_us) or "")
			.. time(s.holder and "renewed" or "released", s.renewed_us, s.now_us)
			.. line("token", s.token) .. line("term", s.term)
			.. ("%-11s "):format("settings") .. setting("lease ", s.lease_ms) .. setting(", renew deadline ", s.renew_ms)
			.. setting(", retry period ", s.retry_ms) .. "\n"
			.. line("transitions", s.transitions) .. line("previous", s.previous_holder) .. line("by force", s.forced)
			.. unfenced(s) .. advice(s) .. verified(s)
	end

	-- ---- JSON: the keys in their order, null for what is not known ----

	local function value(v)
		return v == nil and "null" or type(v) == "string" and quoted(v) or tostring(v)
	end

	local function time_of(us)
		local known = us and iso(us)
		return known ~= "" and known or nil
	end

	local function next_of(who)
		return who and ('{"identity":%s,"address":%s,"priority":%d}'):format(quoted(who.identity), value(who.address), who.priority) or "null"
	end

	-- Appends the pairs to an object that is not closed. An optional key is left out where it has no value.
	local function pairs_of(list)
		local out = {}
		for _, pair in ipairs(list) do
			out[#out + 1] = (',"%s":%s'):format(pair[1], value(pair[2]))
		end
		return table.concat(out)
	end

	local function optional(key, v)
		return v and (',"%s":%s'):format(key, quoted(v)) or ""
	end

	local function debtors(s)
		local out = {}
		for i, o in ipairs(s.unfenced or {}) do
			out[i] = "{" .. pairs_of({ { "identity", o.identity }, { "address", o.address }, { "token", o.token },
				{ "since", time_of(o.since_us) }, { "why", o.why } }):sub(2) .. "}"
		end
		return #out > 0 and ',"unfenced":[' .. table.concat(out, ",") .. "]" or ""
	end

	local function record(s)
		return pairs_of {
			{ "address", s.address }, { "acquired", time_of(s.acquired_us) }, { "renewed", time_of(s.renewed_us) },
			{ "renewedAgoMs", s.renewed_us and ago_ms(s.renewed_us, s.now_us) }, { "token", s.token }, { "term", s.term },
			{ "leaseDurationMs", s.lease_ms }, { "renewDeadlineMs", s.renew_ms }, { "retryPeriodMs", s.retry_ms },
			{ "leaderTransitions", s.transitions }, { "previousHolder", s.previous_holder },
		} .. optional("releasedByForce", s.forced) .. ',"next":' .. next_of(s.next) .. optional("wanted", s.wanted)
			.. optional("releasedFor", s.released_for) .. debtors(s)
	end

	function text.json(s)
		local head = '{"lock":' .. quoted(s.lock) .. ',"state":' .. quoted(s.state)
		if s.nomination then
			return head .. ',"leader":null,"next":' .. next_of(s.nomination.who) .. pairs_of { { "renewed", time_of(s.nomination.written_us) } } .. "}"
		end
		return head .. pairs_of { { "leader", s.held and s.holder or nil } } .. (s.present and record(s) or "")
			.. (s.held and s.watched and optional("verified", s.watched) or "") .. "}"
	end

	return text
end

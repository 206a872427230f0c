-- lunarch.lock: what the record of a lock says, for who does not campaign: read, its past terms, all locks of a place, and each change.
-- Nothing here writes. What a handle is, runtime/script/api/lua_lock.c says. The commands (lua/commands/) use `look` and `handles`, too.

local use = ...
local given = use "given"

local TIMEOUT <const> = 5
local POLL <const> = 1 -- seconds, where the store tells of no changes
local LOOK <const> = 60 -- where it does, and no lease runs
local known = { timeout = "seconds", state_dir = "text" }

-- The options of `open` and `list`.
local function settings(where, url, options)
	given.text(where .. ": url", url, 3)
	options = given.options(where, options, known, 3)
	return { url = url, timeout = options.timeout or TIMEOUT, state_dir = options.state_dir }
end

local function seconds(ms_or_us, per_second)
	return ms_or_us and ms_or_us / per_second
end

-- What a script gets of a record (lunarch.LockState).
local function state_of(shown)
	local led = shown.nomination == nil
	return {
		lock = shown.lock, state = shown.state, leader = shown.held and shown.holder or nil, address = led and shown.address or nil,
		token = shown.token, term = shown.term, acquired = led and seconds(shown.acquired_us, 1e6) or nil,
		renewed = led and seconds(shown.renewed_us, 1e6) or nil, lease_duration = seconds(shown.lease_ms, 1000),
		transitions = led and shown.transitions or nil, previous_leader = shown.previous_holder, released_by_force = shown.forced,
		next = led and shown.next or shown.nomination and shown.nomination.who, verified = shown.held and shown.watched or nil,
	}
end

local function terms_of(shown)
	local terms = {}
	for i, row in ipairs(shown.past or {}) do
		terms[i] = {
			leader = row.who, token = row.token, from = seconds(row.from_us, 1e6), to = seconds(row.to_us, 1e6), reason = row.reason,
			lasted = seconds(row.lasted_ms, 1000), gap = seconds(row.gap_ms, 1000), lasts = row.lasts,
		}
	end
	return terms
end

return function(natives)
	local function closing(handle)
		return setmetatable({}, { __close = function() handle:close() end })
	end

	-- A lock that is opened for one look.
	local function once(url, self)
		local handle, err = natives.lock_open(url, self.state_dir)
		if not handle then
			return nil, err
		end
		local _ <close> = closing(handle) -- also if the task is cancelled
		local good, why = handle:read(self.timeout)
		return good and handle:shown() or nil, why
	end

	-- Is the name that of the record of who comes next, beside another one here? Whoever may not read that has lost nothing.
	local function is_beside(name, ending, names)
		return ending and #name > #ending and name:sub(-#ending) == ending and names[name:sub(1, -#ending - 1)] ~= nil
	end

	-- Calls on_election(shown) for each election of the place. -> what else is there: more, others, unreadable (how many), first (why);
	-- or nil, err.
	local function look(self, on_election)
		local place, err = natives.lock_place(self.url, self.state_dir)
		if not place then
			return nil, err
		end
		local _ <close> = closing(place)
		local scheme, can, ending = place:kind()
		if not can then
			local nothing, usage = natives.fail("invalid", scheme .. ":... cannot be listed")
			usage.usage = true
			return nothing, usage
		end
		local names <const>, more <const> = place:list(self.timeout)
		if not names then
			return nil, more
		end
		local found = { more = more, names = #names, others = 0, unreadable = 0 }
		for _, name in ipairs(names) do
			names[name] = true
		end
		for _, name in ipairs(names) do
			local shown, why = once(place:beside(name), self)
			local outcome = not shown and (why.code == "denied" and why.outcome == "failed" and "refused" or why.outcome)
			if shown then
				if shown.present and not shown.nomination then
					on_election(shown)
				end
			elseif outcome == "foreign" then
				found.others = found.others + 1 -- what cannot be a lock's name is nobody's
			elseif outcome ~= "refused" then
				return nil, why
			elseif not is_beside(name, ending, names) then
				found.unreadable, found.first = found.unreadable + 1, found.first or why
			end
		end
		return found
	end

	local Lock = { __name = "lunarch.Lock" }
	Lock.__index = use "unknown"("lock", Lock)

	function Lock:read()
		local shown, err = once(self.url, self)
		if not shown then
			return nil, err
		end
		return state_of(shown)
	end

	function Lock:history()
		local shown, err = once(self.url, self)
		if not shown then
			return nil, err
		end
		return terms_of(shown)
	end

	-- What makes two states the same to who follows an election: all but its renewals.
	local function mark_of(s)
		return table.concat({ s.state, s.leader or "", s.address or "", s.token or 0, s.term or 0, s.error and s.error.message or "" }, "\0")
	end

	local function state_now(handle, timeout, lock)
		local good, err = handle:read(timeout)
		return good and state_of(handle:shown()) or { lock = lock, state = "unreadable", error = err }
	end

	function Lock:watch()
		local handle, err = natives.lock_open(self.url, self.state_dir)
		if not handle then
			error(err.message, 2) -- `open` has opened it before
		end
		local told, left
		return function()
			while true do
				if left then
					handle:changed(left)
				end
				local told_of_changes = handle:watch()
				local state = state_now(handle, self.timeout, self.lock)
				left = state.leader and handle:shown().lease_left or LOOK
				left = (not told_of_changes or state.error or left <= 0) and POLL or left
				if mark_of(state) ~= told then
					told = mark_of(state)
					return state
				end
			end
		end, nil, nil, closing(handle)
	end

	local lock = {}

	function lock.open(url, options)
		local self = settings("lock.open", url, options)
		local handle, err = natives.lock_open(url, self.state_dir)
		if not handle then
			return nil, err
		end
		self.lock = handle:url()
		handle:close()
		return setmetatable(self, Lock)
	end

	function lock.list(url, options)
		local self = settings("lock.list", url, options)
		local list = {}
		local found, err = look(self, function(shown) list[#list + 1] = state_of(shown) end)
		if not found then
			return nil, err
		end
		return list, found.unreadable > 0 and found.first or nil
	end

	natives.lock_look = look
	return lock
end

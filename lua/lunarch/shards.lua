-- lunarch.shards: an election for each of many shards, shared out evenly among the candidates that are up.
-- Each candidate takes a slot of the election `candidate`: so everybody knows who is there, and in which order. From
-- that alone each computes how many shards are its own. Nothing here is for safety: each shard's election is.

local use = ...
local check = use "options"
local lunarch = require "lunarch"

local SLOTS <const>, PATIENCE <const>, SETTLE <const>, HOLD <const>, HOLD_MOST <const> = 16, 15, 1, 2, 80
local AT_ONCE <const> = 8

local function a_function(value)
	return type(value) ~= "function" and "a function" or nil
end

local function between(least, most)
	return function(value)
		local good = math.type(value) == "integer" and value >= least and value <= most
		return not good and ("a whole number from %d to %d"):format(least, most) or nil
	end
end

-- What each election gets as it is; boot/elections.lua checks the values.
local passed = { "identity", "address", "lease_duration", "renew_deadline", "retry_period", "stop_grace", "shutdown_grace", "may_lead_timeout",
	"reclaim", "max_term" }

local known = {
	count = between(1, 10000), candidates = between(1, 64), patience = "seconds", lock = "text",
	on_leading = a_function, on_stopping = a_function, on_stopped = a_function, may_lead = a_function,
}
for _, key in ipairs(passed) do
	known[key] = function() end
end

local function size(set)
	local n = 0
	for _ in pairs(set) do
		n = n + 1
	end
	return n
end

-- One process's part of it, as lists of elections see it.
local function new(given)
	local slots, patience, now = given.candidates or SLOTS, given.patience or PATIENCE, lunarch.time.monotonic
	local present, own, slot_since = {}, nil, nil -- slot -> who leads in it; our own, and since when
	local leading = {} -- shard -> our term
	local asked_as = {} -- shard -> for what may_lead has last said yes
	local free_since, begun = {}, now() -- shard -> since when nobody leads it, as far as is known
	local hold_until, hold = 0, HOLD -- hold: times patience
	local self = {}

	-- Who is there, in the order of their slots. A candidate may have two for a moment.
	local function members()
		local list, seen = {}, {}
		for number = 1, slots do
			local who = present[number]
			if who and not seen[who.identity] then
				list[#list + 1] = { identity = who.identity, address = who.address, slot = number, is_self = who.is_self }
				seen[who.identity] = true
			end
		end
		return list
	end

	-- How many shards are ours: they add up to all of them, and differ by one at most.
	local function share()
		local list = members()
		for rank, who in ipairs(list) do
			if who.is_self and own then
				return given.count // #list + (rank <= given.count % #list and 1 or 0)
			end
		end
		return 0
	end

	-- How many have had no leader since a short time.
	local function free()
		local n, most = 0, now() - patience
		for number = 1, given.count do
			local since = free_since[number] or begun
			n = n + (not leading[number] and since >= most and since < math.huge and 1 or 0)
		end
		return n
	end

	-- A few at a time: whoever has joined may be slow. The next ones follow when these are led.
	local function let_go()
		local mine, most = size(leading), share()
		if mine <= most or now() < hold_until or not next(present) then -- nobody is known who would take it
			return
		end
		local left = AT_ONCE - free()
		for number = given.count, 1, -1 do
			local term = leading[number]
			if term and mine > most and left > 0 then
				leading[number], free_since[number] = nil, now()
				mine, left = mine - 1, left - 1
				term:resign()
			end
		end
	end

	-- Whoever it belongs to does not lead it. What was seen before this candidate had its slot is old.
	local function is_left(number)
		return now() - math.max(free_since[number] or begun, slot_since or begun) > patience
	end

	-- What for it would be led: as one's share, or since it is left. nil: it is not wanted.
	local function wanted_as(number)
		local settled = slot_since and now() - slot_since >= SETTLE
		return settled and size(leading) < share() and "share" or is_left(number) and "left" or nil
	end

	local function election(name, hooks)
		for _, key in ipairs(passed) do
			hooks[key] = given[key]
		end
		hooks.name = name
		hooks.lock = given.lock and given.lock:gsub("{name}", name) or nil
		return hooks
	end

	local function candidate_election()
		return election("candidate", {
			slots = slots,
			on_leading = function(term)
				own, slot_since = term.slot, now()
				term:every(patience, let_go)
			end,
			on_stopped = function(term)
				if own == term.slot then
					own, slot_since = nil, nil
				end
			end,
			on_new_leader = function(leader)
				local before = present[leader.slot]
				if not before or before.identity ~= leader.identity then
					hold_until, hold = 0, HOLD -- whoever has joined is to have its share at once
				end
				present[leader.slot] = leader
				let_go()
			end,
			on_no_leader = function(_, slot)
				present[slot] = nil
			end,
		})
	end

	local function shard_election(number)
		return election("shard-" .. number, {
			may_lead = function()
				asked_as[number] = wanted_as(number)
				if not asked_as[number] then
					return false, "it has its share of the shards"
				elseif given.may_lead then
					return given.may_lead(number)
				end
				return true
			end,
			on_leading = function(term)
				local as = wanted_as(number)
				if not as or as ~= asked_as[number] and as == "left" then
					return false, "one too many" -- several may be acquired in the same moment
				end
				if size(leading) >= share() and now() >= hold_until then
					-- Whoever is to have it does not take it: it is kept for a while, and for longer each time.
					hold_until = now() + hold * patience
					hold = math.min(2 * hold, HOLD_MOST)
				end
				leading[number] = term
				return given.on_leading(term, number)
			end,
			on_stopping = given.on_stopping and function(term, reason)
				given.on_stopping(term, reason, number)
			end,
			on_stopped = function(term, reason)
				local led = leading[number] == term or reason ~= "declined"
				if leading[number] == term then
					leading[number] = nil
				end
				if led and given.on_stopped then
					given.on_stopped(term, reason, number)
				end
			end,
			on_new_leader = function()
				free_since[number] = math.huge
				let_go()
			end,
			on_no_leader = function()
				free_since[number] = now()
			end,
		})
	end

	function self.elections()
		local list = { candidate_election() }
		for number = 1, given.count do
			list[#list + 1] = shard_election(number)
		end
		return list
	end

	self.members = members
	return self
end

return function()
	local shards, this = {}, nil

	function shards.elections(options)
		if type(options) ~= "table" then
			error("shards.elections: expected a table, as in { count = 64, on_leading = function(term, shard) ... end }", 2)
		elseif this then
			error("shards.elections: a script has one set of shards", 2)
		end
		local wrong = check("shards.elections", options, known)
		if not wrong and (not options.count or not options.on_leading) then
			wrong = "shards.elections: the options count and on_leading are needed"
		elseif not wrong and options.lock and not options.lock:find("{name}", 1, true) then
			wrong = "shards.elections: option 'lock': expected {name} in it, since each shard has a lock of its own"
		end
		if wrong then
			error(wrong, 2)
		end
		this = new(options)
		return this.elections()
	end

	function shards.candidates()
		if not this then
			error("shards.candidates: call shards.elections first", 2)
		end
		return this.members()
	end

	-- FNV-1a of 64 bits. Which shard a key is in must not change: programs of other versions compute it, too.
	function shards.of(key, count)
		if type(key) ~= "string" or math.type(count) ~= "integer" or count < 1 then
			error("shards.of: expected a text and a number of shards", 2)
		end
		local hash = 0xcbf29ce484222325
		for i = 1, #key do
			hash = (hash ~ key:byte(i)) * 0x100000001b3
		end
		return (hash >> 1) % count + 1
	end

	return shards
end

-- One leader for each of many shards, shared out evenly among however many candidates there are.
--   lunarch run --lock '/var/lib/shards/{name}' examples/shards.lua -- SHARDS PROGRAM [ARGUMENTS]
-- A shard's leader keeps `PROGRAM ARGUMENTS SHARD` running. Before that a candidate takes a seat, which is an election as any other,
-- so that on_new_leader tells everybody how many share the work: nobody leads more than SHARDS / candidates, rounded up, and who has
-- more than that when a newcomer sits down lets go of the rest. More candidates than there are seats wait for one.
local shards, command = tonumber((...)), { select(2, ...) }
assert(shards and command[1], "usage: lunarch run --lock '.../{name}' shards.lua -- SHARDS PROGRAM [ARGUMENTS]")
local SEATS <const>, seated, leading = 16, {}, {} -- seat -> who sits there; shard -> our term
local function count(set)
  local n = 0
  for _ in pairs(set) do n = n + 1 end
  return n
end

local function share()
  local candidates = {}
  for _, leader in pairs(seated) do candidates[leader.identity] = true end
  return math.ceil(shards / math.max(1, count(candidates)))
end

local function sits()
  for _, leader in pairs(seated) do if leader.is_self then return true end end
end

local function let_go()
  for number, term in pairs(leading) do
    if count(leading) <= share() then return end
    term:resign()
    leading[number] = nil
  end
end

local function seat(number)
  return {
    name = "seat" .. number,
    may_lead = function() return not sits() and (number == 1 or seated[number - 1] ~= nil) end,
    on_leading = function() end, -- to sit there is all
    on_new_leader = function(leader) seated[number] = leader let_go() end,
    on_no_leader = function() seated[number] = nil end,
  }
end

local function shard(number)
  return {
    name = "shard" .. number,
    may_lead = function() return sits() and count(leading) < share() end,
    on_leading = function(term)
      if count(leading) >= share() then return false, "one too many" end -- several can be won in the same moment
      leading[number] = term
      local program = { stdout = "inherit", stderr = "inherit", table.unpack(command) }
      program[#program + 1] = number
      while assert(exec(program)) do sleep(1) end
    end,
    on_stopped = function() leading[number] = nil end,
  }
end

local list = {}
for number = 1, SEATS + shards do list[number] = number <= SEATS and seat(number) or shard(number - SEATS) end
return list

-- Shards: shared out within one; as few as possible move; a candidate that takes none of its share holds up nobody.

-- Node -> how many it leads, by the shards' elections; their sum; the least and the most of the nodes named.
local function shares(sim, ...)
  local led, sum, least, most = {}, 0, math.huge, 0
  for shard = 1, 10 do
    local node = sim:leader("shard-" .. shard)
    if node then led[node], sum = (led[node] or 0) + 1, sum + 1 end
  end
  for _, node in ipairs { ... } do
    local n = led[node] or 0
    least, most = math.min(least, n), math.max(most, n)
  end
  return sum, least, most
end

local function begun(sim) return #sim:printed "^[+]" end

test("shards are shared out within one, whoever joins, leaves and dies; moves are at most twice the least", function()
  local sim = simulate { script = "shards.lua", nodes = { "a", "b", "c", "d" } }
  sim:stub("work", { takes = 1e6 })
  sim:run(60)
  equal({ shares(sim, "a", "b", "c", "d") }, { 10, 2, 3 })
  local before = begun(sim)
  sim:stop("d")
  sim:run(60)
  equal({ shares(sim, "a", "b", "c") }, { 10, 3, 4 })
  expect(begun(sim) - before <= 6, "moves as one leaves: " .. begun(sim) - before)
  before = begun(sim)
  sim:start("d")
  sim:run(60)
  equal({ shares(sim, "a", "b", "c", "d") }, { 10, 2, 3 })
  expect(begun(sim) - before <= 4, "moves as one joins: " .. begun(sim) - before)
  sim:crash("b")
  sim:run(90)
  equal({ shares(sim, "a", "c", "d") }, { 10, 3, 4 })
  sim:partition("a")
  sim:run(90)
  equal({ shares(sim, "c", "d") }, { 10, 5, 5 })
end)

test("a candidate that takes none of its share: others have it, keep it, and share it with whoever joins", function()
  local sim = simulate { script = "shards.lua", nodes = { { name = "a", args = { "idle" } }, "b", "c" } }
  sim:stub("work", { takes = 1e6 })
  sim:stop("c")
  sim:run(60)
  equal({ shares(sim, "b") }, { 10, 10, 10 })
  sim:start("c")
  sim:run(60)
  local sum, least = shares(sim, "b", "c")
  equal(sum, 10)
  expect(least >= 3, "one that joined has its share: " .. least)
  local before = begun(sim)
  sim:run(3600)
  equal((shares(sim, "b", "c")), 10)
  expect(begun(sim) - before <= 40, "moves in an hour: " .. begun(sim) - before)
end)

test("one that joins and is gone at once leaves eight without a leader, not its whole share", function()
  local sim = simulate { script = "shards.lua", nodes = { "a", "b" }, args = { "busy", 40 } }
  sim:stub("work", { takes = 1e6 })
  sim:stop("b")
  sim:run(60)
  local function led()
    local n = 0
    for shard = 1, 40 do n = n + (sim:leader("shard-" .. shard) and 1 or 0) end
    return n
  end
  equal(led(), 40)
  sim:start("b")
  sim:run_until(function() return led() < 40 end, 60)
  sim:partition("b")
  local least = led()
  for _ = 1, 120 do
    sim:run(0.5)
    least = math.min(least, led())
  end
  expect(least >= 32, least .. " were led")
  equal(led(), 40)
end)

test("the shard of a key is the same in all versions", function()
  local sim = simulate { script = "shards.lua", nodes = 1 }
  sim:stub("work", { takes = 1e6 })
  sim:run(60)
  equal(sim:printed("^of")[1], "of 19 7 30 447")
end)

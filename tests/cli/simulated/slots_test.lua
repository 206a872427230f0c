-- Slots: never two nodes in one, and no node in two.
local function acting(sim)
  local now, count = {}, 0
  for _, e in ipairs(sim:events("print")) do
    local sign, slot = e.message:match("^([+-]) (%d)$")
    if sign == "+" then
      expect(now[slot] == nil, "slot " .. slot .. " has two: " .. tostring(now[slot]) .. ", " .. e.node)
      for other, node in pairs(now) do expect(node ~= e.node, e.node .. " is in " .. other .. " and " .. slot) end
      now[slot] = e.node
    elseif sign == "-" then
      now[slot] = nil
    end
  end
  for _ in pairs(now) do count = count + 1 end
  return count, now
end

test("two of four nodes lead, and a slot that becomes free is taken", function()
  local sim = simulate { script = "slots.lua", nodes = 4 }
  sim:stub("work", { takes = 1e6 })
  sim:run(10)
  local count, now = acting(sim)
  equal(count, 2)
  sim:stop(now["1"])
  sim:run(40)
  local then_count, later = acting(sim)
  equal(then_count, 2)
  expect(later["1"] ~= now["1"])
end)

test("alone, a node leads in one slot", function()
  local sim = simulate { script = "slots.lua", nodes = 1 }
  sim:stub("work", { takes = 1e6 })
  sim:run(60)
  equal((acting(sim)), 1)
end)

test("whatever happens to nodes and their network, one node in a slot, one slot for a node, and in the end both are led", function()
  local seeds = { 1127, 3147 } -- a node that had led in one slot did not campaign in the other
  for seed = 1, 40 do table.insert(seeds, seed) end
  for _, seed in ipairs(seeds) do
    math.randomseed(seed)
    local sim = simulate { script = "slots.lua", nodes = { "a", "b", "c" }, seed = seed }
    sim:stub("work", { takes = 1e6 })
    sim:loss(0.02)
    for _ = 1, 12 do
      local node = ({ "a", "b", "c" })[math.random(3)]
      local what = math.random(5)
      if what == 1 then sim:partition(node)
      elseif what == 2 then sim:heal()
      elseif what == 3 then sim:kill_worker(node)
      elseif what == 4 then sim:resign(node, math.random(0, 5))
      else sim:latency(math.random() / 10) end
      sim:run(math.random() * 20)
      acting(sim)
    end
    sim:heal()
    sim:loss(0)
    sim:run(60)
    equal((acting(sim)), 2, "seed " .. seed)
    sim:close()
  end
end)

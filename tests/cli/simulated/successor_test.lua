-- Who comes next, and what that changes for whoever tests a script.
local function begin(more)
  local options = { script = "worker.lua", nodes = { "a", "b", "c" } }
  for key, value in pairs(more or {}) do options[key] = value end
  local sim = simulate(options)
  sim:stub("work", { takes = 2 })
  return sim
end

local function other(sim, ...)
  local not_these = {}
  for _, node in ipairs { ... } do not_these[node] = true end
  for _, node in ipairs(sim:nodes()) do
    if not not_these[node] then return node end
  end
end

test("somebody comes next a lease after the election at the latest, and the same one for as long as nothing happens", function()
  local sim = begin()
  equal(sim:next(), nil)
  local leader = sim:elect()
  local next, took = sim:await_next()
  expect(next ~= leader and took < 20, took)
  sim:run(3600)
  equal({ sim:leader(), sim:next() }, { leader, next })
  equal(#sim:events "comes_next", 1)
  equal(sim:record().next.identity, next)
end)

test("a leader that is stopped is followed at once by the one that came next, whatever the seed", function()
  for seed = 1, 20 do
    local sim = begin { seed = seed }
    local old = sim:elect()
    local next = sim:await_next()
    sim:stop(old)
    local leader, took = sim:next_leader()
    equal(leader, next)
    expect(took < 0.1, took)
    expect(sim:await_next() == other(sim, old, leader))
    sim:close()
  end
end)

test("after a crash the one that came next leads as soon as the lease is over", function()
  for seed = 1, 20 do
    local sim = begin { seed = seed }
    sim:elect()
    local next = sim:await_next()
    sim:run(100)
    sim:kill_leader()
    equal(sim:next(), next)
    local leader, took = sim:next_leader()
    equal(leader, next)
    expect(took <= 15.5, took)
    sim:close()
  end
end)

test("one that came next and has just died costs half a second", function()
  local sim = begin()
  local old = sim:elect()
  local next = sim:await_next()
  sim:crash(next)
  sim:stop(old)
  local leader, took = sim:next_leader()
  equal(leader, other(sim, old, next))
  expect(took < 0.6, took)
end)

test("handover: to whoever comes next, then to a node by its name; it says who leads, and for how long nobody did", function()
  local sim = begin()
  local first = sim:elect()
  local next = sim:await_next()
  local leader, gap = sim:handover()
  equal(leader, next)
  expect(gap > 0 and gap < 0.1, gap)
  equal(sim:printed("^stopped", first), { "stopped\tresigned" })
  local third = other(sim, first, next)
  for _, to in ipairs { third, first, next, third } do
    local who, took = sim:handover(to)
    equal({ who, sim:leader() }, { to, to })
    expect(took < 0.1, took)
  end
end)

test("a handover to a node that cannot lead is refused in time, and the leader leads on", function()
  local sim = begin()
  local leader = sim:elect()
  local gone = other(sim, leader)
  sim:crash(gone)
  local since = sim:now()
  local who, why = sim:handover(gone, 20)
  equal(who, nil)
  matches(why, gone .. " did not come next within 20s")
  expect(sim:now() - since >= 20 and sim:now() - since < 21)
  equal({ sim:leader(), #sim:events "became_leader" }, { leader, 1 })
  who, why = sim:handover(leader)
  equal(who, nil)
  matches(why, "is the one that leads")
end)

test("a handover waits for what on_stopping drains", function()
  local sim = simulate { script = "drains.lua", nodes = { "a", "b" }, args = { 7 } }
  sim:stub("step", { takes = 7 })
  sim:stub("minute", "")
  local first = sim:elect()
  sim:run(22) -- in the middle of the third step
  local second, gap = sim:handover()
  expect(second ~= first and gap < 0.1, gap)
  equal(sim:printed("^dr", first), { "draining\tresigned\ttrue\ttrue", "drained" })
  equal(#sim:printed("^a step", first), 3)
end)

test("misuse of a handover is an error at its line; that nobody leads is an answer", function()
  local sim = begin()
  equal({ sim:handover() }, { nil, "nobody leads" })
  local leader = sim:elect()
  local here = "successor_test.lua:%d+: "
  raises(function() sim:handover "z" end, here .. "there is no node 'z': there are a, b, c")
  raises(function() sim:handover(nil, nil, "oders") end, here .. "there is no election 'oders'")
  raises(function() sim:handover(nil, 0) end, here .. "sim:handover: expected a node and seconds")
  raises(function() sim:next "oders" end, here .. "there is no election 'oders'")
  raises(function() sim:await_next "oders" end, here .. "there is no election 'oders'")
  sim:pause(leader, 60)
  raises(function() sim:handover() end, here .. leader .. " stands still: sim:wake")
end)

test("waiting for what never comes names the test's line", function()
  local sim = begin { nodes = 1 }
  sim:store_down()
  raises(function() sim:elect() end, "successor_test.lua:%d+: sim:elect: nobody leads within 3600 s")
  sim:store_up()
  sim:elect()
  raises(function() sim:await_next() end, "successor_test.lua:%d+: sim:await_next: nobody comes next within 3600 s")
  raises(function() sim:next_leader() end, "successor_test.lua:%d+: sim:next_leader: nobody else leads within 3600 s")
end)

test("the node with the largest priority comes next; with --preempt it leads half a minute later", function()
  local nodes = { "a", { name = "b", priority = 3 }, { name = "c", priority = -1 } }
  local sim = begin { nodes = nodes }
  sim:partition "b"
  local first = sim:elect()
  sim:await_next()
  sim:heal()
  sim:run_until(function() return sim:next() == "b" end, 120)
  sim:run(3600)
  equal(sim:leader(), first)
  sim:close()

  sim = begin { nodes = nodes, options = { "--preempt" } }
  sim:partition "b"
  sim:elect()
  sim:await_next()
  sim:heal()
  sim:run_until(function() return sim:next() == "b" end, 120)
  local _, took = sim:run_until(function() return sim:leader() == "b" end)
  expect(took > 29 and took < 31, took)
  sim:run(3600)
  equal(sim:leader(), "b")
  expect(sim:next() == "a")
end)

test("a node has options of its own besides those of all", function()
  local sim = begin { nodes = { { name = "a", options = { "--max-term=10m" } }, "b" }, options = { "--lease-duration=20s" } }
  sim:partition "b"
  equal(sim:elect(), "a")
  sim:heal()
  equal(sim:record().leaseDurationSeconds, 20)
  local second, took = sim:next_leader()
  equal(second, "b")
  expect(took > 590 and took < 601, took)
  sim:run(3 * 3600)
  equal(sim:leader(), "b")
  sim:close()
  raises(function() begin { nodes = { { name = "a", options = { "--preemt" } } } } end, "successor_test.lua:%d+: .*did you mean %-%-preempt")
  raises(function() begin { nodes = { { name = "a", priority = "high" } } } end, "option 'priority': expected a whole number")
  raises(function() begin { nodes = { { name = "a", priority = 1 << 40 } } } end, "is no whole number from")
end)

test("where nobody may write who comes next, elections go on as before, and each node says it once", function()
  local sim = begin()
  sim:deny_next()
  local old = sim:elect()
  sim:run(3600)
  equal(sim:next(), nil)
  equal(#sim:events "next_refused", 3)
  equal(sim:handover(nil, 20), nil)
  sim:stop(old)
  local leader, took = sim:next_leader()
  expect(leader ~= old and took < 2.5, took)
  sim:allow_next()
  sim:await_next()
end)

test("where somebody deletes the record of who comes next, somebody comes next again soon", function()
  local sim = begin()
  local leader = sim:elect()
  sim:await_next()
  for _ = 1, 3 do
    sim:delete_next()
    sim:run(60)
    expect(sim:next() ~= leader and sim:next())
  end
  equal(sim:leader(), leader)
  raises(function() sim:delete_next "oders" end, "successor_test.lua:%d+: there is no election 'oders'")
end)

test("who stands still comes next no more, and somebody else does", function()
  local sim = begin()
  local leader = sim:elect()
  local next = sim:await_next()
  sim:pause(next, 600)
  sim:run_until(function() return sim:next() ~= next end, 60)
  equal(sim:await_next(), other(sim, leader, next))
end)

local function warm(more)
  local options = { script = "warm.lua", nodes = { "a", "b", "c" } }
  for key, value in pairs(more or {}) do options[key] = value end
  local sim = simulate(options)
  sim:stub("load", function(call) return { stdout = "rows", takes = tonumber(call.shell:match "%d+") } end)
  sim:stub("refresh", {})
  return sim
end

test("on_next warms up the node that comes next, and no other; its tasks go over into the term", function()
  local sim = warm()
  local first = sim:elect()
  local next = sim:await_next()
  sim:run(100)
  equal(sim:printed "^warm", { "warming", "warm" })
  local call = sim:calls "load"[1]
  equal({ call.node, call.leading, call.token }, { next, false, nil })
  local before = #sim:calls "refresh"
  expect(before > 0)
  sim:stop(first)
  equal(sim:next_leader(), next)
  sim:run(300)
  equal(sim:printed("^leading", next), { "leading\trows" })
  equal(sim:printed("^over", next), {})
  local token = sim:record().token
  local refreshed = 0
  for i, c in ipairs(sim:calls "refresh") do
    if i > before and c.node == next then
      equal({ c.leading, c.token }, { true, token })
      refreshed = refreshed + 1
    end
  end
  equal(refreshed, 5)
end)

test("a term may begin while on_next is at work, which then goes on in the term", function()
  local sim = warm { args = { 50 } }
  sim:elect()
  local leader = expect(sim:handover())
  sim:run(100)
  equal(sim:printed(nil, leader), { "warming", "leading\thalf", "warm" })
end)

test("who comes next no more runs on_next_over, and refreshes nothing from then on", function()
  local sim = warm { nodes = { "a", "b", { name = "c", priority = 1 } } }
  sim:crash "c"
  sim:elect()
  local next = sim:await_next()
  sim:run(100)
  sim:start "c"
  sim:run_until(function() return sim:next() == "c" end)
  sim:run(60)
  equal(sim:printed("^over", next), { "over\trows" })
  local before = #sim:calls "refresh"
  sim:run(600)
  for i, call in ipairs(sim:calls "refresh") do expect(i <= before or call.node == "c") end
end)

test("an on_next that fails fails the test, and the node leads without", function()
  local sim = warm()
  sim:stub("load", { missing = true })
  sim:elect()
  sim:await_next()
  matches(sim:errors()[1], "on_next")
  local leader = expect(sim:handover())
  equal(sim:printed("^leading", leader), { "leading\tcold" })
  sim:run(60)
  matches(sim:errors()[1], "on_next") -- of the one that led before
end)

test("where the script's process of the next dies, the one that replaces it warms up again", function()
  local sim = warm { nodes = { "a", "b" } }
  sim:elect()
  local next = sim:await_next()
  sim:run(30)
  sim:kill_worker(next)
  sim:run(60)
  equal(sim:printed("^warm", sim:await_next()), { "warming", "warm", "warming", "warm" })
end)

test("a function of the script may say the priority, on each node by what it finds there", function()
  local sim = simulate { script = "ranked.lua", nodes = { "a", { name = "b", env = { RANK = 5 } }, { name = "c", env = { RANK = 7 } } } }
  sim:partition("b", "c")
  equal(sim:elect(), "a")
  sim:heal()
  sim:run_until(function() return sim:next() == "c" end)
  local _, took = sim:run_until(function() return sim:leader() == "c" end)
  expect(took > 59 and took < 61, took)
  equal(sim:await_next(), "b")
end)

test("a priority that is given by an option is the one that counts, whatever the script's function says", function()
  local sim = simulate { script = "ranked.lua", nodes = { { name = "a", priority = 1 }, { name = "b", env = { RANK = 5 } },
    { name = "c", priority = 6, env = { RANK = 1 } } } }
  sim:partition("b", "c")
  equal(sim:elect(), "a")
  sim:heal()
  sim:run_until(function() return sim:next() == "c" end)
  sim:run_until(function() return sim:leader() == "c" end)
  equal(sim:await_next(), "b")
end)

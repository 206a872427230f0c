-- What lunarch test does to simulated nodes: each fault, and what the real elector makes of it.
local function begin(more)
  local options = { script = "worker.lua", nodes = { "a", "b", "c" } }
  for key, value in pairs(more or {}) do options[key] = value end
  local sim = simulate(options)
  sim:stub("work", { stdout = "done", takes = 2 })
  return sim
end

test("an hour passes with one leader, sixty times nothing but its work, and the record says so", function()
  local sim = begin()
  local leader = sim:elect()
  sim:run(3630)
  equal(sim:leader(), leader)
  equal(#sim:calls "work", 60)
  for _, call in ipairs(sim:calls()) do
    expect(call.leading and call.node == leader and call.token == sim:record().token)
    equal({ call.stdin, call.timeout, call.argv[2] }, { "input", 30, tostring(call.token) })
  end
  equal(sim:record().checkpoint.count, 60)
  equal(sim:record().holderIdentity, leader)
  equal(#sim:printed "^sees", 3)
end)

test("what is due at the end of a period happens in it, whatever the seed", function()
  for seed = 1, 30 do
    local sim = begin { seed = seed }
    sim:elect()
    for minute = 1, 20 do
      sim:run(60)
      equal(#sim:calls "work", minute)
    end
    sim:close()
  end
end)

test("a leader whose machine dies is followed when its lease is over, by one that knows what it had done", function()
  local sim = begin()
  sim:elect()
  sim:run(310)
  local dead = sim:kill_leader()
  equal(sim:leader(), nil)
  local successor, took = sim:next_leader()
  expect(successor ~= dead and took > 12 and took <= 17, "it took " .. took)
  matches(sim:printed("^leading", successor)[1], "5$")
  sim:start(dead)
  sim:run(60)
  equal(sim:leader(), successor)
  equal(#sim:printed("^starting", dead), 2)
end)

test("a leader that is cut off stops before anybody else leads, and follows when the network is back", function()
  local sim = begin()
  local old = sim:elect()
  sim:run(100)
  sim:partition(old)
  local _, stopped = sim:run_until(function() return not sim:is_leading(old) end)
  expect(stopped > 5 and stopped <= 10, "stopped after " .. stopped)
  equal(sim:leader(), nil)
  local successor = sim:next_leader()
  equal(sim:printed("^stopped", old), { "stopped\texpired" })
  sim:heal()
  sim:run(10)
  matches(sim:printed("^sees", old)[#sim:printed("^sees", old)], successor)
end)

test("a leader that stands still for longer than its lease does nothing when it wakes up but clean up", function()
  local sim = begin()
  local old = sim:elect()
  sim:run(61)
  sim:pause(old, 60)
  local successor = sim:next_leader()
  expect(successor ~= old)
  sim:run(120)
  local late = sim:now()
  for _, call in ipairs(sim:calls "work") do
    expect(call.node ~= old or call.time < 65)
    late = call.time
  end
  expect(late > 120)
  equal(#sim:printed("^stopped", old), 1)
  equal(#sim:events("worker_gone"), 1)
end)

test("a machine that stands still may lose its power, be woken without effect, and be started again", function()
  local sim = begin()
  local old = sim:elect()
  sim:pause(old, 60)
  sim:crash(old)
  for _, what in ipairs { "wake", "stop", "resign", "kill_worker", "crash" } do sim[what](sim, old) end
  expect(sim:next_leader() ~= old)
  sim:start(old)
  sim:run(60)
  equal(#sim:printed("^starting", old), 2)
  sim:pause(old, 5)
  sim:run(30)
  equal(#sim:events "worker_gone", 0)
end)

test("a short pause loses nothing", function()
  local sim = begin()
  local leader = sim:elect()
  sim:pause(leader, 5)
  sim:run(30)
  equal(sim:leader(), leader)
  equal(#sim:printed "^stopped", 0)
end)

test("a node that is stopped, or resigns, hands over at once", function()
  local sim = begin()
  local first = sim:elect()
  sim:stop(first)
  local second, took = sim:next_leader()
  expect(took < 1, "it took " .. took)
  sim:resign(second)
  local third, after = sim:next_leader()
  expect(after < 1 and third ~= second)
  equal(sim:printed("^stopped", first), { "stopped\tshutdown" })
  equal(sim:printed("^stopped", second), { "stopped\tresigned" })
end)

test("a script's process that dies is replaced, and the replacement runs on_stopped", function()
  local sim = begin()
  local leader = sim:elect()
  sim:run(90)
  sim:kill_worker(leader)
  local successor = sim:next_leader()
  expect(successor ~= leader)
  equal(sim:printed("^stopped", leader), { "stopped\tworker" })
  sim:run(60)
  equal(#sim:printed("^starting", leader), 1)
end)

test("while the store refuses nobody new leads, and afterwards one does", function()
  local sim = begin()
  local leader = sim:elect()
  sim:store_down()
  sim:run(60)
  equal(sim:leader(), nil)
  equal(sim:printed("^stopped", leader), { "stopped\texpired" })
  sim:store_up()
  sim:elect()
end)

test("a record that somebody deletes ends the term, and the next token is larger", function()
  local sim = begin()
  local leader = sim:elect()
  local token = sim:record().token
  sim:run(5)
  sim:delete_record()
  sim:run(1)
  equal(sim:printed("^stopped", leader), { "stopped\tdeleted" })
  sim:elect()
  expect(sim:record().token > token)
end)

test("with a third of all messages lost, and slow ones, there is never more than one leader, for hours", function()
  local sim = begin { latency = 0.3, seed = 7 }
  sim:loss(0.33)
  sim:run(6 * 3600)
  expect(#sim:events "became_leader" > 1)
  sim:errors()
end)

test("the same seed gives the same hour, another seed another", function()
  local function day(seed)
    local sim = begin { latency = 0.5, seed = seed }
    sim:loss(0.3)
    sim:run(3600)
    local lines = {}
    for _, e in ipairs(sim:events()) do lines[#lines + 1] = ("%.6f %s %s"):format(e.time, e.node, e.event) end
    sim:errors()
    sim:close()
    return table.concat(lines, "\n")
  end
  local one = day(1)
  expect(one == day(1))
  expect(one ~= day(2))
end)

test("options are those of run, and so are the script's arguments", function()
  local sim = begin { options = { "--lease-duration=60s" }, args = { 10 } }
  sim:elect()
  sim:run(35)
  equal(#sim:calls "work", 3)
  equal(sim:record().leaseDurationSeconds, 60)
  sim:kill_leader()
  local _, took = sim:next_leader()
  expect(took > 45, "it took " .. took)
end)

test("a program that takes longer than its timeout is stopped then", function()
  local sim = begin { args = { 100 } }
  sim:stub("work", { takes = 50 })
  sim:elect()
  sim:run(150)
  equal(sim:record().checkpoint, nil)
end)

test("a checkpoint that somebody made too long for a script is kept, and not given to it", function()
  local sim = begin()
  local old = sim:elect()
  sim:run(70)
  sim:edit_checkpoint { text = ("x"):rep(66000) }
  sim:run(5)
  equal(sim:leader(), old)
  sim:kill_leader()
  local successor = sim:next_leader()
  matches(sim:printed("^leading", successor)[1], "0$")
  equal(#sim:events { event = "checkpoint_too_long", level = "warn", node = successor }, 1)
  equal(#sim:record().checkpoint.text, 66000)
  sim:run(70)
  equal(sim:record().checkpoint.count, 1)
  sim:delete_record()
  raises(function() sim:edit_checkpoint {} end, "there is no record")
end)

test("a script that saves more than a record may hold is told so, and leads on", function()
  local sim = simulate { script = "saves.lua", nodes = 1, args = { 16 * 1024 } }
  sim:elect()
  sim:run(5)
  matches(sim:printed("^saved", "a")[1], "^saved\tnil\t.*16384")
  equal(sim:record().checkpoint, nil)
  equal(sim:leader(), "a")
end)

test("misuse says what was meant", function()
  raises(function() simulate { script = "worker.lua", node = { "a" } } end, "did you mean 'nodes'")
  raises(function() simulate { script = "none.lua" } end, "none.lua")
  local sim = begin()
  raises(function() sim:partitoin "a" end, "did you mean 'partition'")
  raises(function() sim:partition "d" end, "there is no node 'd': there are a, b, c")
  raises(function() sim:kill_leader() end, "nobody leads")
  raises(function() sim:run_until(function() return false end, 10) end, "within 10 s")
end)

test("requests go to stubs, with everything that the script's client does: JSON, tokens, retries, timeouts", function()
  local sim = simulate { script = "webhook.lua", nodes = 1 }
  sim:stub("https://hooks.example.org/", function(call)
    if #sim:calls "https://hooks" < 3 then return { status = 503 } end
    return { json = { text = call.method }, takes = 2 }
  end)
  sim:elect()
  sim:run(20)
  local calls = sim:calls "https://hooks.example.org/leader"
  equal(#calls, 3)
  equal(json.decode(calls[1].body), { node = "a" })
  equal(calls[3].headers["fencing-token"], tostring(sim:record().token))
  equal(sim:printed "POST", { "200\tPOST" })
end)

test("a server that does not answer in time, and one that is not there", function()
  local sim = simulate { script = "webhook.lua", nodes = 1 }
  sim:stub("https://hooks.example.org/", { takes = 100 })
  sim:elect()
  sim:run(30)
  equal(sim:printed "timeout", { "timeout\tnil" })
  sim:stub("https://hooks.example.org/", { unreachable = true })
  sim:resign("a", 1)
  sim:run(60)
  equal(sim:printed "unreachable", { "unreachable\tnil" })
end)

test("a daily job runs once a day, though the second leader's clock is two days behind, and then set right", function()
  local sim = simulate { script = "daily.lua", nodes = { "a", "b" } }
  local function ran() return #sim:printed "^ran " end
  local first = sim:elect()
  sim:run(3 * 86400)
  equal(ran(), 3)
  local mark = sim:record().cron.daily
  local second = first == "a" and "b" or "a"
  sim:clock(second, -2 * 86400)
  sim:stop(first)
  equal(sim:elect(), second)
  sim:run(36 * 3600)
  equal(sim:record().cron.daily, mark)
  equal(#sim:events "cron_future", 2) -- once, and a day later
  matches(sim:events("cron_future")[1].message, 'the job "daily" ran last for 2024%-01%-03T03:00:00Z, and this machine\'s clock says 2024%-01%-02T00:00')
  equal(ran(), 3)
  sim:clock(second, 0)
  sim:run(120)
  equal(ran(), 5) -- the two that came meanwhile, late
  matches(sim:printed("^ran ")[4], "^ran 2024%-01%-04T03:00:00.000000Z at 2024%-01%-05T")
  sim:run(2 * 86400)
  equal(ran(), 7)
  raises(function() sim:clock(second) end, "expected a node and seconds")
end)

test("a job that was marked and had not begun when its term ended is taken back, though its mark is on the way: the next leader runs it", function()
  local sim = simulate { script = "daily.lua", nodes = { "a", "b" }, latency = 0.5 }
  local first = sim:elect()
  sim:run(3 * 3600 - sim:now() + 0.2)
  sim:resign(first)
  sim:run(60)
  expect(sim:leader() ~= first)
  equal(#sim:printed "^ran ", 1)
  equal(#sim:printed("^ran ", first), 0)
end)

test("with --reclaim a node whose machine died takes its own old record at once when it is started again", function()
  local sim = begin { options = { "--reclaim" } }
  local leader = sim:elect()
  sim:kill_leader()
  sim:start(leader)
  local started = sim:now()
  equal(sim:elect(), leader)
  expect(sim:now() - started < 1)
end)

test("on_stopped is repeated by one more replacement when the first one dies in it, and by no third", function()
  for deaths, finished in ipairs { 1, 1, 0 } do
    local sim = simulate { script = "tidy.lua", nodes = { "a", "b" } }
    local leader = sim:elect()
    for _ = 1, deaths do
      sim:kill_worker(leader)
      sim:run(0.5)
      expect(deaths > 2 or sim:leader() == nil)
    end
    local successor = sim:elect()
    expect(successor ~= leader)
    equal(#sim:printed("^tidying\tworker", leader), math.min(deaths, 2))
    equal(#sim:printed("^tidied\tworker", leader), finished)
    sim:close()
  end
end)

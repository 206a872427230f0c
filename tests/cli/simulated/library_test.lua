-- The library on virtual time.
local function begin(answer)
  local sim = simulate { script = "retry.lua", nodes = { "a", "b" } }
  sim:stub("https://api.example.org/", answer)
  sim:elect()
  return sim
end

local function times(sim)
  local list, first = {}, sim:calls()[1].time
  for i, call in ipairs(sim:calls()) do list[i] = math.floor(call.time - first + 0.5) end
  return list
end

test("retry.call: pauses double up to their limit, and the result comes through", function()
  local sim = begin(function(call) return #call.headers == 0 and { status = call.time < 50 and 503 or 200, body = "fine" } end)
  sim:run(200)
  equal(times(sim), { 0, 10, 30, 55 })
  matches(sim:printed("result")[1], "^result\tfine")
  equal(sim:printed "^2", { "2\tstatus 503 at try 2\t20.0" })
end)

test("retry.call: gives up after so many tries, with the last error", function()
  local sim = begin({ status = 500 })
  sim:run(200)
  equal(#sim:calls(), 4)
  equal(sim:printed "result", { "result\tnil\tstatus 500 at try 4" })
end)

test("retry.call: ends with the term, in the middle of a pause", function()
  local sim = begin({ unreachable = true })
  local first = sim:leader()
  sim:run(5)
  sim:stop(first)
  sim:next_leader()
  sim:run(200)
  local of_first = 0
  for _, call in ipairs(sim:calls()) do of_first = of_first + (call.node == first and 1 or 0) end
  equal(of_first, 1)
  equal(#sim:calls(), 5)
end)

test("metrics: gauges end with their term or their worker, counters go on", function()
  local sim = simulate { script = "metrics.lua", nodes = { "a", "b" } }
  local first = sim:elect()
  local second = first == "a" and "b" or "a"
  sim:run(10)
  equal({ sim:metric "working", sim:metric "started", sim:metric("follows", { leader = first }, second) }, { 1, 2, 1 })
  local rounds = sim:metric "rounds_total"
  expect(rounds >= 9, rounds)
  sim:kill_worker(first)
  equal({ sim:metric("working", nil, first), sim:metric("rounds_total", nil, first) }, { nil, rounds })
  sim:run(30)
  equal(sim:metric "working", 1)
  equal(sim:metric "ends_total", 1)
  expect(sim:metric "rounds_total" > rounds + 10)
  raises(function() sim:metric("working", nil, "nobody") end)
  raises(function() sim:metric("working", { ["a-b"] = 1 }) end, "no name of a label")
end)

test("may_lead may take longer than the retry period", function()
  local sim = simulate { script = "metrics.lua", nodes = 1 }
  local _, took = sim:elect()
  expect(sim:now() >= 3 and sim:now() < 5, took)
  equal(#sim:events "may_lead_late", 0)
end)

test("one that takes longer than may_lead_timeout is asked again, and that is said once", function()
  local sim = simulate { script = "metrics.lua", nodes = 1, options = { "--may-lead-timeout=2s" } }
  sim:run(60)
  equal({ sim:leader(), #sim:events "may_lead_late" }, { nil, 1 })
end)

test("a server behind a socket is stubbed by unix:, as the script calls it", function()
  local sim = simulate { script = "socket.lua", nodes = 1 }
  sim:stub("unix:/run/engine.sock:/v1/", "stopped")
  sim:stub("unix:/run/engine.sock:/v1/info", "fine")
  sim:elect()
  sim:run(1)
  equal(sim:printed "fine", { "fine" })
  equal(#sim:calls "unix:/run/engine.sock", 2)
  equal(sim:calls "unix:/run/engine.sock:/v1/stop"[1].url, "unix:/run/engine.sock:/v1/stop")
end)

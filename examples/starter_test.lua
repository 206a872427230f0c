-- The tests of starter.lua: lunarch test starter_test.lua
-- Three machines, an hour, a power cut: all simulated. docs/testing.md of Lunarch says what else there is.
local function begin()
  local sim = simulate { script = "starter.lua", nodes = { "a", "b", "c" } }
  sim:stub("echo", { takes = 1 }) -- stands in for the program; a program without a stub is an error
  return sim
end

test("one machine of three works, once a minute", function()
  local sim = begin()
  local leader = sim:elect()
  sim:run(3590) -- it works at minute 0, 1, 2 and so on to 59
  equal(#sim:calls "echo", 60)
  for _, call in ipairs(sim:calls "echo") do equal(call.node, leader) end
end)

test("when it dies another goes on, with a larger token, where the first one was", function()
  local sim = begin()
  sim:elect()
  sim:run(150)
  local before = sim:calls("echo")[1].token
  sim:kill_leader()
  local successor = sim:next_leader()
  sim:run(5)
  local last = sim:calls("echo")[#sim:calls "echo"]
  equal(last.node, successor)
  expect(last.token > before)
  equal(last.argv[3], "4")
end)

test("a machine that is cut off stops before another begins", function()
  local sim = begin()
  local first = sim:elect()
  sim:partition(first)
  sim:run_until(function() return not sim:is_leading(first) end)
  equal(sim:leader(), nil)
  expect(sim:next_leader() ~= first)
end)

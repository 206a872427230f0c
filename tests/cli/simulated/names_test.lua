-- How a test names what it looks at: elections, programs, nodes. What does not exist is an error and no empty answer.
local function begin(nodes)
  local sim = simulate { script = "names.lua", nodes = nodes or { "a", "b" }, args = { "all" }, env = { REGION = "eu" } }
  sim:stub("./step.sh", "done")
  return sim
end

test("a call has the name of the stub that answered it, in a shell line, too", function()
  local sim = begin()
  sim:elect()
  sim:run(1)
  equal(#sim:calls "./step.sh", 2)
  equal(#sim:calls "step.sh", 2)
  sim:stub("*", "whatever")
  equal(#sim:calls "*", 0)
end)

test("the calls of a name that no stub answers are an error", function()
  local sim = begin()
  raises(function() sim:calls "./stpe.sh" end, "names_test.lua:%d+: sim:calls: no stub answers './stpe.sh' %(did you mean './step.sh'%?%)")
  raises(function() sim:calls "https://example.org" end, "no stub answers")
end)

test("an election is found by its name and by its lock", function()
  local sim = begin()
  local orders = sim:elect "orders"
  local mails = sim:elect "mails"
  equal({ sim:leader "orders", sim:leader "mails", sim:leader "postbox" }, { orders, mails, mails })
  equal({ sim:record("orders").holderIdentity, sim:record("mails").holderIdentity }, { orders, mails })
  sim:delete_record "mails"
  equal(sim:record "mails", nil)
  expect(sim:record "orders")
  equal(sim:kill_leader "orders", orders)
  expect(sim:next_leader "orders" ~= orders)
end)

test("an election that does not exist is an error at once", function()
  local sim = begin()
  local there_is_none = "there is no election 'oders': there are orders, mails"
  for _, what in ipairs { "elect", "next_leader", "leader", "record", "kill_leader", "delete_record" } do
    raises(function() sim[what](sim, "oders") end, there_is_none)
  end
  raises(function() sim:edit_checkpoint({}, "oders") end, there_is_none)
  equal(sim:now(), 0)
end)

test("the record's checkpoint is what the script saved", function()
  local sim = begin()
  sim:elect "orders"
  sim:run(3700)
  equal(sim:record("orders").checkpoint, { step = 3 })
  equal(sim:record("mails").checkpoint, nil)
  expect(sim:record("mails").cron)
end)

test("each node has arguments and variables of its own, or those of all", function()
  local sim = begin { "a", { name = "b", args = { "some" }, env = { REGION = false } }, { name = "c", env = { REGION = "us" } } }
  local function call_of(node)
    for _, other in ipairs(sim:nodes()) do
      if other ~= node then sim:partition(other) end
    end
    sim:run(60)
    local calls = sim:calls "./step.sh"
    sim:heal()
    sim:stop(node)
    return table.concat(calls[#calls].argv, " ", 2)
  end
  equal({ call_of "a", call_of "b", call_of "c" }, { "all eu", "some none", "all us" })
  sim:errors()
end)

test("a node that does not exist is an error", function()
  local sim = begin()
  raises(function() sim:is_leading "z" end, "there is no node 'z': there are a, b")
  raises(function() begin { { env = {} } } end, "there is a simulation already")
  sim:close()
  raises(function() begin { { env = {} } } end, "a node has no name")
  raises(function() begin { { name = "a", evn = {} } } end, "unknown option 'evn' %(did you mean 'env'%?%)")
end)

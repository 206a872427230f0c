-- The tests of backup.lua: lunarch test examples/backup_test.lua
-- Nothing is waited for and no program runs: time, the lock and the network are simulated, and stubs stand in for tar and the like.
local target -- a directory of this test's own, for the files that the script itself writes

local function list(pattern)
  local names = {}
  for name in io.popen(("ls '%s'"):format(target)):lines() do
    if name:find(pattern) then names[#names + 1] = name end
  end
  return names
end

local function begin()
  target = os.tmpname()
  os.remove(target)
  os.execute(("mkdir '%s'"):format(target))
  local sim = simulate { script = "backup.lua", nodes = { "a", "b", "c" }, args = { "/etc", target, 60, 3 } }
  sim:stub("mkdir", {})
  sim:stub("tar", function(call)
    io.open(call.argv[3], "w"):close()
    return { takes = 20 }
  end)
  sim:stub("sha256sum", function(call) return "0123abcd  " .. call.argv[2] .. "\n" end)
  sim:stub("find", function(call)
    if call.argv[5] == "-delete" then
      os.execute(("find '%s' -name '%s' -delete"):format(target, call.argv[4]))
    else
      return table.concat(list "%.tar%.gz$", "\n"):gsub("[^\n]+", target .. "/%0")
    end
  end)
  return sim
end

local function clean() os.execute(("rm -rf '%s'"):format(target)) end

test("one node of three makes a backup each minute, with its checksum, and keeps the newest three", function()
  local sim = begin()
  local leader = sim:elect()
  sim:run(30)
  equal(#list "^backup%-.*%.tar%.gz$", 1)
  sim:run(600)
  equal(#sim:calls "tar", 11)
  for _, call in ipairs(sim:calls "tar") do equal(call.node, leader) end
  equal(#list "%.tar%.gz$", 3)
  equal(#list "%.sha256$", 3)
  clean()
end)

test("when the leader's machine dies another goes on, and its files sort after those of the first", function()
  local sim = begin()
  sim:elect()
  sim:run(30)
  local before = list "%.tar%.gz$"
  sim:kill_leader()
  sim:next_leader()
  sim:run(30)
  local after = list "%.tar%.gz$"
  equal(#after, 2)
  equal(after[1], before[1])
  clean()
end)

test("a leader that stands still in the middle of a backup finishes nothing once another leads", function()
  local sim = begin()
  local first = sim:elect()
  sim:run(10) -- tar is at work
  sim:pause(first, 80) -- it wakes up while the next leader's tar is at work
  local second = sim:next_leader()
  expect(second ~= first)
  sim:run(280)
  local tokens = {}
  for _, name in ipairs(list "%.tar%.gz$") do tokens[name:match "%-(%d+)%-"] = true end
  equal(tokens[("%020d"):format(sim:calls("tar")[1].token)], nil, "an archive of the first leader")
  equal(#list "%.part$", 0)
  clean()
end)

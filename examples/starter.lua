-- starter.lua: say here what it does.
--   lunarch check starter.lua        shows the plan, changes nothing
--   lunarch test starter_test.lua    its tests: no waiting, no lock, no program is run
--   lunarch run starter.lua          on every machine; --lock says where they meet (with --poke auto, if that is s3:// or mysql://)

-- One round of the work. The token grows with every new leader: hand it on, and let the receiver refuse a smaller one.
local function work(term, done)
  local result, err = exec { "echo", "round", done.rounds + 1, "token", term.token, timeout = 20 }
  if not result then return log.warn("round_failed", { why = err.message }) end
  done.rounds = done.rounds + 1
  assert(term:save(done)) -- into the lock's record: the next leader goes on from there
end

return {
  -- lock = "etcd://127.0.0.1:2379/starter", -- or --lock; without either, a file on this machine

  -- Called when this process leads. It may return: what it started goes on until the term ends.
  on_leading = function(term)
    local done = term:load() or { rounds = 0 }
    print("leading, after " .. done.rounds .. " rounds")
    term:every(60, function() work(term, done) end, { now = true })
  end,

  -- Called when all of that has stopped. Another may lead by now: clean up what is yours, nothing else.
  on_stopped = function(_, reason) print("no longer leading: " .. reason) end,

  -- Called on every machine, whoever leads.
  on_new_leader = function(leader) print(leader.identity .. " leads") end,
}

-- Leads, works each minute, remembers how often in the lock's record, and says what happens.
local every_s = tonumber((...)) or 60
return {
  on_start = function() print("starting") end,
  may_lead = function() return true end,
  on_leading = function(term)
    local done = term:load() or { count = 0 }
    print("leading", term.token, done.count)
    term:every(every_s, function()
      local r = exec { "work", tostring(term.token), stdin = "input", timeout = 30 }
      if r and r.ok then
        done.count = done.count + 1
        assert(term:save(done))
      end
    end)
  end,
  on_stopped = function(_, reason) print("stopped", reason) end,
  on_new_leader = function(leader) print("sees", leader.identity) end,
  on_no_leader = function() print("sees nobody") end,
}

-- Works in steps, and finishes the one that was begun when its term is to end.
local step_s = tonumber((...)) or 7
local jobs
return {
  on_leading = function(term)
    print "leading"
    jobs = { term:every(10, function() exec { "step", tostring(step_s) } print "a step" end, { now = true }),
      term:cron("* * * * *", function() exec { "minute" } end, { name = "minutes", zone = "UTC" }) }
  end,
  on_stopping = function(term, reason)
    print("draining", reason, term:is_leading(), term:stopping())
    for _, job in ipairs(jobs) do job:wait() end
    print "drained"
  end,
  on_stopped = function(_, reason) print("stopped", reason) end,
}

-- Sets gauges in and outside of a term, and counts.
local metrics = require "lunarch.metrics"

return {
  may_lead = function() sleep(3) return true end, -- longer than the retry period, 2 s
  on_start = function() metrics.gauge("started", 1) end,
  on_new_leader = function(leader) metrics.gauge("follows", leader.is_self and 0 or 1, { leader = leader.identity }) end,
  on_leading = function(term)
    term:every(1, function()
      metrics.gauge("working", 1)
      metrics.counter("rounds_total")
    end)
  end,
  on_stopped = function() metrics.counter "ends_total" end,
}

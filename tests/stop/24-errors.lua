-- an error in every hook: none but on_leading's ends anything
local seen = 0
return {
  on_start = function() print("started") end,
  may_lead = function() seen = seen + 1; if seen == 1 then error("may_lead fails") end return true end,
  on_leading = function(term)
    print("leading")
    error("on_leading fails")
  end,
  on_stopped = function(term, reason) print("stopped", reason) error("on_stopped fails") end,
  on_new_leader = function() error("on_new_leader fails") end,
  on_no_leader = function() error("on_no_leader fails") end,
}

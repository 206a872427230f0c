-- Prepares itself while it comes next, for as many seconds as its argument says, and keeps that fresh.
local load_s = tonumber((...)) or 20
return {
  on_next = function(s)
    print "warming"
    s.data.rows = exec("load " .. load_s).stdout
    s:every(60, function() exec "refresh" end)
    print "warm"
  end,
  on_next_over = function(s) print("over", s.data.rows) end,
  on_leading = function(term) print("leading", term.warm and (term.warm.rows or "half") or "cold") end,
  on_stopped = function(_, reason) print("stopped", reason) end,
}

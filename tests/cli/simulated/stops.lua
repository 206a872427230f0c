-- Says how far it came; the times are its arguments.
local child_s, stopped_s = tonumber((...)), tonumber((select(2, ...)))
return {
  on_leading = function()
    print "leading"
    exec { "work", tostring(child_s) }
  end,
  on_stopped = function(_, reason)
    print("stops", reason)
    sleep(stopped_s)
    print "stopped"
  end,
}

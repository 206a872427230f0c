-- a child that does not listen to SIGTERM
return {
  on_start = function() print("started") end,
  on_leading = function(term)
    print("leading")
    exec("trap \"\" TERM; while :; do sleep 1; done")
  end,
  on_stopped = function(term, reason) print("stopped", reason) end,
}

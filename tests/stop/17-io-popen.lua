-- reads from a child that says nothing
return {
  on_start = function() print("started") end,
  on_leading = function(term)
    print("leading")
    io.popen("sleep 60"):read("a")
  end,
  on_stopped = function(term, reason) print("stopped", reason) end,
}

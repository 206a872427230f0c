-- stops when it is told
return {
  on_start = function() print("started") end,
  on_leading = function(term)
    print("leading")

  end,
  on_stopped = function(term, reason) print("stopped", reason) end,
}

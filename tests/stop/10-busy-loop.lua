-- never waits
return {
  on_start = function() print("started") end,
  on_leading = function(term)
    print("leading")
    while true do end
  end,
  on_stopped = function(term, reason) print("stopped", reason) end,
}

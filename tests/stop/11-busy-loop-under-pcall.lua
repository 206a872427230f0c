-- swallows the error that should end it, again and again
return {
  on_start = function() print("started") end,
  on_leading = function(term)
    print("leading")
    while true do pcall(function() while true do end end) end
  end,
  on_stopped = function(term, reason) print("stopped", reason) end,
}

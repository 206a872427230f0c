-- the interrupted coroutine is not the one that loops
return {
  on_start = function() print("started") end,
  on_leading = function(term)
    print("leading")
    coroutine.wrap(function() while true do end end)()
  end,
  on_stopped = function(term, reason) print("stopped", reason) end,
}

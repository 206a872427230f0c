-- one call into C that takes for ever
return {
  on_start = function() print("started") end,
  on_leading = function(term)
    print("leading")
    string.find(string.rep("a", 60), string.rep("a*", 60) .. "b")
  end,
  on_stopped = function(term, reason) print("stopped", reason) end,
}

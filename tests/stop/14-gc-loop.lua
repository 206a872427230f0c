-- loops in a finalizer, where hooks are off
return {
  on_start = function() print("started") end,
  on_leading = function(term)
    print("leading")
    setmetatable({}, { __gc = function() while true do end end })
    collectgarbage()
  end,
  on_stopped = function(term, reason) print("stopped", reason) end,
}

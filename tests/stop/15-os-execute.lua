-- the interpreter waits in C for a child
return {
  on_start = function() print("started") end,
  on_leading = function(term)
    print("leading")
    os.execute("sleep 60")
  end,
  on_stopped = function(term, reason) print("stopped", reason) end,
}

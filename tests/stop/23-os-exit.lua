-- a clean stop of the whole program, with that status
return {
  on_start = function() print("started") end,
  on_leading = function(term)
    print("leading")
    os.exit(7)
  end,
  on_stopped = function(term, reason) print("stopped", reason) end,
}

-- the worker runs out of memory and dies
return {
  on_start = function() print("started") end,
  on_leading = function(term)
    print("leading")
    os.execute("prlimit --pid $PPID --as=300000000")
    local all = {}
    while true do all[#all + 1] = string.rep("x", 1000000) .. #all end
  end,
  on_stopped = function(term, reason) print("stopped", reason) end,
}

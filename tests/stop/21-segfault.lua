-- the worker dies by itself: its replacement runs on_stopped
return {
  on_start = function() print("started") end,
  on_leading = function(term)
    print("leading")
    os.execute("kill -SEGV $PPID")
    while true do sleep(1) end
  end,
  on_stopped = function(term, reason) print("stopped", reason) end,
}

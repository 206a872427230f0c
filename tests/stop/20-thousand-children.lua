-- many children
return {
  on_start = function() print("started") end,
  on_leading = function(term)
    print("leading")
    os.execute("i=0; while [ $i -lt 1000 ]; do sleep 60 & i=$((i+1)); done")
    print("spawned")
    while true do sleep(1) end
  end,
  on_stopped = function(term, reason) print("stopped", reason) end,
}

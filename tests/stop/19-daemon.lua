-- a child that leaves its session and its parents
return {
  on_start = function() print("started") end,
  on_leading = function(term)
    print("leading")
    os.execute("setsid sh -c \"setsid sleep 60 &\" &")
    while true do sleep(1) end
  end,
  on_stopped = function(term, reason) print("stopped", reason) end,
}

-- fifteen children, some of them daemons, and a busy loop
return {
  on_start = function() print("started") end,
  on_leading = function(term)
    print("leading")
    os.execute("for i in 1 2 3 4 5; do sleep 60 & setsid sleep 60 & setsid sh -c \"setsid sleep 60 &\" & done")
    print("family")
    while true do end
  end,
  on_stopped = function(term, reason) print("stopped", reason) end,
}

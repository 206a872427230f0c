-- Asks a server behind a socket of this machine, as that of a container engine.
return {
  on_leading = function(term)
    local r, err = http.get("unix:/run/engine.sock:/v1/info")
    print(r and r.body or err.message)
    http.post("unix:/run/engine.sock:/v1/stop", { body = "all" })
    sleep(1000)
  end,
}

-- Tells a webhook who leads, with the token in a header; asks again when it is told to.
return {
  on_leading = function(term)
    local r, err = http.post("https://hooks.example.org/leader", { json = { node = term.identity }, token = true, retries = 3, idempotent = true, timeout = 20 })
    print(r and r.status or err.code, r and r:json().text)
  end,
}

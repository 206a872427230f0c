-- A term of the chaos test. It holds what only one may hold (witness.c), acts without a token itself (a line of FILE.acts)
-- as what it starts does, with and without one, and counts in the checkpoint.
local function count(term)
  local before = term:load()
  local n = before and before.n or term.token
  print(("loaded %d %s"):format(term.token, before and before.n or "none"))
  while true do
    n = n + 1
    if term:save { n = n } then print(("saved %d %d"):format(term.token, n)) end
    sleep(0.15)
  end
end

local function act(term, path, name)
  while true do
    local file = io.open(path, "a")
    if file then
      file:write(("%d %s 0\n"):format(term.token, name))
      file:close()
    end
    sleep(0.05)
  end
end

return {
  on_leading = function(term)
    print("leading " .. term.token)
    local program, file, name = arg[1], arg[2], arg[3]
    spawn(count, term)
    spawn(act, term, file .. ".acts", name)
    print("witness " .. tostring((exec { program, file, name, arg[4] })))
  end,
  on_stopped = function(term, reason) print("stopped " .. term.token .. " " .. reason) end,
}

-- A term that holds what only one may hold (witness.c) for as long as anything of it runs.
-- And it counts in the checkpoint: what one term knows to be saved, every later one must load.
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

return {
  on_start = function() print("started") end,
  on_leading = function(term)
    print("leading " .. term.token)
    spawn(count, term)
    local program, file, name = arg[1], arg[2], arg[3]
    print("witness " .. tostring((exec { program, file, name, arg[4] })))
  end,
  on_stopped = function(term, reason) print("stopped " .. term.token .. " " .. reason) end,
}

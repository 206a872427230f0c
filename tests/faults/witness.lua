-- A term that holds what only one may hold (witness.c) for as long as anything of it runs.
return {
  on_start = function() print("started") end,
  on_leading = function(term)
    print("leading " .. term.token)
    local program, file, name = arg[1], arg[2], arg[3]
    print("witness " .. tostring((exec { program, file, name, arg[4] })))
  end,
  on_stopped = function(term, reason) print("stopped " .. term.token .. " " .. reason) end,
}

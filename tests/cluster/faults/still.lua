-- As witness.lua, but for the checkpoint: the record changes by renewals alone.
return {
  on_leading = function(term) print("leading " .. term.token) exec { arg[1], arg[2], arg[3] } end,
  on_stopped = function(term, reason) print("stopped " .. term.token .. " " .. reason) end,
}

-- Two slots; each node says in which it acts.
return {
  slots = 2,
  on_leading = function(term)
    print("+ " .. term.slot)
    exec { "work", tostring(term.slot) }
  end,
  on_stopped = function(term) print("- " .. term.slot) end,
}

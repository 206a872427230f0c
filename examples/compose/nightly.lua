-- What the leader does: it counts, and whoever leads next goes on from there.
return {
  on_leading = function(term)
    local count = (term:load() or { count = 0 }).count
    term:every(1, function()
      count = count + 1
      term:save { count = count }
      print("count " .. count .. ", token " .. term.token)
    end)
  end,
  on_stopped = function(term, reason) print("no more: " .. reason) end,
}

-- A job of every day, which runs once, whoever leads.
return {
  on_leading = function(term)
    term:cron("0 3 * * *", function(tick) print("ran " .. time.iso(tick.time) .. " at " .. time.iso()) end, { zone = "UTC", name = "daily", catch_up = "all" })
  end,
}

-- The larger the machine's rank, the sooner it comes next; a leader of a smaller one hands over after a minute.
return {
  priority = function() return math.tointeger(tonumber(os.getenv "RANK" or "0")) end,
  preempt = true,
  preempt_after = 60,
  on_leading = function() end,
}

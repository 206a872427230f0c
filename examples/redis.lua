-- Delayed jobs in Redis: whoever leads moves the jobs that are due from the sorted set NAME:due (score: seconds since 1970) to the
-- list NAME:ready, where workers wait for them (BLPOP).
--   lunarch run --lock 'redis://127.0.0.1:6379/{jobs}' examples/redis.lua -- NAME [SECONDS]
-- The lock is in the same server, so the server itself can check the token before it moves anything: a leader that was paused and
-- has been replaced moves nothing, however late its command arrives.
local redis = require "lunarch.redis"

local name, seconds = ...
assert(name, "usage: lunarch run --lock redis://HOST:PORT/KEY redis.lua -- NAME [SECONDS]")

local move = [[
  local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[1], 'LIMIT', 0, 1000)
  for _, job in ipairs(due) do
    redis.call('ZREM', KEYS[1], job)
    redis.call('RPUSH', KEYS[2], job)
  end
  return #due
]]

return {
  on_leading = function(term)
    local store = redis.beside(term)
    term:every(tonumber(seconds) or 1, function() -- an error ends the term: what cannot be done here may work elsewhere
      local moved = assert(store:fenced_eval(term, move, { name .. ":due", name .. ":ready" }, math.floor(time.now())))
      if moved > 0 then log.info("moved", { jobs = moved, token = term.token }) end
    end, { now = true })
  end,
}

-- Delayed jobs in Redis: whoever leads moves the jobs that are due from the sorted set NAME:due (score: seconds since 1970) to the
-- list NAME:ready, where workers wait for them (BLPOP).
--   lunarch run --lock 'redis://127.0.0.1:6379/{jobs}' examples/redis.lua -- NAME [SECONDS]
-- The lock is in the same server, so the server itself can check the token before it moves anything: a leader that was paused and
-- has been replaced moves nothing, however late its command arrives.
local name, seconds = ...
seconds = tonumber(seconds) or 1
assert(name, "usage: lunarch run --lock redis://HOST:PORT/KEY redis.lua -- NAME [SECONDS]")

local move = [[
  if redis.call('HGET', KEYS[1], 'token') ~= ARGV[1] then return redis.error_reply('FENCED there is a newer leader') end
  local due = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', ARGV[2], 'LIMIT', 0, 1000)
  for _, job in ipairs(due) do
    redis.call('ZREM', KEYS[2], job)
    redis.call('RPUSH', KEYS[3], job)
  end
  return #due
]]

-- redis://[USER@]HOST:PORT/[DB/]KEY, as the lock shows itself. A password, if any, is redis-cli's business (REDISCLI_AUTH).
local function place(lock)
  local host, port, path = lock:match("^redis://([^/]*):(%d+)/([^?]+)")
  assert(host, "this needs a redis:// lock")
  local db, key = path:match("^(%d+)/(.+)$")
  return host:match("[^@]*$"), port, db or "0", key or path
end

return {
  on_leading = function(term)
    local host, port, db, key = place(term.lock)
    local state = key:find("{.+}") and key .. ":lunarch" or "{" .. key .. "}:lunarch"
    term:every(seconds, function()
      local r = assert(exec { "redis-cli", "-e", "-h", host, "-p", port, "-n", db, "EVAL", move, "3", state, name .. ":due",
        name .. ":ready", term.token, math.floor(time.now()), timeout = 5 })
      if not r.ok then error(r.stderr .. r.stdout) end -- the term ends: what cannot be done here may work elsewhere
      local moved = tonumber(r.stdout)
      if moved > 0 then log.info("moved", { jobs = moved, token = term.token }) end
    end, { now = true })
  end,
}

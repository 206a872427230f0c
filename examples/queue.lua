-- A queue with one consumer at a time, whose jobs are done in their order: each is a line of text that a command gets as its standard
-- input, and what the command says goes into a second list.
--   lunarch run --lock 'redis://HOST:PORT/{NAME}:leader' examples/queue.lua -- NAME COMMAND [SECONDS]
-- Producers: RPUSH NAME job. A job stays in NAME:busy until its result is in NAME:done, which is one step on the server, and only done for
-- the newest leader: no job is lost, none has two results. A job whose leader died is begun again by the next one. A leader that is stopped
-- finishes its job before another leads, if that takes less than --shutdown-grace.
local redis = require "lunarch.redis"

local name, command, seconds = ...
assert(name and command, "usage: lunarch run --lock redis://HOST:PORT/KEY queue.lua -- NAME COMMAND [SECONDS]")
local waiting, busy, finished = name, name .. ":busy", name .. ":done"

local take = "return redis.call('LINDEX', KEYS[2], 0) or redis.call('LMOVE', KEYS[1], KEYS[2], 'LEFT', 'RIGHT')"
local finish = "redis.call('LPOP', KEYS[1]) return redis.call('RPUSH', KEYS[2], ARGV[1])"

-- The next job, or one that was begun; nil: there is none.
local function next_job(store, term)
  local job = assert(store:fenced_eval(term, take, { waiting, busy }))
  return job ~= json.null and job or nil
end

local consumer

return {
  on_leading = function(term)
    local store = redis.beside(term)
    consumer = term:every(tonumber(seconds) or 1, function()
      while not term:stopping() do
        local job = next_job(store, term)
        if not job then return end
        local r = assert(exec(command, { stdin = job, timeout = 600 }))
        if not r.ok then error(("%s: status %s: %s"):format(job, r.code or r.signal, r.stderr)) end -- another machine may do it
        assert(store:fenced_eval(term, finish, { busy, finished }, r.stdout))
        log.info("job_done", { job = job, token = term.token })
      end
    end, { now = true })
  end,
  on_stopping = function() consumer:wait() end,
}

-- Works off a table of jobs in MariaDB or MySQL, each job once, whoever leads: jobs(id, work, done_by, done_at).
--   lunarch run --lock 'mysql://USER@HOST:PORT/DB#jobs' examples/mysql.lua -- HOST PORT DB USER [SECONDS]
-- Every transaction first passes the fence, which keeps the largest token: what a leader that was paused and replaced still tries is rolled
-- back (docs/library.md, "lunarch.mysql"). The jobs may be on another server than the lock.
local mysql = require "lunarch.mysql"

local host, port, database, user, seconds = ...
assert(user, "usage: lunarch run --lock URL mysql.lua -- HOST PORT DATABASE USER [SECONDS]")

local work <const> = "UPDATE jobs SET done_by = ?, done_at = NOW(6) WHERE done_at IS NULL ORDER BY id LIMIT 100"

return {
  on_leading = function(term)
    local db = assert(mysql.open { host = host, port = math.tointeger(tonumber(port)), user = user, password = os.getenv "JOBS_PASSWORD",
      database = database, fence = "jobs" })
    term:every(tonumber(seconds) or 1, function() -- an error ends the term: what cannot be done here may work elsewhere
      local done = assert(db:fenced(term, work, term.token))
      if done.count > 0 then log.info("done", { jobs = done.count, token = term.token }) end
    end, { now = true })
  end,
}

-- Works off a table of jobs, each job once, whoever leads: jobs(id, work, done_by, done_at).
--   lunarch run --lock 'postgres://USER@HOST:PORT/DB#jobs' examples/postgres.lua -- [SECONDS]
-- The lock is in the same database, so every transaction first checks the term's token in the lock's own row, and holds that row until it
-- commits (docs/stores/postgres.md, "Fenced writes"): what a leader that was paused and replaced still tries is rolled back, and no new one begins
-- before the last is done.
local sql = require "lunarch.sql"

local seconds = tonumber((...)) or 1

local work = [[
  UPDATE jobs SET done_by = $1, done_at = clock_timestamp()
    WHERE id IN (SELECT id FROM jobs WHERE done_at IS NULL ORDER BY id LIMIT 100) RETURNING id
]]

return {
  on_leading = function(term)
    local database = sql.beside(term)
    term:every(seconds, function() -- an error ends the term: what cannot be done here may work elsewhere
      local done = assert(database:fenced(term, work, term.token))
      if done.count > 0 then log.info("done", { jobs = done.count, token = term.token }) end
    end, { now = true })
  end,
}

-- Works off a table of jobs, each job once, whoever leads: jobs(id, work, done_by, done_at).
--   lunarch run --lock 'postgres://USER@HOST:PORT/DB#jobs' examples/postgres.lua -- [SECONDS]
-- Every transaction first checks the term's token in the lock's own row, and holds that row until it commits (docs/locks.md, "Fenced
-- writes"): what a leader that was paused and replaced still tries is rolled back, and no new one begins before the last is done.
local seconds = tonumber((...)) or 1

-- The lock shows itself as postgres://USER@HOST:PORT/DB[?table=NAME]#NAME; psql takes what stands before the options.
local function parts(lock)
  local uri, options, name = lock:match("^(postgres://[^?#]*)%??([^#]*)#(.+)$")
  assert(uri, "this needs a postgres:// lock")
  local plain = function(s) return (s:gsub("%%(%x%x)", function(hex) return string.char(tonumber(hex, 16)) end)) end
  return uri, plain(options:match("table=([^&]*)") or "lunarch_locks"), plain(name)
end

-- :'name' and :"name" are psql's own quoting, so that no value can be taken for SQL.
local transaction = [[
  BEGIN;
  SELECT count(*) = 1 AS leading FROM (SELECT 1 FROM :"table" WHERE name = :'lock' AND token = :token FOR KEY SHARE) AS fence \gset
  \if :leading
    UPDATE jobs SET done_by = :token, done_at = clock_timestamp()
      WHERE id IN (SELECT id FROM jobs WHERE done_at IS NULL ORDER BY id LIMIT 100) RETURNING id;
    COMMIT;
  \else
    ROLLBACK;
    \echo FENCED
  \endif
]]

return {
  on_leading = function(term)
    local uri, locks, name = parts(term.lock)
    term:every(seconds, function()
      local r = assert(exec { "psql", "-XqAt", "-v", "ON_ERROR_STOP=1", "-v", "table=" .. locks, "-v", "lock=" .. name, "-v",
        "token=" .. term.token, "-d", uri, stdin = transaction, timeout = 10 })
      if not r.ok then error(r.stderr) end -- the term ends: what cannot be done here may work elsewhere
      if r.stdout:find("FENCED") then error("FENCED: there is a newer leader") end
      local _, count = r.stdout:gsub("\n", "")
      if count > 0 then log.info("done", { jobs = count, token = term.token }) end
    end, { now = true })
  end,
}

-- Brings a PostgreSQL database up to date: every *.sql of a directory, in order, each exactly once, however many machines start at the same time.
--   lunarch run --lock URL examples/migrate.lua -- DATABASE DIRECTORY
-- DATABASE is what psql takes (a URI or settings; a password in PGPASSWORD). A file is run in the same transaction that enters its name into the table
-- "migrations", whose key it is: what a leader that was killed or frozen left half done was never done, and what it did is not done again.
local files, retry = require "lunarch.files", require "lunarch.retry"
local database, directory = ...
assert(directory, "usage: lunarch run migrate.lua -- DATABASE DIRECTORY")

-- One transaction. A server that cannot be reached, or is starting, is asked again.
local function sql(text)
  return retry.call(function()
    local r, err = exec { "psql", "-XqAt", "-v", "ON_ERROR_STOP=1", "-1", "-d", database, "-f", "-", stdin = text, timeout = 3600 }
    if not r then return nil, err.message end
    return r.ok and r.stdout, r.stderr
  end, { timeout = 300, errors = function(err) return err:find "connection to server" end })
end

local function pending()
  assert(sql "CREATE TABLE IF NOT EXISTS migrations (name text PRIMARY KEY, token bigint NOT NULL, at timestamptz NOT NULL DEFAULT now())")
  local done, list = {}, {}
  for name in assert(sql "SELECT name FROM migrations"):gmatch "[^\n]+" do done[name] = true end
  for name in assert(exec { "ls", directory }).stdout:gmatch "[^\n]+" do -- in order
    if name:find "%.sql$" and not done[name] then list[#list + 1] = name end
  end
  return list
end

return {
  on_leading = function(term)
    for _, name in ipairs(pending()) do
      local text = assert(files.read(directory .. "/" .. name))
      local good, err = sql(("INSERT INTO migrations VALUES ('%s', %d);\n%s"):format((name:gsub("'", "''")), term.token, text))
      if not good then error(name .. ": " .. err) end -- the term ends; this machine tries again after a while, or another does
      log.info("migrated", { name = name })
    end
    lunarch.exit(0)
  end,
}

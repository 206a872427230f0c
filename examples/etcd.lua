-- Numbered jobs, worked off in their order by one of many machines; the next leader goes on where the last one stopped.
--   lunarch run --lock etcd://A:2379,B:2379,C:2379/jobs examples/etcd.lua -- DIRECTORY [SECONDS]
-- The jobs are shell scripts DIRECTORY/1.sh, 2.sh, ... in a directory that every machine sees. How far they have come is kept
-- in the lock's own record: a save succeeds only while this term leads, so an old leader cannot set a new one back. A job may
-- run a second time if its leader dies between running it and saving that: make jobs bear it.
local directory, seconds = ...
assert(directory, "usage: lunarch run --lock etcd://HOST:PORT/KEY etcd.lua -- DIRECTORY [SECONDS]")

local function run(number, token)
  local path = ("%s/%d.sh"):format(directory, number)
  local file = io.open(path)
  if not file then return false end
  file:close()
  local result = assert(exec { "sh", path, timeout = 3600, env = { JOB = tostring(number), TOKEN = tostring(token) } })
  log.info("job", { number = number, ok = result.ok, token = token })
  return true
end

return {
  on_leading = function(term)
    local done = term:load() or { last = 0 }
    term:every(tonumber(seconds) or 1, function()
      while term:is_leading() and run(done.last + 1, term.token) do
        done.last = done.last + 1
        assert(term:save(done))
      end
    end, { now = true })
  end,
  on_new_leader = function(leader) log.info("leader", { identity = leader.identity, at = leader.address }) end,
}

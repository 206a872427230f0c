-- Rolls out a version: to one host first, the canary; if that stays healthy to the others, one by one; if anything is wrong, back to what was there.
--   lunarch run --lock URL examples/canary.lua -- VERSION SECONDS DEPLOY HOST:PORT...
-- DEPLOY is a program that puts a version on a host: DEPLOY HOST:PORT VERSION. http://HOST:PORT/health says which one runs: {"version": "7"}. SECONDS: how
-- long the canary is watched. How far it has come is in the lock's record: if the leader dies over it, the next one goes on where it was.
local retry = require "lunarch.retry"
local version, seconds, deploy = ...
local hosts = { select(4, ...) }
assert(hosts[1], "usage: lunarch run canary.lua -- VERSION SECONDS DEPLOY HOST:PORT...")

-- The version that is healthy there; with `wanted` no other counts.
local function runs(host, wanted)
  local r, err = http.get("http://" .. host .. "/health", { timeout = 5 })
  local found = r and r.ok and (r:json() or {}).version
  if found and found == (wanted or found) then return found end
  return nil, err and err.message or ("%s says %d, version %s"):format(host, r.status, found or "unknown")
end

local function put(host, wanted)
  local r, err = exec { deploy, host, wanted, timeout = 600 }
  if not r or not r.ok then return nil, ("%s %s: %s"):format(deploy, host, err or r.stderr) end
  return retry.call(function() return runs(host, wanted) end, { timeout = 30, pause = 0.1 })
end

local function stays_well(host)
  for _ = 1, 10 do
    sleep(seconds / 10)
    local well, err = runs(host, version)
    if not well then return nil, err end
  end
  return true
end

local function roll_out(term, state)
  while state.done < #hosts and not state.failed do
    local host = hosts[state.done + 1]
    local good, err = put(host, version)
    if good and state.done == 0 then good, err = stays_well(host) end
    if good then state.done = state.done + 1 else state.failed = err end
    assert(term:save(state))
    log.info(good and "deployed" or "failed", { host = host, version = version, why = err })
  end
end

local function roll_back(term, state)
  for i = state.done + 1, 1, -1 do assert(put(hosts[i], state.before)) end
  state.done, state.over = 0, true
  assert(term:save(state))
  log.warn("rolled_back", { version = version, to = state.before, why = state.failed })
end

return {
  on_leading = function(term)
    local state = term:load()
    if not state or state.version ~= version then state = { version = version, before = assert(runs(hosts[1])), done = 0 } end
    assert(term:save(state))
    roll_out(term, state)
    if state.failed and not state.over then roll_back(term, state) end
    lunarch.exit(state.failed and 1 or 0) -- the others find it done when it is their turn, and leave too
  end,
}

-- The leader's sign of life: a small JSON file that is replaced every few seconds, and a ping to a dead man's switch, if there is one.
--   lunarch run --lock URL examples/heartbeat.lua -- FILE [SECONDS] [PING_URL]
-- The file has a token guard: a leader that was frozen, and has been replaced meanwhile, cannot put its old sign over the new one's.
local files, retry = require "lunarch.files", require "lunarch.retry"
local path, seconds, ping = ...
seconds = tonumber(seconds) or 10
assert(path, "usage: lunarch run heartbeat.lua -- FILE [SECONDS] [PING_URL]")

local function beat(term, since)
  local sign = json.encode { leader = term.identity, token = term.token, since = since, at = time.iso() }
  local written, err = files.write(path, sign .. "\n", { token = term.token })
  if not written then error(err.message) end -- the term ends: what cannot be written here may be elsewhere
end

local function tell()
  local heard, err = retry.call(function()
    local r, err = http.get(ping, { timeout = 5 })
    if not r then return nil, err end
    return r.ok or nil, "status " .. r.status
  end, { tries = 3 })
  if not heard then log.warn("ping_failed", { why = tostring(err) }) end
end

return {
  on_leading = function(term)
    local since = time.iso()
    term:every(seconds, function() beat(term, since) end, { now = true })
    if ping then term:every(seconds, tell, { now = true }) end
  end,
}

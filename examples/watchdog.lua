-- Keeps a program running on a machine that is well; one that is not gives up the lead, and does not campaign until it is well again.
--   lunarch run --lock URL examples/watchdog.lua -- HEALTH_URL SECONDS PROGRAM [ARGUMENTS]
-- Well is who answers 2xx at HEALTH_URL: the database as seen from here, or the machine's own agent. Three failures in a row, SECONDS
-- apart, end the term; one alone may be chance. may_lead asks the same question before every attempt to lead.
local url, seconds = ...
seconds = tonumber(seconds)
local command = { select(3, ...) }
assert(seconds and command[1], "usage: lunarch run watchdog.lua -- HEALTH_URL SECONDS PROGRAM [ARGUMENTS]")
local FAILURES <const> = 3

local function healthy()
  local response, err = http.get(url, { timeout = 1 })
  if not response then return false, err.message end
  return response.ok, url .. " says " .. response.status
end

local function watch(term)
  local failures = 0
  term:every(seconds, function()
    local well, why = healthy()
    failures = well and 0 or failures + 1
    if failures == FAILURES then
      log.warn("unhealthy", { why = why, failures = failures })
      term:resign()
    end
  end)
end

return {
  may_lead = healthy,
  on_leading = function(term)
    watch(term)
    local result = assert(exec { stdout = "inherit", stderr = "inherit", table.unpack(command) })
    error(("%s has ended with %d"):format(command[1], result.code or 128 + result.signal)) -- the term ends, another may do better
  end,
}

-- Tells a webhook who leads, whenever that changes.
--   lunarch run --lock URL examples/webhook.lua -- WEBHOOK_URL
-- There is no on_leading: this only watches, and never campaigns. It runs anywhere, also beside elections of other programs. Hooks run one at a
-- time and in order, so the receiver hears of changes in the order in which they were seen, however long it was down.
local notify, retry = require "lunarch.notify", require "lunarch.retry"
local url = ...
assert(url, "usage: lunarch run --lock URL webhook.lua -- WEBHOOK_URL")

local function tell(event)
  event.lock, event.at = election:lock(), time.iso()
  local told, err = retry.call(function()
    return notify.webhook(url, event, { timeout = 10, idempotent = true, retries = 0 })
  end, { timeout = 600, pause = 0.5, errors = function(err) return not err.status or err.status >= 429 end })
  if not told then log.error("webhook_failed", { why = err.message, event = event.event }) end
end

return {
  on_new_leader = function(leader)
    tell { event = "leader", leader = leader.identity, address = leader.address, token = leader.token, previous = leader.previous }
  end,
  on_no_leader = function(previous)
    tell { event = "nobody", previous = previous }
  end,
}

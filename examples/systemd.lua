-- A systemd unit that runs on the leader alone, and is started again there when it ends.
--   lunarch run --lock URL examples/systemd.lua -- UNIT [SECONDS]
-- The unit must not be enabled: it is started here. It is systemd's child and not this script's, so for the case that Lunarch itself is
-- killed let it go down together with the unit that runs this script (lunarch@NAME.service of the package): BindsTo= and After= with that
-- name in its [Unit].
local systemd = require "lunarch.systemd"

local unit, seconds = ...
assert(unit, "usage: lunarch run --lock URL systemd.lua -- UNIT [SECONDS]")

-- What has not stopped when the stop grace (3 s) is nearly over is killed: another may start it then.
local function stop() assert(systemd.stop(unit, { kill_after = 2 })) end

return {
  on_start = stop, -- what a crash has left

  on_leading = function(term)
    while true do
      assert(systemd.start(unit)) -- where it cannot start another may have better luck: the term ends
      log.info("unit_started", { unit = unit, token = term.token })
      local ended = assert(systemd.wait(unit))
      log.warn("unit_ended", { unit = unit, result = ended.result, code = ended.code })
      sleep(tonumber(seconds) or 5)
    end
  end,

  on_stopped = stop,
}

---@meta lunarch.systemd
-- luacheck: ignore

---Units of systemd, through systemctl(1). A unit is no child of the script. The unit says what happens to it when the script ends (BindsTo=, PartOf=).
---@class lunarch.systemd
local systemd = {}

---@class lunarch.SystemdOptions
---@field user? boolean the user's own systemd, not the system's
---@field timeout? number seconds (90)

---@class lunarch.SystemdStopOptions
---@field user? boolean the user's own systemd, not the system's
---@field timeout? number seconds (90)
---@field kill_after? number seconds; then the unit's processes get SIGKILL

---@class lunarch.SystemdWaitOptions
---@field user? boolean the user's own systemd, not the system's
---@field timeout? number seconds; default: as long as it takes
---@field interval? number seconds between looks (0.5)

---@class lunarch.UnitState
---@field active "active"|"reloading"|"inactive"|"failed"|"activating"|"deactivating"
---@field sub string as "running", "dead"
---@field result string how it ended: "success", "exit-code", "signal", ...
---@field pid? integer of its main process, while that runs
---@field code? integer the main process's last exit status, or the signal

---Starts a unit, and waits until systemd says that it has started. It may be running already.
---@param unit string as "report.service"
---@param options? lunarch.SystemdOptions
---@return true? started
---@return lunarch.Error? err "missing", "denied", "failed"; "timeout": it may still be done later
function systemd.start(unit, options) end

---Stops a unit, and waits for its end. A unit that does not run, or is not there, is stopped.
---@param unit string
---@param options? lunarch.SystemdStopOptions
---@return true? stopped
---@return lunarch.Error? err
function systemd.stop(unit, options) end

---The unit's state now.
---@param unit string
---@param options? lunarch.SystemdOptions
---@return lunarch.UnitState?
---@return lunarch.Error? err "missing": there is no such unit
function systemd.state(unit, options) end

---Waits until the unit does not run any more.
---@param unit string
---@param options? lunarch.SystemdWaitOptions
---@return lunarch.UnitState? state "inactive" or "failed", and how it ended
---@return lunarch.Error? err "timeout"
function systemd.wait(unit, options) end

return systemd

-- lunarch.systemd: starts and stops units of systemd with systemctl(1). A unit is no child of the script: it goes on when the script dies.

local use = ...
local given = use "given"
local lunarch = require "lunarch"

local TIMEOUT <const>, INTERVAL <const> = 90, 0.5 -- systemd's DefaultTimeoutStartSec; how often wait asks
local of_call = { user = "boolean", timeout = "seconds" }
local of_stop = { user = "boolean", timeout = "seconds", kill_after = "seconds" }
local of_wait = { user = "boolean", timeout = "seconds", interval = "seconds" }

return function(natives)
	local function systemctl(options, timeout, ...)
		return lunarch.exec { "systemctl", options.user and "--user" or "--system", "--no-ask-password", "--no-pager", timeout = timeout, ... }
	end

	local function failure(doing, unit, result, err)
		if not result then
			local more = err.code == "timeout" and ": it has not been done in time, and may be done later" or ""
			return natives.fail(err.code, ("systemd: %s %s: %s%s"):format(doing, unit, err.message, more))
		end
		local text = result.stderr:gsub("%s+$", "")
		local code = "failed"
		if text:find "not found" or text:find "not loaded" then
			code = "missing"
		elseif text:find "ccess denied" or text:find "authentication" or text:find "ermission denied" then
			code = "denied"
		elseif text:find "connect to bus" or text:find "not been booted" then
			code = "unreachable"
		end
		return natives.fail(code, ("systemd: %s %s: %s"):format(doing, unit, text))
	end

	local function arguments(where, unit, options, known)
		given.text(where .. ": unit", unit, 3)
		if unit:find "^%-" or unit:find "%s" then
			error(('%s: "%s" is no name of a unit'):format(where, unit), 3)
		end
		return given.options(where, options, known, 3)
	end

	local systemd = {}

	function systemd.start(unit, options)
		options = arguments("systemd.start", unit, options, of_call)
		local result, err = systemctl(options, options.timeout or TIMEOUT, "start", unit)
		if result and result.ok then
			return true
		end
		return failure("starting", unit, result, err)
	end

	-- Kills a unit that did not stop in time, then waits for systemd's stop job to end.
	local function kill(unit, options, timeout)
		systemctl(options, timeout, "kill", "--signal=KILL", unit)
		return systemctl(options, timeout, "stop", unit)
	end

	function systemd.stop(unit, options)
		options = arguments("systemd.stop", unit, options, of_stop)
		local timeout = options.timeout or TIMEOUT
		local patience = math.min(options.kill_after or timeout, timeout)
		local result, err = systemctl(options, patience, "stop", unit)
		if not result and err.code == "timeout" and options.kill_after then
			result, err = kill(unit, options, timeout)
		end
		if result and result.ok then
			return true
		end
		local nothing, why = failure("stopping", unit, result, err)
		if why.code == "missing" and result then
			return true -- no such unit runs
		end
		return nothing, why
	end

	local numbers = { MainPID = "pid", ExecMainStatus = "code" }
	local words = { ActiveState = "active", SubState = "sub", LoadState = "load", Result = "result" }

	local function state(unit, options, timeout)
		local result, err = systemctl(options, timeout, "show", "--property=MainPID,ExecMainStatus,ActiveState,SubState,LoadState,Result", unit)
		if not (result and result.ok) then
			return failure("looking at", unit, result, err)
		end
		local found = {}
		for name, value in result.stdout:gmatch "(%w+)=([^\n]*)" do
			if numbers[name] then
				found[numbers[name]] = math.tointeger(tonumber(value))
			elseif words[name] then
				found[words[name]] = value
			end
		end
		if not found.active then
			return natives.fail("invalid", ("systemd: looking at %s: systemctl printed no state of it"):format(unit))
		elseif found.load == "not-found" then
			return natives.fail("missing", ("systemd: there is no unit %s"):format(unit))
		end
		found.pid = found.pid ~= 0 and found.pid or nil
		return found
	end

	function systemd.state(unit, options)
		options = arguments("systemd.state", unit, options, of_call)
		return state(unit, options, options.timeout or TIMEOUT)
	end

	function systemd.wait(unit, options)
		options = arguments("systemd.wait", unit, options, of_wait)
		local now = lunarch.time.monotonic
		local deadline = options.timeout and now() + options.timeout or math.huge
		while true do
			local found, err = state(unit, options, TIMEOUT)
			if not found or found.active == "inactive" or found.active == "failed" then
				return found, err
			end
			if now() >= deadline then
				return natives.fail("timeout", ("systemd: %s is still %s after %g s"):format(unit, found.active, options.timeout))
			end
			lunarch.sleep(math.min(options.interval or INTERVAL, math.max(0, deadline - now())))
		end
	end

	return systemd
end

-- Planted for tests/cli/doctor_full.py: a lock in Box (BOX_LUA) that says "failed" where a write had no answer in time.
local box = dofile(os.getenv "BOX_LUA")
local write = box.write

function box.write(store, key, text, op)
	local outcome, version = write(store, key, text, { timeout = op.timeout * 0.6, expected = op.expected })
	if outcome == "ok" or outcome == "conflict" then
		return outcome, version
	end
	return "failed", "no answer in time"
end

return box

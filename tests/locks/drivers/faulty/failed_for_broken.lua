-- Planted for tests/cli/doctor_full.py: a lock in Box (BOX_LUA) that says "failed" where the connection broke after the request was sent.
local box = dofile(os.getenv "BOX_LUA")
local write = box.write

function box.write(store, key, text, op)
	local outcome, what = write(store, key, text, op)
	if outcome == nil and what.code == "unreachable" then
		return "failed", what
	end
	return outcome, what
end

return box

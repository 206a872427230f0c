-- Planted for tests/cli/doctor_full.py: a lock in Box (BOX_LUA) that has no certain answer for a write where a text is that is no
-- record: it may have left that alone.
local box = dofile(os.getenv "BOX_LUA")
local write = box.write

function box.write(store, key, text, op)
	local outcome, there = box.read(store, key, op)
	if outcome == "ok" and there == "hello\n" then
		return "unknown", "planted"
	end
	return write(store, key, text, op)
end

return box

-- Planted for tests/cli/doctor_full.py: a lock in Box (BOX_LUA) that reads each record once.
local box = dofile(os.getenv "BOX_LUA")
local read, kept = box.read, {}

function box.read(store, key, op)
	if not kept[key] then
		local outcome, text, version = read(store, key, op)
		if outcome ~= "ok" then
			return outcome, text, version
		end
		kept[key] = { text = text, version = version }
	end
	return "ok", kept[key].text, kept[key].version
end

return box

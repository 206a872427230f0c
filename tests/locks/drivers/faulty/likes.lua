-- Planted for tests/cli/doctor_full.py: a lock in Box (BOX_LUA) that takes the prefix for a pattern of Lua, where a dash repeats.
local box = dofile(os.getenv "BOX_LUA")
local list = box.list

function box.list(store, prefix, op)
	local outcome, names, more = list(store, "", op)
	if outcome ~= "ok" then
		return outcome, names
	end
	local found = {}
	for _, name in ipairs(names) do
		if name:find("^" .. prefix) then
			found[#found + 1] = name
		end
	end
	return "ok", found, more
end

return box

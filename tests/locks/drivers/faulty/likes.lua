-- Planted for tests/cli/doctor_full.py: a lock in Box (BOX_LUA) that lists by a pattern, where ? stands for any letter.
local box = dofile(os.getenv "BOX_LUA")
local list = box.list

function box.list(store, prefix, op)
	local outcome, names, more = list(store, "", op)
	if outcome ~= "ok" then
		return outcome, names
	end
	local pattern, found = "^" .. prefix:gsub("%W", "%%%0"):gsub("%%%?", "%%w"), {}
	for _, name in ipairs(names) do
		if name:find(pattern) then
			found[#found + 1] = name
		end
	end
	return "ok", found, more
end

return box

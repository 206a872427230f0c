-- Planted for tests/cli/doctor_full.py: a lock in Box (BOX_LUA) where keys that differ in case alone are the same one.
local box = dofile(os.getenv "BOX_LUA")

for _, name in ipairs { "read", "write", "remove", "watch" } do
	local whole = box[name]
	box[name] = function(store, key, ...)
		return whole(store, key:lower(), ...)
	end
end

return box

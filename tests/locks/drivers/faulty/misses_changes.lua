-- Planted for tests/cli/doctor_full.py: a lock in Box (BOX_LUA) whose watch looks again without saying where it was.
local box = dofile(os.getenv "BOX_LUA")
local watch = box.watch

function box.watch(store, key, changed)
	local calls = 0
	watch(store, key, function()
		calls = calls + 1
		if calls % 7 ~= 0 then
			changed()
		end
	end)
end

return box

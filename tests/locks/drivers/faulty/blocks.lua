-- Planted for tests/cli/doctor_full.py: a lock in Box (BOX_LUA) whose client library blocks for 1.8 s when a write has little time.
local box = dofile(os.getenv "BOX_LUA")
local write = box.write

function box.write(store, key, text, op)
	if op.timeout > 0.1 and op.timeout < 0.3 then
		os.execute "sleep 1.8"
	end
	return write(store, key, text, op)
end

return box

-- Planted for tests/cli/doctor_full.py: a lock in Box (BOX_LUA) that believes each 412, also where the request was sent twice.
local box = dofile(os.getenv "BOX_LUA")
local write = box.write

function box.write(store, key, text, op)
	local conflicts = false
	local put = lunarch.http.put
	lunarch.http.put = function(...) -- luacheck: ignore 122
		local r, err = put(...)
		conflicts = r ~= nil and r.status == 412
		return r, err
	end
	local outcome, what = write(store, key, text, op)
	lunarch.http.put = put -- luacheck: ignore 122
	if conflicts then
		return "conflict"
	end
	return outcome, what
end

return box

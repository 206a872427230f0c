-- Planted for tests/cli/doctor_full.py: a lock in Box (BOX_LUA) whose version is the length of the record.
local box = dofile(os.getenv "BOX_LUA")
local read, write, remove = box.read, box.write, box.remove

function box.read(store, key, op)
	local outcome, text = read(store, key, op)
	return outcome, text, outcome == "ok" and tostring(#text) or nil
end

-- The version that Box has, if it holds the expected record.
local function real(store, key, op)
	local outcome, text, version = read(store, key, op)
	local there = outcome == "ok" and tostring(#text) or ""
	return { timeout = op.timeout, expected = there ~= op.expected and "none" or outcome == "ok" and version or "" }
end

function box.write(store, key, text, op)
	local outcome, version = write(store, key, text, real(store, key, op))
	return outcome, outcome == "ok" and tostring(#text) or version
end

function box.remove(store, key, op)
	return remove(store, key, real(store, key, op))
end

return box

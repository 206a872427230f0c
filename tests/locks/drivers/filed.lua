-- A lock in a file, for tests of one process: a version in its first line, a record behind it. It swaps nothing atomically. What
-- stands in FILE.fault is run once, after a write; it returns what the write is to return, or nothing, as a list.

local function load_all(path)
	local f = io.open(path)
	if not f then
		return nil
	end
	local version, text = f:read "l", f:read "a"
	f:close()
	return version, text
end

local function fault(path)
	local f = io.open(path .. ".fault")
	if f then
		local code = f:read "a"
		f:close()
		os.remove(path .. ".fault")
		return load(code)()
	end
end

return {
	options = { file = "text" },
	open = function(place)
		if place.password and place.password ~= "hush-hush-9" then
			error("a wrong password", 0)
		end
		return place.options.file
	end,
	read = function(path)
		local version, text = load_all(path)
		if version then
			return "ok", text, version
		end
		return "absent"
	end,
	write = function(path, key, text, op)
		local version = load_all(path) or ""
		if version ~= op.expected then
			return "conflict"
		end
		local new = tostring((tonumber(version) or 0) + 1)
		local f <close> = assert(io.open(path .. ".new", "w"))
		assert(f:write(new, "\n", text))
		assert(f:close())
		assert(os.rename(path .. ".new", path))
		local said = fault(path)
		if said then
			return table.unpack(said)
		end
		return "ok", new
	end,
}

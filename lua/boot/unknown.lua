-- unknown(what, known, fields): an __index for an object or a module. known has its methods; fields are the other names that it may
-- have, and that are nil where it has them not. Any further name is an error in the line of the script that uses it, with a
-- suggestion. The library's own code may look for what is not there.

local use = ...
local getinfo, rawget = debug.getinfo, rawget -- the function below has no global: what a script puts there does not matter

local function refuse(what, known, fields, key, level)
	local words = {}
	for _, set in ipairs { known, fields } do
		for word in next, set do
			words[word] = true
		end
	end
	local name = tostring(key)
	local _, near = use "suggest"(name, words)
	error(("%s has no '%s'%s"):format(what, name, near and (": did you mean '%s'?"):format(near) or ""), level + 1)
end

return function(what, known, fields)
	return function(_, key)
		local value = rawget(known, key)
		if value ~= nil or fields and fields[key] then
			return value
		end
		local caller = getinfo(2, "S")
		if caller and caller.source:find "^=lunarch" then
			return nil
		end
		refuse(what, known, fields, key, caller and caller.what == "C" and 3 or 2) -- 3: a C function has looked here for the script
	end
end

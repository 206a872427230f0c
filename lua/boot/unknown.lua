-- unknown(what, known, also): an __index for objects of a class. It returns known[key]; another name is an error in the line that
-- used it, with a suggestion. also: more names that the object may have, and has not; they are nil.

local use = ...

return function(what, known, also)
	return function(_, key)
		local value = known[key]
		if value ~= nil or also and also[key] then
			return value
		end
		local name = tostring(key)
		error(("%s has no '%s'%s"):format(what, name, (use "suggest"(name, known))), 2)
	end
end

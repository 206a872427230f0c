-- Strict globals: using a name that is not defined is an error in the script and the modules beside it, with a suggestion.
-- It is no error in other modules: many look for globals of other Lua versions.

local use = ...

local function suggest(...)
	return use "suggest"(...)
end

return function(is_own)
	local sealed = false -- true: the script has been loaded

	-- Whether a function of the script used the global. level: as for error() in the caller.
	local function by_the_script(level)
		local info = debug.getinfo(level + 1, "S")
		return info ~= nil and is_own(info.source)
	end

	setmetatable(_G, {
		__index = function(_, name)
			if by_the_script(2) then
				local text = tostring(name)
				error(("undefined global '%s'%s"):format(text, (suggest(text, _G))), 2)
			end
		end,
		__newindex = function(globals, name, value)
			if sealed and by_the_script(2) then
				local text = tostring(name)
				error(("assignment to the undeclared global '%s'%s: make it local, or declare it while the script loads")
					:format(text, (suggest(text, globals))), 2)
			end
			rawset(globals, name, value)
		end,
	})

	return function()
		sealed = true
	end
end

-- library(name): nil if the library (lua/lunarch/) has a module of that name, else the error's text (for "lunarch.retri").

local use = ...
local suggest = use "suggest"

return function(name)
	local modules = use "modules"
	local short = name:gsub("^lunarch%.", "")
	if modules[short] then
		return nil
	end
	local _, near = suggest(short, modules)
	if near then
		return ("the library has no module '%s' (did you mean 'lunarch.%s'?)"):format(name, near)
	end
	local list = {}
	for module in pairs(modules) do
		list[#list + 1] = "lunarch." .. module
	end
	table.sort(list)
	return ("the library has no module '%s': there are %s"):format(name, table.concat(list, ", "))
end

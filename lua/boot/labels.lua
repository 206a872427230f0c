-- labels(table): the labels of a metric as Prometheus writes them between braces, sorted by name: zone="a",host="b"; "" without any. Else
-- nil and what is wrong.

local MOST <const>, LONGEST <const> = 10, 1000
local escapes <const> = { ["\\"] = "\\\\", ['"'] = '\\"', ["\n"] = "\\n" }

return function(labels)
	local parts = {}
	if labels ~= nil and type(labels) ~= "table" then
		return nil, "the labels are a table, as in { shard = \"a\" }"
	end
	for name, value in pairs(labels or {}) do
		if type(name) ~= "string" or not name:find "^[%a_][%w_]*$" or name:find "^__" then
			return nil, ("'%s' is no name of a label: letters, digits and '_', not '__' or a digit first"):format(tostring(name))
		elseif name == "name" then
			return nil, "the label 'name' is the election's name"
		elseif type(value) ~= "string" and type(value) ~= "number" and type(value) ~= "boolean" or tostring(value):find "%z" then
			return nil, ("label '%s': expected a text or a number, found a %s"):format(name, type(value))
		end
		parts[#parts + 1] = ('%s="%s"'):format(name, (tostring(value):gsub('[\\"\n]', escapes)))
	end
	table.sort(parts)
	local text = table.concat(parts, ",")
	if #parts > MOST or #text > LONGEST then
		return nil, ("too many labels: at most %d, of %d bytes together"):format(MOST, LONGEST)
	end
	return text
end

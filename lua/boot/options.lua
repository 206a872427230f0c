-- check(where, options, known): nil if all options are right, else an error's text. known maps each option's name to the kind of
-- its value: "text", "seconds", "count", "boolean", "table", a set of words, or a function, which returns nil if the value is
-- right, else what was expected.

local use = ...
local suggest = use "suggest"

local is = {
	text = function(v) return type(v) == "string" end,
	seconds = function(v) return type(v) == "number" and v >= 0 and v < math.huge end,
	count = function(v) return math.type(v) == "integer" and v >= 0 end,
	boolean = function(v) return type(v) == "boolean" end,
	table = function(v) return type(v) == "table" end,
}

local expected = {
	text = "a text",
	seconds = "a number of seconds, 0 or more",
	count = "a whole number, 0 or more",
	boolean = "true or false",
	table = "a table",
}

local function words(set)
	local list = {}
	for word in pairs(set) do
		list[#list + 1] = '"' .. word .. '"'
	end
	table.sort(list)
	return table.concat(list, ", ")
end

local function found(value)
	if type(value) == "string" then
		return ('the text "%s"'):format(#value > 60 and value:sub(1, 60) .. "..." or value)
	end
	return type(value) == "table" and "a table" or ("the %s %s"):format(type(value), tostring(value))
end

return function(where, options, known)
	for key, value in pairs(options) do
		local kind = known[key]
		if not kind then
			local name = tostring(key):sub(1, 60)
			return ("%s: unknown option '%s'%s"):format(where, name, (suggest(name, known)))
		elseif type(kind) == "function" then
			local wanted = kind(value)
			if wanted then
				return ("%s: option '%s': expected %s, found %s"):format(where, key, wanted, found(value))
			end
		elseif type(kind) == "table" and not kind[value] then
			return ("%s: option '%s': expected one of %s, found %s"):format(where, key, words(kind), found(value))
		elseif type(kind) == "string" and not is[kind](value) then
			return ("%s: option '%s': expected %s, found %s"):format(where, key, expected[kind], found(value))
		end
	end
end

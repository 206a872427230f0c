-- The modules of the library (lua/lunarch/) check their arguments with these: misuse raises an error with the line of the script's call.

local use = ...
local check = use "options"

local given = {}

local function value_kind(value)
	return value == nil and "nil" or value == "" and "an empty text" or "a " .. type(value)
end

-- A text that is not empty.
function given.text(what, value, level)
	if type(value) ~= "string" or value == "" then
		error(("%s: expected a text, found %s"):format(what, value_kind(value)), (level or 2) + 1)
	end
	return value
end

-- Checks a table of options; {} if there is none.
function given.options(where, options, known, level)
	if options == nil then
		return {}
	end
	local wrong = type(options) ~= "table" and ("%s: the options are a table, found a %s"):format(where, type(options))
		or check(where, options, known)
	if wrong then
		error(wrong, (level or 2) + 1)
	end
	return options
end

-- The token of the term that is the first argument.
function given.token(where, term)
	local kind = type(term)
	local token = (kind == "table" or kind == "userdata") and term.token
	if math.type(token) ~= "integer" then
		error(("%s: expected the term first, found %s"):format(where, value_kind(term)), 3)
	end
	return token
end

-- A part of a URL without its percent escapes; nil stays nil.
function given.plain(text)
	return text and (text:gsub("%%(%x%x)", function(hex) return string.char(tonumber(hex, 16)) end))
end

return given

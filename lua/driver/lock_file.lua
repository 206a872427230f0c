-- A lock file (docs/write-a-lock.md): what it may return, and what the options of its URL are. It calls no function of the file, and
-- opens no store: driver.lua does. Used by driver.lua and by `lunarch check`. All errors are raised without a line: they are about a table.

local use = ...
local suggest = use "suggest"

local lock_file = {}

-- What each function of a lock file is called with.
local functions = {
	open = "function(place)",
	read = "function(store, key, op)",
	write = "function(store, key, text, op)",
	watch = "function(store, key, changed)",
	about = "function(store, op)",
	remove = "function(store, key, op)",
	list = "function(store, prefix, op)",
}
local needed <const> = { "open", "read", "write" }
local known = { scheme = true, summary = true, key = true, options = true }
for name in pairs(functions) do
	known[name] = true
end

-- Options that each lock has, whatever its file says.
local taken = { password_file = "the runtime reads it: the password is place.password" }

local units = { ms = 0.001, s = 1, m = 60, h = 3600 }
local truths = { ["true"] = true, yes = true, ["1"] = true, ["false"] = false, no = false, ["0"] = false }

-- How the text of an option becomes its value: nil if it is none.
local kinds = {
	text = function(text) return text end,
	seconds = function(text)
		local number, unit = text:match "^(%d+%.?%d*)(%a*)$"
		local factor = number and (unit == "" and 1 or units[unit])
		return factor and tonumber(number) * factor
	end,
	count = function(text) return text:find "^%d+$" and math.tointeger(tonumber(text)) or nil end,
	boolean = function(text) return truths[text] end,
}
local expected = {
	text = "a text",
	seconds = 'a time as "10", "1.5s" or "500ms"',
	count = "a whole number, 0 or more",
	boolean = "true or false",
}

local function found(value)
	if type(value) == "string" then
		value = value:gsub("//.*@", "//***@") -- a URL may have a password
		return ('the text "%s"'):format(#value > 60 and value:sub(1, 60) .. "..." or value)
	end
	return value == nil and "nothing" or (type(value) == "number" or type(value) == "boolean") and tostring(value) or "a " .. type(value)
end

-- The words of a set or a list, in order: '"a", "b"'.
local function words(set)
	local list = {}
	for word in pairs(set) do
		list[#list + 1] = '"' .. tostring(word) .. '"'
	end
	table.sort(list)
	return table.concat(list, ", ")
end

-- A set of words, which may be given as a list.
local function set_of(list)
	local set = {}
	for key, value in pairs(list) do
		set[math.type(key) and value or key] = true
	end
	return set
end

local function refuse(where, key, wanted, value, advice)
	error(("%s: the key '%s': expected %s, found %s%s"):format(where, key, wanted, found(value), advice and ": " .. advice or ""), 0)
end

local function is_scheme(text)
	return type(text) == "string" and #text <= 32 and text:find "^%l[%l%d+.-]*$" ~= nil
end

-- The schemes as a list; empty where the file names none, which only a lua: URL opens.
local function schemes_of(where, scheme)
	local list = type(scheme) == "table" and scheme or { scheme }
	for _, one in pairs(list) do
		if not is_scheme(one) then
			refuse(where, "scheme", 'a text of small letters, digits, "+", "-" and ".", as "mystore", or a list of them', one)
		end
	end
	if type(scheme) == "table" and #scheme == 0 then
		refuse(where, "scheme", "a text or a list of texts", nil, "the list is empty")
	end
	return table.move(list, 1, #list, 1, {})
end

local function check_option(where, name, kind)
	if type(name) ~= "string" or not name:find "^[%a_][%w_-]*$" then
		refuse(where, "options", "names of letters, digits, '_' and '-'", name)
	elseif taken[name] then
		error(("%s: the option '%s' cannot be one of the file's: %s"):format(where, name, taken[name]), 0)
	elseif type(kind) == "string" and not kinds[kind] then
		error(("%s: the option '%s': expected the kind %s, a set of words or a function, found \"%s\"%s"):format(where, name, words(kinds),
			kind, (suggest(kind, kinds))), 0)
	elseif type(kind) ~= "string" and type(kind) ~= "table" and type(kind) ~= "function" then
		error(("%s: the option '%s': expected the kind %s, a set of words or a function, found %s"):format(where, name, words(kinds),
			found(kind)), 0)
	end
end

local function options_of(where, options)
	if options ~= nil and type(options) ~= "table" then
		refuse(where, "options", 'a table, as { region = "text" }', options)
	end
	local copy = {}
	for name, kind in pairs(options or copy) do
		check_option(where, name, kind)
		copy[name] = type(kind) == "table" and set_of(kind) or kind
	end
	return copy
end

-- Does what a file returned look like a lock, and not like a script's elections? It can be a faulty one: check says how.
function lock_file.looks_like(result)
	return type(result) == "table" and (rawget(result, "read") ~= nil or rawget(result, "write") ~= nil)
end

-- Does a text that returned nothing define a lock's functions read and write?
function lock_file.text_looks_like(text)
	local code = ("\n" .. text):gsub("%-%-[^\n]*", "")
	local function defines(name)
		return code:find("%f[%w_]" .. name .. "%s*=%s*function") or code:find("function%s+[%w_.:]-%f[%w_]" .. name .. "%s*%(")
	end
	return defines "read" and defines "write" and true or false
end

-- What check has returned, for people: what it is, and a URL for it.
function lock_file.describe(checked)
	local has, options = {}, {}
	for name in pairs(functions) do
		has[#has + 1] = checked[name] and name
	end
	for name in pairs(checked.options) do
		options[#options + 1] = name
	end
	table.sort(has)
	table.sort(options)
	local scheme = checked.schemes[1]
	local url = scheme and (checked.summary ~= "" and checked.summary or scheme .. "://HOST:PORT/KEY") or "lua:/PATH/FILE.lua#KEY"
	return ("%s; it has %s%s"):format(scheme and "for " .. table.concat(checked.schemes, ":// and ") .. "://" or "for lua: alone",
		table.concat(has, ", "), #options > 0 and "; options " .. table.concat(options, ", ") or ""), url
end

-- What the file `where` returned, in one form: { schemes = { ... }, summary = "", key = "path", options = { ... } } and the functions
-- that it has. Raises what is wrong with it.
function lock_file.check(result, where)
	if type(result) ~= "table" then
		error(("%s: expected a table with the functions open, read and write, found %s: a lock file ends with `return { ... }`"):format(
			where, found(result)), 0)
	end
	for key in pairs(result) do
		if not known[key] then
			error(("%s: a lock file has no key '%s'%s: there are %s"):format(where, tostring(key):sub(1, 60), (suggest(tostring(key), known)),
				words(known)), 0)
		end
	end
	for _, name in ipairs(needed) do
		if type(result[name]) ~= "function" then
			refuse(where, name, functions[name], result[name], result[name] == nil and "each lock file needs it" or nil)
		end
	end
	local checked = { schemes = schemes_of(where, result.scheme), options = options_of(where, result.options) }
	for name, form in pairs(functions) do
		if result[name] ~= nil and type(result[name]) ~= "function" then
			refuse(where, name, form, result[name])
		end
		checked[name] = result[name]
	end
	if result.summary ~= nil and (type(result.summary) ~= "string" or result.summary:find "%c") then
		refuse(where, "summary", "a text of one line", result.summary)
	elseif result.key ~= nil and result.key ~= "path" and result.key ~= "fragment" then
		refuse(where, "key", '"path" or "fragment"', result.key)
	end
	checked.summary, checked.key = result.summary or "", result.key or "path"
	return checked
end

-- The value of one option, whose text is given; raises what was expected.
local function typed_option(where, name, kind, text)
	local wanted, value
	if type(kind) == "function" then
		wanted, value = kind(text), text
	elseif type(kind) == "table" then
		value = kind[text] and text or nil
		wanted = value == nil and "one of " .. words(kind) or nil
	else
		value = kinds[kind](text)
		wanted = value == nil and expected[kind] or nil
	end
	if wanted then
		error(("%s: the option '%s': expected %s, found %s"):format(where, name, tostring(wanted), found(text)), 0)
	end
	return value
end

-- The options of a URL, { name = text }, with the kinds that check has returned: { name = value }. where: what the errors begin with,
-- the lock's URL. Raises what is wrong: the URL is.
function lock_file.typed(options, given, where)
	local values = {}
	for name, text in pairs(given) do
		local kind = options[name]
		if not kind then
			local all = { password_file = true }
			for one in pairs(options) do
				all[one] = true
			end
			error(("%s: unknown option '%s'%s: there are %s"):format(where, name, (suggest(name, options)), words(all)), 0)
		end
		values[name] = typed_option(where, name, kind, text)
	end
	return values
end

return lock_file

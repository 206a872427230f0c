-- lunarch.template: small text templates. {{name}} is a value, {{name | html}} a value with another escaping; and there are
-- {% for x in list %}, {% if x %}, {% else %} and {% end %}. A template cannot run code.

local use = ...
local check = use "options"
local lunarch = require "lunarch"

local html = { ["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;", ['"'] = "&quot;", ["'"] = "&#39;" }

local escapes = {
	raw = function(text) return text end,
	html = function(text) return (text:gsub("[&<>\"']", html)) end,
	shell = function(text) return "'" .. text:gsub("'", "'\\''") .. "'" end,
	url = function(text) return (text:gsub("[^%w%-._~]", function(c) return ("%%%02X"):format(c:byte()) end)) end,
	json = function() end, -- text_of does it: tables are allowed, too
}

local function escaping(v)
	if type(v) == "function" or escapes[v] then
		return nil
	end
	return 'one of "html", "json", "raw", "shell", "url", or a function'
end

local known = { escape = escaping, name = "text" }

local function fail(t, line, fmt, ...)
	error(("%s:%d: %s"):format(t.name, line, fmt:format(...)), 0)
end

-- ---- parsing ----

local NAME <const>, PATH <const> = "[%a_][%w_]*", "[%a_][%w_.]*"

local function value_node(t, inside, line)
	local path, escape = inside:match("^%s*(" .. PATH .. ")%s*|%s*(%a+)%s*$")
	path = path or inside:match("^%s*(" .. PATH .. ")%s*$")
	if not path then
		fail(t, line, "expected {{name}} or {{name | escape}}, found {{%s}}", inside)
	elseif escape and not escapes[escape] then
		fail(t, line, "there is no escape '%s'%s", escape, (use "suggest"(escape, escapes)))
	end
	return { kind = "value", path = path, escape = escape, line = line }
end

local tags = {
	{ "^for%s+(" .. NAME .. ")%s+in%s+(" .. PATH .. ")$", function(_, name, path) return { kind = "for", value = name, path = path } end },
	{ "^for%s+(" .. NAME .. ")%s*,%s*(" .. NAME .. ")%s+in%s+(" .. PATH .. ")$",
		function(_, key, name, path) return { kind = "for", key = key, value = name, path = path } end },
	{ "^if%s+not%s+(" .. PATH .. ")$", function(_, path) return { kind = "if", negated = true, path = path } end },
	{ "^if%s+(" .. PATH .. ")$", function(_, path) return { kind = "if", path = path } end },
	{ "^else$", function() return { kind = "else" } end },
	{ "^end$", function() return { kind = "end" } end },
}

local function tag_node(t, inside, line)
	local words = inside:match "^%s*(.-)%s*$"
	for _, tag in ipairs(tags) do
		local found = table.pack(words:match(tag[1]))
		if found[1] then
			local node = tag[2](t, table.unpack(found))
			node.line, node.text = line, "{% " .. words .. " %}"
			return node
		end
	end
	fail(t, line, "expected for NAME in LIST, for KEY, NAME in TABLE, if NAME, if not NAME, else or end; found {%% %s %%}", words)
end

-- Cuts the template into texts and tags. If a {% tag %} is alone on its line, the whole line is removed.
local function cut(t, text)
	local list, at, line = {}, 1, 1
	local function count(s)
		local _, n = s:gsub("\n", "")
		line = line + n
	end
	local function put(s)
		if s ~= "" then
			list[#list + 1] = s
		end
	end
	while true do
		local first, kind = text:match("(){([{%%])", at)
		if not first then
			put(text:sub(at))
			return list
		end
		local before = text:sub(at, first - 1)
		count(before)
		local last = text:find(kind == "{" and "}}" or "%}", first + 2, true)
		if not last then
			fail(t, line, "%s is not closed", kind == "{" and "{{" or "{%")
		end
		local inside = text:sub(first + 2, last - 1)
		local node = (kind == "{" and value_node or tag_node)(t, inside, line)
		local next_at = last + 2
		if kind == "%" then
			local line_begin = before:match "()[ \t]*$"
			local alone = line_begin == 1 and (at == 1 or text:sub(at - 1, at - 1) == "\n") or before:sub(line_begin - 1, line_begin - 1) == "\n"
			local rest = alone and text:match("^[ \t]*\r?\n()", next_at)
			if rest then
				before, next_at = before:sub(1, line_begin - 1), rest
			end
		end
		put(before)
		list[#list + 1] = node
		count(text:sub(first, next_at - 1))
		at = next_at
	end
end

local function build(t, list)
	local root = { kind = "root", body = {} }
	local open = { root }
	for _, node in ipairs(list) do
		local top = open[#open]
		local body = top.otherwise or top.body
		if type(node) == "string" or node.kind == "value" then
			body[#body + 1] = node
		elseif node.kind == "end" then
			if top == root then
				fail(t, node.line, "{%% end %%} closes nothing")
			end
			open[#open] = nil
		elseif node.kind == "else" then
			if top.kind ~= "if" or top.otherwise then
				fail(t, node.line, "{%% else %%} belongs to no {%% if %%}")
			end
			top.otherwise = {}
		else
			node.body = {}
			body[#body + 1] = node
			open[#open + 1] = node
		end
	end
	if #open > 1 then
		fail(t, open[#open].line, "%s has no {%% end %%}", open[#open].text)
	end
	return root
end

-- ---- filling in ----

-- scope: the names of the loop, and through its metatable the outer names.
local function lookup(scope, path)
	local value = scope
	for name in path:gmatch "[^.]+" do
		if type(value) ~= "table" then
			return nil
		end
		local number = math.tointeger(tonumber(name))
		value = value[number or name]
	end
	if value == lunarch.json.null then
		return nil
	end
	return value
end

local function text_of(t, node, value)
	local escape = node.escape or t.escape
	if escape == "json" then
		return lunarch.json.encode(value)
	elseif type(value) ~= "string" and type(value) ~= "number" and type(value) ~= "boolean" then
		fail(t, node.line, "'%s' is a %s: expected a text or a number", node.path, type(value))
	end
	local text = type(escape) == "function" and escape(tostring(value)) or escapes[escape](tostring(value))
	if type(text) ~= "string" then
		fail(t, node.line, "the escape function returned a %s for '%s'", type(text), node.path)
	end
	return text
end

local function in_order(map)
	local keys = {}
	for key in pairs(map) do
		keys[#keys + 1] = key
	end
	table.sort(keys, function(a, b)
		if type(a) == type(b) and (type(a) == "number" or type(a) == "string") then
			return a < b
		end
		return tostring(a) < tostring(b)
	end)
	return keys
end

local fill

local function loop(t, node, scope, out)
	local list = lookup(scope, node.path)
	if type(list) ~= "table" then
		fail(t, node.line, list == nil and "there is no value '%s'" or "'%s' is a %s: expected a table", node.path, type(list))
	end
	for _, key in ipairs(in_order(list)) do
		local inner = setmetatable({ [node.value] = list[key] }, { __index = scope })
		if node.key then
			inner[node.key] = key
		end
		fill(t, node.body, inner, out)
	end
end

function fill(t, body, scope, out)
	for _, node in ipairs(body) do
		if type(node) == "string" then
			out[#out + 1] = node
		elseif node.kind == "value" then
			local value = lookup(scope, node.path)
			if value == nil then
				fail(t, node.line, "there is no value '%s'", node.path)
			end
			out[#out + 1] = text_of(t, node, value)
		elseif node.kind == "for" then
			loop(t, node, scope, out)
		else
			local yes = not lookup(scope, node.path) == (node.negated or false)
			fill(t, yes and node.body or node.otherwise or {}, scope, out)
		end
	end
end

local function compiled(what, text, options)
	if type(text) ~= "string" then
		error(("%s: expected the template's text, found a %s"):format(what, type(text)), 0)
	elseif options ~= nil and type(options) ~= "table" then
		error(what .. ': the options are a table, as in { escape = "html" }', 0)
	end
	local given = options or {}
	local wrong = check(what, given, known)
	if wrong then
		error(wrong, 0)
	end
	local t = { name = given.name or "template", escape = given.escape or "raw" }
	t.root = build(t, cut(t, text))
	return t
end

local function filled(what, t, values)
	if type(values) ~= "table" then
		error(("%s: expected a table of values, found a %s"):format(what, type(values)), 0)
	end
	local out = {}
	fill(t, t.root.body, values, out)
	return table.concat(out)
end

-- Raises an error with the line of the script's call.
local function or_raise(good, ...)
	if not good then
		error(..., 3)
	end
	return ...
end

return function()
	local template = {}

	function template.compile(text, options)
		local good, t = pcall(compiled, "template.compile", text, options)
		if not good then
			error(t, 2)
		end
		return function(values)
			local result = or_raise(pcall(filled, t.name, t, values))
			return result
		end
	end

	function template.render(text, values, options)
		local good, t = pcall(compiled, "template.render", text, options)
		if not good then
			error(t, 2)
		end
		local result = or_raise(pcall(filled, "template.render", t, values))
		return result
	end

	return template
end

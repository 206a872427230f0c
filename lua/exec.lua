-- exec{ "program", "argument", ..., option = ... } or exec("shell line", { option = ... }): checks what it is given.

local use = ...
local check = use "options"

return function(run)

	local outputs = { capture = true, inherit = true, null = true }
	local known = {
		timeout = "seconds",
		kill_after = "seconds",
		cwd = "text",
		env = "table",
		stdin = "text",
		stdout = outputs,
		stderr = outputs,
		max_output = "count",
	}

	local function text_argument(value, what)
		local kind = type(value)
		if kind ~= "string" and kind ~= "number" then
			error(("exec: %s: expected a text, found a %s"):format(what, kind), 0)
		end
		local text = tostring(value)
		if text:find("\0", 1, true) then
			error(("exec: %s holds a zero byte"):format(what), 0)
		end
		return text
	end

	local function environment(env)
		local list = {}
		for name, value in pairs(env) do
			if type(name) ~= "string" or name == "" or name:find("[=%z]") then
				error(("exec: env: '%s' is no name of a variable"):format(tostring(name)), 0)
			end
			-- false takes the variable away
			list[#list + 1] = value == false and name or name .. "=" .. text_argument(value, "env " .. name)
		end
		return list
	end

	-- Splits { "program", "argument", option = ... } into the two.
	local function split(call)
		local argv, options, last = {}, {}, 0
		for key, value in pairs(call) do
			if math.type(key) == "integer" then
				argv[key] = text_argument(value, "argument " .. key)
				last = math.max(last, key)
			else
				options[key] = value
			end
		end
		if last == 0 or #argv ~= last or argv[1] == "" then
			error("exec: expected a list, the program and its arguments", 0)
		end
		return argv, options
	end

	local function parse(call, options, extra)
		if type(call) == "table" and options == nil then
			return split(call)
		elseif type(call) == "string" and extra == nil and (options == nil or type(options) == "table") then
			return { "/bin/sh", "-c", text_argument(call, "command") }, options or {}
		end
		error('exec: expected exec{"program", "argument", ...} or exec("shell line", {options})', 0)
	end

	local function prepare(call, options, extra)
		local argv, given = parse(call, options, extra)
		local wrong = check("exec", given, known)
		if wrong then
			error(wrong, 0)
		end
		local spec = { argv = argv }
		for key, value in pairs(given) do
			spec[key] = value
		end
		spec.env = given.env and environment(given.env)
		return spec, type(call) == "string" and call or argv[1]
	end

	return function(...)
		local good, spec, name = pcall(prepare, ...)
		if not good then
			error(spec, 2)
		end
		return run(spec, name)
	end
end

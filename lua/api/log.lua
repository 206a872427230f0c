-- log.debug, .info, .warn, .error: (text), or (event, fields) where event is a snake_case word for programs.

return function(emit)
	local TEXT_MAX <const> = 16384 -- more than a line of the log takes: the rest is not read

	local function text_of(value)
		local text = tostring(value)
		return #text > TEXT_MAX and text:sub(1, TEXT_MAX) or text
	end

	local function value_text(value)
		local text = text_of(value)
		if type(value) == "string" and (text == "" or text:find("[%s=\"]")) then
			return ("%q"):format(text)
		end
		return text
	end

	local function fields_text(fields)
		local names, parts = {}, {}
		for name in pairs(fields) do
			names[#names + 1] = tostring(name)
		end
		table.sort(names)
		for i, name in ipairs(names) do
			parts[i] = name .. "=" .. value_text(fields[name])
		end
		return table.concat(parts, " ")
	end

	local function logger(level)
		return function(event, fields)
			if fields == nil then
				emit(level, "script", text_of(event))
			elseif type(fields) ~= "table" then
				error(("log.%s: the second argument is a table of fields, found a %s (string.format makes one text)")
					:format(level, type(fields)), 2)
			elseif type(event) == "string" and event:find("^[a-z][a-z0-9_]*$") then
				emit(level, event, fields_text(fields))
			else
				emit(level, "script", text_of(event) .. " " .. fields_text(fields))
			end
		end
	end

	local log = {}
	for _, level in ipairs { "debug", "info", "warn", "error" } do
		log[level] = logger(level)
	end
	return log
end

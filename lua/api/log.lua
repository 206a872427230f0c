-- log.debug, .info, .warn, .error: (text), or (event, fields) where event is a snake_case word for programs.
-- A text line has the fields as name=value. A JSON line has them in its "fields", too, as they are.

return function(emit, json)
	local TEXT_MAX <const> = 16384 -- more than a line of the log takes: the rest is not read

	local function text_of(value)
		local text = tostring(value)
		return #text > TEXT_MAX and text:sub(1, TEXT_MAX) or text
	end

	-- nil: JSON cannot have it, as a function, an infinite number, or bytes that are no UTF-8.
	local function encoded(value)
		local good, text = pcall(json.encode, value)
		return good and utf8.len(text) and text or nil
	end

	local function readable(value)
		local text = text_of(value)
		return utf8.len(text) and text or (text:gsub("[\x80-\xff]", "\u{fffd}"))
	end

	-- A table is JSON in a text, too; what JSON has not (a function, a table that contains itself) is as tostring has it.
	local function value_text(value)
		if type(value) == "table" then
			return text_of(encoded(value) or value)
		end
		local text = text_of(value)
		if type(value) == "string" and (text == "" or text:find("[%s=\"]")) then
			return ("%q"):format(text)
		end
		return text
	end

	local function fields_text(fields)
		local names, parts = {}, {}
		for name in pairs(fields) do
			names[#names + 1] = name
		end
		table.sort(names, function(a, b) return tostring(a) < tostring(b) end)
		for i, name in ipairs(names) do
			parts[i] = tostring(name) .. "=" .. value_text(fields[name])
		end
		return table.concat(parts, " ")
	end

	-- The fields as a JSON object. A value that JSON cannot have is a text there.
	local function fields_json(fields)
		local text = encoded(fields)
		if text and text:sub(1, 1) == "{" then
			return text
		end
		local object = {}
		for name, value in pairs(fields) do
			object[readable(name)] = encoded(value) and value or readable(value)
		end
		return encoded(object)
	end

	local function logger(level)
		return function(event, fields)
			if fields == nil then
				emit(level, "script", text_of(event))
			elseif type(fields) ~= "table" then
				error(("log.%s: the second argument is a table of fields, found a %s (string.format makes one text)")
					:format(level, type(fields)), 2)
			elseif type(event) == "string" and event:find("^[a-z][a-z0-9_]*$") then
				emit(level, event, fields_text(fields), fields_json(fields))
			else
				emit(level, "script", text_of(event) .. " " .. fields_text(fields), fields_json(fields))
			end
		end
	end

	local log = {}
	for _, level in ipairs { "debug", "info", "warn", "error" } do
		log[level] = logger(level)
	end
	return log
end

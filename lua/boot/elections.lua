-- Makes a list of checked elections from what the script returned, or from its global functions. Errors name file, line and key.

local use = ...

local function suggest(...)
	return use "suggest"(...)
end

-- options: what a script may say instead of an option of the command line, by its key: "seconds", "flag", "number" or "text".
return function(script, options)
	local hooks = use "hooks".set

	local TEXT_MAX = 8192
	local YEAR = 366 * 24 * 3600
	local PRIORITY_MOST <const> = 1000000000
	local SLOTS_MOST <const> = 64

	-- Each returns nil if the value is right, else what was expected.
	local function text(v)
		if type(v) ~= "string" or v == "" or #v > TEXT_MAX or v:find("\0", 1, true) then
			return ("a text of 1 to %d bytes"):format(TEXT_MAX)
		end
	end
	local function name(v)
		if type(v) ~= "string" or #v > 200 or not v:find("^[%w_][%w_.-]*$") then
			return "a name of letters, digits, '_', '-' and '.'"
		end
	end
	local function seconds(v)
		if type(v) ~= "number" or not (v >= 0.001 and v <= YEAR) then
			return "a number of seconds, from 0.001 to a year"
		end
	end
	local function boolean(v)
		return type(v) ~= "boolean" and "true or false" or nil
	end
	local function hook(v)
		return type(v) ~= "function" and "a function" or nil
	end
	local function address(v)
		if type(v) ~= "function" and text(v) then
			return "a text or a function that returns one"
		end
	end

	local function priority(v)
		local good = math.type(v) == "integer" and v >= -PRIORITY_MOST and v <= PRIORITY_MOST
		if type(v) ~= "function" and not good then
			return "a whole number from -1000000000 to 1000000000, or a function that returns one"
		end
	end

	local function slots(v)
		if math.type(v) ~= "integer" or v < 1 or v > SLOTS_MOST then
			return ("a whole number from 1 to %d"):format(SLOTS_MOST)
		end
	end

	local checks = { seconds = seconds, flag = boolean, text = text }
	local keys = { name = name, isolate = boolean }
	for key, kind in pairs(options) do
		keys[key] = checks[kind]
	end
	keys.address, keys.priority, keys.slots = address, priority, slots
	for key in pairs(hooks) do
		keys[key] = hook
	end

	local function found(v)
		if type(v) == "string" then
			return v == "" and "an empty text" or ('the text "%s"'):format(#v > 60 and v:sub(1, 60) .. "..." or v)
		elseif type(v) == "number" or type(v) == "boolean" then
			return tostring(v)
		end
		return "a " .. type(v)
	end

	-- The line of the script where the key gets a value; nil if no line shows that.
	local function line_of(key)
		local number = 0
		for line in (script.text .. "\n"):gmatch("(.-)\n") do
			number = number + 1
			local code = line:gsub("%-%-.*", "")
			if code:find("%f[%w_]" .. key .. "%f[^%w_][\"'%]]*%s*=[^=]") or code:find("function%s+" .. key .. "%s*%(") then
				return number
			end
		end
	end

	local function fail(key, value, message)
		local line
		if type(value) == "function" then
			local info = debug.getinfo(value, "S")
			if info.source == script.chunk then
				line = info.linedefined
			end
		end
		if not line and type(key) == "string" and key:find("^[%w_]+$") then
			line = line_of(key)
		end
		error(script.name .. (line and ":" .. line or "") .. ": " .. message, 0)
	end

	local function check_key(key, value)
		local wrong = keys[key]
		if not wrong then
			fail(key, value, ("unknown key '%s'%s"):format(tostring(key), (suggest(tostring(key), keys))))
		end
		local expected = wrong(value)
		if expected then
			fail(key, value, ("%s: expected %s, found %s"):format(key, expected, found(value)))
		end
	end

	local function where(election)
		for _, key in ipairs(use "hooks".names) do
			if election[key] then
				local info = debug.getinfo(election[key], "S")
				return info.what == "C" and script.name or info.short_src .. ":" .. math.max(1, info.linedefined)
			end
		end
		return script.name
	end

	-- The numbers among what it says instead of options.
	local function said(election)
		local numbers = {}
		for key, kind in pairs(options) do
			local v = election[key]
			if kind == "seconds" and v then
				v = math.floor(v * 1000 + 0.5)
			elseif kind == "flag" and v ~= nil then
				v = v and 1 or 0
			end
			numbers[key] = math.type(v) == "integer" and v or nil
		end
		return numbers
	end

	-- slot: which of the election's slots is described; nil if it has none.
	local function describe(election, slot)
		local has = {}
		for key, value in pairs(election) do
			check_key(key, value)
		end
		for _, hook_name in ipairs(use "hooks".names) do
			has[#has + 1] = election[hook_name] and hook_name
		end
		if #has == 0 then
			fail(nil, nil, "an election has no hook: give it on_leading, or on_new_leader to observe")
		end
		return {
			table = election,
			name = slot and (election.name or "slot") .. "-" .. slot or election.name, slot = slot, lock = election.lock, identity = election.identity,
			address = type(election.address) == "string" and election.address or nil,
			said = said(election),
			observer = not election.on_leading,
			may_lead = election.may_lead ~= nil,
			isolate = election.isolate,
			address_function = type(election.address) == "function",
			priority_function = type(election.priority) == "function",
			on_next = election.on_next ~= nil, on_next_over = election.on_next_over ~= nil,
			on_stopping = election.on_stopping ~= nil, on_stopped = election.on_stopped ~= nil,
			hooks = table.concat(has, ", "),
			where = where(election),
		}
	end

	local function is_list(value)
		return value[1] ~= nil or next(value) == nil
	end

	local function check_list(list)
		local names = {}
		if #list == 0 then
			fail(nil, nil, "returns an empty table: expected an election, or a list of them")
		end
		for i = 1, #list do
			if list[i] == nil then
				fail(nil, nil, ("election %d of the list is nil"):format(i))
			end
		end
		for key, election in pairs(list) do
			if math.type(key) ~= "integer" or key < 1 or key > #list then
				fail(key, election, ("a list of elections has the key '%s' besides: put it into each election")
					:format(tostring(key)))
			end
			if type(election) ~= "table" then
				fail(nil, nil, ("election %d of the list: expected a table, found %s"):format(key, found(election)))
			end
			local other = election.name and names[election.name]
			if other then
				fail("name", nil, ("elections %d and %d have the same name '%s'")
					:format(math.min(other, key), math.max(other, key), tostring(election.name)))
			end
			if election.name then
				names[election.name] = key
			end
		end
		return list
	end

	-- An election that has the name of another's slot.
	local function check_names(list)
		local names = {}
		for _, described in ipairs(list) do
			local its = described.name
			if its and names[its] then
				fail("slots", nil, ("two elections, or slots of theirs, have the same name '%s': give each election with slots a `name`")
					:format(its))
			end
			names[its or 1] = its
		end
		return list
	end

	-- The election of a script that defined hooks as global functions. Refuses a function whose name is nearly a hook's.
	local function from_globals(alone)
		local election
		for key, value in next, _G do
			if hooks[key] then
				election = election or {}
				election[key] = value
			elseif alone and type(key) == "string" and type(value) == "function" and not script.builtin[key] then
				local hint, near = suggest(key, hooks)
				if near and not rawget(_G, near) then
					fail(key, value, ("global function '%s' is no hook%s"):format(key, hint))
				end
			end
		end
		return election
	end

	-- A lock file (docs/write-a-lock.md) is no script: says what is wrong with it, or else what it is: `lunarch check` shows that.
	local function refuse_lock_file(result)
		local lock_file = use "lock_file"
		if lock_file.looks_like(result) then
			local checked = lock_file.check(result, script.name)
			local what, url = lock_file.describe(checked)
			error({ text = ("%s: this is a lock file (%s), not a script: a lock's URL names it, as --lock '%s'"):format(script.name, what, url),
				lock_file = what, schemes = table.concat(checked.schemes, " ") }, 0)
		end
	end

	-- It made the functions of a lock, and did not return them.
	local function refuse_forgotten()
		local lock_file = use "lock_file"
		if lock_file.text_looks_like(script.text) then
			error(("%s: returns nothing: a lock file ends with `return { ... }`, with its functions open, read and write"):format(script.name), 0)
		end
	end

	local function gather(count, result, why)
		if result == nil and count == 2 and type(why) == "string" then
			error(why, 0) -- it says itself why it cannot be loaded
		end
		local globals = from_globals(result == nil)
		if count > 1 then
			fail(nil, nil, ("returns %d values: expected one election, or one list of them"):format(count))
		end
		if result == nil then
			if not globals then
				refuse_forgotten()
				fail(nil, nil, "returns nothing and defines no hook: expected `return { on_leading = function(term) ... end }`")
			end
			return { globals }
		end
		if type(result) ~= "table" then
			fail(nil, nil, ("returns %s: expected an election, or a list of them"):format(found(result)))
		end
		refuse_lock_file(result)
		if globals then
			local key = next(globals)
			fail(key, globals[key], ("defines the global %s, and returns elections besides: expected one or the other")
				:format(key))
		end
		return is_list(result) and check_list(result) or { result }
	end

	return function(...)
		local list = {}
		for _, election in ipairs(gather(select("#", ...), ...)) do
			local count = not keys.slots(election.slots) and election.slots
			for slot = 1, count or 1 do
				list[#list + 1] = describe(election, count and slot)
			end
		end
		return check_names(list)
	end
end

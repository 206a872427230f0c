-- term:load() and term:save(): a checkpoint that each leader leaves for the next one, in the lock's record.
-- In the record it is {"data": what the script saved, "cron": the last times of jobs (lua/api/cron.lua),
-- "runs": those of `lunarch cron` that have not ended (lua/cron/cron_run.lua)}; other keys are kept.

local use = ...
local check = use "options"

return function(natives)
	local json = natives.json
	local known = { timeout = "seconds" }

	local function invalid(what)
		return natives.fail("invalid", what .. ": the record's checkpoint was not written by this program: "
			.. "expected an object with the key \"data\"; take the key \"checkpoint\" out of the lock's record to do without it")
	end

	-- The checkpoint as a table; {} if there is none.
	local function parse(text, what)
		if text == "" then
			return {}
		end
		local object = json.decode(text)
		if type(object) ~= "table" or #object > 0 then
			return invalid(what)
		end
		return object
	end

	-- The value of that key in the record.
	local function get(term, key, what)
		local now, err = natives.checkpoint(term)
		if not now then
			return nil, err
		end
		local object, wrong = parse(now, what)
		if not object then
			return nil, wrong
		end
		return object[key]
	end

	-- change(old) returns the new value. `old` is the newest value, whether the record has it yet or not: so the saves of several
	-- tasks do not undo each other. no_wait: returns as soon as the save is sent.
	local function update(term, key, change, what, timeout, no_wait)
		local now, next = natives.checkpoint(term)
		if not now then
			return nil, next
		end
		local object, err = parse(next, what)
		if not object then
			return nil, err
		end
		object[key] = change(object[key])
		return natives.save(term, json.encode(object), timeout, no_wait)
	end

	local checkpoint = { get = get, update = update }

	function checkpoint.load(term)
		return get(term, "data", "term:load")
	end

	function checkpoint.save(term, data, options)
		if type(data) ~= "table" then
			error(("term:save: expected a table, found %s"):format(type(data) == "nil" and "nil" or "a " .. type(data)), 2)
		end
		if options ~= nil and type(options) ~= "table" then
			error("term:save: the options are a table, as in { timeout = 5 }", 2)
		end
		local wrong = check("term:save", options or {}, known)
		if wrong then
			error(wrong, 2)
		end
		local good, text = pcall(json.encode, data)
		if not good then
			error("term:save: " .. text, 2)
		end
		return update(term, "data", function() return data end, "term:save", options and options.timeout)
	end

	return checkpoint
end

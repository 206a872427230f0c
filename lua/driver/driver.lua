-- The Lua half of a lock driver: loads a lock file, opens its store, calls its functions, and turns what they return into what the
-- elector understands. The rule for what is not understood: a write may have been applied (unknown), a read has failed.
-- Not the process around it, which has the socket, the deadlines and the log (runtime/script/driver). What a lock file may look like is in
-- lock_file.lua.

local use = ...
local lock_file = use "lock_file"
local check = use "options"

local VERSION_MAX <const> = 63
local DOUBT_MAX <const> = 63
local NAMES_MAX <const> = 1000

-- natives: as in prelude.lua. host: what the process gives: text_max (bytes of a record), complain(text), read_file(path) -> its text,
-- secret(text), named(name), cut() -> what becomes of the next answer of the store (nil, "lost", "again"), for an examination.
-- load: load(text, path) -> the chunk of a file that is not built in.
return function(natives, host, load)
	local json = natives.json
	natives.cut = host.cut
	local file, store, where -- where: what errors call the file

	-- ---- what a lock file returns ----

	-- A table with a message is an error of the library.
	local function error_text(err)
		if err == nil then
			return "it gave no reason"
		end
		local text = type(err) == "table" and type(err.message) == "string" and err.message or tostring(err)
		return text == "" and "it gave no reason" or text
	end

	local function error_code(err)
		return type(err) == "table" and type(err.code) == "string" and err.code or "system"
	end

	local function shown(value)
		local text = type(value) == "string" and ('"%s"'):format(value:sub(1, 60)) or tostring(value)
		return (text:gsub("[%c\x80-\xff]", "?"))
	end

	local function found(value)
		return (value == nil and "nothing") or (type(value) == "table" and "a table") or ("the %s %s"):format(type(value), shown(value))
	end

	-- A mistake in the file: its author reads it in the log, and whoever asked in the error.
	local function mistake(outcome, what, wanted, value)
		local text = ("%s: %s: expected %s, found %s"):format(where, what, wanted, found(value))
		host.complain(text)
		return outcome, text, "invalid"
	end

	local function is_name(value, longest)
		return type(value) == "string" and #value >= 1 and #value <= longest and not value:find("\0", 1, true)
	end

	local function is_version(value)
		return is_name(value, VERSION_MAX)
	end

	local function is_doubt(value)
		return value == nil or value == "" or is_name(value, DOUBT_MAX)
	end

	local a_version <const> = "a version, a text of 1 to 63 bytes,"
	local a_doubt <const> = "the name of a doubt, a text of 1 to 63 bytes, or nothing"

	local function failure(outcome, err)
		return outcome, error_text(err), error_code(err)
	end

	-- All of these return: outcome, the error's text, its code, version, doubt, what was read.

	local function read_ok(text, version, doubt)
		if type(text) ~= "string" then
			return mistake("failed", 'read: "ok"', "the record's text as the second result", text)
		elseif not is_version(version) then
			return mistake("failed", 'read: "ok"', a_version .. " as the third result", version)
		elseif not is_doubt(doubt) then
			return mistake("failed", 'read: "ok"', a_doubt .. ", as the fourth result", doubt)
		elseif #text > host.text_max then
			return "foreign", ("a text of %d bytes: a record has at most %d"):format(#text, host.text_max), "invalid"
		end
		return "ok", nil, nil, version, doubt, text
	end

	local function read_absent(version, doubt)
		if version ~= nil and version ~= "" and not is_version(version) then
			return mistake("failed", 'read: "absent"', a_version .. " or nothing, as the second result", version)
		elseif not is_doubt(doubt) then
			return mistake("failed", 'read: "absent"', a_doubt .. ", as the third result", doubt)
		end
		return "absent", nil, nil, version, doubt
	end

	local read_failures = { failed = true, refused = true, foreign = true }

	local function read_answer(outcome, ...)
		if outcome == "ok" then
			return read_ok(...)
		elseif outcome == "absent" then
			return read_absent(...)
		elseif read_failures[outcome] then
			return failure(outcome, (...))
		elseif outcome == nil and (...) ~= nil then
			return failure("failed", (...))
		end
		return mistake("failed", "read", '"ok", "absent", "failed", "refused", "foreign", or nil and an error', outcome)
	end

	-- A write that is said to be done, but not how: nobody knows what the store holds now.
	local function write_ok(version, doubt)
		if not is_version(version) then
			return mistake("unknown", 'write: "ok"', a_version .. " as the second result", version)
		elseif not is_doubt(doubt) then
			return mistake("unknown", 'write: "ok"', a_doubt .. ", as the third result", doubt)
		end
		return "ok", nil, nil, version, doubt
	end

	local function write_doubt(what, name)
		if not is_name(name, DOUBT_MAX) then
			return mistake("unknown", what .. ': "doubt"', "its name, a text of 1 to 63 bytes, as the second result", name)
		end
		return "failed", "the store may have lost a record, and it is too early to begin a term there", "system", nil, name
	end

	local change_failures = { unknown = true, refused = true, invalid = true, failed = true }

	-- Of write and remove, but for what "ok" means.
	local function change_answer(what, outcome, ...)
		if outcome == "conflict" then
			return "conflict"
		elseif outcome == "doubt" then
			return write_doubt(what, (...))
		elseif change_failures[outcome] then
			return failure(outcome, (...))
		elseif outcome == nil and (...) ~= nil then
			local err = ...
			return failure(type(err) == "table" and err.unsent == true and "failed" or "unknown", err)
		end
		return mistake("unknown", what, '"ok", "conflict", "unknown", "refused", "invalid", "failed", "doubt", or nil and an error', outcome)
	end

	local function write_answer(outcome, ...)
		if outcome == "ok" then
			return write_ok(...)
		end
		return change_answer("write", outcome, ...)
	end

	local function remove_answer(outcome, ...)
		if outcome == "ok" or outcome == "absent" then
			return outcome
		end
		return change_answer("remove", outcome, ...)
	end

	local function names_of(names)
		if type(names) ~= "table" then
			return nil, mistake("failed", 'list: "ok"', "a table of keys as the second result", names)
		end
		local kept = {}
		for i, name in ipairs(names) do
			if type(name) ~= "string" then
				return nil, mistake("failed", 'list: "ok"', "keys that are texts", name)
			elseif i <= NAMES_MAX and not name:find("\0", 1, true) and utf8.len(name) then
				kept[#kept + 1] = name
			end
		end
		return kept
	end

	local function list_answer(outcome, names, more)
		if outcome == "failed" or outcome == "refused" then
			return failure(outcome, names)
		elseif outcome == nil and names ~= nil then
			return failure("failed", names)
		elseif outcome ~= "ok" then
			return mistake("failed", "list", '"ok", "failed", "refused", or nil and an error', outcome)
		end
		local kept, wrong, text, code = names_of(names)
		if not kept then
			return wrong, text, code
		end
		local all = not more and #names <= NAMES_MAX
		local answer
		repeat -- as many as a message can take
			answer = json.encode { names = json.array(kept), more = not all }
			all = all and #answer <= host.text_max
			kept = table.move(kept, 1, #kept // 2, 1, {})
		until #answer <= host.text_max
		return "ok", nil, nil, nil, nil, answer
	end

	local about_known = { server = "text", warning = "text", unfit = "boolean", pause = "seconds" }

	local function about_answer(about, err)
		if about == nil and err ~= nil then
			return failure("failed", err)
		elseif type(about) ~= "table" then
			return mistake("failed", "about", 'a table, as { server = "mystore 1.2" }, or nil and an error', about)
		end
		local wrong = check(where .. ": about", about, about_known)
		if wrong then
			host.complain(wrong)
			return "failed", wrong, "invalid"
		end
		return "ok", nil, nil, nil, nil, json.encode { server = about.server or "", warning = about.warning or "",
			unfit = about.unfit or false, pause = about.pause or 0 }
	end

	-- ---- loading and opening ----

	-- The file's table, checked. Raises what is wrong with it.
	local function loaded(place)
		if place.driver then
			where = "lock " .. place.driver
			return lock_file.check(use("locks/" .. place.driver), where)
		end
		where = place.file
		return lock_file.check(load(host.read_file(place.file), place.file)(), where)
	end

	-- lua:FILE opens any file; another URL names the file by its scheme.
	local function check_scheme(place)
		if place.scheme == "lua" then
			return
		end
		for _, scheme in ipairs(file.schemes) do
			if scheme == place.scheme then
				return
			end
		end
		error(("%s: the file is not for %s://: its scheme is %s: expected scheme = \"%s\", or a file of the scheme's name"):format(where,
			place.scheme, #file.schemes > 0 and table.concat(file.schemes, ", ") or "not given", place.scheme), 0)
	end

	local function check_key(place)
		if place.scheme == "lua" then
			return
		elseif file.key == "fragment" and place.path == nil then
			error(("%s: the key stands behind '#', and there is none: expected %s"):format(place.lock,
				file.summary ~= "" and file.summary or place.scheme .. "://...#KEY"), 0)
		elseif file.key == "path" and place.path ~= nil then
			error(("%s: the key is the path, and has no '#' behind it (write %%23 for a '#' in a key)"):format(place.lock), 0)
		end
	end

	-- JSON's null is nothing here.
	local function without_null(t)
		for key, value in pairs(t) do
			if value == json.null then
				t[key] = nil
			elseif type(value) == "table" then
				without_null(value)
			end
		end
		return t
	end

	local bits <const> = { watch = 1, list = 2, about = 4, remove = 8 }

	local driver = {}

	-- place: as JSON. Returns what the file can, in bits; nil, text and code: open failed, and may be tried again. Raises if the file or
	-- the URL is wrong.
	function driver.open(place)
		place = without_null(json.decode(place))
		place.lock = place.url
		host.named(place.driver or place.file)
		if place.password then
			host.secret(place.password)
		end
		file = loaded(place)
		check_scheme(place)
		place.options = lock_file.typed(file.options, place.options or {}, place.lock)
		check_key(place)
		local good, opened, err = pcall(file.open, place)
		if not good then
			error(error_text(opened), 0) -- as the file has raised it: a file that says what is wrong with the URL needs no line
		elseif opened == nil then
			if err == nil then
				error(("%s: open: expected a store, or nil and an error, found nothing"):format(where), 0)
			end
			return nil, error_text(err), error_code(err)
		end
		store = opened
		local can = 0
		for name, bit in pairs(bits) do
			can = can + (file[name] and bit or 0)
		end
		return can
	end

	-- ---- operations: each is called in a task of its own; what the file raises, the process answers ----
	-- For a function that the file does not have the elector does not ask.

	function driver.read(key, op)
		return read_answer(file.read(store, key, op))
	end

	function driver.write(key, op, text)
		return write_answer(file.write(store, key, text, op))
	end

	function driver.remove(key, op)
		return remove_answer(file.remove(store, key, op))
	end

	function driver.list(prefix, op)
		return list_answer(file.list(store, prefix, op))
	end

	function driver.about(_, op)
		return about_answer(file.about(store, op))
	end

	-- Returns, or raises, when there are no notices any more. changed: as the file calls it.
	function driver.watch(key, changed)
		if not file.watch then
			return "the lock file has no function 'watch'"
		end
		local _, err = file.watch(store, key, changed)
		return err ~= nil and error_text(err) or "its watch has returned"
	end

	return driver
end

-- lunarch.sql: statements to a PostgreSQL server through psql(1), and writes that the server refuses to a former leader.
-- Values are no part of a statement's text ($1, $2, ...), which the server prepares: psql quotes them and sends them apart. Statements and
-- values go through standard input, passwords through the environment, so that a list of processes shows none of them.

local use = ...
local given = use "given"
local lunarch = require "lunarch"

local TIMEOUT <const>, FENCES <const> = 10, "lunarch_fences"
local of_database = { timeout = "seconds", password = "text", fence = "text" }
local of_lock = { timeout = "seconds", password = "text" }

-- ---- the server ----

-- Returns the URI without its password, which psql's arguments would show, and the password.
local function without_password(uri)
	local password
	local safe = uri:gsub("^(%a+://[^/?#@:]*):([^/?#@]*)@", function(before, found)
		password = found
		return before .. "@"
	end)
	safe = safe:gsub("([?&])password=([^&#]*)&?", function(mark, found)
		password = found
		return mark
	end)
	return safe, password and given.plain(password)
end

-- Parses term.lock: postgres://USER@HOST:PORT/DB[?OPTIONS][&table=NAME]#NAME.
local function parse_lock(lock)
	local before, name = lock:match "^(postgres[ql]*://[^#]*)#(.+)$"
	if not before then
		return nil
	end
	local uri, options = before:match "^([^?]*)%??(.*)$"
	local kept, place = {}, "lunarch_locks"
	for key, value in options:gmatch "([^&=]+)=([^&]*)" do
		if key == "table" then
			place = given.plain(value)
		elseif key ~= "password_file" then
			kept[#kept + 1] = key .. "=" .. value
		end
	end
	return uri .. (#kept > 0 and "?" .. table.concat(kept, "&") or ""), place, given.plain(name)
end

-- ---- what is sent ----

-- Quotes a value for psql's \set.
local function quoted(value)
	return "'" .. value:gsub("[%c'\\]", function(c) return ("\\%03o"):format(c:byte()) end) .. "'"
end

local function text_of(json, value, where, i)
	local kind = type(value)
	if kind == "table" then
		return json.encode(value)
	elseif kind ~= "string" and kind ~= "number" and kind ~= "boolean" then
		error(("%s: value %d: expected a text, a number, a boolean, a table (as JSON) or nil, found a %s"):format(where, i, kind), 5)
	elseif kind == "string" and value:find("\0", 1, true) then
		error(("%s: value %d holds a zero byte, which PostgreSQL's texts cannot"):format(where, i), 5)
	elseif math.type(value) == "float" then
		return value ~= value and "NaN" or value == math.huge and "Infinity" or value == -math.huge and "-Infinity" or ("%.17g"):format(value)
	end
	return tostring(value)
end

-- psql's commands that prepare, describe and execute one statement, and print marks around its output. `number` makes names unique.
local function statement(json, mark, number, where, text, values)
	local set, list = {}, {}
	for i = 1, values.n do
		local value = values[i]
		if value == nil or value == json.null then
			list[i] = "NULL"
		else
			local name = ("lunarch_%d_%d"):format(number, i)
			set[#set + 1] = ("\\set %s %s\n"):format(name, quoted(text_of(json, value, where, i)))
			list[i] = ":'" .. name .. "'"
		end
	end
	local name = ("lunarch_%s_%d"):format(mark, number)
	local call = "EXECUTE " .. name .. (#list > 0 and "(" .. table.concat(list, ", ") .. ")" or "")
	return table.concat {
		table.concat(set), "PREPARE ", name, " AS\n", (text:gsub("[%s;]+$", "")), "\n;\n", call, " \\gdesc\n\\echo ", mark, "\n", call, ";\n\\echo ", mark,
		" :ROW_COUNT\nDEALLOCATE ", name, ";\n",
	}
end

-- Locks the lock's row if it has this term's token. Until the transaction ends, no newer term can begin.
local of_the_lock = [[
SELECT count(*) = 1 AS lunarch_leads FROM (SELECT 1 FROM :"lunarch_table" WHERE name = :'lunarch_name' AND token = :'lunarch_token' FOR KEY SHARE) AS fence \gset
]]
local largest = [[
WITH fence AS (INSERT INTO :"lunarch_table" AS f (name, token) VALUES (:'lunarch_name', :'lunarch_token') ON CONFLICT (name)
  DO UPDATE SET token = EXCLUDED.token WHERE f.token <= EXCLUDED.token RETURNING 1) SELECT count(*) = 1 AS lunarch_leads FROM fence \gset
]]

local function fence_of(self, mark, token)
	return table.concat {
		"\\set lunarch_table ", quoted(self.fences), "\n\\set lunarch_name ", quoted(self.fence), "\n\\set lunarch_token ", token, "\n",
		self.own and of_the_lock or largest, "\\if :lunarch_leads\n\\else\n\\echo ", mark, " FENCED\n\\quit\n\\endif\n",
	}
end

-- ---- psql's output ----

local function cells(text)
	local list = {}
	for cell in text:gmatch "([^%z]*)%z" do
		list[#list + 1] = cell
	end
	return list
end

local whole = { smallint = true, integer = true, bigint = true, oid = true }
local real = { real = true, ["double precision"] = true }

local function value_of(json, kind, text)
	if whole[kind] then
		return math.tointeger(tonumber(text))
	elseif real[kind] then
		return text == "NaN" and 0 / 0 or text == "Infinity" and math.huge or text == "-Infinity" and -math.huge or tonumber(text) + 0.0
	elseif kind == "boolean" then
		return text == "t"
	elseif kind == "json" or kind == "jsonb" then
		return (json.decode(text))
	end
	return text
end

-- described: column, type, column, type ...; text: the headings, then the rows.
local function rows_of(json, null, described, text, count)
	local columns, found, rows = cells(described), cells(text), { count = math.tointeger(tonumber(count)) or 0 }
	local width = #columns // 2 - 1 -- the first two cells are headings
	if width < 1 then
		return rows
	end
	for at = width + 1, #found, width do
		local row = {}
		for i = 1, width do
			local cell = found[at + i - 1]
			if cell ~= null then
				row[columns[2 * i + 1]] = value_of(json, columns[2 * i + 2], cell)
			end
		end
		rows[#rows + 1] = row
	end
	return rows
end

return function(natives)
	local json = lunarch.json
	local Database = { __name = "lunarch.Database" }
	Database.__index = use "unknown"("database", Database)

	local codes = { ["57014"] = "timeout", ["42501"] = "denied", ["28000"] = "denied", ["28P01"] = "denied", ["53100"] = "full" }

	-- An error with psql's message, without line numbers of psql and of the server's source.
	local function failed(result, began)
		local text = result.stderr:gsub("psql:<stdin>:%d+: ", ""):gsub("LOCATION:[^\n]*\n?", ""):gsub("%s+$", "")
		local state = text:match "%u+:%s+(%w%w%w%w%w):"
		local code = codes[state] or "failed"
		if not began then
			code = (text:find "authentication" or text:find "pg_hba") and "denied" or "unreachable"
		end
		local nothing, err = natives.fail(code, "sql: " .. text:gsub("(%u+:)%s+%w%w%w%w%w: ", "%1 "))
		err.sqlstate = state
		return nothing, err
	end

	local function psql(self, null, text)
		local r, err = lunarch.exec { "psql", "-XqA", "-z", "-0", "-v", "ON_ERROR_STOP=1", "-v", "VERBOSITY=verbose", "-P", "null=" .. null, "-P", "footer=off",
			"-w", "-d", self.uri, stdin = text, timeout = self.timeout + 2, max_output = 16777216,
			env = { PGPASSWORD = self.password, PGCLIENTENCODING = "UTF8", PGCONNECT_TIMEOUT = math.max(2, math.ceil(self.timeout)), PGAPPNAME = "lunarch" } }
		if not r then
			return natives.fail(err.code, "sql: " .. err.message .. (err.code == "missing" and " (Debian has psql in postgresql-client)" or ""))
		elseif r.truncated then
			return natives.fail("full", "sql: the result is larger than 16 MB; the statements have been executed")
		end
		return r
	end

	-- Runs body in one transaction. token: nil for no fence. The server's timeouts end it when this call has given up.
	local function transact(self, mark, token, body)
		local ms = math.max(1, math.ceil(self.timeout * 1000))
		local r, err = psql(self, "null-" .. mark, table.concat {
			"\\echo ", mark, "\nBEGIN;\nSET LOCAL statement_timeout = ", ms, ";\nSET LOCAL idle_in_transaction_session_timeout = ", ms, ";\n",
			token and fence_of(self, mark, token) or "", body, "COMMIT;\n\\echo ", mark, " DONE\n",
		})
		if not r then
			return nil, err
		elseif r.stdout:find(mark .. " FENCED", 1, true) then
			return natives.fail("fenced", "sql: FENCED: there is a newer leader, and nothing was done")
		elseif not r.ok or not r.stdout:find(mark .. " DONE", 1, true) then
			return failed(r, r.stdout:find(mark, 1, true))
		end
		return r.stdout
	end

	local function with_fences(self, mark, token, body)
		local out, err = transact(self, mark, token, body)
		if out or self.own or not token or err.sqlstate ~= "42P01" or not err.message:find(FENCES, 1, true) then
			return out, err
		end
		transact(self, mark, nil, "CREATE TABLE IF NOT EXISTS " .. FENCES .. " (name text PRIMARY KEY, token bigint NOT NULL);\n")
		return transact(self, mark, token, body)
	end

	-- list: { { text, value, value ... n = }, ... }
	local function run(self, where, token, list)
		local mark = ("%016x"):format(math.random(0))
		local body = {}
		for i, one in ipairs(list) do
			given.text(where .. ": statement", one[1], 3)
			body[i] = statement(json, mark, i, where, one[1], table.pack(table.unpack(one, 2, one.n)))
		end
		local out, err = with_fences(self, mark, token, table.concat(body))
		if not out then
			return nil, err
		end
		local results, at = {}, select(2, out:find(mark .. "\n", 1, true)) + 1
		for i = 1, #list do
			local s, e = out:find(mark .. "\n", at, true)
			local s2, e2, count = out:find(mark .. " (%d+)\n", e)
			results[i] = rows_of(json, "null-" .. mark, out:sub(at, s - 1), out:sub(e + 1, s2 - 1), count)
			at = e2 + 1
		end
		return results
	end

	local function first(results, err)
		return results and results[1], err
	end

	function Database:query(text, ...)
		return first(run(self, "database:query", nil, { table.pack(text, ...) }))
	end

	function Database:fenced(term, text, ...)
		return first(run(self, "database:fenced", given.token("database:fenced", term), { table.pack(text, ...) }))
	end

	function Database:fenced_all(term, list)
		local token, statements = given.token("database:fenced_all", term), {}
		if type(list) ~= "table" or #list == 0 then
			error("database:fenced_all: expected a list of statements, each with its values: { { text, value, ... }, ... }", 2)
		end
		for i, one in ipairs(list) do
			if type(one) ~= "table" then
				error(("database:fenced_all: statement %d: expected { text, value, ... }, found a %s"):format(i, type(one)), 2)
			end
			local last = one.n or #one
			statements[i] = table.pack(table.unpack(one, 1, last))
		end
		return run(self, "database:fenced_all", token, statements)
	end

	function Database:run(text)
		given.text("database:run: text", text)
		local out, err = transact(self, ("%016x"):format(math.random(0)), nil, text .. "\n;\n")
		return out and true, err
	end

	local sql = {}

	function sql.connect(uri, options)
		given.text("sql.connect: uri", uri)
		options = given.options("sql.connect", options, of_database)
		if not uri:find "^postgres[ql]*://" then
			local kind = uri:match "^%a[%w+.-]*://"
			error(("sql.connect: expected a URI as postgres://USER@HOST:PORT/DATABASE, found %s%s"):format(kind or "no postgres://",
				kind == "mysql://" and "; lunarch.mysql is for such servers" or ""), 2)
		end
		if uri:find "[?&]sslpassword=" then
			error("sql.connect: sslpassword would be seen in a list of processes: it belongs into a connection service file (pg_service.conf)", 2)
		end
		local safe, password = without_password(uri)
		return setmetatable({ uri = safe, password = options.password or password, timeout = options.timeout or TIMEOUT,
			fences = FENCES, fence = options.fence or "leader" }, Database)
	end

	function sql.beside(term, options)
		given.token("sql.beside", term)
		options = given.options("sql.beside", options, of_lock)
		local uri, place, name = parse_lock(term.lock)
		if not uri then
			error(("sql.beside: expected a term whose lock is postgres://..., found %s; sql.connect(URI) takes any other database"):format(term.lock), 2)
		end
		return setmetatable({ uri = uri, password = options.password, timeout = options.timeout or TIMEOUT, own = true, fences = place, fence = name }, Database)
	end

	return sql
end

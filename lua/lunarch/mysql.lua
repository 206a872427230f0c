-- lunarch.mysql: statements to MariaDB and MySQL servers, on connections that stay open (runtime/script/api/lua_mysql.c).
-- A value goes into a statement as the hexadecimal digits of its bytes, or as a number: no value, character set or SQL mode can
-- make it anything else, a statement is one question and one answer, and each statement of the server can be asked, which its
-- prepared statements do not allow.

local use = ...
local given = use "given"
local lunarch = require "lunarch"

local TIMEOUT <const>, CONNECT_TIMEOUT <const>, PORT <const> = 10, 10, 3306

local NO_SUCH_TABLE <const> = 1146
local LOST <const> = 2013 -- libmariadb's CR_SERVER_LOST
local FENCES <const> = "CREATE TABLE IF NOT EXISTS lunarch_fences (name VARBINARY(255) NOT NULL PRIMARY KEY, token BIGINT NOT NULL, "
	.. "writes BIGINT NOT NULL) ENGINE=InnoDB"

local function port(v)
	return (math.type(v) ~= "integer" or v < 1 or v > 65535) and "a port from 1 to 65535" or nil
end

local function tls(v)
	return type(v) ~= "boolean" and type(v) ~= "table" and "true, false, or a table of ca, cert, key, verify" or nil
end

-- A text for the first statement, or a list of them.
local function statements(v)
	return type(v) ~= "string" and type(v) ~= "table" and "a statement, or a list of them" or nil
end

local known = { host = "text", port = port, unix = "text", user = "text", password = "text", database = "text", tls = tls,
	timeout = "seconds", connect_timeout = "seconds", begin = statements, fence = "text" }
local known_tls = { ca = "text", cert = "text", key = "text", verify = "boolean" }

-- ---- statements ----

-- Where what begins at `at` with this character ends: the position behind a literal, a name or a comment.
local function skip(text, at, first, plain_backslash)
	if first == "-" or first == "#" then
		if first == "-" and not text:find("^%-%-%s", at) then
			return at + 1
		end
		return (text:find("\n", at, true) or #text) + 1
	elseif first == "/" then
		if text:sub(at + 1, at + 1) ~= "*" then
			return at + 1
		end
		return (select(2, text:find("*/", at + 2, true)) or #text) + 1
	end
	local stops = (first == "`" or plain_backslash) and "[" .. first .. "]" or "[\\" .. first .. "]"
	local i = at + 1
	while true do
		i = text:find(stops, i)
		if not i then
			return #text + 1
		elseif text:byte(i) == 92 then -- a backslash, and what it stands before
			i = i + 2
		else
			return i + 1 -- a quote that is doubled begins the next literal
		end
	end
end

local HEX <const> = {} -- byte -> its two digits
for byte = 0, 255 do
	HEX[string.char(byte)] = ("%02x"):format(byte)
end

local function literal(json, value, where, i)
	local kind = type(value)
	if value == nil or value == json.null then
		return "NULL"
	elseif kind == "table" then
		value = json.encode(value)
	elseif kind == "boolean" then
		return value and "TRUE" or "FALSE"
	elseif math.type(value) == "integer" then
		return ("%d"):format(value)
	elseif kind == "number" then
		if value ~= value or value == math.huge or value == -math.huge then
			error(("%s: value %d is %s, which the server's numbers cannot be"):format(where, i, value), 0)
		end
		return (("%.16e"):format(value):gsub(",", ".")) -- os.setlocale may have changed the decimal point
	elseif kind ~= "string" then
		error(("%s: value %d: expected a text, a number, a boolean, a table (as JSON) or nil, found a %s"):format(where, i, kind), 0)
	end
	return (utf8.len(value) and "_utf8mb4 x'" or "x'") .. value:gsub(".", HEX) .. "'"
end

-- The statement with its values in place of the question marks.
local function complete(json, where, text, values, plain_backslash)
	local parts, from, at, n = {}, 1, 1, 0
	while true do
		at = text:find("[?'\"`#/-]", at)
		if not at then
			break
		end
		local first = text:sub(at, at)
		if first == "?" then
			n = n + 1
			if n <= values.n then
				parts[#parts + 1] = text:sub(from, at - 1)
				parts[#parts + 1] = " " .. literal(json, values[n], where, n) .. " "
			end
			at = at + 1
			from = at
		else
			at = skip(text, at, first, plain_backslash)
		end
	end
	if n ~= values.n then
		error(("%s: %d values for %d question marks"):format(where, values.n, n), 0)
	end
	return table.concat(parts) .. text:sub(from)
end

return function(natives)
	local core = natives.module "mysql"
	local json = lunarch.json
	local Database = { __name = "lunarch.MysqlDatabase" }
	Database.__index = use "unknown"("database", Database)

	local function failed(self, code, text, unsent)
		local nothing, err = natives.fail(code, ("mysql: %s: %s"):format(self.name, text))
		err.unsent = unsent
		return nothing, err
	end

	local function renamed(self, nothing, err)
		local _, named = failed(self, err.code, err.message, err.unsent)
		named.errno, named.sqlstate = err.errno, err.sqlstate
		return nothing, named
	end

	-- ---- one task at a time ----

	-- Waits until no other task uses the connection. Returns what ends the use (to be closed), or nil: not in time.
	local function take(self, by)
		while self.busy do
			if not self.freed:wait(math.max(0, by - lunarch.time.monotonic())) then
				return nil
			end
		end
		self.busy = true
		return setmetatable({}, { __close = function()
			self.busy = false
			self.freed:wake()
		end })
	end

	-- raw, values: what text was made of, for a simulated server.
	local function run(self, text, by, raw, values)
		local cut = natives.cut and natives.cut() -- lunarch doctor --full: the answer is lost, as if the connection had broken
		local rows, err = core.run(self.conn, text, math.max(0, by - lunarch.time.monotonic()), raw or text, values or {})
		if cut then
			core.close(self.conn)
			rows, err = failed(self, "lost", "Lost connection to server during query", false)
			err.errno, err.sqlstate = LOST, "HY000"
			return rows, err
		end
		if not rows then
			return renamed(self, nil, err)
		end
		return rows
	end

	-- Connects if there is no connection. by: when the statement's time is up.
	local function connected(self, by)
		if self.closed then
			return failed(self, "closed", "the database was closed", true)
		elseif core.alive(self.conn) then
			return true
		end
		local timeout = math.min(self.connect_timeout, math.max(0, by - lunarch.time.monotonic()))
		local good, err = core.connect(self.conn, self.spec, timeout)
		if not good then
			if self.spec.cert and err.message:find "Lost connection" then -- all that the library says of it
				err.message = ("%s (does the server take the certificate %s?)"):format(err.message, self.spec.cert)
			end
			return renamed(self, nil, err)
		end
		for _, text in ipairs(self.begin) do
			good, err = run(self, text, by)
			if not good then
				core.close(self.conn)
				err.unsent = true -- nothing of what the caller asks for
				return nil, err
			end
		end
		return true
	end

	-- The statement as the server gets it; misuse raises where the script called.
	local function made(self, where, text, values)
		given.text(where .. ": statement", text, 3)
		local _, plain_backslash = core.alive(self.conn)
		local good, whole = pcall(complete, json, where, text, values, plain_backslash)
		if not good then
			error(whole, 3)
		end
		return whole
	end

	local function in_turn(self, by)
		local turn = take(self, by)
		if not turn then
			return failed(self, "timeout", "other tasks used the connection all the time", true)
		end
		return turn
	end

	-- ---- a transaction ----

	-- After an error the server may have rolled back all of it, as in a deadlock, and would do the next statement by itself. So none
	-- is sent any more.
	local function unsent_of(db, broken)
		local _, err = failed(db, broken.code, "an earlier statement of the transaction failed: " .. broken.message, true)
		err.errno, err.sqlstate = broken.errno, broken.sqlstate
		return err
	end

	local Transaction = { __name = "lunarch.MysqlTransaction" }
	Transaction.__index = use "unknown"("transaction", Transaction)

	function Transaction:query(text, ...)
		if self.over then
			error("tx:query: the transaction has ended", 2)
		end
		local whole = made(self.db, "tx:query", text, table.pack(...))
		if self.broken then
			return nil, unsent_of(self.db, self.broken)
		elseif not core.alive(self.db.conn) then
			self.broken = select(2, failed(self.db, "lost", "the connection is closed, and the transaction with it", true))
			return nil, self.broken
		end
		local rows, err = run(self.db, whole, lunarch.time.monotonic() + self.db.timeout, text, { ... })
		self.broken = err
		return rows, err
	end

	-- Left by an error, or because its task is over: the server rolls back what a closed connection has not committed.
	function Transaction.__close(tx)
		if not tx.over then
			tx.over = true
			core.close(tx.db.conn)
		end
	end

	-- Commits or rolls back. Returns nil or an error; unsent: nothing of the transaction was done.
	local function finish(tx, keep)
		local conn, by = tx.db.conn, lunarch.time.monotonic() + tx.db.timeout
		local good, err
		if tx.broken or not keep then
			good, err = core.alive(conn) and run(tx.db, "ROLLBACK", by), tx.broken
		elseif not core.alive(conn) then
			err = select(2, failed(tx.db, "lost", "the connection is closed, and the transaction with it", true))
		else
			good, err = run(tx.db, "COMMIT", by)
		end
		if tx.broken then
			err.unsent = true
		end
		if not good then
			core.close(conn)
		end
		tx.over = true
		return err
	end

	-- ---- a database ----

	-- The row of the fence is there from now on.
	local function with_fence(self, by)
		if self.has_fence then
			return true
		end
		local row = made(self, "", "INSERT IGNORE INTO lunarch_fences (name, token, writes) VALUES (?, 0, 0)", table.pack(self.fence))
		local good, err = run(self, row, by)
		if not good and err.errno == NO_SUCH_TABLE then
			good, err = run(self, FENCES, by)
			if good then
				good, err = run(self, row, by)
			end
		end
		self.has_fence = good and true
		return good, err
	end

	-- Each fenced transaction changes the row, so that in a Galera cluster, where a lock of a row is one node's, two of them on two nodes
	-- cannot both be done.
	local function pass_fence(tx, token)
		local rows, err = tx:query("UPDATE lunarch_fences SET token = ?, writes = writes + 1 WHERE name = ? AND token <= ?", token,
			tx.db.fence, token)
		if rows and rows.count == 0 then
			tx.db.has_fence = nil -- or somebody has deleted it
			return failed(tx.db, "fenced", "FENCED: there is a newer leader, and nothing was done", true)
		end
		return rows, err
	end

	function Database:query(text, ...)
		made(self, "database:query", text, table.pack(...))
		local by = lunarch.time.monotonic() + self.timeout
		local turn <close>, err = in_turn(self, by)
		if not turn then
			return nil, err
		end
		local good
		good, err = connected(self, by)
		if not good then
			return nil, err
		end
		return run(self, made(self, "database:query", text, table.pack(...)), by, text, { ... })
	end

	-- One transaction around body(tx). token: nil for no fence.
	local function transact(self, token, body)
		local by = lunarch.time.monotonic() + self.timeout
		local turn <close>, err = in_turn(self, by)
		if not turn then
			return nil, err
		end
		local good
		good, err = connected(self, by)
		if good and token then
			good, err = with_fence(self, by)
		end
		if good then
			good, err = run(self, "START TRANSACTION", by)
		end
		if not good then
			err.unsent = true
			return nil, err
		end
		local tx <close> = setmetatable({ db = self, over = false }, Transaction)
		if token then
			good, err = pass_fence(tx, token)
			if not good then
				finish(tx, false)
				return nil, err
			end
		end
		local results = table.pack(body(tx))
		local keep = results.n == 0 or results[1]
		err = finish(tx, keep)
		if err and keep then
			return nil, err
		elseif results.n == 0 then
			return true
		end
		return table.unpack(results, 1, results.n)
	end

	local function given_body(where, body)
		if type(body) ~= "function" then
			error(where .. ": expected a function, found a " .. type(body), 3)
		end
	end

	function Database:transaction(body)
		given_body("database:transaction", body)
		return transact(self, nil, body)
	end

	function Database:fenced(term, work, ...)
		local token = given.token("database:fenced", term)
		if type(work) == "string" then
			local values = table.pack(...)
			made(self, "database:fenced", work, values)
			return transact(self, token, function(tx) return tx:query(work, table.unpack(values, 1, values.n)) end)
		end
		given_body("database:fenced", work)
		return transact(self, token, work)
	end

	function Database:close()
		self.closed = true
		core.close(self.conn)
	end

	local mysql = {}

	function mysql.open(options)
		options = given.options("mysql.open", options, known)
		if (options.host == nil) == (options.unix == nil) then
			error("mysql.open: expected one of host = and unix =", 2)
		end
		local secure = type(options.tls) == "table" and given.options("mysql.open: tls", options.tls, known_tls) or {}
		if options.tls and options.unix then
			error("mysql.open: tls is for host =, not for unix =", 2)
		end
		for _, name in ipairs { "ca", "cert", "key" } do
			local file, why = io.open(secure[name] or "/dev/null")
			if not file then
				return natives.fail("missing", ("mysql: tls: cannot read %s: %s"):format(name, why))
			end
			file:close()
		end
		local spec = { host = options.host, port = options.port or PORT, unix = options.unix, user = options.user, password = options.password,
			database = options.database, tls = options.tls and true or false, insecure = secure.verify == false, ca = secure.ca,
			cert = secure.cert, key = secure.key }
		local begin = type(options.begin) == "table" and options.begin or { options.begin }
		local self = setmetatable({ spec = spec, name = options.unix or ("%s:%d"):format(options.host, spec.port), timeout = options.timeout or TIMEOUT,
			connect_timeout = options.connect_timeout or CONNECT_TIMEOUT, begin = begin, fence = options.fence or "leader", conn = core.new(), closed = false, busy = false,
			freed = natives.signal() }, Database)
		local good, err = connected(self, lunarch.time.monotonic() + self.connect_timeout)
		if not good then
			core.close(self.conn)
			return nil, err
		end
		return self
	end

	return mysql
end

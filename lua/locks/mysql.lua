-- The MariaDB and MySQL lock: one row of a table, updated on the condition that it has the version that was read
-- (docs/stores/mysql.md). The row named '' is the mark: its record says on which server, or Galera cluster, the table was
-- last known to be, its token grows with each other server, its server is the name of the doubt that the last one left
-- ('': none). In a lock's row, server is the doubt under which that row was last sound. Read by the driver's process
-- (docs/write-a-lock.md).
--
-- An answer of the protocol does not say what was asked. So each look brings a number back, and so does each write that was done, as what
-- LAST_INSERT_ID was told. What brings another one is not believed.

local lunarch = require "lunarch"
local mysql = require "lunarch.mysql"
local json, time = lunarch.json, lunarch.time

local TABLE <const> = "lunarch_locks"
local LINKS <const>, SLOW_LINKS <const>, IDLE_LINKS <const> = 8, 4, 2 -- connections at once; of these, for what may wait for a row; kept
local LISTED <const> = 1000
local RIGHTS <const> = "GRANT SELECT, INSERT, UPDATE, CREATE ON %s TO the lock's user (DELETE too for lunarch doctor); "
	.. "how the table is made by hand is in docs/stores/mysql.md"

-- ---- what an error says of a write; of others: nobody knows whether it was done ----

local refused = { [1044] = true, [1045] = true, [1049] = true, [1054] = true, [1142] = true, [1143] = true, [1146] = true, [1227] = true,
	[1275] = true, [1347] = true, [1364] = true, [1370] = true, [1665] = true, [1698] = true, [1820] = true, [3118] = true, [4151] = true }
local failed = { [1021] = true, [1037] = true, [1038] = true, [1040] = true, [1041] = true, [1047] = true, [1114] = true, [1129] = true,
	[1203] = true, [1205] = true, [1213] = true, [1226] = true, [1290] = true, [1792] = true, [1836] = true }
local invalid = { [1153] = true, [1264] = true, [1366] = true, [1406] = true }
local rights = { [1044] = true, [1142] = true, [1143] = true, [1370] = true }
local advice = {
	[1047] = "this node of the cluster has no majority, or is not ready",
	[1054] = "the table is another program's, and is not touched: choose one with ?table=NAME",
	[1205] = "somebody's transaction holds the row",
	[1290] = "the server takes no writes",
	[1364] = "the table is another program's, and is not touched: choose one with ?table=NAME",
	[1665] = "the server's binlog_format must be MIXED or ROW",
}

local function told(store, err)
	local more = rights[err.errno] and RIGHTS:format(store.table) or advice[err.errno]
	return more and ("%s (%s)"):format(err.message, more) or err.message
end

local function outcome_of(err, writes)
	if refused[err.errno] then
		return "refused"
	elseif not writes or err.unsent or failed[err.errno] then
		return "failed"
	end
	return invalid[err.errno] and "invalid" or "unknown"
end

-- ---- connections ----

local seed -- of this process; no other one's numbers begin so

local function unique(store)
	if not seed then
		local source <close> = assert(io.open("/dev/urandom", "rb"))
		seed = source:read(16):gsub(".", function(c) return ("%02x"):format(c:byte()) end)
	end
	store.count = store.count + 1
	return ("%s.%d"):format(seed, store.count)
end

local function stamp(store)
	unique(store)
	return tonumber(seed:sub(1, 6), 16) * 2 ^ 24 // 1 | 0 + store.count
end

-- The server's variables and, in Galera, its state.
local function facts_of(db, statement)
	local rows, err = db:query(statement)
	if not rows then
		return nil, err
	end
	local facts = {}
	for _, row in ipairs(rows) do
		facts[row.Variable_name:lower()] = row.Value
	end
	return facts
end

local FACTS <const> = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('version', 'version_comment', 'server_uuid', 'server_uid', 'server_id', "
	.. "'hostname', 'port', 'read_only', 'super_read_only', 'innodb_read_only', 'wsrep_on', 'gtid_slave_pos', 'innodb_flush_log_at_trx_commit', "
	.. "'innodb_doublewrite', 'sync_binlog', 'log_bin', 'rpl_semi_sync_master_enabled', 'rpl_semi_sync_source_enabled')"
local STATE <const> = "SHOW GLOBAL STATUS WHERE Variable_name IN ('wsrep_cluster_state_uuid', 'wsrep_cluster_status', 'wsrep_cluster_size', "
	.. "'wsrep_ready', 'Slaves_connected')"

-- Which server it is, in words of SQL, so that each statement says it of the server that carries it out.
local function identity(facts, state)
	if facts.wsrep_on == "ON" then
		return ("'galera %s'"):format(state.wsrep_cluster_state_uuid:gsub("[^%w-]", ""))
	elseif facts.server_uuid then
		return "@@server_uuid"
	end
	return ("CONCAT_WS(' ', @@server_id, @@hostname, @@port%s)"):format(facts.server_uid and ", @@server_uid" or "")
end

local function is_read_only(facts)
	return facts.read_only ~= "OFF" or facts.innodb_read_only == "ON" or facts.super_read_only == "ON"
end

local function prepare(store, link)
	local facts, err = facts_of(link.db, FACTS)
	local state
	if facts then
		state, err = facts_of(link.db, STATE)
	end
	if not state then
		return nil, err
	end
	link.facts, link.state = facts, state
	if facts.wsrep_on == "ON" and state.wsrep_ready ~= "ON" then
		return nil, { message = ("%s: this node of the Galera cluster is not ready (%s)"):format(link.name, state.wsrep_cluster_status),
			unsent = true }
	end
	link.here, link.read_only, link.id = identity(facts, state), is_read_only(facts), unique(store)
	-- Is gone when the connection was lost and made anew in between: then what is known of the server counts no more.
	return link.db:query("SET @lunarch_link = ?", link.id)
end

local function connect(store, host, timeout)
	local db, err = mysql.open { host = host.name, port = host.port ~= 0 and host.port or nil, user = store.user, password = store.password,
		database = store.database, tls = store.tls, timeout = timeout, connect_timeout = timeout, begin = {
			"SET SESSION autocommit = 1, sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'",
			"SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED" } }
	if not db then
		return nil, err
	end
	local link = { db = db, name = ("%s:%d"):format(host.name, host.port ~= 0 and host.port or 3306), settled = {} }
	local good
	good, err = prepare(store, link)
	if good and link.facts.wsrep_on == "ON" then
		good, err = db:query "SET SESSION wsrep_sync_wait = 1, wsrep_dirty_reads = OFF"
	end
	if not good then
		db:close()
		err.unsent = true
		return nil, err
	end
	return link
end

-- The first host that takes writes; if none does, one that is there.
local function dial(store, ends)
	local second, why
	for i = 1, #store.hosts do
		local at = (store.at + i - 2) % #store.hosts + 1
		local left = ends - time.monotonic()
		local link, err = connect(store, store.hosts[at], math.max(0.01, math.min(left, left / (#store.hosts - i + 1))))
		if link and not link.read_only then
			if second then
				second.db:close()
			end
			store.at = at
			return link
		elseif link and second then
			link.db:close()
		end
		second, why = second or link, why or err
	end
	return second, why
end

local function give_back(store, link, slow)
	store.busy, store.slow = store.busy - 1, store.slow - (slow and 1 or 0)
	if link and link.good and not link.read_only and #store.idle < IDLE_LINKS then
		store.idle[#store.idle + 1] = link
	elseif link then
		link.db:close()
	end
end

-- Returns a connection, and what gives it back (to be closed); or nil and an error. It is kept only if it is `good` then.
local function take(store, op, slow)
	local ends = time.monotonic() + op.timeout
	while store.busy >= LINKS or (slow and store.slow >= SLOW_LINKS) do
		if time.monotonic() >= ends then
			return nil, nil, { message = "other locks of this process used all connections all the time", unsent = true }
		end
		lunarch.sleep(0.01)
	end
	local held = { link = table.remove(store.idle) }
	store.busy, store.slow = store.busy + 1, store.slow + (slow and 1 or 0)
	local guard = setmetatable({}, { __close = function() give_back(store, held.link, slow) end })
	local _ <close> = setmetatable({}, { __close = function() -- the task may be cancelled while it connects
		if not held.given then
			give_back(store, held.link, slow)
		end
	end })
	local err
	if not held.link then
		held.link, err = dial(store, ends)
	end
	if not held.link then
		return nil, nil, err
	end
	held.given = true
	held.link.good, held.link.ends, held.link.db.timeout = false, ends, math.max(0.01, ends - time.monotonic())
	return held.link, guard
end

-- ---- statements ----

local function quote(name)
	return "`" .. name:gsub("`", "``") .. "`"
end

local function sql(store, link, text)
	return (text:gsub("{(%w+)}", { table = store.quoted, here = link.here }))
end

local LOOK <const> = "SELECT ? AS stamp, @lunarch_link AS link, r.name IS NOT NULL AS there, r.record AS record, r.version AS version, "
	.. "r.server AS settled, m.name IS NOT NULL AS marked, m.record = {here} AS here, m.server AS doubt, m.token AS generation, "
	.. "CONCAT(@@global.read_only) AS read_only FROM (SELECT 1) AS o LEFT JOIN {table} AS m ON m.name = '' LEFT JOIN {table} AS r ON r.name = ?"

local mixed_up <const> = "the answer is that of another question: the connection is made anew"

-- What is there. nil and an error; .missing: there is no table.
local function look(store, link, key)
	local mark = stamp(store)
	local rows, err = link.db:query(sql(store, link, LOOK), mark, key)
	if not rows then
		err.missing = err.errno == 1146 and not store.met
		if err.errno == 1146 and store.met then
			err.message = err.message .. " (it was there before: put it back, or start all candidates again when no lease runs)"
		end
		return nil, err
	end
	store.met = true
	local row = rows[1]
	if not row or row.stamp ~= mark then
		return nil, { message = mixed_up }
	elseif row.link ~= link.id then
		return nil, { message = link.name .. ": the connection was lost" }
	elseif row.generation and row.generation < store.generation then
		store.at = store.at % #store.hosts + 1
		return nil, { message = link.name .. ": the table is older than one that was seen: this was the primary before a failover" }
	end
	link.good = true
	link.marked = row.marked == 1 and row.here == 1
	link.doubt = link.marked and row.doubt or ""
	store.generation = math.max(store.generation, link.marked and row.generation or 0)
	row.open = link.marked and row.doubt ~= "" and row.doubt ~= row.settled and row.doubt or "" -- the doubt that the row is in
	row.closed = row.read_only ~= "0" and row.read_only ~= "OFF"
	return row
end

local CREATE <const> = "CREATE TABLE IF NOT EXISTS {table} (name VARBINARY(1000) NOT NULL PRIMARY KEY, token BIGINT NOT NULL, "
	.. "record MEDIUMBLOB NOT NULL, version VARBINARY(63) NOT NULL, changed DATETIME(6) NOT NULL, server VARBINARY(63) NOT NULL, "
	.. "UNIQUE KEY token (name, token)) ENGINE=InnoDB"
local MARK <const> = "UPDATE {table} SET token = GREATEST(token + 1, ?), server = ?, version = ?, changed = UTC_TIMESTAMP(6), record = {here} "
	.. "WHERE name = '' AND record <> {here}"
local FIRST_MARK <const> = "INSERT INTO {table} (name, token, record, version, changed, server) VALUES ('', ?, {here}, ?, UTC_TIMESTAMP(6), ?)"

-- A server that never was a replica cannot have lost what was in the table before it was made. Of MySQL that cannot be known.
local function was_never_replica(facts)
	return facts.gtid_slave_pos == ""
end

-- The mark says where the table is, and names the doubt, for all. Returns nil or an error.
local function make_mark(store, link)
	local version, now = unique(store), time.now() * 1000000 // 1 | 0
	local rows, err = link.db:query(sql(store, link, MARK), now, version, version)
	if rows and rows.count == 0 then
		rows, err = link.db:query(sql(store, link, FIRST_MARK), now, version, was_never_replica(link.facts) and "" or version)
	end
	return not rows and err.errno ~= 1062 and err or nil
end

-- How long a statement may wait for a row. The server counts in seconds.
local function set_patience(link, slow)
	local left = link.ends - time.monotonic()
	local seconds = math.max(1, math.min(50, math.floor(slow and left * 3 / 5 or left / 5)))
	if not link.facts.server_uuid then -- MariaDB takes it with the statement
		link.patience = ("SET STATEMENT innodb_lock_wait_timeout = %d FOR "):format(seconds)
		return nil
	elseif link.seconds == seconds then
		return nil
	end
	local rows, err = link.db:query("SET SESSION innodb_lock_wait_timeout = ?", seconds)
	link.patience, link.seconds = "", rows and seconds
	return err
end

-- Makes table and mark if need be. Returns nil; or an outcome and an error.
local function get_ready(store, link, key, op)
	if link.marked then
		return nil
	end
	local row, err = look(store, link, key)
	if err and err.missing then
		if op.expected ~= "" then
			return "conflict"
		end
		local made, why = link.db:query(sql(store, link, CREATE))
		if not made then
			return outcome_of(why, false), told(store, why)
		end
		row, err = look(store, link, key)
	end
	if row and not op.advice and not link.marked then
		err = make_mark(store, link)
		if not err then
			row, err = look(store, link, key)
		end
	end
	if not row or err then
		return outcome_of(err, false), told(store, err)
	end
	return nil
end

-- A proxy may let others have the session between: what they leave there must not undo what is reported as done.
local IF_WRITABLE <const> = " AND @lunarch_link = ? AND @@autocommit AND CONCAT(@@global.read_only) IN ('0', 'OFF')"
local ELECTABLE <const> = "m.name = '' AND m.record = {here} AND (m.server IN ('', ?) OR ? "
local UPDATE <const> = "UPDATE {table} AS r SET r.record = ?, r.version = ?, r.token = ? + 0 * LAST_INSERT_ID(?), r.changed = UTC_TIMESTAMP(6), "
	.. "r.server = IF(? = '', r.server, ?) WHERE r.name = ? AND r.version = ?" .. IF_WRITABLE
local BEGIN <const> = UPDATE:gsub("AS r SET", "AS r JOIN {table} AS m ON " .. ELECTABLE .. "OR m.server = r.server) SET", 1)
local INSERT <const> = "INSERT INTO {table} (name, record, version, token, changed, server) SELECT ?, ?, ?, ? + 0 * LAST_INSERT_ID(?), "
	.. "UTC_TIMESTAMP(6), ? FROM {table} AS m WHERE " .. ELECTABLE .. ")" .. IF_WRITABLE
local INSERT_ADVICE <const> = "INSERT INTO {table} (name, record, version, token, changed, server) VALUES (?, ?, ?, ? + 0 * LAST_INSERT_ID(?), "
	.. "UTC_TIMESTAMP(6), ?)"

local function token_of(text)
	local good, record = pcall(json.decode, text)
	return good and type(record) == "table" and math.type(record.token) == "integer" and record.token or 0
end

local function ask(store, link, key, text, version, mark, op)
	local token, over = op.advice and 0 or token_of(text), op.waited_out or ""
	local free = not op.begins or op.own or false
	if op.expected == "" and op.advice then
		return link.db:query(link.patience .. sql(store, link, INSERT_ADVICE), key, text, version, token, mark, "")
	elseif op.expected == "" then
		return link.db:query(link.patience .. sql(store, link, INSERT), key, text, version, token, mark, over, over, free, link.id)
	elseif op.begins and not op.advice then
		return link.db:query(link.patience .. sql(store, link, BEGIN), over, free, text, version, token, mark, over, over, key, op.expected, link.id)
	end
	return link.db:query(link.patience .. sql(store, link, UPDATE), text, version, token, mark, over, over, key, op.expected, link.id)
end

-- Nothing was changed, says the server: why. nil: it can be tried again.
local function not_written(store, link, key, version, op)
	local row, err = look(store, link, key)
	if not row then
		if err.missing then
			return "conflict"
		end
		return "unknown", err.message
	elseif row.there == 1 and row.version == version then
		return "ok", version
	elseif (row.there == 1 and row.version or "") ~= op.expected then
		return "conflict"
	elseif row.closed then
		return "failed", link.name .. ": the server takes no writes (read_only)"
	elseif op.begins and not op.own and not op.advice and row.open ~= "" and row.open ~= op.waited_out then
		return "doubt", row.open
	end
	return nil
end

-- The server says that it has refused the statement. Is that the answer to this one, and is the record as it was? A Galera says 1213 also of
-- what the others may have, when the node loses its majority meanwhile. Then the look fails too: it waits for all that the cluster has.
local function after_error(store, link, key, version, op, err)
	local outcome = outcome_of(err, true)
	if err.unsent or outcome == "unknown" then
		return outcome, told(store, err)
	end
	local found, why = not_written(store, link, key, version, op)
	if found == "unknown" and outcome == "refused" and not err.message:find "^lock" then
		return outcome, told(store, err) -- it may not look either
	elseif found == "ok" or found == "unknown" or found == "conflict" then
		return found, why
	end
	return outcome, told(store, err)
end

local function write_once(store, link, key, text, op)
	local outcome, why = get_ready(store, link, key, op)
	if outcome then
		return outcome, why
	end
	local version, mark = unique(store), stamp(store)
	link.good = false
	local rows, err = ask(store, link, key, text, version, mark, op)
	if not rows and err.errno == 1062 then
		rows = { count = 0 }
	elseif not rows then
		return after_error(store, link, key, version, op, err)
	end
	if rows.count == 0 then
		return not_written(store, link, key, version, op)
	elseif rows.insert_id ~= mark then
		return "unknown", mixed_up
	end
	link.good = true
	return "ok", version, not op.advice and link.doubt ~= "" and link.doubt ~= op.waited_out and link.doubt or nil
end

-- ---- the lock ----

local function first(host)
	return { name = host.name, port = host.port or 0 }
end

local function tls_of(options)
	local wanted = options.tls or (options.tls == nil and (options.ca or options.cert or options.key))
	return wanted and { ca = options.ca, cert = options.cert, key = options.key } or nil
end

local function open(place)
	if not place.path or place.path == "" or place.path:find "/" then
		error(place.lock .. ": expected mysql://[USER[:PASSWORD]@]HOST[:PORT][,HOST...]/DATABASE#NAME", 0)
	end
	local hosts = {}
	for i, host in ipairs(place.hosts) do
		hosts[i] = first(host)
	end
	local name = place.options.table or TABLE
	return { hosts = hosts, at = 1, user = place.user ~= "" and place.user or nil, password = place.password, database = place.path,
		tls = tls_of(place.options), table = name, quoted = quote(place.path) .. "." .. quote(name), idle = {}, busy = 0, slow = 0, count = 0, generation = 0 }
end

local function read(store, key, op)
	local link <const>, _ <close>, err = take(store, op, false)
	if not link then
		return outcome_of(err, false), told(store, err)
	end
	local row
	row, err = look(store, link, key)
	if not row then
		if err.missing then
			link.good = true
			return "absent"
		end
		return outcome_of(err, false), told(store, err)
	end
	local doubt = row.open ~= "" and row.open or nil -- of what is not there, too: else its wait would begin anew with each read
	if row.there ~= 1 then
		return "absent", nil, doubt
	end
	return "ok", row.record, row.version, doubt
end

local function write(store, key, text, op)
	local slow = op.begins or op.advice
	local link <const>, _ <close>, err = take(store, op, slow)
	if not link then
		return outcome_of(err, false), told(store, err)
	elseif link.read_only then
		return "failed", link.name .. ": the server takes no writes (read_only)"
	end
	err = set_patience(link, slow)
	if err then
		return outcome_of(err, false), told(store, err)
	end
	for _ = 1, 2 do -- another server's mark, or a node that was behind, is told by the first
		local outcome, a, b = write_once(store, link, key, text, op)
		if outcome then
			return outcome, a, b
		end
		link.marked = false
	end
	return "failed", link.name .. ": the row is as expected, and could not be written"
end

local function remove(store, key, op)
	local link <const>, _ <close>, err = take(store, op, true)
	if not link then
		return outcome_of(err, false), told(store, err)
	end
	local rows
	rows, err = link.db:query(sql(store, link, "DELETE FROM {table} WHERE name = ? AND version = ?"), key, op.expected)
	if not rows and err.errno == 1146 then
		return "absent"
	elseif not rows then
		local outcome = outcome_of(err, true)
		return outcome == "failed" and not err.unsent and "unknown" or outcome, told(store, err)
	end
	local row
	row, err = look(store, link, key)
	if not row then
		return "unknown", err.message
	elseif row.there == 1 then
		return row.version == op.expected and "failed" or "conflict", "the row was not deleted"
	end
	return rows.count == 1 and "ok" or "absent"
end

local LIST <const> = "SELECT ? AS stamp, t.name AS name FROM (SELECT 1) AS o LEFT JOIN {table} AS t ON LEFT(t.name, LENGTH(?)) = ? "
	.. "AND t.name <> '' ORDER BY t.name LIMIT " .. LISTED + 1

local function list(store, prefix, op)
	local link <const>, _ <close>, err = take(store, op, true)
	if not link then
		return outcome_of(err, false), told(store, err)
	end
	local mark = stamp(store)
	local rows
	rows, err = link.db:query(sql(store, link, LIST), mark, prefix, prefix)
	if not rows and err.errno == 1146 then
		return "ok", {}
	elseif not rows then
		return outcome_of(err, false), told(store, err)
	elseif not rows[1] or rows[1].stamp ~= mark then
		return "failed", mixed_up
	end
	link.good = true
	local names = {}
	for i, row in ipairs(rows) do
		names[i] = i <= LISTED and row.name or nil
	end
	return "ok", names, #rows > LISTED
end

-- What can lose a record that was acknowledged.
local function judge(link)
	local facts, state = link.facts, link.state
	local cluster = facts.wsrep_on == "ON"
	local semi_sync = facts.rpl_semi_sync_master_enabled == "ON" or facts.rpl_semi_sync_source_enabled == "ON"
	local disk = facts.innodb_flush_log_at_trx_commit ~= "1" and "innodb_flush_log_at_trx_commit is not 1"
		or facts.log_bin == "ON" and facts.sync_binlog ~= "1" and "the binary log is on and sync_binlog is not 1" or nil
	if disk and cluster then
		return disk .. ": after a power cut of all nodes the table may be an older one, with the tokens of old"
	elseif disk then
		return disk .. ": after a crash or a power cut the table may be an older one, with the tokens of old", true
	elseif not cluster and not semi_sync and tonumber(state.slaves_connected or "0") > 0 then
		return "its replicas are asynchronous: a promoted one may lack the last term, so nobody is elected for a lease after a promotion"
	end
	return nil
end

local function about(store, op)
	local link <const>, _ <close>, err = take(store, op, true)
	if not link then
		return nil, err
	end
	local cluster = link.facts.wsrep_on == "ON"
	local brand = link.facts.version:find "MariaDB" and "MariaDB" or "MySQL"
	local warning, unfit = judge(link)
	return { server = ("%s %s%s"):format(brand, link.facts.version:match "^[%d.]+", cluster and ", Galera of " .. link.state.wsrep_cluster_size
		or ""), warning = warning, unfit = unfit, pause = cluster and 6 or nil }
end

return {
	scheme = "mysql",
	summary = "mysql://[USER[:PASSWORD]@]HOST[:PORT][,HOST...]/DATABASE#NAME",
	key = "fragment",
	options = { table = "text", tls = "boolean", ca = "text", cert = "text", key = "text" },
	open = open, read = read, write = write, remove = remove, list = list, about = about,
}

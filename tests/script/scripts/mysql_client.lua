-- lunarch.mysql against the servers of tests/script/test_mysql.py, which reads what this prints and hurts them on "now ...".
local mysql = require "lunarch.mysql"
local port, proxied, nobody, tls_port, other_port, pki, socket = ...
port, proxied, nobody = tonumber(port), tonumber(proxied), tonumber(nobody)
local function err(what, rows, e)
  e = type(e) == "table" and e or {}
  print(what, rows, e.code, e.unsent, e.errno, e.sqlstate, e.message)
  return e
end
local function open(options)
  local all = { host = "127.0.0.1", port = port, user = "lunarch", password = "moon light", database = "test", timeout = 60,
    connect_timeout = 60 }
  for k, v in pairs(options or {}) do all[k] = v end
  if all.unix then all.host, all.port = nil, nil end
  return mysql.open(all)
end
local function ready(what, db) -- until the server is there again
  while not db:query "SELECT 1" do sleep(0.05) end
  print(what)
end

local function values(db)
  print("made", assert(db:query "CREATE TABLE t (id INT PRIMARY KEY, name TEXT, raw BLOB, at DATETIME(3))").count)
  local odd = "O'Neill \\' \"x\" ? :x `y` \n\t\r\0\26 ; DROP TABLE t; -- # /* \u{20ac} \u{1F319} %"
  local bytes = {}
  for i = 0, 255 do bytes[i + 1] = string.char(i) end
  local raw = table.concat(bytes)
  print("insert", assert(db:query("INSERT INTO t VALUES (?, ?, ?, '2026-11-23 01:02:03.5')", 7, odd, raw)).count)
  local row = assert(db:query("SELECT * FROM t WHERE name = ? AND raw = ?", odd, raw))[1]
  print("odd", row.id == 7, row.name == odd, row.raw == raw, row.at)
  assert(db:query "SET SESSION sql_mode = 'NO_BACKSLASH_ESCAPES,ANSI_QUOTES'")
  row = assert(db:query([[SELECT name, '\' AS a, ? AS b, "id" AS c FROM t WHERE name = ?]], "'", odd))[1]
  print("other mode", row.name == odd, row.a == "\\", row.b, row.c)
  assert(db:query "SET SESSION sql_mode = DEFAULT")
  row = db:query("SELECT '?' AS a, \"?''?\" AS b, ? AS `?`, 'it\\'s ?' AS d -- ? of a comment\n, 5-?-1 AS e # ?\n, 1/2 /* ? */ AS f", "x", 1)[1]
  print("marks", row.a, row.b, row["?"], row.d, row.e, row.f)
  row = db:query([[SELECT ? AS i, ? AS f, ? AS yes, ? AS no, ? AS j, CAST(18446744073709551615 AS UNSIGNED) AS big,
    CAST(9223372036854775807 AS UNSIGNED) AS fits, 1.50 AS exact, NULL AS nothing, '' AS empty, CURRENT_DATE AS day,
    CAST(0.1 AS DOUBLE) AS d, YEAR('2026-01-01') AS y, b'101' AS bits]], math.mininteger, 0.1, true, false, { a = 1 })[1]
  print("types", row.i == math.mininteger, row.f == 0.1, row.yes, row.no, row.j, row.big, row.fits == math.maxinteger, row.exact,
    row.nothing, row.empty == "", #row.day, row.d == 0.1, row.y)
  print("null", db:query("SELECT ? AS a, ? IS NULL AS b", nil, json.null)[1].a, db:query("SELECT ? IS NULL AS b", nil)[1].b)
  print("changed", db:query("UPDATE t SET id = 8 WHERE id = ?", 7).count, db:query("UPDATE t SET id = 8 WHERE id = 8").count,
    #db:query "UPDATE t SET id = 7")
  print("none", #db:query "SELECT * FROM t WHERE FALSE", db:query("SELECT * FROM t WHERE FALSE").count)
  print("number", db:query("CREATE TABLE n (id INT PRIMARY KEY AUTO_INCREMENT)").insert_id, db:query("INSERT INTO n VALUES ()").insert_id)
  local many = assert(db:query "SELECT seq AS i, REPEAT('x', 100) AS x FROM seq_1_to_1000 ORDER BY seq")
  print("many", #many, many.count, many[1000].i, #many[500].x)
  print("large", #db:query("SELECT ? AS x", ("\u{e4}"):rep(1000000))[1].x)
  assert(db:query "CREATE PROCEDURE p() BEGIN SELECT 1 AS a; SELECT 2 AS b; UPDATE t SET id = 7; END")
  print("procedure", db:query("CALL p()")[1].a, db:query("SELECT 3 AS c")[1].c)
  print("one statement", err("two", db:query "SELECT 1; DROP TABLE t").errno, db:query("SELECT COUNT(*) AS n FROM t")[1].n)
end

local function refusals(db)
  err("syntax", db:query "SELEC 1")
  err("unique", db:query "INSERT INTO t (id) VALUES (7)")
  err("database", open { database = "nowhere" })
  err("password", open { password = "wrong" })
  err("nobody", open { user = "nobody" })
  err("port", open { port = nobody })
  err("host", open { host = "no-such-host.invalid" })
  err("socket", open { unix = socket .. ".none" })
  err("begin", open { begin = "SELEC 1" })
  print("unix", open { unix = socket }:query("SELECT 1 AS a")[1].a)
  print("name", open { host = "localhost" }:query("SELECT 1 AS a")[1].a)
  local begun = open { begin = { "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED", "SET @x = 5" } }
  local row = begun:query("SELECT @@tx_isolation AS level, @x AS x, @@character_set_client AS c")[1]
  print("begun", row.level, row.x, row.c)
  begun:close()
  err("closed", begun:query "SELECT 1")
end

local function transactions(db)
  local name = function() return db:query("SELECT name FROM t WHERE id = 7")[1].name end
  local set = "UPDATE t SET name = ? WHERE id = 7"
  print("commit", db:transaction(function(tx) return tx:query(set, "one").count, "more" end))
  print("committed", name(), db:transaction(function(tx) tx:query(set, "two") end), name())
  print("rollback", db:transaction(function(tx) tx:query(set, "three") return nil, "why" end))
  print("rolled back", name())
  print("raise", pcall(db.transaction, db, function(tx) tx:query(set, "four") error("oops", 0) end))
  print("raised", name())
  local e = err("failed statement", db:transaction(function(tx)
    tx:query(set, "five")
    tx:query "SELEC"
    err("behind it", tx:query(set, "six"))
    return true
  end))
  print("broken", e.code, name())
  local kept
  db:transaction(function(tx) kept = tx end)
  print("after it", pcall(kept.query, kept, "SELECT 1"))
  -- Two transactions that wait for each other.
  assert(db:query "CREATE TABLE d (id INT PRIMARY KEY, n INT)")
  assert(db:query "INSERT INTO d VALUES (1, 0), (2, 0)")
  local one, two = open(), open()
  local first, second = 0, 0
  local function pair(on, mine, theirs)
    return on:transaction(function(tx)
      assert(tx:query("UPDATE d SET n = n + 1 WHERE id = ?", mine))
      first = first + 1
      while first < 2 do sleep(0.01) end
      local rows, why = tx:query("UPDATE d SET n = n + 1 WHERE id = ?", theirs)
      second = second + (rows and 1 or 0)
      if not rows then err("inside", nil, why) end
      return true
    end)
  end
  local task = spawn(function() return { pair(one, 1, 2) } end)
  local b = table.pack(pair(two, 2, 1))
  local a = task:wait()
  local lost, won = a[1] and b or a, a[1] and a or b
  err("deadlock", lost[1], lost[2])
  print("one of two", won[1], second, db:query("SELECT SUM(n) AS n FROM d")[1].n)
  -- A statement that waits for a row which another transaction holds.
  assert(one:query "SET SESSION innodb_lock_wait_timeout = 1")
  two:transaction(function(tx)
    tx:query "SELECT * FROM d WHERE id = 1 FOR UPDATE"
    err("lock wait", one:query "UPDATE d SET n = 0 WHERE id = 1")
  end)
end

local function fences()
  local old, new = { token = 1 << 53 }, { token = (1 << 53) + 1 }
  local db, other = open { fence = "work" }, open { fence = "other" }
  local set = "UPDATE t SET name = ? WHERE id = 7"
  print("fenced", db:fenced(old, set, "old").count, db:fenced(new, set, "new").count)
  err("older", db:fenced(old, set, "older"))
  print("kept", db:query("SELECT name FROM t WHERE id = 7")[1].name, other:fenced(old, "SELECT 1 AS a")[1].a)
  print("both", db:fenced(new, function(tx) tx:query(set, "half") return tx:query(set, "whole") end).count)
  err("refused whole", db:fenced(old, function(tx) print "never" return tx:query(set, "older") end))
  -- A newer leader's write waits for what an older one has under way.
  local begun
  local slow = spawn(function()
    return open { fence = "work" }:fenced(new, function(tx)
      begun = true
      while begun == true do sleep(0.01) end
      return tx:query(set, "slow")
    end)
  end)
  while not begun do sleep(0.01) end
  local newest = spawn(function() return db:fenced({ token = new.token + 1 }, "UPDATE t SET name = CONCAT(name, ', newest') WHERE id = 7") end)
  -- InnoDB shows what it last showed if it was asked within 0.1 s.
  while open():query("SELECT COUNT(*) AS n FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'")[1].n == 0 do sleep(0.3) end
  begun = "enough"
  print("order", slow:wait().count, newest:wait().count, db:query("SELECT name FROM t WHERE id = 7")[1].name)
  db:query "DELETE FROM lunarch_fences"
  err("no fence", db:fenced(new, set, "two"))
  print("fence again", db:fenced(new, set, "two").count)
end

local function waits(db)
  local ticks = 0
  local ticker = spawn(function() while true do sleep(0.01) ticks = ticks + 1 end end)
  local before = ticks
  db:query "SELECT SLEEP(1)"
  print("ticks", ticks - before > 20)
  before = ticks
  local slow = open { timeout = 0.3 }
  local began = time.monotonic()
  local id = slow:query("SELECT CONNECTION_ID() AS id")[1].id
  err("slow", slow:query "SELECT SLEEP(600)")
  print("in time", time.monotonic() - began < 60, ticks > before)
  slow.timeout = 60
  print("another connection", slow:query("SELECT CONNECTION_ID() AS id")[1].id ~= id)
  -- A second task waits for its turn, and gives up in time.
  local order = {}
  local tasks = {}
  for i = 1, 5 do
    tasks[i] = spawn(function() local r = db:query("SELECT ? AS i, SLEEP(0.05)", i) order[#order + 1] = r[1].i end)
  end
  for i = 1, 5 do tasks[i]:wait() end
  print("in turn", table.unpack(order))
  local holds = spawn(function() return db:query "SELECT SLEEP(2) AS s" end)
  sleep(0)
  db.timeout = 0.2
  err("no turn", db:query "SELECT 1")
  db.timeout = 60
  print("holder", holds:wait()[1].s)
  -- A cancelled task takes its statement with it.
  local long = spawn(function() db:query "SELECT SLEEP(600), 'cancelled'" end)
  while open():query("SELECT COUNT(*) AS n FROM information_schema.processlist WHERE info LIKE '%''cancelled%' AND info NOT LIKE '%processlist%'")[1].n == 0 do
    sleep(0.05)
  end
  long:cancel()
  print("after cancel", db:query("SELECT 5 AS a")[1].a)
  local begun
  local inside = spawn(function() db:transaction(function(tx) tx:query "UPDATE t SET name = 'lost' WHERE id = 7" begun = true sleep(600) end) end)
  while not begun do sleep(0.01) end
  inside:cancel()
  print("cancelled transaction", db:query("SELECT name FROM t WHERE id = 7")[1].name)
  -- Cancelled in the middle of a long answer.
  for i = 1, 20 do
    local big = spawn(function() db:query "SELECT REPEAT('x', 1000) AS x FROM seq_1_to_20000" end)
    sleep(0.002 * i)
    big:cancel()
  end
  print("after many", db:query("SELECT 6 AS a")[1].a)
  ticker:cancel()
end

local function faults()
  local db = open { port = proxied }
  print("through", db:query("SELECT 1 AS a")[1].a)
  print "now lose"
  while not io.open(pki .. "/lost") do sleep(0.01) end
  db.timeout = 1
  db:query "SELECT 1" -- on the connection of before
  err("lost bytes", db:query "SELECT 1")
  print "now heal"
  db.timeout = 60
  ready("healed", db)
  print "now cut"
  err("cut", db:query "SELECT SLEEP(600), 'cut'")
  ready("after cut", db)
  print "now idle cut"
  while db:query("SELECT 1") and #db:query("SELECT 1 FROM t WHERE name = 'cut idle'") == 0 do sleep(0.05) end
  print "idle was cut"
  sleep(0.1)
  print("idle", db:query("SELECT 8 AS a")[1].a)
  print "now freeze"
  db.timeout, db.connect_timeout = 1, 1
  local rows, e
  repeat rows, e = db:query "SELECT 'frozen'" until not rows
  err("frozen", rows, e)
  err("frozen log-in", db:query "SELECT 1")
  print "now thaw"
  db.timeout, db.connect_timeout = 60, 60
  ready("thawed", db)
  print "now kill"
  err("killed", db:query "SELECT SLEEP(600), 'kill'")
  err("gone", db:query "SELECT 1")
  print "now start"
  ready("started", db)
  local tx = db:transaction(function(tx)
    assert(tx:query "UPDATE t SET name = 'half' WHERE id = 7")
    print "now cut transaction"
    err("tx cut", tx:query "SELECT SLEEP(600), 'tx'")
    return true
  end)
  print("half", tx, db:query("SELECT name FROM t WHERE id = 7")[1].name)
  err("connection killed", db:query "KILL CONNECTION CONNECTION_ID()")
  print("after kill", db:query("SELECT 9 AS a")[1].a)
end

local function secure()
  local function try(what, options)
    options.port = options.port or math.tointeger(tonumber(tls_port))
    local db, e = open(options)
    if not db then return err(what, nil, e) end
    print(what, db:query("SHOW STATUS LIKE 'Ssl_cipher'")[1].Value ~= "", #db:query("SELECT REPEAT('x', 1000000) AS x")[1].x)
    err(what .. " slow", (function() db.timeout = 0.2 return db:query "SELECT SLEEP(600)" end)())
    db.timeout = 60
    print(what .. " again", db:query("SELECT 1 AS a")[1].a)
  end
  local ca = pki .. "/ca.crt"
  try("tls", { tls = { ca = ca } })
  try("tls name", { host = "localhost", tls = { ca = ca } })
  try("tls wrong ca", { tls = { ca = pki .. "/other/ca.crt" } })
  try("tls system ca", { tls = true })
  try("tls no file", { tls = { ca = ca .. ".none" } })
  try("tls wrong name", { port = math.tointeger(tonumber(other_port)), tls = { ca = ca } })
  try("tls unverified", { tls = { verify = false } })
  try("tls no tls", { port = port, tls = { ca = ca } })
  try("tls client", { user = "certified", password = "", tls = { ca = ca, cert = pki .. "/client.crt", key = pki .. "/client.key" } })
  try("tls no client", { user = "certified", password = "", tls = { ca = ca } })
end

return { on_leading = function()
  local db = assert(open())
  values(db)
  refusals(db)
  transactions(db)
  fences()
  waits(db)
  faults()
  secure()
  for _, f in ipairs { function() mysql.open {} end, function() mysql.open { host = "x", unix = "y" } end, function() open { timout = 1 } end,
    function() open { port = 0 } end, function() open { tls = { cafile = "x" } } end, function() open { unix = "x", tls = true } end,
    function() db:query() end, function() db:query("SELECT ?") end, function() db:query("SELECT ?", 1, 2) end,
    function() db:query("SELECT ?", print) end, function() db:query("SELECT ?", 0 / 0) end, function() db:transaction() end,
    function() db:fenced("UPDATE") end, function() db:fenced({ token = 1 }, 5) end, function() db:querry() end } do
    print("misuse", select(2, pcall(f)))
  end
  print("still", db:query("SELECT 1 AS a")[1].a)
  lunarch.exit(0)
end }

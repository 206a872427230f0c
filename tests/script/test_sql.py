#!/usr/bin/env -S PYTHONPATH=. python3
"""lunarch.sql with a real PostgreSQL: values are never SQL, rows are values, an older leader's write is refused, also
when it is already under way, and what cannot be done is said. (examples/postgres.lua, by a lock in the same database:
tests/examples/postgres.py.)"""

import json
import os

from tests.lib.candidates import Candidate, stop_everyone
from tests.lib.processes import PATIENCE, scratch
from tests.lib.servers import Bouncer, Postgres, free_port
from tests.lib.tap import done, note, ok, same

MODULE = r"""
local sql = require "lunarch.sql"
local port, nobody, bouncer = ...
local function uri(login, p)
  return ("postgres://%s127.0.0.1:%s/postgres"):format(login or "user:moon%20light@", p or port)
end
local function err(what, ...) local rows, e = ... print(what, rows, e.code, e) return e end
local db = sql.connect(uri(), { timeout = 30 })
local root = sql.connect(uri "lunarch@", { timeout = 30 })
local function values()
  print("made", root:run("CREATE TABLE t (id int, name text, at jsonb); GRANT ALL ON t TO PUBLIC; "
    .. "GRANT CREATE ON SCHEMA public TO PUBLIC"))
  local odd = "O'Neill \\' \"x\" :x :'y' $1 \n\t\r\1 ; DROP TABLE t; -- $(id) `id` \u{20ac}"
  local rows = assert(db:query("INSERT INTO t VALUES ($1, $2, $3) RETURNING *", 7, odd, { list = { 1, 2 } }))
  print("odd", rows[1].name == odd, rows[1].id == 7, rows[1].at.list[2], rows.count, #rows)
  print("null", db:query("INSERT INTO t VALUES ($1, $2) RETURNING id, name", nil, json.null)[1].name,
    db:query("SELECT 1 AS a WHERE $1::int IS NULL", nil).count)
  print("update", db:query("UPDATE t SET id = 9 WHERE id = $1;", 7).count,
    #db:query("UPDATE t SET id = 7 WHERE id = 9"))
  print("none", #db:query "SELECT * FROM t WHERE false", db:query "SELECT * FROM t WHERE false".count)
  local one = db:query("SELECT $1::bigint AS big, 1.5::float8 AS real, 1.50::numeric AS exact, true AS yes, "
    .. "false AS no, '' AS empty, NULL AS nothing, now() AS t, "
    .. "$2::float8 AS far, ARRAY[1,2] AS list, 'a:b'::text AS colon", math.maxinteger, 0.1)[1]
  print("types", one.big == math.maxinteger, math.type(one.real), one.exact, one.yes, one.no, one.empty == "",
    one.nothing, one.far == 0.1, one.list, one.colon)
  print("many", #db:query "SELECT i, repeat('x', 100) AS x FROM generate_series(1, 5000) i ORDER BY i",
    db:query("SELECT i FROM generate_series(1, 50) i ORDER BY i")[50].i)
end
local function refusals()
  print("state", err("syntax", db:query "SELEC 1").sqlstate, err("unique", db:query "SELECT 1 / 0").sqlstate)
  err("rights", db:query "SELECT * FROM pg_authid")
  err("password", sql.connect(uri "user:wrong@"):query "SELECT 1")
  err("nowhere", sql.connect(uri(nil, nobody)):query "SELECT 1")
  err("slow", sql.connect(uri(), { timeout = 0.3 }):query "SELECT pg_sleep(60)")
  err("big", db:query "SELECT repeat('x', 1000) AS x FROM generate_series(1, 40000)")
  err("run", db:run "CREATE TABLE u (a int); CREATE TABLE u (a int)")
  print("rolled back", db:query("SELECT to_regclass('u') AS u")[1].u)
end
local function fences()
  local old, new = { token = (1 << 53) }, { token = (1 << 53) + 1 }
  print("first", db:fenced(old, "UPDATE t SET name = $1 WHERE id = 7", "old").count,
    db:fenced(new, "UPDATE t SET name = $1 WHERE id = 7", "new").count)
  err("older", db:fenced(old, "UPDATE t SET name = $1 WHERE id = 7", "old again"))
  print("kept", db:query("SELECT name FROM t WHERE id = 7")[1].name)
  print("other work", sql.connect(uri(), { fence = "other" }):fenced(old, "SELECT 1 AS a")[1].a)
  local both = assert(db:fenced_all(new, { { "UPDATE t SET name = $1 WHERE id = $2 RETURNING name", "both", 7 },
    { "SELECT $1::int AS a, $2::text AS b", nil, "x", n = 3 } }))
  print("both", both[1][1].name, both[2][1].a, both[2][1].b)
  err("neither", db:fenced_all(new, { { "UPDATE t SET name = 'neither' WHERE id = 7" }, { "SELECT 1 / 0" } }))
  print("still", db:query("SELECT name FROM t WHERE id = 7")[1].name)
  -- A newer leader's write waits for one that is under way, so that the older one's cannot come after it.
  local slow = spawn(function()
    return db:fenced(new, "UPDATE t SET name = 'slow' WHERE id = 7 AND pg_sleep(2) IS NOT NULL")
  end)
  while not slow:done() and db:query("SELECT count(*) AS n FROM pg_stat_activity "
    .. "WHERE query LIKE 'EXECUTE lunarch%' AND state = 'active' "
    .. "AND pid <> pg_backend_pid()")[1].n == 0 do sleep(0.05) end
  print("newest", db:fenced({ token = new.token + 1 },
    "UPDATE t SET name = name || ', then newest' WHERE id = 7").count, slow:wait().count)
  print("order", db:query("SELECT name FROM t WHERE id = 7")[1].name)
end
local function pooled() -- connections are shared by transactions: nothing may be left behind in one
  local pool = sql.connect(uri("lunarch@", bouncer), { timeout = 30 })
  for i = 1, 5 do
    assert(pool:fenced({ token = 1 << 60 }, "UPDATE t SET id = $1 WHERE id = $2", 7, 7))
    pool:query("SELECT $1::int / 0", i)
  end
  print("pooled", pool:query("SELECT count(*) AS n FROM pg_prepared_statements")[1].n,
    sql.connect(uri("lunarch@", bouncer)):run "SELECT 1", pool:query("SELECT $1 AS a", "b")[1].a)
end
return { on_leading = function(term)
  values()
  refusals()
  fences()
  pooled()
  for _, f in ipairs { function() sql.connect "mysql://x" end, function() sql.connect(uri(), { timout = 1 }) end,
    function() db:query() end,
    function() db:query("SELECT $1", print) end, function() db:query("SELECT $1", "a\0b") end,
    function() db:fenced("UPDATE") end,
    function() db:fenced_all(term, { "SELECT 1" }) end, function() sql.beside(term) end,
    function() sql.connect(uri() .. "?sslpassword=moon%20light") end } do
    print("misuse", select(2, pcall(f)))
  end
  lunarch.exit(0)
end }
"""

script = os.path.join(scratch(), "module.lua")
with open(script, "w") as f:
    f.write(MODULE)
with Postgres(auth="scram-sha-256") as server, Bouncer(server) as bouncer:
    server.sql("CREATE USER \"user\" PASSWORD 'moon light'")
    c = Candidate(
        "--lock", script + ".lock", script, "--", str(server.port), str(free_port()), str(bouncer.port), options=()
    )
    same(c.leave(3 * PATIENCE), 0, "lunarch.sql does what it says to the end")
said = [e["message"] for e in c.all("print")]


def has(*words: str) -> bool:
    return any(m.startswith(words[0]) and all(w in m for w in words) for m in said)


good = True
good &= ok(has("made\ttrue"), "tables are made")
good &= ok(has("odd\ttrue\ttrue\t2\t1\t1"), "a value comes back as it was, whatever SQL it looks like")
good &= ok(has("null\tnil\t1"), "nil is NULL, and NULL nil")
good &= ok(has("update\t1\t0") and has("none\t0\t0"), "a statement without rows says how many it has changed")
good &= ok(has("types\ttrue\tfloat\t1.50\ttrue\tfalse\ttrue\tnil\ttrue\t{1,2}\ta:b"), "values have their types")
good &= ok(has("many\t5000\t50"), "many rows come in their order")
good &= ok(
    has("state\t42601\t22012")
    and has("syntax\tnil\tfailed", "SELEC")
    and has("unique\tnil\tfailed", "division by zero"),
    "what the server refuses is an error with its words and its code",
)
good &= ok(has("rights\tnil\tdenied") and has("password\tnil\tdenied"), "so are missing rights, and a wrong password")
good &= ok(has("nowhere\tnil\tunreachable"), "so is a server that is not there")
good &= ok(has("slow\tnil\ttimeout"), "the server gives up a statement that takes too long")
good &= ok(has("big\tnil\tfull"), "more than fits is an error")
good &= ok(has("run\tnil\tfailed", "already exists") and has("rolled back\tnil"), "what fails in the middle is undone")
good &= ok(has("first\t1\t1"), "a fenced write is done for a larger token")
good &= ok(
    has("older\tnil\tfenced", "FENCED") and has("kept\tnew"),
    "and refused to a smaller one, also where tokens are larger than what a double counts",
)
good &= ok(has("other work\t1"), "fences of different work are apart")
good &= ok(has("both\tboth\tnil\tx"), "several statements go in one transaction")
good &= ok(has("neither\tnil\tfailed") and has("still\tboth"), "all of them or none")
good &= ok(
    has("newest\t1\t1") and has("order\tslow, then newest"),
    "a newer leader's write waits for what an older one has under way",
)
good &= ok(has("pooled\t1\ttrue\tb"), "behind a pooler, in transaction mode, too, and nothing of it stays there")
same(len([m for m in said if m.startswith("misuse")]), 9, "misuse raises")
for word in (
    "postgres://USER@HOST:PORT/DATABASE, found mysql://; lunarch.mysql is for",
    "did you mean 'timeout'",
    "found nil",
    "found a function",
    "zero byte",
    "found a string",
    "found a string",
    "expected a term whose lock is postgres://..., found ",
    "connection service file",
):
    good &= ok(has("misuse", word), f"with the reason: {word}")
ok(not any(p in json.dumps(e) for e in c.events for p in ("moon light", "moon%20light")), "the password is in no log")
if not good:
    note("\n".join(said))
    note("\n".join(e["message"] for e in c.all("hook_failed") + c.all("stopped_leading")))
stop_everyone()
done()

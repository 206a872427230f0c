#!/usr/bin/env -S PYTHONPATH=. python3
"""examples/migrate.lua: on a real PostgreSQL every migration is run exactly once, though three start at a time and
leaders are killed over it."""

import os
import shutil
import signal
import subprocess
from typing import Any

from tests.lib.candidates import Candidate, stop_everyone
from tests.lib.processes import ROOT, piped, scratch, wait_for
from tests.lib.servers import Postgres
from tests.lib.tap import done, ok, same

SCRIPT = os.path.join(ROOT, "examples", "migrate.lua")
where = scratch()
FILES = os.path.join(where, "migrations")
os.mkdir(FILES)


def put(name: str, text: str) -> None:
    with open(os.path.join(where, "new"), "w") as f:
        f.write(text)
    os.rename(os.path.join(where, "new"), os.path.join(FILES, name))


with Postgres() as server:
    database = f"host=127.0.0.1 port={server.port} user={server.superuser} dbname=postgres"

    def join(name: str) -> Any:
        return Candidate(
            "--lock",
            os.path.join(where, "lock"),
            "--identity",
            name,
            SCRIPT,
            "--",
            database,
            FILES,
            env={"PATH": os.path.dirname(server.binary("psql")) + ":" + os.environ["PATH"]},
        )

    def counts() -> list[str]:
        """How often each has run: its INSERT is committed with it."""
        return server.sql("SELECT what, count(*) FROM ran GROUP BY what ORDER BY what").split()

    put("01-tables.sql", "CREATE TABLE ran (what text);\nINSERT INTO ran VALUES ('01');\n")
    put("02-it's slow.sql", "INSERT INTO ran VALUES ('02');\nSELECT pg_advisory_xact_lock(7);\n")
    put("03-last.sql", "INSERT INTO ran VALUES ('03');\n")
    put("README", "not SQL\n")
    hold = subprocess.Popen(
        [server.binary("psql"), "-XqAt", "-d", database], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    piped(hold.stdin).write("SELECT pg_advisory_lock(7); SELECT 'held';\n")
    piped(hold.stdin).flush()
    while "held" not in (piped(hold.stdout).readline() or "held"):
        pass

    def waiting() -> str:
        return server.sql("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")

    a = join("a")
    ok(
        a.wait("became_leader") and wait_for(lambda: waiting() == "1"),
        "one leads, and is in the middle of the second migration",
    )
    b, c = join("b"), join("c")
    ok(b.wait("new_leader") and c.wait("new_leader"), "two others wait")
    same(counts(), ["01|1"], "the first is done, the second is not")
    a.kill(signal.SIGKILL)
    ok(wait_for(lambda: b.all("became_leader") or c.all("became_leader")), "when the leader is killed another leads")
    ok(wait_for(lambda: waiting() >= "1"), "and begins the second migration again")
    piped(hold.stdin).close()
    hold.wait()
    same((b.leave(), c.leave()), (0, 0), "both come to the end and leave")
    same(counts(), ["01|1", "02|1", "03|1"], "each migration was run exactly once")
    same(
        server.sql("SELECT name FROM migrations ORDER BY at, name"),
        "01-tables.sql\n02-it's slow.sql\n03-last.sql",
        "in order, each with its name",
    )
    put("04-broken.sql", "INSERT INTO ran VALUES ('04');\nINSERT INTO no_such_table VALUES (1);\n")
    put("05-after.sql", "INSERT INTO ran VALUES ('05');\n")
    d = join("d")
    failed = d.wait("stopped_leading", "error")
    ok(
        failed and any("04-broken.sql" in e.get("message", "") and "no_such_table" in e["message"] for e in d.events),
        "a migration that fails ends the term, and says why",
    )
    same(counts(), ["01|1", "02|1", "03|1"], "nothing of it is left, and none that comes after it has run")
    put("04-broken.sql", "INSERT INTO ran VALUES ('04');\n")
    same(d.leave(), 0, "when it is mended the same machine comes to the end")
    same(counts(), ["01|1", "02|1", "03|1", "04|1", "05|1"], "and all have run once")
    server.stop()
    e = join("e")
    ok(e.wait("became_leader"), "while the database is down")
    server.start()
    same(e.leave(), 0, "who leads waits for it")
stop_everyone()
shutil.rmtree(where)
done()

#!/usr/bin/env -S PYTHONPATH=. python3
"""examples/mysql.lua: jobs are done once each, under the token of the term that did them."""

import os
import signal
from typing import Any

from tests.lib.candidates import Candidate, stop_everyone
from tests.lib.processes import ROOT, wait_for
from tests.lib.servers import MariaDB
from tests.lib.tap import done, ok, same

SCRIPT = os.path.join(ROOT, "examples", "mysql.lua")

with MariaDB("--innodb-flush-log-at-trx-commit=1") as server:
    server.sql("CREATE USER luna; GRANT ALL ON test.* TO luna")
    server.sql("CREATE TABLE jobs (id INT AUTO_INCREMENT PRIMARY KEY, work TEXT, done_by BIGINT, done_at DATETIME(6))")

    def join(name: str) -> Any:
        at = ["127.0.0.1", str(server.port), "test", "luna", "0.1"]
        lock = f"mysql://luna@127.0.0.1:{server.port}/test#jobs"
        return Candidate("--lock", lock, "--identity", name, SCRIPT, "--", *at)

    def add() -> None:
        server.sql("INSERT INTO jobs (work) VALUES ('w')")

    def left() -> str:
        return server.sql("SELECT COUNT(*) FROM jobs WHERE done_at IS NULL")

    def by() -> int:
        return int(server.sql("SELECT done_by FROM jobs ORDER BY id DESC LIMIT 1"))

    add()
    add()
    a = join("a")
    first = a.wait("became_leader")
    ok(first, "one leads, with the table of locks made by itself")
    ok(wait_for(lambda: left() == "0"), "it does the jobs")
    same(by(), first["token"], "under its token")
    b = join("b")
    ok(b.wait("new_leader"), "another waits")
    a.kill(signal.SIGTERM)
    second = b.wait("became_leader")
    add()
    ok(wait_for(lambda: left() == "0"), "after a handover it is the other who does them")
    ok(by() == second["token"] > first["token"], "under a larger token")
    same(a.leave(), 0, "the first has ended in peace")
    server.sql("UPDATE lunarch_fences SET token = token + 1000000000000 WHERE name = 'jobs'")
    add()
    ok(b.wait("stopped_leading"), "a leader whose token is not the newest does nothing: its term ends")
    ok("FENCED" in " ".join(e.get("message", "") for e in b.events), "and says why")
    same(left(), "1", "and the job is not done")
stop_everyone()
done()

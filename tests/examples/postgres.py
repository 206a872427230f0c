#!/usr/bin/env -S PYTHONPATH=. python3
"""examples/postgres.lua: jobs are done once each, under the token of the term that did them."""

import os
import signal
import time
from typing import Any

from tests.lib.candidates import Candidate, stop_everyone
from tests.lib.processes import ROOT, wait_for
from tests.lib.servers import Postgres
from tests.lib.tap import done, note, ok, same

SCRIPT = os.path.join(ROOT, "examples", "postgres.lua")

with Postgres() as server:
    server.sql("CREATE TABLE jobs (id serial PRIMARY KEY, work text, done_by bigint, done_at timestamptz)")

    def join(name: str) -> Any:
        return Candidate("--lock", server.url("jobs"), "--identity", name, SCRIPT, "--", "0.1")

    def add() -> None:
        server.sql("INSERT INTO jobs (work) VALUES ('w')")

    def left() -> Any:
        return server.sql("SELECT count(*) FROM jobs WHERE done_at IS NULL")

    def by() -> Any:
        return server.sql("SELECT done_by FROM jobs ORDER BY id DESC LIMIT 1")

    add()
    add()
    a = join("a")
    first = a.wait("became_leader")
    ok(first, "one leads, with the table of locks made by itself")
    ok(wait_for(lambda: left() == "0"), "it does the jobs")
    same(by(), str(first["token"]), "under its token")
    b = join("b")
    ok(b.wait("new_leader"), "another waits")
    began = time.monotonic()
    a.kill(signal.SIGTERM)
    second = b.wait("became_leader")
    note(f"handover, from the signal: {(second['seen'] - began) * 1000:.1f} ms")
    add()
    ok(wait_for(lambda: left() == "0"), "after a handover it is the other who does them")
    ok(int(by()) == second["token"] > first["token"], "under a larger token")
    same(a.leave(), 0, "the first has ended in peace")
    terms = len(b.all("became_leader"))
    server.sql("UPDATE lunarch_locks SET token = token + 1000000000 WHERE name = 'jobs'")
    add()
    ok(b.wait("stopped_leading"), "a leader whose token is not the newest does nothing: its term ends")
    ok("FENCED" in " ".join(e.get("message", "") for e in b.events), "and says why")
    third = b.wait("became_leader", count=terms + 1)
    ok(
        wait_for(lambda: left() == "0") and int(by()) == third["token"],
        "the next term has a newer token, and does the job",
    )
    server.restart()
    add()
    ok(wait_for(lambda: left() == "0"), "after a restart of the server it goes on")
    b.kill(signal.SIGKILL)
    c = join("c")
    ok(c.wait("became_leader"), "after a crash another leads")
    add()
    ok(wait_for(lambda: left() == "0"), "and goes on")
stop_everyone()
done()

#!/usr/bin/env -S PYTHONPATH=. python3
"""examples/redis.lua: jobs that are due are moved by whoever leads, and by nobody else."""

import os
import signal
import time
from typing import Any

from tests.lib.candidates import Candidate, stop_everyone
from tests.lib.processes import ROOT, wait_for
from tests.lib.servers import Redis
from tests.lib.tap import done, note, ok, same

SCRIPT = os.path.join(ROOT, "examples", "redis.lua")

with Redis() as server:

    def join(name: str) -> Any:
        return Candidate("--lock", server.url("{jobs}"), "--identity", name, SCRIPT, "--", "{jobs}", "0.1")

    def ready() -> list[str]:
        return [j for j in server.cli("LRANGE", "{jobs}:ready", "0", "-1").splitlines() if j]

    server.cli("ZADD", "{jobs}:due", "1", "early", str(int(time.time()) + 86400), "tomorrow")
    a = join("a")
    ok(a.wait("became_leader"), "one leads")
    ok(wait_for(lambda: ready() == ["early"]), "it moves the job that is due")
    same(server.cli("ZRANGE", "{jobs}:due", "0", "-1"), "tomorrow", "and leaves the one that is not")
    b = join("b")
    ok(b.wait("new_leader"), "another waits")
    began = time.monotonic()
    a.kill(signal.SIGTERM)
    took = b.wait("became_leader")["seen"] - began
    note(f"handover, from the signal: {took * 1000:.1f} ms")
    server.cli("ZADD", "{jobs}:due", "1", "second")
    ok(wait_for(lambda: ready() == ["early", "second"]), "after a handover it is the other who moves jobs")
    same(a.leave(), 0, "the first has ended in peace")
    terms = len(b.all("became_leader"))
    server.cli("HSET", "{jobs}:lunarch", "token", str(2**52))
    server.cli("ZADD", "{jobs}:due", "1", "third")
    ok(b.wait("stopped_leading"), "a leader whose token is not the newest moves nothing: its term ends")
    said = " ".join(e.get("message", "") for e in b.events)
    ok("FENCED" in said, "and says why")
    ok(b.wait("became_leader", count=terms + 1), "the next term has a newer token")
    ok(wait_for(lambda: ready() == ["early", "second", "third"]), "and moves the job")
    b.kill(signal.SIGKILL)
    wait_for(lambda: b.leave(0.1) is not None)
    c = join("c")
    ok(c.wait("became_leader"), "after a crash another leads")
    server.cli("ZADD", "{jobs}:due", "1", "fourth")
    ok(wait_for(lambda: ready()[-1:] == ["fourth"]), "and goes on")
    odd = Candidate("--lock", server.url("a%7Db"), "--identity", "odd", SCRIPT, "--", "odd", "0.1")
    ok(odd.wait("became_leader"), "a lock's key may have a brace that closes none")
    server.cli("ZADD", "odd:due", "1", "first")
    ok(wait_for(lambda: server.cli("LLEN", "odd:ready") == "1"), "its leader moves jobs")
    server.cli("HSET", "a}b:lunarch", "token", str(2**52))
    server.cli("ZADD", "odd:due", "1", "late")
    ok(odd.wait("stopped_leading"), "and is refused once the lock has counted on")
stop_everyone()
done()

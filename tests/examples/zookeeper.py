#!/usr/bin/env -S PYTHONPATH=. python3
"""examples/zookeeper.lua: every line is shipped once, in order, by whoever leads, from where the last leader
stopped."""

import os
import re
import signal
import time
from typing import Any

from tests.lib.candidates import Candidate, stop_everyone
from tests.lib.processes import ROOT, wait_for
from tests.lib.servers import ZooKeeper
from tests.lib.stores import Zk
from tests.lib.tap import done, note, ok, same

SCRIPT = os.path.join(ROOT, "examples", "zookeeper.lua")

with ZooKeeper() as server:
    source, target = os.path.join(server.dir, "source"), os.path.join(server.dir, "target")

    def join(name: str) -> Any:
        return Candidate(
            "--lock",
            server.url("jobs/ship"),
            "--identity",
            name,
            SCRIPT,
            "--",
            source,
            f'sed "s/^/$LINE $LUNARCH_TOKEN /" >> {target}',
            "0.1",
        )

    def add(*lines: str) -> None:
        with open(source, "a") as f:
            f.write("".join(lines))

    def shipped() -> Any:
        try:
            with open(target) as f:
                return [line.split() for line in f.read().splitlines()]
        except FileNotFoundError:
            return []

    def texts() -> list[str]:
        return [line[-1] for line in shipped()]

    def saved(lines: Any) -> Any:
        """It is in the record that so many were shipped."""

        def there() -> Any:
            with Zk(server.port) as z:
                return re.search(rb'"lines":\s*%d\b' % lines, z.ask(4, z.text("/jobs/ship") + b"\0")[1])

        return wait_for(there)

    add("one\n", "two\n", "thr")
    a = join("a")
    first = a.wait("became_leader")
    ok(first, "one leads")
    ok(wait_for(lambda: texts() == ["one", "two"]), "it ships the whole lines")
    same(shipped()[0], ["1", str(first["token"]), "one"], "with their number and its token")
    b = join("b")
    ok(b.wait("new_leader"), "another waits")
    add("ee\n")
    ok(wait_for(lambda: texts() == ["one", "two", "three"]), "a line is shipped when it is whole")
    ok(saved(3), "and how far it has come is in the lock's record")
    began = time.monotonic()
    a.kill(signal.SIGTERM)
    second = b.wait("became_leader")
    note(f"handover, from the signal: {(second['seen'] - began) * 1000:.1f} ms")
    add("four\n")
    ok(wait_for(lambda: texts() == ["one", "two", "three", "four"]), "after a handover the other goes on from there")
    ok(int(shipped()[-1][1]) == second["token"] > first["token"], "with a larger token")
    same(a.leave(), 0, "the first has ended in peace")
    saved(4)
    server.restart()
    add("five\n")
    ok(wait_for(lambda: texts()[-1:] == ["five"]), "after a restart of the server it goes on")
    note(f"at a restart it had led on: {not b.all('stopped_leading')}")
    saved(5)
    b.kill(signal.SIGKILL)
    add("six\n")
    c = join("c")
    ok(c.wait("became_leader"), "after a crash another leads")
    ok(wait_for(lambda: texts()[-1:] == ["six"]), "and goes on")
    same(texts(), ["one", "two", "three", "four", "five", "six"], "no line is missing, none came twice")
stop_everyone()
done()

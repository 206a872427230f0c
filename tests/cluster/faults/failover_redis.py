#!/usr/bin/env -S PYTHONPATH=. python3
"""A Redis primary dies, and an asynchronous replica that lacks the last term is promoted; or the primary that died
comes back as one: nobody leads beside another, and that there are two primaries is said."""

import json
import os
import signal
import time
from typing import Any

from tests.lib import pairs
from tests.lib.commands import run
from tests.lib.pairs import PATIENT
from tests.lib.processes import wait_for
from tests.lib.proxy import Proxy
from tests.lib.servers import Redis
from tests.lib.tap import ok, same


class Pair(pairs.Pair):
    def __init__(self, name: str, *options: str, behind: int = 0) -> None:
        super().__init__(name)
        self.first = Redis(*options)
        self.link = Proxy(self.first.port)
        self.second = Redis(replica_of=self.link, start=False)
        if behind:
            self.set_back(behind)
        self.second.start()
        wait_for(lambda: "master_link_status:up" in self.second.cli("INFO", "replication"))

    def url(self, *ports: Any) -> Any:
        return f"redis://{','.join(f'127.0.0.1:{p}' for p in ports)}/f"

    def shows(self, server: Redis) -> dict[str, Any]:
        """The record there; {}: none."""
        try:
            return json.loads(server.cli("GET", "f") or "{}")
        except ValueError:
            return {}

    def promote(self) -> None:
        self.second.cli("REPLICAOF", "NO", "ONE")

    def now(self) -> float:
        return float(self.second.cli("TIME").split()[0])

    def checkpoints(self, kept: bool = False) -> list[Any]:
        return []  # the lost term's are lost with it


def ctl(path: str, what: str) -> str:
    return run("ctl", "--control", path, what).stdout


def comes_back() -> None:
    """X leads on the promoted server; the old one is a primary again, with an older record of X, and who starts now
    could lead there."""
    f = Pair("comes back", "--appendonly", "yes", "--appendfsync", "always")
    x = f.enter("x", times=PATIENT)
    ok(f.acts(1, "x"), f"{f.name}: x leads")
    f.renewed()
    f.fail_over()
    ok(f.renewed() and len(f.terms()) == 1, f"{f.name}: x's term goes on on the promoted server")
    f.first.start()
    door = os.path.join(f.dir, "door")
    y = f.enter("y", times=PATIENT, options=("--control", door))
    told = f"127.0.0.1:{f.first.port} and 127.0.0.1:{f.second.port} both say that they are primaries"
    ok(
        y.wait("read_failed", told) or y.wait("acquire_failed", told),
        f"{f.name}: y, who starts now, says that there are two primaries",
    )
    ok(wait_for(lambda: told in ctl(door, "why")), f"{f.name}: so does ctl why")
    r = run("status", "--lock", f.url(f.first.port, f.second.port))
    ok(r.returncode and told in r.stderr, f"{f.name}: and status")
    time.sleep(20)  # longer than two leases
    same(
        (len(f.terms()), len(y.all("became_leader")), len(x.all("stopped_leading"))),
        (1, 0, 0),
        f"{f.name}: y is not elected, and x leads on",
    )
    f.first.cli("REPLICAOF", "127.0.0.1", str(f.second.port))
    ok(y.wait("new_leader", "x leads"), f"{f.name}: the old one becomes a replica, and y follows x")
    x.kill(signal.SIGTERM)
    x.leave()
    ok(f.acts(1, "y"), f"{f.name}: and is the next")
    f.close()


pairs.play(
    let_go=lambda: pairs.let_go(Pair("let go")),
    clock_behind=lambda: pairs.clock_behind(Pair("clock behind", behind=3600)),
    comes_back=comes_back,
)

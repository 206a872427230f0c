#!/usr/bin/env -S PYTHONPATH=. python3
"""A Redis primary dies, and an asynchronous replica that lacks the last term is promoted; or the primary that died
comes back as one: nobody leads beside another, and that there are two primaries is said."""

import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
from typing import Any

from tests.lib.candidates import stop_everyone, timing
from tests.lib.field import FAULTS, Field, build
from tests.lib.processes import LUNARCH, wait_for
from tests.lib.proxy import Proxy
from tests.lib.servers import Redis
from tests.lib.tap import at_once, done, failures, ok, same

# The record is as a renewal left it for longer than the test needs to hold the replica back behind it.
SELDOM = timing("9s", renew="6s", retry="3s", stop_grace="500ms", kill="750ms", drift="750ms")
PATIENT = [*SELDOM, "--retry-period", "500ms"]


class Pair(Field):
    """A primary, and a replica behind a proxy that can hold it back."""

    def __init__(self, name: str, *options: Any, behind: int = 0) -> None:
        super().__init__(name)
        self.first = Redis(*options)
        self.link = Proxy(self.first.port)
        self.second = Redis(replica_of=self.link, start=False)
        if behind:
            self.set_back(behind)
        self.second.start()
        wait_for(lambda: "master_link_status:up" in self.second.cli("INFO", "replication"))
        self.lock = self.url(self.first.port, self.second.port)

    def join(self, name: str, *options: Any, **kw: Any) -> Any:
        return super().join(name, *options, script=os.path.join(FAULTS, "still.lua"), **kw)

    def set_back(self, seconds: float) -> None:
        """The replica's clock."""
        shim, clock = os.path.join(self.second.dir, "shim.so"), os.path.join(self.second.dir, "clock")
        shutil.copy(build("shim.c", "-shared", "-fPIC"), shim)
        with open(clock, "wb") as f:
            f.write(struct.pack("q", -seconds * 10**9))
        self.second.environment = {"LD_PRELOAD": shim, "SHIM_CLOCK": clock}

    def url(self, *ports: Any) -> Any:
        return f"redis://{','.join(f'127.0.0.1:{p}' for p in ports)}/f"

    def shows(self, server: Any) -> Any:
        """The record there; {}: none."""
        try:
            return json.loads(server.cli("GET", "f") or "{}")
        except ValueError:
            return {}

    def record(self) -> Any:
        return self.shows(self.second)

    def hold_back(self) -> None:
        """Right behind a renewal, which the replica has."""

        def held() -> Any:
            self.link.freeze()
            if self.shows(self.first).get("write") == self.shows(self.second).get("write"):
                return True
            self.link.thaw()

        before = self.shows(self.second).get("write")
        wait_for(lambda: self.shows(self.second).get("write") != before)
        ok(wait_for(held), f"{self.name}: the replica has the leader's last renewal")

    def fail_over(self) -> None:
        self.first.kill()
        self.link.close()
        self.second.cli("REPLICAOF", "NO", "ONE")

    def checkpoints(self, kept: bool = False) -> Any:
        return []  # the lost term's are lost with it

    def close(self) -> None:
        if not self.verdict(self.name) or failures():
            self.logs()
        self.end()
        self.first.close()
        self.second.close()


def let_go() -> None:
    """A release whose answer is lost: its sender finds his own renewal on the promoted server, and who led after him is
    not to be seen."""
    f = Pair("let go")
    way = Proxy(f.first.port)
    a = f.join("a", lock=f.url(way.port, f.second.port), times=SELDOM)
    ok(f.acts(1, "a"), f"{f.name}: a leads")
    b = f.join("b", lock=f.url(f.first.port), times=SELDOM)
    ok(b.wait("new_leader"), f"{f.name}: b follows, who knows only the primary")
    f.hold_back()
    way.lose_answer_to(b'"released"')
    a.kill(signal.SIGKILL, a.worker())  # a resignation would keep it out for as long as its own record counts
    ok(f.acts(2) and f.terms()[1][1] == "b", f"{f.name}: a lets go, and b leads")
    ok(a.wait("release_failed") and a.wait("new_leader", "b leads"), f"{f.name}: a, whose answer was lost, follows b")
    f.fail_over()
    way.close()
    same(
        (f.shows(f.second)["holderIdentity"], f.shows(f.second)["state"]),
        ("a", "leading"),
        f"{f.name}: the promoted server shows a's own renewal",
    )
    ok(a.wait("acquire_failed", "promoted"), f"{f.name}: a is not elected there at once")
    ok(f.acts(2, "a"), f"{f.name}: but when b's lease is over")
    f.close()


def clock_behind() -> None:
    """The promoted server lacks a term that a candidate has seen, and its clock is an hour behind."""
    f = Pair("clock behind", behind=3600)
    a = f.join("a", times=SELDOM)
    ok(f.acts(1, "a"), f"{f.name}: a leads")
    f.hold_back()
    b, c = f.join("b", lock=f.url(f.first.port)), f.join("c")
    ok(all([x.wait("new_leader", "a leads") for x in (b, c)]), f"{f.name}: b and c follow")
    c.kill(signal.SIGSTOP)
    a.kill(signal.SIGTERM)
    a.leave()
    ok(f.acts(1, "b"), f"{f.name}: a leaves, and b leads, which the replica never hears of")
    c.kill(signal.SIGCONT)
    ok(c.wait("new_leader", "b leads"), f"{f.name}: but c does")
    f.fail_over()
    ok(int(f.second.cli("TIME").split()[0]) < time.time() - 3000, f"{f.name}: the promoted server's clock is behind")
    ok(f.acts(1, "c"), f"{f.name}: c leads on the promoted server")
    lost, new = [t for t, name in f.terms() if name in "bc"][-2:]
    ok(new > lost, f"{f.name}: its token is larger than that of the lost term ({new - lost})")
    f.close()


def ctl(path: str, what: str) -> Any:
    return subprocess.run([LUNARCH, "ctl", "--control", path, what], capture_output=True, text=True, timeout=60).stdout


def comes_back() -> None:
    """X leads on the promoted server; the old one is a primary again, with an older record of X, and who starts now
    could lead there."""
    f = Pair("comes back", "--appendonly", "yes", "--appendfsync", "always")
    x = f.join("x", times=PATIENT)
    ok(f.acts(1, "x"), f"{f.name}: x leads")
    before = f.shows(f.second).get("write")
    wait_for(lambda: f.shows(f.second).get("write") != before)
    f.fail_over()
    before = f.record().get("write")
    ok(
        wait_for(lambda: f.record().get("write") != before) and len(f.terms()) == 1,
        f"{f.name}: x's term goes on on the promoted server",
    )
    f.first.start()
    door = os.path.join(f.dir, "door")
    y = f.join("y", "--control", door, times=PATIENT)
    told = f"127.0.0.1:{f.first.port} and 127.0.0.1:{f.second.port} both say that they are primaries"
    ok(
        y.wait("read_failed", told) or y.wait("acquire_failed", told),
        f"{f.name}: y, who starts now, says that there are two primaries",
    )
    ok(wait_for(lambda: told in ctl(door, "why")), f"{f.name}: so does ctl why")
    r = subprocess.run([LUNARCH, "status", "--lock", f.lock], capture_output=True, text=True, timeout=60)
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


only = [globals()[n] for n in sys.argv[1:]]
try:
    at_once(*(only or (let_go, clock_behind, comes_back)))
finally:
    stop_everyone()
done()

"""A primary that dies, and its asynchronous copy, which is promoted: what the failover tests of PostgreSQL, Redis and
MariaDB share, and what must hold on more than one of them.

Not the servers: servers.py starts those. Used by cluster/faults/failover_*.py."""

import os
import shutil
import signal
import struct
import sys
import time
from collections.abc import Callable
from typing import Any

from tests.lib.candidates import stop_everyone, timing
from tests.lib.field import FAULTS, Field, build
from tests.lib.processes import wait_for
from tests.lib.proxy import Proxy
from tests.lib.tap import at_once, done, failures, ok, same

# The record is as a renewal left it for longer than a test needs to hold the copy back behind it.
SELDOM = timing("9s", renew="6s", retry="3s", stop_grace="500ms", kill="750ms", drift="750ms")
PATIENT = [*SELDOM, "--retry-period", "500ms"]


class Pair(Field):
    """first, and second behind a proxy (link) that can hold it back; who inherits starts them."""

    first: Any
    second: Any
    link: Proxy

    def url(self, *ports: int) -> str:
        raise NotImplementedError

    def shows(self, server: Any) -> Any:
        """The record there; {}: none."""
        raise NotImplementedError

    def promote(self) -> None:
        raise NotImplementedError

    def now(self) -> float:
        """By the clock of the copy."""
        raise NotImplementedError

    def enter(self, name: str, *ports: int, times: Any = SELDOM, options: Any = ()) -> Any:
        """Without ports: both servers'."""
        lock = self.url(*(ports or (self.first.port, self.second.port)))
        return self.join(name, *options, lock=lock, times=times, script=os.path.join(FAULTS, "still.lua"))

    def set_back(self, seconds: float) -> None:
        """The copy's clock, before it is started."""
        shim, clock = os.path.join(self.second.dir, "shim.so"), os.path.join(self.second.dir, "clock")
        shutil.copy(build("shim.c", "-shared", "-fPIC"), shim)
        with open(clock, "wb") as f:
            f.write(struct.pack("q", -seconds * 10**9))
        self.second.environment = {"LD_PRELOAD": shim, "SHIM_CLOCK": clock}

    def renewed(self) -> Any:
        """On the copy, from now on."""
        before = self.shows(self.second).get("write")
        return wait_for(lambda: self.shows(self.second).get("write") != before)

    def hold_back(self) -> None:
        """Right behind a renewal, which the copy has."""

        def held() -> Any:
            self.link.freeze()
            if self.shows(self.first).get("write") == self.shows(self.second).get("write"):
                return True
            self.link.thaw()

        self.renewed()
        ok(wait_for(held), f"{self.name}: the copy has the leader's last renewal")

    def fail_over(self) -> None:
        self.first.kill()
        self.link.close()
        self.promote()

    def close(self) -> None:
        if not self.verdict(self.name) or failures() or os.environ.get("LOGS"):
            self.logs()
        self.end()
        self.first.close()
        self.second.close()


def let_go(f: Pair) -> None:
    """A release whose answer is lost: its sender finds his own renewal on the promoted server, and who led after him is
    not to be seen."""
    way = Proxy(f.first.port)
    a = f.enter("a", way.port, f.second.port)
    ok(f.acts(1, "a"), f"{f.name}: a leads")
    b = f.enter("b", f.first.port)
    ok(b.wait("new_leader"), f"{f.name}: b follows, who knows only the primary")
    f.hold_back()
    way.lose_answer_to(b'"released"')
    a.kill(signal.SIGKILL, a.worker())  # a resignation would keep it out for as long as its own record counts
    ok(f.acts(2) and f.terms()[1][1] == "b", f"{f.name}: a lets go, and b leads")
    ok(a.wait("release_failed") and a.wait("new_leader", "b leads"), f"{f.name}: a, whose answer was lost, follows b")
    f.fail_over()
    way.close()
    shown = f.shows(f.second)
    same(
        (shown["holderIdentity"], shown["state"]),
        ("a", "leading"),
        f"{f.name}: the promoted server shows a's own renewal",
    )
    ok(a.wait("acquire_failed", "promoted"), f"{f.name}: a is not elected there at once")
    ok(f.acts(2, "a"), f"{f.name}: but when b's lease is over")
    f.close()


def clock_behind(f: Pair) -> None:
    """The promoted server, whose clock is an hour behind, lacks a term that a candidate has seen."""
    a = f.enter("a")
    ok(f.acts(1, "a"), f"{f.name}: a leads")
    f.hold_back()
    b, c = f.enter("b", f.first.port), f.enter("c")
    ok(all([x.wait("new_leader", "a leads") for x in (b, c)]), f"{f.name}: b and c follow")
    c.kill(signal.SIGSTOP)
    a.kill(signal.SIGTERM)
    a.leave()
    ok(f.acts(1, "b"), f"{f.name}: a leaves, and b leads, which the copy never hears of")
    c.kill(signal.SIGCONT)
    ok(c.wait("new_leader", "b leads"), f"{f.name}: but c does")
    f.fail_over()
    ok(f.now() < time.time() - 3000, f"{f.name}: the promoted server's clock is behind")
    ok(f.acts(1, "c"), f"{f.name}: c leads on the promoted server")
    lost, new = [t for t, name in f.terms() if name in "bc"][-2:]
    ok(new > lost, f"{f.name}: its token is larger than that of the lost term ({new - lost})")
    f.close()


def play(**cases: Callable[[], None]) -> None:
    """All, or those that are named; ends the process."""
    try:
        at_once(*(case for name, case in cases.items() if name in (sys.argv[1:] or cases)))
    finally:
        stop_everyone()
    done()

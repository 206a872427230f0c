#!/usr/bin/env -S PYTHONPATH=. python3
"""A PostgreSQL primary dies, and an asynchronous standby that lacks the last term is promoted: nobody leads beside that
term, and the next one's token is larger than what its candidate has seen."""

import json
import os
import shutil
import signal
import struct
import sys
import time
from typing import Any

from tests.lib.candidates import stop_everyone, timing
from tests.lib.field import FAULTS, Field, build
from tests.lib.processes import ROOT, wait_for
from tests.lib.proxy import Proxy
from tests.lib.servers import Postgres
from tests.lib.tap import at_once, done, failures, ok, same

# The record is as a renewal left it for longer than the test needs to hold the standby back behind it.
SELDOM = timing("9s", renew="6s", retry="3s", stop_grace="500ms", kill="750ms", drift="750ms")


class Pair(Field):
    """A primary, and a standby behind a proxy that can hold it back."""

    def __init__(self, name: str, behind: int = 0) -> None:
        super().__init__(name)
        self.first = Postgres()
        self.link = Proxy(self.first.port)
        self.second = Postgres(standby_of=self.link, start=False)
        if behind:
            self.set_back(behind)
        self.second.start()

    def enter(self, name: str, *ports: Any, times: Any = SELDOM) -> Any:
        return self.join(name, lock=self.url(*ports), times=times, script=os.path.join(FAULTS, "still.lua"))

    def set_back(self, seconds: float) -> None:
        """The standby's clock."""
        shim, clock = os.path.join(self.second.dir, "shim.so"), os.path.join(self.second.dir, "clock")
        shutil.copy(build("shim.c", "-shared", "-fPIC"), shim)
        with open(clock, "wb") as f:
            f.write(struct.pack("q", -seconds * 10**9))
        self.second.environment = {"LD_PRELOAD": shim, "SHIM_CLOCK": clock}

    def url(self, *ports: Any) -> Any:
        return f"postgres://{Postgres.superuser}@{','.join(f'127.0.0.1:{p}' for p in ports)}/postgres#f"

    def shows(self, server: Any) -> Any:
        """The record there; {}: none."""
        try:
            return json.loads(server.sql("SELECT record FROM lunarch_locks WHERE name = 'f'") or "{}")
        except RuntimeError:
            return {}

    def hold_back(self) -> None:
        """Right behind a renewal, which the standby has."""

        def held() -> Any:
            self.link.freeze()
            if self.shows(self.first).get("write") == self.shows(self.second).get("write"):
                return True
            self.link.thaw()

        before = self.shows(self.second).get("write")
        wait_for(lambda: self.shows(self.second).get("write") != before)
        ok(wait_for(held), f"{self.name}: the standby has the leader's last renewal")

    def fail_over(self) -> None:
        self.first.kill()
        self.link.close()
        self.second.promote()

    def close(self) -> None:
        if not self.verdict(self.name) or failures() or os.environ.get("LOGS"):
            self.logs()
        self.end()
        self.first.close()
        self.second.close()


def let_go() -> None:
    """A release whose answer is lost: its sender finds his own renewal on the promoted server, and who led after him is
    not to be seen."""
    f = Pair("let go")
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
    same(
        (f.shows(f.second)["holderIdentity"], f.shows(f.second)["state"]),
        ("a", "leading"),
        f"{f.name}: the promoted server shows a's own renewal",
    )
    ok(a.wait("acquire_failed", "promoted"), f"{f.name}: a is not elected there at once")
    ok(f.acts(2, "a"), f"{f.name}: but when b's lease is over")
    f.close()


def old_primary() -> None:
    """It comes back as a primary: who has seen the promoted one does not go back to it. Who knows no better finds a
    store that waits for its standby, with the setting that docs/locks.md names."""
    f = Pair("old primary")
    way = Proxy(f.second.port)
    a = f.enter("a", f.first.port, way.port, times=[*SELDOM, "--retry-period", "500ms"])
    ok(f.acts(1, "a"), f"{f.name}: a leads")
    wait_for(lambda: f.shows(f.second).get("holderIdentity") == "a")
    f.first.sql("ALTER SYSTEM SET log_connections = on")
    with open(os.path.join(ROOT, "docs", "locks.md")) as docs:
        f.first.sql(
            next(line.strip() for line in docs if line.strip().startswith("ALTER SYSTEM SET synchronous_standby_names"))
        )
    f.fail_over()

    def renewed() -> Any:
        before = f.shows(f.second).get("write")
        return wait_for(lambda: f.shows(f.second).get("write") != before)

    def met() -> Any:
        with open(f.first.log, errors="replace") as log:
            return "application_name=lunarch" in log.read()

    ok(renewed(), f"{f.name}: its term goes on on the promoted one")
    f.first.start()
    left = f.shows(f.first)["write"]
    same(f.first.sql("SELECT pg_is_in_recovery()"), "f", f"{f.name}: the old one is started again, as a primary")
    good = True
    while good and not met():
        way.cut()
        good = renewed()
    ok(good and renewed(), f"{f.name}: a is cut off, meets the old one, and renews on the promoted one again")
    same(f.shows(f.first)["write"], left, f"{f.name}: in the old one nothing was changed")
    same((len(a.all("became_leader")), len(a.all("stopped_leading"))), (1, 0), f"{f.name}: and the term goes on")
    late = f.enter("late", f.first.port)
    ok(
        late.wait("new_leader", "a leads") and late.wait("acquire_failed"),
        f"{f.name}: a candidate that knows only the old one cannot be elected there",
    )
    same(
        (f.shows(f.first)["write"], len(late.all("became_leader"))),
        (left, 0),
        f"{f.name}: and nothing is changed in it",
    )
    way.close()
    f.close()


def clock_behind() -> None:
    """The promoted server lacks a term that a candidate has seen, and its clock is an hour behind."""
    f = Pair("clock behind", behind=3600)
    a = f.enter("a", f.first.port, f.second.port)
    ok(f.acts(1, "a"), f"{f.name}: a leads")
    f.hold_back()
    b, c = f.enter("b", f.first.port), f.enter("c", f.first.port, f.second.port)
    ok(all(x.wait("new_leader", "a leads") for x in (b, c)), f"{f.name}: b and c follow")
    c.kill(signal.SIGSTOP)
    a.kill(signal.SIGTERM)
    a.leave()
    ok(f.acts(1, "b"), f"{f.name}: a leaves, and b leads, which the standby never hears of")
    c.kill(signal.SIGCONT)
    ok(c.wait("new_leader", "b leads"), f"{f.name}: but c does")
    f.fail_over()
    ok(
        float(f.second.sql("SELECT extract(epoch FROM clock_timestamp())")) < time.time() - 3000,
        f"{f.name}: the promoted server's clock is behind",
    )
    ok(f.acts(1, "c"), f"{f.name}: c leads on the promoted server")
    lost, new = [t for t, name in f.terms() if name in "bc"][-2:]
    ok(new > lost, f"{f.name}: its token is larger than that of the lost term ({new - lost})")
    f.close()


only = [globals()[n] for n in sys.argv[1:]]
try:
    at_once(*(only or (let_go, old_primary, clock_behind)))
finally:
    stop_everyone()
done()

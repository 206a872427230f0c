#!/usr/bin/env -S PYTHONPATH=. python3
"""A MariaDB primary dies, and an asynchronous replica that lacks the last term is promoted: nobody is elected there for
a lease, nobody leads beside another, and the next token is larger. A term that the replica has goes on."""

import json
import shutil
import signal
import time
from typing import Any

from tests.lib import pairs
from tests.lib.pairs import PATIENT
from tests.lib.processes import moment, wait_for
from tests.lib.proxy import Proxy
from tests.lib.servers import MariaDB
from tests.lib.tap import ok, same

LEASE_S = 9
LOGGED = ("--log-bin=log", "--binlog-format=MIXED", "--innodb-flush-log-at-trx-commit=1", "--sync-binlog=1")


class Pair(pairs.Pair):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.first = MariaDB("--server-id=1", *LOGGED)
        self.first.sql("CREATE USER luna; GRANT ALL ON test.* TO luna; RESET MASTER")
        self.second = MariaDB("--server-id=2", *LOGGED, start=False)
        self.copy()
        self.link = Proxy(self.first.port)
        self.second.start()
        self.second.sql(
            f"CHANGE MASTER TO master_host='127.0.0.1', master_port={self.link.port}, master_user='lunarch', "
            "master_password='moon light', master_use_gtid=slave_pos, master_connect_retry=1; START SLAVE"
        )
        running = "SHOW GLOBAL STATUS LIKE 'Slaves_running'"
        ok(wait_for(lambda: self.second.sql(running).endswith("\t1")), f"{name}: the replica follows")

    def copy(self) -> None:
        """The replica begins with the primary's files."""
        self.first.stop()
        shutil.rmtree(self.second.data)
        shutil.copytree(self.first.data, self.second.data)
        if self.second.run_as():
            self.second.own(self.second.data)
        self.first.start()
        self.first.sql("RESET MASTER")

    def url(self, *ports: Any) -> str:
        return f"mysql://luna@{','.join(f'127.0.0.1:{p}' for p in ports)}/test#f"

    def shows(self, server: MariaDB) -> dict[str, Any]:
        """The record there; {}: none."""
        try:
            return json.loads(server.sql("SELECT record FROM lunarch_locks WHERE name = 'f'") or "{}")
        except RuntimeError:
            return {}

    def followed(self) -> None:
        ok(
            wait_for(lambda: (r := self.shows(self.second)) and r.get("write") == self.shows(self.first).get("write")),
            f"{self.name}: the replica has the leader's last renewal",
        )

    def hold_back(self) -> None:
        """Right behind a renewal, which the replica has."""
        self.renewed()
        self.followed()
        self.link.freeze()

    def promote(self) -> None:
        self.second.sql("STOP SLAVE; SET GLOBAL read_only = OFF")


def lost_term() -> None:
    """The promoted server shows a's renewal; b, whose term is lost, led after it. c has never heard of either."""
    f = Pair("lost term")
    a = f.enter("a", f.first.port, f.second.port)
    ok(f.acts(1, "a"), f"{f.name}: a leads")
    f.hold_back()
    b = f.enter("b", f.first.port)
    ok(b.wait("new_leader"), f"{f.name}: b follows, who knows only the primary")
    a.kill(signal.SIGTERM)
    a.leave()
    ok(f.acts(2) and f.terms()[1][1] == "b", f"{f.name}: a leaves, and b leads, which the replica never hears of")
    f.fail_over()
    promoted = time.monotonic()
    same(f.shows(f.second)["holderIdentity"], "a", f"{f.name}: the promoted server shows a's renewal")
    c, d = f.enter("c", f.second.port), f.enter("d", f.second.port)
    ok(f.acts(3) and f.terms()[2][1] in "cd", f"{f.name}: one who knows the promoted server alone leads there")
    took = time.monotonic() - promoted
    ok(took > LEASE_S, f"{f.name}: but not within a lease ({took:.1f} s)")
    ok(b.wait("stopped_leading"), f"{f.name}: b, whose server is gone, has stopped")
    ok(
        any(x.all("acquire_failed", "may have lost a leader's record") for x in (c, d)),
        f"{f.name}: and it was said why nobody was elected",
    )
    f.close()


def let_go() -> None:
    """A clean release, which says that anybody may lead at once, is the last that the replica has: who led after it is
    not to be seen, and still may not be met."""
    f = Pair("let go")
    a = f.enter("a", f.first.port, f.second.port)
    ok(f.acts(1, "a"), f"{f.name}: a leads")
    a.kill(signal.SIGTERM)
    a.leave()
    f.followed()
    same(f.shows(f.second)["state"], "released", f"{f.name}: a has let go, and the replica knows")
    f.link.freeze()
    f.enter("b", f.first.port)
    ok(f.acts(2) and f.terms()[1][1] == "b", f"{f.name}: b leads, which the replica never hears of")
    wait_for(lambda: f.shows(f.first).get("holderIdentity") == "b")
    last = moment(f.shows(f.first)["renewTime"])
    f.fail_over()
    f.enter("c", f.first.port, f.second.port)
    ok(f.acts(1, "c"), f"{f.name}: c leads on the promoted server")
    took = moment(f.shows(f.second)["acquireTime"]) - last
    ok(took > LEASE_S - 0.2, f"{f.name}: but when b's lease is over ({took:.1f} s)")
    f.close()


def known_term() -> None:
    """A term that the replica has goes on there at once; and the old primary, should it come back as one, is not used
    by who has seen the promoted one."""
    f = Pair("known term")
    way = Proxy(f.second.port)
    a = f.enter("a", f.first.port, way.port, times=PATIENT)
    ok(f.acts(1, "a"), f"{f.name}: a leads")
    f.followed()
    f.fail_over()

    ok(f.renewed() and f.renewed(), f"{f.name}: its term goes on on the promoted server")
    f.first.start()
    left = f.shows(f.first)["write"]
    for _ in range(5):
        way.cut()
        ok(f.renewed(), f"{f.name}: a is cut off, and renews on the promoted server again")
    same(f.shows(f.first)["write"], left, f"{f.name}: in the old primary, which is back, nothing was changed")
    same((len(f.terms()), len(a.all("stopped_leading"))), (1, 0), f"{f.name}: and the term goes on")
    way.close()
    f.close()


pairs.play(lost_term=lost_term, let_go=let_go, known_term=known_term)

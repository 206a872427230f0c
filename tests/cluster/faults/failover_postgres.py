#!/usr/bin/env -S PYTHONPATH=. python3
"""A PostgreSQL primary dies, and an asynchronous standby that lacks the last term is promoted: nobody leads beside that
term, and the next one's token is larger than what its candidate has seen."""

import json
import os
from typing import Any

from tests.lib import pairs
from tests.lib.pairs import PATIENT
from tests.lib.processes import ROOT, wait_for
from tests.lib.proxy import Proxy
from tests.lib.servers import Postgres
from tests.lib.tap import ok, same


class Pair(pairs.Pair):
    def __init__(self, name: str, behind: int = 0) -> None:
        super().__init__(name)
        self.first = Postgres()
        self.link = Proxy(self.first.port)
        self.second = Postgres(standby_of=self.link, start=False)
        if behind:
            self.set_back(behind)
        self.second.start()

    def url(self, *ports: Any) -> Any:
        return f"postgres://{Postgres.superuser}@{','.join(f'127.0.0.1:{p}' for p in ports)}/postgres#f"

    def shows(self, server: Postgres) -> dict[str, Any]:
        """The record there; {}: none."""
        try:
            return json.loads(server.sql("SELECT record FROM lunarch_locks WHERE name = 'f'") or "{}")
        except RuntimeError:
            return {}

    def promote(self) -> None:
        self.second.promote()

    def now(self) -> float:
        return float(self.second.sql("SELECT extract(epoch FROM clock_timestamp())"))


def old_primary() -> None:
    """It comes back as a primary: who has seen the promoted one does not go back to it. Who knows no better finds a
    store that waits for its standby, with the setting that docs/stores/postgres.md names."""
    f = Pair("old primary")
    way = Proxy(f.second.port)
    a = f.enter("a", f.first.port, way.port, times=PATIENT)
    ok(f.acts(1, "a"), f"{f.name}: a leads")
    wait_for(lambda: f.shows(f.second).get("holderIdentity") == "a")
    f.first.sql("ALTER SYSTEM SET log_connections = on")
    with open(os.path.join(ROOT, "docs", "stores", "postgres.md")) as docs:
        f.first.sql(
            next(line.strip() for line in docs if line.strip().startswith("ALTER SYSTEM SET synchronous_standby_names"))
        )
    f.fail_over()

    def met() -> bool:
        with open(f.first.log, errors="replace") as log:
            return "application_name=lunarch" in log.read()

    ok(f.renewed(), f"{f.name}: its term goes on on the promoted one")
    f.first.start()
    left = f.shows(f.first)["write"]
    same(f.first.sql("SELECT pg_is_in_recovery()"), "f", f"{f.name}: the old one is started again, as a primary")
    good = True
    while good and not met():
        way.cut()
        good = f.renewed()
    ok(good and f.renewed(), f"{f.name}: a is cut off, meets the old one, and renews on the promoted one again")
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


pairs.play(
    let_go=lambda: pairs.let_go(Pair("let go")),
    old_primary=old_primary,
    clock_behind=lambda: pairs.clock_behind(Pair("clock behind", behind=3600)),
)

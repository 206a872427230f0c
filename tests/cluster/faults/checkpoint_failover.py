#!/usr/bin/env -S PYTHONPATH=. python3
"""A primary dies, and an asynchronous copy that lacks the last checkpoints is promoted, on Redis and on PostgreSQL: a
leader whose term goes on puts them back, so that the next one loads what was said to be saved. With copies that are
waited for, nothing is said too early."""

import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from tests.lib.candidates import Candidate, stop_everyone
from tests.lib.processes import ROOT, scratch, wait_for
from tests.lib.proxy import Proxy
from tests.lib.servers import Postgres, Redis
from tests.lib.tap import at_once, done, failures, ok, same

# A busy machine promotes a copy of PostgreSQL in seconds, and the term that goes on has to outlast that.
TIMES = {False: ["--lease-duration", "20s"], True: ["--lease-duration", "9s"]}

# It counts, a checkpoint for each number, up to the one in the file beside it.
SCRIPT = """
local function goal()
  local f = io.open("goal")
  local n = f and f:read("n") or 0
  if f then f:close() end
  return n
end
return {
  on_leading = function(term)
    local c = term:load() or { n = 0 }
    print("loaded " .. c.n)
    while true do
      while c.n >= goal() do sleep(0.02) end
      c.n = c.n + 1
      local good, err = term:save(c, { timeout = 1 })
      print((good and "saved " or "not saved ") .. c.n)
    end
  end,
}
"""


class OnRedis:
    name = "redis"
    waits = "?replicas=1"  # in the URL

    def __init__(self) -> None:
        self.first = Redis()
        self.link = Proxy(self.first.port)
        self.second = Redis(replica_of=self.link)

    def url(self, waits: bool = False) -> Any:
        return f"redis://127.0.0.1:{self.first.port},127.0.0.1:{self.second.port}/c{self.waits if waits else ''}"

    def text(self, server: Any) -> Any:
        return server.cli("GET", "c")

    def wait_for_copies(self) -> None:
        pass

    def promote(self, waits: Any) -> None:
        self.second.cli("REPLICAOF", "NO", "ONE")
        if waits:
            self.third = Redis(replica_of=self.second)  # or there would be none to wait for


class OnPostgres:
    name = "postgres"

    def __init__(self) -> None:
        self.first = Postgres()
        self.link = Proxy(self.first.port)
        self.second = Postgres(standby_of=self.link)

    def url(self, waits: bool = False) -> Any:
        return f"postgres://{Postgres.superuser}@127.0.0.1:{self.first.port},127.0.0.1:{self.second.port}/postgres#c"

    def text(self, server: Any) -> Any:
        return server.sql("SELECT record FROM lunarch_locks WHERE name = 'c'")

    def wait_for_copies(self) -> None:
        """As docs/stores/postgres.md says."""
        with open(os.path.join(ROOT, "docs", "stores", "postgres.md")) as f:
            setting = next(
                line.strip() for line in f if line.strip().startswith("ALTER SYSTEM SET synchronous_standby_names")
            )
        self.first.sql(setting)
        self.first.sql("SELECT pg_reload_conf()")
        wait_for(lambda: self.first.sql("SELECT sync_state FROM pg_stat_replication") in ("sync", "quorum"))

    def promote(self, _: Any) -> None:
        self.second.promote()


class Pair:
    def __init__(self, store: Any, what: str, waits: bool = False) -> None:
        self.store, self.name = store(), f"{store.name}: {what}"
        self.dir = scratch()
        self.script = os.path.join(self.dir, "count.lua")
        with open(self.script, "w") as f:
            f.write(SCRIPT)
        self.waits = waits
        if waits:
            self.store.wait_for_copies()
        self.candidates: list[Candidate] = []

    def enter(self, identity: str) -> Any:
        c = Candidate(
            "--lock",
            self.store.url(self.waits),
            "--identity",
            identity,
            self.script,
            options=TIMES[self.waits],
            cwd=self.dir,
        )
        self.candidates.append(c)
        return c

    def count_to(self, n: int) -> None:
        with open(os.path.join(self.dir, "goal.new"), "w") as f:
            f.write(f"{n}\n")
        os.rename(f.name, os.path.join(self.dir, "goal"))

    def saved(self, server: Any) -> int | None:
        """What a record there says."""
        try:
            return json.loads(self.store.text(server)).get("checkpoint", {}).get("data", {}).get("n")
        except (RuntimeError, ValueError):
            return None

    def fail_over(self) -> None:
        self.store.first.kill()
        self.store.link.close()
        self.store.promote(self.waits)

    def close(self) -> None:
        for c in self.candidates:
            if failures():
                c.log()
            c.kill(signal.SIGKILL)
            c.leave()
        self.store.first.close()
        self.store.second.close()


def goes_on(store: Any) -> None:
    """The leader lives: what it was told to be saved is put back."""
    p = Pair(store, "the term goes on")
    a = p.enter("a")
    p.count_to(5)
    ok(a.wait("print", "saved 5"), f"{p.name}: five checkpoints are saved")
    ok(wait_for(lambda: p.saved(p.store.second) == 5), f"{p.name}: the copy has them")
    b = p.enter("b")
    ok(b.wait("new_leader", "a leads"), f"{p.name}: another follows")
    p.store.link.freeze()
    p.count_to(10)
    ok(a.wait("print", "saved 10"), f"{p.name}: five more are acknowledged, which the copy does not get")
    p.fail_over()
    ok(
        a.wait("checkpoint_restored"),
        f"{p.name}: the same leader, on the promoted server, says that it puts the last one back",
    )
    ok(wait_for(lambda: p.saved(p.store.second) == 10), f"{p.name}: and it is there")
    same((len(a.all("became_leader")), len(a.all("stopped_leading"))), (1, 0), f"{p.name}: in the same term")
    a.kill(signal.SIGTERM)
    a.leave()
    ok(b.wait("print", "loaded"), f"{p.name}: it hands over")
    same(
        [e["message"] for e in b.said("loaded")],
        ["loaded 10"],
        f"{p.name}: the next leader loads the last one that was acknowledged",
    )
    p.count_to(11)
    ok(b.wait("print", "saved 11"), f"{p.name}: and saves")
    p.close()


def waited_for(store: Any) -> None:
    """With the setting that docs/stores/postgres.md names, what the copy lacks was never said to be saved: a leader may
    die too."""
    p = Pair(store, "copies are waited for", waits=True)
    a = p.enter("a")
    p.count_to(5)
    ok(a.wait("print", "saved 5"), f"{p.name}: five checkpoints are saved")
    b = p.enter("b")
    b.wait("new_leader", "a leads")
    p.store.link.freeze()
    p.count_to(6)
    ok(a.wait("print", "not saved 6"), f"{p.name}: while the copy is held back nothing is said to be saved")
    family = [a.pid, a.guard(), a.worker()]
    for pid in family:
        a.kill(signal.SIGKILL, pid)
    p.fail_over()
    ok(b.wait("print", "loaded"), f"{p.name}: leader and primary die, and another leads on the promoted copy")
    same(
        [e["message"] for e in b.said("loaded")], ["loaded 5"], f"{p.name}: it loads the last one that was acknowledged"
    )
    p.close()


def job(what: Callable[[Any], None], store: Any) -> Callable[[], None]:
    def run() -> None:
        what(store)

    run.__name__ = f"{what.__name__} {store.name}"
    return run


cases = [job(what, store) for what in (goes_on, waited_for) for store in (OnRedis, OnPostgres)]
only = [c for c in cases if all(word in c.__name__.split() for word in sys.argv[1:])]
try:
    at_once(*only)
finally:
    stop_everyone()
done()

#!/usr/bin/env -S PYTHONPATH=. python3
"""The MariaDB lock on a Galera of two nodes and an arbitrator: racers on both nodes, a node that lost its majority, a
write that was under way then."""

import sys
import threading
import uuid
from typing import Any

from tests.lib.lock_cases import BASIC, Two, run
from tests.lib.lock_driver import Driver, record, tried
from tests.lib.processes import wait_for
from tests.lib.stores import Galera
from tests.lib.tap import done, note, ok, same

ROUNDS, RACERS = 25, 4  # of each node
TERM: dict[str, Any] = {"token": 7, "leaseDurationMs": 1, "leaseDurationSeconds": 1}


class Node:
    """One node of it, as a store of its own."""

    def __init__(self, store: Galera, number: int) -> None:
        self.store, self.number, self.port = store, number, store.nodes[number].port

    def opened(self, key: str) -> Driver:
        d = Driver()
        o = d.open(self.store.url(key, self))
        if not o["ok"]:
            raise RuntimeError(o["err"])
        return d

    def status(self, name: str) -> int:
        return int(self.store.nodes[self.number].state(name))


def text_of(result: dict[str, Any]) -> str:
    return str(result.get("err", {}).get("text", ""))


def named(what: str) -> str:
    return f"{what}-{uuid.uuid4().hex[:8]}"


def refusals(nodes: list[Node]) -> int:
    """How often Galera took back a transaction for another node's."""
    return sum(n.status("local_cert_failures") + n.status("local_bf_aborts") for n in nodes)


def both_nodes(store: Galera, how: str = "both nodes") -> None:
    """Racers on both nodes expect the same version; who comes second in the cluster's order is told of a conflict."""
    key, nodes = named("both"), [Node(store, 0), Node(store, 1)]
    racers = [n.opened(key) for n in nodes for _ in range(RACERS)]
    tried(lambda: racers[0].write(record("first"), ""), "conflict")  # the table is there, and its mark
    version, winners, others, stale = racers[0].read()["version"], [], set(), 0
    for d in racers:
        d.read()
    before = refusals(nodes)
    for _ in range(ROUNDS):
        told = [d.wait(n) for d, n in [(d, d.start_write(record("racer", **TERM), version)) for d in racers]]
        won = [t for t in told if t["outcome"] == "ok"]
        winners.append(len(won))
        others |= {t["outcome"] for t in told} - {"ok"}
        for t in told:
            if t["outcome"] not in ("ok", "conflict"):
                note(t)
        version = won[0]["version"] if won else tried(lambda: racers[0].read(), "ok")["version"]
        stale += sum(d.read().get("version") != version for d in (racers[0], racers[-1]))
    same(winners, [1] * ROUNDS, f"{how}: {len(racers)} racers on two nodes: {ROUNDS} rounds, one winner each")
    same(others, {"conflict"}, f"{how}: the others are told of a conflict")
    same(stale, 0, f"{how}: and what was written on one node is seen on the other at once")
    note(f"{refusals(nodes) - before} transactions were taken back by Galera")
    for d in racers:
        d.end()


def without_retries(store: Galera) -> None:
    """As both_nodes; but no node tries again itself, so that the lock is told of a deadlock (1213)."""
    for n in store.nodes:
        n.sql("SET GLOBAL wsrep_retry_autocommit = 0")
    both_nodes(store, "both nodes, without the server's retries")
    for n in store.nodes:
        n.sql("SET GLOBAL wsrep_retry_autocommit = 1")


def behind(store: Galera) -> None:
    """A node that applies later what the cluster has: a read waits for it."""
    key = named("behind")
    a, b = Node(store, 0).opened(key), Node(store, 1).opened(key)
    version = tried(lambda: a.write(record("a", **TERM), ""), "ok")["version"]
    same(b.read()["version"], version, "behind: both nodes have it")
    late = store.nodes[1]
    held = threading.Thread(target=late.sql, args=("FLUSH TABLES WITH READ LOCK; SELECT SLEEP(2); UNLOCK TABLES",))
    held.start()
    wait_for(lambda: "SLEEP" in late.sql("SELECT info FROM information_schema.processlist WHERE info LIKE 'SELECT S%'"))
    w = a.write(record("a", token=7), version)
    r = b.read()
    held.join()
    same((w["outcome"], r.get("version")), ("ok", w.get("version")), "behind: the node that is late shows the newest")
    a.end(), b.end()


def certification(store: Galera) -> None:
    """Two writes cross on their way, each being on its own node what was expected."""
    key, nodes = named("cross"), [Node(store, 0), Node(store, 1)]
    a, b = (n.opened(key) for n in nodes)
    version = tried(lambda: a.write(record("a", **TERM), ""), "ok")["version"]
    b.read()
    b.write(record("b", **TERM), "none")  # both have a connection by which they have written
    before = refusals(nodes)
    for cable in store.cluster.cables():
        cable.hesitate(0.2)
    numbers = [(d, d.start_write(record("x", **TERM), version)) for d in (a, b)]
    told = sorted(d.wait(n)["outcome"] for d, n in numbers)
    for cable in store.cluster.cables():
        cable.hesitate(0)
    same(told, ["conflict", "ok"], "certification: of two writes that cross one is done, and one is a conflict")
    ok(refusals(nodes) > before, "certification: which Galera had found, and not a lock within a node")
    a.end(), b.end()


def without_majority(store: Galera) -> None:
    """A node alone: with wsrep_dirty_reads, by which it would show what it has to others."""
    key, alone = named("alone"), Node(store, 0)
    t = Two(store, key)
    old, none = alone.opened(t.key), alone.opened(t.key + "-none")
    version = t.put("first", **TERM)
    same((old.read()["outcome"], none.read()["outcome"]), ("ok", "absent"), "no majority: before, it is asked")
    store.cluster.isolate(0)
    same(
        store.nodes[0].sql("SELECT COUNT(*) > 0 FROM lunarch_locks"),
        "1",
        "no majority: the node shows its table to who asks for less",
    )
    fresh = alone.opened(t.key)
    for what, d in (("one that was connected", old), ("where nothing is", none), ("a new one", fresh)):
        r = d.read()
        same(r["outcome"], "failed", f"no majority: {what}: a read has failed ({text_of(r)})")
        w = d.write(record("x", **TERM), version if d is not none else "")
        ok(w["outcome"] in ("failed", "unknown"), f"no majority: {what}: so has a write ({text_of(w)})")
    rec = record("on", token=7)
    w = tried(lambda: t.a.write(rec, tried(lambda: t.a.read(), "ok")["version"]), "ok")
    same((w["outcome"], t.has(rec)), ("ok", True), "no majority: with both in the URL the lock goes on at the other")
    store.cluster.heal()
    same(
        tried(lambda: old.read(), "ok").get("record", {}).get("write"), rec["write"], "no majority: healed, it is seen"
    )
    for d in (old, none, fresh):
        d.end()
    t.end()


def under_way(store: Galera) -> None:
    """A node loses its majority while a write of it waits for the others. That was sent, and nobody knows whether they
    have it."""
    key = named("under-way")
    a, other = Node(store, 0).opened(key), Node(store, 1).opened(key)
    version = tried(lambda: a.write(record("a", **TERM), ""), "ok")["version"]
    a.write(record("a", **TERM), "none")
    store.cluster.cut(0)
    rec = record("late", **TERM)
    number = a.start_write(rec, version, within=60_000)
    w = a.wait(number, 90)
    store.cluster.wait_apart(0)
    same(w["outcome"], "unknown", f"under way: the write is unknown ({text_of(w)})")
    w = tried(lambda: other.write(record("other", **TERM), version), "ok", "conflict")
    ok(w["outcome"] == "ok", "under way: it was not applied, and another's is")
    store.cluster.heal()
    r = tried(lambda: a.read(), "ok")
    same(r["record"]["holderIdentity"], "other", "under way: healed, the node has what the others have")
    a.end(), other.end()


OWN = [both_nodes, without_retries, behind, certification, without_majority, under_way]
store = Galera("--wsrep-dirty-reads=ON")
only = [globals()[n] for n in sys.argv[1:]]
run(store, only or [*BASIC, *OWN])
store.end()
done()

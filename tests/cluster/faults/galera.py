#!/usr/bin/env -S PYTHONPATH=. python3
"""No two leaders on a Galera of two nodes and an arbitrator, while the node that the leader uses is killed, comes back,
and the other one is cut off and healed: somebody leads each time."""

import json
import signal
from typing import Any

from tests.lib.arena import Arena
from tests.lib.candidates import stop_everyone, timing
from tests.lib.processes import wait_for
from tests.lib.stores import Galera
from tests.lib.tap import done, ok

# The others stand still for evs.suspect_timeout (5 s) when a node vanishes, and a way is tried in vain until then.
PATIENT = timing("20s", renew="15s", retry="1s", stop_grace="500ms", kill="750ms", drift="750ms")


def on(store: Galera, node: int, key: str) -> dict[str, Any]:
    """The record, as that node shows it; {}: it does not."""
    try:
        return json.loads(store.nodes[node].sql(f"SELECT record FROM lunarch_locks WHERE name = '{key}'") or "{}")
    except RuntimeError:
        return {}


def led(store: Galera, node: int, key: str) -> bool:
    """Somebody renews a term there, again and again."""

    def renewed() -> bool:
        before = on(store, node, key).get("write")
        return bool(
            wait_for(
                lambda: (r := on(store, node, key)).get("write") not in (None, before) and r.get("state") == "leading"
            )
        )

    return renewed() and renewed()


def contest(store: Galera) -> None:
    f = Arena(store, "nodes")
    f.enter("a", "b", "c", times=PATIENT)
    ok(led(store, 0, f.key) and led(store, 1, f.key), f"{f.name}: both nodes have the leader's renewals")
    store.cluster.kill(0)
    ok(led(store, 1, f.key), f"{f.name}: the first node is killed, and on the second somebody leads")
    store.cluster.start(0)
    ok(led(store, 0, f.key), f"{f.name}: it comes back, and has what the second has")
    store.cluster.isolate(1)
    ok(led(store, 0, f.key), f"{f.name}: the second, by which all went, is cut off, and on the first somebody leads")
    store.cluster.heal()
    ok(led(store, 1, f.key), f"{f.name}: healed, the second has what the first has")
    terms = len(f.terms())
    leader = next(c for c in f.candidates if c.name == f.terms()[-1][1])
    leader.kill(signal.SIGTERM)
    leader.leave()
    ok(f.next(terms + 1) not in (None, False, leader.name), f"{f.name}: the leader leaves, and another leads")
    f.close()


store = Galera()
try:
    contest(store)
finally:
    stop_everyone()
    store.end()
done()

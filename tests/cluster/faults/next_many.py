#!/usr/bin/env -S PYTHONPATH=. python3
"""Twenty standbys on etcd, of which one comes next: what their agreement on that one writes and asks at each hand-over.
STANDBYS=N: how many; HANDOVERS=N; FULL=1: 100 standbys, 20 hand-overs."""

import os
import re
import signal
import time
import urllib.request
from typing import Any

from tests.lib.candidates import timing
from tests.lib.next_arena import LATER, NextArena
from tests.lib.processes import wait_for
from tests.lib.stores import Etcd, b64
from tests.lib.tap import done, note, ok

FULL = bool(os.environ.get("FULL"))
STANDBYS = int(os.environ.get("STANDBYS") or (100 if FULL else 20))
HANDOVERS = int(os.environ.get("HANDOVERS") or (20 if FULL else 4))
LEASE_S = 15
TIMES = timing(f"{LEASE_S}s")


class Quiet(Etcd):
    """It knows what the test itself asks."""

    asked = 0

    def call(self, path: str, **body: str) -> dict[str, Any]:
        self.asked += 1
        return super().call(path, **body)


def writes(store: Quiet, key: str) -> int:
    """How often it has been written since it was made."""
    return int(store.call("kv/range", key=b64(key.encode()))["kvs"][0]["version"])


def requests(store: Quiet) -> dict[str, float]:
    """How many the server has handled, by method."""
    with urllib.request.urlopen(f"http://127.0.0.1:{store.port}/metrics", timeout=60) as r:
        text = r.read().decode()
    found: dict[str, float] = {"Range": -store.asked}
    for method, count in re.findall(r'^grpc_server_handled_total\{.*grpc_method="(\w+)".*\} (\S+)$', text, re.M):
        found[method] = found.get(method, 0) + float(count)
    return found


def main() -> None:
    store = Quiet()
    f = NextArena(store, f"{STANDBYS} standbys")
    f.join("s0", times=TIMES)
    ok(f.acts(1, "s0"), "one leads")
    for i in range(1, STANDBYS + 1):
        f.join(f"s{i}", times=TIMES)
    names = [c.name for c in f.candidates]
    ok(
        all([c.wait("new_leader", patience=LATER) for c in f.candidates[1:]]) and f.agreed(*names),
        f"{STANDBYS} wait, and one of them comes next",
    )
    counts, gaps, named = [], [], 0
    began = time.monotonic()
    for i in range(HANDOVERS):
        leader = next(c for c in f.candidates if c.name == f.terms()[-1][1])
        chosen, before, asked = f.agreed(*names), writes(store, f.next_key), requests(store)
        since = time.monotonic()
        leader.kill(signal.SIGUSR1)
        if not ok(f.acts(i + 2, patience=LATER), f"hand-over {i + 1}: another leads"):
            break
        gaps.append(time.monotonic() - since)
        named += f.terms()[i + 1][1] == chosen
        ok(wait_for(lambda: f.agreed(*names) not in (None, False, f.terms()[-1][1]), LATER), "and somebody comes next")
        counts.append(writes(store, f.next_key) - before)
        after = requests(store)
        note(
            f"hand-over {i + 1}: another acts after {gaps[-1]:.3f} s; until somebody came next again, "
            f"{time.monotonic() - since:.1f} s: N was written {counts[-1]} times; "
            + ", ".join(f"{m} {after[m] - asked.get(m, 0):.0f}" for m in ("Range", "Txn") if m in after)
        )
    note(f"the one that was named led in {named} of {len(counts)} hand-overs; writes of N: {counts}")
    # One or two for each hand-over, and one for each lease that has passed: not one for each standby.
    most = len(counts) * STANDBYS // 4 + (time.monotonic() - began) / LEASE_S
    ok(sum(counts) <= most, f"N is written by few of them ({sum(counts)}, and at most {most:.0f} are fine)")
    f.close()
    store.end()
    done()


main()

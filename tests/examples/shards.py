#!/usr/bin/env -S PYTHONPATH=. python3
"""examples/shards.lua: 64 shards, each led by exactly one of two, then three, then two candidates, and shared out
evenly."""

import contextlib
import json
import os
import shutil
import signal
from typing import Any

from tests.lib.candidates import Candidate, stop_everyone
from tests.lib.processes import PATIENCE, ROOT, scratch, wait_for
from tests.lib.shard_work import Work, shares
from tests.lib.tap import done, note, ok, same

SCRIPT = os.path.join(ROOT, "examples", "shards.lua")
SHARDS = 64
where = scratch()
locks = os.path.join(where, "locks")
os.mkdir(locks)
work = Work(SHARDS)


def holders() -> dict[int, str]:
    """Shard -> whose lock it is."""
    found = {}
    for n in range(1, SHARDS + 1):
        with contextlib.suppress(FileNotFoundError), open(os.path.join(locks, f"shard-{n}")) as f:
            found[n] = json.load(f).get("holderIdentity")
    return found


def shared_out(names: str, low: int, high: int) -> bool:
    """All are worked on by who holds their locks, these have so many each."""
    found = work.now()
    return (
        len(found) == SHARDS
        and found == holders()
        and sorted(shares(found)) == sorted(names)
        and all(low <= n <= high for n in shares(found).values())
    )


def settles(names: str, low: int, high: int, what: str) -> None:
    if not ok(wait_for(lambda: shared_out(names, low, high), 2 * PATIENCE), what):
        note(f"working {shares(work.now())}, holding {shares(holders())}")
        for c in everyone:
            c.log()
    note(shares(work.now()))


def join(name: str) -> Any:
    c = Candidate(
        "--lock",
        locks + "/{name}",
        "--identity",
        name,
        SCRIPT,
        "--",
        str(SHARDS),
        work.program,
        options=["--lease-duration", "6s"],
    )
    everyone.append(c)
    return c


everyone: list[Candidate] = []
join("a")
join("b")
settles("ab", 32, 32, "two candidates: each shard is led by exactly one, 32 by each")
join("c")
settles("abc", 20, 22, "a third joins: the others let go, and nobody has more than a third, rounded up")
everyone[2].kill(signal.SIGKILL)
settles("ab", 32, 32, "it is killed: the others take over all of its shards, half of them each")
everyone[0].kill(signal.SIGTERM)
settles("b", SHARDS, SHARDS, "one leaves: the last one has all of them")
same(everyone[0].leave(), 0, "who left has ended in peace")
same(work.overlaps(), "", "no shard was ever worked on twice at a time")
ok(work.tokens_grow(), "every leader of a shard had a larger token than the one before")
stop_everyone()
shutil.rmtree(where)
done()

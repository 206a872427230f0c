#!/usr/bin/env -S PYTHONPATH=. python3
"""examples/shards.lua: 64 shards, each led by exactly one of two, then three, then two candidates, and shared out
evenly."""

import json
import os
import shutil
import signal
from typing import Any

from tests.lib.candidates import Candidate, stop_everyone
from tests.lib.processes import PATIENCE, ROOT, alive, scratch, wait_for
from tests.lib.tap import done, note, ok, same

SCRIPT = os.path.join(ROOT, "examples", "shards.lua")
SHARDS = 64
where = scratch()
locks = os.path.join(where, "locks")
os.mkdir(locks)
# Holds a lock of its own for as long as it runs: two of a shard cannot be overlooked, however short.
WORK = os.path.join(where, "work")
with open(WORK, "w") as work:
    work.write(
        f"""#!/bin/sh
cd {where}
exec 9> "held.$1"
flock -n 9 || echo "$1" >> overlaps
echo "$1 $LUNARCH_TERM_IDENTITY $LUNARCH_TOKEN" >> begun
echo "$$ $LUNARCH_TERM_IDENTITY" > "new.$1" && mv "new.$1" "running.$1"
exec sleep 100000
"""
    )
os.chmod(WORK, 0o755)


def read(name: str) -> str:
    try:
        with open(os.path.join(where, name)) as f:
            return f.read()
    except FileNotFoundError:
        return ""


def working() -> dict[int, str]:
    """Shard -> on whose behalf its program runs now."""
    found = {}
    for n in range(1, SHARDS + 1):
        line = read(f"running.{n}").split()
        if line and alive(int(line[0])):
            found[n] = line[1]
    return found


def holders() -> dict[int, str]:
    return {n: json.loads(read(f"locks/shard-{n}") or "{}").get("holderIdentity") for n in range(1, SHARDS + 1)}


def shares(found: dict[int, str]) -> dict[str, int]:
    who = list(found.values())
    return {name: who.count(name) for name in sorted(set(who))}


def shared_out(names: str, low: int, high: int) -> bool:
    """All are worked on by who holds their locks, these have so many each."""
    found = working()
    return (
        len(found) == SHARDS
        and found == holders()
        and sorted(shares(found)) == sorted(names)
        and all(low <= n <= high for n in shares(found).values())
    )


def settles(names: str, low: int, high: int, what: str) -> None:
    if not ok(wait_for(lambda: shared_out(names, low, high), 2 * PATIENCE), what):
        note(f"working {shares(working())}, holding {shares(holders())}")
        for c in everyone:
            c.log()
    note(shares(working()))


def join(name: str) -> Any:
    c = Candidate(
        "--lock",
        locks + "/{name}",
        "--identity",
        name,
        SCRIPT,
        "--",
        str(SHARDS),
        WORK,
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
same(read("overlaps"), "", "no shard was ever worked on twice at a time")
tokens: dict[str, list[int]] = {}
for line in read("begun").splitlines():
    shard, _, token = line.split()
    tokens.setdefault(shard, []).append(int(token))
ok(
    len(tokens) == SHARDS and all(t == sorted(set(t)) for t in tokens.values()),
    "every leader of a shard had a larger token than the one before",
)
stop_everyone()
shutil.rmtree(where)
done()

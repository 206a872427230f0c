"""What the shards of a test do: a program for each, which holds a lock of its own for as long as it runs and writes
down that it began. So two of a shard cannot be overlooked, however short.

Not how candidates are started or hurt. Used by tests/examples/shards.py and tests/cluster/faults/shards.py."""

import os
from collections.abc import Iterable

from tests.lib.processes import alive, scratch

PROGRAM = """#!/bin/sh
cd {where}
exec 9> "held.$1"
flock -n 9 || echo "$1" >> overlaps
echo "$1 $LUNARCH_TERM_IDENTITY $LUNARCH_TOKEN" >> begun
echo "$$ $LUNARCH_TERM_IDENTITY" > "new.$1" && mv "new.$1" "running.$1"
exec sleep 100000
"""


class Work:
    def __init__(self, shards: int) -> None:
        self.shards, self.where = shards, scratch()
        self.program = os.path.join(self.where, "work")
        with open(self.program, "w") as f:
            f.write(PROGRAM.format(where=self.where))
        os.chmod(self.program, 0o755)

    def read(self, name: str) -> str:
        try:
            with open(os.path.join(self.where, name)) as f:
                return f.read()
        except FileNotFoundError:
            return ""

    def now(self) -> dict[int, str]:
        """Shard -> on whose behalf its program runs now."""
        found = {}
        for n in range(1, self.shards + 1):
            line = self.read(f"running.{n}").split()
            if line and alive(int(line[0])):
                found[n] = line[1]
        return found

    def begun(self) -> list[tuple[int, str, int]]:
        """Each program that was started, in this order: its shard, on whose behalf, with which token."""
        lines = (line.split() for line in self.read("begun").splitlines())
        return [(int(shard), who, int(token)) for shard, who, token in lines]

    def overlaps(self) -> str:
        """The shards of which two programs ran at once."""
        return self.read("overlaps")

    def tokens_grow(self) -> bool:
        """Each shard was worked on, and each time with a larger token than before."""
        tokens: dict[int, list[int]] = {}
        for shard, _, token in self.begun():
            tokens.setdefault(shard, []).append(token)
        return len(tokens) == self.shards and all(t == sorted(set(t)) for t in tokens.values())


def shares(found: dict[int, str]) -> dict[str, int]:
    who = list(found.values())
    return {name: who.count(name) for name in sorted(set(who))}


def least_moves(before: dict[int, str], members: Iterable[str], shards: int) -> int:
    """How many shards have to change hands until these members have all of them, within one of each other."""
    held = sorted((list(before.values()).count(name) for name in members), reverse=True)
    share, more = divmod(shards, len(held))
    return sum(max(0, share + (rank < more) - had) for rank, had in enumerate(held))

"""A random sequence (tests/cluster/sequences) as data: drawn from a seed, written as one line, read again.

Not what an operation does: sequence_play.py has that. Used by the files whose names begin with sequence_.

The line: "2 file ab | 40 reload 1 ba | 10 kill 1 worker": two electors whose locks are files, each with the script
"ab"; after 40 ms the first one is to load "ba", and 10 ms later its worker is killed."""

import random
from dataclasses import dataclass, field, replace

from tests.lib.sequence_script import BROKEN, ELECTIONS, HOOKS, KEYS, SLOW, TASKS

STORES = ("file", "etcd")
# How often each operation is drawn, beside the others.
WEIGHTS = {
    "reload": 26,
    "hup": 8,
    "write": 8,
    "kill": 22,
    "stop": 7,
    "cont": 5,
    "pause": 4,
    "resume": 2,
    "resign": 4,
    "handover": 3,
    "usr1": 1,
    "term": 3,
    "start": 4,
    "record": 3,
    "store": 5,
    "look": 4,
    "until": 6,
}
EVENTS = ["reloading", "draining", "moving", "worker_gone", "became_leader", "new_leader", "on_stopped_owed"]


@dataclass
class Op:
    after_ms: int
    what: str
    args: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return " ".join([str(self.after_ms), self.what, *self.args])


@dataclass
class Sequence:
    electors: int
    lock: str
    script: str
    ops: list[Op] = field(default_factory=list)

    def __str__(self) -> str:
        return " | ".join([f"{self.electors} {self.lock} {self.script}", *map(str, self.ops)])

    def without(self, indexes: set[int]) -> "Sequence":
        """Whoever waits longer for the next one than before would meet it in another state: the pauses stay."""
        return replace(self, ops=[op for i, op in enumerate(self.ops) if i not in indexes])


def parse(line: str) -> Sequence:
    head, *rest = [part.split() for part in line.strip().split("|")]
    return Sequence(int(head[0]), head[1], head[2], [Op(int(p[0]), p[1], p[2:]) for p in rest])


def script(r: random.Random, change: bool) -> str:
    """change: of a script that is loaded again, which may be broken."""
    kind = r.random()
    words = ["ab" if kind < 0.5 else r.choice(ELECTIONS)] if change else [r.choice(["ab", "ab", "a", "abc"])]
    for group, chance in ((KEYS, 0.35), (HOOKS, 0.6), (TASKS, 0.12), (SLOW, 0.15 if change else 0.0)):
        if r.random() < chance:
            words.append(r.choice(group))
        if group is HOOKS and r.random() < 0.25:
            words.append(r.choice([h for h in HOOKS if h not in words]))
    if change and r.random() < 0.25:
        words.append(r.choice(BROKEN))
    return "+".join(words)


def who(r: random.Random) -> list[str]:
    """Of several, the newest, the oldest, or one in the middle."""
    kinds = ["worker", "worker", "worker", "old-worker", "old-worker", "middle-worker", "guard", "old-guard", "elector"]
    return [r.choice(kinds)]


def draw(seed: int, lock: str) -> Sequence:
    r = random.Random(f"sequence {seed} {lock}")
    s = Sequence(r.choice([2, 2, 2, 3]), lock, script(r, False))
    for _ in range(r.randint(4, 11)):
        what = r.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        # Most of it happens to one of them, so that things meet.
        elector = "1" if r.random() < 0.65 else str(r.randint(1, s.electors))
        args = [elector]
        if what in ("reload", "hup"):
            args += [script(r, True)] if r.random() < 0.85 else []
        elif what == "write":
            args += [script(r, True)]
        elif what in ("kill", "stop"):
            args += ["all"] if what == "stop" and r.random() < 0.1 else who(r)
            args += ["stays"] if what == "stop" and args[1].endswith("worker") and r.random() < 0.4 else []
        elif what == "handover":
            args += [r.choice(["", "b"])]
        elif what == "resign":
            args += [r.choice(["", "1s", "2s"])]
        elif what == "term":
            args += [r.choice(["once", "once", "twice"])]
        elif what == "record":
            args = [r.choice("ab"), r.choice(["delete", "delete", "empty", "foreign", "older"])]
        elif what == "store":
            args = [r.choice(["full", "readonly", "slow", "away", "mend", "mend"])]
        elif what == "until":
            args += [r.choice(EVENTS)]
        pause = r.choice([r.randint(0, 10), r.randint(10, 300), r.randint(10, 300), r.randint(10, 300)])
        s.ops.append(Op(r.randint(300, 1500) if r.random() < 0.06 else pause, what, [a for a in args if a]))
    if r.random() < 0.5:
        s.ops.append(Op(r.randint(50, 500), "wait"))
    return s

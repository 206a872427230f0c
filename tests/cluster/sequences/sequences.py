#!/usr/bin/env -S PYTHONPATH=. python3
"""Random sequences on the real program: two or three electors on a lock in a file or on etcd, to which things happen
(reloads, signals, orders, edited records, a store that is hurt), then calm. In calm exactly one leads each election,
and says so, each can lead, the hooks were those of the right script and lock and came in pairs, and nothing is left.

    sequences.py [--seed N] [--count N] [--minutes N] [--lock file|etcd] [--jobs N] [--program PATH]
                 [--back-off SECONDS] [--replay FILE] [--only LINE] [--shrink] [--tell] [--hurry]

Without arguments: what the whole check runs. --replay: a file of sequences, one a line (sequence_draw.py); what stands
behind a # is a comment. --only: this one; --tell: with the logs, though nothing is wrong. --shrink: what fails is made
as short as possible, in a hurry. --hurry: what is not right again in 8 s fails. Each sequence is a process, --jobs run
side by side.

The program is build/hasty/lunarch: the same objects but one, term/term_hooks.c, in which the pause after a worker's
death is 20 ms and doubles up to 1.2 s; the product's is 1 s, up to 60 s. --back-off: the longest pause of another
--program."""

import argparse
import multiprocessing
import multiprocessing.connection
import os
import resource
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tests.lib import sequence_play
from tests.lib import servers
from tests.lib.processes import ROOT
from tests.lib.sequence_draw import Sequence, draw, parse
from tests.lib.sequence_play import How
from tests.lib.tap import done, note, ok, same

HERE = os.path.dirname(os.path.abspath(__file__))
HASTY = os.path.join(ROOT, "build", "hasty", "lunarch")
LIMIT_S = 400.0  # for one sequence, with all that it waits for
SEEDS = 80  # of the check, each on both locks: less than two minutes on an idle machine
LIMIT_MIN = 5.0  # where the machine has much else to do, it is fewer of them


def nothing(why: str) -> dict[str, Any]:
    return {"wrong": [why], "notes": [], "logs": [], "took": 0.0, "stalled": 0.0}


class Job:
    """A sequence that is being played."""

    def __init__(self, label: str, sequence: Sequence, field: "Field", slot: int) -> None:
        self.label, self.sequence, self.slot = label, sequence, slot
        self.began = time.monotonic()
        self.pipe, other = multiprocessing.Pipe(duplex=False)
        self.process = multiprocessing.Process(target=self._play, args=(other, field))
        self.process.start()
        other.close()

    def _play(self, pipe: Any, field: "Field") -> None:
        sys.stdout = sys.stderr
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        try:
            port = field.etcds[self.slot].port if self.sequence.lock == "etcd" else 0
            pipe.send(sequence_play.play(self.sequence, field.how, port))
        except BaseException:
            pipe.send(nothing("test: " + traceback.format_exc()))

    def result(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = self.pipe.recv()
        except EOFError:
            found = nothing("test: it died")
        self.process.join()
        return found


class Field:
    """Where sequences are played, so many side by side."""

    def __init__(self, o: argparse.Namespace) -> None:
        program = os.path.abspath(o.program)
        said = subprocess.run([program, "run", "--help"], capture_output=True, text=True).stdout
        hasty = os.path.basename(os.path.dirname(program)) == "hasty"
        self.how = How(program, o.back_off or (1.2 if hasty else 60.0), "--start-timeout" in said, o.hurry)
        self.jobs = o.jobs
        self.etcds: list[Any] = []

    def with_etcd(self) -> None:
        while len(self.etcds) < self.jobs:
            self.etcds.append(servers.Etcd())

    def run(self, todo: Iterator[tuple[str, Sequence]]) -> Iterator[tuple[str, Sequence, dict[str, Any]]]:
        running: list[Job] = []
        more = True
        while more or running:
            while more and len(running) < self.jobs:
                following = next(todo, None)
                if following is None:
                    more = False
                    break
                if following[1].lock == "etcd":
                    self.with_etcd()
                slot = min(set(range(self.jobs)) - {j.slot for j in running})
                running.append(Job(*following, self, slot))
            ready = multiprocessing.connection.wait([j.pipe for j in running], 5.0)
            for j in list(running):
                if j.pipe in ready:
                    running.remove(j)
                    yield j.label, j.sequence, j.result()
                elif time.monotonic() > j.began + LIMIT_S:
                    running.remove(j)
                    j.process.kill()
                    j.process.join()
                    yield j.label, j.sequence, nothing("test: it does not end")


def categories(result: dict[str, Any]) -> set[str]:
    return {w.split(":", 1)[0] for w in result["wrong"]}


def simpler(s: Sequence) -> Iterator[Sequence]:
    """Each a little less, once nothing can be left out."""
    for i, op in enumerate(s.ops):
        for k, arg in enumerate(op.args):
            words = arg.split("+")
            for w in range(1, len(words)):
                args = [*op.args[:k], "+".join(words[:w] + words[w + 1 :]), *op.args[k + 1 :]]
                yield replace(s, ops=[*s.ops[:i], replace(op, args=args), *s.ops[i + 1 :]])
    words = s.script.split("+")
    for w in range(1, len(words)):
        yield replace(s, script="+".join(words[:w] + words[w + 1 :]))
    if len(words[0]) > 2:
        yield replace(s, script="+".join(["ab", *words[1:]]))
    if s.electors > 2 and all(op.args[0] != "3" for op in s.ops):
        yield replace(s, electors=2)
    for i, op in enumerate(s.ops):
        for shorter in {0, op.after_ms // 2 if op.after_ms > 40 else 0} - {op.after_ms}:
            yield replace(s, ops=[*s.ops[:i], replace(op, after_ms=shorter), *s.ops[i + 1 :]])


def fails(field: Field, these: list[Sequence], wanted: str) -> list[bool]:
    """Twice each: what is a matter of moments fails in one of them."""
    found = [False] * len(these)
    todo = ((str(i), s) for _ in range(2) for i, s in enumerate(these) if not found[i])
    for label, _, result in field.run(todo):
        found[int(label)] = found[int(label)] or wanted in categories(result)
    return found


def shrink(field: Field, s: Sequence, wanted: str) -> Sequence:
    """In a hurry."""
    patient, field.how.hurry = field.how.hurry, True
    while True:
        each = fails(field, [s.without({i}) for i in range(len(s.ops))], wanted)
        gone = {i for i, f in enumerate(each) if f}
        if not gone:
            break
        if len(gone) > 1 and fails(field, [s.without(gone)], wanted)[0]:
            s = s.without(gone)
        else:
            s = s.without({min(gone)})
    while True:
        less = list(simpler(s))
        each = fails(field, less, wanted)
        if True not in each:
            field.how.hurry = patient
            return s
        s = less[each.index(True)]


def read(path: str) -> list[tuple[str, Sequence]]:
    found = []
    with open(path) as f:
        for line in f:
            text, _, comment = line.partition("#")
            if text.strip():
                found.append((comment.strip() or text.strip(), parse(text)))
    return found


def drawn(seed: int, count: int, minutes: float, locks: list[str]) -> Iterator[tuple[str, Sequence]]:
    end = time.monotonic() + minutes * 60
    while count > 0 and time.monotonic() < end:
        for lock in locks:
            yield f"seed {seed} {lock}", draw(seed, lock)
        seed, count = seed + 1, count - 1


def tell(label: str, s: Sequence, result: dict[str, Any]) -> None:
    note(f"{label}: {s}")
    for w in result["wrong"]:
        note(f"  {w}")
    for n in result["notes"]:
        note(f"  {n}")
    for line in result["logs"]:
        note(f"    {line}")


def run(field: Field, what: str, todo: Iterator[tuple[str, Sequence]], shrinks: bool, tells: bool = False) -> None:
    bad: list[tuple[str, Sequence, dict[str, Any]]] = []
    count, took, kinds = 0, 0.0, Counter[str]()
    began = time.monotonic()
    for label, s, result in field.run(todo):
        count += 1
        took = max(took, result["took"])
        if tells and not result["wrong"]:
            tell(label, s, result)
        if result["wrong"]:
            bad.append((label, s, result))
            kinds.update(categories(result))
            tell(label, s, result)
    spent = f"{count} sequences in {time.monotonic() - began:.0f} s"
    same([label for label, _, _ in bad], [], f"{what}: {spent}")
    note(f"at most {took:.1f} s until all was right again")
    if kinds:
        note(", ".join(f"{k} {n}" for k, n in kinds.most_common()))
    for label, s, result in bad if shrinks else []:
        for wanted in sorted(categories(result) - {"test"})[:1]:
            note(f"{label}: {wanted}: at its least: {shrink(field, s, wanted)}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int)
    parser.add_argument("--count", type=int)
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--lock", choices=["file", "etcd", "both"], default="both")
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--program", default=os.environ.get("LUNARCH", HASTY))
    parser.add_argument("--back-off", type=float)
    parser.add_argument("--replay")
    parser.add_argument("--only")
    parser.add_argument("--shrink", action="store_true")
    parser.add_argument("--tell", action="store_true")
    parser.add_argument("--hurry", action="store_true")
    o = parser.parse_args()
    field = Field(o)
    ok(os.path.exists(field.how.program), "the program is there")
    locks = ["file", "etcd"] if o.lock == "both" else [o.lock]
    if o.only:
        run(field, "this one", iter([(o.only, parse(o.only))]), o.shrink, o.tell)
    elif o.replay:
        run(field, "those of the file", iter(read(o.replay)), o.shrink)
    elif o.seed is None and o.count is None and o.minutes is None:
        run(field, "what was found before", iter(read(os.path.join(HERE, "found.txt"))), False)
        run(field, "fixed seeds", drawn(1, SEEDS, LIMIT_MIN, locks), False)
    else:
        first = o.seed if o.seed is not None else time.time_ns() % 1000000
        count = o.count or (1 if o.minutes is None else 10**9)
        run(field, f"from seed {first} on", drawn(first, count, o.minutes or 10**6, locks), o.shrink)
    done()


if __name__ == "__main__":
    if os.geteuid() == 0 and "SEQUENCES_APART" not in os.environ:  # the mounts are nobody else's
        os.environ["SEQUENCES_APART"] = "1"
        os.execvp("unshare", ["unshare", "--mount", "--propagation", "private", sys.executable, *sys.argv])
    main()

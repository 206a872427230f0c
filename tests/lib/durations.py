#!/usr/bin/env -S PYTHONPATH=. python3
"""How long the entries of the tests' queue take: orders them, writes that down, and holds it against a budget.

  durations.py order          prints the entries of standard input, what took longest last time (durations.txt) first
  durations.py write RESULTS  prints the durations.txt of a run
  durations.py tell RESULTS   the ten slowest entries of a run, and the sum
  durations.py budget RESULTS SECONDS  each suite beside its line of budget.txt. Fails if one took half as much again
                                       as it says, or the whole, which took so many seconds, more

RESULTS: the directory in which job.sh has left the end of each entry. Used by queue.sh, the Makefile and .ci/run."""

import glob
import os
import sys
from collections import defaultdict
from typing import NamedTuple

HERE = os.path.dirname(os.path.abspath(__file__))
SHORT = 10  # seconds: what takes less has no line


class Ran(NamedTuple):
    entry: str
    seconds: int
    cpu: float

    @property
    def suite(self) -> str:
        return self.entry.split(":")[0]


def ran(results: str) -> list[Ran]:
    """The longest first."""
    found = []
    for path in glob.glob(os.path.join(results, "*.end")):
        with open(path) as f:
            _, seconds, *cpu = f.read().split()
        entry = os.path.basename(path)[: -len(".end")].replace("+", "/")
        found.append(Ran(entry, int(seconds), float(cpu[0]) if cpu else 0.0))
    return sorted(found, key=lambda r: (-r.seconds, r.entry))


def lines_of(name: str) -> dict[str, int]:
    with open(os.path.join(HERE, name)) as f:
        lines = [line.split() for line in f if line.strip() and not line.startswith("#")]
    return {line[0]: int(line[1]) for line in lines}


def order() -> int:
    known = lines_of("durations.txt")
    entries = sys.stdin.read().split()
    for entry in sorted(entries, key=lambda e: -known.get(e, 0)):
        print(entry)
    return 0


def write(results: str) -> int:
    """To five seconds, so that a line changes only if the test did."""
    print("# Seconds that an entry of the tests' queue takes, if they are ten or more. The longest begins first.")
    print("# Written by make test-durations.")
    for r in ran(results):
        if r.seconds >= SHORT:
            print(r.entry, 5 * round(r.seconds / 5))
    return 0


def tell(results: str) -> int:
    all_of_them = ran(results)
    print("# the slowest entries, in seconds:")
    for r in all_of_them[:10]:
        print(f"#   {r.seconds:4} {r.entry} (on a processor: {r.cpu:.0f})")
    seconds, cpu = sum(r.seconds for r in all_of_them), sum(r.cpu for r in all_of_them)
    print(f"# {len(all_of_them)} entries: {seconds} s in all, {cpu:.0f} of them on a processor")
    return 0


def budget(results: str, whole: int) -> int:
    """In seconds of the entries, one after the other: most of them wait, so another machine's are much the same."""
    allowed = lines_of("budget.txt")
    took: dict[str, int] = defaultdict(int)
    for r in ran(results):
        took[r.suite] += r.seconds
    took["whole"] = whole
    over = []
    for suite, seconds in sorted(took.items()):
        line = allowed.get(suite)
        print(f"#   {suite:10} {seconds:5} s of {line or 'no line'}")
        if line is None or seconds > line * (1 if suite == "whole" else 1.5):
            over.append(suite)
    for suite in over:
        print(f"budget: {suite} took {took[suite]} s; tests/lib/budget.txt has {allowed.get(suite, 'no line')}")
    return int(bool(over))


def main() -> int:
    what = sys.argv[1] if len(sys.argv) > 1 else ""
    if what == "order":
        return order()
    if what == "budget":
        return budget(sys.argv[2], int(sys.argv[3]))
    return {"write": write, "tell": tell}[what](sys.argv[2])


sys.exit(main())

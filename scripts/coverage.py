#!/usr/bin/env python3
"""make coverage: how many lines and branches of each room the tests ran, from what an instrumented build left behind
(gcov(1)). Usage: coverage.py BUILD [FILE...]: the table; it fails if a file is below its bound in coverage.txt, which
also explains the branches that no test can run, or if such an explanation is out of date. With FILEs of runtime/: what
of each nothing ran."""

import collections
import json
import os
import subprocess
import sys
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..")
TABLE = os.path.join(HERE, "coverage.txt")


class Counts:
    """Of a file: how often each line ran, and each branch of a line."""

    def __init__(self) -> None:
        self.lines: collections.Counter[int] = collections.Counter()
        self.branches: collections.Counter[tuple[int, str, int]] = collections.Counter()

    def add(self, line: Any) -> None:
        number = line["line_number"]
        self.lines[number] += line["count"]
        for index, branch in enumerate(line["branches"]):
            self.branches[number, line.get("function_name", ""), index] += branch["count"]


def measured(build: str) -> dict[str, Counts]:
    """file of runtime/ -> its counts, over every program that has the file."""
    files: dict[str, Counts] = collections.defaultdict(Counts)
    notes = [os.path.join(d, f) for d, _, names in os.walk(build) for f in names if f.endswith(".gcno")]
    for note in notes:
        command = ["gcov", "--json-format", "--branch-probabilities", "--stdout", note]
        answer = subprocess.run(command, capture_output=True, text=True)
        for text in answer.stdout.splitlines():
            for source in json.loads(text)["files"]:
                if source["file"].startswith("runtime/"):
                    for line in source["lines"]:
                        files[source["file"]].add(line)
    return files


def source_of(path: str) -> list[str]:
    with open(os.path.join(ROOT, path)) as f:
        return [line.strip() for line in f]


# file -> number of a line -> how many of its branches are explained
Explained = dict[str, dict[int, int]]


def missed_of(counts: Counts, number: int) -> int:
    """How many branches of this line nothing took."""
    return sum(1 for (n, _, _), count in counts.branches.items() if n == number and not count)


def table(files: dict[str, Counts]) -> tuple[dict[str, float], Explained, list[str]]:
    """coverage.txt: the bounds in percent, the branches that are explained, and what of the table is wrong: a line that
    is there no more, or has fewer branches that nothing took."""
    bounds: dict[str, float] = {}
    explained: Explained = collections.defaultdict(dict)
    wrong = []
    with open(TABLE) as f:
        rows = [line.rstrip("\n") for line in f if line.strip() and not line.startswith("#")]
    path = ""
    for row in rows:
        if row.startswith("bound "):
            _, path, percent = row.split()
            bounds[path] = float(percent)
            continue
        text, why = row.rsplit(" -- ", 1)
        most = int(why.split()[0])
        numbers = [n for n, line in enumerate(source_of(path), 1) if line == text.strip()]
        missed = max((missed_of(files[path], n) for n in numbers), default=0)
        explained[path].update({n: most for n in numbers})
        if not numbers:
            wrong.append(f"{path} has no line `{text}` any more, which scripts/coverage.txt explains")
        elif missed < most:
            wrong.append(
                f"{path}: `{text}` has {missed} branches that nothing took, scripts/coverage.txt explains {most}"
            )
    return bounds, explained, wrong


def without_explained(counts: Counts, explained: dict[int, int]) -> list[int]:
    """The counts of the branches, but of each line so many that nothing took as are explained."""
    left = dict(explained)
    kept = []
    for (number, _, _), count in counts.branches.items():
        if count or left.get(number, 0) == 0:
            kept.append(count)
        else:
            left[number] -= 1
    return kept


def percent(counts: Any) -> float:
    return 100 * sum(1 for count in counts if count) / max(len(counts), 1)


def row(name: str, lines: Any, branches: Any) -> str:
    return f"{name:<32} {len(lines):>6} {percent(lines):>5.1f}% {len(branches):>8} {percent(branches):>5.1f}%"


def show(counts: Counts, path: str, explained: dict[int, int]) -> None:
    missed = [str(n) for n, count in sorted(counts.lines.items()) if count == 0]
    print(f"{path}: never ran: {' '.join(missed) or 'nothing'}")
    lines = source_of(path)
    for number in sorted({n for (n, _, _), count in counts.branches.items() if not count}):
        if missed_of(counts, number) <= explained.get(number, 0):
            continue
        ways = [str(i) for (n, _, i), count in sorted(counts.branches.items()) if n == number and not count]
        print(f"{path}:{number}: branches {','.join(ways)} not taken: {lines[number - 1]}")


def main(build: str, wanted: list[str]) -> int:
    files = measured(build)
    bounds, explained, wrong = table(files)
    for path in wanted:
        show(files[path], path, explained[path])
    if wanted:
        return 0
    rooms: dict[str, Counts] = collections.defaultdict(Counts)
    for path, counts in files.items():
        for whole in rooms[os.path.dirname(path)], rooms["~all"]:
            whole.lines.update({hash((path, n)): c for n, c in counts.lines.items()})
            whole.branches.update({(hash((path, *b)), "", 0): c for b, c in counts.branches.items()})
    print(f"{'room':<32} {'lines':>6} {'ran':>6} {'branches':>8} {'taken':>6}")
    for name, counts in sorted(rooms.items()):
        print(row(name.strip("~"), list(counts.lines.values()), list(counts.branches.values())))
    print(f"\n{'file':<32} {'lines':>6} {'ran':>6} {'branches':>8} {'taken':>6} without those that are explained")
    for path, bound in bounds.items():
        counts = files[path]
        left = without_explained(counts, explained[path])
        print(row(path, list(counts.lines.values()), list(counts.branches.values())) + f" {percent(left):>5.1f}%")
        if not left or percent(left) < bound:
            wrong.append(f"{path}: {percent(left):.1f}% of its branches were taken, expected {bound:g}% at least")
    print("A process that is killed by SIGKILL writes no figures: workers count less than they run.")
    for text in wrong:
        print(text)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))

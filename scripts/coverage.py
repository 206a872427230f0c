#!/usr/bin/env python3
"""make coverage: how many lines of each room the tests ran, from what an instrumented build left behind (gcov(1)).
Usage: coverage.py BUILD [FILE...]: the table; with FILEs of runtime/, the lines of each that nothing ran."""

import collections
import json
import os
import subprocess
import sys
from typing import Any


def measured(build: Any) -> Any:
    """file of runtime/ -> line -> how often it ran, over every program that has the file."""
    lines: dict[str, collections.Counter[int]] = collections.defaultdict(collections.Counter)
    notes = [os.path.join(d, f) for d, _, files in os.walk(build) for f in files if f.endswith(".gcno")]
    for note in notes:
        answer = subprocess.run(["gcov", "--json-format", "--stdout", note], capture_output=True, text=True)
        for text in answer.stdout.splitlines():
            for source in json.loads(text)["files"]:
                if source["file"].startswith("runtime/"):
                    for line in source["lines"]:
                        lines[source["file"]][line["line_number"]] += line["count"]
    return lines


def main(build: Any, wanted: Any) -> None:
    lines = measured(build)
    for path in wanted:
        missed = [str(n) for n, count in sorted(lines[path].items()) if count == 0]
        print(f"{path}: never ran: {' '.join(missed) or 'nothing'}")
    if wanted:
        return
    rooms: dict[str, list[int]] = collections.defaultdict(lambda: [0, 0])
    for path, counts in lines.items():
        room = rooms[os.path.dirname(path)]
        room[0] += len(counts)
        room[1] += sum(1 for count in counts.values() if count)
    print(f"{'room':<28} {'lines':>6} {'ran':>6}")
    total = [sum(room[i] for room in rooms.values()) for i in (0, 1)]
    for name, (count, ran) in [*sorted(rooms.items()), ("all", total)]:
        print(f"{name:<28} {count:>6} {100 * ran / max(count, 1):>5.1f}%")
    print("A process that is killed by SIGKILL writes no figures: guard and worker count less than they ran.")


main(sys.argv[1], sys.argv[2:])

#!/usr/bin/env -S PYTHONPATH=. python3
"""Reads what job.sh has left in a directory, of the entries on standard input: prints what did not hold, what was
skipped and what did not end well, each with its entry, and then the counts. Fails unless every sentence of every entry
holds."""

import os
import re
import sys


def report(directory: str, entry: str) -> tuple[int, int, list[str]]:
    """How many sentences hold, how many were skipped, and what is wrong."""
    base = os.path.join(directory, entry.replace("/", "+"))
    try:
        with open(base + ".end") as end, open(base + ".tap", errors="replace") as tap:
            status, lines = int(end.read().split()[0]), tap.read().splitlines()
        with open(base + ".err", errors="replace") as err:
            said = err.read().splitlines()
    except OSError:
        return 0, 0, ["was not run to its end"]
    count = {"good": 0, "skipped": 0, "bad": 0}
    wrong = []
    for number, line in enumerate(lines):
        found = re.match(r"(not )?ok \d+", line)
        if not found:
            continue
        kind = "bad" if found[1] else "skipped" if "# SKIP" in line else "good"
        count[kind] += 1
        if kind != "good":
            wrong.append(line)
        if kind == "bad":  # and what it says of that
            for more in lines[number + 1 : number + 6]:
                if not more.startswith("#"):
                    break
                wrong.append("  " + more)
    plans = [line for line in lines if re.fullmatch(r"1\.\.\d+.*", line)]
    if [plan.split()[0] for plan in plans] != [f"1..{sum(count.values())}"]:
        wrong.append(f"{sum(count.values())} sentences, but the plan is {', '.join(plans) or 'missing'}")
    if status and not count["bad"]:
        wrong.append(f"ended with status {status}" + (" (it took too long)" if status in (124, 137) else ""))
        wrong += ["  " + line for line in (lines[-10:] + said[-10:])]
    return count["good"], count["skipped"], wrong


def main() -> int:
    entries = sys.stdin.read().split()
    passed = failed = skipped = 0
    for entry in entries:
        good, left_out, wrong = report(sys.argv[1], entry)
        passed += good
        skipped += left_out
        not_held = sum(line.startswith("not ok") for line in wrong)
        failed += not_held or len(wrong) > left_out
        for line in wrong:
            print(f"{entry}: {line}")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return int(failed > 0 or skipped > 0 or not entries)


sys.exit(main())

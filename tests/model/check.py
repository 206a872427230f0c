#!/usr/bin/env -S PYTHONPATH=. python3
"""Searches all states of the model (lease.pml) in each of some configurations: no property may break. Those of make
test take seconds each; with --full (make model-full) larger ones, and their figures. A word chooses by name."""

import sys


from tests.lib import tap
from tests.model.spin import search

# Somebody leads at most so many ticks after the last fault: the lease, or the hold-back after a release, and a poll.
CALM = "CALM=10"
SMALL = {
    "two candidates, and nothing goes wrong": f"NN=2 FAULTS=0 ENDS=2 {CALM}",
    "three candidates, and nothing goes wrong": f"NN=3 FAULTS=0 ENDS=1 MAXT=3 {CALM}",
    "two, messages slow, lost and late": f"NN=2 FAULTS=2 {CALM}",
    "three, messages slow, lost and late": f"NN=3 FAULTS=1 MAXT=3 {CALM}",
    "two, a term is handed over": f"NN=2 FAULTS=1 ENDS=1 {CALM}",
    "two, clocks of different rates": "NN=2 FAULTS=1 SKIPS=1 MAXT=3",
    "two, one of the two clocks stands still": "NN=2 FAULTS=1 ODDS=2 MAXT=3",
    "two, one of the two clocks runs twice as fast": "NN=2 FAULTS=1 ODDS=2 ODD_FAST MAXT=3",
    "two, an elector is stopped": "NN=2 FAULTS=1 PAUSES=1 MAXT=3",
    "two, an elector dies": "NN=2 FAULTS=1 CRASHES=1 MAXT=3",
    "two, a person deletes the record": "NN=2 FAULTS=2 DELETES=1 MAXT=3",
    "two, a person empties the record": "NN=2 FAULTS=1 EMPTIES=1 MAXT=3",
    "two, the settings change": "NN=2 FAULTS=1 CONFIGS=1 LONGS=1 MAXT=3",
}
FULL = {
    "three, messages slow, lost and late": f"NN=3 FAULTS=2 MAXT=3 {CALM}",
    "three, a term is handed over": f"NN=3 FAULTS=1 ENDS=1 MAXT=3 {CALM}",
    "three, clocks of different rates": "NN=3 FAULTS=1 SKIPS=1 MAXT=3",
    "three, an elector is stopped": "NN=3 FAULTS=1 PAUSES=1 MAXT=3",
    "three, an elector dies": "NN=3 FAULTS=1 CRASHES=1 MAXT=3",
    "three, a person deletes the record": "NN=3 FAULTS=1 DELETES=1 MAXT=3",
    "three, a person empties the record": "NN=3 FAULTS=1 EMPTIES=1 MAXT=3",
    "three, the settings change": "NN=3 FAULTS=1 CONFIGS=1 LONGS=1 MAXT=3",
    "two, four faults": "NN=2 FAULTS=4 MAXT=3",
    "two, a pause and clocks of different rates": "NN=2 FAULTS=1 SKIPS=1 PAUSES=1 ENDS=1 MAXT=4",
    "two, a crash and clocks of different rates": "NN=2 FAULTS=1 SKIPS=1 CRASHES=1 MAXT=4",
    "two, settings, a pause, clocks of different rates": "NN=2 FAULTS=1 CONFIGS=1 LONGS=1 SKIPS=1 PAUSES=1 MAXT=3",
}


def main() -> None:
    full = "--full" in sys.argv[1:]
    words = [word for word in sys.argv[1:] if word != "--full"]
    for name, options in (FULL if full else SMALL).items():
        if words and not any(word in name for word in words):
            continue
        r = search(options, long=full)
        what = f"{name}: {r.states} states, depth {r.depth}"
        tap.ok(r.whole and not r.broken, what, r.broken or "not all states were searched")
        if full:
            tap.note(f"{options}: {r.seconds:.0f} s, {r.megabytes:.0f} MB")
    tap.done()


main()

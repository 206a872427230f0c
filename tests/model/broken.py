#!/usr/bin/env -S PYTHONPATH=. python3
"""Proves that the model (lease.pml) can find a broken rule: breaks one at a time, and the search must find a run that
breaks a property. Names that tests/sim/mutants.txt has too are the same rule. A word chooses mutants by name."""

import sys


from tests.lib import tap
from tests.model.spin import search

DRIFT = "NN=2 FAULTS=2 SKIPS=1 MAXT=3"
LOSSY = "NN=2 FAULTS=2 MAXT=3"
SHORTER = "NN=2 FAULTS=0 CONFIGS=1 LONGS=1 PAUSES=1 SKIPS=1 MAXT=2"
# Number, name, the rule that it breaks, the configuration.
MUTANTS = [
    (1, "term-from-the-reply", "a term is counted from the moment of sending", DRIFT),
    (
        2,
        "standby-own-duration",
        "a standby waits the duration that the record publishes",
        "NN=2 FAULTS=1 LONGS=1 PAUSES=1 MAXT=3",
    ),
    (3, "wait-from-before", "a standby's wait is counted from the receipt of the record", LOSSY),
    (4, "no-stop-at-R", "at R the script is told to stop", LOSSY),
    (5, "kill-too-late", "at R+G what still runs is killed", DRIFT),
    (6, "no-drift-allowance", "D stays untouched", DRIFT),
    (7, "unknown-is-success", "a write whose reply is lost is unknown, not done", LOSSY),
    (
        8,
        "unknown-is-failure",
        "a write not known to have failed can still land",
        SHORTER.replace("FAULTS=0", "FAULTS=1"),
    ),
    (9, "any-write-is-ours", 'the write\'s name defines "exactly ours"', LOSSY),
    (10, "shorter-write-ignored", "an unknown write of a shorter duration counts as applied in the deadline", SHORTER),
    (11, "conflict-is-loss", "a conflict is never by itself a loss", "NN=2 FAULTS=2 LONGS=3 MAXT=2"),
    (12, "late-acquire-starts", "an acquiring write answered after R starts no hook", "NN=2 FAULTS=2 PAUSES=1 MAXT=3"),
    (13, "loss-waits-for-R", "a definite loss ends the term at once", "NN=2 FAULTS=1 DELETES=1 MAXT=3"),
    (14, "absence-at-once", "who has seen a record waits out its absence", "NN=2 FAULTS=1 DELETES=1 MAXT=3"),
    (15, "emptied-at-once", "a release that its holder did not write is waited out", "NN=2 FAULTS=1 EMPTIES=1 MAXT=3"),
    (
        16,
        "release-before-stopped",
        "a voluntary end releases only after the script is gone",
        "NN=2 FAULTS=0 ENDS=1 MAXT=3",
    ),
    (17, "own-settings-not-published", "what a write publishes is what the deadline is computed from", SHORTER),
    (19, "late-wake-up", "after a late wake-up the deadline is looked at first", "NN=2 FAULTS=1 PAUSES=1 MAXT=3"),
    (20, "nearer-unpublished", "a deadline that a write brings nearer is published before the write is sent", SHORTER),
    (
        23,
        "next-sim-hold-back-without-end",
        "who lets another one try first tries soon after",
        "NN=2 FAULTS=0 ENDS=1 MAXT=3 CALM=20",
    ),
    (
        24,
        "token-floor-ignored",
        "a new term's token is above all that its candidate has seen",
        "NN=2 FAULTS=1 DELETES=1 MAXT=3",
    ),
    (
        25,
        "holder-smaller-clock",
        "a holder's elapsed time is the larger of the two clocks",
        "NN=2 FAULTS=2 ODDS=3 MAXT=3",
    ),
    (
        26,
        "standby-larger-clock",
        "a standby's elapsed time is the smaller of the two clocks",
        "NN=2 FAULTS=2 ODDS=3 ODD_FAST MAXT=3",
    ),
    (27, "blind-write", "every write is a compare-and-swap on what was last read", LOSSY),
    (28, "try-at-next-poll", "a standby tries when its wait ends, not at the next poll", LOSSY),
    (
        29,
        "any-own-record-at-once",
        "of our own records only the last known write needs no wait",
        "NN=2 FAULTS=3 DELETES=1 MAXT=3",
    ),
    (
        30,
        "same-identity-at-once",
        "an earlier incarnation is waited out like anybody's",
        "NN=2 FAULTS=1 CRASHES=1 MAXT=3",
    ),
    (31, "create-meets-nothing", "a create that conflicted has met a record", "NN=2 FAULTS=2 DELETES=1 MAXT=3"),
    (
        32,
        "earlier-create-is-ours",
        "an earlier create that lands after one that conflicted is not known to be ours",
        "NN=2 FAULTS=2 DELETES=1 MAXT=3",
    ),
    (
        33,
        "gone-ended-by-a-proof",
        "a record that is gone is waited out, whatever has come since",
        "NN=2 FAULTS=1 PAUSES=1 DELETES=1 LONGS=1 MAXT=3",
    ),
]


def main() -> None:
    words = sys.argv[1:]
    for number, name, rule, options in MUTANTS:
        if words and not any(word in name for word in words):
            continue
        r = search(options, number)
        how = f"breaks: {r.broken}" if r.broken else f"survives all {r.states} states"
        tap.ok(r.broken, f"{name} ({rule}) {how}")
    tap.done()


main()

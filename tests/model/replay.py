#!/usr/bin/env -S PYTHONPATH=. python3
"""Random runs of the model (lease.pml), replayed against lease.c by replay.c: both must decide the same, always. Then
the same with one of them changed, which must be noticed. And the interesting states are reached."""

import os
import subprocess
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from tests.lib import tap
from tests.sim.mutants import broken, mutants
from tests.model.spin import ROOT, trace

HERE = os.path.dirname(os.path.abspath(__file__))

SEEDS = range(1, 41)
KINDS = {
    "messages, crashes, pauses, clocks": "FAULTS=12 CRASHES=2 PAUSES=2 SKIPS=3 ENDS=2 MAXT=14",
    "settings, hand-overs, pauses": "FAULTS=12 CONFIGS=6 LONGS=1 ENDS=4 PAUSES=2 MAXT=14",
    "a record deleted at once": "FAULTS=9 DELETES=1 RASH MAXT=14",
    "a record deleted later": "FAULTS=9 DELETES=1 LATER ENDS=2 PAUSES=1 MAXT=14",
    "an emptied record": "FAULTS=9 EMPTIES=1 PAUSES=1 MAXT=14",
    "a clock that stands still": "FAULTS=9 ODDS=8 ENDS=2 PAUSES=1 MAXT=14",
    "a clock that is too fast": "FAULTS=9 ODDS=8 ODD_FAST ENDS=2 PAUSES=1 MAXT=14",
}
# What must have happened in these runs: else they show little.
REACHED = """released-for-it held-back released expired earlier-incarnation deletion-waited-out emptied conflict
    met-and-gone unknown-renewed unknown-released""".split()
# Rules of the lease machine (tests/sim/mutants.txt), and of the model, that are broken one at a time.
OF_LEASE = """term-from-the-reply standby-own-duration wait-from-before no-stop-at-R kill-too-late unknown-is-success
    unknown-is-failure shorter-write-ignored absence-at-once emptied-at-once release-before-stopped
    try-at-next-poll nearer-unpublished create-meets-nothing""".split()
OF_MODEL = {1: "term-from-the-reply", 6: "no-drift-allowance", 8: "unknown-is-failure", 15: "emptied-at-once"}
LEASE = [os.path.join(ROOT, "runtime", "lease", name) for name in ("lease.c", "lease_times.c", "lease_waits.c")]
OTHERS = [os.path.join(ROOT, "runtime", "base", name) for name in ("clock.c", "err.c")]


def build(room: str, lease: list[str]) -> str:
    program = os.path.join(room, "replay")
    flags = [
        "-std=gnu11",
        "-D_GNU_SOURCE",
        "-O1",
        "-w",
        "-I" + os.path.join(ROOT, "runtime"),
        "-I" + os.path.join(ROOT, "tests", "lib"),
    ]
    subprocess.run(["cc", *flags, "-o", program, os.path.join(HERE, "replay.c"), *lease, *OTHERS], check=True)
    return program


def replay(program: str, text: str) -> tuple[bool, str]:
    """Whether lease.c decided as the model, and what the program said."""
    run = subprocess.run([program], input=text, capture_output=True, text=True)
    return run.returncode == 0, run.stdout.split("\n")[0].split(" - ", 1)[-1]


def random_runs(options: str, mutant: int = 0) -> str:
    with ThreadPoolExecutor(2) as pool:
        return "".join(pool.map(lambda seed: trace(options, seed, mutant), SEEDS))


def break_lease(room: str, text: str) -> None:
    rules = {mutant.name: mutant for mutant in mutants()}
    for name in OF_LEASE:
        source = os.path.basename(rules[name].path)
        changed = os.path.join(room, source)
        with open(changed, "w") as f:
            f.write(broken(rules[name]))
        others = [path for path in LEASE if os.path.basename(path) != source]
        same, said = replay(build(room, [changed, *others]), text)
        tap.ok(not same, f"{source} changed ({name}) is noticed: {said}")


def main() -> None:
    with tempfile.TemporaryDirectory() as room:
        program, all_runs = build(room, LEASE), ""
        for name, options in KINDS.items():
            text = random_runs("NN=3 " + options)
            same, said = replay(program, text)
            tap.ok(same, f"{name}: {said}")
            all_runs += text
        words = Counter(line.split()[2] for line in all_runs.split("\n") if line.lstrip().startswith("reached"))
        for word in REACHED:
            tap.ok(words[word], f"reached {words[word]} times: {word}")
        for mutant, name in OF_MODEL.items():
            options = KINDS["an emptied record" if mutant == 15 else "messages, crashes, pauses, clocks"]
            same, said = replay(program, random_runs("NN=3 " + options, mutant))
            tap.ok(not same, f"the model changed ({name}) is noticed: {said}")
        break_lease(room, all_runs)
    tap.done()


main()

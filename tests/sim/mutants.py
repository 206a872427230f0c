#!/usr/bin/env python3
"""Proves that the simulator can fail: breaks runtime/lease/lease.c (or clock.c) in one rule at a time and looks for the seed that
notices. Words choose mutants by name. One TAP line a mutant; a mutant that survives is a failure, and so is one whose text is not there exactly once."""

import os
import shlex
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
RUNTIME = os.path.join(HERE, "..", "..", "runtime")
# What the simulator is built of (the Makefile's $(BUILD)/sim), by the names that mutants.txt uses.
SOURCES = {
    os.path.basename(path): path
    for path in [
        os.path.join(RUNTIME, *name.split("/"))
        for name in ("lease/lease.c", "locks/lock_failover.c", "base/clock.c", "base/err.c")
    ]
    + [os.path.join(HERE, "sim.c"), os.path.join(HERE, "main.c")]
}
SEEDS = os.environ.get("MUTANT_SEEDS", "20000")
CC = shlex.split(os.environ.get("CC", "cc"))


def mutants():
    """mutants.txt: blocks of `name | rule`, a file name, the text, `=>`, the replacement; blocks end with a line `---`."""
    with open(os.path.join(HERE, "mutants.txt")) as f:
        for block in f.read().split("\n---\n"):
            lines = [l for l in block.split("\n") if not l.startswith("#")]
            while lines and not lines[0].strip():
                lines.pop(0)
            if not lines:
                continue
            name, rule = [s.strip() for s in lines[0].split("|", 1)]
            cut = lines.index("=>")
            yield name, rule, lines[1].strip(), "\n".join(lines[2:cut]), "\n".join(lines[cut + 1 :])


def build(directory, broken, text):
    with open(os.path.join(directory, broken), "w") as f:
        f.write(text)
    sources = [os.path.join(directory, name) if name == broken else path for name, path in SOURCES.items()]
    program = os.path.join(directory, "sim")
    subprocess.run(
        CC + ["-std=gnu11", "-D_GNU_SOURCE", "-O2", "-w", "-I" + HERE, "-I" + RUNTIME, "-o", program] + sources,
        check=True,
    )
    return program


def main():
    n = failed = 0
    for name, rule, source, text, replacement in mutants():
        if sys.argv[1:] and not any(word in name for word in sys.argv[1:]):
            continue
        n += 1
        with open(SOURCES[source]) as f:
            whole = f.read()
        if whole.count(text) != 1:
            print(f"not ok {n} - {name}: its text occurs {whole.count(text)} times in {source}, expected once")
            failed += 1
            continue
        with tempfile.TemporaryDirectory() as d:
            program = build(d, source, whole.replace(text, replacement))
            out = subprocess.run([program, "--seeds", SEEDS], capture_output=True, text=True)
        found = [l for l in out.stdout.split("\n") if l.startswith("# seed ")]
        crashed = out.returncode < 0 or "seeds" not in out.stdout
        killed = bool(found) or crashed
        failed += not killed
        print(
            f"{'ok' if killed else 'not ok'} {n} - {name} ({rule})"
            + (
                f" dies by {found[0][2:].split(' (see')[0]}"
                if found
                else " dies"
                if killed
                else f" survives {SEEDS} seeds"
            )
        )
        sys.stdout.flush()
    print(f"1..{n}")
    return failed > 0


sys.exit(main())

"""Runs spin on lease.pml: a search of all states of a configuration, or the events of a random run. Used by the tests
beside it."""

import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
MODEL = os.path.join(HERE, "lease.pml")

# What the model asserts, and the promise or rule (docs/design.md) that this is.
PROPERTIES = {
    "sc==0": "P1: two scripts act at once",
    "term>last": "P4: a token does not grow",
    "term>c[i].top": "P4: a token is not above all that its candidate has seen",
    "h==who": "P7: a renewal or a release replaces what is not its holder's",
    "(k==0)": "P7: a write replaces what its writer has not read",
    "!(((c[i].ph==1)": "a known loss does not end the term at once",
    "el>0": "a term goes on beyond R",
    "rest>0": "a standby does not try when its wait ends",
    "calm<=": "nobody leads although nothing hinders it",
    ".kind==3)&&c[i].mine": "a term ends before R although its record is there",
    ".n<4": "more writes are in limbo than there is room for",
    "invalid end state": "time stands still",
}


@dataclass
class Result:
    states: int
    depth: int
    seconds: float
    megabytes: float
    broken: str | None  # the property
    whole: bool  # all states were searched


def defines(options: str, **more: int) -> list[str]:
    return [f"-D{word}" for word in options.split()] + [f"-D{name}={value}" for name, value in more.items()]


def number(pattern: str, text: str) -> float:
    found = re.search(pattern, text)
    return float(found.group(1)) if found else 0.0


def property_of(out: str) -> str | None:
    found = re.search(r"pan:\d+: (?:assertion violated )?(.*) \(at depth", out)
    if not found:
        return None
    text = found.group(1).replace(" ", "")
    return next((name for key, name in PROPERTIES.items() if key.replace(" ", "") in text), text)


def search(options: str, mutant: int = 0, long: bool = False) -> Result:
    """All states of the configuration, or those up to the first that breaks a property. tcc compiles in a fiftieth of
    gcc's time, and gcc's program is several times as fast: long says which pays."""
    with tempfile.TemporaryDirectory() as room:  # where the program writes the run that breaks a property
        name = os.path.basename(shutil.copy(MODEL, room))
        make = ["spin", "-a", *defines(options, MUTANT=mutant), name]
        subprocess.run(make, cwd=room, check=True, capture_output=True)
        compiler = ["gcc", "-O1", "-DCOLLAPSE", "-DMEMLIM=8000"] if long else ["tcc", "-DMEMLIM=3000"]
        subprocess.run([*compiler, "-w", "-DSAFETY", "-DNOREDUCE", "-o", "pan", "pan.c"], cwd=room, check=True)
        command = ["./pan", "-m2000000", "-w24" if long else "-w20"]
        out = subprocess.run(command, cwd=room, capture_output=True, text=True, errors="replace").stdout
    incomplete = "Search not completed" in out or "max search depth too small" in out or "errors:" not in out
    return Result(
        int(number(r"(\d+) states, stored", out)),
        int(number(r"depth reached (\d+)", out)),
        number(r"elapsed time ([\d.]+)", out),
        number(r"([\d.]+)\s+total actual memory", out),
        property_of(out),
        not incomplete,
    )


def trace(options: str, seed: int, mutant: int = 0) -> str:
    """The events of a random run, and what each candidate decides: what replay.c reads."""
    words = defines(options, TRACE=1, MUTANT=mutant)
    command = ["spin", f"-n{seed}", "-u40000", "-T", "-B", *words, MODEL]
    with tempfile.TemporaryDirectory() as room:  # spin writes files where it runs
        lines = subprocess.run(command, cwd=room, capture_output=True, text=True).stdout.split("\n")
    return "".join(line + "\n" for line in lines if re.match(r"\s*([a-z]+ \d|= \d)", line))

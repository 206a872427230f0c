"""lunarch doctor --full as the tests run it: what it found, and whether a lock passes."""

import json
import os
import subprocess
from typing import Any

from tests.lib.processes import LUNARCH
from tests.lib.tap import note, ok, same

CLEAN = {k: v for k, v in os.environ.items() if not k.startswith("LUNARCH_")}
CASES = ["swap", "version", "remove", "big", "text", "key", "foreign", "deadline", "held", "cancel", "watch", "list"]
CASES += ["racers", "answer", "cut", "killed", "stopped"]
OF_DRIVERS = ("foreign", "answer", "cut", "killed", "stopped")  # of other locks not examined


def doctor(*args: Any, **more: Any) -> Any:
    """What it found, as JSON; with its exit status."""
    r = subprocess.run(
        [LUNARCH, "doctor", "--full", "--json", *args],
        capture_output=True,
        text=True,
        timeout=900,
        stdin=subprocess.DEVNULL,
        env={**CLEAN, **more},
    )
    try:
        found = json.loads(r.stdout)
    except ValueError:
        found = {"findings": []}
    return {**found, "status": r.returncode, "errors": r.stderr}


def findings(j: Any, *verdicts: str) -> Any:
    return [f for f in j["findings"] if f["verdict"] in verdicts]


def passes(j: Any, what: str, notes: Any = ()) -> None:
    good = j["status"] == 0 and j.get("fit") and not findings(j, "unfit")
    if not ok(good, f"{what}: fit"):
        note(f"{j['status']} {j['errors']} {findings(j, 'unfit', 'note')}")
    names = list(dict.fromkeys(f["name"] for f in j["findings"]))
    same([c for c in CASES if c not in names], [], f"{what}: every case was tried")
    odd = [f for f in findings(j, "note") if f["name"] in CASES and f["name"] not in notes]
    same(odd, [], f"{what}: none of them found anything odd")

"""lunarch doctor --full as the tests run it, and what it found."""

import json
import os
import subprocess
from typing import Any

from tests.lib.processes import LUNARCH

CLEAN = {k: v for k, v in os.environ.items() if not k.startswith("LUNARCH_")}


def doctor(*args: str, **more: str) -> dict[str, Any]:
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


def findings(j: dict[str, Any], *verdicts: str) -> list[dict[str, str]]:
    return [f for f in j["findings"] if f["verdict"] in verdicts]

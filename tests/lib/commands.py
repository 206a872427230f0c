"""A command of lunarch that is run to its end, what must hold of it, and files that are replaced under a reader.

Not what goes on running: candidates.py has that. Used by most tests of tests/cli."""

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from tests.lib.processes import LUNARCH, ROOT
from tests.lib.tap import note, ok

# Without the options that whoever runs the tests has in theirs; apart.py's word stays.
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith("LUNARCH_") or k.startswith("LUNARCH_TEST_")}
Result = subprocess.CompletedProcess[str]
with open(os.path.join(ROOT, "runtime", "config", "options.h")) as f:
    COMMANDS = re.findall(r"^\tC\([A-Z]+, ([a-z]+), ", f.read(), re.M)


def run(*args: str | bytes, env: Mapping[str, str] | None = None, prefix: Sequence[str] = (), **kw: Any) -> Result:
    """env: beside CLEAN. prefix: a command line that executes the rest of it."""
    kw = {"stdin": subprocess.DEVNULL, "timeout": 300, "capture_output": True, **kw}
    return subprocess.run([*prefix, LUNARCH, *args], text=True, errors="replace", env={**CLEAN, **(env or {})}, **kw)


def check(r: Result, status: int, *words: str, what: str) -> None:
    if not ok(r.returncode == status and all(w in r.stdout + r.stderr for w in words), what):
        note(f"status {r.returncode}\n{r.stdout}{r.stderr}")


def replace(path: str, text: str) -> None:
    """In one piece."""
    with open(path + ".new", "w") as f:
        f.write(text)
    os.rename(f.name, path)

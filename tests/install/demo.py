#!/usr/bin/env -S PYTHONPATH=. python3
"""make demo: ends with success, says that every archive was verified and that no two terms overlapped, and leaves
nothing."""

import os
import re
import subprocess
import time

from tests.lib.processes import ROOT, scratch
from tests.lib.tap import done, note, ok, same

temp = scratch()
began = time.monotonic()
r = subprocess.run(
    [os.path.join(ROOT, "scripts", "demo.py")],
    capture_output=True,
    text=True,
    timeout=300,
    env={**os.environ, "TMPDIR": temp},
    stdin=subprocess.DEVNULL,
)
note(r.stdout + r.stderr)
note(f"{time.monotonic() - began:.1f} s")
same(r.returncode, 0, "the demo ends with success")
found = re.search(r"(\d+) archives verified, (\d+) terms, no two at once, every token larger", r.stdout)
ok(found and int(found[1]) >= 6 and int(found[2]) >= 3, "having verified its archives and its terms")
ok("SIGTERM" in r.stdout and "SIGKILL" in r.stdout, "one leader was stopped, another killed")
rows = re.findall(r"^  ([abc]) \|([ =xs]+)\|$", r.stdout, re.M)
ok(
    [name for name, _ in rows] == ["a", "b", "c"]
    and sum("=" in line for _, line in rows) >= 2
    and sum("x" in line for _, line in rows) == 1,
    "the timeline shows who led when, and which leader was killed",
)
same(os.listdir(temp), [], "nothing is left in the directory for temporary files")
os.rmdir(temp)
done()

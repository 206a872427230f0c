#!/usr/bin/env -S PYTHONPATH=. python3
"""A lock whose lock file refuses its URL: who has never reached it says so and ends; who leads elsewhere, or was given
the URL by a reload, goes on."""

import atexit
import os
import shutil
import signal
import subprocess

from tests.lib.candidates import Candidate
from tests.lib.processes import LUNARCH, scratch, wait_for
from tests.lib.tap import done, note, ok

TMP = scratch()
atexit.register(shutil.rmtree, TMP, True)
FILE = os.path.join(TMP, "picky.lua")
SCRIPT = os.path.join(TMP, "script.lua")
URL = f"lua:{FILE}#k"
with open(FILE, "w") as f:
    f.write(
        "return { scheme = 'picky', open = function() sleep(1) error('no part of this URL is right', 0) end,\n"
        "\tread = function() end, write = function() end }\n"
    )
os.chmod(FILE, 0o600)


def lunarch(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([LUNARCH, *args, "--state-dir", TMP], capture_output=True, text=True, timeout=120, cwd=TMP)


def ends(r: subprocess.CompletedProcess[str], status: int, words: str, what: str) -> None:
    if not ok(r.returncode == status and words in r.stderr, what):
        note(f"status {r.returncode}\n{r.stderr}")


def script(elections: str) -> str:
    with open(SCRIPT, "w") as f:
        f.write(elections)
    return SCRIPT


said = f"cannot_run: reading {URL}: no part of this URL is right"
ends(
    subprocess.run([LUNARCH, "exec", "--lock", URL, "--", "true"], capture_output=True, text=True, timeout=120),
    2,
    said,
    "exec ends with the status of a usage error, and the lock file's words",
)
one = f"{{ name = 'a', lock = '{URL}', on_leading = function() print 'leads' end }}"
ends(lunarch("run", script("return " + one)), 2, said, "so does run")
both = f"""return {{ {one}, {{ name = 'b', lock = '{TMP}/b', on_leading = function()
    sleep(4)
    lunarch.exit(7)
end }} }}"""
r = lunarch("run", script(both))
if not ok(r.returncode == 7, "an election that leads is not ended for another one's lock"):
    note(f"status {r.returncode}\n{r.stderr}")

leads = f"return {{ lock = '{TMP}/c', on_leading = function() print 'leads' end }}"
c = Candidate("--state-dir", TMP, script(leads), cwd=TMP)
c.wait("print", "leads")
script("return " + one)
c.kill(signal.SIGHUP)
ok(c.wait("read_failed", "no part of this URL is right"), "a reload may name such a lock")
script(leads)
c.kill(signal.SIGHUP)
if not ok(
    wait_for(lambda: len(c.said("leads")) == 2 or c.process.poll() is not None) and c.process.poll() is None,
    "then run goes on, and the next reload mends it",
):
    c.log()
ok(c.stop() == 0, "and it ends as usual")
done()

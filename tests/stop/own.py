#!/usr/bin/env -S PYTHONPATH=. python3
"""Scripts that end by their own doing: a crash, no memory, os.exit, an error in each hook; and a log that nobody
reads."""

import json
import os
import shutil
import signal
import subprocess
from typing import Any

from tests.lib.candidates import FAST, Candidate, stop_everyone
from tests.lib.processes import LUNARCH, PATIENCE, piped, scratch, wait_for
from tests.lib.tap import done, ok, same

HERE = os.path.dirname(os.path.abspath(__file__))
directory = scratch()


def candidate(script: str, **kw: Any) -> Candidate:
    return Candidate("--lock", os.path.join(directory, script), os.path.join(HERE, script), **kw)


def dies(script: str, name: str, reasons: list[str]) -> None:
    c = candidate(script)
    stopped = c.wait("print", "stopped")
    ok(stopped, f"{name}: on_stopped has run")
    ok(stopped and any(r in stopped["message"] for r in reasons), f"{name}: with the reason {' or '.join(reasons)}")
    same(len(c.said("started")), 1, f"{name}: on_start once")
    ok(c.wait("became_leader", count=2), f"{name}: after a back-off it leads again")
    if not stopped:
        c.log()
    c.kill(signal.SIGKILL, c.pid)


dies("21-segfault.lua", "segfault", ["worker"])
dies("22-out-of-memory.lua", "out of memory", ["worker", "error"])

c = candidate("23-os-exit.lua")
same(c.leave(), 7, "os.exit: the program's status is the one given")
wait_for(lambda: c.closed)
same(len(c.said("stopped")), 1, "os.exit: on_stopped has run once")
ok(c.said("shutdown"), "os.exit: with the reason shutdown")

c = candidate("24-errors.lua")
ok(c.wait("print", "stopped", count=2), "errors: an error in on_leading ends the term, and another one comes")
for hook in ("may_lead", "on_leading", "on_stopped", "on_new_leader", "on_no_leader"):
    ok(
        wait_for(lambda: [e for e in c.events if f"{hook} fails" in e.get("message", "")]),
        f"errors: {hook}'s is in the log",
    )
ok([e for e in c.events if "24-errors.lua:" in e.get("message", "")], "errors: with the script's line")
c.kill(signal.SIGTERM)
same(c.leave(), 0, "errors: it stops as it should all the same")

c = Candidate(
    "--lock",
    directory + "/unstarted",
    "-e",
    "return { on_start = function() error('no address') end, on_leading = print }",
)
same(c.leave(), 1, "errors: one in on_start ends the program, with status 1")
ok(
    wait_for(lambda: c.closed) and c.all("on_start_failed", "(-e):1: no address"),
    "errors: it is in the log, with its line",
)
ok(not c.all("became_leader") and not os.path.exists(directory + "/unstarted"), "errors: and nothing has campaigned")

r, w = os.pipe()
process = subprocess.Popen(
    [
        LUNARCH,
        "run",
        *FAST,
        "--lock",
        directory + "/full",
        "-e",
        "for i = 1, 5000 do print(string.rep('x', 200)) end io.write('led\\n') io.flush() while true do sleep(1) end",
    ],
    stderr=w,
    stdout=subprocess.PIPE,
)
os.close(w)
same(piped(process.stdout).readline(), b"led\n", "full pipe: a log that nobody reads stops nothing")


def renewals() -> str:
    with open(directory + "/full") as f:
        return json.load(f)["renewTime"]


first = renewals()
ok(wait_for(lambda: renewals() != first), "full pipe: the lease is renewed on")
process.send_signal(signal.SIGTERM)
same(process.wait(PATIENCE), 0, "full pipe: and it leaves when it is told to")
stop_everyone()
shutil.rmtree(directory, ignore_errors=True)
done()

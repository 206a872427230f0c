#!/usr/bin/env -S PYTHONPATH=. python3
"""A worker that dies at a bad moment: while the program is told to leave, or when the script can no longer be loaded.
Nobody may wait for it for ever, and its on_stopped may not be forgotten."""

import json
import os
import shutil
import signal
import subprocess
import time
from typing import Any

from tests.lib.candidates import FAST, Candidate
from tests.lib.field import Field, freeze
from tests.lib.processes import LUNARCH, PATIENCE, scratch, wait_for
from tests.lib.tap import at_once, done, ok, same

SCRIPT = """%s
return {
  on_leading = function(term) print("leading " .. term.token) end,
  on_stopped = function(term, reason) print("stopped " .. reason) end,
}"""


def put(path: str, text: str) -> None:
    with open(path + ".new", "w") as f:
        f.write(text)
    os.rename(path + ".new", path)


def told_to_leave() -> None:
    """The worker is killed, and SIGTERM comes while its replacement is loading."""
    directory = scratch()
    script = directory + "/s.lua"
    put(
        script,
        SCRIPT
        % f"""if io.open('{directory}/slow') then
  io.open('{directory}/loading', 'w'):close() while not io.open('{directory}/go') do sleep(0.01) end
end""",
    )
    c = Candidate("--lock", directory + "/lock", script)
    c.wait("print", "leading")
    put(directory + "/slow", "")
    c.kill(signal.SIGKILL, c.worker())
    ok(
        wait_for(lambda: os.path.exists(directory + "/loading")),
        "told to leave: the killed worker's replacement is loading",
    )
    c.kill(signal.SIGTERM)
    time.sleep(0.3)
    put(directory + "/go", "")
    same(c.leave(), 0, "told to leave: the program ends, with 0")
    wait_for(lambda: c.closed)
    same(len(c.said("stopped")), 1, "told to leave: and the replacement has run on_stopped, once")
    with open(directory + "/lock") as f:
        same(json.load(f)["holderIdentity"], "", "told to leave: the lock is released")
    shutil.rmtree(directory)


def frozen_and_told() -> None:
    """A frozen elector that finds its term over and SIGTERM waiting, both at once."""
    f = Field("frozen")
    a = f.join("a", times=FAST)
    f.acts(1, "a")
    b = f.join("b", times=FAST)
    b.wait("new_leader")
    freeze(a, f.lock)
    f.acts(1, "b")
    a.kill(signal.SIGTERM)
    a.kill(signal.SIGCONT)
    same(a.leave(), 0, "frozen, then told to leave: it leaves")
    wait_for(lambda: a.closed)
    same(len(a.said("stopped")), 1, "frozen, then told to leave: on_stopped has run once")
    f.verdict("frozen, then told to leave")
    f.end()


def cannot_be_loaded(ending: Any) -> None:
    name = "cannot be loaded, and told to leave" if ending else "cannot be loaded"
    directory = scratch()
    script, lock, broken = (f"{directory}/{n}" for n in ("s.lua", "lock", "broken"))
    put(script, SCRIPT % f"if io.open('{broken}') then error 'something that it needs is broken' end")
    c = Candidate("--lock", lock, "--shutdown-grace", "1s", script)
    c.wait("print", "leading")
    other = Candidate("--lock", lock, "-e", "print 'the other leads'")
    other.wait("new_leader")
    put(broken, "")
    c.kill(signal.SIGKILL, c.worker())
    if ending:
        c.kill(signal.SIGTERM)
    ok(other.wait("print", "the other leads"), f"{name}: the lease is not kept for a worker that cannot be replaced")
    if ending:
        same(c.leave(), 0, f"{name}: and the program ends")
    else:
        ok(c.all("load_failed") and not c.said("stopped"), f"{name}: the log says why")
        os.unlink(broken)
        ok(c.wait("print", "stopped"), f"{name}: repaired, it is loaded, and on_stopped runs though another leads")
        other.stop()
        ok(c.wait("print", "leading", count=2), f"{name}: then it takes part again")
        same(
            [e["message"].split()[0] for e in c.all("print")],
            ["leading", "stopped", "leading"],
            f"{name}: on_stopped has run once for the old term, before the new one",
        )
    c.stop()
    other.stop()
    shutil.rmtree(directory)


def still_paused() -> None:
    """An operator's pause outlives the worker."""
    directory = scratch()
    script, lock = directory + "/s.lua", directory + "/lock"
    put(script, SCRIPT % "")
    c = Candidate("--lock", lock, "--control", directory + "/c", script)
    c.wait("print", "leading")
    r = subprocess.run([LUNARCH, "ctl", "--control", directory + "/c", "pause"], timeout=PATIENCE)
    same(r.returncode, 0, "paused: an operator pauses a leader")
    c.kill(signal.SIGKILL, c.worker())
    c.wait("print", "stopped")
    other = Candidate("--lock", lock, "-e", "print 'the other leads'")
    ok(other.wait("print", "the other leads"), "paused: its worker dies, and another takes over")
    c.wait("new_leader")  # or it might never see the short term that is to end
    before = len(c.all("no_leader"))
    other.stop()
    ok(c.wait("no_leader", count=before + 1), "paused: the lock is free again")
    time.sleep(1)
    same(len(c.all("became_leader")), 1, "paused: and the paused one has not led since, though it has a new worker")
    subprocess.run([LUNARCH, "ctl", "--control", directory + "/c", "resume"], timeout=PATIENCE)
    ok(c.wait("print", "leading", count=2), "paused: until it is resumed")
    c.stop()
    shutil.rmtree(directory)


def broken() -> None:
    cannot_be_loaded(False)


def broken_and_ending() -> None:
    cannot_be_loaded(True)


at_once(told_to_leave, frozen_and_told, broken, broken_and_ending, still_paused)
done()

#!/usr/bin/env -S PYTHONPATH=. python3
"""A worker that dies when the script can no longer be loaded, and an elector that finds its term over and SIGTERM
waiting: nobody may wait for it for ever, and its on_stopped may not be forgotten. Other orders of events:
unit/term/test_life_search.c."""

import os
import signal

from tests.lib.candidates import FAST, Candidate
from tests.lib.commands import replace
from tests.lib.field import Field, freeze
from tests.lib.processes import scratch, wait_for
from tests.lib.tap import at_once, done, ok, same

SCRIPT = """%s
return {
  on_leading = function(term) print("leading " .. term.token) end,
  on_stopped = function(term, reason) print("stopped " .. reason) end,
}"""


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


def cannot_be_loaded() -> None:
    name = "cannot be loaded"
    directory = scratch()
    script, lock, broken = (f"{directory}/{n}" for n in ("s.lua", "lock", "broken"))
    replace(script, SCRIPT % f"if io.open('{broken}') then error 'something that it needs is broken' end")
    c = Candidate("--lock", lock, "--shutdown-grace", "1s", script)
    c.wait("print", "leading")
    other = Candidate("--lock", lock, "-e", "print 'the other leads'")
    other.wait("new_leader")
    replace(broken, "")
    c.kill(signal.SIGKILL, c.worker())
    ok(other.wait("print", "the other leads"), f"{name}: the lease is not kept for a worker that cannot be replaced")
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


at_once(frozen_and_told, cannot_be_loaded)
done()

#!/usr/bin/env -S PYTHONPATH=. python3
"""How much time a script has that is told to stop, with real processes: the shutdown grace while the lease is renewed,
also if that is longer than the lease. And what on_stopping may do in it."""

import os
import signal
import subprocess
import time

from tests.lib.candidates import STEADY, Candidate, stop_everyone
from tests.lib.processes import LUNARCH, scratch
from tests.lib.tap import at_once, done, ok, same

SLOW = """return {
  on_leading = function() print "leading" exec(%s) end,
  on_stopped = function(_, reason) print("stops " .. reason) sleep(%s) print "stopped" end,
}"""
STUBBORN = (
    """"trap 'echo told' TERM; echo in; n=0; while [ $n -lt 60 ]; do sleep 0.1; n=$((n+1)); done; echo done","""
    """ { stdout = "inherit" }"""
)


def slow_hook() -> None:
    """A lease of 6 s: on_stopped takes longer than what is left of it when the stop begins."""
    lock = os.path.join(scratch(), "lock")
    a = Candidate("--lock", lock, "--shutdown-grace", "300s", "-e", SLOW % ('"sleep 1000"', "8"), options=STEADY)
    a.wait("print", "leading")
    b = Candidate("--lock", lock, "-e", "print 'the next'", options=STEADY)
    b.wait("new_leader")
    a.kill(signal.SIGTERM)
    same(a.leave(), 0, "on_stopped: it ends as it should")
    same([e["message"] for e in a.said("stop")], ["stops shutdown", "stopped"], "on_stopped: it was not cut")
    same(a.all("on_stopped_slow") + a.all("worker_gone"), [], "on_stopped: nor was the worker killed")
    ended = a.said("stopped")[0]["seen"]
    ok(b.event("became_leader")["seen"] > ended - 0.1, "on_stopped: the lease was held meanwhile")


def slow_child() -> None:
    """A child that goes on for 6 s after SIGTERM, which is less than half of the time."""
    out = os.path.join(scratch(), "out")
    with open(out, "w") as f:
        c = Candidate(
            "--lock", out + ".lock", "--shutdown-grace", "300s", "-e", SLOW % (STUBBORN, "0"), options=STEADY, stdout=f
        )
        c.wait("print", "leading")
        while "in" not in open(out).read():
            pass
        c.kill(signal.SIGTERM)
        same(c.leave(), 0, "a child: the program ends as it should")
    same(
        open(out).read().split(), ["in", "told", "done"], "a child has half of the time to stop, whatever the lease is"
    )


DRAINS = """return {
  on_leading = function(term) print("leading " .. term.token) end,
  on_stopping = function(term, reason)
    print("draining " .. reason)
    while exec({ "test", "-e", "%s" }).code ~= 0 do sleep(0.05) end
    print("drained " .. tostring(term:is_leading()))
  end,
  on_stopped = function(_, reason) print("stopped " .. reason) end,
}"""


class Drain:
    """A leader whose on_stopping waits for a file, and another candidate."""

    def __init__(self, *options: str) -> None:
        self.room = scratch()
        self.gate, self.script = os.path.join(self.room, "gate"), os.path.join(self.room, "s.lua")
        with open(self.script, "w") as f:
            f.write(DRAINS % self.gate)
        args = ("--lock", os.path.join(self.room, "lock"), *options, "--shutdown-grace", "300s")
        self.a = Candidate(*args, self.script, options=STEADY)
        self.a.event("print", "leading")
        self.b = Candidate("--lock", os.path.join(self.room, "lock"), "-e", "print 'the next'", options=STEADY)
        self.b.event("new_leader")

    def open(self) -> None:
        open(self.gate, "w").close()

    def told(self) -> list[str]:
        return [e["message"].split(" ")[0] + " " + e["message"].split(" ")[-1] for e in self.a.all("print")]


def drained() -> None:
    """For longer than the lease, so that it was renewed."""
    d = Drain()
    d.a.kill(signal.SIGTERM)
    d.a.event("print", "draining shutdown")
    time.sleep(7)
    same(d.b.all("became_leader"), [], "on_stopping: the lease is held while it runs")
    d.open()
    same(d.a.leave(), 0, "on_stopping: then the program ends")
    same(d.told()[1:], ["draining shutdown", "drained true", "stopped shutdown"], "on_stopping: before on_stopped")
    ok(d.b.wait("became_leader"), "on_stopping: and another one leads")


def second_signal() -> None:
    d = Drain()
    d.a.kill(signal.SIGTERM)
    d.a.event("print", "draining")
    time.sleep(0.5)  # within a quarter of a second it would count as the same signal
    d.a.kill(signal.SIGTERM)
    ok(d.a.leave() not in (0, None), "a second signal: the program ends at once")
    ok(d.a.all("killing"), "a second signal: it kills the script")
    ok(d.b.wait("became_leader"), "a second signal: and another one leads")


def dead_worker() -> None:
    d = Drain()
    d.a.kill(signal.SIGTERM)
    d.a.event("print", "draining")
    d.a.kill(signal.SIGKILL, d.a.worker())
    same(d.a.leave(), 0, "a worker that dies in on_stopping: the program ends as it should")
    same(
        d.told()[1:],
        ["draining shutdown", "stopped worker"],
        "a worker that dies in on_stopping: the next runs on_stopped",
    )


def reloaded() -> None:
    """The lease is kept, so the second candidate does not lead. The script that was loaded first drains."""
    d = Drain()
    with open(d.script + ".new", "w") as f:
        f.write('return { on_leading = function(term) print("new " .. term.token) end }')
    os.rename(d.script + ".new", d.script)
    d.a.kill(signal.SIGHUP)
    d.a.event("print", "draining reload")
    d.open()
    d.a.event("print", "new")
    same(d.told()[1:4], ["draining reload", "drained true", "stopped reload"], "a reload: the old script drains")
    same((len(d.told()), d.b.all("became_leader")), (5, []), "a reload: then the new one leads, with the same lease")


def resigned() -> None:
    path = os.path.join(scratch(), "control")
    d = Drain("--control", path)
    subprocess.run([LUNARCH, "ctl", "--control", path, "resign"], check=True, capture_output=True)
    d.a.event("print", "draining resigned")
    d.a.kill(signal.SIGTERM)
    same(d.b.all("became_leader"), [], "resigned, then stopped: it drains on")
    d.open()
    same(d.a.leave(), 0, "resigned, then stopped: and ends")
    same(
        d.told()[1:],
        ["draining resigned", "drained true", "stopped resigned"],
        "resigned, then stopped: it drains once",
    )


at_once(slow_hook, slow_child, drained, second_signal, dead_worker, reloaded, resigned)
stop_everyone()
done()

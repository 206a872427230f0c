#!/usr/bin/env python3
"""How much time a script has that is told to stop, with real processes: the shutdown grace while the lease is renewed,
also if that is longer than the lease."""

import os
import signal
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from candidates import STEADY, Candidate, stop_everyone
from processes import scratch
from tap import at_once, done, ok, same

SLOW = """return {
  on_leading = function() print "leading" exec(%s) end,
  on_stopped = function(_, reason) print("stops " .. reason) sleep(%s) print "stopped" end,
}"""
STUBBORN = '"trap \'echo told\' TERM; echo in; n=0; while [ $n -lt 60 ]; do sleep 0.1; n=$((n+1)); done; echo done", { stdout = "inherit" }'


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


at_once(slow_hook, slow_child)
stop_everyone()
done()

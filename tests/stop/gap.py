#!/usr/bin/env -S PYTHONPATH=. python3
"""An elector that leads is stopped (SIGSTOP) for longer than its lease, and continued: its guard has done its work
meanwhile. The log says what happened, and nothing that did not; and nobody leads before there is a worker again."""

import os
import signal
import time

from tests.lib.candidates import FAST, Candidate, stop_everyone
from tests.lib.processes import scratch, wait_for
from tests.lib.tap import at_once, done, ok, same


def has_exited(pid: int) -> bool:
    with open(f"/proc/{pid}/stat") as f:
        return f.read().rsplit(")", 1)[1].split()[0] == "Z"


def stop_and_go_on(c: Candidate) -> None:
    """For as long as the guard needs, and a second more."""
    guard = c.guard()
    c.kill(signal.SIGSTOP)
    wait_for(lambda: has_exited(guard))
    time.sleep(1)
    c.kill(signal.SIGCONT)


def said(c: Candidate, what: str) -> None:
    gap = c.wait("did_not_run")
    ok(
        gap and float(gap["message"].split(" for ")[1].split(" ")[0]) > 1,
        f"{what}: the log says how long it did not run",
    )
    c.wait("stopped_leading")
    events = [e["event"] for e in c.events]
    ok(events.index("did_not_run") < events.index("stopped_leading"), f"{what}: before it says that the term is over")
    same(c.all("guard_killed") + c.all("guard_lost"), [], f"{what}: nothing is said of the guard, which did its work")


def script(what: str, hook: str) -> None:
    text = f"return {{ on_leading = function() print 'leading' end, {hook} }}"
    c = Candidate("--lock", os.path.join(scratch(), "lock"), "-e", text, options=FAST)
    c.event("print", "leading")
    stop_and_go_on(c)
    ok(c.wait("print", "leading", count=2), f"{what}: a new worker leads")
    said(c, what)
    c.wait("became_leader", count=2)  # which is logged after the hook was told
    same(len(c.all("became_leader")) - len(c.said("leading")), 0, f"{what}: every term that began was a worker's")
    same(c.all("stopped_leading", "worker"), [], f"{what}: none ended for want of one")


def command() -> None:
    c = Candidate("--lock", os.path.join(scratch(), "lock"), "--", "sleep", "1000", command="exec", options=FAST)
    c.event("became_leader")
    wait_for(lambda: c.worker())
    stop_and_go_on(c)
    same(c.leave(), 76, "exec: the lock was lost")
    said(c, "exec")


at_once(
    lambda: script("with on_stopped", "on_stopped = function() print 'stopped' end"),
    lambda: script("without on_stopped", ""),
    command,
)
stop_everyone()
done()

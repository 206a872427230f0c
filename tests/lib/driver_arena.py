"""Elections on a lock in Lua whose drivers are hurt: killed, stopped and continued, slowed down at any moment. No two
leaders, by the witness of field.py."""

import os
import random
import signal
import time
from typing import Any

from tests.lib.arena import Arena
from tests.lib.processes import alive, children, runs_lock_file, wait_for
from tests.lib.tap import at_once, done, ok

KILL, STOP, CONT = signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT
HARMS = 300 if os.environ.get("FULL") else 30


def driver_of(c: Any) -> int:
    return next((p for p in children(c.pid) if runs_lock_file(p)), 0)


def killed(c: Any, pid: int) -> None:
    c.kill(KILL, pid)
    time.sleep(random.uniform(0, 1))


def stopped(c: Any, pid: int) -> None:
    c.kill(STOP, pid)
    time.sleep(random.uniform(0, 1))
    c.kill(CONT, pid)


def slowed(c: Any, pid: int) -> None:
    """Stopped most of the time: what it does between two stops is a few steps of an operation."""
    ends = time.monotonic() + random.uniform(0, 1)
    while time.monotonic() < ends:
        c.kill(STOP, pid)
        time.sleep(0.05)
        c.kill(CONT, pid)
        time.sleep(random.uniform(0, 0.005))


def storm(f: Arena) -> None:
    """Of any candidate, again and again."""
    everybody = f.enter("a", "b", "c")
    for _ in range(HARMS):
        c = random.choice(everybody)
        random.choice([killed, killed, stopped, slowed])(c, wait_for(lambda: driver_of(c)))
    before = f.record()["write"]
    ok(wait_for(lambda: f.record()["write"] != before), f"{f.name}: after {HARMS} of them somebody leads")


def hung(f: Arena) -> None:
    """Of the leader, which stands still: it is replaced, or another one leads."""
    both = f.enter("a", "b")
    for _ in range(3):
        leader = next(c for c in both if c.name == f.terms()[-1][1])
        pid = wait_for(lambda: driver_of(leader))
        leader.kill(STOP, pid)
        ok(wait_for(lambda: not alive(pid)), f"{f.name}: one that does not answer is killed")
        before = f.record()["write"]
        ok(wait_for(lambda: f.record()["write"] != before), f"{f.name}: and somebody leads on")


def orphaned(f: Arena) -> None:
    """Of a leader whose elector is killed while the driver stands still: it writes nothing any more."""
    a, _ = f.enter("a", "b")
    pid = wait_for(lambda: driver_of(a))
    a.kill(STOP, pid)
    since = time.monotonic()
    a.kill()
    ok(wait_for(lambda: not alive(pid)), f"{f.name}: it ends with its elector")
    ok(f.next(2, since) == "b", f"{f.name}: b leads")


def job(store: Any, case: Any) -> Any:
    def play() -> None:
        f = Arena(store, f"drivers {case.__name__}")
        try:
            case(f)
        finally:
            f.close()

    play.__name__ = f"drivers {case.__name__}"
    return play


def contest(store: Any) -> None:
    os.environ.update(store.env)
    at_once(*[job(store, case) for case in (storm, hung, orphaned)])
    store.end()
    done()

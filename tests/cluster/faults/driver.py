#!/usr/bin/env python3
"""No two leaders, whatever happens to the drivers of a lock in Lua: killed, stopped and continued at any moment."""

import os
import random
import signal
import sys
import time
from typing import Any

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from arena import Arena
from processes import alive, children, runs_lock_file, wait_for
from stores import Box
from tap import at_once, done, ok

KILL, STOP, CONT = signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT
HARMS = 300 if os.environ.get("FULL") else 30


def driver_of(c: Any) -> int:
    return next((p for p in children(c.pid) if runs_lock_file(p)), 0)


def storm(f: Any) -> None:
    """Of any candidate, again and again."""
    everybody = f.enter("a", "b", "c")
    for _ in range(HARMS):
        c = random.choice(everybody)
        pid = wait_for(lambda: driver_of(c))
        how = random.choice([KILL, KILL, STOP])
        c.kill(how, pid)
        time.sleep(random.uniform(0, 1))
        if how == STOP:
            c.kill(CONT, pid)
    before = f.record()["write"]
    ok(wait_for(lambda: f.record()["write"] != before), f"{f.name}: after {HARMS} of them somebody leads")


def hung(f: Any) -> None:
    """Of the leader, which stands still: it is replaced, or another one leads."""
    both = f.enter("a", "b")
    for _ in range(3):
        leader = next(c for c in both if c.name == f.terms()[-1][1])
        pid = wait_for(lambda: driver_of(leader))
        leader.kill(STOP, pid)
        ok(wait_for(lambda: not alive(pid)), f"{f.name}: one that does not answer is killed")
        before = f.record()["write"]
        ok(wait_for(lambda: f.record()["write"] != before), f"{f.name}: and somebody leads on")


def orphaned(f: Any) -> None:
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
        f = Arena(store, case.__name__)
        try:
            case(f)
        finally:
            f.close()

    play.__name__ = f"drivers {case.__name__}"
    return play


store = Box()
os.environ.update(store.env)
at_once(*[job(store, case) for case in (storm, hung, orphaned)])
store.end()
done()

#!/usr/bin/env -S PYTHONPATH=. python3
"""A script's workers: one that dies is replaced by the same script, whatever its file says by then; hooks belong to
their own election's lock; and after each disturbance the candidate leads again. How long a worker is waited for is in
test_deadlines.py, what a reload does as a whole in cli/reload_whole.py; every order in which workers may die, load and
be replaced in unit/term/test_life_search.c, and drawn orders on the real program in cluster/sequences."""

import fcntl
import os
import signal
import time

from tests.lib.candidates import stop_everyone
from tests.lib.life import Life
from tests.lib.processes import alive, state_of, wait_for
from tests.lib.tap import at_once, done, ok, same

ONE = "return { election 'a' }"
TWO_NAMES = "return { election 'a', election 'b' }"
SLOW = "return { slow 'a' }"


def own_locks(p: Life, what: str) -> None:
    """Hooks say the name of their election, and the log which lock it has."""
    astray = [e["message"] for e in p.c.all("print") if e["message"].split()[2] != os.path.basename(e.get("lock", ""))]
    same(astray, [], f"{what}: no hook has run under the lock of another election")


def a_file_with_elections_in_another_order() -> None:
    what = "elections in another order"
    p = Life()
    p.put("one", TWO_NAMES)
    rival = p.rival("b")
    p.start()
    p.c.event("print", "leading one a")
    p.put("two", "return { election 'b', election 'a' }")
    p.kill_worker(p.guards()[0])
    ok(p.leads("one", count=2), f"{what}: a replacement runs the script that was loaded, not the file")
    same([w for w in p.terms("leading") if w[2] == "b"], [], f"{what}: b is led by one machine, its holder")
    own_locks(p, what)
    p.agrees(what)
    rival.stop()
    ok(p.leads("one", "b"), f"{what}: b is led here when its holder has gone")
    own_locks(p, what)
    p.ends(what)


def a_file_with_another_lock() -> None:
    what = "another lock in the file"
    p = Life()
    p.put("one", ONE)
    p.start()
    p.c.event("print", "leading one a")
    p.put("two", "return { election('a', { lock = dir .. '/other' }) }")
    p.kill_worker(p.guards()[0])
    ok(p.leads("one", count=2), f"{what}: a replacement runs the old script under the old lock")
    same(p.terms("leading two"), [], f"{what}: new code never runs under the old lock")
    status, text = p.ctl("reload")
    same(status, 0, f"{what}: a reload takes the new script")
    ok(p.leads("two") and p.record("other").get("holderIdentity"), f"{what}: which leads under the new lock")
    p.agrees(what)
    p.ends(what)


def a_worker_killed_while_its_elections_go() -> None:
    what = "killed while its elections go"
    p = Life()
    p.put("one", "return { slow 'a', slow 'b' }")
    p.start("--shutdown-grace", "300s")
    p.c.event("print", "leading one a")
    p.c.event("print", "leading one b")
    old = p.guards()[0]
    p.put("two", "return { election 'c' }")
    p.c.kill(signal.SIGHUP)
    p.c.event("print", "stopping one b")
    p.kill_worker(old)
    ok(
        all(p.c.wait("print", f"stopped one {n}") for n in "ab"),
        f"{what}: a replacement of the old script runs on_stopped",
    )
    ok(p.leads("two", "c"), f"{what}: and the new election is led")
    own_locks(p, what)
    p.agrees(what, "c")
    p.ends(what)


def the_hangup_of_a_whole_unit() -> None:
    """As `systemctl kill -s HUP UNIT`, which signals all of its processes."""
    what = "SIGHUP to all processes"
    p = Life()
    p.put("one", ONE)
    p.start()
    p.c.event("print", "leading one a")
    p.put("two", ONE)
    guard = p.guards()[0]
    for pid in (p.c.pid, p.worker_of(guard), guard):
        p.c.kill(signal.SIGHUP, pid)
    ok(wait_for(lambda: len(p.terms("leading")) >= 2), f"{what}: it leads again, by the old script or the new one")
    p.agrees(what)
    same(p.c.stop(), 0, f"{what}: it ends with 0")


def killed_while_the_release_is_slow() -> None:
    """AddressSanitizer shows what is used after it has been freed."""
    what = "killed while the release is slow"
    for twice, drains in (True, "return { slow('a', { on_stopped = false }) }"), (False, ONE):
        how = "by a second signal" if twice else "by somebody else"
        p = Life()
        p.put("one", drains)
        p.start("--shutdown-grace", "300s")
        p.c.event("print", "leading one a")
        guard = p.guards()[0]
        with open(p.dir + "/.a.lock") as store:
            fcntl.flock(store, fcntl.LOCK_EX)  # no write is carried out
            p.c.kill(signal.SIGTERM)
            p.c.event("print", "stop")
            if twice:
                time.sleep(0.5)  # within a quarter of a second it would count as the same signal
                p.c.kill(signal.SIGTERM)
                wait_for(lambda: not alive(guard))
            else:
                p.kill_worker(guard)
        same(p.c.leave(), 143 if twice else 0, f"{what}: {how}: it ends with the status that is due")
        same(p.record()["holderIdentity"], "", f"{what}: {how}: and the lock is released")


def replaced_while_the_old_one_drains() -> None:
    what = "replaced while the old one drains"
    p = Life()
    p.put("one", SLOW)
    p.start("--shutdown-grace", "300s")
    p.c.event("print", "leading one a")
    old = p.guards()[0]
    p.put("two", "note 'loads' return { election 'a' }")
    p.c.kill(signal.SIGHUP)
    p.c.event("print", "stopping one a")
    p.kill_worker(p.guard_beside(old))
    wait_for(lambda: len(p.noted("loads")) == 2)
    wait_for(lambda: state_of(p.noted("loads")[1]) == "S")  # it has loaded the script, and waits
    p.touch("drained")
    ok(p.leads("two"), f"{what}: the new script leads after it")
    same(len(p.c.all("worker_gone")), 1, f"{what}: in the replacement")
    same({w[1] for w in p.terms("stopped")}, {"one"}, f"{what}: on_stopped has run for the old script's terms alone")
    p.agrees(what)
    p.ends(what)


at_once(
    a_file_with_elections_in_another_order,
    a_file_with_another_lock,
    a_worker_killed_while_its_elections_go,
    the_hangup_of_a_whole_unit,
    killed_while_the_release_is_slow,
    replaced_while_the_old_one_drains,
)
stop_everyone()
done()

#!/usr/bin/env -S PYTHONPATH=. python3
"""A script's workers: one that dies is replaced by the same script, whatever its file says by then; hooks belong to
their own election's lock; and after each disturbance the candidate leads again. How long a worker is waited for is in
test_deadlines.py, what a reload does as a whole in cli/reload_whole.py."""

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


def a_file_with_fewer_elections() -> None:
    what = "fewer elections in the file"
    p = Life()
    p.put("one", TWO_NAMES)
    p.start()
    p.c.event("print", "leading one a")
    p.c.event("print", "leading one b")
    p.put("two", ONE)
    p.kill_worker(p.guards()[0])
    ok(p.leads("one", count=2) and p.leads("one", "b", 2), f"{what}: both are led again while the file stays so")
    same(p.c.all("worker_gone")[1:], [], f"{what}: no replacement has died")
    same(p.ctl("reload")[0], 0, f"{what}: a reload is answered")
    ok(p.leads("two"), f"{what}: and takes the new script")
    ok(wait_for(lambda: not p.record("b")["holderIdentity"]), f"{what}: the lock of b, which is gone, is released")
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


def reload_in_its_drain(p: Life) -> tuple[int, int]:
    """The guards of the old and the new worker, while the old one drains."""
    p.put("one", SLOW)
    p.start("--shutdown-grace", "300s")
    p.c.event("print", "leading one a")
    old = p.guards()[0]
    p.put("two", ONE)
    p.c.kill(signal.SIGHUP)
    p.c.event("print", "stopping one a")
    return old, p.guard_beside(old)


def both_workers_of_a_reload_killed() -> None:
    what = "the new worker killed, then the old one"
    p = Life()
    old, new = reload_in_its_drain(p)
    p.kill_worker(new)
    p.kill_worker(p.guard_beside(old, new))
    p.c.event("worker_gone", count=2)  # so it is replaced after a pause: the first replacement follows at once
    p.kill_worker(old)
    ok(p.leads("two"), f"{what}: the new script leads")
    p.agrees(what)
    p.ends(what)


def all_workers_at_once() -> None:
    for what in "all workers killed, the old one first", "all workers killed, the new one first":
        p = Life()
        guards = reload_in_its_drain(p)
        p.c.kill(signal.SIGSTOP)
        for guard in guards if "old one first" in what else reversed(guards):
            p.kill_worker(guard)
        p.c.kill(signal.SIGCONT)
        ok(p.leads("two"), f"{what}: the new script leads")
        p.agrees(what)
        p.ends(what)


def a_worker_killed_while_the_next_loads() -> None:
    what = "killed while the next one loads"
    p = Life()
    p.put("one", "return { election('a', { on_stopped = false }) }")
    p.start()
    p.c.event("print", "leading one a")
    old = p.guards()[0]
    # What a replacement would load of it takes longer.
    p.put(
        "two",
        "if first 'came' then note 'loads' hold 'loaded' else hold 'late' end "
        "return { election('a', { on_stopped = false }) }",
    )
    asked = p.begin("reload")
    wait_for(lambda: p.noted("loads"))
    p.kill_worker(old)
    p.c.wait("worker_gone")
    p.touch("loaded")
    status, text = p.answer(asked)
    ok(status == 0 or "the old script runs on" in text, f"{what}: the reload is answered", text)
    ok(p.leads("two") if status == 0 else p.leads("one", count=2), f"{what}: and that script leads")
    p.agrees(what)
    same(p.c.stop(), 0, f"{what}: it ends with 0")


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


def a_worker_killed_in_its_drain() -> None:
    what = "killed in its drain"
    p = Life()
    p.put("one", "return { slow('a', { on_stopped = false }) }")
    p.start("--shutdown-grace", "300s")
    p.c.event("print", "leading one a")
    old = p.guards()[0]
    p.put("two", "return { election('a', { on_stopped = false }) }")
    p.c.kill(signal.SIGHUP)
    p.c.event("print", "stopping one a")
    p.kill_worker(old)
    ok(p.leads("two"), f"{what}: the new script leads")
    p.agrees(what)
    same(p.c.stop(), 0, f"{what}: it ends with 0")


def elections_change_while_the_old_worker_is_busy() -> None:
    what = "busy while elections change"
    p = Life()
    rival = p.rival("a")
    p.put("one", "return { election('a', { on_new_leader = function() note 'busy' while true do end end }) }")
    p.start("--shutdown-grace", "2s")
    wait_for(lambda: p.noted("busy"))
    p.put("two", "return { election 'b' }")
    p.c.kill(signal.SIGHUP)
    if ok(p.leads("two", "b"), f"{what}: the new election is led"):
        ok(wait_for(lambda: not alive(p.noted("busy")[0])), f"{what}: the old worker is gone")
        p.kill_worker(p.guards()[-1])
        ok(p.leads("two", "b", 2), f"{what}: a worker that dies later is replaced")
        p.agrees(what, "b")
    p.ends(what)
    rival.stop()


def elections_change_after_a_death() -> None:
    what = "elections change after a death"
    p = Life()
    p.put("one", "return { slow('a', { on_stopped = false }) }")
    p.start("--shutdown-grace", "300s")
    p.c.event("print", "leading one a")
    p.kill_worker(p.guards()[0])
    p.c.event("print", "leading one a", count=2)
    old = p.guards()[0]
    p.put("two", "return { election 'b' }")
    p.c.kill(signal.SIGHUP)
    p.c.event("print", "stopping one a")
    p.kill_worker(old)
    ok(p.leads("two", "b"), f"{what}: killed in its drain, the elector goes on, and leads the new election")
    p.agrees(what, "b")
    same(p.c.stop(), 0, f"{what}: it ends with 0 when it is told to")


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
    a_file_with_fewer_elections,
    a_worker_killed_while_its_elections_go,
    both_workers_of_a_reload_killed,
    all_workers_at_once,
    a_worker_killed_while_the_next_loads,
    the_hangup_of_a_whole_unit,
    a_worker_killed_in_its_drain,
    elections_change_while_the_old_worker_is_busy,
    elections_change_after_a_death,
    killed_while_the_release_is_slow,
    replaced_while_the_old_one_drains,
)
stop_everyone()
done()

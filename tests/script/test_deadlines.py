#!/usr/bin/env -S PYTHONPATH=. python3
"""How long a worker is waited for: until it has loaded the script and started, until it quits, and in a drain. One that
is late is killed, and the log says so; one that is merely slow is not."""

import os
import signal
import time

from tests.lib.candidates import FAST, stop_everyone
from tests.lib.life import Life
from tests.lib.processes import alive, wait_for
from tests.lib.tap import at_once, done, ok, same

ONE = "return { election 'a' }"


def a_load_without_end() -> None:
    what = "a load without end"
    p = Life()
    p.put("one", "while true do end")
    p.start("--start-timeout", "1s")
    same(p.c.leave(), 1, f"{what}: at the start it is a failure of the script")
    ok(p.c.wait("worker_silent"), f"{what}: which the log names")
    p.c.stop()


def a_load_without_end_later() -> None:
    what = "a later load without end"
    p = Life()
    p.put("one", "while there 'blocked' do end return { election 'a' }")
    p.start("--start-timeout", "5s")
    p.c.event("print", "leading one a")
    rival = p.rival("a")
    p.touch("blocked")
    status, text = p.ctl("reload")
    ok(status == 1 and "the old script runs on" in text, f"{what}: a reload of it fails, and says so", text)
    ok(p.c.wait("worker_silent"), f"{what}: and the log says why")
    same((len(p.terms("leading")), rival.said("leads")), (1, []), f"{what}: the old script leads on")
    rival.stop()
    p.kill_worker(p.guards()[0])
    ok(p.c.wait("worker_silent", count=3), f"{what}: a replacement of which the same is true is tried again")
    os.unlink(p.dir + "/blocked")
    ok(p.leads("one", count=2), f"{what}: and leads when it can be loaded")
    p.agrees(what)
    p.put("two", ONE)
    same(p.ctl("reload")[0], 0, f"{what}: a later reload is not held up by it")
    ok(p.leads("two"), f"{what}: and takes the new script")
    p.ends(what)


def told_to_end_while_a_script_loads() -> None:
    what = "told to end while a script loads"
    p = Life()
    p.put("one", "if there 'blocked' then note 'loads' end while there 'blocked' do end return { election 'a' }")
    p.start("--start-timeout", "10m", "--shutdown-grace", "2s")
    p.c.event("print", "leading one a")
    p.touch("blocked")
    asked = p.begin("reload")
    wait_for(lambda: p.noted("loads"))
    loader = p.noted("loads")[0]
    p.c.kill(signal.SIGTERM)
    ok(p.answer(asked)[0] == 1, f"{what}: the reload is refused")
    p.ends(what)
    ok(not alive(loader), f"{what}: and what loaded the script is gone")


def a_slow_load() -> None:
    what = "a slow load"
    p = Life()
    p.put("one", "os.execute 'sleep 3' return { election 'a' }")
    p.start("--start-timeout", "30s")
    ok(p.leads("one"), f"{what}: at the start")
    same(p.ctl("reload")[0], 0, f"{what}: in a reload")
    ok(p.leads("one", count=2), f"{what}: after which it leads")
    p.kill_worker(p.guards()[-1])
    ok(p.leads("one", count=3), f"{what}: and in a replacement")
    same(p.c.all("worker_silent"), [], f"{what}: no worker is killed for it")
    p.agrees(what)
    p.ends(what)


def a_worker_that_does_not_quit() -> None:
    what = "a worker that does not quit"
    p = Life()
    rival = p.rival("a")
    p.put("one", "return { election('a', { on_new_leader = function() note 'busy' while true do end end }) }")
    p.start("--shutdown-grace", "2s")
    wait_for(lambda: p.noted("busy"))
    p.put("two", ONE)
    same(p.ctl("reload")[0], 0, f"{what}: the reload is answered")
    ok(wait_for(lambda: not alive(p.noted("busy")[0])), f"{what}: it is killed after the shutdown grace")
    ok(wait_for(lambda: len(p.guards()) == 1), f"{what}: and so is its guard, and one worker is left")
    rival.stop()
    ok(p.leads("two"), f"{what}: and the new script leads when it is its turn")
    p.agrees(what)
    p.ends(what)


def a_worker_that_is_slow_to_quit() -> None:
    what = "a worker that is slow to quit"
    p = Life()
    rival = p.rival("a")
    p.put("one", "return { election('a', { on_new_leader = function() note 'busy' hold 'go' print 'goes' end }) }")
    p.start("--shutdown-grace", "300s", options=FAST)
    wait_for(lambda: p.noted("busy"))
    p.put("two", "return { election('a', { on_new_leader = function() print 'knows' end }) }")
    same(p.ctl("reload")[0], 0, f"{what}: the reload is answered")
    p.c.event("print", "knows")
    p.touch("go")
    ok(p.c.wait("print", "goes"), f"{what}: it is waited for")
    ok(wait_for(lambda: not alive(p.noted("busy")[0])), f"{what}: then it is gone")
    same((p.c.all("worker_gone"), p.c.all("worker_silent")), ([], []), f"{what}: and nobody has killed it")
    rival.stop()
    ok(p.leads("two"), f"{what}: the new script leads when it is its turn")
    p.c.stop()


def a_slow_drain() -> None:
    what = "a slow drain"
    p = Life()
    p.put("one", "return { slow 'a' }")
    p.start("--shutdown-grace", "300s", options=FAST)
    p.c.event("print", "leading one a")
    rival = p.rival("a")
    p.put("two", ONE)
    asked = p.begin("reload")
    p.c.event("print", "stopping one a")
    same(p.answer(asked)[0], 0, f"{what}: the reload is answered while the old script drains")
    time.sleep(7)  # longer than the lease
    p.touch("drained")
    ok(p.leads("two"), f"{what}: the new script leads after it")
    same(
        (rival.said("leads"), p.c.all("worker_gone"), p.c.all("worker_silent")),
        ([], [], []),
        f"{what}: the lease is kept, and no worker is killed for it",
    )
    p.agrees(what)
    p.ends(what)


at_once(
    a_load_without_end,
    a_load_without_end_later,
    told_to_end_while_a_script_loads,
    a_slow_load,
    a_worker_that_does_not_quit,
    a_worker_that_is_slow_to_quit,
    a_slow_drain,
)
stop_everyone()
done()

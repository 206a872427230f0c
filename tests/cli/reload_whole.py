#!/usr/bin/env -S PYTHONPATH=. python3
"""A reload is all or nothing, and is always answered: a script that does not load, is not fit, or whose worker dies
before it is taken changes nothing; one that is taken, is taken whole. What the operator has ordered outlives it. The
workers themselves: script/test_life.py."""

import signal
import subprocess
from typing import Any

from tests.lib.candidates import stop_everyone
from tests.lib.life import Life
from tests.lib.processes import alive, wait_for
from tests.lib.tap import at_once, done, ok, same

ONE = "return { election 'a' }"
ALONE = "return { election('a', { isolate = true }), election('b', { isolate = true }) }"
STAYS = "the old script runs on"


def refused(p: Life, asked: "subprocess.Popen[str]", what: str, *words: str) -> None:
    status, text = p.answer(asked)
    ok(
        status == 1 and all(w in text for w in (STAYS, *words)),
        f"{what}: the reload is answered with the error",
        f"status {status}: {text}",
    )


def nothing_has_changed(p: Life, what: str, before: list[dict[str, Any]], names: Any = ("a",)) -> None:
    """before: the records when the old script led."""
    now = [p.record(n) for n in names]
    same(
        [(r.get("token"), r.get("holderIdentity")) for r in now],
        [(r["token"], r["holderIdentity"]) for r in before],
        f"{what}: the old script leads on in the same terms",
    )
    same(p.terms("stopped") + p.terms("leading two"), [], f"{what}: no hook has run")


def one_of_two_loaders_is_killed() -> None:
    """Of all that load the script, the first to come is fast. The others wait, until one of them is killed."""
    what = "one of two loaders is killed"
    p = Life()
    p.put("one", ALONE)
    p.start()
    p.c.event("print", "leading one a")
    p.c.event("print", "leading one b")
    before = [p.record(n) for n in "ab"]
    p.put("two", "if not first 'came' then note 'slow' hold 'go' end " + ALONE)
    asked = p.begin("reload")
    wait_for(lambda: p.noted("slow"))
    p.c.wait("print", "leading two", patience=1.0)  # time in which a half of it could be taken
    p.c.kill(signal.SIGKILL, p.noted("slow")[0])
    refused(p, asked, what)
    p.touch("go")
    ok(wait_for(lambda: len(p.guards()) == 2), f"{what}: the workers that loaded it are gone")
    nothing_has_changed(p, what, before, "ab")
    p.agrees(what, "ab")
    p.put("three", ALONE)
    same(p.ctl("reload")[0], 0, f"{what}: a later reload is answered")
    ok(p.leads("three") and p.leads("three", "b"), f"{what}: and is taken whole")
    ok(wait_for(lambda: len(p.guards()) == 2), f"{what}: two workers are left")
    p.agrees(what, "ab")
    p.ends(what)


def scripts_that_are_not_fit() -> None:
    p = Life()
    p.put("one", "return { election 'a', election 'b' }")
    p.start(options=["--lease-duration", "6s"])
    p.c.event("print", "leading one a")
    p.c.event("print", "leading one b")
    before = [p.record(n) for n in "ab"]
    for what, text, word in (
        ("a lock of an unknown kind", "return { election 'a', election('b', { lock = 'nosuch://x' }) }", "nosuch"),
        ("all locks of an unknown kind", "return { election('a', { lock = 'nosuch://x' }) }", "nosuch"),
        ("a lock that is there twice", "return { election 'a', election('b', { lock = dir .. '/a' }) }", "twice"),
        ("times that cannot work", "return { election('a', { renew_deadline = 10 }), election 'b' }", "renew"),
        ("options that cannot be", "return { election('a', { preempt_after = 5 }), election 'b' }", "preempt"),
    ):
        p.put("two", text)
        refused(p, p.begin("reload"), what, word)
        nothing_has_changed(p, what, before, "ab")
    what = "not fit"
    p.agrees(what, "ab")
    p.kill_worker(p.guards()[0])
    ok(p.leads("one", count=2), f"{what}: a replacement runs the old script")
    p.put("three", "return { election 'b', election 'a' }")
    same(p.ctl("reload")[0], 0, f"{what}: a script that is fit is taken")
    ok(p.leads("three") and p.leads("three", "b"), f"{what}: and leads")
    p.agrees(what, "ab")
    p.ends(what)


def elections_that_stay() -> None:
    what = "elections that stay"
    p = Life()
    p.put("one", "return { election 'a', election 'b', election 'c' }")
    p.start()
    for name in "abc":
        p.c.event("print", f"leading one {name}")
    before = {n: p.record(n) for n in "abc"}
    rivals = {n: p.rival(n) for n in "abc"}
    p.put("two", "return { election 'd', election('b', { lock = dir .. '/other' }), election 'a' }")
    same(p.ctl("reload")[0], 0, f"{what}: the reload is answered")
    ok(p.leads("two"), f"{what}: one that stays is led by the new script")
    after = p.record()
    ok(
        after["holderIdentity"] == before["a"]["holderIdentity"]
        and after["leaderTransitions"] == before["a"]["leaderTransitions"]
        and not rivals["a"].said("leads"),
        f"{what}: with its lease, which nobody else has had",
    )
    ok(
        all(rivals[n].wait("print", "the rival leads") for n in "bc"),
        f"{what}: one that is gone, and one with another lock, are released",
    )
    ok(p.leads("two", "b") and p.leads("two", "d"), f"{what}: the one with another lock and the new one are led")
    same(
        sorted(" ".join([*w[:3], w[4]]) for w in p.terms("stopped")),
        [f"stopped one {n} reload" for n in "abc"],
        f"{what}: the old script's on_stopped has run in each",
    )
    p.agrees(what, "abd")
    p.ends(what)
    for rival in rivals.values():
        rival.stop()


def a_pause_outlives_other_locks() -> None:
    what = "a pause"
    p = Life()
    p.put("one", ONE)
    p.start()
    p.c.event("print", "leading one a")
    same(p.ctl("pause")[0], 0, f"{what}: is taken")
    p.put("two", "return { election('a', { lock = dir .. '/other' }), election 'b' }")
    same(p.ctl("reload")[0], 0, f"{what}: a reload to another lock and a new election is answered")
    ok(wait_for(lambda: not p.record()["holderIdentity"]), f"{what}: the old lock is released")
    ok(wait_for(lambda: p.standing().get("lock", "").endswith("/other")), f"{what}: the election has its new lock")
    ok(not p.c.wait("print", "leading two", patience=2.0), f"{what}: and does not lead")
    same(
        [p.standing(n).get("paused") for n in "ab"],
        [True, True],
        f"{what}: of all elections holds by name after it, and for a new one, too",
    )
    same(p.ctl("--election", "b", "resume")[0], 0, f"{what}: it ends for one of them")
    ok(p.leads("two", "b"), f"{what}: which then leads")
    p.put("three", "return { election 'a', election('b', { lock = dir .. '/b2' }) }")
    same(p.ctl("reload")[0], 0, f"{what}: once more to other locks")
    ok(p.leads("three", "b"), f"{what}: the one that was resumed leads")
    same([p.standing(n).get("paused") for n in "ab"], [True, False], f"{what}: and the other one is paused as before")
    same(p.ctl("resume")[0], 0, f"{what}: it ends for all")
    ok(p.leads("three"), f"{what}: and all lead")
    p.agrees(what, "ab")
    p.ends(what)


def settings_follow() -> None:
    what = "settings follow"
    p = Life()
    keys = "return { election('a', { %s }) }"
    p.put("one", keys % "address = 'here:1', priority = 1, lease_duration = 6")
    p.start(options=[])
    p.c.event("print", "leading one a")
    rival = p.rival("a")
    before = p.record()
    same((before["address"], before["leaseDurationMs"]), ("here:1", 6000), f"{what}: as they are at the start")
    for version, text, address, priority, lease in (
        ("two", "address = 'here:2', priority = 2, lease_duration = 7", "here:2", 2, 7000),
        ("three", "address = function() return 'here:3' end, lease_duration = 8", "here:3", 0, 8000),
        ("four", "address = 'here:4', may_lead = function() return true end, priority = 4", "here:4", 4, 15000),
        ("five", "address = 'here:5', priority = function() return 5 end, lease_duration = 9", "here:5", 5, 9000),
    ):
        p.put(version, keys % text)
        same(p.ctl("reload")[0], 0, f"{what}: the reload {version} is answered")
        ok(p.leads(version), f"{what}: and its script leads")
        ok(wait_for(lambda: p.record()["address"] == address), f"{what}: address", p.record()["address"])
        ok(wait_for(lambda: p.record()["leaseDurationMs"] == lease), f"{what}: times", p.record()["leaseDurationMs"])
        got = wait_for(lambda: p.standing()["next"]["ownPriority"] == priority)
        ok(got, f"{what}: priority", p.standing()["next"])
    ok(
        p.record()["leaderTransitions"] == before["leaderTransitions"] and not rival.said("leads"),
        f"{what}: and nobody else has led in between",
    )
    p.agrees(what)
    p.put("six", keys % "may_lead = function() return false, 'not now' end")
    same(p.ctl("reload")[0], 0, f"{what}: a reload to a script that may not lead is answered")
    if wait_for(lambda: p.terms("leading six") or rival.said("leads")) and not rival.said("leads"):
        p.ctl("resign")  # a lease that is held is kept by a reload, whatever may_lead says
    ok(rival.wait("print", "the rival leads"), f"{what}: another one leads then")
    rival.stop()
    ok(p.c.wait("may_not_lead", "not now"), f"{what}: since this one asks its script from then on")
    p.ends(what)


def a_broken_script_and_a_dead_worker() -> None:
    what = "a broken script and a dead worker"
    p = Life()
    p.put("one", "if there 'blocked' then note 'tried' error 'blocked' end return { election 'a' }")
    p.start()
    p.c.event("print", "leading one a")
    p.put("", "return {", raw=True)
    p.kill_worker(p.guards()[0])
    refused(p, p.begin("reload"), what, "s.lua:1")
    ok(p.leads("one", count=2), f"{what}: the old script leads again")
    refused(p, p.begin("reload"), f"{what}, once more", "s.lua:1")

    p.touch("blocked")
    wait_for(lambda: len(p.guards()) == 1)  # the one that was to load it has gone
    p.kill_worker(p.guards()[0])
    ok(wait_for(lambda: p.noted("tried")), f"{what}: a replacement of the old script that cannot load")
    refused(p, p.begin("reload"), f"{what}, and no replacement", "s.lua:1")
    p.put("two", ONE)
    same(p.ctl("reload")[0], 0, f"{what}: a script that is repaired is taken, though no replacement runs")
    ok(p.leads("two"), f"{what}: and leads")
    p.agrees(what)
    p.ends(what)


def killed_before_it_is_taken() -> None:
    """And a replacement after it has been taken."""
    what = "the new worker is killed"
    p = Life()
    p.put("one", ONE)
    p.start()
    p.c.event("print", "leading one a")
    before, old = [p.record()], p.guards()[0]
    p.put("two", "note 'loads' hold 'go' " + ONE)
    asked = p.begin("reload")
    wait_for(lambda: p.noted("loads"))
    p.c.kill(signal.SIGKILL, p.noted("loads")[0])
    refused(p, asked, f"{what} before it is taken")
    nothing_has_changed(p, f"{what} before it is taken", before)
    ok(wait_for(lambda: p.guards() == [old]), f"{what} before it is taken: nothing is left of it")
    p.touch("go")
    same(p.ctl("reload")[0], 0, f"{what}: the same script, loaded again, is taken")
    ok(p.leads("two"), f"{what}: and leads")
    p.put("three", "error 'never'")
    wait_for(lambda: not alive(old))
    p.kill_worker(p.guards()[0])
    ok(p.leads("two", count=2), f"{what} after it was taken: its replacement runs the same script")
    p.agrees(what)
    p.ends(what)


def elections_without_a_name() -> None:
    what = "without names"
    p = Life()
    text = "local function at(l) local e = election(l) e.name = nil return e end "
    p.put("one", text + "return { at 'a', at 'b' }")
    p.start()
    ok(p.leads("one", "a") and p.leads("one", "b"), f"{what}: both are led")
    rivals = [p.rival("a"), p.rival("b")]
    before = {n: p.record(n)["leaderTransitions"] for n in "ab"}
    p.put("two", text + "return { at 'c', at 'a', at 'b' }")
    same(p.ctl("reload")[0], 0, f"{what}: a third one in front of them is taken")
    ok(all(p.leads("two", n) for n in "abc"), f"{what}: all three are led")
    ok(
        before == {n: p.record(n)["leaderTransitions"] for n in "ab"} and not any(r.said("leads") for r in rivals),
        f"{what}: those that stay, told apart by their locks, keep their leases",
    )
    for r in rivals:
        r.stop()
    p.ends(what)


def exit_while_it_is_loaded() -> None:
    what = "os.exit while it is loaded"
    p = Life()
    p.put("one", ONE)
    p.start()
    p.c.event("print", "leading one a")
    before = p.record()
    p.put("two", "os.exit(3) " + ONE)
    refused(p, p.begin("reload"), what, "exit")
    nothing_has_changed(p, what, [before])
    p.put("three", "return { election('a', { address = '\\xff' }) }")
    refused(p, p.begin("reload"), "an address that is no text", "UTF-8")
    p.put("four", "return { election('a', { reclaim = true }) }")
    same(p.ctl("reload")[0], 0, f"{what}: a good one is taken")
    ok(p.leads("four"), f"{what}: and leads")
    p.ends(what)


at_once(
    elections_without_a_name,
    exit_while_it_is_loaded,
    one_of_two_loaders_is_killed,
    scripts_that_are_not_fit,
    elections_that_stay,
    a_pause_outlives_other_locks,
    settings_follow,
    a_broken_script_and_a_dead_worker,
    killed_before_it_is_taken,
)
stop_everyone()
done()

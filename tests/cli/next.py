#!/usr/bin/env -S PYTHONPATH=. python3
"""Who comes next: what status, ctl, /status and the metrics tell of it; hand-overs by priority and by --max-term; and
an account that may not write the record of it."""

import atexit
import json
import os
import re
import signal
import subprocess
from typing import Any

from tests.lib.asked import LONG, Asked, candidate, until
from tests.lib.candidates import Candidate, stop_everyone
from tests.lib.commands import replace, run
from tests.lib.processes import LUNARCH, PATIENCE, scratch
from tests.lib.servers import Etcd, Redis
from tests.lib.tap import done, ok, same

TMP = scratch()
atexit.register(stop_everyone)
IDLE = "sleep(1e6)"


def of(c: Asked) -> Any:
    return c.status()["next"]


def look(lock: str, *args: str) -> str:
    command = [LUNARCH, "status", "--lock", lock, *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE).stdout


# ---- what is told ----


def begin_told(lock: str) -> tuple[Asked, Asked]:
    a = candidate(lock, "ann", "--preempt", "--preempt-after", "1h", "--max-term", "24h", "-e", IDLE)
    a.event("became_leader")
    return a, candidate(lock, "bob", "--address", "bob:1", "-e", IDLE)


def test_told(kind: str, lock: str, a: Asked, b: Asked) -> None:
    a.says("bob comes next, at bob:1, priority 0", what=f"{kind}: a leader tells who comes next, and where that is")
    ok(a.wait("next_known", "bob", patience=LONG), f"{kind}: its log too")
    b.says("this candidate comes next", what=f"{kind}: the one that comes next knows it")
    n = of(a)
    same(
        (n["known"], n["self"], n["address"], n["priority"], n["sinceMs"] >= 0, n["trouble"]),
        (True, False, "bob:1", 0, True, ""),
        f"{kind}: the same as fields",
    )
    same([of(b)["self"], of(b)["identity"]], [True, "bob"], f"{kind}: on a standby, too")
    served = json.loads(a.get("/status")[1])["elections"][0]["next"]
    same(served["identity"], "bob", f"{kind}: and over HTTP")
    ok(until(lambda: b.metric("lunarch_next_known") == 1), f"{kind}: a metric says that somebody comes next")
    same([c.metric("lunarch_is_next") for c in (a, b)], [0.0, 1.0], f"{kind}: and another which candidate does")
    ok(until(lambda: "next        bob, at bob:1" in look(lock)), f"{kind}: `status` reads it in the lock")
    same(
        json.loads(look(lock, "--json"))["next"],
        {"identity": "bob", "address": "bob:1", "priority": 0},
        f"{kind}: `status --json` too",
    )
    a.says("if somebody comes next then (--max-term)", what=f"{kind}: a leader tells when it rotates")
    ok(0 < n["rotatesInMs"] <= 86400000 and n["rotatesAt"].endswith("Z"), f"{kind}: as a time, too", n)
    c = candidate(lock, "cid", "--priority", "5", "-e", IDLE)
    a.says("cid comes next", "priority 5", what=f"{kind}: a larger priority comes next")
    a.says("it hands over at 20", "larger than its own, 0", what=f"{kind}: a leader tells when it hands over for that")
    n = of(a)
    ok(0 < n["preemptsInMs"] <= 3600000 and n["preemptsAt"].endswith("Z"), f"{kind}: as a time, too", n)
    b.says("could come next too", what=f"{kind}: who comes next no more is told why")
    b.ctl("pause")
    b.says("it is paused: by an operator", what=f"{kind}: and what keeps it from that")
    c.kill(signal.SIGKILL)
    a.says("nobody comes next", what=f"{kind}: a leader tells that nobody would take over")
    ok(a.wait("nobody_next", patience=LONG), f"{kind}: its log too")
    same(a.metric("lunarch_next_known"), 0.0, f"{kind}: and the metric of the alert")
    b.ctl("resume")
    a.says("bob comes next", what=f"{kind}: a candidate that is resumed comes next again")


# ---- hand-overs that nobody asks for ----

PREEMPTS = ("--preempt", "--preempt-after", "1s")


def begin_fail_back(lock: str) -> tuple[Asked, Asked]:
    a = candidate(lock, "ann", *PREEMPTS, "-e", IDLE)
    a.event("became_leader")
    return a, candidate(lock, "bob", *PREEMPTS, "-e", IDLE, env={"LUNARCH_PRIORITY": "5"})


def test_fail_back(lock: str, a: Asked, b: Asked) -> None:
    ok(b.wait("became_leader", patience=LONG), "a standby with a larger priority leads after a while")
    ok(a.wait("released_for", "larger priority", patience=LONG), "the one that led hands over, and logs why")
    ok(until(lambda: a.metric("lunarch_handovers_total", 'why="priority"') == 1), "and counts it")
    same(b.stop(), 0, "the preferred machine goes down for a while")
    ok(a.wait("became_leader", count=2, patience=LONG), "the other leads meanwhile")
    c = candidate(lock, "bob", *PREEMPTS, "--priority", "5", "-e", IDLE)
    ok(c.wait("became_leader", patience=LONG), "and hands over when it is back")


def begin_doubling(lock: str) -> tuple[Asked, Asked]:
    options = ("--preempt", "--preempt-after", "3s")
    a = candidate(lock, "ann", *options, "-e", IDLE)
    a.event("became_leader")
    return a, candidate(lock, "bob", *options, "--priority", "5", "-e", "error 'no disk'")


def test_doubling(a: Asked, b: Asked) -> None:
    ok(b.wait("hook_failed", "no disk", patience=LONG), "the preferred candidate's hook fails")
    ok(a.wait("became_leader", count=2, patience=LONG), "and the other leads again")
    ok(until(lambda: of(a)["preemptAfterMs"] >= 6000), "which waits twice as long before it hands over again")
    ok(until(lambda: re.search(r"it waits for \S+ instead of 3s \(--preempt-after\)", a.why())), "and says so")


def begin_rotation(lock: str) -> list[Asked]:
    return [candidate(lock, name, "--max-term", "2s", "-e", IDLE) for name in ("ann", "bob")]


def test_rotation(both: list[Asked]) -> None:
    for c in both:
        ok(until(lambda: of(c)["handovers"]["rotation"] >= 1), f"{c.name} hands over after --max-term")
    ok(both[0].wait("released_for", "--max-term", patience=LONG), "the log says why")
    both[1].stop()
    both[0].says("it hands over as soon as somebody comes next", what="where nobody comes next, a leader leads on")


# ---- scripts, rights ----


def test_reload(lock: str) -> None:
    script = os.path.join(TMP, "reloaded.lua")
    text = "return { on_leading = function() sleep(1e6) end, %s }"
    replace(script, text % "priority = -1, max_term = 3600")
    a = candidate(lock, "ann", script)
    a.event("became_leader")
    same((of(a)["ownPriority"], 0 < of(a)["rotatesInMs"] <= 3600000), (-1, True), "a script's values count")
    replace(script, text % "priority = 7")
    same(a.ctl("reload")[0], 0, "a reload reads them again")
    ok(until(lambda: (of(a)["ownPriority"], of(a)["rotatesInMs"]) == (7, -1)), "and they count at once")
    replace(script, text % "preempt_after = 5")
    code, said = a.ctl("reload")
    ok(code == 1 and "does nothing without --preempt" in said, "values that do not fit are refused", said)
    same(of(a)["ownPriority"], 7, "and the old ones stay")
    p = run("run", "--lock", lock, script)
    ok(p.returncode == 2 and "preempt_after from the script" in p.stderr, "at the start they are an error", p.stderr)
    p = run("exec", "--lock", lock, "--preempt-after", "1s", "true")
    ok(p.returncode == 2 and "--preempt-after does nothing without --preempt" in p.stderr, "of exec too", p.stderr)


def test_refused() -> None:
    with Redis() as server:
        rights = "reset on >pw ~app ~{app}:lunarch &{app}:changed +@all -keys"
        server.cli("ACL", "SETUSER", "elector", *rights.split())
        url = server.url("app")
        mine = url.replace("redis://", "redis://elector:pw@")
        a = candidate(mine, "ann", "-e", IDLE)
        a.event("became_leader")
        b = candidate(mine, "bob", "-e", IDLE)
        b.event("new_leader")
        b.says("{app}:next", "campaigns all the same", what="who may not write the record is told which, and the cost")
        ok(b.wait("next_refused", "{app}:next", patience=LONG), "the log says it")
        a.says("{app}:next", "all standbys compete", what="a leader is told so, too")
        ok("{app}:next" in of(b)["trouble"] and of(b)["able"] is False, "it is in the fields", of(b))
        a.kill(signal.SIGTERM)
        ok(b.wait("became_leader", patience=LONG), "the election goes on without it")
        same(len(b.all("next_refused")), 1, "and the log has said it once")


with Etcd() as server:
    # All begin at once: each waits for who comes next.
    locks = {"file": os.path.join(TMP, "told"), "etcd": server.url("told")}
    told = {kind: begin_told(lock) for kind, lock in locks.items()}
    fail_back = os.path.join(TMP, "fail-back")
    failing = begin_fail_back(fail_back)
    doubling = begin_doubling(os.path.join(TMP, "doubling"))
    rotation = begin_rotation(server.url("rotation"))
    for kind, lock in locks.items():
        test_told(kind, lock, *told[kind])
    test_fail_back(fail_back, *failing)
    test_doubling(*doubling)
    test_rotation(rotation)
    stop_everyone()
    Candidate.everyone.clear()
test_reload(os.path.join(TMP, "reload"))
test_refused()
done()

#!/usr/bin/env -S PYTHONPATH=. python3
"""Could this candidate lead now? Of each thing that would keep it from that, all who are asked say the same: /standby,
/readyz, the metric, status, why and the leader that is to hand over to it; /healthz stays 200; and all is well when it
is over."""

import atexit
import os

from tests.lib.asked import LONG, Asked, candidate
from tests.lib.candidates import stop_everyone
from tests.lib.commands import replace
from tests.lib.processes import scratch, wait_for
from tests.lib.servers import Redis
from tests.lib.stores import Etcd
from tests.lib.tap import done, note, ok, same

TMP = scratch()
atexit.register(stop_everyone)
IDLE = "sleep(1e6)"
HELD, ANSWER = os.path.join(TMP, "held"), os.path.join(TMP, "answer")
# While HELD is there a worker does not get beyond loading it.
SCRIPT = (
    "while true do local f = io.open(%r) if not f then break end f:close() end\n"
    "return { on_leading = function() sleep(1e6) end, may_lead_timeout = 5, may_lead = function()\n"
    "  local f <close> = io.open(%r)\n"
    "  local a = f and f:read 'a' or 'yes'\n"
    "  if a == 'slow' then sleep(1000) end\n"
    "  return a == 'yes', a\n"
    "end }\n" % (HELD, ANSWER)
)


def codes(c: Asked) -> list[int]:
    return [c.get(path)[0] for path in ("/standby", "/readyz", "/healthz")]


def lacks(c: Asked, word: str, told: str, what: str, leader: Asked | None = None) -> None:
    """word: what all say. told: the line of `why` that says more."""
    if not ok(wait_for(lambda: word in c.get("/standby")[1], LONG), f"{what}: /standby is 503, and says why"):
        note((c.get("/standby"), c.why()))
    same(codes(c), [503, 503, 200], f"{what}: /readyz is 503, too, and /healthz is not")
    ok(word in c.get("/readyz")[1], f"{what}: /readyz has the reason", c.get("/readyz")[1])
    same(c.metric("lunarch_could_lead"), 0.0, f"{what}: the metric is 0")
    wait_for(
        lambda: "and then hands over" not in c.why(), LONG
    )  # the record tells of the last request until it is renewed
    s, why = c.status(), c.why()
    same((s["couldLead"], s["lacks"], s["next"]["able"]), (False, word, False), f"{what}: status says the same")
    ok(why.count(told) == 1 and "come next" not in why.replace("comes next", ""), f"{what}: why has it, once", why)
    if leader:
        code, text = leader.ctl("handover", "--to", c.name, "--timeout", "100s", patience=2 * LONG)
        ok(
            code == 75 and f"{c.name} could not lead now: {word}" in text,
            f"{what}: the leader hears it, and leads on",
            text,
        )


def is_well(c: Asked, what: str) -> None:
    ok(wait_for(lambda: codes(c) == [200, 200, 200], LONG), f"{what} is over: /standby and /readyz are 200")
    s = c.status()
    same((s["couldLead"], s["lacks"], c.metric("lunarch_could_lead")), (True, "", 1.0), f"{what} is over: all say so")


def test_orders(lock: str) -> None:
    a = candidate(lock, "ann", "-e", IDLE)
    a.event("became_leader")
    script = os.path.join(TMP, "s.lua")
    replace(script, SCRIPT)
    b = candidate(lock, "bob", script)
    b.event("new_leader")
    is_well(b, "its start")
    same(codes(a), [503, 200, 200], "a leader is no standby, and is ready")
    same((a.status()["couldLead"], a.metric("lunarch_could_lead")), (True, 1.0), "and says that it could lead")
    b.ctl("pause")
    lacks(b, "its campaigning is paused", "it is paused: by an operator", "pause", a)
    b.ctl("resume")
    is_well(b, "the pause")
    b.ctl("resign", "40s")
    lacks(b, "it does not campaign for some time after its last term", "it sits out until", "sitting out", a)
    is_well(b, "sitting out")
    replace(ANSWER, "low disk")
    lacks(b, "may_lead says no", "low disk", "may_lead says no", a)
    replace(ANSWER, "slow")
    lacks(b, "may_lead has not answered in time", "has not answered in time", "may_lead is late")
    os.unlink(ANSWER)
    is_well(b, "may_lead's no")
    replace(HELD, "")
    b.kill(pid=b.worker())
    ok(
        wait_for(lambda: "worker" in b.get("/standby")[1] or "paused" in b.get("/standby")[1], LONG),
        "without a worker it is no standby",
    )
    same(codes(b), [503, 503, 200], "nor is it ready")
    ok("there is no worker" in b.why() and "could come next" not in b.why(), "and why says that there is none", b.why())
    same((b.status()["couldLead"], b.metric("lunarch_could_lead")), (False, 0.0), "and so do status and the metric")
    os.unlink(HELD)
    is_well(b, "having no worker")
    same(a.status()["term"], 1, "the leader has led on in its term")


def test_exec(lock: str) -> None:
    a = candidate(lock, "ann", "--", "sleep", "1000", command="exec")
    a.event("became_leader")
    b = candidate(lock, "bob", "--", "sleep", "1000", command="exec")
    b.event("new_leader")
    is_well(b, "exec: its start")
    b.ctl("resign", "40s")
    lacks(b, "it does not campaign for some time after its last term", "it sits out until", "exec: sitting out", a)
    is_well(b, "exec: sitting out")


def test_observer(lock: str) -> None:
    o = candidate(lock, "eve", "-e", "return { on_new_leader = print }")
    ok(wait_for(lambda: codes(o) == [503, 200, 200], LONG), "an observer is ready, and no standby")
    ok("it only observes" in o.get("/standby")[1], "which it says", o.get("/standby")[1])
    ok("lunarch_could_lead{" not in o.get("/metrics")[1], "it has no such metric")


def test_silent_and_full() -> None:
    with Redis() as server:
        a = candidate(server.url("ready"), "ann", "-e", IDLE)
        a.event("became_leader")
        b = candidate(server.url("ready"), "bob", "-e", IDLE)
        b.event("new_leader")
        is_well(b, "redis: its start")
        server.pause()
        lacks(b, "the store does not answer", "the store last answered", "a store that is silent")
        server.resume()
        ok(wait_for(lambda: all(codes(c)[1] == 200 for c in (a, b)), LONG), "when it answers both are ready again")
        ok(wait_for(lambda: a.status()["leading"] or b.status()["leading"], LONG), "one leads")
        server.cli("CONFIG", "SET", "maxmemory", "1")
        for c in (a, b):
            lacks(
                c, "the store does not take its writes", "the store does not take its writes", f"a full store, {c.name}"
            )
        ok(a.wait("store_unwritable", "OOM"), "the log says so, with the store's word")
        same(a.status()["store"]["writes"], "not taken", "and status")
        server.cli("CONFIG", "SET", "maxmemory", "0")
        ok(wait_for(lambda: all(codes(c)[1] == 200 for c in (a, b)), LONG), "when it has room again both are ready")
        ok(wait_for(lambda: a.status()["leading"] or b.status()["leading"], LONG), "and one leads")
        server.cli("CONFIG", "SET", "min-replicas-to-write", "1")
        for c in (a, b):
            lacks(
                c,
                "the store does not take its writes",
                "the store does not take its writes, for",
                f"a store without its replicas, {c.name}",
            )
        server.cli("CONFIG", "SET", "min-replicas-to-write", "0")
        ok(wait_for(lambda: all(codes(c)[1] == 200 for c in (a, b)), LONG), "when it takes writes both are ready again")


def test_rights() -> None:
    """Bob may read alone. That is not known before he has tried to write; then it is, until he can."""
    store = Etcd()
    try:
        store.auth("me", "secret")
        mine = store.url("mine/ready")
        store.user = "root:root's"
        a = candidate(store.url("mine/ready"), "ann", "--priority", "5", "-e", IDLE)
        a.event("became_leader")
        store.make_read_only()
        b = candidate(mine, "bob", "-e", IDLE)
        b.event("new_leader")
        is_well(b, "etcd: its start")
        same(b.status()["store"]["writes"], "", "whether the store takes its writes is not known before it has written")
        a.ctl("resign", "10s")
        lacks(b, "the store does not take its writes", "the store does not take its writes", "no right to write")
        ok(a.wait("became_leader", count=2, patience=LONG), "another leads again")
        ok(
            wait_for(lambda: b.status()["leader"] == "ann", LONG) and codes(b)[:2] == [503, 503],
            "which says nothing of its own rights",
        )
        store.permit("READWRITE")
        is_well(b, "etcd: having no right")
        same(
            (b.status()["leader"], b.status()["store"]["writes"]), ("ann", "taken"), "it has found out without leading"
        )
    finally:
        store.end()


test_orders(os.path.join(TMP, "orders"))
test_exec(os.path.join(TMP, "exec"))
test_observer(os.path.join(TMP, "orders"))
stop_everyone()
test_silent_and_full()
stop_everyone()
test_rights()
done()

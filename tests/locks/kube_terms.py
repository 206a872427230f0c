#!/usr/bin/env -S PYTHONPATH=. python3
"""Terms on a Lease whose API server is a script: it loses, delays, refuses and changes what it is asked at the very
moment that matters, and sees every request. The numbers T.. are those of tests/cluster/kubernetes/README.md. Scenarios
run side by side, each with a server of its own. Arguments: names of scenarios."""

import json
import os
import re
import shutil
import signal
import struct
import sys
import threading
import time
import urllib.error
import urllib.request
from typing import Any

from tests.lib.candidates import Candidate, timing
from tests.lib.field import build
from tests.lib.kubeapi import Api, status
from tests.lib.processes import PATIENCE, alive, scratch, wait_for
from tests.lib.tap import at_once, done, note, ok, same

# A term survives a machine that is late by many seconds; an operation without an answer is given up after 3.
CALM = timing("40s", renew="12s", retry="500ms")
SCRIPT = (
    "on_leading = function(t) print('lead ' .. t.token) end; on_stopped = function(t, why) print('stop ' .. t.token "
    ".. ' ' .. why) end"
)
UNTIL_OVER = (
    "on_leading = function(t) while t:is_leading() do os.execute('sleep 0.05') end io.open('{}', 'w'):close() end"
)
home = scratch()
apis = []


class Stage:
    def __init__(self, silent: bool = False) -> None:
        self.api = Api(silent, next_records=False)
        self.candidates: list[Candidate] = []
        apis.append(self.api)

    def join(self, *options: Any, name: str = "lock", script: str = SCRIPT, times: Any = CALM, **kw: Any) -> Any:
        c = Candidate("--lock", self.api.url(home, name), "-e", script, *options, options=times, **kw)
        self.candidates.append(c)
        return c

    def leader(self, *options: str, **kw: Any) -> Candidate:
        c = self.join(*options, **kw)
        if not c.wait("became_leader"):
            raise RuntimeError(f"nobody became leader: {c.events}")
        return c

    def held(self, holder: Any, seconds: float, transitions: int = 4, name: str = "lock") -> None:
        self.api.edit(
            name,
            holderIdentity=holder,
            leaseDurationSeconds=seconds,
            leaseTransitions=transitions,
            acquireTime="2026-01-01T00:00:00.000000Z",
            renewTime="2026-01-01T00:00:00.000000Z",
        )

    def spec(self, name: str = "lock") -> dict[str, Any]:
        return self.api.leases[name]["spec"]

    def writes(self) -> list[tuple[float, str, str, int]]:
        """Of those that took effect."""
        return list(self.api.applied)

    def renewed(self, count: int = 3) -> bool:
        before = len(self.api.applied)
        return wait_for(lambda: len(self.api.applied) >= before + count)

    def asked(self, method: str, since: int = 0) -> list[tuple[Any, ...]]:
        return [s for s in self.api.seen[since:] if s[0] == method and "/leases" in s[1] and "watch=1" not in s[1]]

    def watches(self) -> Any:
        return [s[1] for s in self.api.seen if "watch=1" in s[1]]

    def end(self) -> None:
        for c in self.candidates:
            c.stop()


def releases(h: Any) -> bool:
    return h.command == "PUT" and h.body["spec"]["holderIdentity"] == ""


def prints(c: Candidate) -> list[str]:
    return [e["message"] for e in c.all("print")]


def conflict(h: Any) -> bool:
    h.answer(409, status(409, "Conflict", name="lock"))
    return True


# ---- acquire ----


def beaten(s: Stage) -> None:
    tried = []

    def rule(h: Any) -> Any:
        if h.command != "PUT":
            return False
        tried.append(time.monotonic())
        if len(tried) > 1:
            return False
        s.held("Y", 3, 5)
        return conflict(h)

    s.held("X", 1)
    s.api.rule = rule
    c = s.leader()
    ok(c.wait("new_leader", "Y"), "T13 a takeover that is answered 409 has been beaten: the other's record is read")
    ok(len(tried) > 1 and tried[1] - tried[0] > 2.9, "T13 and waited out from its first sight, for its own duration")
    same((s.spec()["leaseTransitions"], len(c.all("became_leader"))), (6, 1), "T13 before it leads, once")


def names(s: Stage) -> None:
    for name, holder in (("exact", "web_1"), ("case", "WEB_1"), ("space", "web_1 "), ("utf", "web_\u0661")):
        s.held(holder, 600, name=name)
    other = [s.join("--identity", "web_1", "--reclaim", name=n) for n in ("case", "space", "utf")]
    s.leader("--identity", "web_1", "--reclaim", name="exact")
    spec = s.spec("exact")
    same(
        (spec["leaseTransitions"], spec["acquireTime"][:4]),
        (4, "2026"),
        "T14 one's own record is re-taken at once, its transitions kept",
    )
    ok(
        all([c.wait("new_leader") for c in other]),
        "T15 a holder that differs in case, a space or a digit's script is another",
    )
    same([c.all("became_leader") for c in other], [[], [], []], "T15 and waited out")


def durations(s: Any) -> None:
    for name, seconds in (("zero", 0), ("minus", -5), ("missing", None), ("most", 2**31 - 1)):
        s.held("X", seconds, name=name)
    most = s.join(name="most")
    ok(most.wait("new_leader", "X"), "T16 the longest duration is read")
    for c in [s.join(name=n) for n in ("zero", "minus", "missing")]:
        ok(c.wait("became_leader"), "T16 a record that gives no time, or less, has run out")
    same(most.all("became_leader"), [], "T16 the longest has not")


def future(s: Stage) -> None:
    """The record's times are those of a clock that is years ahead."""
    s.held("X", 3)
    s.api.edit("lock", acquireTime="2090-01-01T00:00:00.000000Z", renewTime="2090-01-01T00:00:00.000000Z")
    s.leader()
    first, taken = s.asked("GET")[0][2], s.writes()[0][0]
    ok(
        taken - first >= 2.9,
        f"T08 a record whose times are years ahead is waited out from its first sight ({taken - first:.1f} s, it says "
        "3)",
    )
    ok(s.spec()["renewTime"] < "2090", "T08 and taken with our own times")


def deleted_meanwhile(s: Stage) -> None:
    """A standby waits for a holder whose Lease is deleted: the holder may not know yet."""
    s.held("X", 12)
    b = s.join(times=timing("4s", renew="2s", retry="500ms", stop_grace="500ms", kill="500ms", drift="500ms"))
    b.wait("new_leader", "X")
    wait_for(lambda: s.watches())
    deleted = time.monotonic()
    s.api.delete("lock")
    ok(b.wait("became_leader"), "T73 a standby that is shown the deletion takes over")
    when, method = s.writes()[0][:2]
    same(method, "POST", "T73 with a POST")
    ok(when - deleted >= 11.9, f"T73 when it has waited out the lease that was there ({when - deleted:.1f} s of 12)")


def begun_anew(s: Stage) -> None:
    """While a standby waits its watch is told twice that it is too old: inside the stream, and by a status."""
    told = []

    def gone(h: Any) -> bool:
        h.begin()
        time.sleep(10)
        told.append(time.monotonic())
        h.chunk(json.dumps({"type": "ERROR", "object": status(410, "Expired")}).encode() + b"\n")
        h.end()
        return True

    def too_old(h: Any) -> bool:
        told.append(time.monotonic())
        h.answer(410, status(410, "Expired"))
        return True

    s.held("X", 20)
    s.api.watches[:] = [gone, too_old]
    s.leader()
    first, taken = s.asked("GET")[0][2], s.writes()[0][0]
    same(
        (len(told), ["resourceVersion=0" in w for w in s.watches()][:3]),
        (2, [False, True, True]),
        "T70 410 in the stream or as a status: the watch begins anew, from anything",
    )
    ok(
        taken - first >= 19.9 and taken - told[-1] < 20,
        f"T70 and the wait goes on where it was ({taken - first:.1f} s from the first sight, {taken - told[-1]:.1f} s "
        "from the 410)",
    )


def storm(s: Stage) -> None:
    """Whatever is written, somebody has just changed the object."""
    edits: list[float] = []
    met: list[bool] = []

    def rule(h: Any) -> Any:
        if h.command != "PUT" or not met:
            return False
        edits.append(time.monotonic())
        s.api.edit("lock", labels={"edit": str(len(edits))})
        return conflict(h)

    s.api.rule = rule
    c = s.leader(times=timing("200s", renew="120s", retry="500ms"))
    s.renewed()
    before, began = len(s.api.seen), time.monotonic()
    met.append(True)
    ok(wait_for(lambda: len(edits) >= 12), "T35 a renewal that is answered 409 is tried again, however often")
    n, took = len(s.api.seen) - before, time.monotonic() - began
    ok(
        n <= 30 + 12 * took,
        f"T35 every renewal is answered 409: no busy loop ({n} requests, {len(edits)} of them renewals, in {took:.1f} "
        "s)",
    )
    met.clear()
    ok(s.renewed(), "T35 when that is over the next one succeeds")
    same(
        (c.all("stopped_leading"), s.api.leases["lock"]["metadata"]["labels"]),
        ([], {"edit": str(len(edits))}),
        "T35 T19 in the same term, and without a word of the others lost",
    )


def resource(s: Stage) -> None:
    """By kube-controller-manager's names of options, where no lock is named. The namespace: the context's."""
    config = s.api.url(home, "lock").split("kubeconfig=")[1]
    asked = []

    def rule(h: Any) -> Any:
        if "/namespaces/other/" not in h.path:
            return False
        asked.append(h.path.split("?")[0])
        h.answer(403, status(403, "Forbidden", "not you"))
        return True

    def join(**options: Any) -> Any:
        args = [a for k, v in options.items() for a in (f"--leader-elect-resource-{k}", v)]
        c = Candidate(*args, "-e", SCRIPT, options=CALM, env={"KUBECONFIG": config})
        s.candidates.append(c)
        return c

    def objects() -> set[str]:
        """What has been asked for, besides what those who lead say and watch, and what keeps a connection open."""
        return {
            x[1].split("?")[0]
            for x in list(s.api.seen)
            if "/events" not in x[1] and "watch=1" not in x[1] and not x[1].startswith("/version")
        }

    s.api.rule = rule
    a = join(name="lock")
    ok(a.wait("became_leader"), "--leader-elect-resource-name: it leads")
    ok(s.spec()["holderIdentity"], "by the Lease of that name in the context's namespace")
    ok(
        join(name="lock", namespace="n", lock="leases").wait("new_leader"),
        "who names that namespace, too, meets it there",
    )
    join(name="lock", namespace="other", lock="configmaps")
    ok(
        wait_for(lambda: "/api/v1/namespaces/other/configmaps/lock" in asked),
        "another namespace and another kind of object are asked for",
    )
    both = "local function lead() end return { { name = 'a', on_leading = lead }, { name = 'b', on_leading = lead } }"
    c = Candidate("--leader-elect-resource-name", "of-{name}", "-e", both, options=CALM, env={"KUBECONFIG": config})
    s.candidates.append(c)
    ok(
        c.wait("became_leader", count=2) and {"of-a", "of-b"} <= set(s.api.leases),
        "a name with {name}: each of a script's elections has a Lease of its own",
    )
    for k, v in (("name", "n?context=x"), ("name", "n&label=a=b"), ("namespace", "other/n"), ("name", "N")):
        before = objects()
        c = join(**{"name": "lock", k: v})
        said = wait_for(
            lambda: [e for e in list(c.events) if f"--leader-elect-resource-{k}={v}: expected a name" in e["message"]]
        )
        same(
            (c.leave(), bool(said), objects() - before),
            (2, True, set()),
            f"{k} {v}: refused by its name, nothing is asked",
        )


# ---- renew ----


def long_trouble(s: Stage) -> None:
    """For a while every write is answered 500, and none is done. There is nobody else."""
    failing: list[Any] = []

    def rule(h: Any) -> Any:
        if h.command == "GET" or not failing:
            return False
        failing.append(h)
        h.answer(500, status(500, "InternalError"))
        return True

    s.api.rule = rule
    times = timing("6s", renew="3s", retry="300ms", stop_grace="500ms", kill="500ms", drift="500ms")
    c = s.leader(times=times)
    s.renewed()
    failing.append(None)
    c.wait("stopped_leading", "expired")
    n = len(failing)
    ok(wait_for(lambda: len(failing) > n + 5), "T23 after the term, too, it goes on trying")
    failing.clear()
    ok(
        c.wait("became_leader", count=2),
        "T23 and leads again when the server is well, though nothing that it stores has changed",
    )


def lost_once(s: Stage) -> None:
    """A renewal goes under with its connection, and was not applied."""
    armed: list[bool] = []
    lost: list[Any] = []
    gate = threading.Event()

    def rule(h: Any) -> Any:
        if not (armed and h.command == "PUT" and not lost):
            return False
        lost.append(h)
        return gate.wait(600) or True

    s.api.rule = rule
    c = s.leader()
    acquired = s.spec()["acquireTime"]
    armed.append(True)
    ok(wait_for(lambda: lost) and s.renewed(), "T22 a renewal without an answer is followed by others")
    same(
        (len(c.all("became_leader")), c.all("stopped_leading"), s.spec()["acquireTime"]),
        (1, [], acquired),
        "T22 the term goes on, nothing has fired",
    )
    gate.set()


def all_fail(s: Stage, how: str) -> None:
    """R is 3 s, and others have to wait 30."""
    times = timing("30s", renew="3s", retry="500ms", stop_grace="1s", kill="1s", drift="25s")
    failing: list[bool] = []
    gate = threading.Event()
    answers = {
        "hang": lambda h: gate.wait(600) or True,
        "reset": lambda h: h.reset() or True,
        "500": lambda h: h.answer(500, status(500, "X")) or True,
        "503": lambda h: h.answer(503, status(503, "X"), [("Retry-After", "1")]) or True,
    }
    s.api.rule = lambda h: bool(failing) and answers[how](h)
    c = s.leader(times=times)
    s.renewed()
    if how == "refused":
        s.api.refuse()
    failing.append(True)
    e = c.wait("stopped_leading")
    gate.set()
    last = s.writes()[-1][0]
    ok(
        e and "expired" in e["message"] and e["seen"] - last < 30,
        f"T23 {how}: the term ends before the last good renewal's lease does",
    )
    note(f"{how}: {e and e['seen'] - last:.2f} s after it, R is 3 s")


def crowded(s: Stage) -> None:
    """The process's other requests hang, its Events, its script's."""
    gate, hung = threading.Event(), []

    def rule(h: Any) -> Any:
        if "/events" not in h.path and "/hang" not in h.path:
            return False
        hung.append((h.path, h.client_address[1]))
        return gate.wait(600) or True

    s.api.rule = rule
    c = s.leader(
        script="on_leading = function() for i = 1, 40 do spawn(function() "
        f"http.get('http://127.0.0.1:{s.api.port}/hang', {{ timeout = 600 }}) end) end end"
    )
    wait_for(lambda: len([p for p, _ in hung if "/hang" in p]) >= 10 and any("/events" in p for p, _ in hung))
    before = len(s.writes())
    ok(s.renewed(5), "T36 while other requests of the process hang, renewals do not")
    same(
        (c.all("stopped_leading"), {w[3] for w in s.writes()[before:]} & {port for _, port in hung}),
        ([], set()),
        "T36 they have connections of their own",
    )
    gate.set()


# ---- release ----


def release_conflict(s: Stage) -> None:
    """Something else was written between the look and the release: before the term's first renewal, while the record
    has no token in it."""
    met: list[int] = []

    def rule(h: Any) -> Any:
        if not releases(h) or met:
            return False
        met.append(len(s.api.seen))
        s.api.edit("lock", labels={"edited": "meanwhile"})
        return conflict(h)

    s.api.rule = rule
    c = s.leader(times=timing("400s", renew="240s", retry="60s"))
    c.kill(signal.SIGTERM)
    same(c.leave(), 0, "T39 a stop whose release is answered 409 is a clean one")
    same(
        (s.spec()["holderIdentity"], s.api.leases["lock"]["metadata"]["labels"]),
        ("", {"edited": "meanwhile"}),
        "T39 after another look it releases",
    )


def release_stolen(s: Stage) -> None:
    """Another has taken the Lease, and no watch has shown it, when the release arrives."""
    since: list[int] = []

    def rule(h: Any) -> Any:
        if releases(h) and not since:
            since.extend(i for i, x in enumerate(list(s.api.seen)) if x[5] is h.body)
            s.held("thief", 600, 9)
        return False  # a healthy server's answer to an old version is 409

    s.api.rule = rule
    c = s.leader()
    c.kill(signal.SIGTERM)
    same(
        (c.leave(), s.spec()["holderIdentity"], s.spec()["leaseTransitions"]),
        (0, "thief", 9),
        "T38 a release never touches another's record",
    )
    later = [x[0] for x in s.api.seen[since[0] :] if "/leases" in x[1] and "watch=1" not in x[1]]
    ok(
        later[0] == "PUT" and set(later[1:]) <= {"GET"},
        f"T38 it is answered 409, and after a look nothing is written ({later})",
    )


def release_missing(s: Stage) -> None:
    met: list[int] = []

    def rule(h: Any) -> Any:
        if not releases(h):
            return False
        met.append(len(s.api.seen))
        s.api.delete("lock")
        h.answer(404, status(404, "NotFound", name="lock"))
        return True

    s.api.rule = rule
    c = s.leader()
    c.kill(signal.SIGTERM)
    same((c.leave(), len(met)), (0, 1), "T40 a release of a Lease that is gone is done")
    same((s.asked("POST", met[0]), s.api.leases), ([], {}), "T40 and makes none")


def in_flight(s: Stage) -> None:
    """A renewal is at the server when the stop comes."""
    armed: list[bool] = []
    held: list[Any] = []
    gate = threading.Event()

    def rule(h: Any) -> Any:
        if not (armed and h.command == "PUT" and not held):
            return False
        held.append(h)
        gate.wait(600)
        return False

    s.api.rule = rule
    c = s.leader(times=timing("400s", renew="240s", retry="500ms"))  # a minute for the renewal's answer
    armed.append(True)
    wait_for(lambda: held)
    c.kill(signal.SIGTERM)
    c.wait("stopped_leading")
    let = time.monotonic()
    gate.set()
    same(c.leave(), 0, "T41 a stop while a renewal is under way is a clean one")
    puts = s.asked("PUT")
    gone = [p for p in puts if p[5]["spec"]["holderIdentity"] == ""]
    same([p[2] > let for p in gone], [True], "T41 the release is sent once, when that renewal is answered")
    same((puts[-1], s.writes()[-1][2]), (gone[-1], ""), "T41 and is the last thing the server hears of it")


def worked(s: Stage) -> None:
    """The term's work takes its time to stop; or would never stop."""
    busy, go, done_ = (os.path.join(home, f"{w}-{s.api.port}") for w in ("busy", "go", "done"))
    at_release = []

    def rule(h: Any) -> Any:
        if releases(h):
            at_release.append(os.path.exists(done_))
        return False

    s.api.rule = rule
    c = s.leader(
        script=f"on_leading = function() os.execute('touch {busy}; while [ ! -e {go} ]; do sleep 0.1; done; touch "
        f"{done_}') end"
    )
    wait_for(lambda: os.path.exists(busy))
    c.kill(signal.SIGTERM)
    ok(s.renewed(), "T42 while the work of a term that is to stop still runs, the Lease is renewed")
    open(go, "w").close()
    same((c.leave(), at_release), (0, [True]), "T42 and released when it is done")


def never_done(s: Stage) -> None:
    pid = os.path.join(home, f"pid-{s.api.port}")
    living = []

    def rule(h: Any) -> Any:
        if releases(h):
            living.append(alive(int(open(pid).read())))
        return False

    s.api.rule = rule
    c = s.leader(
        "--shutdown-grace",
        "1s",
        script=f"on_leading = function() os.execute('echo $$ > {pid}.new; mv {pid}.new {pid}; exec sleep 1000') end",
    )
    wait_for(lambda: os.path.exists(pid))
    c.kill(signal.SIGTERM)
    note(f"work that never ends: exit status {c.leave()}")
    same(living, [False], "T42 what is not done after the shutdown grace is killed, and then the Lease released")


def twice_told(s: Stage) -> None:
    met, gate = [], threading.Event()

    def rule(h: Any) -> Any:
        if releases(h):
            met.append(time.monotonic())
            gate.wait(600)
        return False

    s.api.rule = rule
    c = s.leader(times=timing("600s", renew="400s", retry="500ms"))
    c.kill(signal.SIGTERM)
    wait_for(lambda: met)
    time.sleep(0.5)  # within a quarter of a second two signals are one wish
    c.kill(signal.SIGTERM)
    same(
        c.leave(), 143, "T44 a second SIGTERM ends it while its release has no answer (which would be waited for 100 s)"
    )
    gate.set()


def announced(s: Stage) -> None:
    """What others are told of a term, which costs the server as much as a write."""
    hang: list[bool] = []
    gate = threading.Event()
    s.api.rule = lambda h: bool(hang) and "/events" in h.path and (gate.wait(600) or True)
    rare = timing("600s", renew="400s", retry="60s")
    c = s.leader("--identity", "me", times=rare)
    c.kill(signal.SIGTERM)
    same(c.leave(), 0, "a stop that is told to others is a clean one")
    told = [x[5].get("message", x[5].get("spec", {}).get("holderIdentity")) for x in s.api.seen if x[0] != "GET"]
    same(told[:2], ["me", ""], "a release does not wait for what others are told of the term")
    same(
        sorted(told[2:]), ["me became leader", "me stopped leading"], "which is told after it, before the process ends"
    )
    hang.append(True)
    c = s.leader(times=rare)
    c.kill(signal.SIGTERM)
    same((c.leave(), s.spec()["holderIdentity"]), (0, ""), "and a server that does not listen to that holds up nobody")
    gate.set()


def kept(s: Stage) -> None:
    c = s.leader("--no-release", "--identity", "me")
    s.held("other", 600, name="foreign")
    b = s.join(name="foreign")
    b.wait("new_leader")
    begun = len(s.api.seen)
    for each in (c, b):
        each.kill(signal.SIGTERM)
    same((c.leave(), s.spec()["holderIdentity"]), (0, "me"), "T45 with --no-release the Lease stays as it is")
    same(
        (b.leave(), [p for p in s.api.seen if p[0] != "GET" and "foreign" in p[1]]),
        (0, []),
        "T46 who never led writes nothing, from its beginning to its end",
    )
    same(prints(b), [], "T47 and of its hooks neither on_leading nor on_stopped runs")
    ok(begun, "both had looked")


# ---- callbacks ----


def paired(s: Stage) -> None:
    c = s.join(
        script="local n = 0; on_leading = function(t) n = n + 1; print('lead ' .. t.token); if n < 4 then "
        "t:resign(0.1) end end; "
        "on_stopped = function(t, why) print('stop ' .. t.token) end"
    )
    c.wait("became_leader", count=4)
    ok(wait_for(lambda: len(c.said("lead")) == 4), "T52 one process leads four times")
    said = [p.split() for p in prints(c)]
    same([w for w, _ in said], ["lead", "stop"] * 3 + ["lead"], "T47 on_leading and on_stopped alternate")
    same([a[1] for a in said[0:6:2]], [a[1] for a in said[1:6:2]], "T47 each stop is of the term before it")
    t = [int(a[1]) for a in said[0::2]]
    same(t, sorted(set(t)), "T53 tokens grow when the same process leads again")


def told(s: Stage) -> None:
    s.held("X", 600)
    c = s.join(
        "--identity",
        "me",
        script="on_leading = function() end; on_new_leader = function(l) print('new ' .. l.identity .. (l.is_self and "
        "' self' or '')) end",
    )
    ok(wait_for(lambda: prints(c) == ["new X"]), "T49 the first leader that is seen is told")
    for i in range(1, 4):
        s.api.edit("lock", renewTime=f"2026-01-01T00:00:00.00000{i}Z")
    s.held("Y", 600, 5)
    ok(wait_for(lambda: len(prints(c)) == 2), "T48 so is a change")
    s.api.edit("lock", holderIdentity="", leaseDurationSeconds=1)
    c.wait("became_leader")
    wait_for(lambda: len(prints(c)) == 3)
    s.renewed()
    same(prints(c), ["new X", "new Y", "new me self"], "T48 in order, each once, itself too, never nobody")


def blocked(s: Stage) -> None:
    """Lua never returns to the loop, and the elector is stopped, so that nobody tells it."""
    times = timing("60s", renew="3s", retry="500ms", stop_grace="20s", kill="2s", drift="30s")
    over = os.path.join(home, f"over-{s.api.port}")
    c = s.leader(times=times, script=UNTIL_OVER.format(over))
    s.renewed()
    c.kill(signal.SIGSTOP)
    ok(wait_for(lambda: os.path.exists(over)), "T50 in a script that never yields is_leading() turns false by itself")
    ok(time.monotonic() - s.writes()[-1][0] < 60, "T50 before the lease of the last good renewal ends")
    c.kill(signal.SIGCONT)
    ok(
        c.wait("stopped_leading", "expired"),
        "T57 an elector that was stopped for so long says, when it goes on, that the term has expired",
    )


def raised(s: Stage) -> None:
    c = s.join(
        script="on_leading = function() error('no bread') end; on_stopped = function(t, why) print('stop ' .. why) end"
    )
    ok(c.wait("stopped_leading", "error"), "T51 an error in on_leading ends the term")
    ok(wait_for(lambda: [w for w in s.writes() if w[2] == ""]), "T51 and releases the Lease")
    wait_for(lambda: c.said("stop"))  # the log may be read later than the release is seen
    same(
        (c.said("stop")[:1] and c.said("stop")[0]["message"], c.process.poll()),
        ("stop error", None),
        "T51 on_stopped is told why, the process lives",
    )


def watched(s: Stage) -> None:
    """What probes and Prometheus see."""
    a = s.leader("--listen", "127.0.0.1:0")

    def get(path: str) -> Any:
        url = re.findall(r"http://\S+:\d+", a.event("listening")["message"])[0]
        try:
            with urllib.request.urlopen(url + path, timeout=PATIENCE) as r:
                return r.status, r.read().decode()
        except urllib.error.HTTPError as e:
            return e.code, e.read().decode()

    def metric(name: str) -> Any:
        return float(re.findall(rf"^{name}{{[^}}]*}} (\S+)$", get("/metrics")[1], re.M)[0])

    same(
        (get("/leader")[0], get("/healthz")[0], metric("leader_election_master_status")),
        (200, 200, 1),
        "T54 T55 a leader is healthy, and master",
    )
    before = metric("leader_election_slowpath_total")
    s.api.edit("lock", labels={"a": "b"})
    s.renewed()
    met: list[bool] = []

    def rule(h: Any) -> Any:
        if h.command != "PUT" or met:
            return False
        met.append(True)
        return conflict(h)

    s.api.rule = rule  # of a renewal: other requests are beside it, in no order
    ok(
        wait_for(lambda: metric("leader_election_slowpath_total") > before),
        "T55 a renewal that met another version is counted",
    )
    s.held("thief", 600, 9)
    a.wait("stopped_leading")
    ok(
        wait_for(
            lambda: (get("/leader")[0], get("/healthz")[0], metric("leader_election_master_status")) == (503, 200, 0)
        ),
        "T54 T55 a follower is healthy, and not master",
    )


# ---- clocks ----


def shimmed(s: Stage, who: str, variable: str, **kw: Any) -> tuple[Any, Any]:
    path = os.path.join(home, f"{variable}-{who}-{s.api.port}")

    def set_(seconds: float) -> None:
        with open(path, "r+b" if os.path.exists(path) else "wb") as f:
            f.write(struct.pack("q", int(seconds * 10**9)))

    set_(0)
    c = s.join("--identity", who, env={"LD_PRELOAD": build("shim.c", "-shared", "-fPIC"), variable: path}, **kw)
    return c, set_


def wall_clocks(s: Stage) -> None:
    hour, year = 3600, 31_557_600
    a, set_a = shimmed(s, "a", "SHIM_CLOCK")
    a.wait("became_leader")
    b, set_b = shimmed(s, "b", "SHIM_CLOCK")
    b.wait("new_leader")
    steps = (hour, -hour, 10 * year, -10 * year)
    for set_ in (set_a, set_b):
        for step in steps:
            set_(step)
            s.renewed(2)
    same(
        (a.all("stopped_leading"), b.all("became_leader")),
        ([], []),
        "T56 wall clocks that are set by hours and years: the leader leads, the standby waits",
    )
    token = a.all("became_leader")[0]["token"]
    a.kill(signal.SIGTERM)
    e = b.wait("became_leader")
    ok(e and e["token"] > token, "T56 and follows, ten years back, with a larger token")


def suspended(s: Stage) -> None:
    """The clock that counts suspend has jumped by more than a lease; the others have not."""
    long = timing("600s", renew="400s", retry="1s")
    over = os.path.join(home, f"woken-{s.api.port}")
    a, sleep_a = shimmed(s, "a", "SHIM_SUSPEND", times=long, script=UNTIL_OVER.format(over))
    a.wait("became_leader")
    s.held("X", 600, name="other")
    b, sleep_b = shimmed(s, "b", "SHIM_SUSPEND", times=long, name="other")
    b.wait("new_leader")
    a.kill(signal.SIGSTOP)
    for set_ in (sleep_a, sleep_b):
        set_(601)
    ok(
        wait_for(lambda: os.path.exists(over)),
        "T58 after a suspend that was longer than the lease the script does not lead, even if it wakes first",
    )
    a.kill(signal.SIGCONT)
    ok(a.wait("stopped_leading", "expired"), "T58 and the first thing the elector does is to end the term")
    s.api.edit("other", labels={"woken": "up"})
    time.sleep(2)
    same(
        (b.all("became_leader"), s.spec("other")["holderIdentity"]),
        ([], "X"),
        "T58 a standby that was suspended has not waited while it slept",
    )


# ---- watches ----


def deaf(s: Stage) -> None:
    """The watch's connection is open and shows nothing; whoever holds the Lease renews."""
    beaten_ = []

    def rule(h: Any) -> Any:
        if h.command != "PUT":
            return False
        beaten_.append(h)
        s.api.edit("lock", renewTime=f"2026-01-01T00:00:00.{len(beaten_):06d}Z")  # just before
        return False

    s.held("X", 2)
    s.api.rule = rule
    b = s.join()
    ok(
        wait_for(lambda: len(beaten_) >= 3),
        "T71 a standby whose watch shows nothing tries when the lease it knows of has run out",
    )
    same(
        (b.all("became_leader"), s.spec()["holderIdentity"], s.writes()),
        ([], "X", []),
        "T71 and cannot take what was renewed: it has to know the version",
    )
    a = s.leader(name="own")

    def watches() -> Any:
        return len([x for x in s.api.seen if "watch=1" in x[1] and "own" in x[1]])

    ok(wait_for(lambda: watches() >= 2), "T71 a watch that does not show what one has written oneself is begun anew")
    same(a.all("stopped_leading"), [], "T71 which costs no term")


ALL = (
    {
        "beaten": beaten,
        "resource": resource,
        "names": names,
        "durations": durations,
        "future": future,
        "deleted-meanwhile": deleted_meanwhile,
        "storm": storm,
        "long-trouble": long_trouble,
        "release-stolen": release_stolen,
        "lost-once": lost_once,
        "crowded": crowded,
        "release-conflict": release_conflict,
        "release-missing": release_missing,
        "in-flight": in_flight,
        "worked": worked,
        "never-done": never_done,
        "twice-told": twice_told,
        "announced": announced,
        "kept": kept,
        "paired": paired,
        "told": told,
        "blocked": blocked,
        "raised": raised,
        "watched": watched,
        "wall-clocks": wall_clocks,
        "suspended": suspended,
        "deaf": deaf,
    }
    | {f"fail-{how}": lambda s, how=how: all_fail(s, how) for how in ("hang", "reset", "refused", "500", "503")}
    | {"begun-anew": begun_anew}
)


def job(name: str) -> Any:
    def play() -> None:
        s = Stage(silent=name == "deaf")
        began = time.monotonic()
        try:
            ALL[name](s)
        finally:
            s.end()
        note(f"{name} took {time.monotonic() - began:.1f} s")

    play.__name__ = name
    return play


build("shim.c", "-shared", "-fPIC")
chosen = sys.argv[1:] or list(ALL)
for i in range(0, len(chosen), 9):
    at_once(*[job(n) for n in chosen[i : i + 9]])
same(
    [w for a in apis for w in a.wrong],
    [],
    "T60 T62 every write had uid and version, times of six digits and Z, whole numbers",
)
shutil.rmtree(home)
done()

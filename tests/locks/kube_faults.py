#!/usr/bin/env -S PYTHONPATH=. python3
"""The Kubernetes lock against answers that a healthy API server does not give: refusals for a while, errors that may or
may not have been acted upon, cut and changed answers, watches that break in every way. The server here is a script of
such answers (a real one's: tests/cluster/kubernetes); it also checks that no PUT comes without uid and version.

The numbers T.. are those of the cases in tests/cluster/kubernetes/README.md."""

import json
import threading
import time
from collections.abc import Callable
from typing import Any

from tests.lib.kubeapi import Api, status
from tests.lib.lock_cases import FOR
from tests.lib.lock_driver import NOMINATION, Driver, record
from tests.lib.processes import PATIENCE, scratch, wait_for
from tests.lib.tap import at_once, done, note, ok, same

api = Api(silent=True)
home = scratch()


def url(name: str, **user: Any) -> Any:
    return api.url(home, name, **user)


class One:
    """A lock, with a record of its own in it, that has these fields; or, if those are a nomination's, the next record
    beside the lock."""

    def __init__(self, name: str, fields: Any = None) -> None:
        self.name, self.d, self.fields = name, Driver(), fields or {}
        opened = self.d.open(url(name), "m" if "nomination" in self.fields else "a")
        if not opened["ok"]:
            raise RuntimeError(opened)
        if "nomination" in self.fields:
            self.d.open_next(url(name), "m", "a")
            self.name += "-next"
        self.version = self.d.write(record("a", **self.fields), "")["version"]

    def write(self, *faults: Any, within: int = 20_000) -> Any:
        rec = record("a", **self.fields)
        api.faults[:] = faults
        began = time.monotonic()
        w = self.d.write(rec, self.version, within=within)
        self.took = time.monotonic() - began
        api.faults.clear()
        self.there = (
            json.loads(api.leases[self.name]["metadata"]["annotations"]["lunarch.dev/record"])["write"] == rec["write"]
        )
        r = self.d.read()
        self.version = r.get("version", "")
        return w

    def end(self) -> None:
        same(self.d.end(), 0, f"{self.name}: closed in peace")


def refuse(code: Any, *headers: Any, reason: str = "X") -> Any:
    return lambda h: h.answer(code, status(code, reason), headers) or True


def after(answer: Any) -> Any:
    """Acts upon it, then answers something else."""

    def fault(h: Any) -> Any:
        api.act(h)
        answer(h)
        return True

    return fault


def writes(name: str = "writes", fields: dict[str, Any] | None = None) -> None:
    o = One(name, fields)
    w = o.write(refuse(429, ("Retry-After", "1")))
    ok(
        w["outcome"] == "ok" and o.there and o.took >= 1,
        "T33 429: the wait that is asked for is waited, and then it is written",
    )
    ok(w["sent_ms"] >= 1000, "T33 and dated at its last sending")
    w = o.write(refuse(429, ("Retry-After", "60")), within=2000)
    ok(
        w["outcome"] == "failed" and not o.there and o.took < 20,
        "T33 429 for longer than the deadline: failed, at once",
    )
    w = o.write(refuse(500))
    ok(w["outcome"] == "unknown" and not o.there, "500: unknown, though it was not applied")
    w = o.write(after(lambda h: h.answer(504, status(504, "Timeout"))))
    ok(w["outcome"] == "unknown" and o.there, "504: unknown, though it was applied")
    w = o.write(after(lambda h: h.cut()))
    ok(w["outcome"] == "unknown" and o.there, "T21 a lost answer: unknown, though it was applied")
    w = o.write(after(lambda h: h.answer(200, text=b'{"kind":"Lease","metadata":{"resourceVe')))
    ok(w["outcome"] == "unknown", "half an answer: unknown")
    w = o.write(
        after(
            lambda h: h.answer(
                200,
                {"kind": "Lease", "metadata": {"resourceVersion": "9", "uid": "u"}, "spec": {"holderIdentity": "a"}},
            )
        )
    )
    ok(
        w["outcome"] == "unknown" and "webhook" in w["err"]["text"],
        "an answer that shows something else than was sent: unknown, and said",
    )
    for change, what in (
        ({}, "the one that there was"),
        ({"uid": "another"}, "had been deleted"),
        ({"uid": ""}, "is this a Kubernetes API server"),
    ):
        w = o.write(after(lambda h, c=change: h.answer(201, {**h.body, "metadata": {**h.body["metadata"], **c}})))
        ok(
            w["outcome"] == "unknown" and "201" in w["err"]["text"] and what in w["err"]["text"],
            f"T28 a 201 to a PUT is a defect, not a success: {w['err']['text']}",
        )
    for code, outcome in (
        (422, "invalid"),
        (400, "invalid"),
        (413, "invalid"),
        (403, "refused"),
        (401, "refused"),
        (404, "conflict"),
        (409, "conflict"),
    ):
        w = o.write(refuse(code))
        same((w["outcome"], o.there), (outcome, False), f"{code} to a write: {outcome}")
    gate = threading.Event()
    w = o.write(lambda h: gate.wait(PATIENCE) and False, within=3000)
    gate.set()
    ok(w["outcome"] == "unknown", "a late answer: unknown at the deadline")
    o.end()


def nominations() -> None:
    note("of the next record:")
    writes("nominations", NOMINATION)


def releases() -> None:
    note("of a release for somebody:")
    writes("releases", FOR)


def cut_off(h: Any) -> bool:
    """All of the Lease, but a byte more was promised."""
    lease = json.dumps(api.leases["reads"]).encode()
    h.send_response(200)
    h.send_header("Content-Length", str(len(lease) + 1))
    h.end_headers()
    h.wfile.write(lease)
    h.wfile.flush()
    h.cut()
    return True


def reads() -> None:
    o = One("reads")
    cases = [
        ("a page that is not there", lambda h: h.answer(404, text=b"404 page not found") or True, "failed"),
        ("404 for something else", lambda h: h.answer(404, status(404, "NotFound", name="n")) or True, "failed"),
        (
            "half an object",
            lambda h: h.answer(200, text=json.dumps(api.leases["reads"]).encode()[:-40]) or True,
            "failed",
        ),
        ("an answer that is cut off", cut_off, "failed"),
        ("HTML", lambda h: h.answer(200, text=b"<html>log in</html>") or True, "failed"),
        (
            "a version that is no number",
            lambda h: h.answer(200, {"metadata": {"resourceVersion": "x"}}) or True,
            "failed",
        ),
        ("500", refuse(500), "failed"),
        ("401", refuse(401), "failed"),
        ("a redirect", lambda h: h.answer(302, {}, [("Location", "http://127.0.0.1:9/")]) or True, "failed"),
        (
            "a spec of the wrong kind",
            lambda h: h.answer(200, {"metadata": {"resourceVersion": "5", "uid": "u"}, "spec": {"holderIdentity": 5}})
            or True,
            "foreign",
        ),
        (
            "a coordinated Lease",
            lambda h: h.answer(200, {"metadata": {"resourceVersion": "5"}, "spec": {"strategy": "S"}}) or True,
            "foreign",
        ),
    ]
    for what, fault, outcome in cases:
        api.faults[:] = [fault]
        r = o.d.read()
        if not ok(r["outcome"] == outcome and r["err"]["text"], f"reading {what}: {outcome}, never absent"):
            note(r)
    big = json.loads(json.dumps(api.leases["reads"]))
    big["metadata"]["managedFields"] = [{"manager": "x" * 1000}] * 1000
    api.faults[:] = [lambda h: h.answer(200, big) or True]
    same(o.d.read()["outcome"], "ok", "T65 an object of 1 MB is read")
    o.end()


def pieces(data: bytes, size: int) -> list[bytes]:
    return [data[i : i + size] for i in range(0, len(data), size)]


def event(kind: str, lease: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": lease}).encode() + b"\n"


def watches() -> None:
    o = One("watched")
    o.d.read()
    gone = threading.Event()
    feed, closed = [], []

    def stream(h: Any) -> Any:
        h.begin()
        feed.append(h)  # from now on others may write to it
        gone.wait(120)
        closed.append(h)
        return True

    def opened(n: Any) -> Any:
        return wait_for(lambda: len(feed) >= n)

    def begun_at(version: int | str, since: int) -> bool:
        """A watch after the first so many was asked for from this version on."""

        def asked() -> list[str]:
            return [s[1] for s in api.seen if "watch=1" in s[1]][since:]

        found = wait_for(lambda: any(f"resourceVersion={version}&" in a for a in asked()))
        if not found:
            note(f"not {version}: {asked()}")
        return found

    def change(holder: str) -> dict[str, Any]:
        lease = json.loads(json.dumps(api.leases["watched"]))
        api.version += 1
        lease["metadata"]["resourceVersion"] = str(api.version)
        lease["spec"]["holderIdentity"] = holder
        api.leases["watched"] = lease
        return lease

    def see(what: str, holder: str, send: Any) -> int:
        before, reads = o.d.count(), len([s for s in api.seen if s[0] == "GET" and "watch=1" not in s[1]])
        send(change(holder))
        ok(o.d.noticed(before), f"watch: {what}: noticed")
        got = o.d.read()
        same(got["record"]["holderIdentity"], holder, f"watch: {what}: read as it is")
        return len([s for s in api.seen if s[0] == "GET" and "watch=1" not in s[1]]) - reads

    api.watches[:] = [stream] * 50
    o.d.do("watch")
    opened(1)
    same(
        see("one line", "b", lambda lease: feed[-1].chunk(event("MODIFIED", lease))),
        0,
        "watch: what it shows is not asked for again",
    )
    see("a byte at a time", "c", lambda lease: [feed[-1].chunk(bytes([b])) for b in event("MODIFIED", lease)])
    old = json.loads(json.dumps(api.leases["watched"]))
    see(
        "1 MiB in a line, in pieces",
        "large",
        lambda lease: [
            feed[-1].chunk(part)
            for part in pieces(
                event(
                    "MODIFIED",
                    {**lease, "metadata": {**lease["metadata"], "managedFields": [{"manager": "x" * 1023}] * 1024}},
                ),
                10_007,
            )
        ],
    )
    see("two lines in one piece", "d", lambda lease: feed[-1].chunk(event("MODIFIED", old) + event("MODIFIED", lease)))
    see(
        "after a bookmark and nonsense",
        "e",
        lambda lease: feed[-1].chunk(
            event("BOOKMARK", {"metadata": {"resourceVersion": lease["metadata"]["resourceVersion"]}}) + b"{nonsense\n"
        ),
    )
    before = o.d.count()
    feed[-1].chunk(event("MODIFIED", old))
    time.sleep(0.3)
    same((o.d.count(), o.d.read()["record"]["holderIdentity"]), (before, "e"), "watch: an older version is not news")
    n = len(feed)
    feed[-1].chunk(event("ERROR", status(410, "Expired")))
    feed[-1].end()
    opened(n + 1)
    ok(
        "resourceVersion=0" in api.seen[-1][1]
        or wait_for(lambda: any("resourceVersion=0" in s[1] for s in api.seen[-5:])),
        "T70 watch: after 410 it begins anew",
    )
    see("after a 410", "f", lambda lease: feed[-1].chunk(event("MODIFIED", lease)))
    n = len(feed)
    time.sleep(1.2)
    feed[-1].end()
    opened(n + 1)
    ok(
        begun_at(api.leases["watched"]["metadata"]["resourceVersion"], n),
        "watch: when its time is up it goes on where it was",
    )
    n, api.version = len(feed), api.version + 7
    feed[-1].chunk(event("BOOKMARK", {"metadata": {"resourceVersion": str(api.version)}}))
    time.sleep(1.2)
    feed[-1].end()
    opened(n + 1)
    ok(begun_at(api.version, n), "T72 watch: after a bookmark it goes on from there")
    n = len(feed)
    feed[-1].connection.shutdown(2)
    opened(n + 1)
    see("after a cut", "g", lambda lease: feed[-1].chunk(event("MODIFIED", lease)))
    before = o.d.count()
    api.leases.pop("watched")
    feed[-1].chunk(event("DELETED", old))
    ok(o.d.noticed(before) and o.d.read()["outcome"] == "absent", "T73 watch: a deletion is looked after, and absent")
    api.watches[:] = [refuse(500)] * 1000
    began, n = time.monotonic(), len(api.seen)
    feed[-1].connection.shutdown(2)
    time.sleep(4)
    wait_for(lambda: [s for s in api.seen[n:] if "watch=1" in s[1]])
    tries = len([s for s in api.seen[n:] if "watch=1" in s[1]])
    ok(
        1 <= tries <= 10,
        f"T35 watch: a server that fails is asked again, ever less often ({tries} times in "
        f"{time.monotonic() - began:.0f} s)",
    )
    wait_for(lambda: not o.d.do("watch")["watching"])
    same(o.d.do("watch")["watching"], False, "watch: and who waits for it is told to poll")
    api.watches.clear()
    wait_for(lambda: o.d.do("watch")["watching"])
    ok(o.d.do("watch")["watching"], "watch: until it works again")
    gone.set()
    o.end()


def repeated() -> None:
    """The connection breaks after a PUT, so libcurl sends it once more: whatever that is answered, the first may have
    been done."""
    for code, *headers in ((403,), (422,), (401,), (429, ("Retry-After", "0"))):
        o = One(f"repeated-{code}")
        began = len(api.seen)
        w = o.write(after(lambda h: h.cut()), refuse(code, *headers))
        same(
            (w["outcome"], o.there),
            ("unknown", True),
            f"a PUT that was done, cut off, sent again and then answered {code}: unknown",
        )
        same(len([s for s in api.seen[began:] if s[0] == "PUT"]), 2, f"{code}: and not sent a third time")
        o.end()


class Streams:
    """A server whose watches show what one makes them show."""

    def __init__(self) -> None:
        self.api, self.gone = Api(silent=True), threading.Event()
        self.feed: dict[str, Any] = {}
        self.api.watches[:] = [self.stream] * 100

    def stream(self, h: Any) -> Any:
        h.begin()
        self.feed["configmaps" if "/configmaps" in h.path else "leases"] = h
        self.gone.wait(600)
        return True

    def show(self, kind: str, o: dict[str, Any]) -> None:
        self.feed[kind].chunk(event("MODIFIED", o))

    def driver(self, name: str, kinds: int, options: str = "") -> tuple[Any, str]:
        d = Driver()
        opened = d.open(self.api.url(home, name) + options)
        if not opened["ok"]:
            raise RuntimeError(opened)
        version = d.write(record("a"), "")["version"]
        d.do("watch")
        wait_for(lambda: len(self.feed) == kinds)
        return d, version


def superseded() -> None:
    """Somebody edits the Lease between a write and its answer, and the watch shows that first."""
    s = Streams()
    d, version = s.driver("l", 1)

    def fault(h: Any) -> Any:
        answer, before = s.api.act(h), d.count()
        s.api.edit("l", holderIdentity="thief", leaseDurationSeconds=60)
        s.show("leases", s.api.leases["l"])
        ok(d.noticed(before), "what is shown before a write's answer is noticed")
        answer()
        return True

    s.api.faults[:] = [fault]
    w = d.write(record("a"), version)
    stolen = s.api.leases["l"]["metadata"]["resourceVersion"]
    same(
        (w["outcome"], int(w["token"])),
        ("ok", int(stolen) - 1),
        "a write that was answered is done; its token is of its own version, not of what came after",
    )
    again = d.write(record("a"), w["version"])
    same(
        (again["outcome"], s.api.leases["l"]["spec"]["holderIdentity"]),
        ("conflict", "thief"),
        "and its version allows nobody to overwrite that",
    )
    s.gone.set()
    same(d.end(), 0, "superseded: closed in peace")


def pair() -> None:
    """Of a ConfigMap and a Lease the first is being written when somebody who knows Leases alone takes the second."""
    maps: dict[str, Any] = {}
    s, put, version = Streams(), [], [1000]

    def rule(h: Any) -> bool:
        if "/configmaps" not in h.path:
            return False
        name = h.path.split("?")[0].rpartition("/")[2] if h.command != "POST" else h.body["metadata"]["name"]
        if h.command == "GET":
            h.answer(200, maps[name]) if name in maps else h.answer(404, status(404, "NotFound", name=name))
            return True
        if h.command == "PUT":
            put.append(len(s.api.seen))
            before = d.count()
            s.api.edit("p", holderIdentity="thief", leaseDurationSeconds=60)
            s.show("leases", s.api.leases["p"])
            ok(d.noticed(before), "pair: a takeover of the second is noticed while the first is being written")
        version[0] += 1
        h.body["metadata"] |= {"uid": "cm", "resourceVersion": str(version[0])}
        maps[name] = h.body
        h.answer(201 if h.command == "POST" else 200, h.body)
        return True

    s.api.rule = rule
    d, at = s.driver("p", 2, "&resource=configmapsleases")
    w = d.write(record("a"), at)
    same(
        (w["outcome"], s.api.leases["p"]["spec"]["holderIdentity"]),
        ("unknown", "thief"),
        "pair: what somebody has just taken is not overwritten",
    )
    same([x[1] for x in s.api.seen[put[0] :] if x[0] == "PUT"], [], "pair: nor tried to be")
    s.gone.set()
    same(d.end(), 0, "pair: closed in peace")


def crowd() -> None:
    """More watches than there are connections for; and one that the server puts off for an hour."""
    quiet = Api(silent=True)
    d = Driver()
    locks = [f"w{i}" for i in range(17)]
    by = quiet.url(home, "crowd")  # one kubeconfig, so that they share its connections
    for name in locks:
        d.open(by.replace("///crowd", f"///{name}"), name)
        d.read(name)
        d.do("watch", name)

    def watching(names: list[str]) -> list[str]:
        return [n for n in names if d.do("watch", n)["watching"]]

    wait_for(lambda: len([s for s in quiet.seen if "watch=1" in s[1]]) == 16)
    ok(wait_for(lambda: len(watching(locks)) == 16), "a watch that has no connection is soon not relied upon")
    waits = [n for n in locks if n not in watching(locks)]
    ok(waits and d.count(waits[0]) > 0, "and who waits for it is told")
    d.do("close", next(n for n in locks if n not in waits))
    ok(wait_for(lambda: watching(waits)), "until it gets one")
    same(d.end(), 0, "crowd: closed in peace")
    d = Driver()
    quiet.watches[:] = [refuse(429, ("Retry-After", "3600"))]
    d.open(quiet.url(home, "late"))
    d.read()
    d.do("watch")
    ok(wait_for(lambda: not d.do("watch")["watching"]), "nor is one that the server wants to be asked for much later")
    same(d.end(), 0, "late: closed in peace")


tests: tuple[Callable[[], None], ...] = (writes, nominations, releases, reads, watches, repeated)
for test in tests:
    test()
at_once(superseded, pair, crowd)
same(api.wrong, [], "T60 no PUT was sent without uid and version, no time but with six digits and Z")
done()

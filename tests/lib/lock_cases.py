"""The conformance cases, the same for every store. What a lock must do where nobody interferes, `lunarch doctor --full`
says (runtime/doctor/store_full.c), and `examined` asks it. The others need a hand that doctor has not: each takes a
Store (stores.py), which reaches into the store behind the runtime's back and hurts the server."""

import base64
import os
import secrets
import time
import uuid
from typing import Any

from tests.lib.full_doctor import doctor
from tests.lib.lock_driver import NOMINATION, WITHIN, Driver, race, record, tried
from tests.lib.processes import wait_for
from tests.lib.tap import note, ok, same

DEFINITE = ("failed", "refused", "invalid", "conflict")
SHORT = 1500  # ms; a deadline that is meant to pass


class Two:
    """Two processes with a lock each on the same key, and the raw store. fields: of all records that are written; with
    those of a nomination the two have the next record of the key's lock, and share that lock's connection."""

    def __init__(self, store: Any, what: str, through: Any = None, fields: Any = None) -> None:
        self.store, self.key, self.fields = store, f"{what}-{uuid.uuid4().hex[:8]}", fields or {}
        self.a, self.b = Driver(store.env), Driver(store.env)
        self.opened = self.open(self.a, store.url(self.key, through))
        self.open(self.b, store.url(self.key))
        if not self.opened["ok"]:
            raise RuntimeError(self.opened["err"])

    def open(self, driver: Driver, url: str) -> dict[str, Any]:
        if "nomination" not in self.fields:
            return driver.open(url)
        driver.open(url, "m")
        return driver.open_next(url, "m", "a")

    def record(self, holder: str = "somebody", **fields: int) -> dict[str, Any]:
        return record(holder, **{**self.fields, **fields})

    def put(self, holder: str = "first", **fields: int) -> str:
        """A record that is there, written by b; its version."""
        r = self.b.read()
        w = tried(lambda: self.b.write(self.record(holder, **fields), r["version"]))
        if w["outcome"] != "ok":
            raise RuntimeError(f"the first write: {w}")
        return w["version"]

    def truth(self) -> dict[str, Any]:
        """What is in the store, by a process that nothing hinders."""
        return tried(lambda: self.b.read())

    def has(self, rec: dict[str, Any]) -> bool:
        return self.truth().get("record", {}).get("write") == rec["write"]

    def ready(self) -> str:
        """a has the connection that a write goes by, and a store that waits before it elects anybody has waited; the
        version then."""

        def done() -> bool:
            if not self.fields and not self.store.examined:
                return self.a.read()["outcome"] == "ok"
            return self.a.write(self.record("ready"), self.truth()["version"])["outcome"] == "ok"

        if not wait_for(done):
            raise RuntimeError("the lock does not get ready")
        return self.truth()["version"]

    def works_again(self) -> bool:
        """After a fault has ended: read until it is answered, then a write on that. The read may be overtaken by a
        write that was unknown and is applied only now; there is one of those at most, so a second conflict is a
        mistake."""
        for _ in range(2):
            r = tried(lambda: self.a.read(), "ok", "absent")
            w = r["outcome"] in ("ok", "absent") and self.a.write(self.record("again"), r["version"])
            if w and w["outcome"] == "ok":
                return True
            note(f"read {r}\nwrite {w}")
            if not w or w["outcome"] != "conflict":
                return False
        return False

    def end(self) -> None:
        twice = self.a.twice() + self.b.twice()
        status = self.a.end(), self.b.end()
        self.store.delete(self.key)
        if twice or status != (0, 0):
            ok(False, f"every operation is answered once, and locks close in peace: {twice} {status}")


# What doctor says of this machine, and of a server that was made for a test.
ASIDE = ("server", "race", "notice", "acquire", "renew", "deleted")
OF_DRIVERS = ("foreign", "answer", "cut", "killed", "stopped")  # for a lock that is not in Lua it examines none of them


def examined(store: Any) -> None:
    """Every rule that doctor knows, a sentence each."""
    base = f"examined-{uuid.uuid4().hex[:8]}"
    j = doctor("--lock", store.url(base), **store.env)
    notes = store.notes + (() if store.in_lua else OF_DRIVERS)
    for f in j["findings"]:
        name, verdict, text = f["name"], f["verdict"], f["text"]
        if name in ASIDE:
            good = name == "server" or verdict != "unfit"
        else:
            good = verdict == ("note" if name in notes else "good")
        good &= not store.any_name or "some are no keys" not in text
        ok(good, f"doctor --full: {name}")
        note(f"{verdict}: {text}")
    ok(len(j["findings"]) > len(ASIDE), "doctor --full: it has come to its end", f"{j['status']} {j['errors']}")
    d = Driver(store.env)
    d.open(store.url(base), prefix=True)
    # In ZooKeeper the node above that of "a/b" stays, and in S3 what a killed driver probed with (docs/stores).
    left = [n for n in d.names()["names"] if not n.endswith("-key-a") and ".probe-" not in n]
    same(left, [], "doctor --full: nothing of the examination stays")
    d.end()


def by_hand(store: Any) -> None:
    t = Two(store, "hand")
    version = t.put("a")
    before = store.get(t.key)
    store.delete(t.key)
    same(t.a.write(record("a"), version)["outcome"], "conflict", "by hand: after a deletion a renewal is a conflict")
    same(t.a.read()["outcome"], "absent", "by hand: and the record absent")
    store.put(t.key, before)
    got = t.a.read()
    same((got["outcome"], got["record"]["holderIdentity"]), ("ok", "a"), "by hand: a copy put in its place is read")
    if store.revisions:
        same(
            t.a.write(record("a"), version)["outcome"],
            "conflict",
            "by hand: but it is not what was there, byte for byte the same or not",
        )
    edited = before.replace(b"15000", b"25000")
    store.put(t.key, edited)
    same(
        t.a.write(record("a"), got["version"])["outcome"],
        "conflict",
        "by hand: nor can an edited record be written over unseen",
    )
    got = t.a.read()
    same(got.get("record", {}).get("leaseDurationMs"), 25000, "by hand: the edit is read as it is")
    same(t.a.write(record("a"), got["version"])["outcome"], "ok", "by hand: and then replaced knowingly")
    t.end()


# What is a record is said in tests/unit/lease/test_record.c.
FOREIGN = {"text": b"hello\n", "binary": b"\x7fELF\x02\x01\xff\xfe\x1b[31m", "nothing at all": b""}


def foreign(store: Any) -> None:
    for what, content in FOREIGN.items():
        if not store.holds(content):
            continue
        t = Two(store, "foreign")
        store.put(t.key, content)
        r = t.a.read()
        same(r["outcome"], "foreign", f"foreign: {what} is no record of ours")
        text = r.get("err", {}).get("text", "")
        ok(
            t.key in text and text.isprintable(),
            f"foreign: {what}: the error names the key, in text that a terminal can bear",
        )
        same(
            t.a.write(record("a"), "")["outcome"],
            "conflict",
            f"foreign: {what}: a write that expects none is a conflict",
        )
        same(store.get(t.key), content, f"foreign: {what}: and it is not touched")
        t.end()


def names(store: Any) -> None:
    drivers = [Driver(store.env) for _ in store.names]
    for d, n in zip(drivers, store.names):
        d.open(store.url(n))
        same(d.write(record(f"holder of {n}"), "")["outcome"], "ok", f"names: {n!r} is a lock of its own")
    told = [d.read().get("record", {}).get("holderIdentity") for d in drivers]
    same(told, [f"holder of {n}" for n in store.names], "names: each has its own record")
    for d, n in zip(drivers, store.names):
        d.end()
        store.delete(n)


def noticed_by_hand(store: Any) -> None:
    if not (store.watches and store.notices_by_hand):
        return
    t = Two(store, "notice")
    t.put("x")
    t.a.read()  # as the elector does: some stores know only then whether they give any
    t.a.do("watch")
    for what, act in (
        ("a record is deleted", lambda: store.delete(t.key)),
        ("it is made again", lambda: t.put("z")),
        ("it is edited", lambda: store.put(t.key, store.get(t.key).replace(b"15000", b"26000"))),
    ):
        t.a.read()  # a notice may stand for all that happens until the next look
        before = t.a.count()
        act()
        ok(t.a.noticed(before), f"by hand: {what}, and that is noticed")
    t.end()


class Listed:
    """Records of one test, of which one process writes and another lists."""

    def __init__(self, store: Any, what: str) -> None:
        self.store, self.base = store, f"{what}-{uuid.uuid4().hex[:8]}-"
        self.a, self.b = Driver(store.env), Driver(store.env)
        self.written: list[str] = []

    def write(self, *names: str) -> None:
        for n in names:
            self.written.append(self.base + n)
            self.b.open(self.store.url(self.base + n), n)
            w = self.b.write(record(n), "", n)
            if w["outcome"] != "ok":
                raise RuntimeError(f"the record {n}: {w}")

    def list(self, prefix: str = "", through: Any = None, within: int = WITHIN) -> dict[str, Any]:
        """What follows the base and this prefix."""
        opened = self.a.open(self.store.url(self.base + prefix, through), prefix or "all", prefix=True)
        if not opened["ok"]:
            raise RuntimeError(opened["err"])
        return self.a.names(prefix or "all", within)

    def holder(self, name: str, prefix: str = "") -> str:
        """Of the record of this name in the listing; or why it is none."""
        url = self.a.beside(name, prefix or "all")
        self.a.open(url, url)
        r = self.a.read(url)
        return r.get("record", {}).get("holderIdentity", r["outcome"])

    def end(self) -> None:
        twice, status = self.a.twice() + self.b.twice(), (self.a.end(), self.b.end())
        self.store.delete_many(self.written)
        if twice or status != (0, 0):
            ok(False, f"every operation is answered once, and locks close in peace: {twice} {status}")


def listed_by_hand(store: Any) -> None:
    t = Listed(store, "list")
    t.write("two", "two-b")
    store.put(t.base + "two-f", b"hello\n")
    t.written.append(t.base + "two-f")
    r = t.list("two")
    same(
        [n for n in r["names"] if t.holder(n, "two") != "foreign"],
        ["", "-b"],
        "list: beside what is no record the records are listed; and a read tells which are",
    )
    t.end()


def list_pages(store: Any) -> None:
    t = Listed(store, "pages")
    t.write("first")
    content = store.get(t.base + "first")
    many = [f"{t.base}{i:04}" for i in range(1000)]
    t.written += many
    store.put_many(many[:-1], content)
    r = t.list()
    same(
        (len(r.get("names", [])), r.get("more"), r["outcome"]),
        (1000, False, "ok"),
        "list: 1,000 names are listed, and that these are all",
    )
    same(r["names"], sorted({n[len(t.base) :] for n in many[:-1]} | {"first"}), "list: each once, and sorted")
    store.put_many(many[-1:], content)
    r = t.list()
    same((len(set(r["names"])), r["more"]), (1000, True), "list: of more, as many, and that there are more")
    t.end()


def list_ends(store: Any) -> None:
    t = Listed(store, "ends")
    t.write("one")
    t.list()
    op = t.a.start("list", "all", within_ms=WITHIN)
    same(t.a.do("cancel", "all")["calls"], 1, "list: one that is cancelled has been answered when cancel returns")
    ok(t.a.wait(op)["outcome"] in ("ok", "failed"), "list: as one that failed, or that was there in time")
    r = t.a.names("all", within=0)
    ok(r["outcome"] in ("ok", "failed") and r["calls"] == 1, "list: one without any time ends, too")
    same(t.list()["names"], ["one"], "list: and the next one works")
    t.end()


def list_silence(store: Any) -> None:
    proxy = store.proxy()
    t = Listed(store, "unheard")
    t.write("one")
    same(t.list(through=proxy)["names"], ["one"], "list in silence: before it")
    proxy.freeze()
    r = t.a.names("all", within=SHORT)
    ok(r["outcome"] == "failed" and r["calls"] == 1, "list in silence: without an answer it has failed at its deadline")
    ok(r.get("err", {}).get("text"), "list in silence: and it is said why")
    proxy.thaw()
    proxy.cut()
    again = wait_for(lambda: next((r for r in [t.a.names("all")] if r["outcome"] == "ok"), None))
    same(again and again["names"], ["one"], "list in silence: afterwards it works again")
    t.end()
    proxy.close()


def next_record(store: Any) -> None:
    """N, which says who comes next: a record of its own, that makes no token and touches no other."""
    t = Two(store, "next")
    url, first = store.url(t.key), t.put("leader")
    held = store.get(t.key)
    opened = t.a.open_next(url)
    ok(opened["ok"], "next record: it is opened beside its lock", opened.get("err"))
    same(t.b.open_next(t.opened["url"])["url"], opened["url"], "next record: by its lock's printed URL it is the same")
    t.b.open(opened["url"], "printed")
    r = t.a.read("n")
    same((r["outcome"], r["version"]), ("absent", ""), "next record: at first there is none")
    t.b.read("n")  # who is refused this may not watch it
    watching = t.b.do("watch", "n")["watching"]
    if store.watches:  # a lock in Lua is polled until its driver has said that there are notices
        watching = bool(wait_for(lambda: t.b.do("watch", "n")["watching"]))
    same(watching, store.watches, "next record: it can be watched where its lock can")
    t.b.read("n")
    before = t.b.count("n")
    mine = record("a", **NOMINATION, address="10.0.0.7:80")
    w = t.a.write(mine, "", "n")
    same((w["outcome"], w["token"]), ("ok", 0), "next record: it is made, and no token for it")
    same(watching and bool(t.b.noticed(before, "n")), store.watches, "next record: who watches it is told")
    wait_for(lambda: t.b.read("n").get("version") == w["version"])
    r = t.b.read("n")
    same((r["version"], r["token"]), (w["version"], 0), "next record: another process reads it")
    same(
        t.b.read("printed")["version"],
        w["version"],
        "next record: it has a URL of its own, by which it can be looked at",
    )
    same(
        ({k: r["record"].get(k) for k in mine}, [k for k in ("term", "token", "state") if k in r["record"]]),
        (mine, []),
        "next record: as it was written, and without anything of a term",
    )
    ok(b'"nomination"' in (store.get(store.next_key(t.key)) or b""), f"next record: it is at {store.next_key(t.key)}")
    same(t.b.write(record("b", **NOMINATION), "", "n")["outcome"], "conflict", "next record: there is one already")
    second = t.b.write(record("b", **NOMINATION), w["version"], "n", durable=False)
    same(
        (second["outcome"], second["token"]),
        ("ok", 0),
        "next record: who expects what is there takes it, without a token",
    )
    same(
        t.a.write(record("a", **NOMINATION), w["version"], "n")["outcome"], "conflict", "next record: who does not, not"
    )
    empty = t.b.write(record("", **NOMINATION), second["version"], "n", durable=False)
    wait_for(lambda: t.a.read("n").get("version") == empty["version"])
    r = t.a.read("n")
    same(
        (empty["outcome"], r["record"]["holderIdentity"], r["record"].get("nomination")),
        ("ok", "", NOMINATION["nomination"]),
        "next record: it can be emptied, and is a next record still",
    )
    r = t.truth()
    same(
        (r["record"]["holderIdentity"], r["version"], store.get(t.key)),
        ("leader", first, held),
        "next record: its lock's record is as it was, byte for byte",
    )
    same(t.a.write(record("again"), first)["outcome"], "ok", "next record: and is written as if there were no other")
    same(t.a.read("n")["version"], empty["version"], "next record: which that does not touch")
    store.put(store.next_key(t.key), b"hello\n")
    wait_for(lambda: t.a.read("n")["outcome"] == "foreign")
    same(t.a.read("n")["outcome"], "foreign", "next record: what is no record there is another program's")
    same(t.a.write(mine, empty["version"], "n")["outcome"], "conflict", "next record: and is not overwritten")
    store.delete(store.next_key(t.key))
    wait_for(lambda: t.a.read("n")["outcome"] == "absent")
    r = t.a.read("n")
    same(t.a.write(mine, r["version"], "n")["outcome"], "ok", "next record: removed by hand, it is made again")
    wait_for(lambda: t.b.read("n")["outcome"] == "ok")
    gone = t.b.do("remove", "n", expected=t.b.read("n")["version"], within_ms=WITHIN)["outcome"]
    wait_for(lambda: t.a.read("n")["outcome"] == "absent")
    same(
        (gone, t.a.read("n")["outcome"], t.truth()["outcome"]),
        ("ok", "absent", "ok"),
        "next record: it alone is removed",
    )
    t.end()


def next_shared(store: Any) -> None:
    """A lock and its next record at once, by the same process. Its lock's standbys are not woken by it."""
    t = Two(store, "both")
    url = store.url(t.key)
    version = t.put("leader")
    for d in t.a, t.b:
        d.open_next(url)
    at = t.a.read("n")["version"]
    wrong = []
    for i in range(20):
        both = (
            t.a.start_write(record("leader", token=9), version, durable=i % 2 == 0),
            t.a.start_write(record("next", **NOMINATION), at, "n"),
            t.a.start("cancel", "n") if i % 5 == 4 else 0,
        )
        m, n = t.a.wait(both[0]), t.a.wait(both[1])
        # The one before this was cancelled, and may have been applied only after the read that followed.
        late = 0 < i and i % 5 == 0 and n["outcome"] == "conflict"
        if m["outcome"] != "ok" or (n["outcome"] != "ok" and not both[2] and not late) or n["token"]:
            wrong.append((m, n))
            break
        version, at = m["version"], n["version"] if n["outcome"] == "ok" else tried(lambda: t.a.read("n"))["version"]
    same(wrong, [], "next record: written at the same time as its lock's, 20 times, each is done")
    if store.watches:
        t.b.do("watch")
        t.b.read("n")
        t.b.do("watch", "n")

        def only_next() -> bool:
            """A store may give notices without a reason, now and then."""
            t.b.read()
            t.b.read("n")
            lock, seen = t.b.count(), t.b.count("n")
            w = tried(lambda: t.a.write(record("next", **NOMINATION), t.b.read("n")["version"], "n"), "ok")
            return w["outcome"] == "ok" and t.b.noticed(seen, "n") and t.b.count() == lock

        ok(wait_for(only_next), "next record: who watches the lock alone is not told of it")
    t.a.do("close", "n")
    same(
        t.a.write(record("on", token=9), t.a.read()["version"])["outcome"],
        "ok",
        "next record: closed, its lock goes on",
    )
    store.delete(store.next_key(t.key))
    t.end()


def racing(store: Any) -> None:
    rounds = 1000 if os.environ.get("FULL") else min(store.rounds, int(os.environ.get("RACE", "250")))
    url = store.url(f"race-{uuid.uuid4().hex[:8]}")
    d = Driver(store.env)
    d.open(url)
    ok(wait_for(lambda: d.write(record("before", **TERM), "")["outcome"] == "ok"), "race: a first term")
    d.end()
    got, errors = race(url, rounds)
    if errors:
        note(errors)
    same(
        [got.get(k) for k in ("won", "wrong", "failed")],
        [rounds, 0, 0],
        f"race: 64 racers in 8 processes, each with a connection of its own: {rounds} rounds, one winner each, with a "
        "larger token than all before",
    )
    told = f"{got.get('rounds')} rounds in {got.get('seconds')} s, {got.get('unsure')} answers unsure"
    note(f"race on {store.name}: {told}")


# ---- faults between client and server ----


def honest(t: Two, rec: dict[str, Any], w: dict[str, Any]) -> bool:
    """The one thing that must hold whatever happens: "ok" is in the store, "surely not applied" is not."""
    there = t.has(rec)
    good = there if w["outcome"] == "ok" else not there if w["outcome"] in DEFINITE else True
    if not good or w["calls"] != 1:
        note(f"{w} but in the store: {t.truth()}")
    return good and w["calls"] == 1


def lost_reply(store: Any, what: str = "lost reply", **fields: Any) -> None:
    proxy = store.proxy()
    t = Two(store, "lost", proxy, fields)
    told, landed = [], 0
    t.put()
    for cut in (0, 0, 0, 1, 4, 5, 9, 40):
        version = t.ready()
        proxy.cut_after(cut)
        rec = t.record("a")
        w = t.a.write(rec, version)
        told.append(w["outcome"])
        proxy.heal()
        good = honest(t, rec, w)
        landed += t.has(rec)
        if not good:
            ok(False, f"{what}: cut after {cut} bytes of it: {w}")
    ok(
        "unknown" in told,
        f"{what}: a write whose answer is lost is unknown, not failed ({', '.join(told)}; {landed} of {len(told)} had "
        "been applied)",
    )
    ok(t.works_again(), f"{what}: and the lock goes on working")
    t.end()
    proxy.close()


def cut_request(store: Any, what: str = "cut connection", **fields: Any) -> None:
    proxy = store.proxy()
    t = Two(store, "cut", proxy, fields)
    bad = 0
    t.put()
    for cut in (0, 1, 7, 30, 100, 300, 600):
        version = t.ready()
        proxy.cut_after(cut, "up")
        rec = t.record("a")
        w = t.a.write(rec, version)
        proxy.heal()
        bad += not honest(t, rec, w)
    same(bad, 0, f"{what}: wherever a request is cut, what is said of it is true")
    proxy.cut()
    ok(t.works_again(), f"{what}: an idle connection that was cut is replaced")
    t.end()
    proxy.close()


def slow_reply(store: Any, what: str = "slow reply", **fields: Any) -> None:
    proxy = store.proxy()
    t = Two(store, "slow", proxy, fields)
    version = t.put()
    t.a.read()
    proxy.delay(0.4)
    rec = t.record("a")
    w = t.a.write(rec, version)
    ok(
        w["outcome"] == "ok" and w["sent_ms"] + 400 <= w["took_ms"] + 1,
        f"{what}: a write counts from when it was sent, not from when it was answered",
    )
    proxy.heal()
    proxy.freeze("down")
    late = t.record("late")
    w = t.a.write(late, w["version"], within=SHORT)
    ok(honest(t, late, w) and w["outcome"] == "unknown", f"{what}: later than the deadline it is unknown")
    r = t.a.start("read", within_ms=20_000)
    proxy.thaw()
    same(
        t.a.wait(r).get("record", {}).get("write"),
        t.truth()["record"]["write"],  # the late one, unless the lock asks something before it, as MySQL's
        f"{what}: what comes late is not taken for the answer to something else",
    )
    ok(t.works_again(), f"{what}: and the lock goes on working")
    t.end()
    proxy.close()


def silence(store: Any, what: str = "silence", **fields: Any) -> None:
    """Both ways frozen; then let go, so that a request given up long ago reaches the server after all."""
    proxy = store.proxy()
    t = Two(store, "silence", proxy, fields)
    t.put()
    version = t.ready()
    proxy.freeze()
    began = time.monotonic()
    r = t.a.read(within=SHORT)
    ok(r["outcome"] == "failed" and r["calls"] == 1, f"{what}: a read without an answer has failed at its deadline")
    rec = t.record("a")
    w = t.a.write(rec, version, within=SHORT)
    ok(w["outcome"] in ("unknown", "failed"), f"{what}: a write is unknown, or surely not sent")
    ok(time.monotonic() - began < 30, f"{what}: neither waits for ever")
    ok(honest(t, rec, w), f"{what}: meanwhile nothing else is true")
    other = t.record("b")
    same(t.b.write(other, version)["outcome"], "ok", f"{what}: another writes meanwhile")
    proxy.thaw()
    ok(wait_for(lambda: t.a.read()["outcome"] == "ok"), f"{what}: it is answered again")
    ok(t.has(other), f"{what}: a write that arrives late, after another's, changes nothing")
    ok(t.works_again(), f"{what}: and the lock goes on working")
    t.end()
    proxy.close()


def half_open(store: Any) -> None:
    """The way is gone, nobody says so, and new connections are fine once it is back."""
    proxy = store.proxy()
    t = Two(store, "half", proxy)
    version = t.put()
    t.a.read()
    proxy.lose()
    rec = record("a")
    w = t.a.write(rec, version, within=SHORT)
    ok(
        w["outcome"] in ("unknown", "failed") and honest(t, rec, w),
        "half-open: a connection that leads nowhere is seen by the deadline",
    )
    proxy.up.lose = proxy.down.lose = False  # the old connections stay deaf: nothing tells the client
    again = wait_for(lambda: t.a.read(within=SHORT * 2)["outcome"] == "ok")
    ok(again, "half-open: and is not used for ever")
    proxy.heal()
    ok(t.works_again(), "half-open: the lock goes on working")
    t.end()
    proxy.close()


def replayed(store: Any, what: str = "repeated request", **fields: Any) -> None:
    """A middlebox sends a request twice, and passes on the answer to the second."""
    proxy = store.proxy()
    t = Two(store, "replay", proxy, fields)
    t.put()
    version = t.ready()
    rec = t.record("a")
    name = rec["write"].encode()
    proxy.replay(name, *(base64.b64encode(bytes(n) + name)[4:-4] for n in range(3)))  # Consul gets base64
    w = t.a.write(rec, version)
    proxy.replay()
    ok(
        proxy.replays > 0 and w["outcome"] in ("ok", "conflict", "unknown") and t.has(rec),
        f"{what}: it is applied once, and the answer ({w['outcome']}) is settled by a look",
    )
    same(t.a.read().get("record", {}).get("write"), rec["write"], f"{what}: which shows our own write's name")
    t.end()
    proxy.close()


def repeated_answers(store: Any) -> None:
    """A middlebox passes on an answer twice: at once, or when the next thing was asked and its answer is waited for.
    Whatever was asked before, and whatever next, on the same connection: also of another lock, whose record never
    exists."""
    proxy = store.proxy()
    t = Two(store, "repeat", proxy)
    t.a.open(store.url(t.key + "-none", proxy), "none")
    t.put()

    def write(version: Any) -> Any:
        rec = record("a")
        w = t.a.write(rec, version)
        return honest(t, rec, w), w

    def current() -> tuple[bool, dict[str, Any]]:
        return write(t.truth()["version"])

    def stale() -> tuple[bool, dict[str, Any]]:
        old = t.truth()["version"]
        t.b.write(record("b"), old)
        return write(old)

    def look() -> tuple[bool, dict[str, Any]]:
        before = t.truth()["record"]["write"]
        r = t.a.read()
        shown, after = r.get("record", {}).get("write"), t.truth()["record"]["write"]
        return r["outcome"] == "failed" or shown in (before, after), r  # a write that is unknown may land meanwhile

    def other() -> tuple[bool, dict[str, Any]]:
        r = t.a.read("none")
        return r["outcome"] in ("failed", "absent"), r

    asks = (current, stale, look, other)
    for when in store.repeats:
        wrong, told = [], []
        for before, after in [(b, a) for b in asks for a in asks]:
            proxy.heal()
            wait_for(lambda: t.a.read()["outcome"] == "ok")
            proxy.repeat(when)
            for ask in (before, after):
                good, answer = ask()
                told.append(answer["outcome"])
                if not good:
                    wrong.append(f"{ask.__name__} ({before.__name__}, {after.__name__}): {answer}")
        same(wrong, [], f"repeated answers, {when}: none is taken for the answer to anything else")
        note(f"{store.name}, answers repeated {when}: {', '.join(told)}")
        proxy.heal()
        ok(t.works_again(), f"repeated answers, {when}: and the lock goes on working")
    t.end()
    proxy.close()


def missed_notices(store: Any) -> None:
    """Changes while the way is cut or frozen: at the latest when it is back they are noticed."""
    proxy = store.proxy()
    t = Two(store, "missed", proxy)
    t.put()
    t.a.do("watch")
    t.a.read()
    time.sleep(0.2)
    for what, hurt in (("cut", proxy.cut), ("frozen", proxy.freeze), ("cut", proxy.cut)):
        before = t.a.count()
        hurt()
        t.put("unseen")
        proxy.heal()
        if what == "frozen":
            proxy.thaw()
        ok(t.a.noticed(before), f"missed notices: what happened while the way was {what} is noticed")
        wait_for(lambda: t.a.read()["outcome"] == "ok")
    t.end()
    proxy.close()


# ---- faults of the server ----


def paused(store: Any) -> None:
    t = Two(store, "paused")
    version = t.put()
    t.a.read()
    store.pause()
    try:
        r = t.a.read(within=SHORT)
        rec = record("a")
        w = t.a.write(rec, version, within=SHORT)
        fresh = Driver(store.env)
        fresh.open(store.url(t.key))
        never = fresh.read(within=SHORT)
    finally:
        store.resume()
    ok(
        r["outcome"] == "failed" and w["outcome"] in ("unknown", "failed") and never["outcome"] == "failed",
        "frozen server: everything fails by its deadline, a first connection too",
    )
    ok(
        wait_for(lambda: t.a.read()["outcome"] == "ok") and honest(t, rec, w),
        "frozen server: and when it goes on, what was said is true",
    )
    fresh.end()
    ok(t.works_again(), "frozen server: the lock goes on working")
    t.end()


def restarted(store: Any) -> None:
    t = Two(store, "restart")
    rec = record("a", token=77)
    w = t.a.write(rec, "")
    t.b.read()
    t.a.do("watch")
    store.kill()
    down = t.a.read(within=SHORT)
    lost = record("lost")
    gone = t.a.write(lost, w["version"], within=SHORT)
    ok(
        down["outcome"] == "failed" and gone["outcome"] in ("failed", "unknown"),
        "restart: with the server killed nothing succeeds",
    )
    ok(down.get("err", {}).get("text"), "restart: and it is said why")
    before = t.a.count()
    store.restart()
    back = t.truth()
    same(
        (back["outcome"], back.get("record", {}).get("write")),
        ("ok", rec["write"]),
        "restart: a record that was written is there after the server was killed",
    )
    ok(honest(t, lost, gone), "restart: and what was said meanwhile is true")
    if store.watches:
        wait_for(lambda: t.a.read()["outcome"] == "ok")
        time.sleep(0.3)
        before = t.a.count()
        t.put("after the restart")
        ok(t.a.noticed(before), "restart: changes after it are noticed")
    ok(t.works_again(), "restart: the lock goes on working")
    t.end()


def read_only(store: Any) -> None:
    t = Two(store, "readonly")
    version = t.put()
    undo = store.make_read_only()
    try:
        rec = record("a")
        t.a.read()
        w = t.a.write(rec, version, within=4000)
    finally:
        undo()
    ok(
        w["outcome"] in ("failed", "refused") and w.get("err", {}).get("text"),
        f"read-only: a write is an error ({w['outcome']}: {w.get('err', {}).get('text', '')[:160]})",
    )
    ok(honest(t, rec, w), "read-only: and nothing is changed")
    ok(t.works_again(), "read-only: writable again, the lock goes on working")
    t.end()


def full(store: Any) -> None:
    t = Two(store, "full")
    version = t.put()
    undo = store.fill()
    outcomes = []
    try:
        for i in range(12):
            rec = record("a", filler=secrets.token_hex(2000))  # nothing that could be packed
            w = t.a.write(rec, version, within=4000)
            outcomes.append(w["outcome"])
            if w["outcome"] == "ok":
                version = w["version"]
            else:
                break
    finally:
        undo()
    ok(
        outcomes[-1] in ("failed", "unknown", "refused", "invalid"),
        f"out of space: a write is an error ({w.get('err', {}).get('text', '')[:160]})",
    )
    ok(t.truth()["outcome"] == "ok" and honest(t, rec, w), "out of space: the record that was there is whole")
    ok(t.works_again(), "out of space: with room again the lock goes on working")
    t.end()


def run(store: Any, cases: list[Any]) -> None:
    for case in cases:
        began = time.monotonic()
        try:
            case(store)
        except Exception as e:  # one case's trouble is not the next one's
            ok(False, f"{case.__name__}: {type(e).__name__}: {e}")
            store.repair()
        note(f"{store.name}: {case.__name__} took {time.monotonic() - began:.1f} s")


# A new term's write is another request than a renewal's: it makes the token. Its lease is short, for stores that wait
# one before they elect anybody.
TERM = {"token": 0, "leaseDurationMs": 1, "leaseDurationSeconds": 1}


def lost_reply_to_a_term(store: Any) -> None:
    lost_reply(store, "lost reply to a new term", **TERM)


def cut_term(store: Any) -> None:
    cut_request(store, "cut connection, a new term", **TERM)


def term_in_silence(store: Any) -> None:
    silence(store, "silence, a new term", **TERM)


# A release that names who is to acquire is a release like any: who is named learns of it or not, and nobody else is.
FOR = {
    "holderIdentity": "",
    "token": 5,
    "state": "released",
    "for": {"identity": "next", "incarnation": NOMINATION["incarnation"], "term": 1},
}


def lost_reply_to_a_nomination(store: Any) -> None:
    lost_reply(store, "lost reply to a next record", **NOMINATION)


def cut_nomination(store: Any) -> None:
    cut_request(store, "cut connection, a next record", **NOMINATION)


def nomination_in_silence(store: Any) -> None:
    silence(store, "silence, a next record", **NOMINATION)


def late_nomination(store: Any) -> None:
    slow_reply(store, "slow reply to a next record", **NOMINATION)


def repeated_nomination(store: Any) -> None:
    replayed(store, "repeated request, a next record", **NOMINATION)


def lost_reply_to_a_release(store: Any) -> None:
    lost_reply(store, "lost reply to a release for somebody", **FOR)


def release_in_silence(store: Any) -> None:
    silence(store, "silence, a release for somebody", **FOR)


def late_release(store: Any) -> None:
    slow_reply(store, "slow reply to a release for somebody", **FOR)


def repeated_release(store: Any) -> None:
    replayed(store, "repeated request, a release for somebody", **FOR)


BASIC = [
    examined,
    by_hand,
    foreign,
    names,
    noticed_by_hand,
    next_record,
    next_shared,
    listed_by_hand,
    list_pages,
    list_ends,
    racing,
]
NETWORK = [
    lost_reply,
    lost_reply_to_a_term,
    cut_request,
    cut_term,
    slow_reply,
    silence,
    term_in_silence,
    half_open,
    repeated_answers,
    missed_notices,
    list_silence,
    lost_reply_to_a_nomination,
    cut_nomination,
    nomination_in_silence,
    late_nomination,
    lost_reply_to_a_release,
    release_in_silence,
    late_release,
]
REPEATED = [replayed, repeated_nomination, repeated_release]
SERVER = [paused, restarted]

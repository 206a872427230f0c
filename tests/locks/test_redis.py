#!/usr/bin/env -S PYTHONPATH=. python3
"""The Redis lock passes the conformance suite against Debian's redis-server, and its own cases."""

import http.server
import json
import os
import re
import shutil
import struct
import sys
import tempfile
import threading
import time
from typing import Any
from urllib.parse import unquote

from tests.lib.field import build
from tests.lib.lock_cases import BASIC, NETWORK, REPEATED, SERVER, full, read_only, run
from tests.lib.lock_driver import NOMINATION, Driver, hears, opened, record, tried
from tests.lib.processes import ROOT, wait_for
from tests.lib.proxy import Proxy
from tests.lib.servers import Redis, TlsRedis, free_port
from tests.lib.stores import FullRedis, Redis as Store
from tests.lib.tap import at_once, done, note, ok, same, skip

SHORT = 3000  # ms; for operations that are to fail soon


def term(holder: str = "a", lease_ms: int = 1000, **fields: Any) -> dict[str, Any]:
    """What a write that begins a term asks for: no token yet."""
    return record(holder, token=0, leaseDurationMs=lease_ms, **fields)


def acquire(d: Driver, rec: Any, version: Any, **more: Any) -> Any:
    """A server that has just been started elects nobody for a lease: until then."""
    return tried(lambda: d.write(rec, version, **more))


def clocked(server: Redis, seconds: float) -> Any:
    """From its next start its clock is off by so much; returns what sets it anew while it runs."""
    shim, clock = os.path.join(server.dir, "shim.so"), os.path.join(server.dir, "clock")
    shutil.copy(build("shim.c", "-shared", "-fPIC"), shim)
    with open(clock, "wb") as f:
        f.write(struct.pack("q", seconds * 10**9))
    server.environment = {"LD_PRELOAD": shim, "SHIM_CLOCK": clock}

    def step(to: int) -> None:
        with open(clock, "r+b") as f:
            f.write(struct.pack("q", to * 10**9))

    return step


def info(server: Redis, name: str) -> str:
    return next(
        (
            line.split(":", 1)[1].strip()
            for line in server.cli("INFO", "all").splitlines()
            if line.startswith(name + ":")
        ),
        "",
    )


def pair(**more: Any) -> tuple[Any, Any]:
    """A primary, and a replica that has its data."""
    first = Redis()
    second = Redis(replica_of=first, **more)
    return first, second


def follows(server: Redis) -> bool:
    return wait_for(lambda: "master_link_status:up" in server.cli("INFO", "replication"))


def told(result: dict[str, Any], *said: str, outcome: Any = ("failed",)) -> bool:
    good = result["outcome"] in outcome and any(s in result["err"]["text"] for s in said)
    if not good:
        note(result)
    return good


def trouble(
    url: str,
    what: str,
    said: list[str],
    outcome: tuple[Any, ...] = ("failed", "refused"),
    secret: str | None = None,
    env: Any = None,
) -> None:
    d = opened(url, **(env or {}))
    r = d.read(within=SHORT)
    w = d.write(term(), "", within=SHORT)
    text = r.get("err", {}).get("text", "")
    good = ok(
        r["outcome"] in outcome and w["outcome"] in outcome and any(s in text for s in said),
        f"trouble: {what}: is told",
    )
    if not good:
        note(f"{r} {w}")
    host = re.findall(r"//(?:[^@/]*@)?([^/?]+)", url)[0]
    ok(
        host in text and not (secret and secret in text),
        f"trouble: {what}: by an error that names the server and no secret",
    )
    same(d.end(), 0, f"trouble: {what}: and the lock closes in peace")


def login() -> None:
    secret = "m o/on:l@ight"
    with Redis("--requirepass", secret) as server:
        at = f"127.0.0.1:{server.port}"
        trouble(f"redis://{at}/x", "no password", ["wants a password"], ("refused",))
        trouble(
            f"redis://:wr0ng@{at}/x", "a wrong password", ["refuses the user or the password"], ("refused",), "wr0ng"
        )
        trouble(
            f"redis://nobody:wr0ng@{at}/x",
            "an unknown user",
            ["refuses the user or the password"],
            ("refused",),
            "wr0ng",
        )
        trouble(
            f"redis://:m%20o%2Fon%3Al%40ight@{at}/99/x",
            "a database that is not there",
            ["the database 99"],
            ("refused",),
            "m o",
        )
        with tempfile.NamedTemporaryFile("w") as f:
            f.write(secret + "\nnot this\n")
            f.flush()
            ways: dict[str, tuple[str, dict[str, str]]] = {
                "in the URL": (f"redis://:m%20o%2Fon%3Al%40ight@{at}/x", {}),
                "in a file": (f"redis://{at}/x?password_file={f.name}", {}),
                "in the environment": (f"redis://{at}/x", {"LUNARCH_LOCK_PASSWORD": secret}),
            }
            for where, (url, env) in ways.items():
                d = opened(url, **env)
                same(d.read()["outcome"], "absent", f"login: with the password {where}")
                d.end()
        rights(server, secret)


RIGHTS = [
    "+evalsha",
    "+eval",
    "+script|load",
    "+strlen",
    "+get",
    "+set",
    "+hmget",
    "+hset",
    "+publish",
    "+subscribe",
    "+unsubscribe",
    "+info",
    "+time",
    "+role",
    "+wait",
    "+select",
    "+echo",
]


def rights(server: Redis, secret: str) -> None:
    """The ones that docs/stores/redis.md lists are enough, and each that is missing is told or done without."""
    at = f"127.0.0.1:{server.port}"
    with open(os.path.join(ROOT, "docs", "stores", "redis.md")) as f:
        line = (
            "ACL SETUSER elector on >PASSWORD resetkeys ~NAME ~{NAME}:lunarch ~{NAME}:next "
            "resetchannels &{NAME}:changed &{NAME}:next:changed " + " ".join(RIGHTS)
        )
        ok(line in f.read(), "rights: docs/stores/redis.md has this line")

    def user(name: str, *words: str) -> None:
        server.cli("ACL", "SETUSER", name, "reset", "on", ">pw", *words, password=secret)

    user("whole", "~x", "~{x}:lunarch", "&{x}:changed", *RIGHTS)
    d = opened(f"redis://whole:pw@{at}/x")
    same(d.do("watch")["watching"], True, "rights: with these alone a lock can be watched")
    same(acquire(d, term(), "")["outcome"], "ok", "rights: written")
    same(d.read()["outcome"], "ok", "rights: and read")
    user("unscripted", "~x", "~{x}:lunarch", "&*", *[r for r in RIGHTS if r not in ("+script|load", "+role")])
    e = opened(f"redis://unscripted:pw@{at}/x")
    w = e.read()
    same(
        e.write(record("b"), w["version"])["outcome"],
        "ok",
        "rights: without SCRIPT LOAD and ROLE scripts are sent whole",
    )
    user("mute", "~x", "~{x}:lunarch", "&*", *[r for r in RIGHTS if r != "+echo"])
    m = opened(f"redis://mute:pw@{at}/x")
    r = m.read()
    ok(
        r["outcome"] == "refused" and "echo" in r["err"]["text"] and "docs/stores/redis.md" in r["err"]["text"],
        "rights: without ECHO it is refused, and says why",
    )
    m.end()
    user("deaf", "~x", "~{x}:lunarch", "resetchannels", *RIGHTS)
    h = opened(f"redis://deaf:pw@{at}/x")
    h.do("watch")
    h.read()
    ok(h.noticed(h.count() + 1), "rights: who may not subscribe is told to look now and then instead")
    same(h.do("watch")["watching"], False, "rights: and that there are no notices")
    o = h.write(record("c"), h.read()["version"])
    same(o["outcome"], "refused", "rights: who may not publish may not write")
    user("elsewhere", "~y", "&*", *RIGHTS)
    g = opened(f"redis://elsewhere:pw@{at}/x")
    r = g.read()
    ok(
        r["outcome"] == "refused" and "NOPERM" in r["err"]["text"] and "docs/stores/redis.md" in r["err"]["text"],
        "rights: another key's user is refused",
    )
    same(d.read()["record"]["holderIdentity"], "b", "rights: and nothing was changed")
    user("app", "~app:*", "&app:*", *RIGHTS)
    p = opened(f"redis://app:pw@{at}/app:jobs")
    ok(told(p.read(), "name the lock app:{jobs}", outcome=["refused"]), "rights: by prefix: is told which name fits")
    p.end()
    p = opened(f"redis://app:pw@{at}/app:%7Bjobs%7D")
    p.open_next(f"redis://app:pw@{at}/app:%7Bjobs%7D")
    w = acquire(p, term(), "")
    same(
        (w["outcome"], p.read("n")["outcome"], p.do("watch")["watching"]),
        ("ok", "absent", True),
        "rights: by prefix: it does",
    )
    p.end()
    user("safe", "allkeys", "allchannels", "+@all", "-@dangerous")
    p = opened(f"redis://safe:pw@{at}/safe")
    r = p.write(term(), p.read()["version"] if p.read()["outcome"] == "ok" else "")
    ok(told(r, "+info", outcome=["refused"]), "rights: -@dangerous: the command that is missing is told")
    p.end()
    next_rights(user, at)
    same([x.end() for x in (d, e, h, g)], [0] * 4, "rights: all close in peace")


def next_rights(user: Any, at: str) -> None:
    """The next record has rights of its own. Its lock works without, and hears its notices."""
    user("whole", "~x", "~{x}:lunarch", "~{x}:next", "&{x}:changed", "&{x}:next:changed", *RIGHTS)
    d = opened(f"redis://whole:pw@{at}/x")
    d.open_next(f"redis://whole:pw@{at}/x")
    r = d.read("n")
    w = d.write(record("d", **NOMINATION), r["version"], "n")
    same((r["outcome"], w["outcome"]), ("absent", "ok"), "rights: with these the next record is written")
    same(d.do("watch", "n")["watching"], True, "rights: and watched")
    for name, words, read, write in (
        ("before", ["~x", "~{x}:lunarch", "&{x}:changed"], "refused", "refused"),
        ("unheard", ["~x", "~{x}:lunarch", "~{x}:next", "&{x}:changed"], "ok", "refused"),
    ):
        user(name, *words, *RIGHTS)
        e = opened(f"redis://{name}:pw@{at}/x")
        e.open_next(f"redis://{name}:pw@{at}/x")
        e.do("watch")
        r = e.read("n")
        seen = e.count("n")
        e.do("watch", "n")
        refused = e.write(record("e", **NOMINATION), r["version"], "n")
        same((r["outcome"], refused["outcome"]), (read, write), f"rights: {name}: the next record is refused")
        ok(e.noticed(seen + 1, "n"), f"rights: {name}: and looked at now and then")
        same(
            (e.do("watch", "n")["watching"], e.do("watch")["watching"]),
            (False, True),
            f"rights: {name}: its lock hears its notices all the same",
        )
        e.read()
        before = e.count()
        ok(
            acquire(d, term("d"), d.read()["version"])["outcome"] == "ok" and e.noticed(before),
            f"rights: {name}: and is told of changes",
        )
        same(e.end(), 0, f"rights: {name}: closes in peace")
    d.end()


class Page(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


def strangers() -> None:
    with TlsRedis() as server:
        plain = f"redis://127.0.0.1:{server.port}/x"
        trouble(plain, "a port that speaks TLS", ["does not speak Redis", "the URL is rediss://"], ("failed",))
        same(server.cli("DBSIZE"), "0", "trouble: a port that speaks TLS: where nothing is taken")
    web = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=web.serve_forever, daemon=True).start()
    trouble(
        f"redis://127.0.0.1:{web.server_port}/x",
        "a web server",
        ["does not speak Redis", "closed it", "connection was lost"],
        ("failed",),
    )
    web.shutdown()
    trouble(f"redis://127.0.0.1:{free_port()}/x", "nobody listens", ["refused"], ("failed",))
    trouble("redis://no-such-host.invalid:6379/x", "no such host", ["no-such-host.invalid"], ("failed",))
    for url, said in (
        ("redis://h/x?nonsense=1", "there is no option"),
        ("redis://h/", "name is missing"),
        ("redis://h:0/x", "port"),
        ("redis://u:secret@h/x?replicas=many", "number from 0"),
        ("redis://u:secret@h/x?max_age=0", "number from 1"),
        ("redis://u:secret@h/2", "the database 2 is named, and no key"),
        ("rediss://u:secret@h/2/", "expected redis://HOST:PORT/2/KEY"),
        ("redis://u:secret@h/2?db=2", "and no key"),
        ("redis://u:secret@h/1/x?db=2", "two databases"),
        ("redis://u:secret@h/x?db=many", "number from 0"),
        ("redis://u:secret@h/x?database=2", "it is db=NUMBER here"),
        ("redis://u:secret@h/x?ca=/f", "write rediss://"),
        ("rediss://u:secret@h/x?key=/f", "without cert"),
        ("rediss://u:secret@h/x?ssl_cert_reqs=none", "always verified"),
        ("rediss://u:secret@h/x?replicas=1&ssl_ca_certs=/f", "it is ca=FILE here"),
        ("rediss://u:secret@h/x?ssl_certfile=/f", "it is cert=FILE here"),
        ("rediss://u:secret@h/x?ssl_keyfile=/f", "it is key=FILE here"),
        ("redis://u:secret@h/x?ssl=true", "rediss://"),
        ("unix://u:secret@/run/redis.sock?db=0", "redis://127.0.0.1:6379/KEY"),
        ("redis-socket:///run/redis.sock", "redis://127.0.0.1:6379/KEY"),
        ("valkeys://u:secret@h/x", "rediss://HOST:PORT/KEY"),
    ):
        d = Driver()
        o = d.open(url)
        ok(
            not o["ok"] and said in o["err"] and "secret" not in o["err"],
            f"strangers: {url.replace('secret', '...')} is refused: {said}",
        )
        d.end()
    d = Driver()
    for url, printed in (
        ("redis://h/x?db=2", "redis://h:6379/2/x"),
        ("redis://h/2/x?db=2&replicas=1", "redis://h:6379/2/x?replicas=1"),
        ("redis://h/0/2", "redis://h:6379/0/2"),
        ("rediss://h/7/a/b?ca=/f&cert=/c", "rediss://h:6379/7/a/b?ca=/f&cert=/c"),
        ("redis://h/20260101", "redis://h:6379/20260101"),
    ):
        same(d.open(url, url).get("url"), printed, f"spellings: {url}")
    d.end()


def tokens() -> None:
    with Redis("--appendonly", "yes", "--appendfsync", "always") as server:
        d, e = opened(server.url("t")), opened(server.url("t"))
        got = []

        def next_term(version: str, what: str, **more: int) -> dict[str, Any]:
            w = acquire(d, term(), version, **more)
            if not w or w["outcome"] != "ok":
                note(w)
            got.append(w["token"])
            ok(len(got) == 1 or got[-1] > got[-2], f"tokens: a new term's is larger than all before, {what}")
            return w

        w = next_term("", "the first")
        r = e.read()
        same(r["token"], w["token"], "tokens: who reads a term's first record is told its token")
        for i in range(3):
            w = next_term(w["version"], "term by term")
        same(d.write(record("a", token=w["token"]), w["version"])["token"], 0, "tokens: a renewal makes none")
        server.cli("DEL", "t")
        w = next_term("", "after the record was deleted")
        server.cli("FLUSHALL")
        w = next_term("", "after everything was")
        server.kill()
        server.start()
        wait_for(lambda: d.read()["outcome"] == "ok")
        w = next_term(w["version"], "after the server was killed")
        ahead = 2**52
        w = d.write(record("a", token=ahead), w["version"])
        w = next_term(w["version"], "even where a record brings a larger one")
        ok(got[-1] > ahead, "tokens: which counts")
        seen = got[-1] + 3600 * 10**6
        w = d.write(record("a"), w["version"])
        w = next_term(w["version"], "and than what was seen", floor=seen)
        ok(got[-1] > seen, "tokens: which counts, too")
        server.cli("DEL", "t", "{t}:lunarch")
        w = next_term("", "though everything was deleted", floor=got[-1])
        r = d.write(term("b"), w["version"], floor=2**53)
        ok(told(r, "2^53"), "tokens: where the server could not count on exactly, none is made")
        server.cli("SCRIPT", "FLUSH")
        same(
            d.write(record("a"), w["version"])["outcome"],
            "ok",
            "scripts: a server that has forgotten them is told again",
        )
        same(e.read()["outcome"], "ok", "scripts: for reading too")
        for key, other in (("list", "RPUSH"), ("set", "SADD")):
            server.cli(other, key, "member")
            f = opened(server.url(key))
            same(
                (f.read()["outcome"], f.write(term(), "")["outcome"]),
                ("foreign", "conflict"),
                f"foreign: a {key} is no record, and not touched",
            )
            same(server.cli("TYPE", key), key, "foreign: it is what it was")
            f.end()
        server.cli("SET", "{odd}:lunarch", "mine")
        f = opened(server.url("odd"))
        o = f.write(term(), "")
        ok(
            o["outcome"] == "failed"
            and "used for something else" in o["err"]["text"]
            and server.cli("GET", "{odd}:lunarch") == "mine",
            "foreign: nor is what stands where the token would be counted",
        )
        f.end()
        same([d.end(), e.end()], [0, 0], "tokens: both close in peace")


def failover() -> None:
    """The replica that is promoted lacks a term, and its clock is behind: nobody is elected before that one's lease is
    over."""
    with Redis() as first, Redis(replica_of=first, start=False) as second:
        clocked(second, -3600)
        second.start()
        follows(second)
        both, alone = f"redis://127.0.0.1:{first.port},127.0.0.1:{second.port}/f", second.url("f")
        d, e, fresh = opened(both), opened(both), opened(alone)
        r = fresh.read(within=SHORT)
        ok(r["outcome"] == "failed" and "replica" in r["err"]["text"], "failover: a replica alone is no store")
        w = acquire(d, term("old"), "")
        same(w["outcome"], "ok", "failover: a term on the primary")
        w = d.write(record("", token=w["token"], state="released", leaseDurationMs=1000), w["version"])
        wait_for(lambda: "released" in second.cli("GET", "f"))
        second.cli("REPLICAOF", "127.0.0.1", str(free_port()))  # cut off from here on
        lost = e.write(term("lost", lease_ms=5000), w["version"])
        same(
            (lost["outcome"], d.read()["record"]["holderIdentity"]),
            ("ok", "lost"),
            "failover: another term there, which the replica never hears of",
        )
        first.kill()
        second.cli("REPLICAOF", "NO", "ONE")
        r = tried(lambda: d.read(within=SHORT), "ok")
        same(
            (r["record"]["state"], r["version"]),
            ("released", w["version"]),
            "failover: the promoted one shows the record before, who named both has found it",
        )
        began = time.monotonic()

        def doubted(x: Driver, who: str) -> bool:
            n = x.write(term(who), r["version"])
            return n["outcome"] == "failed" and "promoted" in n["err"]["text"]

        ok(doubted(d, "again"), "failover: nobody is elected at once, not even who wrote that record")
        ok(doubted(fresh, "fresh"), "failover: nor who knows nothing of it")
        time.sleep(1.2)
        late = opened(alone)
        ok(
            doubted(late, "late"),
            "failover: who comes later counts from what he sees himself, not by the server's clock",
        )
        n = acquire(d, term("again"), r["version"], floor=lost["token"])
        ok(
            n["outcome"] == "ok" and time.monotonic() - began >= 4.99,
            "failover: who has seen the lost term waits for the lease that it published",
        )
        ok(n["token"] > lost["token"], "failover: then a term begins, with a token larger than that of the lost one")
        same(
            e.write(term("lost"), lost["version"])["outcome"],
            "conflict",
            "failover: and the lost term cannot be renewed there",
        )
        same(
            late.write(term("late"), late.read()["version"])["outcome"],
            "ok",
            "failover: with that the doubt is over for all",
        )
        for x in (d, e, fresh, late):
            x.end()


def let_go() -> None:
    """A release whose answer is lost: its sender finds his own record on the promoted server, which another term has
    followed."""
    first, second = pair()
    with first, second:
        follows(second)
        way = Proxy(first.port)
        d, e = opened(f"redis://127.0.0.1:{way.port},127.0.0.1:{second.port}/g"), opened(first.url("g"))
        w = acquire(d, term("d", lease_ms=6000), "")
        own = d.read()["version"]
        same(
            (w["outcome"], wait_for(lambda: second.cli("EXISTS", "g")), own),
            ("ok", "1", w["version"]),
            "let go: a term, which the replica has",
        )
        second.cli("REPLICAOF", "127.0.0.1", str(free_port()))  # cut off from here on
        way.cut_after(0)
        released = d.write(record("", token=w["token"], state="released", leaseDurationMs=6000), own)
        same(released["outcome"], "unknown", "let go: it is released, but the answer is lost")
        lost = e.write(term("e", lease_ms=6000), e.read()["version"])
        same(lost["outcome"], "ok", "let go: another leads")
        first.kill()
        second.cli("REPLICAOF", "NO", "ONE")
        r = tried(lambda: d.read(within=SHORT), "ok")
        same(
            (r["version"], r["record"]["holderIdentity"]),
            (own, "d"),
            "let go: the promoted server shows the first one's record",
        )
        began = time.monotonic()
        ok(told(d.write(term("d", lease_ms=6000), own), "promoted"), "let go: which lets it lead no more than others")
        n = acquire(d, term("d", lease_ms=6000), own)
        ok(n["outcome"] == "ok" and time.monotonic() - began > 5.9, "let go: before the lost lease is over")
        d.end(), e.end()
        way.close()


def comes_back() -> None:
    """The primary that died is started again, and is a primary still: nobody is elected there, nor anywhere, while
    there are two."""
    first = Redis("--appendonly", "yes", "--appendfsync", "always")
    with first, Redis(replica_of=first) as second:
        follows(second)
        both = f"redis://127.0.0.1:{first.port},127.0.0.1:{second.port}/b"
        x = opened(both)
        w = acquire(x, term("x", lease_ms=1000), "")
        old = w = x.write(record("x", token=w["token"], leaseDurationMs=1000), w["version"])
        wait_for(lambda: second.cli("GET", "b") == first.cli("GET", "b") != "")
        first.kill()
        second.cli("REPLICAOF", "NO", "ONE")
        w = tried(lambda: x.write(record("x", token=1, leaseDurationMs=1000), w["version"], within=SHORT), "ok")
        ok(w["outcome"] == "ok", "comes back: the leader has moved to the promoted server")
        first.start()
        left = first.cli("GET", "b")
        fresh = opened(both)
        both_told = f"127.0.0.1:{first.port} and 127.0.0.1:{second.port}"
        ok(told(fresh.read(), both_told), "comes back: who starts now sees two primaries, and is told which")
        time.sleep(2.5)  # longer than the lease, and than the wait on a server that was restarted
        ok(told(fresh.write(term("fresh"), old["version"]), both_told), "comes back: and is not elected on the old one")
        n = x.write(record("x", token=1, leaseDurationMs=1000), w["version"], within=SHORT)
        same((n["outcome"], n.get("err")), ("ok", None), "comes back: the leader leads on where it is")
        ok(told(x.write(term("x"), n["version"]), both_told), "comes back: but no new term begins there either")
        same(first.cli("GET", "b"), left, "comes back: nothing was written to the old one")
        second.pause()
        y = x.write(record("x", token=1, leaseDurationMs=1000), n["version"], within=SHORT)
        ok(y["outcome"] != "ok", "comes back: with the promoted one silent, the leader renews nothing")
        moved = tried(lambda: x.read(within=SHORT), "ok")
        same(moved["version"], old["version"], "comes back: it finds an older record of its own on the old one")
        ok(
            told(
                x.write(record("x", token=1, leaseDurationMs=1000), old["version"], within=SHORT),
                "no copy of the server",
            ),
            "comes back: which it does not take for its own",
        )
        second.resume()
        first.cli("REPLICAOF", "127.0.0.1", str(second.port))
        follows(first)
        f = tried(lambda: fresh.read(within=SHORT), "ok")
        same(
            f["version"],
            second.cli("EVAL", "return redis.sha1hex(redis.call('GET', 'b'))", "0"),
            "comes back: with the old one its replica, all see the same",
        )
        same(acquire(fresh, term("fresh"), f["version"])["outcome"], "ok", "comes back: and a new term begins")
        x.end(), fresh.end()
    with Redis() as server:
        url = f"redis://127.0.0.1:{server.port},localhost:{server.port}/b%d"
        d = opened(url % 0)
        same(acquire(d, term(lease_ms=200), "")["outcome"], "ok", "comes back: a server that is named twice is one")
        for n in range(1, 50):
            d.open(url % n, lock=f"l{n}")
        came = int(info(server, "total_connections_received"))
        for _ in range(3):
            for o in [
                d.start("write", f"l{n}", record=term(lease_ms=200), expected="", within_ms=SHORT, durable=True)
                for n in range(1, 50)
            ]:
                d.wait(o)
        came = int(info(server, "total_connections_received")) - came
        ok(came < 3 * 49, f"comes back: many locks ask together ({came} connections)")
        d.end()


def moves() -> None:
    """The primary's address becomes another server's: what was found out on a connection holds no longer than that."""
    with Redis() as first, Redis() as other:
        way, beside = Proxy(first.port), Proxy(free_port())
        d = opened(f"redis://127.0.0.1:{way.port},127.0.0.1:{beside.port}/v")
        w = acquire(d, term(lease_ms=1000), "")
        way.target, beside.target = ("127.0.0.1", other.port), ("127.0.0.1", first.port)
        same(
            (d.read()["outcome"], d.write(record("a", token=w["token"]), w["version"])["outcome"]),
            ("ok", "ok"),
            "moves: while the connection lasts, its server is asked",
        )
        version = d.read()["version"]
        way.cut()
        r = tried(lambda: d.read(within=SHORT), "failed")
        ok(told(r, "both say that they are primaries"), "moves: then the hosts are asked again, and are two primaries")
        r = d.write(record("a", token=w["token"]), version, within=SHORT)
        ok(told(r, "both say that they are primaries"), "moves: the leader renews at neither")
        same(other.cli("DBSIZE"), "0", "moves: so that nothing is written to the new one")
        other.kill()
        same(
            tried(lambda: d.write(record("a", token=w["token"]), version, within=SHORT))["outcome"],
            "ok",
            "moves: with that one down, it finds its record behind the other address",
        )
        beside.freeze()
        d.open(f"redis://127.0.0.1:{way.port},127.0.0.1:{beside.port}/v", lock="another")
        asked = [d.start_write(term(), "", lock=n, within=60_000) for n in ("a", "another")]
        d.do("cancel")
        same(
            d.wait(asked[0])["outcome"], "failed", "moves: what is cancelled while the hosts are asked was not written"
        )
        d.do("close", lock="another")
        same(d.wait(asked[1])["outcome"], "failed", "moves: nor what is closed")
        last = d.start("write", record=term(), expected="", within_ms=SHORT, durable=True, close=True)
        ok(told(d.wait(last), "has said in time", "connection"), "moves: without an answer nobody is elected")
        same(d.end(), 0, "moves: and who closes the last lock when he is told that does so in peace")
        for proxy in (way, beside):
            proxy.close()


def braces() -> None:
    """K and {K} keep what else there is in one hash: the doubt of one is not the other's."""
    first, second = pair()
    with first, second:
        follows(second)
        names = ("jobs", "{jobs}")
        d = opened(first.url("jobs"))
        d.open(first.url("%7Bjobs%7D"), lock="{jobs}")
        d.open(first.url("jobs"), lock="jobs")
        for n in names:
            w = tried(lambda: d.write(term(n, lease_ms=1000), "", lock=n), "ok")
            ok(w["outcome"] == "ok" and first.cli("EXISTS", n) == "1", f"braces: {n} has its record")
        same(
            (d.read("jobs")["record"]["holderIdentity"], d.read("{jobs}")["record"]["holderIdentity"]),
            names,
            "braces: and the other's is another",
        )
        first.cli("WAIT", "1", "0")
        wait_for(lambda: second.cli("GET", "{jobs}") == first.cli("GET", "{jobs}") != "")
        first.kill()
        second.cli("REPLICAOF", "NO", "ONE")
        e = opened(second.url("jobs"))
        e.open(second.url("jobs"), lock="jobs"), e.open(second.url("%7Bjobs%7D"), lock="{jobs}")

        def acquire_one(n: Any) -> dict[str, Any]:
            return e.write(term("e", lease_ms=1000), e.read(n)["version"], lock=n)

        ok(told(acquire_one("jobs"), "promoted"), "braces: after a failover jobs is in doubt")
        ok(
            wait_for(lambda: acquire_one("jobs")["outcome"] == "ok"),
            "braces: until a lease has passed, and its next term settles that",
        )
        w = e.write(term("e", lease_ms=60_000), e.read("{jobs}")["version"], lock="{jobs}")
        ok(told(w, "promoted"), "braces: which says nothing of {jobs}")
        ok(
            wait_for(lambda: acquire_one("{jobs}")["outcome"] == "ok"),
            "braces: whose doubt is waited for by who would lead there",
        )
        d.end(), e.end()


def older() -> None:
    """What an older Lunarch left of {K} is taken on: its token counts, and its doubt was not ours to settle."""
    with Redis() as server:
        text = json.dumps(record("old", token=5, leaseDurationMs=1000))
        server.cli("SET", "{jobs}", text)
        server.cli(
            "HSET",
            "{jobs}:lunarch",
            "server",
            info(server, "master_replid"),
            "doubt",
            "",
            "lease",
            "1000000",
            "token",
            str(2**52),
        )
        d = opened(server.url("%7Bjobs%7D"))
        r = d.read()
        same((r["outcome"], r["record"]["holderIdentity"]), ("ok", "old"), "older: the record is read")
        ok(
            told(d.write(term("new"), r["version"]), "promoted"),
            "older: nobody is elected before a lease has passed, once",
        )
        w = acquire(d, term("new"), r["version"])
        ok(w["outcome"] == "ok" and w["token"] > 2**52, "older: then a term begins, with a larger token")
        same(d.write(term("next"), w["version"])["outcome"], "ok", "older: and the next at once")
        d.end()
        server.cli("SET", "jobs", text)
        d = opened(server.url("jobs"))
        same(
            d.write(term("new"), d.read()["version"])["outcome"],
            "ok",
            "older: jobs, which has the hash as before, waits for nothing",
        )
        d.end()


def survives() -> None:
    """A term that the promoted replica does know goes on."""
    with Redis() as first, Redis(replica_of=first) as second:
        wait_for(lambda: "master_link_status:up" in second.cli("INFO", "replication"))
        d = opened(f"redis://127.0.0.1:{first.port},127.0.0.1:{second.port}/s?replicas=1")
        w = acquire(d, term(), "")
        same(
            (w["outcome"], second.cli("EXISTS", "s")),
            ("ok", "1"),
            "replicas: a term that was acknowledged is on the replica",
        )
        second.pause()
        lone = d.write(term("b"), w["version"], within=SHORT)
        ok(
            lone["outcome"] == "unknown" and "0 of 1 replicas" in lone["err"]["text"],
            "replicas: a term that no replica has is not certain",
        )
        r = d.read(within=SHORT)
        same(r["outcome"], "failed", "replicas: nor is what is read")
        second.resume()
        r = tried(lambda: d.read(within=SHORT), "ok")
        same(r["record"]["holderIdentity"], "b", "replicas: until the replica has it too")
        w = d.write(record("b"), r["version"])
        first.kill()
        second.cli("REPLICAOF", "NO", "ONE")
        refused = wait_for(
            lambda: next(
                (
                    x
                    for x in [d.write(record("b"), w["version"], within=SHORT)]
                    if "asks for 1" in x.get("err", {}).get("text", "")
                ),
                None,
            )
        )
        ok(refused, "replicas: a primary without the replicas that the URL asks for takes no writes")
        e = opened(second.url("s"))
        r = tried(lambda: e.read(within=SHORT), "ok")
        w = e.write(record("b", leaseDurationMs=1000), r["version"])
        same(w["outcome"], "ok", "failover: a term that the promoted one knows is renewed at once")

        def renewed() -> bool:
            nonlocal w
            w = e.write(record("b", leaseDurationMs=1000), w["version"])
            return second.cli("HGET", "{s}:lunarch", "doubt") == ""

        ok(
            wait_for(renewed) and w["outcome"] == "ok",
            "failover: its leader's renewals settle the doubt when a lease has passed",
        )
        w = e.write(record("", state="released", leaseDurationMs=1000), w["version"])
        g = opened(second.url("s"))
        same(g.write(term("c"), w["version"])["outcome"], "ok", "failover: and then another is elected at once")
        d.end(), e.end(), g.end()


def amnesia() -> None:
    """A server that keeps nothing on disk is killed and started: a leader may be about that it knows nothing of."""
    with Redis() as server:
        d = opened(server.url("n"))
        same(acquire(d, term(lease_ms=500), "")["outcome"], "ok", "amnesia: a term")
        server.kill()
        server.start()
        r = tried(lambda: d.read(within=SHORT))
        same(r["outcome"], "absent", "amnesia: the server has forgotten it")
        w = d.write(term("b", lease_ms=600_000), "")
        ok(
            w["outcome"] == "failed" and "restarted" in w["err"]["text"],
            "amnesia: nobody is elected for a lease after its start",
        )
        same(acquire(d, term("b", lease_ms=1000), "")["outcome"], "ok", "amnesia: then somebody is")
        d.end()


def clock_set() -> None:
    """A server that has lost its data does not look old because its clock was set: fresh is who has computed for a
    lease."""
    with Redis(start=False) as server:
        step = clocked(server, 0)
        server.start()
        d = opened(server.url("c"))
        same(acquire(d, term(lease_ms=5000), "")["outcome"], "ok", "clock set: a term")
        server.kill()
        server.start()
        step(3600)
        ok(
            wait_for(lambda: int(info(server, "uptime_in_seconds")) > 3000),
            "clock set: the server has forgotten it, and its clock says that it runs for an hour",
        )
        e = opened(server.url("c"))
        ok(told(e.write(term("e", lease_ms=5000), ""), "restarted"), "clock set: nobody is elected there all the same")
        e.end()
        wait_for(
            lambda: server.cli("EVAL", "for i = 1, 2e7 do end", "0") == ""
            and sum(float(info(server, f"used_cpu_{m}_main_thread")) for m in ("user", "sys")) > 1.3
        )
        e = opened(server.url("another"))
        same(
            e.write(term("e", lease_ms=200), "")["outcome"],
            "ok",
            "clock set: one that has computed for a lease has run for one, and new locks wait for nothing",
        )
        d.end(), e.end()


def together() -> None:
    """Many locks of a process share a connection; in a cluster, what belongs to a lock is in one slot."""
    with Redis("--cluster-enabled", "yes", "--cluster-port", str(free_port())) as server:
        d = opened(server.url("early"))
        r = d.read(within=SHORT)
        ok(
            r["outcome"] == "failed" and "CLUSTERDOWN" in r["err"]["text"],
            "cluster: one that is not whole is not ready",
        )
        server.cli("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
        wait_for(lambda: "cluster_state:ok" in server.cli("CLUSTER", "INFO"))
        names = ["plain", "tag{ged}more", "a/b", "open{", *(f"n{i}" for i in range(40))]
        for n in names:
            if not d.open(server.url(n), lock=n)["ok"]:
                ok(False, n)
            d.do("watch", lock=n)
        ops = [d.start_write(record(n), "", lock=n) for n in names]
        same({d.wait(o)["outcome"] for o in ops}, {"ok"}, "cluster: every name's keys are in one slot")
        for n in names[:5]:
            key = unquote(d.open_next(server.url(n), n, "next " + n)["url"].split("/", 3)[3])
            w = d.write(record("zoe", **NOMINATION), "", "next " + n)
            same(
                (w["outcome"], server.cli("CLUSTER", "KEYSLOT", key)),
                ("ok", server.cli("CLUSTER", "KEYSLOT", n)),
                f"cluster: {n}: so is its next record, {key}",
            )
            d.do("watch", "next " + n)
        lines = [line for line in server.cli("CLIENT", "LIST").splitlines() if "cmd=client" not in line]
        same(len(lines), 2, f"together: {len(names) + 1} locks of a process have two connections")
        server.cli("PUBLISH", "plain:changed", "x")
        before = d.count("n7")
        server.cli("PUBLISH", "{n7}:changed", "x")
        ok(d.noticed(before, "n7"), "together: each is told of its own changes")
        server.cli("CLUSTER", "DELSLOTSRANGE", "0", "16383")
        same(d.end(), 0, "together: and all close in peace")


def cluster(masters: int) -> list[Any]:
    """A whole one, and a replica of its first server at the end."""

    def node() -> Redis:
        return Redis("--cluster-enabled", "yes", "--cluster-port", str(free_port()), "--cluster-node-timeout", "2000")

    nodes = [node() for _ in range(masters + 1)]
    for n, s in enumerate(nodes[:-1]):
        s.cli("CLUSTER", "ADDSLOTSRANGE", str(16384 * n // masters), str(16384 * (n + 1) // masters - 1))
        s.cli("CLUSTER", "SET-CONFIG-EPOCH", str(n + 1))
    for s in nodes[1:]:
        s.cli("CLUSTER", "MEET", "127.0.0.1", str(nodes[0].port), s.options[3])
        nodes[0].cli("CLUSTER", "MEET", "127.0.0.1", str(s.port), s.options[3])
    wait_for(lambda: all(s.cli("CLUSTER", "NODES").count("\n") == masters for s in nodes))
    wait_for(lambda: nodes[-1].cli("CLUSTER", "REPLICATE", nodes[0].cli("CLUSTER", "MYID")) == "OK")
    follows(nodes[-1])
    wait_for(lambda: all("cluster_state:ok" in s.cli("CLUSTER", "INFO") for s in nodes))
    wait_for(lambda: all(s.cli("CLUSTER", "NODES").count("slave") == 1 for s in nodes))
    return nodes


def moved() -> None:
    """A cluster says where the key is, also at a server that the URL does not name."""
    first, second, third, replica = nodes = cluster(3)
    key = next(k for k in map(str, range(99)) if int(first.cli("CLUSTER", "KEYSLOT", k)) < 16384 // 3)
    slot = first.cli("CLUSTER", "KEYSLOT", key)

    def at(*named: Redis) -> str:
        return f"redis://{','.join(f'127.0.0.1:{s.port}' for s in named)}/0/{key}"

    def leads(x: Any, what: str) -> None:
        w = tried(lambda: acquire(x, term(), x.read(within=SHORT).get("version", ""), within=SHORT), "ok")
        ok(w["outcome"] == "ok", what, w)

    d, e, sole = opened(at(second)), opened(at(third, first)), opened(at(first))
    leads(d, "moved: a term begins where only a server of another shard is named")
    same(first.cli("EXISTS", key), "1", "moved: on the server that has the key")
    same(e.read()["outcome"], "ok", "moved: which is found though it is named second")
    d.do("watch")
    hears(d, sole, "moved: who follows is told of changes")
    leads(sole, "moved: a sole candidate leads")
    replica.cli("CLUSTER", "FAILOVER")
    wait_for(lambda: "role:master" in replica.cli("INFO", "replication"))
    leads(sole, "moved: and again after a failover to a server that it does not name")
    fresh = opened(at(first))
    same(tried(lambda: fresh.read(within=SHORT), "ok")["outcome"], "ok", "moved: who names a replica alone finds it")
    hears(d, e, "moved: and is told of changes still")
    follows(first)
    wait_for(lambda: first.cli("CLUSTER", "NODES").count("slave") == 1)
    replica.kill()
    leads(e, "moved: and after a server has died")
    leads(d, "moved: also by way of the other shard")
    there, here = third.cli("CLUSTER", "MYID"), first.cli("CLUSTER", "MYID")
    third.cli("CLUSTER", "SETSLOT", slot, "IMPORTING", here)
    first.cli("CLUSTER", "SETSLOT", slot, "MIGRATING", there)
    keys = first.cli("CLUSTER", "GETKEYSINSLOT", slot, "100").split()
    first.cli("MIGRATE", "127.0.0.1", str(third.port), "", "0", "9000", "KEYS", keys[0])
    r = d.read(within=SHORT)
    ok(told(r, "being moved"), "moved: while its keys are at two servers, nothing is believed")
    first.cli("MIGRATE", "127.0.0.1", str(third.port), "", "0", "9000", "KEYS", *keys[1:])
    same(d.read(within=SHORT)["outcome"], "ok", "moved: then the new one is asked, though the slot is not its own yet")
    fresh.do("watch")
    leads(d, "moved: and a term begins there")
    hears(d, fresh, "moved: whose renewals another hears of")
    third.cli("ACL", "SETUSER", "default", "-asking")
    r = d.read(within=SHORT)
    good = told(r, "it answered ASKING with: NOPERM", outcome=("refused",))
    ok(good, "moved: who may not ask there is told", r)
    third.cli("ACL", "SETUSER", "default", "+asking")
    for s in third, first, second:
        s.cli("CLUSTER", "SETSLOT", slot, "NODE", there)
    leads(d, "moved: a term begins at the server that has taken the slot over")
    leads(e, "moved: which another has named")
    same([x.end() for x in (d, e, sole, fresh)], [0] * 4, "moved: and all close in peace")
    for s in nodes:
        s.close()


def ages() -> None:
    """A name moves to another server, while the old one takes writes on what is open: a connection's age ends that."""
    with Redis() as old, Redis() as new:
        for age in ("", "?max_age=1"):
            way = Proxy(old.port)
            d = opened(f"redis://127.0.0.1:{way.port}/a{age}")
            e = opened(f"redis://127.0.0.1:{way.port}/a{age}")
            d.do("watch")
            w = acquire(e, term(), e.read().get("version", ""))
            w = e.write(record("e"), w["version"])
            way.target = ("127.0.0.1", new.port)
            if not age:
                w = e.write(record("e"), w["version"], durable=False)
                same(w["outcome"], "ok", "ages: what is open stays where it was: the old leader goes on")
                d.end(), e.end()
                way.close()
                continue
            r = tried(lambda: e.read(within=SHORT), "absent")
            same(r["outcome"], "absent", "ages: with ?max_age= it comes to the new one, which has no record")
            listens = wait_for(lambda: new.cli("PUBSUB", "NUMSUB", "{a}:changed").split()[-1] == "1")
            ok(listens, "ages: and so does who only listens")
            d.end(), e.end()
            way.close()


def quiet() -> None:
    """Who writes is not told of its own writes, so that a renewal is one request."""
    with Redis() as server:
        d, e = opened(server.url("q")), opened(server.url("q"))
        for x in (d, e):
            x.do("watch")
            x.noticed(0)
        w = d.write(record("a"), "")
        e.noticed(1)

        def calls() -> int:
            return int(server.cli("INFO", "commandstats").split("cmdstat_evalsha:calls=")[1].split(",")[0])

        before, told = calls(), d.count()
        heard = 0
        for _ in range(10):
            seen = e.count()
            w = d.write(record("a"), w["version"], durable=False)
            heard += e.noticed(seen)
        same(heard, 10, "quiet: another is told of each write")
        same((calls() - before, d.count()), (10, told), "quiet: who wrote them is not, and each was one request")
        d.end(), e.end()


def listing() -> None:
    """A database of many keys of others, of which nothing but its steps is noticed."""
    with Redis() as server:
        at = f"redis://127.0.0.1:{server.port}"
        server.cli("EVAL", "for i = 1, 20000 do redis.call('SET', 'other' .. i, i) end return 1", "0")
        server.cli("EVAL", "return redis.call('SET', 'zero\\0byte', 1)", "0")
        d = opened(at + "/mine-a")
        d.write(record("a"), "")
        e = opened(at + "/1/mine-b")
        e.write(record("b"), "")
        for prefix, names in (
            ("/mine-", ["a"]),
            ("/1/mine-", ["b"]),
            ("/1/", ["mine-b"]),
            ("/%7Bmine-", []),  # what is kept beside the record
            ("/zero", []),
        ):
            d.open(at + prefix, prefix, prefix=True)
            r = d.names(prefix)
            same((r.get("names"), r.get("more")), (names, False), f"list: Redis' keys that begin with '{prefix}'")
        calls = int(server.cli("INFO", "commandstats").split("cmdstat_scan:calls=")[1].split(",")[0])
        ok(calls > 40, "list: in steps that leave the server to others")
        d.open(at, "all", prefix=True)
        r = d.names("all")
        same((len(r["names"]), r["more"]), (1000, True), "list: of 20,000 keys a thousand, and that there are more")
        server.cli("ACL", "SETUSER", "lister", "reset", "on", ">pw", "+ping", "+info", "+echo", "+scan", "+select")
        f = Driver()
        f.open(f"redis://lister:pw@127.0.0.1:{server.port}/mine", "mine", prefix=True)
        same(f.names("mine").get("names"), ["-a"], "list: who may SCAN may list")
        server.cli("ACL", "SETUSER", "lister", "-scan")
        r = f.names("mine")
        ok(r["outcome"] == "refused" and "docs/stores/redis.md" in r["err"]["text"], "list: who may not is told so")
        for x in d, e, f:
            x.end()


def hangs() -> None:
    """A primary that was replaced keeps its connections, be it that it hangs or was cut off: who only listens there
    would hear nothing for ever."""
    for n, leave in enumerate((Redis.pause, lambda s: s.cli("REPLICAOF", "127.0.0.1", str(free_port())))):
        first, second = pair()
        with first, second:
            follows(second)
            both = f"redis://127.0.0.1:{first.port},127.0.0.1:{second.port}/h"
            how, d, e = ("hangs", "is cut off")[n], opened(both), opened(both)
            d.do("watch")
            hears(d, e, "hangs: a standby hears of each renewal")
            wait_for(lambda: second.cli("EXISTS", "h") == "1")
            leave(first)
            second.cli("REPLICAOF", "NO", "ONE")
            tried(lambda: d.read(within=SHORT))
            for x in d, e:  # who would lead asks which one is the primary
                tried(lambda: x.write(term(), "none of these", within=SHORT), "conflict")
            hears(d, e, f"hangs: when its primary {how}, from the promoted one, where its own questions have gone")
            listens = second.cli("PUBSUB", "NUMSUB", "{h}:changed").split()[-1]
            same(listens, "1", "hangs: by a connection to that one")
            first.resume()
            d.end(), e.end()
    with Redis() as server:
        way = Proxy(server.port)
        d, e = opened(f"redis://127.0.0.1:{way.port}/h"), opened(server.url("h"))
        d.do("watch")
        hears(d, e, "hangs: a standby behind a network hears")
        way.lose("down")
        e.write(record("e"), e.read()["version"])
        tried(lambda: d.read(within=SHORT), "failed")
        way.lose("down", on=False)
        tried(lambda: d.read(within=SHORT), "ok")
        hears(d, e, "hangs: and again after the network has lost its connections without a word")
        d.end(), e.end()
        way.close()


def full_disk() -> None:
    """A server that cannot append ends; with room again, and started again, it has what it had."""
    if os.geteuid() != 0:
        skip("out of space", "mounting a small disk needs root")
        return
    disk = FullRedis()
    run(disk, [full])
    disk.end()


store = Store()
only = [globals()[n] for n in sys.argv[1:]]
if only:
    at_once(*only)
    done()
run(store, BASIC + NETWORK + SERVER + REPEATED + [read_only, full])
store.end()
at_once(
    login,
    strangers,
    tokens,
    failover,
    survives,
    amnesia,
    together,
    quiet,
    full_disk,
    let_go,
    listing,
    comes_back,
    moves,
    braces,
    older,
    clock_set,
    hangs,
    moved,
    ages,
)
done()

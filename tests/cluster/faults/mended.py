#!/usr/bin/env -S PYTHONPATH=. python3
"""What only somebody can mend, on the four stores side by side: a wrong password, another program's record, missing
rights. Each is said once and tried ever more rarely, nobody leads on it, nothing is touched; mended, it leads. And a
host whose name comes later."""

import os
import shutil
import signal
import sys
import time
from typing import Any

from tests.lib.candidates import Candidate, stop_everyone, timing
from tests.lib.lock_driver import Driver, record
from tests.lib.processes import PATIENCE, scratch, wait_for
from tests.lib.proxy import Proxy
from tests.lib.stores import Etcd, Postgres, Redis, Zk, ZooKeeper, b64
from tests.lib.tap import at_once, done, ok, same

TIMES = timing("2s", renew="1.4s", retry="1s")  # an operation has a second
WINDOW_S = 13  # with a watch: tries at 0, 2, 6, 14 s; those who do not slow down make seven
WRONG, RIGHT = "gehe1m", "geheim"
THEIRS = b"config of another program"
LEADS = "return { on_leading = function() end }"
TROUBLE = ("read_failed", "foreign_record", "acquire_failed", "store_back")
DENIED = {
    "etcd": "authentication failed",
    "redis": "refuses the user or the password",
    "postgres": "authentication failed",
    "zookeeper": "refuses it",
}
REFUSED = {
    "etcd": "has no right",
    "redis": "docs/stores/redis.md",
    "postgres": "docs/stores/postgres.md",
    "zookeeper": "refuses it",
}
room = scratch()
SOURCES = os.path.join(room, "nsswitch.conf")


class Listener(Proxy):
    """Notes when what goes to the server has a word in it. One that is torn in two is missed: there were at least so
    many."""

    def __init__(self, port: int, word: Any) -> None:
        self.word = word
        self.heard: list[Any] = []
        super().__init__(port)

    async def _pump(self, pair: Any, reader: Any, writer: Any, way: Any, name: str) -> None:
        await super()._pump(pair, Ear(reader, self) if name == "up" else reader, writer, way, name)


class Ear:
    def __init__(self, reader: Any, listener: Any) -> None:
        self.reader, self.listener = reader, listener

    async def read(self, most: Any) -> Any:
        piece = await self.reader.read(most)
        self.listener.heard += [time.monotonic()] * piece.count(self.listener.word)
        return piece


class OnEtcd(Etcd):
    """login, look, write: what is heard of each. seldom: tries with a wrong password in the window, those for notices
    included."""

    login, look, write, seldom, barred = (
        b"\n\x04luna\x12",  # the first two fields of AuthenticateRequest
        b"\n\x05taken",  # the key, of a range or a watch
        b"holderIdentity",
        14,  # nine or ten; the pauses are drawn
        "poor",
    )

    def __init__(self) -> None:
        super().__init__("--bcrypt-cost", "4")
        self.auth("luna", RIGHT)
        self.user = "root:root%27s"
        self.call("auth/user/add", name="poor", password=RIGHT)
        self.call("auth/role/add", name="reader")
        self.call("auth/user/grant", user="poor", role="reader")
        self.allow("READ")

    def allow(self, what: str) -> None:
        self.call("auth/role/grant", name="reader", perm={"permType": what, "key": b64(b"seen")})

    def mend(self) -> None:
        self.call("auth/user/changepw", name="luna", password=WRONG)

    def grant(self) -> None:
        self.allow("READWRITE")


class OnRedis(Redis):
    login, look, write, seldom, barred = b"AUTH", b"EVALSHA", b"holderIdentity", 9, "poor"

    def __init__(self) -> None:
        super().__init__()
        self.talk("ACL", "SETUSER", "luna", "on", ">" + RIGHT, "~*", "&*", "+@all")
        self.talk("ACL", "SETUSER", "poor", "on", ">" + RIGHT, "~*", "&*", "+@all", "-set")

    def mend(self) -> None:
        self.talk("ACL", "SETUSER", "luna", ">" + WRONG)

    def grant(self) -> None:
        self.talk("ACL", "SETUSER", "poor", "+set")


class OnPostgres(Postgres):
    """A statement's text passes but once in a connection; the lock's name with every look."""

    login, look, write, seldom, barred = b"user\0luna\0", b"taken", b"holderIdentity", 9, "poor"

    def __init__(self) -> None:
        super().__init__(auth="scram-sha-256")
        begin(self.url("first"))  # which makes the table
        self.server.sql(
            f"CREATE ROLE luna LOGIN PASSWORD '{RIGHT}'; CREATE ROLE poor LOGIN PASSWORD '{RIGHT}'; "
            "GRANT ALL ON lunarch_locks TO luna; GRANT SELECT ON lunarch_locks TO poor"
        )

    def mend(self) -> None:
        self.server.sql(f"ALTER ROLE luna PASSWORD '{WRONG}'")

    def grant(self) -> None:
        self.server.sql("GRANT INSERT, UPDATE ON lunarch_locks TO poor")


class OnZooKeeper(ZooKeeper):
    """Where a wrong password is a user like any other, who may neither read what is another's nor make a node below
    it."""

    login, look, write, seldom, barred = (
        b"\0\0\0\4\0\0\0\5/mine",
        b"\0\0\0\4\0\0\0\6/taken",
        b"holderIdentity",
        5,
        "luna",
    )
    seen = "closed/seen"

    def __init__(self) -> None:
        super().__init__()
        for key in ("mine", "closed"):
            begin(f"zookeeper://luna:{RIGHT}@127.0.0.1:{self.port}/{key}")

    def mend(self) -> None:
        with Zk(self.port, f"luna:{RIGHT}") as z:
            z.delete("/mine")

    def grant(self) -> None:
        with Zk(self.port, f"luna:{RIGHT}") as z:
            z.delete("/closed")


def begin(url: str) -> None:
    d = Driver()
    d.open(url)
    w = d.write(record(token=0, leaseDurationMs=1), "")
    if w["outcome"] != "ok":
        raise RuntimeError(w)
    d.end()


def candidate(url: str, **kw: Any) -> Any:
    return Candidate("--lock", url, "-e", LEADS, options=TIMES, **kw)


def as_user(store: Any, user: Any, password: Any, key: str, proxy: Any) -> Any:
    database = "postgres#" if store.name == "postgres" else ""
    return f"{store.name}://{user}:{password}@127.0.0.1:{proxy.port}/{database}{key}"


def lasting(what: str, c: Candidate, proxy: Listener, event: str, text: str, most: int, since: float) -> None:
    """Whatever else a slow machine had it say."""
    troubles = [e for e in c.events if e["event"] in TROUBLE]
    this = [e["event"] == event and text in e["message"] for e in troubles]
    again = [a and (b or troubles[i + 1]["event"] == "store_back") for i, (a, b) in enumerate(zip(this, this[1:]))]
    others = len(this) - sum(this)
    tries = sum(t < since + WINDOW_S for t in proxy.heard)
    good = ok(any(this) and not any(again), f"{what}: is said once")
    good = ok(tries <= most + 3 * others, f"{what}: is tried seldom ({tries} times in {WINDOW_S} s)") and good
    good = ok(not c.all("became_leader"), f"{what}: nobody leads") and good
    if not good:
        c.log()


def leads(what: str, c: Any) -> None:
    if not ok(c.wait("became_leader", patience=3 * PATIENCE), f"{what}: mended, it leads"):  # a pause grows to a minute
        c.log()
    said = str(c.events)
    ok(WRONG not in said and RIGHT not in said, f"{what}: no password in the log")


def late(store: Any) -> tuple[str, Any]:
    """Its host's name is known only later, by the last line of a file of its own."""
    hosts = os.path.join(room, store.name)
    open(hosts, "w").close()
    return hosts, candidate(
        store.url("late").replace("127.0.0.1", "store.test"),
        prefix=[
            "unshare",
            "--mount",
            "sh",
            "-c",
            'mount --bind "$0" /etc/hosts && ' 'mount --bind "$1" /etc/nsswitch.conf && shift && exec "$@"',
            hosts,
            SOURCES,
        ],
    )


def trial(kind: Any) -> None:
    store = kind()
    name, seen = store.name, getattr(kind, "seen", "seen")
    ears = [Listener(store.port, w) for w in (kind.login, kind.look, kind.write)]
    store.put("taken", THEIRS)
    since = time.monotonic()
    denied = candidate(as_user(store, "luna", WRONG, "mine", ears[0]))
    foreign = candidate(store.url("taken", ears[1]))
    barred = candidate(as_user(store, kind.barred, RIGHT if kind.barred == "poor" else WRONG, seen, ears[2]))
    hosts, later = late(store)
    denied.wait("read_failed"), foreign.wait("foreign_record"), barred.wait("acquire_failed")
    ok(later.wait("read_failed", "store.test"), f"{name}: a host that does not resolve is told")
    time.sleep(max(0.0, since + WINDOW_S - time.monotonic()))
    lasting(f"{name}: a wrong password", denied, ears[0], "read_failed", DENIED[name], kind.seldom, since)
    lasting(f"{name}: another program's record", foreign, ears[1], "foreign_record", "no election record", 10, since)
    lasting(f"{name}: missing rights", barred, ears[2], "acquire_failed", REFUSED[name], 5, since)
    ok(wait_for(lambda: all(len(e.heard) > 2 for e in ears)), f"{name}: but again and again, as was heard")
    same(store.get("taken"), THEIRS, f"{name}: another program's record is what it was")
    ok(not later.all("became_leader"), f"{name}: nobody leads without a host")
    with open(hosts, "a") as f:
        f.write("127.0.0.1 store.test\n")
    store.mend(), store.grant(), store.delete("taken")
    for what, c in (
        ("a wrong password", denied),
        ("another program's record", foreign),
        ("missing rights", barred),
        ("no host", later),
    ):
        leads(f"{name}: {what}", c)
    for c in (denied, foreign, barred, later):
        c.kill(signal.SIGTERM)
        c.leave()
    store.end()


with open(SOURCES, "w") as f:
    f.write("hosts: files\n")


def named(kind: Any) -> Any:
    def job() -> None:
        trial(kind)

    job.__name__ = kind.name
    return job


at_once(*(named(k) for k in (OnEtcd, OnRedis, OnPostgres, OnZooKeeper) if k.name in (sys.argv[1:] or k.name)))
stop_everyone()
shutil.rmtree(room)
done()

#!/usr/bin/env -S PYTHONPATH=. python3
"""The ZooKeeper lock passes the conformance suite against Debian's server, and its own cases."""

import http.server
import json
import os
import sys
import threading
import time
from typing import Any

from tests.lib.lock_cases import BASIC, NETWORK, SERVER, full, read_only, run
from tests.lib.lock_driver import WITHIN, Driver, record, told
from tests.lib.pki import Pki
from tests.lib.processes import wait_for
from tests.lib.proxy import Proxy
from tests.lib.servers import Redis, ZooKeeper, ask, free_port
from tests.lib.stores import FullZooKeeper, Zk, ZooKeeper as Store
from tests.lib.tap import at_once, done, note, ok, same, skip

SHORT = 4000  # ms; for operations that are to fail soon


def term(holder: str = "a", **fields: int) -> dict[str, Any]:
    """What a write that begins a term asks for: no token yet."""
    return record(holder, token=0, **fields)


def opened(url: str, lock: str = "a", **env: Any) -> Any:
    d = Driver(env)
    o = d.open(url, lock)
    if not o["ok"]:
        raise RuntimeError(o["err"])
    return d


def until(d: Driver, outcome: str = "ok", lock: str = "a") -> Any:
    return wait_for(lambda: next((r for r in [d.read(lock, within=SHORT)] if r["outcome"] == outcome), None))


class Page(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


class TlsZooKeeper(ZooKeeper):
    """Debian's ZooKeeper names fewer of netty's archives than its TLS needs."""

    def prepare(self) -> None:
        certificate, key = Pki(self.dir).server()
        both, self.secure = os.path.join(self.dir, "both.pem"), free_port()
        with open(both, "w") as f:
            for path in (key, certificate):
                with open(path) as g:
                    f.write(g.read())
        self.settings += [
            f"secureClientPort={self.secure}",
            "secureClientPortAddress=127.0.0.1",
            f"ssl.keyStore.location={both}",
            f"ssl.trustStore.location={both}",
            "ssl.clientAuth=none",
            "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
        ]
        super().prepare()

    def command(self) -> list[str]:
        return [
            a.replace(
                "/zookeeper.jar", "/zookeeper.jar:/usr/share/java/netty-codec.jar:/usr/share/java/netty-resolver.jar"
            )
            for a in super().command()
        ]


def strangers() -> None:
    web = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=web.serve_forever, daemon=True).start()
    with Redis() as other, TlsZooKeeper() as secure:
        for what, port, said in (
            ("a web server", web.server_port, "ZooKeeper"),
            ("a Redis", other.port, "ZooKeeper"),
            ("its port for TLS", secure.secure, "ZooKeeper"),
            ("a port where nobody listens", free_port(), "refused"),
        ):
            d = opened(f"zookeeper://127.0.0.1:{port}/x")
            r, w = d.read(within=8000), d.write(term(), "", within=8000)
            ok(
                told(r, said, str(port), outcome=("failed",)) and told(w, said, outcome=("failed",)),
                f"strangers: {what} is told",
            )
            same(d.end(), 0, f"strangers: {what}: and the lock closes in peace")
    web.shutdown()
    d = opened("zookeeper://no-such-host.invalid/x")
    ok(told(d.read(within=SHORT), "no-such-host.invalid", outcome=("failed",)), "strangers: no such host")
    d.end()
    for url, said in (
        ("zookeeper://u:secret@h/", "path is missing"),
        ("zookeeper://h/a//b", "between two slashes"),
        ("zookeeper://h/a/../b", "called"),
        ("zookeeper://h/x?chroot=y", "there is no option"),
        ("zookeeper://h/zookeeper/x", "server's own"),
    ):
        d = Driver()
        o = d.open(url)
        ok(
            not o["ok"] and said in o["err"] and "secret" not in o["err"],
            f"strangers: {url.replace('secret', '...')} is refused: {said}",
        )
        d.end()


def rights(server: ZooKeeper) -> None:
    at = f"127.0.0.1:{server.port}"
    mine = opened(f"zookeeper://luna:p%20w@{at}/own/lock")
    w = mine.write(term(), "")
    same(
        (w["outcome"], mine.read()["outcome"]),
        ("ok", "ok"),
        "rights: who has a user and a password makes a node of its own",
    )
    for what, d in (
        ("without a user", opened(f"zookeeper://{at}/own/lock")),
        ("with a wrong password", opened(f"zookeeper://luna:wr0ng@{at}/own/lock")),
    ):
        r, x = d.read(), d.write(record("b"), w["version"])
        ok(
            told(r, "refuses", outcome=("refused",))
            and told(x, "refuses", outcome=("refused",))
            and "wr0ng" not in str(r),
            f"rights: which nobody reads or writes {what}",
        )
        d.end()
    with Zk(server.port) as z:
        z.delete("/own/lock")
    same(mine.read()["outcome"], "ok", "rights: or deletes")
    again = opened(f"zookeeper://luna@{at}/own/lock", LUNARCH_LOCK_PASSWORD="p w")
    same(again.write(record("a"), w["version"])["outcome"], "ok", "rights: the password may also be in the environment")
    mine.end(), again.end()


def listing(server: ZooKeeper) -> None:
    at = f"zookeeper://127.0.0.1:{server.port}/"
    d = opened(at + "nodes/one")
    d.write(record("a"), "")
    mine = opened(f"zookeeper://luna:p%20w@127.0.0.1:{server.port}/hidden/lock")
    mine.write(record("a"), "")
    for prefix, names in (
        ("nodes/", ["one"]),  # which has a child of its own
        ("nodes/one/", []),
        ("nod", ["es"]),
        ("nowhere/", []),
    ):
        d.open(at + prefix, prefix, prefix=True)
        same(d.names(prefix).get("names"), names, f"list: what is in the node above of '{prefix}'")
    d.open(at + "hidden/", "hidden", prefix=True)
    ok(told(d.names("hidden"), "refuses", outcome=("refused",)), "list: not of a node that one may not read")
    d.end(), mine.end()


def chroot(server: ZooKeeper) -> None:
    """A tenant's part of a server: a node of its own, in a root that it may only read."""
    at = f"127.0.0.1:{server.port}"
    with Zk(server.port, "luna:p w") as z:
        z.ask(1, z.text("/app") + z.data(b"") + z.acl(z.ALL, "auth", "") + bytes(4))
    with Zk(server.port) as z:
        z.protect("/", z.READ)
    mine, other = opened(f"zookeeper://luna:p%20w@{at}/app/jobs/lock"), opened(
        f"zookeeper://luna:p%20w@{at}/other/lock"
    )
    w = mine.write(term(), "")
    same(
        (w["outcome"], mine.read().get("version")),
        ("ok", w.get("version")),
        "chroot: a lock below a node of its user's is made, with nodes between",
    )
    ok(told(other.write(term(), ""), "refuses", outcome=("refused",)), "chroot: outside of that none is")
    mine.end(), other.end()


def cut_reads(server: ZooKeeper) -> None:
    """A read is repeated when its connection is lost: on the next one at once, whether or not somebody waits for
    notices."""
    for watched in (False, True):
        proxy = Proxy(server.port)
        d = opened(f"zookeeper://127.0.0.1:{proxy.port}/cut")
        if watched:
            d.do("watch")
        took = []

        def quick() -> bool:
            d.read()
            before = proxy.bytes["up"]
            proxy.freeze("down")
            op = d.start("read", within_ms=5000)
            wait_for(lambda: proxy.bytes["up"] >= before + 60)  # more than a ping: it was asked
            began = time.monotonic()
            proxy.cut()
            proxy.thaw()
            r = d.wait(op)
            took.append(time.monotonic() - began)
            return r["outcome"] == "absent" and took[-1] < 0.8

        quick_once = any(quick() for _ in range(10))
        note(f"answered {min(took) * 1000:.0f} ms after the cut")
        ok(
            quick_once,
            "cut: a read whose connection is lost is asked again on another, at once, "
            f"{'with' if watched else 'without'} a watch",
        )
        d.end()
        proxy.close()


def tokens(server: ZooKeeper) -> None:
    d, e = opened(server.url("t/o/k")), opened(server.url("t/o/k"))
    got = []

    def next_term(version: str, what: str) -> dict[str, Any]:
        w = d.write(term(), version)
        got.append(w["token"])
        ok(
            w["outcome"] == "ok" and (len(got) == 1 or got[-1] > got[-2]),
            f"tokens: a new term's is larger than all before, {what}",
        )
        return w

    w = next_term("", "the first, whose parent nodes are made, too")
    with Zk(server.port) as z:
        same(z.created("/t/o/k"), w["token"], "tokens: which is the transaction that made it")
    r = e.read()
    same(r["token"], w["token"], "tokens: who reads a term's first record is told its token")
    for _ in range(3):
        w = next_term(w["version"], "term by term")
    same(e.read()["token"], w["token"], "tokens: and so is who reads a later one's")
    same(d.write(record("a", token=5), w["version"])["token"], 0, "tokens: a renewal makes none")
    with Zk(server.port) as z:
        same(len(z.children("/t/o/k")), 1, "tokens: the node has one child")
        z.delete("/t/o/k")
        w = next_term("", "after the record was deleted")
        content = record("by hand")
        z.delete("/t/o/k")
        z.ask(1, z.text("/t/o/k") + z.data(json.dumps(content).encode()) + z.acl(z.ALL) + bytes(4))
    r = d.read()
    same(r["record"]["holderIdentity"], "by hand", "by hand: a node without its child is read")
    w = next_term(r["version"], "on a node that was made by hand")
    with Zk(server.port) as z:
        same(len(z.children("/t/o/k")), 1, "by hand: and gets one with the first write")
    many = [opened(server.url("deep/er/n")) for _ in range(8)]
    ops = [x.start_write(term(), "") for x in many]
    same(
        sorted(x.wait(o)["outcome"] for x, o in zip(many, ops)),
        ["conflict"] * 7 + ["ok"],
        "tokens: of eight that make the same nodes at once one wins",
    )
    for x in many + [d, e]:
        x.end()


def together(server: ZooKeeper) -> None:
    d, e = opened(server.url("m/n0"), "n0"), opened(server.url("m/n0"), "n0")

    def count() -> int:
        return int(ask(server.port, "srvr").split("Connections: ")[1].split()[0])

    d.read("n0"), e.read("n0")
    before = count()
    names = [f"n{i}" for i in range(50)]
    for n in names[1:]:
        d.open(server.url("m/" + n), lock=n)
    for n in names:
        d.do("watch", lock=n)
    ops = [d.start_write(term(n), "", lock=n) for n in names]
    written = {n: d.wait(o) for n, o in zip(names, ops)}
    same({w["outcome"] for w in written.values()}, {"ok"}, "together: fifty locks at once")
    same(count(), before, "together: over one session")
    e.do("watch", lock="n0")
    e.read("n0")
    w, heard, quiet = written["n0"], 0, d.count("n0")
    for _ in range(10):
        seen = e.count("n0")
        w = d.write(record("a", token=5), w["version"], lock="n0")
        heard += e.noticed(seen, "n0")
        e.read("n0")  # as a candidate does; what happens until then may come with the same notice
    same((heard, d.count("n0") - quiet), (10, 0), "together: another process is told of each write, who wrote is not")
    same([d.end(), e.end()], [0, 0], "together: all close in peace")


def received(server: ZooKeeper) -> int:
    """Requests. The server counts what it has received before it answers, and what it has sent perhaps after the answer
    is here."""
    return int(ask(server.port, "srvr").split("Received: ")[1].split()[0])


def questions(server: Any) -> None:
    """What is known of a node's children is not asked for again."""
    d, e = opened(server.url("q")), opened(server.url("q"))
    w = d.write(term(), "")

    def answers(look: Any) -> Any:
        """To how many requests it had them. Pings of others count as well, so the fewest are right."""

        def more() -> int:
            before = received(server)
            look()
            return received(server) - before

        return min(more() for _ in range(5))

    same(e.read()["version"], w["version"], "questions: the first look")
    nothing = answers(lambda: None)
    asked = answers(e.read) - nothing
    w = d.write(record("a", token=5), w["version"])
    asked = (asked, answers(e.read) - nothing)
    same(asked, (2, 2), "questions: a later one is synchronised, and asks for the record alone")
    with Zk(server.port) as z:
        z.delete("/q")
    w = d.write(term(), "")
    same(e.read()["version"], w["version"], "questions: but a node that was made again has another child")
    same(e.write(term("e"), w["version"])["outcome"], "ok", "questions: which a write finds")
    d.end(), e.end()


def watched_behind(server: ZooKeeper) -> None:
    """The watch is set again behind a handover's requests."""
    d, e = opened(server.url("way")), opened(server.url("way"))
    fields: Any
    w = e.write(term("e"), "")
    for what, fields in (("begins", {"token": 0}), ("ends", {"holder": "", "state": "released"})):
        d.open(server.url("way"), "a")
        d.do("watch")
        version = d.read()["version"]
        told_of = d.count()
        w = d.write(record(**{"holder": "d", **fields}), version)
        w = e.write(record("e", token=5), w["version"])
        ok(
            w["outcome"] == "ok" and d.noticed(told_of),
            f"watched: what happens right behind a write that {what} a term is noticed",
        )
        d.do("close")
    same([d.end(), e.end()], [0, 0], "watched: all close in peace")


class Sizes(Proxy):
    """Notes how long the pieces are that come from the client."""

    def __init__(self, port: int) -> None:
        self.sizes: list[int] = []
        super().__init__(port)

    async def _pump(self, pair: Any, reader: Any, writer: Any, way: Any, name: str) -> None:
        read = reader.read

        async def noted(most: int) -> Any:
            piece = await read(most)
            self.sizes += [len(piece)] if name == "up" else []
            return piece

        reader.read = noted
        await super()._pump(pair, reader, writer, way, name)


def one_piece(server: ZooKeeper) -> None:
    """The library sends the length of a request, then the request. A server that has read the one has to be woken again
    for the other."""
    proxy = Sizes(server.port)
    d = opened(f"zookeeper://127.0.0.1:{proxy.port}/piece")
    w, whole = d.write(term(), ""), 0
    for _ in range(100):
        proxy.sizes.clear()
        r = d.read()  # two requests
        w = d.write(record("a", token=5), r["version"])
        pieces = list(zip(proxy.sizes, [*proxy.sizes[1:], 0]))
        whole += not any(a == 4 and b != 8 for a, b in pieces)  # 8: a ping
    note(f"{whole} of 100 whole")
    # The proxy may read two pieces as one, so that without this about 70 are; a process may stop between the two.
    ok(w["outcome"] == "ok" and whole >= 95, "one piece: a question and its length leave together")
    d.end()
    proxy.close()


def closed_inside(server: ZooKeeper) -> None:
    """The last lock of a session is closed from inside the end of its look, while the answers to watches are still to
    come (a sanitizer sees whether those find anything)."""
    proxy = Proxy(server.port)
    url = f"zookeeper://127.0.0.1:{proxy.port}/closed"
    d = opened(url)

    def sent() -> int:
        return int(ask(server.port, "srvr").split("Sent: ")[1].split()[0])

    def look() -> str:
        d.read()
        before = sent()
        proxy.freeze("down")
        op = d.start("read", within_ms=WITHIN, close=True)
        for lock in "bcd":
            d.open(url + lock, lock)
            d.do("watch", lock=lock)
            d.do("close", lock=lock)
        d.do("watch")
        wait_for(lambda: sent() >= before + 7)  # the look's three answers, and four watches'
        proxy.thaw()
        outcome = d.wait(op)["outcome"]
        return d.open(url)["ok"] and outcome

    outcomes = {look() for _ in range(5)}  # the pieces in which the answers come differ
    same(
        (outcomes, d.end()),
        ({"absent"}, 0),
        "closed: the last lock closes at the end of its look, before its watches are answered",
    )
    proxy.close()


def alone() -> None:
    with ZooKeeper() as server:
        at_once(lambda: rights(server), lambda: listing(server), lambda: tokens(server), lambda: cut_reads(server))
        together(server)
        questions(server)
        watched_behind(server)
        one_piece(server)
        chroot(server)
        closed_inside(server)


def ensemble() -> None:
    """Three servers that lose their leader, then their majority."""
    members = ZooKeeper.cluster(3)
    url = "zookeeper://" + ",".join(f"127.0.0.1:{m.port}" for m in members) + "/e"
    drivers = [opened(url) for _ in range(4)]
    d = drivers[0]
    w = d.write(term(), "")
    for x in drivers:
        x.do("watch")
        same(x.read()["version"], w["version"], "ensemble: what one has written all read, whichever server they have")
    leader = next(m for m in members if "Mode: leader" in ask(m.port, "srvr"))
    leader.kill()
    seen = [until(x) for x in drivers]
    same([r["version"] for r in seen], [w["version"]] * 4, "ensemble: and still when the servers' leader was killed")
    wait_for(
        lambda: next(
            (
                x
                for x in [drivers[1].write(term("b"), w["version"], within=SHORT)]
                if x["outcome"] in ("ok", "conflict")
            ),
            None,
        )
    )
    r = until(d)
    same(r["record"]["holderIdentity"], "b", "ensemble: which goes on")
    ok(r["token"] > w["token"], "ensemble: with larger tokens")
    before = drivers[2].count()
    same(d.write(record("c", token=5), r["version"])["outcome"], "ok", "ensemble: writes")
    ok(drivers[2].noticed(before), "ensemble: and notices")
    other, version = next(m for m in members if m is not leader), until(d)["version"]
    other.kill()
    w = d.write(record("d", token=5), version, within=SHORT)
    ok(w["outcome"] in ("failed", "unknown"), "ensemble: without a majority nothing can be written")
    ok(all(until(x, "failed") for x in drivers), "ensemble: and soon nothing be read")
    other.start()
    same(len({until(x)["version"] for x in drivers}), 1, "ensemble: until there is one again")
    for x in drivers:
        x.end()
    for m in members:
        m.close()


def goes_back() -> None:
    """The servers of an ensemble lose what all of them had: a term, which began by the release of another. Zxids go on
    growing, and versions are counted twice."""
    lease = 10000
    fields: Any = {"leaseDurationMs": lease, "leaseDurationSeconds": lease // 1000}
    members = ZooKeeper.cluster(3)
    at = "zookeeper://" + ",".join(f"127.0.0.1:{m.port}" for m in members)
    ignorant, loser, witness, late, blind = [opened(at + "/back") for _ in range(5)]
    owner = opened(at + "/mine")
    own = owner.write(term("owner", **fields), "")
    w = ignorant.write(term("ignorant", **fields), "")
    freed = ignorant.write(record("", token=w["token"], state="released", **fields), w["version"])
    same(late.read()["version"], freed["version"], "goes back: the lock is free")
    ZooKeeper.keep(members)
    owner.write(record("owner", token=own["token"], **fields), own["version"])
    lost = loser.write(term("loser", **fields), until(loser)["version"])
    same(lost["outcome"], "ok", "goes back: somebody's term begins")
    seen = [until(d)["version"] for d in (witness, blind)]
    same(seen, [lost["version"]] * 2, "goes back: which other candidates see")
    ZooKeeper.fall_back(members)
    began = time.monotonic()
    r = until(witness)
    same(r["version"], freed["version"], "goes back: the servers have lost it, and show the lock as free")
    w = witness.write(term("witness", **fields), r["version"])
    in_time = time.monotonic() < began + lease / 1000
    ok(
        told(w, "lost a record", outcome=("failed",)) or not in_time,
        "goes back: who saw the term does not begin another before its lease is over",
    )
    r = until(owner)
    r = owner.write(record("owner", token=own["token"], **fields), r["version"])
    w = owner.write(term("owner", **fields), r["version"])
    same((r["outcome"], w["outcome"]), ("ok", "ok"), "goes back: a leader's own term goes on, and a next may follow")
    until(ignorant)
    w = ignorant.write(term("ignorant", **fields), freed["version"])
    ok(w["outcome"] == "ok" and w["token"] > lost["token"], "goes back: who did not see it does, with a larger token")
    versions = [x["version"].split(".")[1] for x in (w, lost)]
    same(versions[0], versions[1], "goes back: and with a version that the servers had counted before")
    r = loser.write(record("loser", token=lost["token"], **fields), lost["version"], within=SHORT)
    same(r["outcome"], "conflict", "goes back: but the lost term's renewal does not pass on it")
    r = until(loser)
    same(r["record"]["holderIdentity"], "ignorant", "goes back: so its leader is told that another leads")
    saw = time.monotonic()
    freed = ignorant.write(record("", token=w["token"], state="released", **fields), w["version"])
    # The node has as many versions and changes of children as the one that it saw, and more.
    same(until(blind)["version"], freed["version"], "goes back: who did not look meanwhile knows the new term's child")
    w = loser.write(term("loser", **fields), until(loser)["version"])
    in_time = time.monotonic() < saw + lease / 1000
    ok(
        told(w, "lost a record", outcome=("failed",)) or not in_time,
        "goes back: a version that was counted twice tells it, too, that something was lost",
    )

    def begins() -> bool:
        return witness.write(term("witness", **fields), until(witness)["version"])["outcome"] == "ok"

    ok(
        wait_for(begins) and time.monotonic() - began >= lease / 1000,
        "goes back: after the lease who has seen it begins one",
    )
    same(late.write(term("late"), freed["version"])["outcome"], "conflict", "goes back: one at a time, as ever")
    for d in (ignorant, loser, witness, late, blind, owner):
        d.end()
    for m in members:
        m.close()


def full_disk() -> None:
    """A server whose disk is full ends; with room again, and started again, it has what it had."""
    if os.geteuid() != 0:
        skip("out of space", "mounting a small disk needs root")
        return
    store = FullZooKeeper()
    run(store, [full])
    store.end()


only = [globals()[n] for n in sys.argv[1:]]
if only:
    at_once(*only)
    done()
store = Store()
run(store, BASIC + NETWORK + SERVER + [read_only])
store.end()
at_once(strangers, alone, full_disk)
at_once(ensemble, goes_back)
done()

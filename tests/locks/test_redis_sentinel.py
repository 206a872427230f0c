#!/usr/bin/env -S PYTHONPATH=. python3
"""The Redis lock passes the conformance suite where Sentinels name the server, and its own cases: failovers by real
Sentinels, Sentinels that are gone, silent, cut off or of two minds, other passwords, and what is no Sentinel."""

import sys
import tempfile
from collections.abc import Callable
from typing import Any

from tests.lib.candidates import STEADY, Candidate, stop_everyone
from tests.lib.lock_cases import BASIC, NETWORK, REPEATED, SERVER, read_only, run
from tests.lib.lock_driver import Driver, hears, opened, record, tried
from tests.lib.pki import Pki
from tests.lib.processes import wait_for
from tests.lib.sentinel_site import DURABLE, REPLICAS, SENTINELS, Site, Way, url_of
from tests.lib.servers import Redis, Sentinel, TlsRedis
from tests.lib.stores import RedisSentinel as Store, RedisSentinelTls
from tests.lib.tap import at_once, done, note, ok, same

SHORT = 4000  # ms; for operations that are to fail soon


def term(holder: str = "a", lease_ms: int = 1000) -> dict[str, Any]:
    return record(holder, token=0, leaseDurationMs=lease_ms)


def leads(d: Driver, what: str, holder: str = "a") -> dict[str, Any]:
    """A server that is new to the lock elects nobody for a lease: until then."""
    w = tried(lambda: d.write(term(holder), d.read(within=SHORT).get("version", ""), within=SHORT), "ok")
    ok(w["outcome"] == "ok", what, w)
    return w


def says(ask: Callable[[], dict[str, Any]], *said: str, what: str) -> dict[str, Any]:
    """An operation fails, and by and by says so: on a busy machine it may be that nobody has answered in time."""

    def text(r: dict[str, Any]) -> str:
        return r.get("err", {}).get("text", "") if r["outcome"] in ("failed", "refused") else ""

    last: list[dict[str, Any]] = []

    def heard() -> bool:
        last[:] = [ask()]
        return all(s in text(last[0]) for s in said) or last[0]["outcome"] == "ok"

    wait_for(heard)
    ok(all(s in text(last[0]) for s in said), what, last)
    return last[0]


def failover() -> None:
    """The primary dies, and the Sentinels promote a replica."""
    site = Site(3)
    d, e, fresh = opened(site.url()), opened(site.url()), opened(site.url("y"))
    d.do("watch")
    w = leads(e, "failover: a term on the primary that the Sentinels name")
    hears(d, e, "failover: and its renewals are told")
    wait_for(lambda: all(r.cli("EXISTS", "x") == "1" for r in site.servers[1:]))
    before = d.count()
    site.servers[0].kill()
    new = site.promoted(site.servers[0])
    ok(d.noticed(before), "failover: who watches is told of it")
    r = tried(lambda: e.read(within=SHORT), "ok")
    same(r["record"]["holderIdentity"], "e", "failover: the promoted server is asked by now")
    w = e.write(record("e"), r["version"], within=SHORT)
    same((w["outcome"], new.cli("EXISTS", "x")), ("ok", "1"), "failover: where the term goes on")
    long = term("f", lease_ms=600_000)
    says(lambda: fresh.write(long, "", within=SHORT), "promoted", what="failover: and nobody else is elected at once")
    hears(d, e, "failover: notices come from there")
    leads(fresh, "failover: after a lease others are elected")
    site.servers[0].start()
    follows = wait_for(lambda: site.servers[0].cli("ROLE").startswith("slave"))
    ok(follows, "failover: the old primary comes back, and the Sentinels make it a replica")
    hears(d, e, "failover: which changes nothing")
    same([x.end() for x in (d, e, fresh)], [0] * 3, "failover: all close in peace")
    site.close()


def cut_off() -> None:
    """The Sentinels lose the primary, and the candidates do not: the old primary is asked for no write from the moment
    when a majority names another one. What was asked before may still be written there, until its deadline."""
    site = Site()
    d, e = opened(site.url()), opened(site.url())
    d.do("watch")
    leads(e, "cut off: a term on the primary")
    hears(d, e, "cut off: whose renewals are told")
    wait_for(lambda: site.servers[1].cli("EXISTS", "x") == "1")
    site.ways[site.servers[0]].refuse(SENTINELS)
    new = site.promoted(site.servers[0])
    same(
        site.servers[0].cli("ROLE").split()[0],
        "master",
        "cut off: there are two primaries now, and both can be reached",
    )
    there = site.servers[0].cli("GET", "x")
    leads(e, "cut off: who goes on does so on the one that the Sentinels name")
    same(site.servers[0].cli("GET", "x"), there, "cut off: the old one has nothing of it")
    ok(new.cli("GET", "x") != there, "cut off: but the new one has")
    hears(d, e, "cut off: and notices come from there, though the old connection is up")
    same([d.end(), e.end()], [0, 0], "cut off: both close in peace")
    site.close()


def replication_id(server: Redis) -> str:
    return server.cli("INFO", "replication").split("master_replid:")[1].split()[0]


def works(server: Redis) -> bool:
    """It computes, and answers the Sentinels in between; true: for longer than a short lease and a second in all."""
    server.cli("-r", "10", "EVAL", "local n = 0 for i = 1, 1000000 do n = n + i end return n", "0")
    info = server.cli("INFO", "cpu")
    return sum(float(line.split(":")[1]) for line in info.split() if "main_thread:" in line) > 1.2


def chosen_again() -> None:
    """The Sentinels go back to a primary that was never demoted, and has seen nothing of the term that another knows.
    So it elects nobody for a lease, though its replication id is the same, and it seems to be the first of all."""
    site = Site()
    old, other = site.servers
    d, fresh, new = opened(site.url()), opened(site.url()), opened(site.url("new"))
    leads(d, "chosen again: a term on the first primary")
    wait_for(lambda: other.cli("EXISTS", "x") == "1")
    ok(wait_for(lambda: works(old)), "chosen again: which has worked for long")
    first = opened(site.url("first"))
    w = first.write(term(lease_ms=100), "", within=SHORT)
    ok(w["outcome"] == "ok", "chosen again: so a new lock begins there at once", w)
    before = replication_id(old)
    site.ways[old].refuse(SENTINELS, REPLICAS)
    site.promoted(old)
    w = tried(lambda: d.write(record("m"), d.read(within=SHORT).get("version", ""), within=SHORT), "ok")
    same(
        (w["outcome"], '"m"' in other.cli("GET", "x")), ("ok", True), "chosen again: another is promoted, and leads on"
    )
    site.ways[other].refuse(SENTINELS)
    lost = wait_for(lambda: all("s_down" in s.cli("SENTINEL", "MASTER", Sentinel.MASTER) for s in site.group))
    ok(lost, "chosen again: until the Sentinels lose it")
    site.ways[old].refuse()
    same(site.promoted(other) is old, True, "chosen again: and they choose the first one again")
    same(replication_id(old), before, "chosen again: which was never demoted")
    for lock, what in (
        (fresh, "chosen again: nobody is elected there at once"),
        (new, "chosen again: nor by a new lock"),
    ):

        def elected(of: Any = lock) -> Any:
            return of.write(term("f"), of.read(within=SHORT).get("version", ""), within=SHORT)

        says(elected, "nobody is elected for another", what=what)
    leads(fresh, "chosen again: but after a lease")
    for x in (d, fresh, new, first):
        x.end()
    site.close()


def in_use() -> None:
    """A lock waits for a server that hangs, while the others of its process are sent to a second and a third one: the
    connection on which it waits is still there when its time is over."""
    with Redis() as a, Redis() as b, Redis() as c:
        group = [Sentinel(a, quorum=9) for _ in range(3)]
        d = Driver()
        for lock in ("waits", "goes"):
            d.open(url_of(group, lock), lock)
            ok(tried(lambda: d.read(lock), "ok", "absent")["outcome"] == "absent", f"in use: {lock} reads on the first")
        a.pause()
        number = d.start("read", "waits", within_ms=30_000)
        for server in (b, c):
            for s in group:
                s.cli("SENTINEL", "REMOVE", Sentinel.MASTER)
            says(lambda: d.read("goes", within=SHORT), "watches no primary", what="in use: they name nobody")
            for s in group:
                s.cli("SENTINEL", "MONITOR", Sentinel.MASTER, "127.0.0.1", str(server.port), "9")
            r = tried(lambda: d.read("goes", within=SHORT), "absent")
            same(r["outcome"], "absent", "in use: they name another one, where the other lock reads")
        r = d.wait(number)
        ok(r["outcome"] == "failed", "in use: what waits for the first fails when its time is over", r)
        a.resume()
        r = tried(lambda: d.read("waits", within=SHORT), "absent")
        same(r["outcome"], "absent", "in use: and is asked of the last one then")
        same(d.end(), 0, "in use: and both close in peace")
        for s in group:
            s.close()


def counted_once() -> None:
    """Names that lead to the same Sentinel."""
    with Redis() as server:
        group = Sentinel.group(server, 0)
        first, second, _ = (s.port for s in group)
        name = Sentinel.MASTER
        twice = opened(f"redis+sentinel://localhost:{first},127.0.0.1:{first}/{name}#x")
        says(
            lambda: twice.read(within=SHORT),
            "2 of the 3 Sentinels",
            "URL names 2",
            "is the same Sentinel as",
            what="counted once: a Sentinel under two names is one",
        )
        good = opened(f"redis+sentinel://localhost:{first},127.0.0.1:{first},127.0.0.1:{second}/{name}#x")
        leads(good, "counted once: and with another one two of three")
        for d in (twice, good):
            d.end()
        for s in group:
            s.close()


def minority() -> None:
    """Sentinels that are gone or silent: most must answer, and the rest costs nothing."""
    site = Site()
    one, two, three = site.group
    d = opened(site.url())
    d.do("watch")
    leads(d, "minority: with three Sentinels it leads")
    one.pause()
    for _ in range(5):
        w = leads(d, "minority: one hangs, and it goes on")
    two.pause()
    says(
        lambda: d.read(within=SHORT),
        "2 of the 3 Sentinels",
        str(one.port),
        str(two.port),
        what="minority: two hang: nobody leads, and why",
    )
    says(
        lambda: d.write(term(), w["version"], within=SHORT),
        "2 of the 3 Sentinels",
        what="minority: and nothing is written, to no server",
    )
    one.resume()
    leads(d, "minority: one of them answers again, and it leads")
    two.kill()
    leads(d, "minority: the other one is dead, and it leads")
    three.kill()
    says(
        lambda: d.read(within=SHORT), "2 of the 3 Sentinels", str(three.port), what="minority: one alone does not count"
    )
    three.start()
    leads(d, "minority: two are there again")
    same(d.end(), 0, "minority: and the lock closes in peace")
    alone = opened(url_of([one]))
    says(
        lambda: alone.read(within=SHORT),
        "2 of the 3 Sentinels",
        "URL names 1",
        what="minority: who names one Sentinel of three has no majority",
    )
    alone.end()
    site.close()


def counted_from() -> None:
    """A lease counts from before the Sentinels were asked. Were it from when the server was, a term could outlast the
    wait of who is told of a later primary meanwhile."""
    site = Site(1)
    ways = [Way(s.port) for s in site.group]
    at = ",".join(f"127.0.0.1:{way.port}" for way in ways)
    d = opened(f"redis+sentinel://{at}/{Sentinel.MASTER}#x")
    w = leads(d, "counted: a term")
    for way in ways:
        way.delay(0.4)
    w = d.write(record("a"), w["version"])
    good = w["outcome"] == "ok" and w["sent_ms"] + 400 <= w["took_ms"] + 1
    ok(good, "counted: a write counts from before slow Sentinels were asked", w)
    d.end()
    for way in ways:
        way.close()
    site.close()


def of_two_minds() -> None:
    """Sentinels that name different servers."""
    with Redis() as a, Redis() as b:
        group = [Sentinel(s, quorum=9) for s in (a, b, a, b)]
        d = opened(url_of(group))
        says(lambda: d.read(within=SHORT), "3 of the 4 Sentinels",
             f"names 127.0.0.1:{a.port}", f"names 127.0.0.1:{b.port}",
             what="two minds: half of them is no majority, and the error says what each names")  # fmt: skip
        e = opened(url_of(group[:3]))
        same(e.write(term(), "", within=SHORT)["outcome"] in ("ok", "failed"), True, "two minds: of three, two count")
        leads(e, "two minds: and it leads where these say")
        same((a.cli("EXISTS", "x"), b.cli("EXISTS", "x")), ("1", "0"), "two minds: and nowhere else")
        d.end(), e.end()
        for s in group:
            s.close()


def wrong_quorum() -> None:
    """A quorum that more Sentinels must reach than are left promotes nobody; a quorum of one lets a Sentinel that is
    wrong begin a failover: the lock follows when a majority does."""
    site = Site(quorum=3)
    d = opened(site.url())
    leads(d, "quorum: of three, all are there")
    site.group[2].kill()
    leads(d, "quorum: two name the primary still")
    site.servers[0].kill()
    says(
        lambda: d.read(within=SHORT),
        str(site.ways[site.servers[0]].port),
        what="quorum: when it dies nobody is promoted, and the error names it",
    )
    site.servers[0].start()
    leads(d, "quorum: when it is back it leads")
    d.end()
    site.close()
    first = Redis(*DURABLE)
    second = Redis(*DURABLE, replica_of=first)
    group = Sentinel.group(first, 1, quorum=1)
    d, e = opened(url_of(group)), opened(url_of(group))
    d.do("watch")
    leads(e, "quorum: of one: a term")
    wait_for(lambda: second.cli("EXISTS", "x") == "1")
    group[0].cli("SENTINEL", "FAILOVER", Sentinel.MASTER)  # as if it were down: without asking the others
    ok(wait_for(lambda: [s.named() for s in group].count(second.port) >= 2), "quorum: of one: all follow")
    leads(e, "quorum: of one: the term goes on where they say")
    same(second.cli("ROLE").split()[0], "master", "quorum: of one: which is the new primary")
    hears(d, e, "quorum: of one: and notices come from there")
    d.end(), e.end()
    for s in [*group, first, second]:
        s.close()


def passwords() -> None:
    """Sentinels and servers have passwords of their own, and speak TLS."""
    with tempfile.TemporaryDirectory() as where:
        pki = Pki(where)
        one = TlsRedis("--requirepass", "se/rver", "--masterauth", "se/rver", pki=pki)
        more = [f"sentinel auth-pass {Sentinel.MASTER} se/rver", "requirepass wat/cher"]
        group = [Sentinel(one, *more, pki=pki) for _ in range(3)]
        at = ",".join(f"{s.host}:{s.port}" for s in group)
        with open(f"{where}/word", "w") as f:
            f.write("wat/cher\n")

        def url(server: str, sentinel: str, key: str = "x") -> str:
            return f"rediss+sentinel://{server}{at}/{Sentinel.MASTER}/3?ca={pki.ca}{sentinel}#{key}"

        good = url(":se%2Frver@", "&sentinel_password=wat%2Fcher")
        d = Driver()
        shown = d.open(good)["url"]
        same("rver" in shown or "wat" in shown, False, "passwords: people see none of them")
        e = opened(url(":se%2Frver@", f"&sentinel_password_file={where}/word"))
        d.do("watch")
        leads(e, "passwords: with both it leads, of a file or of the URL")
        hears(d, e, "passwords: and is told of changes")
        same(one.cli("-n", "3", "EXISTS", "x", password="se/rver"), "1", "passwords: in its database")
        for what, wrong, said in (
            ("the Sentinels' missing", url(":se%2Frver@", ""), "sentinel_password_file"),
            (
                "the Sentinels' wrong",
                url(":se%2Frver@", "&sentinel_password=wr0ng"),
                "refuses the user or the password",
            ),
            ("the server's missing", url("", "&sentinel_password=wat%2Fcher"), "it wants a password"),
            ("the server's wrong", url(":wr0ng@", "&sentinel_password=wat%2Fcher"), "refuses the user"),
        ):
            g = opened(wrong)
            r = says(lambda: g.read(within=SHORT), said, what=f"passwords: {what}: is told")
            same("wr0ng" in r["err"]["text"], False, f"passwords: {what}: without the password")
            g.end()
        same([d.end(), e.end()], [0, 0], "passwords: all close in peace")
        for s in [*group, one]:
            s.close()


def strangers() -> None:
    """What is no Sentinel, and what no lock's URL is."""
    with Redis() as server:
        group = Sentinel.group(server, 0)
        plain = opened(f"redis://{group[0].host}:{group[0].port}/x")
        says(
            lambda: plain.read(within=SHORT),
            "it is a Sentinel",
            "redis+sentinel://",
            what="strangers: a Sentinel by redis://",
        )
        plain.end()
        d = opened(f"redis+sentinel://127.0.0.1:{server.port}/m#x")
        says(lambda: d.read(within=SHORT), "no Sentinel", what="strangers: a server in the place of Sentinels")
        d.end()
        d = opened(url_of(group).replace(Sentinel.MASTER, "another"))
        says(
            lambda: d.read(within=SHORT),
            '"another"',
            "watches no primary",
            what="strangers: a name that they do not know",
        )
        d.end()
        for s in group:
            s.close()
    for url, said in (
        ("redis+sentinel://u:secret@h/m", "name is missing"),
        ("redis+sentinel://u:secret@h/m#", "name is missing"),
        ("redis+sentinel://u:secret@h#k", "have for the primary is missing"),
        ("redis+sentinel://u:secret@h/m/x#k", "database's number is expected"),
        ("redis+sentinel://u:secret@h/m/1?db=2#k", "two databases"),
        ("redis+sentinel://u:secret@h,h:26379/m#k", "named twice"),
        ("redis+sentinel://u:secret@h/m?ca=/f#k", "write rediss://"),
        ("redis+sentinel://u:secret@h/m?db=1&db=2#k", "db is given twice"),
        ("redis://u:secret@h/k?db=1&db=2", "db is given twice"),
        ("redis+sentinel://u:secret@h/m?sentinel_username=w#k", "without sentinel_password_file"),
        ("redis+sentinel://u:secret@h/m#%zz", "bad percent escape"),
        ("redis+sentinel://u:secret@h/m?sentinel_password_file=/no/such#k", "/no/such"),
        ("redis-sentinel://u:secret@h/0#m", "redis+sentinel://S1,S2,S3/MASTER#KEY"),
        ("sentinel://h:26379;sentinel://h2", "redis+sentinel://S1,S2,S3/MASTER#KEY"),
        ("redis://u:secret@h/0?master_name=m", "redis+sentinel://S1,S2,S3/MASTER#KEY"),
        ("redis://u:secret@h/k?sentinelMasterId=m", "redis+sentinel://S1,S2,S3/MASTER#KEY"),
    ):
        d = Driver()
        o = d.open(url)
        good = not o["ok"] and said in o["err"] and "secret" not in o["err"]
        ok(good, f"strangers: {url.replace('secret', '...')} is refused: {said}", o)
        d.end()
    d = Driver()
    for url, printed in (
        ("redis+sentinel://a,b:1,[::1]/m#k/1", "redis+sentinel://a:26379,b:1,[::1]:26379/m#k/1"),
        ("rediss+sentinel://a/m?db=2&ca=/f#k", "rediss+sentinel://a:26379/m/2?ca=/f#k"),
        ("redis+sentinel://a/m/0#k", "redis+sentinel://a:26379/m#k"),
        ("redis+sentinel://a/m#k?ssl=1", "redis+sentinel://a:26379/m#k%3Fssl=1"),
    ):
        same(d.open(url, url).get("url"), printed, f"spellings: {url}")
        same(d.open(printed, printed).get("url"), printed, f"spellings: and it is the same printed: {printed}")
    d.end()


def fenced() -> None:
    """A script writes where its lock's Sentinels say, also after a failover."""
    site = Site()
    text = """
        local redis = require "lunarch.redis"
        return { on_leading = function(term)
            local store = redis.beside(term)
            while true do print(store:fenced(term, "INCR", "done")) sleep(0.2) end
        end }"""
    c = Candidate("--lock", site.url(), "-e", text, options=STEADY)

    def count() -> int:
        primary = site.primary()
        return int(primary.cli("GET", "done") or 0) if primary else 0

    ok(wait_for(lambda: count() > 2), "fenced: redis.beside finds the primary")
    site.servers[0].kill()
    site.promoted(site.servers[0])
    before = count()
    ok(wait_for(lambda: count() > before), "fenced: and the one that is promoted")
    c.stop()
    site.close()


CASES = [
    fenced,
    counted_from,
    failover,
    cut_off,
    chosen_again,
    in_use,
    counted_once,
    minority,
    of_two_minds,
    wrong_quorum,
    passwords,
    strangers,
]
only = [globals()[n] for n in sys.argv[1:]]
if only:
    at_once(*only)
    done()
store = Store()
run(store, BASIC + NETWORK + SERVER + REPEATED + [read_only])
store.end()
secret = RedisSentinelTls()
run(secret, SERVER)
secret.end()
note("the Sentinels' own cases")
at_once(*CASES)
stop_everyone()
done()

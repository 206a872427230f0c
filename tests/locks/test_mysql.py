#!/usr/bin/env -S PYTHONPATH=. python3
"""The lock in MariaDB passes the conformance suite against Debian's server, and its own cases. MYSQLD=PROGRAM: against
that MySQL."""

import os
import subprocess
import sys
import threading
from typing import Any

from tests.lib.lock_cases import BASIC, NETWORK, SERVER, full, missed_notices, read_only, run
from tests.lib.lock_driver import Driver, record, told, tried
from tests.lib.pki import Pki
from tests.lib.processes import LUNARCH, children, runs_lock_file, scratch, wait_for
from tests.lib.servers import lock_table, mysql_server
from tests.lib.stores import FullMariaDB, MariaDB as Store
from tests.lib.tap import at_once, done, ok, same, skip


def term(holder: str = "a", lease_ms: int = 1000) -> Any:
    return record(holder, token=7, leaseDurationMs=lease_ms)


def opened(url: str) -> Driver:
    d = Driver({})
    o = d.open(url)
    if not o["ok"]:
        raise RuntimeError(o["err"])
    return d


def rights() -> None:
    with mysql_server() as server:
        server.sql("CREATE USER reader; GRANT SELECT ON test.* TO reader; CREATE USER writer")
        at = f"127.0.0.1:{server.port}/test#r"
        x = opened(f"mysql://nobody@{at}")
        ok(told(x.read(), "Access denied", outcome=("refused",)), "rights: a user that is not there is told")
        x.end()
        d = opened(f"mysql://reader@{at}")
        ok(
            told(d.write(term(), ""), "GRANT SELECT, INSERT, UPDATE", outcome=("refused",)),
            "rights: who may not make the table is told what to grant",
        )
        server.sql(lock_table())
        server.sql("GRANT SELECT, INSERT, UPDATE ON lunarch_locks TO writer")
        ok(
            told(d.write(term(), ""), "GRANT SELECT, INSERT, UPDATE", outcome=("refused",)),
            "rights: nor may one who can only read write",
        )
        d.end()
        e = opened(f"mysql://writer@{at}")
        w = e.write(term(), "")
        same(w["outcome"], "ok", "rights: with a table that is there, nobody needs the right to make one")
        same(e.write(record("a", token=7), w["version"], floor=7)["outcome"], "ok", "rights: and a record is renewed")
        e.end()


def lunarch(*args: str) -> tuple[int, str]:
    r = subprocess.run([LUNARCH, *args], capture_output=True, text=True, timeout=120)
    return r.returncode, r.stdout + r.stderr


def granted() -> None:
    """The rights that docs/stores/mysql.md lists: with them a user runs, lists and examines; without one it is told
    which."""
    run, all = "SELECT, INSERT, UPDATE, CREATE", "SELECT, INSERT, UPDATE, CREATE, DELETE"
    with mysql_server("--innodb-flush-log-at-trx-commit=1") as server:

        def user(name: str, rights: str, on: str = "test.*") -> str:
            server.sql(f"CREATE USER {name}; GRANT {rights} ON {on} TO {name}")
            return f"mysql://{name}@127.0.0.1:{server.port}/test#"

        def leads_and_lists(what: str, place: str) -> None:
            for n in (1, 2):  # the second time there is a record
                status, text = lunarch("exec", "--lock", place + "job", "--", "sleep", "3")
                good = status == 0 and "became_leader" in text and "denied" not in text
                ok(good, f"granted: {what}: exec leads, renews and releases, time {n}", text)
            status, text = lunarch("list", place)
            ok(place + "job" in text and "released" in text, f"granted: {what}: list shows it", text)

        leads_and_lists(run, user("runs", run))
        status, text = lunarch("doctor", "--lock", user("examines", all) + "d")
        ok(status == 0 and "denied" not in text, f"granted: {all}: doctor calls it fit", text)
        same(server.sql("SELECT name FROM lunarch_locks WHERE name LIKE '%doctor%'"), "", "granted: and cleans up")
        for right in ("SELECT", "INSERT", "UPDATE"):
            place = user("no_" + right.lower(), all.replace(right + ", ", ""))
            status, text = lunarch("doctor", "--lock", place + "d")
            good = status in (1, 69) and 1 <= text.count(f"{right} command denied") <= 3
            ok(good, f"granted: without {right} doctor calls it unfit and names the right", f"{status}: {text}")
        status, text = lunarch("list", f"mysql://no_select@127.0.0.1:{server.port}/test#")
        ok(status == 69 and "SELECT command denied" in text, "granted: list names the right that it lacks", text)
        status, text = lunarch("doctor", "--lock", f"mysql://runs@127.0.0.1:{server.port}/test#d")
        ok(
            status == 0 and "DELETE command denied" in text and "stays behind" in text,
            "granted: without DELETE doctor says that it could not try a deletion, and what it leaves",
            text,
        )
        server.sql("DROP TABLE lunarch_locks")
        status, text = lunarch("doctor", "--lock", user("no_create", "SELECT, INSERT, UPDATE, DELETE") + "d")
        ok(
            status == 1 and "CREATE command denied" in text,
            "granted: where the table is not there, who may not make it is told",
            text,
        )
        server.sql(lock_table())
        leads_and_lists("three, on the table made by hand", user("by_hand", "SELECT, INSERT, UPDATE", "lunarch_locks"))


def passwords() -> None:
    """Locks of a process share a driver if they have one password, and only then."""
    first, second = "moon-shine-1", "moon-shine-2"
    with mysql_server() as server:
        server.sql(f"CREATE USER luna IDENTIFIED BY '{first}'; GRANT ALL ON test.* TO luna")
        d, at = Driver({}), f"127.0.0.1:{server.port}/test"

        def drivers() -> list[int]:
            return [p for p in children(d.process.pid) if runs_lock_file(p)]

        def of(what: str) -> str:
            texts = []
            for pid in drivers():
                with open(f"/proc/{pid}/{what}", errors="replace") as f:
                    texts.append(f.read())
            return "".join(texts)

        d.open(f"mysql://luna:{first}@{at}#a", "a")
        w = d.write(term(), "")
        same(w["outcome"], "ok", "passwords: with the right one a term begins")
        d.open(f"mysql://luna:{first}@{at}#b", "b")
        same(
            (d.read("b")["outcome"], len(drivers())), ("absent", 1), "passwords: another lock with it shares the driver"
        )
        d.open(f"mysql://luna:{second}@{at}#c", "c")
        r = d.read("c")
        ok(told(r, "Access denied", outcome=("refused",)), "passwords: with another one a lock is refused")
        same(len(drivers()), 2, "passwords: by a driver of its own, which has not the first's connections")
        w = d.write(record("a", token=7), w["version"], floor=7)
        same(w["outcome"], "ok", "passwords: the first goes on")
        server.sql(f"ALTER USER luna IDENTIFIED BY '{second}'")
        same(
            tried(lambda: d.read("c"), "absent")["outcome"],
            "absent",
            "passwords: changed on the server, the other serves",
        )
        w = d.write(record("a", token=7), w["version"], floor=7)
        same(w["outcome"], "ok", "passwords: and the first keeps its connections")
        ok(
            "moon-shine" not in of("cmdline") + of("environ"),
            "passwords: none is in a driver's arguments or environment",
        )
        ok("moon-shine" not in str(r), "passwords: nor in what is said of a refusal")
        d.end()


def other_server() -> None:
    """The table says that it was on another server, as after a promotion or in a dump that was restored."""
    with mysql_server() as server:
        server.sql("CREATE USER luna; GRANT ALL ON test.* TO luna")
        d = opened(f"mysql://luna@127.0.0.1:{server.port}/test#o")
        w = d.write(term(lease_ms=60_000), "")
        same(w["outcome"], "ok", "another server: a term")
        server.sql("UPDATE lunarch_locks SET record = 'elsewhere' WHERE name = ''")
        e = opened(f"mysql://luna@127.0.0.1:{server.port}/test#o")
        version = e.read()["version"]
        ok(told(e.write(term("b", 60_000), version)), "another server: nobody is elected there at once")
        same(e.read()["version"], version, "another server: and nothing was changed")
        same(
            d.write(record("a", token=7), w["version"], floor=7)["outcome"],
            "ok",
            "another server: the term that is there goes on",
        )
        e.end()
        e = opened(f"mysql://luna@127.0.0.1:{server.port}/test#o")
        short = tried(lambda: e.write(term("b", 1), e.read()["version"]), "ok")
        same(short["outcome"], "ok", "another server: who has waited for a lease is elected")
        server.sql("UPDATE lunarch_locks SET record = 'elsewhere' WHERE name = ''")
        n = opened(f"mysql://luna@127.0.0.1:{server.port}/test#new")
        w = tried(lambda: n.write(term("n", 1), n.read()["version"]), "ok")
        same(w["outcome"], "ok", "another server: so is who has waited for a lock that is not there")
        d.end(), e.end(), n.end()


def elsewhere() -> None:
    """A session whose default database is another one, and that does not commit by itself: the lock is where its URL
    says."""
    with mysql_server() as server:
        server.sql("CREATE DATABASE other; CREATE USER luna; GRANT ALL ON test.* TO luna; GRANT ALL ON other.* TO luna")
        d = opened(f"mysql://luna@127.0.0.1:{server.port}/test#e")
        w = tried(lambda: d.write(term(), ""), "ok")
        server.sql("SET GLOBAL init_connect = 'USE other'")
        e = opened(f"mysql://luna@127.0.0.1:{server.port}/test#e")
        r = e.read()
        same((r["outcome"], r.get("version")), ("ok", w["version"]), "elsewhere: the record is seen")
        same(e.write(term("e"), "")["outcome"], "conflict", "elsewhere: nobody else begins a term")
        tables = "SELECT COUNT(*) FROM information_schema.tables WHERE table_name = 'lunarch_locks'"
        same(server.sql(tables).strip(), "1", "elsewhere: there is one table")
        server.sql("RENAME TABLE lunarch_locks TO gone")
        gone = [d.read(), d.write(record("a", token=7), w["version"]), d.write(term(), "")]
        ok(all(told(x, "was there before") for x in gone), "elsewhere: a table that vanishes is no absent record")
        server.sql("RENAME TABLE gone TO lunarch_locks")
        same(d.read()["version"], w["version"], "elsewhere: it is used again when it is back")
        d.end(), e.end()


def fenced() -> None:
    """As docs/stores/mysql.md says: sharing the token's index entry holds up a term, and no renewal."""
    with mysql_server() as server:
        server.sql("CREATE USER luna; GRANT ALL ON test.* TO luna")
        d = opened(f"mysql://luna@127.0.0.1:{server.port}/test#f")
        w = d.write(record("a", token=5), "")
        held = "START TRANSACTION; SELECT token FROM lunarch_locks FORCE INDEX (token) WHERE name = 'f' AND token = 5 "
        held += "LOCK IN SHARE MODE; SET @v = 1; SET SESSION innodb_lock_wait_timeout = 1; "
        same(
            server.sql(held + "SELECT COUNT(*) FROM lunarch_locks FORCE INDEX (token) WHERE name = 'f' AND token = 6"),
            "5\n0",
            "fenced: the token of the term is there, a later one is not",
        )
        same(d.write(record("a", token=5), w["version"], floor=5)["outcome"], "ok", "fenced: a renewal goes on")
        d.end()


def held_open() -> None:
    """A fenced transaction that takes long: a new term waits for it, and a renewal does not."""
    with mysql_server() as server:
        server.sql("CREATE USER luna; GRANT ALL ON test.* TO luna")
        d, e = (opened(f"mysql://luna@127.0.0.1:{server.port}/test#h") for _ in range(2))
        version: Any = d.write(record("a", token=5), "")["version"]
        e.read()
        asleep = "SELECT SLEEP(12)"
        row = "SELECT 1 FROM lunarch_locks FORCE INDEX (token) WHERE name = 'h' AND token = 5 LOCK IN SHARE MODE"
        held = threading.Thread(target=server.sql, args=(f"START TRANSACTION; {row}; {asleep}; COMMIT",))
        held.start()
        wait_for(lambda: asleep in server.sql("SELECT info FROM information_schema.processlist WHERE info LIKE '%SL%'"))
        w = d.write(record("a", token=5), version, floor=5, within=8000)
        same(w["outcome"], "ok", "held open: a renewal goes on beside a fenced transaction")
        t = e.write(record("b", token=6, leaseDurationMs=1), w["version"], within=5000)
        ok(told(t, "somebody's transaction holds the row", outcome=("failed",)), "held open: a new term does not begin")
        r = d.read()
        same(r["record"]["holderIdentity"], "a", "held open: and nothing is changed")
        t = e.write(record("b", token=6, leaseDurationMs=1), w["version"])
        held.join()
        same(t["outcome"], "ok", "held open: it begins when that transaction has ended")
        d.end(), e.end()


def tls() -> None:
    pki, other = Pki(scratch()), Pki(scratch())
    elsewhere = pki.sign("elsewhere", "/CN=elsewhere", "DNS:elsewhere.invalid")
    with mysql_server(pki=pki) as server, mysql_server(pki=pki, certificate=elsewhere) as named:
        for s in (server, named):
            s.sql("CREATE USER luna REQUIRE SSL; GRANT ALL ON test.* TO luna")
        at = f"mysql://luna@127.0.0.1:{server.port}/test"
        d = opened(f"{at}?ca={pki.ca}#t")
        w = d.write(record("a", token=1), "")
        same(w["outcome"], "ok", "TLS: with the server's authority")
        same(d.write(record("a", token=1), w["version"], floor=1)["outcome"], "ok", "TLS: and on the same connection")
        d.end()
        for what, url in (
            ("another authority", f"{at}?ca={other.ca}#t"),
            ("the system's authorities", f"{at}?tls=true#t"),
            ("a certificate for another name", f"mysql://luna@127.0.0.1:{named.port}/test?ca={pki.ca}#t"),
            ("no TLS, where the user must have it", f"{at}#t"),
        ):
            d = opened(url)
            r, w = d.read(within=5000), d.write(record("b", token=2), "", within=5000)
            ok(
                all(x["outcome"] in ("failed", "refused") and x["err"]["text"] for x in (r, w)),
                f"TLS: {what}: it fails: {r.get('err', {}).get('text')}",
            )
            d.end()


def about() -> None:
    """What doctor says of a server that may lose what it has acknowledged."""
    for options, said in (
        (["--innodb-flush-log-at-trx-commit=1"], None),
        (["--innodb-flush-log-at-trx-commit=2"], "innodb_flush_log_at_trx_commit is not 1"),
    ):
        with mysql_server(*options) as server:
            server.sql("CREATE USER luna; GRANT ALL ON test.* TO luna")
            url = f"mysql://luna@127.0.0.1:{server.port}/test#d"
            r = subprocess.run([LUNARCH, "doctor", "--lock", url], capture_output=True, text=True, timeout=120)
            text = r.stdout + r.stderr
            good = ("MySQL 8" if os.environ.get("MYSQLD") else "MariaDB 1") in text and (
                said in text if said else "flush_log" not in text
            )
            ok(good, f"about: {options[0]}: doctor says {said or 'nothing'}", text)


def no_room() -> None:
    if os.geteuid():
        skip("out of space", "it needs root")
        return
    small = FullMariaDB()
    run(small, [full])
    small.end()


if os.environ.get("MYSQLD"):  # where the table's first term waits for a lease, always; the others begin without that
    OWN = [about]
else:
    OWN = [rights, granted, other_server, elsewhere, fenced, held_open, passwords, tls, about, no_room]
only = [globals()[n] for n in sys.argv[1:]]
if only:
    at_once(*only)
    done()
store = Store()
run(store, BASIC + [c for c in NETWORK if c is not missed_notices] + SERVER + [read_only])  # it gives no notices
store.end()
for i in range(0, len(OWN), 4):
    at_once(*OWN[i : i + 4])
done()

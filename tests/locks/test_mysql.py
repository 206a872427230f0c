#!/usr/bin/env python3
"""The lock in MariaDB passes the conformance suite against Debian's server, and its own cases."""

import os
import subprocess
import sys
import threading
from typing import Any

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from lock_cases import BASIC, NETWORK, SERVER, full, missed_notices, read_only, run
from lock_driver import Driver, record, tried
from pki import Pki
from processes import LUNARCH, scratch, wait_for
from servers import MariaDB
from stores import FullMariaDB, MariaDB as Store
from tap import at_once, done, note, ok, same, skip

TABLE = (
    "CREATE TABLE lunarch_locks (name VARBINARY(1000) NOT NULL PRIMARY KEY, token BIGINT NOT NULL, record MEDIUMBLOB "
    "NOT NULL, version VARBINARY(63) NOT NULL, changed DATETIME(6) NOT NULL, server VARBINARY(63) NOT NULL, "
    "UNIQUE KEY token (name, token)) ENGINE=InnoDB"
)


def term(holder: str = "a", lease_ms: int = 1000) -> Any:
    return record(holder, token=7, leaseDurationMs=lease_ms)


def opened(url: str) -> Driver:
    d = Driver({})
    o = d.open(url)
    if not o["ok"]:
        raise RuntimeError(o["err"])
    return d


def told(result: Any, *said: str, outcome: tuple[str, ...] = ("failed", "refused")) -> bool:
    text = result.get("err", {}).get("text", "")
    good = result["outcome"] in outcome and all(s in text for s in said)
    if not good:
        note(f"{result}, not {said}")
    return good


def rights() -> None:
    with MariaDB() as server:
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
        server.sql(TABLE)
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


def other_server() -> None:
    """The table says that it was on another server, as after a promotion or in a dump that was restored."""
    with MariaDB() as server:
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
        d.end(), e.end()


def fenced() -> None:
    """As docs/locks.md says: sharing the token's index entry holds up a term, and no renewal."""
    with MariaDB() as server:
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
    with MariaDB() as server:
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
    with MariaDB(pki=pki) as server, MariaDB(pki=pki, certificate=elsewhere) as named:
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
        with MariaDB(*options) as server:
            server.sql("CREATE USER luna; GRANT ALL ON test.* TO luna")
            url = f"mysql://luna@127.0.0.1:{server.port}/test#d"
            r = subprocess.run([LUNARCH, "doctor", "--lock", url], capture_output=True, text=True, timeout=120)
            text = r.stdout + r.stderr
            good = "MariaDB 1" in text and (said in text if said else "flush_log" not in text)
            ok(good, f"about: {options[0]}: doctor says {said or 'nothing'}", text)


def no_room() -> None:
    if os.geteuid():
        skip("out of space", "it needs root")
        return
    small = FullMariaDB()
    run(small, [full])
    small.end()


only = [globals()[n] for n in sys.argv[1:]]
if only:
    at_once(*only)
    done()
store = Store()
run(store, BASIC + [c for c in NETWORK if c is not missed_notices] + SERVER + [read_only])  # it gives no notices
store.end()
at_once(rights, other_server, fenced)
at_once(held_open, tls, about, no_room)
done()

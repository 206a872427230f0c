#!/usr/bin/env python3
"""The lock in MariaDB passes the conformance suite against Debian's server, and its own cases."""

import os
import sys
from typing import Any

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from lock_cases import BASIC, NETWORK, SERVER, missed_notices, read_only, run
from lock_driver import Driver, record, tried
from servers import MariaDB
from stores import MariaDB as Store
from tap import at_once, done, note, ok, same

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
        w = opened(f"mysql://nobody@{at}")
        ok(told(w.read(), "Access denied", outcome=("refused",)), "rights: a user that is not there is told")
        w.end()
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


store = Store()
only = [globals()[n] for n in sys.argv[1:]]
if only:
    at_once(*only)
    done()
run(store, BASIC + [c for c in NETWORK if c is not missed_notices] + SERVER + [read_only])  # it gives no notices
store.end()
at_once(rights, other_server, fenced)
done()

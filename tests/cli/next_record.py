#!/usr/bin/env -S PYTHONPATH=. python3
"""The record of who comes next, for who looks at a store: no command takes it for a lock, doctor and check try it, and
an election whose lock is named as another's leaves it alone."""

import atexit
import json
from typing import Any

from tests.lib import stores
from tests.lib.candidates import Candidate, stop_everyone
from tests.lib.commands import check, run
from tests.lib.lock_driver import NOMINATION, Driver, record
from tests.lib.processes import wait_for
from tests.lib.tap import at_once, done, ok, same

LEAD = "return { on_leading = function(s) sleep(1000) end }"
NO_LOCK = "is no lock, but the record of who comes next beside one: name that lock"


def beside(store: Any, key: str, **fields: Any) -> str:
    """The URL of a next record that is there."""
    d = Driver(store.env)
    d.open(store.url(key))
    url = str(d.open_next(store.url(key))["url"])
    w = d.write(record("zoe", **NOMINATION, address="zoe:80", **fields), "", "n")
    same((w["outcome"], d.end()), ("ok", 0), f"{store.name}: a record of who comes next is there")
    return url


def commands(store: Any) -> None:
    s, url = store.name, beside(store, "job")
    check(
        run("status", "--lock", url),
        1,
        "It is no lock",
        "zoe, at zoe:80, priority 7",
        what=f"{s}: status says what it is",
    )
    j = json.loads(run("status", "--json", "--lock", url).stdout)
    same(
        (j["state"], j["leader"], j["next"]),
        ("no lock", None, {"identity": "zoe", "address": "zoe:80", "priority": 7}),
        f"{s}: and so does its JSON",
    )
    check(run("leader", "--lock", url), 1, "no lock", what=f"{s}: leader does not print its address")
    r = run("release", "--force", "--lock", url, "--reason", "test", "--token", "1")
    check(r, 1, NO_LOCK, what=f"{s}: release leaves it alone")
    check(run("check", "-e", LEAD, "--lock", url), 1, "PROBLEM", NO_LOCK, what=f"{s}: check calls it a problem")
    check(run("doctor", "--lock", url), 2, NO_LOCK, what=f"{s}: doctor does not begin")
    held = store.get(store.next_key("job"))
    c = Candidate("-e", LEAD, "--lock", url, "--identity", "ann")
    ok(c.wait("foreign_record"), f"{s}: an election that has it for its lock says that it is somebody else's")
    same((len(c.all("became_leader")), store.get(store.next_key("job"))), (0, held), f"{s}: and does not overwrite it")
    c.stop()
    r = run("check", "-e", LEAD, "--lock", store.url("job"))
    ok(r.returncode == 0 and "comes next:" not in r.stdout, f"{s}: check of its lock finds nothing wrong with it")
    store.put(store.next_key("job"), b"hello\n")
    check(
        run("check", "-e", LEAD, "--lock", store.url("job")),
        0,
        "nobody will be told who comes next: ",
        "Everything else works",
        what=f"{s}: or says that something else is in its place, and what that costs",
    )
    store.end()


def forced() -> None:
    """A lock that is freed by force keeps its next record: who comes next is no business of the dead leader's."""
    store = stores.File()
    d = Driver()
    d.open(store.url("job"))
    d.write(record("gone", token=41, leaseDurationMs=2000, leaseDurationSeconds=2, retryPeriodMs=200), "")
    d.end()
    beside(store, "job")
    held = store.get(store.next_key("job"))
    check(
        run("release", "--force", "--lock", store.url("job"), "--reason", "off", "--token", "41"),
        0,
        "is free",
        what="release: the lock is freed",
    )
    same(store.get(store.next_key("job")), held, "release: who comes next is as it was")
    store.end()


RIGHTS = (
    "+evalsha +eval +script|load +strlen +get +set +del +hmget +hset +publish +subscribe +unsubscribe +info +time +role"
)


def doctored() -> None:
    """Without rights to the next record a store is fit, and it is said what that costs."""
    store = stores.Redis()
    words = ["~job*", "~{job*}:lunarch", "&{job*}:changed", *RIGHTS.split(), "+wait", "+select", "+echo"]
    store.server.cli("ACL", "SETUSER", "old", "reset", "on", ">pw", *words)
    url = f"redis://old:pw@127.0.0.1:{store.port}/job"
    check(
        run("doctor", "--lock", url),
        0,
        "note   next     the record of who comes next cannot be read: ",
        "NOPERM",
        "Elections work without it, but nobody is told who comes next",
        "This store is fit",
        what="doctor: without the rights to it a store is fit, and what that costs is said",
    )
    check(
        run("check", "-e", LEAD, "--lock", url),
        0,
        "nobody will be told who comes next: ",
        "NOPERM",
        "docs/stores",
        what="check: says so, too",
    )
    store.server.cli("ACL", "SETUSER", "old", "~{job*}:next", "&{job*}:next:changed")
    check(
        run("doctor", "--lock", url),
        0,
        "good   next     the record of who comes next is kept beside it: ",
        what="doctor: with them it is good",
    )
    ok(wait_for(lambda: not store.server.cli("KEYS", "*").split()), "doctor: and nothing stays of what it has made")
    store.end()


def main() -> None:
    atexit.register(stop_everyone)
    kinds = stores.File, stores.SharedFile, stores.Etcd, stores.Redis, stores.Postgres, stores.ZooKeeper
    at_once(forced, doctored, *[lambda k=k: commands(k()) for k in kinds])


main()
done()

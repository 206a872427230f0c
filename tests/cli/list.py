#!/usr/bin/env -S PYTHONPATH=. python3
"""list: a line for each election of a place, on real stores."""

import atexit
import json
import socket
import subprocess
from typing import Any

from tests.lib import stores
from tests.lib.candidates import Candidate, stop_everyone
from tests.lib.commands import CLEAN, Result, check, run
from tests.lib.lock_driver import NOMINATION, Driver, record
from tests.lib.processes import LUNARCH, scratch, wait_for
from tests.lib.tap import at_once, done, ok, same


def lines(r: Result) -> list[list[str]]:
    return [line.split() for line in r.stdout.splitlines()]


def elections(store: Any) -> None:
    s = store.name
    check(run("list", store.url("app-")), 1, "no election begins so", what=f"{s}: where no election is, list is 1")
    lock = store.url("app-web")
    c = Candidate("-e", "sleep(1000)", "--lock", lock, "--identity", "ann", "--address", "ann:80", name="ann")
    ok(c.wait("became_leader"), f"{s}: a candidate leads")
    r = run("list", store.url("app-"))
    check(r, 0, what=f"{s}: with a leader in each of them, list is 0")
    got, status = lines(r), json.loads(run("status", "--json", "--lock", lock).stdout)
    same(got[0], ["LOCK", "STATE", "LEADER", "ADDRESS", "TERM", "TOKEN", "SINCE"], f"{s}: the columns have titles")
    same(
        got[1][:6],
        [status["lock"], "leading", "ann", "ann:80", str(status["term"]), str(status["token"])],
        f"{s}: a line has what status has: lock, state, leader, address, term, token",
    )
    same(len(got[1]), 8, f"{s}: and the day and time since when")
    run("exec", "--lock", store.url("app-job"), "--", "true")
    store.put("app-note", b"hello\n")
    d = Driver(store.env)
    d.open(store.url("app-old"))
    d.write(record("bob", renewTime="2020-01-02T03:04:06.000000Z"), "")
    d.open_next(store.url("app-old"))
    same(d.write(record("zoe", **NOMINATION), "", "n")["outcome"], "ok", f"{s}: a record of who comes next is there")
    d.end()
    r = run("list", store.url("app-"))
    same(
        [(row[0].rsplit("app-", 1)[1], *row[1:3]) for row in lines(r)[1:]],
        [("job", "released", "-"), ("old", "overdue", "bob"), ("web", "leading", "ann")],
        f"{s}: sorted by name, a released election and one whose leader is overdue are told apart",
    )
    check(
        r, 1, "1 more that begin so are no elections", what=f"{s}: list is 1 if nobody leads in one; others are counted"
    )
    r = run("list", "--json", store.url("app-"))
    objects = [json.loads(line) for line in r.stdout.splitlines()]
    same([o["state"] for o in objects], ["released", "overdue", "leading"], f"{s}: --json is an object a line")
    same(
        {k: v for k, v in objects[2].items() if not k.startswith("renewed")},
        {k: v for k, v in status.items() if not k.startswith("renewed")},
        f"{s}: --json: the same as status --json",
    )
    check(
        run("list", store.url("app-we")),
        0,
        status["lock"],
        what=f"{s}: a longer prefix, and what is left of the key's name",
    )
    c.stop()
    store.end()


def usage() -> None:
    check(run("list", "a", "b"), 2, "one URL at a time", what="two URLs are a usage error")
    check(run("list", "none:"), 2, "cannot be listed", what="a lock without a store cannot be listed")
    check(run("list", "nosuch://x/"), 2, "there is no such kind of lock", what="an unknown scheme is a usage error")
    check(run("list", scratch() + "/none/"), 69, "is not there", what="a directory that is not there is 69")
    check(
        run("list", "--json", "--watch", "x"),
        2,
        "unknown option --watch",
        what="an option of another command is none of list's",
    )
    check(run("list", "--help"), 0, "fencing token", "Exit status", "Examples:", what="its help says what it prints")
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        p = subprocess.Popen(
            [LUNARCH, "list", f"redis://ann:geheim@127.0.0.1:{deaf.getsockname()[1]}/app-"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=CLEAN,
        )

        def shown() -> str:
            with open(f"/proc/{p.pid}/cmdline") as f:
                return f.read()

        ok(wait_for(lambda: "ann:***@" in shown()), "a password among the arguments is hidden from other users")
        said = p.communicate(timeout=120)[0]
        same(
            (p.returncode, "geheim" in said), (69, False), "a store that does not answer is 69; no password is printed"
        )
    ok("--json" in run("-x", "complete", "list", "-").stdout, "its options are completed")


def main() -> None:
    atexit.register(stop_everyone)
    at_once(
        usage,
        *[
            lambda c=c: elections(c())
            for c in (stores.File, stores.Etcd, stores.Redis, stores.Postgres, stores.ZooKeeper)
        ],
    )


main()
done()

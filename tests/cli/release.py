#!/usr/bin/env -S PYTHONPATH=. python3
"""lunarch release: frees the record of a leader that is dead for sure, on every real store, and of no other; and the
commands that take a script in place of its lock."""

import atexit
import json
import os
import re
import shutil
import subprocess
from typing import Any

from tests.lib.candidates import Candidate, stop_everyone
from tests.lib.commands import CLEAN, Result, run
from tests.lib.processes import LUNARCH, scratch, wait_for
from tests.lib.stores import Etcd, File, Postgres, Redis, SharedFile, Store, ZooKeeper
from tests.lib.tap import done, ok, same

TMP = scratch()
atexit.register(shutil.rmtree, TMP, True)
atexit.register(stop_everyone)


def release(url: str, *more: str, reason: str = "host7 is switched off") -> Result:
    return run("release", "--force", "--lock", url, "--reason", reason, *more)


def vanished(**fields: int) -> bytes:
    """The record of a leader on a machine that is gone, with a lease of an hour."""
    return json.dumps(
        {
            "holderIdentity": "host7_gone",
            "leaseDurationSeconds": 3600,
            "acquireTime": "2026-01-02T03:04:05.000000Z",
            "renewTime": "2026-01-02T03:04:06.000000Z",
            "leaderTransitions": 3,
            "leaseDurationMs": 3600000,
            "renewDeadlineMs": 2400000,
            "retryPeriodMs": 500,
            "term": 9,
            "token": 41,
            "state": "leading",
            "write": "0123456789abcdef0123456789abcdef",
            "address": "10.0.0.7:80",
            "incarnation": "01234567-89ab-cdef-0123-456789abcdef",
            "checkpoint": {"last": 17},
            "of another program": [1, 2],
            **fields,
        }
    ).encode()


def seen(url: str) -> dict[str, Any]:
    return json.loads(run("status", "--json", "--lock", url).stdout)


def on_store(store: Store) -> None:
    url, name = store.url("freed"), store.name
    first = Candidate(
        "--lock", url, "-e", "sleep(1e6)"
    )  # a store may doubt what it is told of a lock that is new to it
    token = first.event("became_leader")["token"]
    first.stop()
    store.put("freed", vanished(token=token))
    before = seen(url)
    same(before["leader"], "host7_gone", f"{name}: the record of a vanished leader is there")
    standby = Candidate("--lock", url, "--identity", "standby", "-e", "sleep(1e6)")
    ok(standby.wait("new_leader", "host7_gone"), f"{name}: a standby obeys it")
    p = release(url)
    ok(
        p.returncode == 2 and "dead for sure" in p.stderr and f"--token {before['token']}" in p.stderr,
        f"{name}: without a token the record is shown, with what may go wrong, and nothing is done",
        p.stderr,
    )
    p = release(url, "--token", str(before["token"] + 1))
    ok(
        p.returncode == 1 and f"token {before['token'] + 1} is not in force" in p.stderr,
        f"{name}: with another token than the one in force nothing is done",
        p.stderr,
    )
    same(seen(url)["leader"], "host7_gone", f"{name}: the record is as it was")
    p = release(url, "--token", str(before["token"]))
    ok(
        p.returncode == 0 and "is free: released" in p.stderr,
        f"{name}: with the token in force it is released",
        p.stderr,
    )
    leads = standby.wait("became_leader")
    ok(leads, f"{name}: the standby leads at once, without waiting for the lease of an hour")
    ok(leads and leads["token"] > before["token"], f"{name}: with a larger token", leads)
    said = standby.wait("released_by_force")
    ok(
        said and re.search(r"by \w+ at .*: host7 is switched off", said["message"]),
        f"{name}: the standby's log says who released it, when and why",
        said,
    )
    now = seen(url)
    same(
        [now["leader"], now["previousHolder"], now.get("releasedByForce")],
        ["standby", "host7_gone", None],
        f"{name}: the next term's record names the leader before it, and no release by force any more",
    )
    watched = release(url, "--token", str(now["token"]))
    ok(
        watched.returncode == 1 and "is not dead" in watched.stderr,
        f"{name}: a leader that renews keeps its record",
        watched.stderr,
    )
    same(standby.all("stopped_leading"), [], f"{name}: and its term")
    standby.stop()
    p = release(url, "--token", str(now["token"]))
    ok(p.returncode == 1 and "nobody holds" in p.stderr, f"{name}: what is released is not released again", p.stderr)
    store.put("freed", b"not a record")
    p = release(url, "--token", "1")
    ok(p.returncode == 69, f"{name}: what is no record is not touched", p.stderr)


def kept_in_the_record(store: Store) -> None:
    """Between the release and the next term."""
    url = store.url("kept")
    store.put("kept", vanished())
    release(url, "--token", "41")
    now = seen(url)
    ok(
        now["state"] == "released"
        and now["releasedByForce"].endswith(": host7 is switched off")
        and now["token"] == 41,
        "the record says that it was released by force, by whom and why, and keeps its token",
        now,
    )
    ok("by force" in run("status", "--lock", url).stdout, "status shows it to people, too")
    raw = json.loads(store.get("kept") or b"{}")  # type: ignore[attr-defined]
    same(
        [raw["checkpoint"], raw["of another program"]],
        [{"last": 17}, [1, 2]],
        "the checkpoint and the fields of other programs are kept",
    )


def misuse(store: Store) -> None:
    url = store.url("misuse")
    store.put("misuse", vanished())
    for args, said in (
        (["--lock", url, "--reason", "x"], "ctl resign"),
        (["--force", "--lock", url], "--reason TEXT"),
        (["--force", "--reason", "x"], "which lock?"),
        (["--force", "--lock", url, "--reason", "x" * 201], "at most 200 bytes"),
        (["--force", "--lock", url, "--reason", "x", "--token", "4x"], "expected the token's number"),
    ):
        p = run("release", *args)
        ok(
            p.returncode == 2 and said in p.stderr,
            f"release {' '.join(args)[-30:]!r} is refused, and it is said why",
            p.stderr,
        )
    same(seen(url)["leader"], "host7_gone", "and nothing was done")
    p = release("file:/nowhere/at/all", "--token", "1")
    same(p.returncode, 69, "a lock that cannot be read is released by nobody")


def by_script() -> None:
    """status, leader and release of a script's lock."""
    lock = os.path.join(TMP, "of-a-script")
    one, two = os.path.join(TMP, "one.lua"), os.path.join(TMP, "two.lua")
    with open(one, "w", encoding="utf-8") as f:
        f.write(f"return {{ lock = {lock!r}, address = 'host:1', on_leading = function() end }}\n")
    with open(two, "w", encoding="utf-8") as f:
        f.write(
            f"return {{ {{ name = 'web', lock = '{lock}-web', on_leading = function() end }},"
            f" {{ name = 'job', lock = '{lock}-job', on_leading = function() end }} }}\n"
        )
    p = subprocess.Popen([LUNARCH, "run", one], env=CLEAN, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    ok(
        wait_for(lambda: run("leader", one).stdout == "host:1\n"),
        "leader SCRIPT.lua prints the address of who leads the script's election",
    )
    ok(f"file:{lock}\n" in run("status", one).stdout, "status SCRIPT.lua shows the script's lock")
    p.terminate()
    same(p.wait(60), 0, "the script ends")
    q = run("status", two)
    ok(
        q.returncode == 2 and "--election NAME" in q.stderr and "'web', 'job'" in q.stderr,
        "of a script with several elections they are named",
        q.stderr,
    )
    ok(f"file:{lock}-job\n" in run("status", "--election", "job", two).stdout, "--election chooses one")
    q = run("status", "--election", "jbo", two)
    ok(q.returncode == 2 and "has 'web', 'job'" in q.stderr, "an unknown one is refused", q.stderr)
    q = run("status", os.path.join(TMP, "none.lua"))
    ok(q.returncode == 1 and "none.lua" in q.stderr, "a script that is not there is said", q.stderr)


for kind in (File, SharedFile, Etcd, Redis, Postgres, ZooKeeper):
    place = kind()
    on_store(place)
    if isinstance(place, File) and not isinstance(place, SharedFile):
        kept_in_the_record(place)
        misuse(place)
    place.end()
by_script()
done()

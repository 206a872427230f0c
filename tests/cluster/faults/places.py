#!/usr/bin/env -S PYTHONPATH=. python3
"""Candidates that cannot see each other's processes: two PID or time namespaces on one directory, a holder of another
host; --reclaim; a record or a whole directory that is deleted. Real processes, one lock each."""

import json
import os
import shutil
import signal
import subprocess
import time
from typing import Any

from tests.lib.field import Field, freeze
from tests.lib.processes import children, wait_for
from tests.lib.tap import at_once, done, ok, same

USER = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
ANOTHER_TIME = ["unshare", *USER, "--time", "--boottime", "1000000", "--"]
APART = ["unshare", *USER, "--pid", "--fork", "--kill-child", "--mount-proc", "--"]


def elector_of(c: Any) -> int:
    """unshare stays outside; the elector is its child."""
    return wait_for(lambda: children(c.pid))[0]


def namespaces() -> None:
    """a in a PID namespace of its own, b outside. When a dies b must not think that anything is proved, nor the
    reverse: the same number may be another process here."""
    f = Field("namespaces")
    a = f.join("a", prefix=APART, strict=True)
    ok(f.acts(1, "a"), "two PID namespaces: the one inside leads")
    b = f.join("b", strict=True)
    ok(b.wait("new_leader", "a leads"), "two PID namespaces: the one outside follows")
    ok(f.record()["pid"] < 100, "two PID namespaces: the record's pid means something inside only")
    a.kill(signal.SIGKILL, elector_of(a))
    ok(f.acts(1, "b"), "two PID namespaces: a killed holder inside is followed by the one outside")
    same(
        [b.all("holder_dead"), b.all("death_unproved")],
        [[], []],
        "two PID namespaces: by the lease alone, nothing was proved about its pid",
    )
    a = f.join("a", prefix=APART, strict=True)
    ok(a.wait("new_leader", "b leads"), "two PID namespaces: a new one inside follows")
    b.kill(signal.SIGKILL)
    ok(f.acts(2, "a"), "two PID namespaces: the one outside is killed, and the one inside leads")
    same([a.all("holder_dead"), a.all("death_unproved")], [[], []], "two PID namespaces: by the lease alone, again")
    b = f.join("b", strict=True)
    b.wait("new_leader", "a leads")
    a.kill(signal.SIGTERM, elector_of(a))
    ok(f.acts(2, "b"), "two PID namespaces: a clean stop hands over at once all the same")
    f.verdict("two PID namespaces")
    f.end()


def time_namespaces() -> None:
    """On one host, in one PID namespace: a process seems to have started at another time than its record says, so it
    looks dead where it is not. Both ways."""
    f = Field("time")
    a = f.join("a", strict=True)
    ok(f.acts(1, "a"), "two time namespaces: the one outside leads")
    b = f.join("b", prefix=ANOTHER_TIME, strict=True)
    ok(b.wait("new_leader", "a leads"), "two time namespaces: the one inside follows")
    wait_for(lambda: b.all("death_unproved") or len(f.terms()) > 1 or a.all("stopped_leading"))
    same(
        [[name for _, name in f.terms()], a.all("stopped_leading"), b.all("holder_dead")],
        [["a"], [], []],
        "two time namespaces: a leader that renews leads on, with its processes",
    )
    ok(b.all("death_unproved", "time namespace"), "two time namespaces: the log says that a death could not be proved")
    a.kill(signal.SIGKILL)
    ok(f.acts(1, "b"), "two time namespaces: a killed holder is followed by the one inside")
    same(b.all("holder_dead"), [], "two time namespaces: by the lease alone")
    a = f.join("a", strict=True)
    ok(a.wait("new_leader", "b leads"), "two time namespaces: the one outside follows")
    wait_for(lambda: a.all("death_unproved") or len(f.terms()) > 2)
    same(
        [[name for _, name in f.terms()], b.all("stopped_leading"), a.all("holder_dead")],
        [["a", "b"], [], []],
        "two time namespaces: and lets it lead on",
    )
    b.stop()
    ok(f.acts(2, "a"), "two time namespaces: a clean stop hands over at once all the same")
    f.verdict("two time namespaces")
    f.end()


def another_host() -> None:
    """A record of a living holder elsewhere: its pid is one of ours that lives, and then one that is dead. Neither
    counts. The second has a lock for shared directories, where nobody tells of changes: the candidate polls."""

    def one(what: str, pid: int, option: str) -> None:
        f = Field("host")
        put(f.lock, dict(HOLDER, pid=pid), option)
        a = f.join("a", lock=f.lock + option)
        ok(a.wait("new_leader", "far away"), f"another host, {what}: it is followed")
        for i in range(18):  # it renews for longer than its lease
            time.sleep(0.4)
            put(f.lock, dict(HOLDER, pid=pid, write=f"{i + 1:032x}"), option)
        same(f.terms(), [], f"another host, {what}: as long as it renews, nobody else leads")
        same(a.all("holder_dead"), [], f"another host, {what}: and nothing is proved about it")
        ok(f.acts(1, "a"), f"another host, {what}: silent, it is followed by lease")
        same(
            (newest(f.lock) if option else f.record())["previousHolder"],
            "far away",
            f"another host, {what}: as the record says",
        )
        b = f.join("b", lock=f.lock + option)
        ok(b.wait("new_leader", "a leads"), f"another host, {what}: a second candidate follows")
        a.stop()
        ok(f.acts(1, "b"), f"another host, {what}: and leads when the first one is stopped")
        f.verdict(f"another host, {what}")
        f.end()

    at_once(
        lambda: one("with a pid that lives here", os.getpid(), ""),
        lambda: one("with a pid that is dead here, polled", dead_pid(), "?shared=link"),
    )


HOLDER = {
    "holderIdentity": "far away",
    "leaseDurationSeconds": 6,
    "leaseDurationMs": 6000,
    "renewDeadlineMs": 5000,
    "retryPeriodMs": 400,
    "acquireTime": "2026-01-01T00:00:00.000000Z",
    "renewTime": "2026-01-01T00:00:00.000000Z",
    "leaderTransitions": 3,
    "term": 9,
    "token": 123456,
    "write": "0" * 32,
    "state": "leading",
    "incarnation": "11111111-1111-4111-8111-111111111111",
    "pidStart": 1,
    "bootId": "22222222-2222-4222-8222-222222222222",
    "pidNamespace": 4026531836,
    "tree": "/nowhere/.tree",
}


def put(path: str, record: dict[str, Any], option: str = "") -> None:
    """option: of the lock; with ?shared=link the record becomes the next version."""
    with open(path + ".mine", "w") as f:
        json.dump(record, f)
    if option:
        os.makedirs(path, exist_ok=True)
        path = os.path.join(path, f"{int(max(os.listdir(path), default='0')) + 1:016}")
    os.rename(f.name, path)


def newest(path: str) -> dict[str, Any]:
    with open(os.path.join(path, max(n for n in os.listdir(path) if not n.startswith(".")))) as f:
        return json.load(f)


def dead_pid() -> int:
    p = subprocess.Popen(["true"])
    p.wait()
    return p.pid


def reclaim() -> None:
    """The same identity, started again."""
    f = Field("reclaim")
    put(f.lock, dict(HOLDER, holderIdentity="pod-0", leaseDurationMs=3600000, leaseDurationSeconds=3600))
    a = f.join("pod-0", "--reclaim")
    ok(
        f.acts(1, "pod-0"),
        "--reclaim: an hour's lease of an earlier life on another host, or before a reboot, is taken at once",
    )
    ok(f.record()["token"] > 123456 and f.record()["term"] == 10, "--reclaim: with a new term and a larger token")

    # The same identity on the same host, while the first one lives: that is a mistake, and must not make two leaders.
    b = f.join("pod-0", "--reclaim")
    ok(b.wait("new_leader", "pod-0 leads"), "--reclaim: one that lives on this host is followed")
    time.sleep(1)
    same(len(f.terms()), 1, "--reclaim: and keeps what it has")
    frozen = a.pid
    freeze(a, f.lock)
    os.kill(b.pid, signal.SIGKILL)
    b.leave()
    b = f.join("pod-0", "--reclaim")
    b.wait("new_leader", "pod-0 leads")
    time.sleep(1)
    same(len(f.terms()), 1, "--reclaim: also while it is frozen: only its death or its lease's end frees the lock")
    ok(f.acts(2), "--reclaim: its lease's end does")
    same(b.all("holder_dead"), [], "--reclaim: and nothing was proved")
    os.kill(frozen, signal.SIGCONT)
    a.stop()

    # Killed, it is proved dead, and taken over at once: the lease is an hour's.
    b.stop()
    os.unlink(f.lock)
    hour = ["--lease-duration", "1h"]
    a = f.join("pod-0", "--reclaim", times=hour)
    f.acts(3)
    a.kill(signal.SIGKILL)
    b = f.join("pod-0", "--reclaim", times=hour)
    ok(f.acts(4) and b.wait("holder_dead"), "--reclaim: killed, its death is proved, and its next life leads at once")

    # Alive in another PID namespace of this host: equal boot id, so no proof and no reclaiming.
    b.stop()
    os.unlink(f.lock)
    f.join("pod-0", "--reclaim", prefix=APART, times=hour)
    f.acts(5)
    d = f.join("pod-0", "--reclaim", times=hour)
    ok(d.wait("new_leader", "pod-0 leads"), "--reclaim: one in another PID namespace of this host is followed")
    time.sleep(1)
    same(len(f.terms()), 5, "--reclaim: since nothing can be proved about it")
    f.verdict("--reclaim")
    f.end()

    f = Field("no reclaim")
    put(f.lock, dict(HOLDER, holderIdentity="pod-0", leaseDurationMs=2000, leaseDurationSeconds=2))
    a = f.join("pod-0")
    ok(a.wait("new_leader", "pod-0 leads"), "without --reclaim an earlier life is waited out like anybody")
    ok(f.acts(1), "without --reclaim: and then it leads")
    f.end()


def deleted_record() -> None:
    f = Field("record")
    a = f.join("a")
    f.acts(1, "a")
    token = f.terms()[0][0]
    b = f.join("b")
    b.wait("new_leader")
    os.unlink(f.lock)
    ok(a.wait("stopped_leading", "deleted"), "deleted record: the leader's term ends")
    ok(a.wait("print", f"stopped {token} deleted"), "deleted record: on_stopped is told so")
    ok(f.acts(2), "deleted record: somebody leads again")
    ok(f.terms()[1][0] > token, "deleted record: the token grows though the record was gone")
    f.verdict("deleted record")
    f.end()


def deleted_directory() -> None:
    f = Field("directory")
    a = f.join("a")
    f.acts(1, "a")
    b = f.join("b")
    b.wait("new_leader")
    shutil.rmtree(f.home)
    ok(a.wait("stopped_leading"), "deleted directory: the leader's term ends")
    ok(
        wait_for(
            lambda: [e for e in a.events + b.events if e.get("level") == "warn" and f.home in e.get("message", "")]
        ),
        "deleted directory: the log names it",
    )
    time.sleep(1)
    same(len(f.terms()), 1, "deleted directory: nobody leads without it")
    os.mkdir(f.home)
    ok(f.acts(2), "deleted directory: when it is back, somebody leads")
    ok(f.acts(2) and f.terms()[1][0] > f.terms()[0][0], "deleted directory: with a larger token")
    f.verdict("deleted directory")
    f.end()


at_once(namespaces, time_namespaces, another_host, reclaim, deleted_record, deleted_directory)
done()

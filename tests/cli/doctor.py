#!/usr/bin/env -S PYTHONPATH=. python3
"""doctor: a fit store is called fit, a broken one unfit, and the lock itself is never touched."""

import atexit
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from typing import Any

from tests.lib import stores
from tests.lib.candidates import Candidate, stop_everyone
from tests.lib.commands import CLEAN, check, run
from tests.lib.h2 import Connection, H2Client, H2Server
from tests.lib.processes import LUNARCH, scratch, wait_for
from tests.lib.servers import Etcd, Postgres, Redis
from tests.lib.tap import at_once, done, note, ok, same

TMP = scratch()
DISK = tempfile.mkdtemp(prefix="lunarch-doctor-", dir="/var/tmp")
atexit.register(shutil.rmtree, TMP, True)
atexit.register(shutil.rmtree, DISK, True)
atexit.register(stop_everyone)


def doctor(*args: str, **more: str) -> subprocess.CompletedProcess[str]:
    return run("doctor", *args, env=more, timeout=600)


def test_fit() -> None:
    c = Candidate("-e", "sleep(1000)", "--lock", os.path.join(TMP, "x"))
    ok(c.wait("became_leader"), "an election runs on the lock")
    token = json.loads(open(os.path.join(TMP, "x")).read())["token"]
    check(
        doctor("--lock", os.path.join(TMP, "x")),
        0,
        "one winner in each",
        "larger in every term",
        "turned away",
        "not written to",
        "shortest to trust",
        "is fit",
        what="a file in memory is fit, and every proof is named",
    )
    same(json.loads(open(os.path.join(TMP, "x")).read())["token"], token, "the election beside it has not noticed")
    c.process.terminate()
    c.process.wait(60)
    same([n for n in os.listdir(TMP) if "doctor" in n], [], "nothing of the examination stays")
    r = doctor("--json", "--lock", os.path.join(DISK, "x"))
    try:
        j = json.loads(r.stdout)
    except ValueError:
        j = {}
    if not ok(r.returncode == 0 and j.get("fit") is True, "a file on a disk is fit, in JSON"):
        note(r.stdout + r.stderr)
    same(sorted(f["name"] for f in j["findings"] if f["verdict"] == "unfit"), [], "and nothing in it is unfit")
    ok(
        j["renewals"]["count"] > 0
        and j["renewals"]["median_us"] <= j["renewals"]["p99_us"] <= j["renewals"]["max_us"]
        and j["shortest_lease_ms"] >= 500
        and j["rounds"] > 0,
        "with the figures",
    )
    same(os.listdir(DISK), [], "nothing stays there either")


def below(z: Any, path: str) -> list[str]:
    return [p for c in z.children(path or "/") for p in (f"{path}/{c}", *below(z, f"{path}/{c}"))]


def everything(store: Any) -> list[str]:
    """The names of all that the server keeps."""
    if store.name == "etcd":
        return sorted(
            k["key"] for k in store.call("kv/range", key="AA==", range_end="AA==", keys_only=True).get("kvs", [])
        )
    if store.name == "redis":
        return sorted(store.server.cli("KEYS", "*").split())
    if store.name == "postgres":
        tables = store.server.sql(
            "SELECT relname FROM pg_class WHERE relname LIKE '%lunarch%' ORDER BY relname"
        ).split()
        return tables and tables + store.server.sql("SELECT name FROM lunarch_locks ORDER BY name").splitlines()
    with stores.Zk(store.port) as z:
        return sorted(below(z, ""))


def named(store: Any, word: str) -> None:
    """A store of Debian's packages as it comes: fit, nothing stays, the election beside it goes on, and what it is is
    named."""
    name, lock = store.name, store.url("doctored")
    c = Candidate("--lock", lock, "-e", "return { on_leading = function() end }", options=["--lease-duration", "10s"])
    ok(c.wait("became_leader"), f"{name}: an election runs on the lock")

    def term() -> tuple[int, str]:
        return (json.loads(store.get("doctored"))["term"], json.loads(store.get("doctored"))["acquireTime"])

    led, before = term(), everything(store)
    r = doctor("--json", "--lock", lock)
    j = json.loads(r.stdout or "{}")
    if not ok(r.returncode == 0 and j.get("fit") and word in j["server"], f"{name}: fit, and named"):
        note(r.stdout + r.stderr)
        return
    same(
        list(dict.fromkeys(f["name"] for f in j["findings"])),  # on a slow machine some have a note besides
        ["connect", "server", "race", "token", "deposed", "acquire", "renew", "notice", "deleted", "lease", "next"],
        f"{name}: every proof was done",
    )
    ok(
        j["shortest_lease_ms"] >= 500
        and all(
            0 < j[t]["median_us"] <= j[t]["p99_us"] <= j[t]["max_us"] for t in ("acquisitions", "renewals", "notices")
        ),
        f"{name}: with the figures",
    )
    same(everything(store), before, f"{name}: nothing of the examination stays")
    broken_off(store, before)
    if not ok(term() == led and not c.all("stopped_leading"), f"{name}: the election beside it has not noticed"):
        c.log()
    c.kill(signal.SIGTERM)
    c.leave()
    store.kill()
    check(doctor("--lock", lock), 69, what=f"{name}: a server that is not there is 69")
    store.end()


def broken_off(store: Any, before: list[str]) -> None:
    """Over a slow connection, so that it is not done before it is told to end."""
    proxy = store.proxy()
    proxy.delay(0.05)
    d = subprocess.Popen(
        [LUNARCH, "doctor", "--lock", store.url("doctored", proxy)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=CLEAN,
    )
    there = wait_for(lambda: d.poll() is not None or everything(store) != before)
    d.send_signal(signal.SIGINT)
    said = d.communicate(timeout=120)[0]
    if not ok(
        there and d.returncode == 128 + signal.SIGINT and "broken off" in said and "UNFIT" not in said,
        f"{store.name}: Ctrl-C ends it, without a verdict",
    ):
        note(f"{d.returncode}: {said}")
    same(everything(store), before, f"{store.name}: and nothing stays then, either")
    proxy.close()


def test_stores() -> None:
    def job(kind: Any, word: str, *options: str) -> Any:
        def run() -> None:
            named(kind(*options), word)

        run.__name__ = kind.name
        return run

    at_once(
        job(stores.Etcd, "etcd 3."),
        job(stores.Redis, "Redis "),
        job(stores.Postgres, "PostgreSQL ", "-c", "fsync=on"),
        job(stores.ZooKeeper, "ZooKeeper 3."),
    )


class Poser(H2Server):
    """etcd, but for the version that it names, and without notices. real: the port of the etcd behind it. mute: which
    requests it refuses to answer."""

    def __init__(self, real: Any, version: str, mute: Any = lambda path, body: False) -> None:
        self.real, self.version, self.mute, self.one_at_a_time = H2Client(real), version, mute, threading.Lock()
        super().__init__(self.answer)

    def answer(self, to: Connection, stream: int, path: str, body: bytes) -> None:
        with self.one_at_a_time:
            silent = self.mute(path, body)
        if path.endswith("/Watch"):
            to.answer(stream, None, 12, "no notices here")
        elif silent:
            to.answer(stream, None, 14, "not now")
        elif path.endswith("/Status"):
            to.answer(stream, b"\x12" + bytes([len(self.version)]) + self.version.encode())  # its second field
        else:
            to.answer(stream, *self.real.call(path, body))

    def examined(self, status: int, *words: str, what: str) -> None:
        check(doctor("--lock", f"etcd://127.0.0.1:{self.port}/v"), status, f"etcd {self.version}", *words, what=what)
        self.close()


def is_write(path: str, body: bytes) -> bool:
    return path.endswith("/Txn")


class Muteness:
    """Every second look is not answered, nor is the ninth write that expects the same: eight race, that one is who is
    deposed."""

    def __init__(self) -> None:
        self.looks = 0
        self.writes: list[Any] = []

    def __call__(self, path: str, body: bytes) -> bool:
        if is_write(path, body):
            self.writes.append(body[: 2 + body[1]])  # the comparison, which is the first field, and short
            return self.writes.count(self.writes[-1]) == 9
        if path.endswith("/Range"):
            self.looks += 1
            return self.looks % 2 == 0
        return False


def test_posing() -> None:
    """A store that passes every race can be of a version that is known to lose what it has acknowledged. And no answer
    is no proof: not of stale reads, nor that who is deposed can write."""
    with Etcd() as real:

        def judged(version: str, status: int, *words: str) -> None:
            Poser(real.port, version).examined(status, *words, what=f"etcd {version} is judged")

        at_once(
            lambda: judged("3.5.1", 1, "UNFIT  server", "13766", "3.5.3"),
            lambda: judged("3.3.27", 0, "note   server", "no more repairs"),
            lambda: judged("3.5.3", 0, "good   server"),
            lambda: Poser(real.port, "3.5.4", Muteness()).examined(
                0,
                "note   race",
                "no certain answer in time",
                "good   token",
                "note   deposed",
                "is fit",
                what="one that does not answer every question is fit, with notes",
            ),
            lambda: Poser(real.port, "3.5.5", is_write).examined(
                1, "UNFIT  race", "no round could be decided", "not now", what="one that answers no write is not"
            ),
        )


def test_settings() -> None:
    """What no race can show, the server's settings do."""
    with Postgres() as server:  # the tests' own way: fsync=off
        check(
            doctor("--lock", server.url("x")),
            1,
            "UNFIT  server",
            "fsync",
            what="a database that does not write to its disk is unfit, races or not",
        )
    with Redis() as first, Redis(replica_of=first):
        wait_for(lambda: "state=online" in first.cli("info", "replication"))
        check(
            doctor("--lock", first.url("x")),
            0,
            "replicas=N",
            what="a Redis whose replicas are not waited for: fit, with a note",
        )
        check(doctor("--lock", first.url("x") + "?replicas=1"), 0, "1 replicas", what="one whose replica is waited for")
        for policy, most, status, said in (
            ("noeviction", "100mb", 0, "1 replicas"),
            ("allkeys-lru", "0", 0, "as soon as maxmemory is set"),
            ("allkeys-lru", "100mb", 1, "UNFIT  server"),
            ("volatile-ttl", "100mb", 0, "as long as nobody gives its keys an expiry"),
        ):
            first.cli("CONFIG", "SET", "maxmemory-policy", policy), first.cli("CONFIG", "SET", "maxmemory", most)
            words = [said] if policy == "noeviction" else [said, "maxmemory-policy is " + policy]
            check(
                doctor("--lock", first.url("x") + "?replicas=1"), status, *words, what=f"{policy} with maxmemory {most}"
            )


def test_unfit() -> None:
    """A file system whose locks lock nobody out: what some network file systems are."""
    source, library = os.path.join(TMP, "nolock.c"), os.path.join(TMP, "nolock.so")
    with open(source, "w") as f:
        f.write("int flock(int fd, int how) { (void)fd; (void)how; return 0; }\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    for tries in range(20):  # whether two of the writers meet is chance
        r = doctor("--lock", os.path.join(DISK, "broken"), LD_PRELOAD=library, ASAN_OPTIONS="verify_asan_link_order=0")
        if r.returncode == 1:
            break
    check(doctor("--lock", "none:"), 1, "8 of 8 writers", "two leaders", what="a lock that is none is found out")
    check(r, 1, "UNFIT", "NOT fit", what="a file system whose locks do not lock is found out")


def test_refused() -> None:
    check(doctor(), 2, "lunarch doctor --lock URL", what="without a lock it says which option is missing")
    check(doctor("--lock", "nosuch://x"), 2, "nosuch", what="an unknown scheme")
    os.mkdir(os.path.join(TMP, "ro"))
    check(doctor("--lock", os.path.join(TMP, "nothere", "x")), 69, "nothere", what="a directory that is not there")


test_fit()
test_stores()
test_posing()
test_settings()
test_unfit()
test_refused()
done()

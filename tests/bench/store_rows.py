"""make bench, locks in a server of their own, whose data is in memory: started for it, each peer in the same run on the
same server. A peer that is not installed has a line that says so. The Go contender is built by tests/lib/go_build.sh,
where Go is found."""

import http.client
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import threading
import time
from collections.abc import Callable
from typing import Any

from tests.bench import next_rows
from tests.lib import servers
from tests.lib.candidates import FAST
from tests.lib.processes import CACHE, LUNARCH, ROOT, moment
from tests.lib.sentinel_site import url_of
from tests.bench.rows import (
    HELLO,
    JSON,
    QUICK,
    RUNS,
    Crowd,
    Runner,
    built,
    cpu_ms,
    family,
    handovers,
    pss,
    row,
    standby_of,
    start_times,
)

GO = os.path.join(CACHE, "peers", "election")
LITESTREAM = os.path.join(CACHE, "litestream", "lease")
KAZOO = os.path.join(ROOT, "tests", "cluster", "peers", "kazoo_election.py")


SETTLE = 0.5  # seconds that a standby has been there before it is its turn; peers too


def absent(what: str) -> None:
    if not JSON:
        print(f"  peer: {what}: not installed", flush=True)


def go(program: str) -> Any:
    """A Go contender, built if it can be: a package of the module in tests/cluster/NAME, where it has that name."""
    module, package = program.split(os.sep)[-2:]
    subprocess.run(
        [
            os.path.join(ROOT, "tests", "lib", "go_build.sh"),
            module,
            os.path.join(ROOT, "tests", "cluster", module),
            "./" + package,
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    return os.access(program, os.X_OK)


def kazoo() -> Any:
    return subprocess.run(["/usr/bin/python3", "-c", "import kazoo"], stderr=subprocess.DEVNULL).returncode == 0


def floor(name: str, server: Any) -> Any:
    """Two writes and the notice between them, in C, as idle before as the candidates are."""
    said = subprocess.run(
        [built("floor_store"), name, str(server.port), str(RUNS)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PGUSER": getattr(server, "superuser", "")},
    ).stdout
    return [float(line) for line in said.split()]


# ---- peers ----


def begin(argv: Any) -> Any:
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)


def end(p: Any, sig: Any = signal.SIGTERM) -> None:
    p.send_signal(sig)
    p.wait()
    p.stdout.close()


def peer_handovers(argv: Any) -> Any:
    """SIGTERM to who leads until the next one says its first line."""
    values, holder = [], begin(argv)
    holder.stdout.readline()
    for _ in range(RUNS):
        waiter = begin(argv)
        time.sleep(SETTLE)
        began = time.perf_counter()
        holder.send_signal(signal.SIGTERM)
        waiter.stdout.readline()
        values.append((time.perf_counter() - began) * 1000)
        holder.wait()
        holder.stdout.close()
        holder = waiter
    end(holder)
    return values


def peer_memory(argv: Any) -> Any:
    values = []
    for i in range(5):
        p = begin([a.replace("{i}", str(i)) for a in argv])
        p.stdout.readline()
        time.sleep(0.3)
        values.append(pss([p.pid]))
        end(p)
    return values


def peer_rows(name: str, argv: Any, each: Any) -> None:
    """argv: of a contender for one election; each: for one of many, numbered {i}."""
    row(f"  peer: {name}, start to its first line", None, start_times(each, True), "ms")
    row(f"  peer: {name}, SIGTERM until the next has it", None, peer_handovers(argv), "ms")
    row(f"  peer: {name}, memory (PSS)", None, peer_memory([a.replace("m{i}", "pm{i}") for a in each]), "MB")


# ---- the rows of every store ----


def renewed_at(lock: str) -> Any:
    """When the leader wrote its record last, by the wall clock of this machine."""
    shown = json.loads(
        subprocess.run([LUNARCH, "status", "--json", "--lock", lock], capture_output=True, text=True).stdout
    )
    return moment(shown["renewed"]), shown["leaseDurationMs"] / 1000


def vanish(url: Callable[[str], str]) -> Any:
    """Leaders whose machine is gone (all their processes stopped, so that no death can be proved): how much later than
    their lease the next one leads. Pairs side by side."""
    pairs, values = [], []
    for i in range(4 if QUICK else 10):
        leader = Runner(url(f"v{i}"), options=FAST)
        leader.out.readline()
        pairs.append((leader, standby_of(url(f"v{i}"), FAST), url(f"v{i}")))
    time.sleep(1)  # a standby counts from what it saw itself: at first from its own start, then from a renewal
    for leader, _, _ in pairs:
        for pid in family(leader.log):
            leader.log.kill(signal.SIGSTOP, pid)

    def follow(standby: Any, lock: str) -> None:
        at, lease = renewed_at(lock)
        standby.out.readline()
        values.append((time.time() - at - lease) * 1000)

    threads = [threading.Thread(target=follow, args=(s, lock)) for _, s, lock in pairs]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for leader, standby, _ in pairs:
        for pid in reversed(family(leader.log)):
            leader.log.kill(signal.SIGKILL, pid)
        leader.log.leave()
        leader.out.close()
        standby.leave()
    return values


def resting(url: Callable[[str], str], many: bool) -> Any:
    values = []
    for i in range(5 if QUICK else 10):
        r = Runner(url(f"m{i}" if many else "s"))
        r.out.readline()
        time.sleep(0.3)
        values.append(pss(family(r.log)))
        r.leave()
    return values


def store_rows(
    name: str, server: Any, goals: Any, floors: Any = (None, None), known: bool = False, starts: Any = None
) -> None:
    """goals, floors: of the start and the handover, in ms. known: starts and memory are measured on one lock, which was
    led before: on another the server elects nobody yet. starts: measured already."""
    row(
        f"{name}: start to on_leading, free lock",
        goals[0],
        starts or start_times([LUNARCH, "run", "--lock", server.url("s" if known else "s{i}"), "-e", HELLO], True),
        "ms",
        floors[0],
    )
    row(
        f"{name}: SIGTERM to the leader until the next on_leading",
        goals[1],
        handovers(server.url("h"), lambda c: c.kill(signal.SIGTERM), SETTLE),
        "ms",
        floors[1],
    )
    next_rows.gaps(name, server.url, floors[1])
    row(f"{name}: leader's machine gone: later than its lease", 20, vanish(server.url), "ms")
    row(f"{name}: memory (PSS) of elector + guard + worker, leading", None, resting(server.url, not known), "MB")


# ---- etcd ----


def etcdctl(url: str, *args: Any) -> Any:
    return ["etcdctl", "--endpoints", url, *args]


def etcd(directory: str) -> None:
    with servers.Etcd() as server:
        url = f"http://127.0.0.1:{server.port}"
        store_rows("etcd", server, (12, 3), (floor("etcd_start", server), floor("etcd", server)))
        if shutil.which("etcdctl"):
            os.environ["ETCDCTL_API"] = "3"
            peer_rows("etcdctl lock", etcdctl(url, "lock", "h"), etcdctl(url, "lock", "m{i}"))
            peer_rows("etcdctl elect", etcdctl(url, "elect", "e", "x"), etcdctl(url, "elect", "em{i}", "x"))
        else:
            absent("etcdctl")
        if go(GO):
            peer_rows("Go, clientv3's Election", [GO, url, "go"], [GO, url, "gm{i}"])
        else:
            absent("Go, clientv3's Election")


# ---- the others ----


def redis(directory: str) -> None:
    with servers.Redis() as server:
        # A server whose process has not computed for a lease elects nobody for a lease on a lock that is new to it.
        for lock in "s", "h":
            first = Runner(server.url(lock))
            first.out.readline()
            first.leave()
        store_rows("Redis", server, (None, 1.5), (floor("redis_start", server), floor("redis", server)), True)


def redis_ways(directory: str) -> None:
    """What TLS costs, and that the Sentinels are asked before each operation."""
    with servers.TlsRedis() as secret, servers.Redis() as server:
        group = servers.Sentinel.group(server, 0)
        for name, url in (("Redis over TLS", secret.url), ("Redis by three Sentinels", lambda key: url_of(group, key))):
            for lock in "s", "h":
                first = Runner(url(lock))
                first.out.readline()
                first.leave()
            what = f"{name}: SIGTERM to the leader until the next on_leading"
            row(what, None, handovers(url("h"), lambda c: c.kill(signal.SIGTERM), SETTLE), "ms")
            row(f"{name}: memory (PSS) of elector + guard + worker, leading", None, resting(url, False), "MB")
        for s in group:
            s.close()


def postgres(directory: str) -> None:
    with servers.Postgres() as server:
        store_rows("PostgreSQL", server, (None, 2.5), (floor("postgres_start", server), floor("postgres", server)))


def zookeeper(directory: str) -> None:
    with servers.ZooKeeper() as server:
        hosts = f"127.0.0.1:{server.port}"
        start, two = floor("zookeeper_start", server), floor("zookeeper", server)
        store_rows("ZooKeeper", server, (None, round(statistics.median(two) + 1.5, 1)), (start, two))
        if kazoo():
            run = ["/usr/bin/python3", KAZOO, hosts]
            peer_rows("kazoo's Election", [*run, "/k"], [*run, "/km{i}"])
        else:
            absent("kazoo's Election")


# ---- many in one process ----


class Renewals:
    """Whom the server tells of writes: when each election of a sample was renewed."""

    def __init__(self) -> None:
        self.times: dict[Any, list[float]] = {}
        self.thread = threading.Thread(target=self.listen, daemon=True)
        self.thread.start()

    def listen(self) -> None:
        raise NotImplementedError

    def note(self, key: Any) -> None:
        self.times.setdefault(key, []).append(time.monotonic())

    def late_ms(self, period: Any) -> Any:
        """Each renewal but the first: how much longer than the period after the one before."""
        return sorted((b - a - period) * 1000 for times in self.times.values() for a, b in zip(times, times[1:]))


class RedisRenewals(Renewals):
    def __init__(self, server: Any) -> None:
        self.socket = socket.create_connection(("127.0.0.1", server.port))
        self.socket.sendall(b"PSUBSCRIBE {many*7}:changed\r\n")  # one in ten
        super().__init__()

    def listen(self) -> None:
        lines = self.socket.makefile("rb")
        for line in lines:
            if line.startswith(b"{many") and b"*" not in line:
                self.note(line.strip())

    def requests(self, server: Any) -> Any:
        calls = server.cli("INFO", "commandstats")
        return sum(int(line.split("calls=")[1].split(",")[0]) for line in calls.splitlines() if "cmdstat_eval" in line)


class EtcdRenewals(Renewals):
    """A watch of the keys many2*, about one in ten: clients of the JSON gateway get them in chunks."""

    def __init__(self, server: Any) -> None:
        self.connection = http.client.HTTPConnection(f"127.0.0.1:{server.port}")
        body = {"create_request": {"key": "bWFueTI=", "range_end": "bWFueTM="}}
        self.connection.request("POST", "/v3/watch", json.dumps(body), {"Content-Type": "application/json"})
        super().__init__()

    def listen(self) -> None:
        answer = self.connection.getresponse()
        for line in iter(answer.readline, b""):
            for event in json.loads(line).get("result", {}).get("events", ()):
                self.note(event["kv"]["key"])

    def requests(self, server: Any) -> Any:
        connection = http.client.HTTPConnection(f"127.0.0.1:{server.port}")
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        connection.close()
        return sum(
            float(line.split()[1])
            for line in text.splitlines()
            if line.startswith("grpc_server_handled_total{")
            and 'grpc_method="Txn"' in line
            or 'grpc_method="Range"' in line
        )


def crowd(name: str, server: Any, renewals: Any, n: Any, times: Any) -> None:
    """n elections in one process, each renewed once a retry period of times[2] seconds."""
    options = [
        w
        for pair in zip(("--lease-duration", "--renew-deadline", "--retry-period"), (f"{t}s" for t in times))
        for w in pair
    ]
    one = Crowd(server.url(f"one{n}x"), 1, options)
    alone = pss(family(one.log))
    one.leave()
    seen = renewals(server)
    c = Crowd(server.url("many"), n, options)
    time.sleep(times[2] + 2)
    pids, window = family(c.log), (3 if QUICK else 5) * times[2]
    added = (pss(pids) - alone) * 1024 / n
    seen.times.clear()
    before, asked, began = cpu_ms(pids), seen.requests(server), time.monotonic()
    time.sleep(window)
    spent, asked, passed = cpu_ms(pids) - before, seen.requests(server) - asked, time.monotonic() - began
    late, sampled = seen.late_ms(times[2]), len(seen.times)
    done = sum(map(len, seen.times.values())) * n / max(1, sampled)
    what = f"{name}, {n:,} elections"
    row(f"{what}: start until all lead", None, [c.took], "s")
    row(f"{what}: renewals a second, due {n / times[2]:.0f}", None, [done / passed], "")
    row(f"{what}: requests for a renewal", 1, [asked / done], "")
    row(f"{what}: CPU of a renewal", None, [spent * 1000 / done], "us")
    row(f"{what}: added memory of each", None, [added], "KB")
    for share in (50, 99, 100):
        row(
            f"{what}: renewals late, {share} of 100 less than",
            None,
            [late[min(len(late) - 1, len(late) * share // 100)]],
            "ms",
        )
    c.leave()


def etcd_many(directory: str) -> None:
    for n, times in ((1000, (15, 10, 2)), (10000, (60, 40, 15))):
        with servers.Etcd() as server:
            crowd("etcd", server, EtcdRenewals, n, times)


def redis_many(directory: str) -> None:
    for n, times in ((1000, (15, 10, 2)), (10000, (60, 40, 5))):
        with servers.Redis() as server:
            time.sleep(times[0] + 2)
            crowd("Redis", server, RedisRenewals, n, times)


parts = (etcd, redis, redis_ways, postgres, zookeeper, etcd_many, redis_many)

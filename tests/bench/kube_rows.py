"""make bench, Leases of a real API server, client-go's own elector in the same run on the same server. Server and
contender are built once by make bench-kube (tests/lib/go_build.sh): without them there is a line that says so.
LEASES=N: of kube_many (1000)."""

import os
import signal
import subprocess
import time
from typing import Any

from tests.bench import next_rows
from tests.bench import store_rows
from tests.lib.candidates import timing
from tests.lib.kube_rig import AUDIT_EVERYTHING, TOOLS, AuditedCluster, ClientGo, Cluster, connections
from tests.lib.processes import LUNARCH, moment, piped, wait_for
from tests.bench.rows import built as program
from tests.bench.rows import HELLO, JSON, QUICK, RUNS, Crowd, Runner, cpu_ms, family, first_line, pss, row

KUBE_RUNS = min(RUNS, 10)


def built() -> Any:
    there = all(os.access(os.path.join(TOOLS, name), os.X_OK) for name in ("kube-apiserver", "contender"))
    if not there and not JSON:
        print(
            "Kubernetes: kube-apiserver and client-go's contender are not built yet: make bench-kube builds them and "
            "has these rows",
            flush=True,
        )
    return there


class Place:
    """A namespace as the rows of every store know a server, with an account of its own."""

    def __init__(self, cluster: Any, ns: Any) -> None:
        self.cluster, self.ns = cluster, cluster.namespace(ns)
        self.token = cluster.account(self.ns, "elector")
        self.config = cluster.kubeconfig(self.ns, self.token)

    def account(self, name: str) -> Any:
        return self.cluster.kubeconfig(self.ns, self.cluster.account(self.ns, name))

    def url(self, name: str, config: Any = None) -> Any:
        return f"kube://{self.ns}/{name}?kubeconfig={config or self.config}"

    def go(
        self, name: str, identity: str, lease: str = "15s", renew: str = "10s", retry: str = "2s", config: Any = None
    ) -> Any:
        return ClientGo(config or self.config, self.ns, name, identity, lease, renew, retry)


def floor(place: Any) -> Any:
    """Two writes and the notice between them, in C, as idle before as the candidates are. Of a Lease that was created
    with a holder, as theirs: for one without, the server keeps no managedFields, which takes a fifth of a millisecond
    of each later write."""
    place.cluster.must(
        "POST",
        f"/apis/coordination.k8s.io/v1/namespaces/{place.ns}/leases",
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "floor"},
            "spec": {"holderIdentity": "nobody"},
        },
    )
    server, ca = f"https://127.0.0.1:{place.cluster.port}", place.cluster.api.pki.ca
    said = subprocess.run(
        [program("floor_kube"), server, ca, place.ns, "floor", str(KUBE_RUNS)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "TOKEN": place.token},
    ).stdout
    return [float(line) for line in said.split()]


# ---- client-go ----


def starts(place: Any, name: str, runs: int) -> Any:
    """Ours and client-go's by turns, so that what else the machine does is in both."""
    ours, peers = [], []
    for i in range(runs):
        took, p = first_line([LUNARCH, "run", "--lock", place.url(f"{name}{i}"), "-e", HELLO])
        ours.append(took)
        p.send_signal(signal.SIGTERM)
        p.wait()
        piped(p.stdout).close()
        began = time.monotonic()
        g = place.go(f"{name}{i}-go", "g")
        peers.append((g.wait("started")["at"] - began) * 1000)
        g.stop()
    return ours, peers


def go_handovers(place: Any) -> Any:
    values, holder = [], place.go("gh", "g")
    holder.wait("started")
    for i in range(KUBE_RUNS):
        waiter = place.go("gh", f"g{i}")
        wait_for(lambda: waiter.all("new_leader"))
        began = time.monotonic()
        holder.kill(signal.SIGTERM)
        values.append((waiter.wait("started")["at"] - began) * 1000)
        holder.stop()
        holder = waiter
    holder.stop()
    return values


def go_vanish(place: Any) -> Any:
    """As store_rows.vanish: the leader is stopped, and its lease is counted from its last renewal."""
    pairs, values = [], []
    for i in range(4 if QUICK else 10):
        leader = place.go(f"gv{i}", "gone", "3s", "2s", "400ms")
        leader.wait("started")
        successor = place.go(f"gv{i}", "successor", "3s", "2s", "400ms")
        successor.wait("new_leader")
        pairs.append((leader, successor, f"gv{i}"))
    for leader, successor, name in pairs:
        leader.kill(signal.SIGSTOP)
    last = [moment(place.cluster.lease(place.ns, name)["spec"]["renewTime"]) for _, _, name in pairs]
    to_wall = time.time() - time.monotonic()
    for (leader, successor, _), renewed in zip(pairs, last):
        values.append((successor.wait("started")["at"] + to_wall - renewed - 3) * 1000)
        leader.kill(signal.SIGKILL)
        leader.stop()
        successor.stop()
    return values


def go_resting(place: Any) -> Any:
    values = []
    for i in range(5):
        g = place.go(f"gm{i}", "g")
        g.wait("started")
        time.sleep(0.3)
        values.append(pss([g.pid]))
        g.stop()
    return values


def kube(directory: str) -> None:
    if not built():
        return
    with Cluster() as cluster:
        place = Place(cluster, "bench")
        starts(place, "warm", 10)  # a server that has just been started is slower for everybody
        ours, peers = starts(place, "s", RUNS)
        store_rows.store_rows("Kubernetes", place, (None, 8), (None, floor(place)), starts=ours)
        row("  peer: client-go, start to its first line", None, peers, "ms")
        for what, values, unit in (
            ("SIGTERM until the next has it", go_handovers, "ms"),
            ("leader stopped: later than its lease", go_vanish, "ms"),
            ("memory (PSS)", go_resting, "MB"),
        ):
            row(f"  peer: client-go, {what}", None, values(place), unit)


# ---- what they ask for ----


def asked(place: Any, since: Any, until: Any) -> Any:
    """{account: [what]}: every request that the server received meanwhile, by whom; each once, however many stages it
    went through."""
    seen = {}
    for e in place.cluster.requests():
        who = e["user"]["username"].rpartition(f"system:serviceaccount:{place.ns}:")[2]
        if since <= moment(e["requestReceivedTimestamp"]) < until:
            seen[e["auditID"]] = who, f"{e['verb']} {e.get('objectRef', {}).get('resource') or e['requestURI']}"
    return {who: [what for w, what in seen.values() if w == who] for who in {w for w, _ in seen.values()}}


def kube_requests(directory: str) -> None:
    """All that a leader, the standby that comes next and another one ask for, whatever it is about, by their accounts;
    client-go's meanwhile."""
    if not built():
        return
    minutes = 2.5 if QUICK else 5  # a standby asks every 75 s
    with AuditedCluster(policy=AUDIT_EVERYTHING) as cluster:
        place = Place(cluster, "requests")
        accounts = {name: place.account(name) for name in ("leader", "next", "standby", "go-leader", "go-standby")}
        leader = Runner(place.url("count", accounts["leader"]))
        leader.out.readline()
        following = Runner(place.url("count", accounts["next"]))
        next_rows.await_next(place.url("count"))
        standby = Runner(place.url("count", accounts["standby"]))
        standby.log.wait("new_leader")
        go = [place.go("go-count", "g1", config=accounts["go-leader"])]
        go[0].wait("started")
        go.append(place.go("go-count", "g2", config=accounts["go-standby"]))
        go[1].wait("new_leader")
        time.sleep(5)  # their first requests
        began = time.time()
        time.sleep(60 * minutes)
        count = asked(place, began, began + 60 * minutes)
        for who, name, goal in (
            ("leader", "Kubernetes: requests a minute of a leader at 15/10/2", 34),
            ("next", "Kubernetes: requests a minute of the standby that comes next", 5),
            ("standby", "Kubernetes: requests a minute of another standby", 1),
            ("go-leader", "  peer: client-go, requests a minute of a leader", None),
            ("go-standby", "  peer: client-go, requests a minute of a standby", None),
        ):
            found = count.get(who, [])
            row(name, goal, [len(found) / minutes], "")
            if not JSON:
                print("    " + (", ".join(f"{found.count(w)} {w}" for w in sorted(set(found))) or "none"), flush=True)
        for c in (standby, following, leader):
            c.leave()
        for g in go:
            g.stop()


# ---- many in one process ----


def lateness(puts: Any, period: Any) -> Any:
    """By how much each Lease's longest pause between two renewals was longer than the period; in seconds."""
    times: dict[str, list[float]] = {}
    for e in puts:
        times.setdefault(e["objectRef"]["name"], []).append(moment(e["requestReceivedTimestamp"]))
    return [
        max(b - a for a, b in zip(t, t[1:])) - period for t in [sorted(v) for v in times.values()] if len(t) > 1
    ] or [float("inf")]


def kube_many(directory: str) -> None:
    if not built():
        return
    n, window = int(os.environ.get("LEASES") or 1000), 25 if QUICK else 45
    options = timing("60s", renew="40s", retry="10s")
    with AuditedCluster() as cluster:
        place = Place(cluster, "many")
        url, env = f"kube://{place.ns}/", {"KUBECONFIG": place.config}
        one = Crowd(url + "one-", 1, options, env)
        alone = pss(family(one.log))
        one.leave()
        c = Crowd(url + "many-", n, options, env)
        time.sleep(12)
        pids = family(c.log)
        added, began, before = (pss(pids) - alone) * 1024 / n, time.time(), cpu_ms(pids)
        time.sleep(window)
        spent = cpu_ms(pids) - before
        puts = [
            e
            for e in cluster.requests("lunarch")
            if e["verb"] == "update"
            and e["stage"] == "ResponseComplete"
            and e["responseStatus"]["code"] == 200
            and began <= moment(e["requestReceivedTimestamp"]) < began + window
        ]
        what = f"Kubernetes, {n:,} Leases"
        row(f"{what}: start until all lead", None, [c.took], "s")
        row(f"{what}: TCP connections", None, [connections(pids, cluster.port)], "")
        row(f"{what}: renewals a second, due {n / 10:.0f}", None, [len(puts) / window], "")
        row(f"{what}: CPU of a renewal", None, [spent * 1000 / max(1, len(puts))], "us")
        row(f"{what}: added memory of each", None, [added], "KB")
        row(
            f"{what}: a renewal's time in the API server",
            None,
            [1000 * (moment(e["stageTimestamp"]) - moment(e["requestReceivedTimestamp"])) for e in puts]
            or [float("inf")],
            "ms",
        )
        row(f"{what}: a renewal later than the retry period", 10, lateness(puts, 10), "s")
        row(f"{what}: terms lost", 0, [len(c.log.all("stopped_leading"))], "")
        c.leave()


parts = (kube, kube_requests, kube_many)

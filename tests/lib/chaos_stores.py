"""The stores of the chaos test, each server on a machine of its own, set up so that the promises hold: what is
acknowledged is kept by whoever may serve next.

Not for the conformance cases: stores.py. Used by tests/cluster/faults/chaos.py."""

import os
import shutil
import socket
import struct
import subprocess
import threading
from collections.abc import Callable
from typing import Any

from tests.lib import nats_servers, servers
from tests.lib.kube_rig import LEASES, ApiServer, Cluster
from tests.lib.machines import Machine, Network
from tests.lib.processes import PATIENCE, scratch, wait_for
from tests.lib.tap import note


class Site:
    """A store on its machines."""

    name = "?"
    waits_s = 0.0  # how much longer than a lease and a half nobody may lead, as the pages of docs/stores say

    def __init__(self, network: Network) -> None:
        self.network = network
        self.nodes: list[Any] = []  # of servers.py, each with its machine
        self.busy = [threading.Lock() for _ in range(8)]  # a node is started and killed by one at a time

    def place(self, count: int) -> list[Machine]:
        return [self.network.machine(f"{self.name}{i + 1}") for i in range(count)]

    def url(self) -> str:
        raise NotImplementedError

    def kill(self, i: int) -> None:
        with self.busy[i]:
            self.nodes[i].kill()

    def start(self, i: int) -> None:
        with self.busy[i]:
            self._start(i)

    def _start(self, i: int, *more: str) -> None:
        if self._ended(i):
            self.nodes[i].start(*more)

    def _ended(self, i: int) -> bool:
        """Killed, or of itself: one that could not begin, as an API server without its etcd."""
        n = self.nodes[i]
        if n.process and n.process.poll() is not None:
            n.kill()
        return not n.process

    def pause(self, i: int) -> None:
        with self.busy[i]:
            self.nodes[i].pause()

    def resume(self, i: int) -> None:
        with self.busy[i]:
            self.nodes[i].resume()

    fails_over = False  # of itself; or
    promotes = False  # by an operator who fences, and makes the old primary a standby
    moved = 0  # so often has another server served from then on

    def mend(self) -> None:
        """Every server runs and serves; returns when they say so."""
        for i in range(len(self.nodes)):
            self.resume(i)
            self.start(i)
        wait_for(self.serves, 3 * PATIENCE)

    def serves(self) -> bool:
        return all(n.ready() for n in self.nodes)

    def ends_of_logs(self) -> str:
        return "\n".join(f"== {n.machine.name}\n{n.end_of_log()}" for n in self.nodes)

    def keep(self, there: str) -> str:
        """What the servers said and wrote, for whoever wants to know what became of a write."""
        shutil.rmtree(there, ignore_errors=True)
        os.makedirs(there)
        for n in self.nodes:
            subprocess.run(["cp", "-a", "--sparse=always", n.dir, os.path.join(there, n.machine.name)])
        return there

    def close(self) -> None:
        for n in self.nodes:
            n.close()


class FileSite(Site):
    """A directory that all candidates see, on a small disk. A machine that is cut off cannot write there."""

    name = "file"

    def __init__(self, network: Network) -> None:
        super().__init__(network)
        self.dir = os.path.join(scratch(), "shared")
        os.mkdir(self.dir)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", self.dir], check=True)

    def url(self) -> str:
        return os.path.join(self.dir, "lock")

    def seen_by(self, m: Machine) -> None:
        subprocess.run([*m.through(), "mount", "--bind", self.dir, self.dir], check=True)

    def cut(self, m: Machine, on: bool) -> None:
        how = "ro" if on else "rw"
        subprocess.run([*m.through(), "mount", "-o", f"remount,bind,{how}", self.dir], capture_output=True)

    def fill(self) -> None:
        with open(os.path.join(self.dir, "fill"), "wb", buffering=0) as f:
            try:
                while f.write(b"x" * 4096):
                    pass
            except OSError:
                pass

    def empty(self) -> None:
        try:
            os.unlink(os.path.join(self.dir, "fill"))
        except FileNotFoundError:
            pass

    def mend(self) -> None:
        self.empty()

    def close(self) -> None:
        subprocess.run(["umount", "-l", self.dir], capture_output=True)


class Members(Site):
    """An ensemble: a majority serves."""

    def cluster(self, kind: Any) -> None:
        self.nodes = kind.cluster(3, machines=self.place(3))
        for n in self.nodes:
            n.whole = False  # one that is started again does not wait for the others

    def serves(self) -> bool:
        for n in self.nodes:
            n.whole = True
        good = all(n.ready() for n in self.nodes)
        for n in self.nodes:
            n.whole = False
        return good

    def hosts(self) -> str:
        return ",".join(f"{n.host}:{n.port}" for n in self.nodes)


class EtcdSite(Members):
    name = "etcd"
    waits_s = 3.0  # without a leader of its own

    def __init__(self, network: Network) -> None:
        super().__init__(network)
        self.cluster(servers.Etcd)

    def url(self) -> str:
        return f"etcd://{self.hosts()}/chaos"


class ZooKeeperSite(Members):
    name = "zookeeper"
    waits_s = 15.0  # without a leader of its own, with initLimit and syncLimit of the tests

    def __init__(self, network: Network) -> None:
        super().__init__(network)
        self.cluster(servers.ZooKeeper)

    def url(self) -> str:
        return f"zookeeper://{self.hosts()}/chaos"

    def mend(self) -> None:
        """ZooKeeper 3.8.0 can come to a state in which all servers say that they serve, and nothing is committed any
        more; a restart of its leader helps. That is told, as it is no elector's business."""
        super().mend()
        while not wait_for(self.commits, PATIENCE):
            states = [servers.ask(n.port, "srvr", host=n.host) for n in self.nodes]
            leader = next((i for i, s in enumerate(states) if "Mode: leader" in s), 0)
            note(f"zookeeper: nothing is committed: {self.nodes[leader].machine.name} is restarted: {states}")
            self.kill(leader)
            super().mend()

    def commits(self) -> bool:
        """A session is a write: who gets one has seen it committed."""
        n = self.nodes[0]
        request = struct.pack(">iiqiqi16x", 44, 0, 0, 4000, 0, 16)
        try:
            with socket.create_connection((n.host, n.port), 5) as s:
                s.sendall(request)
                return len(s.recv(4)) == 4
        except OSError:
            return False


class NatsSite(Members):
    name = "nats"
    waits_s = 15.0  # without a leader of the bucket's replicas; one that is cut off answers reads for some seconds

    def __init__(self, network: Network) -> None:
        super().__init__(network)
        self.cluster(nats_servers.Nats)

    def url(self) -> str:
        return f"nats://{self.hosts()}/{nats_servers.BUCKET}#chaos"


class RedisSite(Site):
    """A primary and a replica, which is all that may be promoted. No write counts that the other one has not."""

    name = "redis"
    waits_s = 6.0  # a lease, after a restart or a failover
    fails_over = True
    OPTIONS = (
        *("--appendonly", "yes", "--appendfsync", "always", "--repl-diskless-sync-delay", "0"),
        *("--min-replicas-to-write", "1", "--min-replicas-max-lag", "2", "--protected-mode", "no"),
        *("--repl-timeout", "10", "--repl-ping-replica-period", "1"),
    )

    def __init__(self, network: Network) -> None:
        super().__init__(network)
        self.nodes = [servers.Redis(*self.OPTIONS, start=False, machine=m) for m in self.place(2)]
        self.primary = 0
        self.moving = threading.Lock()
        for i in range(2):
            self.start(i)
        self.mend()

    def url(self) -> str:
        return f"redis://{','.join(f'{n.host}:{n.port}' for n in self.nodes)}/chaos?replicas=1"

    def follow(self) -> list[str]:
        p = self.nodes[self.primary]
        return [p.host, str(p.port)]

    def start(self, i: int) -> None:
        with self.busy[i]:
            self._start(i, *(["--replicaof", *self.follow()] if i != self.primary else []))

    def linked(self) -> bool:
        replica = self.nodes[1 - self.primary]
        return bool(replica.process) and "master_link_status:up" in self._cli(1 - self.primary, "INFO", "replication")

    def _cli(self, i: int, *words: str) -> str:
        try:
            return str(
                subprocess.run(
                    ["redis-cli", "-h", self.nodes[i].host, "-p", str(self.nodes[i].port), *words],
                    capture_output=True,
                    text=True,
                    timeout=5,
                ).stdout
            )
        except subprocess.TimeoutExpired:
            return ""

    def fail_over(self) -> None:
        """As an operator would who looks whether the replica is one before it is promoted. The old primary may live: it
        is told to follow as soon as it hears."""
        with self.moving:
            old, new = self.primary, 1 - self.primary
            if not self.linked() or "OK" not in self._cli(new, "REPLICAOF", "NO", "ONE"):
                return
            self.primary = new
            self.moved += 1
            self._cli(old, "REPLICAOF", *self.follow())

    def mend(self) -> None:
        with self.moving:
            for i in (self.primary, 1 - self.primary):
                self.resume(i)
                self.start(i)
            wait_for(self.serves, 3 * PATIENCE)

    def serves(self) -> bool:
        if "role:master" in self._cli(1 - self.primary, "INFO", "replication"):
            self._cli(1 - self.primary, "REPLICAOF", *self.follow())
        return self.linked()


class PostgresSite(Site):
    """A primary that waits for its standby with each commit, by its name. The standby is promoted while the old primary
    is dead, cut off, or alive; that one is killed then, and comes back as the standby."""

    name = "postgres"
    waits_s = 6.0  # a lease, after a promotion that has lost a term
    promotes = True

    def __init__(self, network: Network) -> None:
        super().__init__(network)
        self.primary = 0
        self.spoiled = ""  # how the other one becomes a standby again; it is not started before
        self.moving = threading.Lock()
        places = self.place(2)
        first = servers.Postgres(*self.options(*places), initdb=["--data-checksums"], machine=places[0])
        # pg_rewind starts the server by itself, too, which knows what is in its files only.
        first.sql("ALTER SYSTEM SET wal_keep_size = '64MB'")
        self.nodes = [first]
        self.nodes.append(servers.Postgres(*self.options(*reversed(places)), standby_of=first, machine=places[1]))
        self.mend()

    @staticmethod
    def options(me: Machine, other: Machine) -> list[str]:
        settings = {
            "cluster_name": me.name,
            "synchronous_standby_names": f"ANY 1 ({other.name})",  # of use to who is a primary
            "wal_sender_timeout": "5s",
            "wal_receiver_timeout": "5s",
        }
        return [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]

    def url(self) -> str:
        hosts = ",".join(f"{n.host}:{n.port}" for n in self.nodes)
        return f"postgres://{servers.Postgres.superuser}@{hosts}/postgres#chaos"

    def start(self, i: int) -> None:
        with self.busy[i]:
            if not self.spoiled or i == self.primary:
                self._start(i)

    def _start(self, i: int, *more: str) -> None:
        if self._ended(i):
            try:
                os.unlink(os.path.join(self.nodes[i].data, "postmaster.pid"))
            except FileNotFoundError:
                pass
        super()._start(i, *more)

    def may_fail_over(self) -> bool:
        return not self.spoiled and bool(self.nodes[1 - self.primary].process)

    def fail_over(self, killed: bool, back: str) -> None:
        """What the primary has acknowledged the standby has, since there is no other one of its name: it may be
        promoted whenever it runs. killed: the primary is, first. back: as `spoiled`."""
        with self.moving:
            old, new = self.primary, 1 - self.primary
            with self.busy[new]:
                if not self.may_fail_over() or not self.nodes[new].ready():
                    return
                if killed:
                    with self.busy[old]:
                        self.nodes[old].kill()
                self.primary, self.spoiled = new, back
                self.nodes[new].promote()
                self.moved += 1

    def rejoin(self) -> None:
        """The old primary is killed if it lives still, and is a standby from then on."""
        with self.moving:
            self._rejoin()

    def _rejoin(self) -> bool:
        old, new = 1 - self.primary, self.primary
        with self.busy[old]:
            if not self.spoiled:
                return True
            try:
                self.nodes[old].kill()
                (self.nodes[old].rewind if self.spoiled == "rewound" else self.nodes[old].copy)(self.nodes[new])
            except (RuntimeError, subprocess.TimeoutExpired) as e:
                note(f"postgres: {self.nodes[old].machine.name} is not {self.spoiled} yet: {str(e).strip()[-200:]}")
                self.spoiled = "copied"  # nothing else is sure to help then
                return False
            self.spoiled = ""
            self._start(old)
            return True

    def mend(self) -> None:
        for i in range(2):
            self.resume(i)
        with self.moving:
            self.start(self.primary)
            if self.nodes[self.primary].sql("SELECT pg_is_in_recovery()") == "t":
                self.nodes[self.primary].promote()
            wait_for(self._rejoin, 3 * PATIENCE)
            self.start(1 - self.primary)
        if not wait_for(self.serves, 3 * PATIENCE):
            note(f"postgres: no standby follows {self.nodes[self.primary].machine.name}")

    def serves(self) -> bool:
        synchronous = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'quorum'"
        try:
            return self.nodes[self.primary].sql(synchronous) == "1"
        except (RuntimeError, subprocess.TimeoutExpired):
            return False


class KubernetesSite(Site):
    """The real API server on a machine, its etcd on another."""

    name = "kubernetes"
    waits_s = 3.0

    def __init__(self, network: Network) -> None:
        super().__init__(network)
        places = self.place(2)
        self.etcd = servers.Etcd(machine=places[0])
        # Whose clock is set back takes no certificate that begins later: these are older than any such step.
        self.cluster: Any = Cluster.on(self.etcd, ApiServer(self.etcd, machine=places[1], older=3))
        self.nodes = [self.etcd, self.cluster.api]
        ns = self.cluster.namespace("chaos")
        self.config = os.path.join(scratch(), "kubeconfig")
        self.cluster.account(ns)
        shutil.copy(self.cluster.kubeconfig(ns, self.cluster.token(ns, seconds=24 * 3600)), self.config)

    def url(self) -> str:
        return f"kube://chaos/chaos?kubeconfig={self.config}"

    def mend(self) -> None:
        super().mend()
        try:
            self.cluster.call("GET", LEASES.format("chaos"))
        except OSError as e:
            note(f"kubernetes: {e}")


SITES: dict[str, Callable[[Network], Site]] = {
    s.name: s for s in (FileSite, RedisSite, EtcdSite, PostgresSite, ZooKeeperSite, KubernetesSite, NatsSite)
}

"""The stores of the chaos test, each server on a machine of its own, set up so that the promises hold: what is
acknowledged is kept by whoever may serve next.

Not for the conformance cases: stores.py. Used by tests/cluster/faults/chaos.py."""

import os
import shutil
import subprocess
import threading
from collections.abc import Callable
from typing import Any

import servers
from kube_rig import LEASES, ApiServer, Cluster
from machines import Machine, Network
from processes import PATIENCE, scratch, wait_for
from tap import note


class Site:
    """A store on its machines."""

    name = "?"
    waits_s = 0.0  # how much longer than a lease and a half nobody may lead, as docs/locks.md says

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
            if not self.nodes[i].process:
                self.nodes[i].start()

    def pause(self, i: int) -> None:
        with self.busy[i]:
            self.nodes[i].pause()

    def resume(self, i: int) -> None:
        with self.busy[i]:
            self.nodes[i].resume()

    def fail_over(self) -> bool:
        """Another server serves from now on. False: there is none that may."""
        return False

    fails_over = False

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
            if not self.nodes[i].process:
                self.nodes[i].start(*(["--replicaof", *self.follow()] if i != self.primary else []))

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

    def fail_over(self) -> bool:
        """As an operator would who looks whether the replica is one before it is promoted. The old primary may live: it
        is told to follow as soon as it hears."""
        with self.moving:
            old, new = self.primary, 1 - self.primary
            if not self.linked() or "OK" not in self._cli(new, "REPLICAOF", "NO", "ONE"):
                return False
            self.primary = new
            self._cli(old, "REPLICAOF", *self.follow())
            return True

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
    """A primary that waits for its standby with each commit."""

    name = "postgres"

    def __init__(self, network: Network) -> None:
        super().__init__(network)
        places = self.place(2)
        first = servers.Postgres(machine=places[0])
        self.nodes = [first]
        second = servers.Postgres("-c", "wal_receiver_timeout=5s", standby_of=first, machine=places[1])
        self.nodes.append(second)
        first.sql("ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (*)'")
        first.sql("ALTER SYSTEM SET wal_sender_timeout = '5s'")
        first.sql("SELECT pg_reload_conf()")
        self.mend()

    def url(self) -> str:
        hosts = ",".join(f"{n.host}:{n.port}" for n in self.nodes)
        return f"postgres://{servers.Postgres.superuser}@{hosts}/postgres#chaos"

    def start(self, i: int) -> None:
        with self.busy[i]:
            if not self.nodes[i].process:
                try:
                    os.unlink(os.path.join(self.nodes[i].dir, "data", "postmaster.pid"))
                except FileNotFoundError:
                    pass
                self.nodes[i].start()

    def serves(self) -> bool:
        try:
            return self.nodes[0].sql("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'quorum'") == "1"
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
        self.cluster: Any = Cluster.on(self.etcd, ApiServer(self.etcd, machine=places[1]))
        self.nodes = [self.etcd, self.cluster.api]
        ns = self.cluster.namespace("chaos")
        self.config = os.path.join(scratch(), "kubeconfig")
        shutil.copy(self.cluster.kubeconfig(ns, self.cluster.account(ns)), self.config)

    def url(self) -> str:
        return f"kube://chaos/chaos?kubeconfig={self.config}"

    def mend(self) -> None:
        super().mend()
        try:
            self.cluster.call("GET", LEASES.format("chaos"))
        except OSError as e:
            note(f"kubernetes: {e}")


SITES: dict[str, Callable[[Network], Site]] = {
    s.name: s for s in (FileSite, RedisSite, EtcdSite, PostgresSite, ZooKeeperSite, KubernetesSite)
}

"""The electors that make compare compares: how each is started on which server, and how its key is deleted. What is not
installed or built is left out, and said.

Not what is done to them: compare.py does that."""

import os
import shutil
import subprocess
from typing import Any

from tests.lib import servers
from tests.lib import stores
from tests.lib.kube_rig import LEASES, TOOLS, Cluster
from tests.lib.processes import CACHE, LUNARCH

HERE = os.path.dirname(os.path.abspath(__file__))

GO = os.path.join(CACHE, "compare")
KAZOO = os.path.join(HERE, "kazoo_election.py")
PYTHON = "/usr/bin/python3"  # Debian's, which has Debian's kazoo
GRPC_QUIET = {"ETCDCTL_API": "3", "GRPC_GO_LOG_SEVERITY_LEVEL": "error"}


def first_line(*argv: str, env: Any = None) -> str:
    try:
        r = subprocess.run(argv, capture_output=True, text=True, env={**os.environ, **(env or {})})
    except OSError:
        return ""
    return next(iter((r.stdout if r.returncode == 0 else "").splitlines()), "")


def go_module(name: str) -> str:
    with open(os.path.join(HERE, "peers", "go.mod")) as f:
        return next((line.split()[1] for line in f if line.strip().startswith(name + " ")), "")


class Peer:
    """One elector. Its work is a process of its own (command), or runs in the elector's (a library)."""

    name = ""
    store = ""
    library = False
    lapse = 15.0  # seconds after which its store takes a silent client for dead, at the most
    patience = 60.0  # how long a test waits for the next leader

    def there(self) -> bool:
        return True

    def version(self) -> str:
        return ""

    def argv(self, server: Any, port: int, key: str, place: str, name: str, kind: str, actor: list[str]) -> list[str]:
        """actor: the command that acts; empty: the program acts itself."""
        raise NotImplementedError

    def delete(self, server: Any, key: str, place: str) -> None:
        raise NotImplementedError


class Exec(Peer):
    name, store = "Lunarch exec", "etcd"

    def version(self) -> str:
        return first_line(LUNARCH, "--version").removeprefix("lunarch ")

    def options(self, port: int, key: str, place: str, name: str) -> list[str]:
        return ["--lock", f"etcd://127.0.0.1:{port}/{key}", "--identity", name, "--state-dir", f"{place}/state-{name}"]

    def argv(self, server: Any, port: int, key: str, place: str, name: str, kind: str, actor: list[str]) -> list[str]:
        return [LUNARCH, "exec", *self.options(port, key, place, name), "--", *actor]

    def delete(self, server: Any, key: str, place: str) -> None:
        server.delete(key)


class Run(Exec):
    name, library = "Lunarch run", True

    def argv(self, server: Any, port: int, key: str, place: str, name: str, kind: str, actor: list[str]) -> list[str]:
        script = os.path.join(HERE, "work.lua")
        more = [script, "--", place, name, kind, *actor]
        return [LUNARCH, "run", *self.options(port, key, place, name), *more]


class Etcdctl(Peer):
    """https://etcd.io/docs/v3.4/dev-guide/interacting_v3/ and "etcdctl lock --help": the command runs while the lock is
    held. --ttl: of its session."""

    name, store = "etcdctl lock", "etcd"

    def there(self) -> bool:
        return bool(shutil.which("etcdctl"))

    def version(self) -> str:
        return first_line("etcdctl", "version", env=GRPC_QUIET).removeprefix("etcdctl version: ")

    def argv(self, server: Any, port: int, key: str, place: str, name: str, kind: str, actor: list[str]) -> list[str]:
        return ["etcdctl", "--endpoints", f"http://127.0.0.1:{port}", "lock", "--ttl", "15", key, "--", *actor]

    def delete(self, server: Any, key: str, place: str) -> None:
        """The leader's key is the oldest of those below the name."""
        start, end = (stores.b64(f"{key}{c}".encode()) for c in "/0")
        range_ = {"key": start, "range_end": end, "limit": 1, "sort_order": "ASCEND", "sort_target": "CREATE"}
        server.call("kv/deleterange", key=server.call("kv/range", **range_)["kvs"][0]["key"])


class EtcdElection(Etcdctl):
    name, library = "Go etcd Election", True
    program = os.path.join(GO, "etcdelection")

    def there(self) -> bool:
        return os.access(self.program, os.X_OK)

    def version(self) -> str:
        return "client " + go_module("go.etcd.io/etcd/client/v3")

    def argv(self, server: Any, port: int, key: str, place: str, name: str, kind: str, actor: list[str]) -> list[str]:
        return [self.program, f"http://127.0.0.1:{port}", key, place, name, kind, *actor]


class Kazoo(Peer):
    name, store, library = "kazoo Election", "zookeeper", True

    def there(self) -> bool:
        return bool(self.version())

    def version(self) -> str:
        return first_line(PYTHON, "-c", "import kazoo; print(kazoo.__version__)")

    def argv(self, server: Any, port: int, key: str, place: str, name: str, kind: str, actor: list[str]) -> list[str]:
        return [PYTHON, KAZOO, f"127.0.0.1:{port}", f"/{key}", place, name, kind, *actor]

    def delete(self, server: Any, key: str, place: str) -> None:
        """The leader's node is the one with the smallest number."""
        program = (
            "import sys, kazoo.client; c = kazoo.client.KazooClient(sys.argv[1]); c.start(); "
            "c.delete(sys.argv[2] + '/' + min(c.get_children(sys.argv[2]), key=lambda n: n[-10:])); c.stop()"
        )
        subprocess.run([PYTHON, "-c", program, f"127.0.0.1:{server.port}", f"/{key}"], check=True, timeout=120)


class ClientGo(Peer):
    name, store, library = "client-go", "kubernetes", True
    program = os.path.join(GO, "clientgo")

    def there(self) -> bool:
        return os.access(self.program, os.X_OK) and os.access(os.path.join(TOOLS, "kube-apiserver"), os.X_OK)

    def version(self) -> str:
        return go_module("k8s.io/client-go")

    def argv(self, server: Any, port: int, key: str, place: str, name: str, kind: str, actor: list[str]) -> list[str]:
        config = server.kubeconfig(server=f"https://127.0.0.1:{port}")
        return [self.program, config, key, place, name, kind, *actor]

    def delete(self, server: Any, key: str, place: str) -> None:
        server.must("DELETE", f"{LEASES.format('default')}/{key}")


class ConsulLock(Peer):
    """https://developer.hashicorp.com/consul/commands/lock: a session of 15 s, which the servers end after twice that,
    and a delay of 15 s after a session that has ended."""

    name, store, lapse, patience = "consul lock", "consul", 30.0, 120.0

    def there(self) -> bool:
        return os.access(servers.Consul.program(), os.X_OK)

    def version(self) -> str:
        return first_line(servers.Consul.program(), "version").removeprefix("Consul ")

    def argv(self, server: Any, port: int, key: str, place: str, name: str, kind: str, actor: list[str]) -> list[str]:
        return [servers.Consul.program(), "lock", f"-http-addr=127.0.0.1:{port}", key, " ".join(actor)]

    def delete(self, server: Any, key: str, place: str) -> None:
        server.delete(f"{key}/.lock")


class Flock(Peer):
    """flock(1): a lock of one machine's kernel; there is no store to be cut off from."""

    name, store, patience = "flock(1)", "", 30.0

    def there(self) -> bool:
        return bool(shutil.which("flock"))

    def version(self) -> str:
        return first_line("flock", "--version").removeprefix("flock from ")

    def argv(self, server: Any, port: int, key: str, place: str, name: str, kind: str, actor: list[str]) -> list[str]:
        return ["flock", f"{place}/lock", *actor]

    def delete(self, server: Any, key: str, place: str) -> None:
        os.unlink(f"{place}/lock")


PEERS: list[Peer] = [Exec(), Run(), Etcdctl(), EtcdElection(), Kazoo(), ClientGo(), ConsulLock(), Flock()]


class KubeServer(Cluster):
    def pause(self) -> None:
        self.api.pause()

    def resume(self) -> None:
        self.api.resume()

    def end(self) -> None:
        self.close()


SERVERS = {"etcd": stores.Etcd, "zookeeper": stores.ZooKeeper, "kubernetes": KubeServer, "consul": stores.Consul}


def actor() -> str:
    """The program that acts, compiled beside the binary under test."""
    home = os.path.join(os.path.dirname(LUNARCH), "tests", "cluster", "compare")
    os.makedirs(home, exist_ok=True)
    out, new = os.path.join(home, "actor"), os.path.join(home, f"actor.{os.getpid()}")
    flags = ["-std=gnu11", "-O1", "-Wall", "-Wextra"]
    subprocess.run([os.environ.get("CC", "cc"), *flags, "-o", new, os.path.join(HERE, "actor.c")], check=True)
    os.rename(new, out)
    return out

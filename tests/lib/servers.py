"""Real servers for the tests, Debian's packages: each on free loopback ports with a private data directory, stopped by
pid.

    with Redis() as server:
        server.url("name")              # a lock URL
        server.pause(); server.resume(); server.kill(); server.start()     # the same ports and data again

Whatever is started here dies with the test, even when the test is killed."""

import atexit
import glob
import http.client
import json
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Any

from tests.lib.pki import Pki
from tests.lib.processes import PATIENCE, ROOT, alive, new_directory, stands_still, wait_for
from tests.lib.proxy import Proxy, Way
from tests.lib.tap import note

START = 3 * PATIENCE  # a JVM, or an API server, on a machine that has much else to start

_lifeline: Any = None
_lifeline_lock = threading.Lock()
_WATCH = r"""
trap '' INT TERM HUP
pids=
while read -r op pid; do
  case $op in
    add) pids="$pids $pid" ;;
    drop) kept=; for p in $pids; do [ "$p" = "$pid" ] || kept="$kept $p"; done; pids=$kept ;;
  esac
done
for p in $pids; do kill -KILL "$p" "-$p" 2>/dev/null; done
"""


def _mark(op: str, pid: int) -> None:
    """A shell that waits for the end of this process and then kills what is still marked, each with its process
    group."""
    global _lifeline
    with _lifeline_lock:
        if not _lifeline:
            _lifeline = subprocess.Popen(
                ["sh", "-c", _WATCH],
                stdin=subprocess.PIPE,
                text=True,
                start_new_session=True,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        _lifeline.stdin.write(f"{op} {pid}\n")
        _lifeline.stdin.flush()


_given = []  # a socket for each port, whose name no other process can have meanwhile


def _outside() -> range:
    """Ports that no outgoing connection is given by the kernel: a server that is started again must find its own
    free."""
    with open("/proc/sys/net/ipv4/ip_local_port_range") as f:
        low, high = map(int, f.read().split())
    return range(10000, low) if low > 15000 else range(high + 1, 65536) if high < 60000 else range(10000, 65536)


def _reserve(port: int) -> bool:
    name = socket.socket(socket.AF_UNIX)
    try:
        name.bind(f"\0lunarch-test-port-{port}")
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            s.bind(("127.0.0.1", port))
    except OSError:
        name.close()
        return False
    _given.append(name)
    return True


def free_port() -> int:
    """A loopback port that nothing listens on, for this process alone as long as it lives."""
    while True:
        port = random.choice(_outside())
        if _reserve(port):
            return port


def ask(port: int, line: str, patience: float = 2, host: str = "127.0.0.1") -> str:
    """One line to a port, what comes back within patience."""
    try:
        with socket.create_connection((host, port), patience) as s:
            s.sendall(line.encode())
            return s.recv(4096).decode(errors="replace")
    except OSError:
        return ""


class SmallDisk:
    """A tmpfs that only who is started through it sees, at `path`; gone with this process. Needs root."""

    namespaces: tuple[str, ...] = ("--mount",)  # that are its own

    def __init__(self, path: str, size: str, user: str | None = None) -> None:
        self.path = path
        os.makedirs(path, exist_ok=True)
        owner = pwd.getpwnam(user or "root")
        options = f"size={size},mode=0700,uid={owner.pw_uid},gid={owner.pw_gid}"
        self.holder: Any = subprocess.Popen(
            [
                "unshare",
                *self.namespaces,
                "--propagation",
                "private",
                "sh",
                "-c",
                f'mount -t tmpfs -o {options} tmpfs "$1" && echo mounted && exec sleep 100000',
                "sh",
                path,
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        _mark("add", self.holder.pid)
        if self.holder.stdout.readline() != "mounted\n":
            raise RuntimeError(f"no tmpfs at {path}")
        self.seen = f"/proc/{self.holder.pid}/root{path}"  # from here

    def through(self, user: str | None = None) -> list[Any]:
        """What to put before a command line."""
        account = pwd.getpwnam(user or "root")
        return [
            "nsenter",
            *self.namespaces,
            "--target",
            str(self.holder.pid),
            "--setuid",
            str(account.pw_uid),
            "--setgid",
            str(account.pw_gid),
        ]

    def fill(self) -> None:
        with open(os.path.join(self.seen, "fill"), "wb", buffering=0) as f:
            try:
                while f.write(b"x" * 4096):
                    pass
            except OSError:
                pass

    def empty(self) -> None:
        os.unlink(os.path.join(self.seen, "fill"))

    def close(self) -> None:
        self.holder.kill()
        self.holder.wait()
        self.holder.stdout.close()
        _mark("drop", self.holder.pid)


class Server:
    """One process. A subclass says how it is started (command), and how one knows that it serves (ready)."""

    user: str | None = None  # a user to start it as, if this is root
    disk: Any = None  # a SmallDisk that it sees
    machine: Any = None  # one of machines.py on which it runs
    environment: dict[str, str] = {}  # variables that it is started with

    def __init__(self, start: bool = True, machine: Any = None) -> None:
        self.machine = machine
        self.dir = new_directory(f"lunarch-{type(self).__name__.lower()}-")
        self.port = free_port()
        self.process: Any = None
        self.log = os.path.join(self.dir, "log")
        self.prepare()
        if self.run_as():
            os.chmod(self.dir, 0o755)
            self.own(self.dir)
        atexit.register(self.close)
        if start:
            self.start()

    @property
    def host(self) -> str:
        return self.machine.address if self.machine else "127.0.0.1"

    def prepare(self) -> None:
        pass

    def command(self) -> list[str]:
        raise NotImplementedError

    def ready(self) -> bool:
        raise NotImplementedError

    def own(self, what: str) -> None:
        """Gives a directory and all in it to whom it runs as."""
        account = pwd.getpwnam(self.run_as() or "root")
        for path, _, files in os.walk(what):
            for p in [path, *(os.path.join(path, f) for f in files)]:
                os.chown(p, account.pw_uid, account.pw_gid)

    def run_as(self) -> str | None:
        return self.user if self.user and os.geteuid() == 0 else None

    def start(self, *more: Any) -> Any:
        """more: further arguments for this run."""
        who = self.run_as()
        where = self.disk or self.machine
        extra: dict[str, Any] = (
            {"user": who, "group": pwd.getpwnam(who).pw_gid, "extra_groups": []} if who and not where else {}
        )
        before = where.through(who) if where else []
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [*before, *self.command(), *more],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.dir,
                env={**os.environ, **self.environment},
                start_new_session=True,
                **extra,
            )
        _mark("add", self.process.pid)
        started = wait_for(lambda: self.process.poll() is not None or self.ready(), START)
        if not started or self.process.poll() is not None:
            note(f"{type(self).__name__} on port {self.port} did not start:")
            note(self.end_of_log())
            raise RuntimeError(f"{type(self).__name__} did not start")
        return self

    def end_of_log(self) -> str:
        with open(self.log, errors="replace") as log:
            return log.read()[-3000:]

    def send(self, sig: int) -> None:
        if self.process and self.process.poll() is None:
            self.process.send_signal(sig)

    def pause(self) -> None:
        self.send(signal.SIGSTOP)
        if self.process:
            wait_for(lambda: stands_still(self.process.pid))

    def resume(self) -> None:
        self.send(signal.SIGCONT)

    def kill(self) -> None:
        self.stop(signal.SIGKILL)

    def stop(self, sig: int = signal.SIGTERM) -> None:
        if not self.process:
            return
        self.send(signal.SIGCONT)
        self.send(sig)
        if sig == signal.SIGKILL:
            self.kill_group()
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill_group()
            self.process.wait()
        _mark("drop", self.process.pid)
        self.process = None

    def kill_group(self) -> None:
        """With the processes that it started and that are in its group still, as nginx's workers: killed, it could not
        end them. Only before it is waited for: as long as its number is its own, so is the group's."""
        if self.process.returncode is None:
            os.killpg(self.process.pid, signal.SIGKILL)

    def restart(self, sig: int = signal.SIGTERM) -> Any:
        self.stop(sig)
        return self.start()

    def close(self) -> None:
        if self.process:
            self.kill()
        if self.disk:
            self.disk.close()
            self.disk = None
        shutil.rmtree(self.dir, ignore_errors=True)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Box(Server):
    """tests/lib/box.py: no store that anybody has, but one for which there is a lock file."""

    def command(self) -> list[str]:
        here = os.path.dirname(os.path.abspath(__file__))
        return [sys.executable, os.path.join(here, "box.py"), str(self.port), os.path.join(self.dir, "data")]

    def ready(self) -> bool:
        return "a box" in ask(self.port, "GET / HTTP/1.0\r\n\r\n")


class Etcd(Server):
    """One node, or a member: Etcd.cluster(3). ETCD can name another version's binary than Debian's (make test-etcd)."""

    def __init__(
        self,
        name: str = "n0",
        peer_port: Any = None,
        cluster: Any = None,
        options: Sequence[str] = (),
        start: bool = True,
        machine: Any = None,
    ) -> None:
        """cluster: where each member is reached by the others."""
        self.name, self.options = name, list(options)
        self.peer_port = peer_port or free_port()
        self.peers = cluster or {name: f"{machine.address if machine else '127.0.0.1'}:{self.peer_port}"}
        super().__init__(start, machine)

    def command(self) -> list[str]:
        here, peer = f"http://{self.host}:{self.port}", f"http://{self.host}:{self.peer_port}"
        members = ",".join(f"{n}=http://{p}" for n, p in self.peers.items())
        words = (
            f"--name {self.name} --data-dir {self.dir}/data --listen-client-urls {here} --advertise-client-urls {here} "
            f"--listen-peer-urls {peer} --initial-advertise-peer-urls {peer} --initial-cluster {members} "
            f"--initial-cluster-token lunarch-{min(self.peers.values())} --logger zap --log-level warn"
        )
        return [os.environ.get("ETCD", "etcd"), *words.split(), *self.options]

    def ready(self) -> bool:
        if len(self.peers) > 1 and not self.whole:
            return True
        question = f"GET /health HTTP/1.0\r\nHost: {self.host}:{self.port}\r\n\r\n"
        return '"health":"true"' in ask(self.port, question, host=self.host).replace(" ", "")

    whole = True  # false while a cluster is being started one by one

    @classmethod
    def cluster(cls, count: int, options: Sequence[str] = (), machines: Sequence[Any] = ()) -> "list[Etcd]":
        places = list(machines) or [None] * count
        ports = [free_port() for _ in range(count)]
        peers = {f"n{i}": f"{m.address if m else '127.0.0.1'}:{p}" for i, (m, p) in enumerate(zip(places, ports))}
        members = [cls(n, p, peers, options, start=False, machine=m) for n, p, m in zip(peers, ports, places)]
        for m in members:
            m.whole = False
            m.start()
        for m in members:
            m.whole = True
            if not wait_for(m.ready, START):
                raise RuntimeError("the etcd cluster did not form")
        return members

    def url(self, key: str) -> str:
        return f"etcd://{self.host}:{self.port}/{key}"


class Consul(Server):
    """One server, or a member: Consul.cluster(3). settings: of its configuration file. CONSUL: the program, if it is
    not where make test-stores builds it."""

    whole = True  # false while a cluster is being started one by one

    def __init__(self, settings: Any = None, members: Any = None, number: int = 0, start: bool = True) -> None:
        self.settings = settings or {}
        self.members = members or [(free_port(), free_port())]  # each one's ports for Raft and for Serf
        self.number = number
        super().__init__(start)

    @staticmethod
    def program() -> str:
        cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        return os.environ.get("CONSUL") or os.path.join(cache, "lunarch-tests", "consul", "consul")

    def prepare(self) -> None:
        raft, serf = self.members[self.number]
        settings = {
            "node_name": f"n{self.number}",
            "server": True,
            "bootstrap_expect": len(self.members),
            "bind_addr": "127.0.0.1",
            "client_addr": "127.0.0.1",
            "data_dir": os.path.join(self.dir, "data"),
            "retry_join": [f"127.0.0.1:{p}" for n, (_, p) in enumerate(self.members) if n != self.number],
            "retry_interval": "1s",
            "disable_host_node_id": True,
            "disable_update_check": True,
            "connect": {"enabled": False},
            "performance": {"raft_multiplier": 1},
            "leave_on_terminate": False,
            "log_level": "warn",
            **self.settings,
            "ports": {
                "http": self.port,
                "server": raft,
                "serf_lan": serf,
                "serf_wan": -1,
                "dns": -1,
                "grpc": -1,
                "grpc_tls": -1,
                **self.settings.get("ports", {}),
            },
        }
        with open(os.path.join(self.dir, "settings.json"), "w") as f:
            json.dump(settings, f)

    def command(self) -> list[str]:
        return [self.program(), "agent", "-config-file", os.path.join(self.dir, "settings.json")]

    def http(self, method: str, path: str, body: bytes | None = None, token: str | None = None) -> tuple[int, bytes]:
        """Status and body."""
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            c.request(method, path, body, {"X-Consul-Token": token} if token else {})
            answer = c.getresponse()
            return answer.status, answer.read()
        finally:
            c.close()

    def ready(self) -> bool:
        """With a leader, reads are answered: there is no such key, or no right to read it."""
        if not self.whole:
            return True
        said = ask(self.port, f"GET /v1/kv/ready?consistent HTTP/1.0\r\nHost: 127.0.0.1:{self.port}\r\n\r\n")
        return said.split(" ")[1:2] in (["404"], ["403"])

    @classmethod
    def cluster(cls, count: int, settings: Any = None) -> "list[Consul]":
        """A server that is frozen stays a voter: Consul would take it out after a while."""
        ports = [(free_port(), free_port()) for _ in range(count)]
        settings = {"autopilot": {"cleanup_dead_servers": False}, **(settings or {})}
        members = [cls(settings, ports, n, start=False) for n in range(count)]
        for m in members:
            m.whole = False
            m.start()
        for m in members:
            m.whole = True
            if not wait_for(m.ready, START):
                raise RuntimeError("the Consul cluster did not form")
        return members

    def leads(self) -> bool:
        """As it says itself."""
        status, body = self.http("GET", "/v1/status/leader?stale")
        return status == 200 and json.loads(body) == f"127.0.0.1:{self.members[self.number][0]}"

    def url(self, key: str) -> str:
        return f"consul://127.0.0.1:{self.port}/{key}"


class Redis(Server):
    """options: redis-server's, as "--appendonly", "yes". replica_of: another Redis."""

    def __init__(self, *options: str, replica_of: Any = None, start: bool = True, machine: Any = None) -> None:
        self.options = list(options)
        if replica_of:
            self.options += ["--replicaof", getattr(replica_of, "host", "127.0.0.1"), str(replica_of.port)]
        super().__init__(start, machine)

    def command(self) -> list[str]:
        return [
            "redis-server",
            "--port",
            str(self.port),
            "--bind",
            self.host,
            "--dir",
            self.dir,
            "--save",
            "",
            *self.options,
        ]

    def ready(self) -> bool:
        return ask(self.port, "PING\r\n", host=self.host).startswith(("+PONG", "-NOAUTH", "-DENIED"))

    def cli(self, *args: str, password: str | None = None) -> str:
        """redis-cli's answer."""
        return subprocess.run(
            ["redis-cli", "-h", self.host, "-p", str(self.port), *args],
            capture_output=True,
            text=True,
            env={**os.environ, **({"REDISCLI_AUTH": password} if password else {})},
            timeout=PATIENCE,
        ).stdout.strip()

    def url(self, key: str) -> str:
        return f"redis://{self.host}:{self.port}/{key}"


class TlsRedis(Redis):
    """Speaks nothing but TLS, also with its replicas and its cluster's members. pki: whose certificate it shows."""

    def __init__(self, *options: str, pki: Any = None, **more: Any) -> None:
        self.pki = pki
        super().__init__(*options, **more)

    def prepare(self) -> None:
        self.pki = self.pki or Pki(self.dir)
        certificate, key = self.pki.server()
        files = ["--tls-cert-file", certificate, "--tls-key-file", key, "--tls-ca-cert-file", self.pki.ca]
        also = ["--tls-auth-clients", "no", "--tls-replication", "yes", "--tls-cluster", "yes"]
        self.options = ["--port", "0", "--tls-port", str(self.port), *files, *also, *self.options]

    def ready(self) -> bool:
        return self.cli("PING").startswith(("PONG", "NOAUTH"))

    def cli(self, *args: str, password: str | None = None) -> str:
        return super().cli("--tls", "--cacert", self.pki.ca, *args, password=password)

    def url(self, key: str) -> str:
        return f"rediss://{self.host}:{self.port}/{key}?ca={self.pki.ca}"


class Sentinel(Server):
    """Watches `primary`, a Redis or a Proxy of one, by the name MASTER. options: lines of its configuration. pki: it
    speaks TLS alone, also to the servers."""

    MASTER, DOWN_MS = "our-primary", 5000

    def __init__(
        self, primary: Any, *options: str, quorum: int = 2, pki: Any = None, start: bool = True, machine: Any = None
    ) -> None:
        self.primary, self.options, self.quorum, self.pki = primary, options, quorum, pki
        super().__init__(start, machine)

    def prepare(self) -> None:
        at = f"{getattr(self.primary, 'host', '127.0.0.1')} {self.primary.port}"
        lines = [f"bind {self.host}", f"dir {self.dir}", f"port {0 if self.pki else self.port}"]
        if self.pki:
            certificate, key = self.pki.server()
            lines += [f"tls-port {self.port}", f"tls-cert-file {certificate}", f"tls-key-file {key}"]
            lines += [f"tls-ca-cert-file {self.pki.ca}", "tls-auth-clients no", "tls-replication yes"]
        lines += [f"sentinel monitor {self.MASTER} {at} {self.quorum}"]
        lines += [f"sentinel down-after-milliseconds {self.MASTER} {self.DOWN_MS}"]
        lines += [f"sentinel failover-timeout {self.MASTER} 3000"]
        with open(os.path.join(self.dir, "sentinel.conf"), "w") as f:  # which it writes to
            f.write("\n".join([*lines, *self.options, ""]))

    def command(self) -> list[str]:
        return ["redis-server", os.path.join(self.dir, "sentinel.conf"), "--sentinel"]

    def ready(self) -> bool:
        return self.cli("PING").startswith(("PONG", "NOAUTH"))

    def cli(self, *args: str, password: str | None = None) -> str:
        more = ["--tls", "--cacert", self.pki.ca] if self.pki else []
        return Redis.cli(self, *more, *args, password=password)  # type: ignore

    def named(self, master: str = "") -> int:
        """The port of the primary that it names; 0: it does not answer, or names none."""
        said = self.cli("SENTINEL", "GET-MASTER-ADDR-BY-NAME", master or self.MASTER).split()
        return int(said[1]) if len(said) == 2 and said[1].isdigit() else 0

    @classmethod
    def group(cls, primary: Any, replicas: int, *options: str, count: int = 3, **more: Any) -> "list[Sentinel]":
        """So many that know each other and the replicas."""
        group = [cls(primary, *options, **more) for _ in range(count)]
        cls.settle(group, replicas)
        return group

    @classmethod
    def settle(cls, group: "list[Sentinel]", replicas: int, password: str | None = None) -> None:
        def knows(s: "Sentinel") -> bool:
            words = s.cli("SENTINEL", "MASTER", cls.MASTER, password=password).split("\n")
            said = dict(zip(words[::2], words[1::2]))
            return (said.get("num-slaves"), said.get("num-other-sentinels"), said.get("flags")) == (
                str(replicas),
                str(len(group) - 1),
                "master",
            )

        if not wait_for(lambda: all(knows(s) for s in group)):
            raise RuntimeError("the Sentinels do not find each other")


class Postgres(Server):
    """options: postgres's, as "-c", "max_connections=20". initdb: its. auth: what pg_hba.conf asks of TCP connections
    but the superuser's. standby_of: another Postgres, or a proxy before it: this is an asynchronous standby of that."""

    user = "postgres"
    superuser, password = "lunarch", "moon light"

    def __init__(
        self,
        *options: str,
        auth: str = "trust",
        initdb: Sequence[str] = (),
        standby_of: Any = None,
        start: bool = True,
        machine: Any = None,
    ) -> None:
        self.options, self.auth, self.initdb, self.standby_of = list(options), auth, list(initdb), standby_of
        super().__init__(start, machine)

    @staticmethod
    def binary(name: str) -> str:
        found = sorted(glob.glob(f"/usr/lib/postgresql/*/bin/{name}"), key=lambda p: int(p.split("/")[4]))
        return found[-1] if found else name

    def prepare(self) -> None:
        os.chmod(self.dir, 0o755)
        if self.standby_of:
            self.copy(self.standby_of)
        else:
            self._empty()
            locale = ("-E", "UTF8", "--locale=C")
            self._make("initdb", "-D", self.data, "-U", self.superuser, "--auth=trust", *locale, *self.initdb)
        with open(os.path.join(self.data, "pg_hba.conf"), "w") as f:
            f.write(
                f"local all all trust\nhost all,replication {self.superuser} samenet trust\nhost all all "
                f"samenet {self.auth}\n"
            )

    @property
    def data(self) -> str:
        return os.path.join(self.dir, "data")

    def _empty(self) -> None:
        who = pwd.getpwnam(self.run_as() or "root")
        shutil.rmtree(self.data, ignore_errors=True)
        os.mkdir(self.data, 0o700)
        os.chown(self.data, who.pw_uid, who.pw_gid)

    def _make(self, program: str, *options: str) -> None:
        """One of PostgreSQL's programs makes the data, or says why not."""
        who = self.run_as()
        extra: dict[str, Any] = {"user": who, "group": pwd.getpwnam(who).pw_gid, "extra_groups": []} if who else {}
        command = [self.binary(program), *options, "--no-sync"]
        made = subprocess.run(command, capture_output=True, text=True, cwd=self.dir, timeout=START, **extra)
        if made.returncode:
            raise RuntimeError(made.stderr)

    def copy(self, primary: Proxy) -> None:
        """Its data are from then on a backup of that one's, whose standby it is when it is started."""
        self._empty()
        where = ("-h", getattr(primary, "host", "127.0.0.1"), "-p", str(primary.port), "-U", self.superuser)
        self._make("pg_basebackup", "-D", self.data, *where, "-R", "-X", "stream", "-c", "fast")

    def rewind(self, primary: "Postgres") -> None:
        """It was a primary, and that one was promoted: what that one lacks is undone, and it is its standby when it is
        started. Needs data checksums."""
        primary.sql("CHECKPOINT")  # or the control file there has the timeline before the promotion still
        source = f"host={primary.host} port={primary.port} user={self.superuser} dbname=postgres"
        self._make("pg_rewind", "-D", self.data, "--source-server", source, "-R")

    def promote(self) -> None:
        """From a standby: it has taken what it was sent, and takes writes."""
        self.sql("SELECT pg_promote()")
        wait_for(lambda: self.sql("SELECT pg_is_in_recovery()") == "f")

    def command(self) -> list[str]:
        words = (  # mmap: in its directory, not where a killed one leaves it behind
            f"-D {self.dir}/data -c port={self.port} -c listen_addresses={self.host} -c fsync=off "
            f"-c unix_socket_directories={self.dir} -c shared_buffers=16MB -c dynamic_shared_memory_type=mmap"
        )
        return [self.binary("postgres"), *words.split(), *self.options]

    def ready(self) -> bool:
        return (
            subprocess.run(
                [self.binary("pg_isready"), "-q", "-h", self.host, "-p", str(self.port), "-d", "postgres"]
            ).returncode
            == 0
        )

    def stop(self, sig: int = signal.SIGINT) -> None:
        """SIGINT is PostgreSQL's fast shutdown."""
        super().stop(sig)

    def pause(self) -> None:
        """Every process of it: the one that accepts, and those that serve."""
        family = self._family()
        for pid in family:
            os.kill(pid, signal.SIGSTOP)
        for pid in family:
            wait_for(lambda: stands_still(pid))

    def resume(self) -> None:
        for pid in self._family():
            os.kill(pid, signal.SIGCONT)

    def kill(self) -> None:
        """As a power cut would: none of them gets to finish anything."""
        if not self.process:
            return
        family = self._family()
        for pid in family:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        super().stop(signal.SIGKILL)
        wait_for(lambda: not any(os.path.exists(f"/proc/{p}") and alive(p) for p in family))

    def _family(self) -> list[int]:
        if not self.process or self.process.poll() is not None:
            return []
        with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children") as f:
            return [self.process.pid, *map(int, f.read().split())]

    def sql(self, text: str, user: str | None = None, database: str = "postgres", port: int | None = None) -> str:
        """psql's answer, unaligned, without headings; raises with its message."""
        p = subprocess.run(
            [
                self.binary("psql"),
                "-X",
                "-q",
                "-A",
                "-t",
                "-v",
                "ON_ERROR_STOP=1",
                "-h",
                self.host,
                "-p",
                str(port or self.port),
                "-U",
                user or self.superuser,
                "-d",
                database,
                "-c",
                text,
            ],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            env={**os.environ, "PGPASSWORD": self.password},
        )
        if p.returncode:
            raise RuntimeError(p.stderr.strip())
        return p.stdout.strip()

    def url(self, key: str) -> str:
        return f"postgres://{self.superuser}@{self.host}:{self.port}/postgres#{key}"


class Bouncer(Server):
    """pgbouncer before a Postgres; mode: transaction or session."""

    user = "postgres"

    def __init__(self, postgres: Any, mode: str = "transaction", start: bool = True, sessions: int = 20) -> None:
        """sessions: of the server, at most, which all clients share."""
        self.postgres, self.mode, self.sessions = postgres, mode, sessions
        super().__init__(start)

    def prepare(self) -> None:
        with open(os.path.join(self.dir, "users"), "w") as f:
            f.write(f'"{Postgres.superuser}" ""\n')
        with open(os.path.join(self.dir, "ini"), "w") as f:
            f.write(
                f"""[databases]
* = host=127.0.0.1 port={self.postgres.port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {self.port}
unix_socket_dir =
auth_type = trust
auth_file = {self.dir}/users
pool_mode = {self.mode}
default_pool_size = {self.sessions}
"""
            )

    def command(self) -> list[str]:
        return ["/usr/sbin/pgbouncer", os.path.join(self.dir, "ini")]

    def ready(self) -> bool:
        return (
            subprocess.run(
                [Postgres.binary("pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port), "-d", "postgres"]
            ).returncode
            == 0
        )

    def url(self, key: str) -> str:
        return f"postgres://{Postgres.superuser}@127.0.0.1:{self.port}/postgres#{key}"


class MariaDB(Server):
    """options: mariadbd's, as "--max-connections=20"; they stand behind those that make it small, and win. pki: a Pki
    whose server certificate it shows (certificate: another one's name, pki.sign), so that TLS can be asked for. Users:
    root without a password, and `superuser`, each from everywhere."""

    user: str | None = "mysql"
    superuser, password = "lunarch", "moon light"
    # The form of the files: the same for the making of them and for each start.
    small = (
        "--innodb-buffer-pool-size=8M",
        "--innodb-log-file-size=4M",
        "--innodb-data-file-path=ibdata1:4M:autoextend",
        "--innodb-autoextend-increment=1",
        "--aria-log-file-size=8M",
    )
    made_with = (
        "FLUSH PRIVILEGES;",  # while MariaDB's tables are made, none is looked at
        f"CREATE USER {superuser}@'%' IDENTIFIED BY '{password}';",
        f"GRANT ALL ON *.* TO {superuser}@'%' WITH GRANT OPTION;",
        "CREATE DATABASE test CHARACTER SET utf8mb4;",
    )

    def __init__(self, *options: str, pki: Any = None, certificate: Any = None, start: bool = True) -> None:
        self.options, self.pki, self.certificate = list(options), pki, certificate
        super().__init__(start)

    def prepare(self) -> None:
        self.data, self.socket = os.path.join(self.dir, "data"), os.path.join(self.dir, "socket")
        # Its own: one that starts removes all temporary tables that it finds there, also another's that runs.
        self.temporary = os.path.join(self.dir, "tmp")
        os.mkdir(self.temporary)
        os.chmod(self.dir, 0o755)
        first = os.path.join(self.dir, "first.sql")
        with open(first, "w") as f:
            f.write("\n".join(self.made_with) + "\n")
        make = [*self.make_data(first), *([f"--user={self.run_as()}"] if self.run_as() else [])]
        if self.run_as():
            self.own(self.dir)
        made = subprocess.run(
            make, capture_output=True, text=True, cwd=self.dir, env={**os.environ, **self.environment}
        )
        if made.returncode:
            raise RuntimeError(made.stdout + made.stderr)
        if self.run_as():
            self.own(self.data)
        if self.pki:
            for name, path in zip(("crt", "key"), self.certificate or self.pki.server()):
                shutil.copy(path, os.path.join(self.dir, "server." + name))
            shutil.copy(self.pki.ca, os.path.join(self.dir, "ca.crt"))

    def make_data(self, first: str) -> list[str]:
        """The command that makes the tables and carries out what is in that file."""
        words = (
            f"--no-defaults --datadir={self.data} --tmpdir={self.temporary} --auth-root-authentication-method=normal "
            f"--skip-test-db --skip-name-resolve --extra-file={first}"
        )
        return ["mariadb-install-db", *words.split(), *self.small]

    def tls(self) -> list[str]:
        files = (("ca", "ca.crt"), ("cert", "server.crt"), ("key", "server.key"))
        return [f"--ssl-{what}={self.dir}/{f}" for what, f in files] if self.pki else []

    def command(self) -> list[str]:
        words = (  # who looks whether the port is open logs in to nothing: so many errors are none
            f"--no-defaults --datadir={self.data} --tmpdir={self.temporary} --socket={self.socket} "
            f"--pid-file={self.dir}/pid --port={self.port} --bind-address=127.0.0.1 --skip-name-resolve --skip-log-bin "
            "--performance-schema=OFF --innodb-flush-log-at-trx-commit=0 --innodb-buffer-pool-dump-at-shutdown=OFF "
            "--key-buffer-size=64K --aria-pagecache-buffer-size=1M --table-open-cache=64 --max-connect-errors=1000000"
        )
        program = shutil.which("mariadbd") or "/usr/sbin/mariadbd"
        return [program, *words.split(), *self.small, *self.tls(), *self.options]

    def ready(self) -> bool:
        return "MariaDB" in ask(self.port, "")  # it speaks first

    def sql(self, text: str, user: str | None = None, database: str = "test", port: int | None = None) -> str:
        """The mariadb client's answer: columns parted by tabs, without headings; raises with its message. A user other
        than `superuser` has no password, unless it is given as USER:PASSWORD."""
        name, _, password = (user or f"{self.superuser}:{self.password}").partition(":")
        p = subprocess.run(
            [
                *"mariadb --no-defaults --batch --raw --skip-column-names --default-character-set=utf8mb4".split(),
                *f"--host=127.0.0.1 --port={port or self.port} --user={name} --database={database}".split(),
            ],
            input=text,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            env={**os.environ, "MYSQL_PWD": password},
        )
        if p.returncode:
            raise RuntimeError(p.stderr.strip())
        return p.stdout.strip()

    def trust(self) -> None:
        """As a lock does that was never elsewhere: no doubt is in the way of the first term."""

    def on_small_disk(self, size: str = "64m") -> SmallDisk:
        """Its files are on one from now on: it is started again for that."""
        self.stop()
        self.disk = SmallDisk(os.path.join(self.dir, "small"), size, self.run_as())
        shutil.copytree(self.data, self.disk.seen, dirs_exist_ok=True)
        self.own(self.disk.seen)
        self.data = self.disk.path
        self.start()
        return self.disk

    def url(self, key: str) -> str:
        """For a lock, without the password."""
        return f"mysql://{self.superuser}@127.0.0.1:{self.port}/test#{key}"


class MySQL(MariaDB):
    """MySQL's own server, 8.0; MYSQLD names the program (tests/lib/mysql_fetch.sh). Asked by MariaDB's client."""

    user = None  # who else could not read a program in the home directory of root

    def __init__(self, *options: str, pki: Any = None, certificate: Any = None, start: bool = True) -> None:
        self.home = os.path.dirname(os.path.dirname(os.environ["MYSQLD"]))
        self.environment = {"LD_LIBRARY_PATH": os.path.join(self.home, "lib")}
        super().__init__(*options, pki=pki, certificate=certificate, start=start)

    def make_data(self, first: str) -> list[str]:
        return [*self.program(), f"--init-file={first}", "--initialize-insecure"]

    def program(self) -> list[str]:
        words = (  # a file system in memory has no native aio
            f"--datadir={self.data} --tmpdir={self.temporary} --skip-name-resolve --skip-log-bin "
            "--performance-schema=OFF --innodb-use-native-aio=OFF --innodb-buffer-pool-size=8M "
            "--innodb-log-file-size=4M"
        )
        root = ["--user=root"] if os.geteuid() == 0 else []
        return [os.environ["MYSQLD"], "--no-defaults", f"--basedir={self.home}", *root, *words.split()]

    def command(self) -> list[str]:
        words = (
            f"--socket={self.socket} --pid-file={self.dir}/pid --port={self.port} --bind-address=127.0.0.1 "
            "--mysqlx=OFF --innodb-flush-log-at-trx-commit=0 --innodb-buffer-pool-dump-at-shutdown=OFF "
            "--table-open-cache=64 "
            "--max-connect-errors=1000000"
        )
        return [*self.program(), *words.split(), *self.tls(), *self.options]

    def trust(self) -> None:
        """That it was never a replica cannot be known of MySQL. So the first term would wait for a lease."""
        self.sql(
            f"{lock_table()} INSERT INTO lunarch_locks VALUES ('', 1, @@server_uuid, 'made', UTC_TIMESTAMP(6), '')"
        )

    def ready(self) -> bool:
        return "_password" in ask(self.port, "")  # its greeting names a plugin


def lock_table() -> str:
    """The statement of docs/stores/mysql.md that makes the MariaDB lock's table by hand."""
    with open(os.path.join(ROOT, "docs", "stores", "mysql.md")) as page:
        return next(t.strip() for t in page if t.startswith("    CREATE TABLE lunarch_locks (name VARBINARY"))


def mysql_server(*options: str, **more: Any) -> MariaDB:
    """MariaDB, or MySQL itself where the test is to run on that."""
    return (MySQL if os.environ.get("MYSQLD") else MariaDB)(*options, **more)


class GaleraNode(MariaDB):
    """A member of a Galera. It has an address of its own, from which it connects to others and by which a Cable knows
    it; others reach it through a Cable alone."""

    # Who is silent is found out by the presets' timing (evs.suspect_timeout: 5 s), which a loaded machine keeps.
    # Only one that starts waits shorter for others.
    timing = "pc.announce_timeout=PT1S"

    def __init__(self, number: int, *options: str) -> None:
        self.number, self.cable, self.peers, self.first = number, Cable(f"127.0.0.{number + 2}"), "", True
        self.more = ["--innodb-flush-log-at-trx-commit=1", "--binlog-format=ROW", "--innodb-autoinc-lock-mode=2"]
        super().__init__(*self.more, *options, start=False)

    def command(self) -> list[str]:
        provider = f"gmcast.listen_addr=tcp://{self.cable.address}:{self.cable.target[1]};gcache.size=8M;"
        return [
            *super().command(),
            "--wsrep-on=ON",
            "--wsrep-provider=/usr/lib/galera/libgalera_smm.so",
            "--wsrep-cluster-name=lunarch-test",
            f"--wsrep-node-name=n{self.number}",
            "--wsrep-sst-method=rsync",
            f"--wsrep-sst-receive-address=127.0.0.1:{free_port()}",
            f"--wsrep-provider-options={provider}ist.recv_addr=127.0.0.1:{free_port()};{self.timing}",
            "--wsrep-cluster-address=gcomm://" + ("" if self.first else self.peers),
        ]

    def recover(self) -> str:
        """The position of one that was killed, as mysqld_safe finds it. What it says goes to a file: whatever it
        started may outlive it."""
        told = os.path.join(self.dir, "recovered")
        who = [f"--user={self.run_as()}"] if self.run_as() else []
        with open(told, "wb") as log:
            subprocess.run(
                [*self.command(), "--wsrep-recover", *who],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.dir,
                timeout=START,
                start_new_session=True,
            )
        if self.run_as():
            self.own(self.data)
        with open(told, errors="replace") as log:
            return log.read().split("Recovered position: ")[1].split()[0]

    def state(self, name: str) -> str:
        """A status variable of Galera; "": it does not answer."""
        try:
            return self.sql(f"SHOW STATUS LIKE 'wsrep_{name}'").partition("\t")[2]
        except (RuntimeError, subprocess.TimeoutExpired):
            return ""


class Cable(Proxy):
    """The way to a member of a Galera, for each other member apart: by the address that it connects from.

    The member listens on the cable's port, at its own address. Members tell each other where they listen; who is told
    takes the port from that, and the address from the connection: the cable's, 127.0.0.1. With another port there,
    nobody would listen where a lost member is looked for. Such a cluster became whole only if a third member, which had
    connected first, relayed what the two said, and Galera ends the relay when it has forgotten the lost one."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.ways: dict[tuple[str, str], Way] = {}
        self.silent: set[str] = set()  # members that are not heard here
        port = free_port()
        super().__init__(port, address, at=port)

    async def _pump(self, pair: Any, reader: Any, writer: Any, way: Any, name: str) -> None:
        source = pair["client"].get_extra_info("peername")[0]
        own = self.ways.setdefault((source, name), Way())
        if source in self.silent:
            own.lose = True
        await super()._pump(pair, reader, writer, own, name)

    def silence(self, source: str, on: bool) -> None:
        async def act() -> None:
            (self.silent.add if on else self.silent.discard)(source)
            for (s, _), way in self.ways.items():
                if s == source:
                    way.lose = on
            for pair in list(self.pairs) if not on else []:
                if pair["client"].get_extra_info("peername")[0] == source:
                    self._reset(pair)

        self._do(act)

    def hesitate(self, seconds: float) -> None:
        """Before each piece that comes or goes, from now on."""

        async def act() -> None:
            for way in self.ways.values():
                way.delay = seconds

        self._do(act)


class Garbd(Server):
    """The arbitrator of a Galera: a vote without data."""

    def __init__(self, cable: Cable, peers: str) -> None:
        self.cable, self.peers = cable, peers
        super().__init__()

    def command(self) -> list[str]:
        listen = f"gmcast.listen_addr=tcp://{self.cable.address}:{self.cable.target[1]}"
        options = f"{listen};{GaleraNode.timing}"
        return ["garbd", "--group", "lunarch-test", "--address", f"gcomm://{self.peers}", "--options", options]

    def ready(self) -> bool:
        with open(self.log, errors="replace") as f:
            return "JOINED -> SYNCED" in f.read()


class Galera:
    """Two nodes and an arbitrator. nodes[i] is started and killed by start and kill here; isolate cuts it off from the
    other two, which lose what they send each other: it serves its clients still."""

    def __init__(self, *options: str) -> None:
        self.nodes = [GaleraNode(i, *options) for i in range(2)]
        self.arbitrator_cable = Cable("127.0.0.4")
        cables = self.cables()
        for n in self.nodes:
            n.peers = ",".join(f"127.0.0.1:{c.port}" for c in cables if c is not n.cable)
        a, b = self.nodes
        a.start()
        a.stop()
        shutil.rmtree(b.data)
        shutil.copytree(a.data, b.data)  # it begins where the other is, and needs no state transfer of more
        for name in ("gvwstate.dat", "galera.cache"):
            if os.path.exists(os.path.join(b.data, name)):
                os.unlink(os.path.join(b.data, name))
        if b.run_as():
            b.own(b.data)
        a.start()
        a.first = b.first = False
        b.start()
        self.arbitrator = Garbd(self.arbitrator_cable, ",".join(f"127.0.0.1:{n.cable.port}" for n in self.nodes))
        self.whole()

    def cables(self) -> list[Cable]:
        return [self.nodes[0].cable, self.nodes[1].cable, self.arbitrator_cable]

    def expect(self, what: str, node: int, **states: str) -> None:
        """Waits until the node says so of itself. If it does not, what all members say is told."""
        n = self.nodes[node]
        if not wait_for(lambda: all(n.state(name) == value for name, value in states.items()), START):
            for m in self.nodes:
                said = {s: m.state(s) for s in ("cluster_status", "cluster_size", "local_state_comment", "ready")}
                note(f"Galera: n{m.number} says {said}; its log:")
                note(m.end_of_log())
            note("Galera: the arbitrator's log:")
            note(self.arbitrator.end_of_log())
            raise RuntimeError(f"the Galera {what}: n{node} did not say {states}")

    def whole(self, size: int = 3) -> None:
        for i in range(len(self.nodes)):
            self.expect("did not become whole", i, cluster_size=str(size), local_state_comment="Synced")

    def cut(self, node: int, on: bool = True) -> None:
        """Returns at once: they find out by themselves."""
        mine = self.nodes[node].cable
        for other in self.cables():
            if other is not mine:
                mine.silence(other.address, on)
                other.silence(mine.address, on)

    def isolate(self, node: int) -> None:
        """Returns when it knows that it has no majority, and the others that they have."""
        self.cut(node)
        self.wait_apart(node)

    def wait_apart(self, node: int) -> None:
        self.expect("was not cut in two", node, ready="OFF")
        self.expect("lost its majority", 1 - node, cluster_size="2", cluster_status="Primary")

    def heal(self) -> None:
        for i in range(2):
            self.cut(i, False)
        self.whole()

    def kill(self, node: int) -> None:
        self.nodes[node].kill()

    def start(self, node: int) -> None:
        n = self.nodes[node]
        n.start(f"--wsrep-start-position={n.recover()}")
        self.whole()

    def close(self) -> None:
        self.arbitrator.close()
        for n in self.nodes:
            n.close()
        for c in self.cables():
            c.close()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class ZooKeeper(Server):
    """One server, or a member: ZooKeeper.cluster(3). settings: lines of its configuration. ZOOKEEPER can name another
    version than Debian's, which tests/lib/zookeeper_fetch.sh has fetched (make test-zookeeper)."""

    def __init__(
        self,
        settings: Sequence[str] = (),
        number: int = 1,
        members: Any = None,
        start: bool = True,
        flags: Sequence[str] = (),
        machine: Any = None,
    ) -> None:
        """members: of an ensemble, each one's address and its two ports for the others."""
        self.settings, self.number, self.members, self.flags = list(settings), number, members, list(flags)
        super().__init__(start, machine)

    def prepare(self) -> None:
        data = os.path.join(self.dir, "data")
        os.mkdir(data)
        with open(os.path.join(data, "myid"), "w") as f:
            f.write(f"{self.number}\n")
        lines = [
            f"dataDir={data}",
            f"clientPort={self.port}",
            f"clientPortAddress={self.host}",
            *"tickTime=1000 initLimit=10 syncLimit=5 admin.enableServer=false 4lw.commands.whitelist=*".split(),
            "maxClientCnxns=0",
            "forceSync=no",
            *self.settings,
        ]
        for n, (address, quorum, election) in enumerate(self.members or [], 1):
            lines.append(f"server.{n}={address}:{quorum}:{election}")
        with open(os.path.join(self.dir, "cfg"), "w") as f:
            f.write("\n".join(lines) + "\n")
        with open(os.path.join(self.dir, "logback.xml"), "w") as f:
            f.write(
                '<configuration><appender name="out" '
                'class="ch.qos.logback.core.ConsoleAppender"><encoder><pattern>%d %-5p %m%n</pattern></encoder>'
                f'</appender><root level="{"INFO" if self.members else "WARN"}"><appender-ref ref="out"/></root>'
                "</configuration>\n"
            )

    @staticmethod
    def archives() -> str:
        version = os.environ.get("ZOOKEEPER")
        if not version:
            return "/usr/share/java/zookeeper.jar"
        cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        there = os.path.join(cache, "lunarch-tests", f"zookeeper-{version}")
        if not os.path.exists(os.path.join(there, "built")):
            raise RuntimeError(f"ZooKeeper {version} is not in {there}: make zookeeper-{version}-server fetches it")
        return os.path.join(there, "*")

    def command(self) -> list[str]:
        words = (
            f"-Xmx128m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xshare:auto -cp {self.dir}:{self.archives()} "
            f"-Dzookeeper.log.dir={self.dir} -Djava.net.preferIPv4Stack=true"
        )
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        return ["java", *words.split(), *self.flags, main, os.path.join(self.dir, "cfg")]

    def ready(self) -> bool:
        return not self.whole or "Mode:" in ask(self.port, "srvr", host=self.host)

    whole = True

    @classmethod
    def cluster(cls, count: int, settings: Sequence[str] = (), machines: Sequence[Any] = ()) -> "list[ZooKeeper]":
        places = list(machines) or [None] * count
        ports = [(m.address if m else "127.0.0.1", free_port(), free_port()) for m in places]
        members = [cls(settings, n + 1, ports, start=False, machine=m) for n, m in enumerate(places)]
        cls.form(members)
        return members

    @staticmethod
    def form(members: "Sequence[ZooKeeper]") -> None:
        for m in members:
            m.whole = False
            m.start()
        for m in members:
            m.whole = True
            if not wait_for(m.ready, START):
                raise RuntimeError("the ZooKeeper ensemble did not form")

    @staticmethod
    def keep(members: "Sequence[ZooKeeper]") -> None:
        """A copy of what all of an ensemble have now, at one moment."""
        for m in members:
            m.pause()
        for m in members:
            shutil.rmtree(os.path.join(m.dir, "kept"), ignore_errors=True)
            shutil.copytree(os.path.join(m.dir, "data"), os.path.join(m.dir, "kept"))
        for m in members:
            m.resume()

    @classmethod
    def fall_back(cls, members: "Sequence[ZooKeeper]") -> None:
        """They are killed, and begin again with what they had at that moment. What they elect then has a new epoch, so
        zxids are larger than those that were lost."""
        for m in members:
            m.kill()
            shutil.rmtree(os.path.join(m.dir, "data"))
            shutil.copytree(os.path.join(m.dir, "kept"), os.path.join(m.dir, "data"))
        cls.form(members)

    def url(self, key: str) -> str:
        return f"zookeeper://{self.host}:{self.port}/{key}"

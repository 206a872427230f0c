"""Inside the virtual machine: a kernel NFS server in the machine's own network, and clients, each in namespaces of its
own (network, mounts, host name, processes), so that for the server and for each other they are different hosts. One
kernel, so one clock. A client is cut off by writing its address into a list of xt_recent, also by the packet that
carries a given NFS operation, and healed by clearing it."""

import json
import os
import signal
import subprocess
import threading
import time
from typing import Any

from tests.lib import field
from tests.lib.candidates import Candidate, timing
from tests.lib.processes import LUNARCH, PATIENCE, children, wait_for
from tests.lib.tap import note

EXPORT = "/srv/x"
LEASE = 10  # seconds, of the NFS server: the least that it accepts
# What only the request for this operation carries: RENAME of a temporary file to "lock"; LINK (11) of a name of 16
# digits (RFC 7530, 16); LINK (15) of version 3 (RFC 1813).
OPERATION = {
    "RENAME": ("|000000046c6f636b|", ".tmp"),
    "LINK": ("|0000000b00000010|", "0000000"),
    "LINK3": ("|000186a3000000030000000f|", "0000000"),
}
WITNESS = os.path.join(os.path.dirname(LUNARCH), "tests", "cluster", "faults", "witness")


def run(*command: str, check: bool = True, **kw: Any) -> Any:
    r = subprocess.run(command, capture_output=True, text=True, **kw)
    if check and r.returncode:
        raise RuntimeError(f"{' '.join(command)}: {r.returncode}\n{r.stdout}{r.stderr}")
    return r


def put(path: str, text: str) -> None:
    with open(path, "w") as f:
        f.write(text)


def get(path: str) -> Any:
    with open(path) as f:
        return f.read()


# ---- the server ----


class Server:
    def __init__(self) -> None:
        run("ip", "link", "set", "lo", "up")
        os.makedirs(EXPORT)
        run("mount", "-t", "tmpfs", "-o", "mode=777", "tmpfs", EXPORT)
        run("mount", "-t", "nfsd", "nfsd", "/proc/fs/nfsd")
        run("mount", "-t", "rpc_pipefs", "rpc_pipefs", "/var/lib/nfs/rpc_pipefs")
        for name in "etab", "rmtab":
            put("/var/lib/nfs/" + name, "")
        put("/etc/exports", f"{EXPORT} *(rw,sync,no_root_squash,no_subtree_check,fsid=1)\n")
        put("/proc/fs/nfsd/nfsv4leasetime", str(LEASE))
        put("/proc/fs/nfsd/nfsv4gracetime", str(LEASE))
        run("rpcbind")
        run("nfsdcld")
        run("exportfs", "-r")
        run("rpc.mountd")
        self.start()

    def start(self) -> None:
        run("rpc.nfsd", "--grace-time", str(LEASE), "--lease-time", str(LEASE), "4")

    def stop(self) -> None:
        run("rpc.nfsd", "0")


# ---- the clients ----


def rules() -> None:
    for name, strings in OPERATION.items():
        match = [
            "-m",
            "string",
            "--algo",
            "kmp",
            "--hex-string",
            strings[0],
            "-m",
            "string",
            "--algo",
            "kmp",
            "--string",
            strings[1],
        ]
        for half, verdict in ("request", "DROP"), ("reply", "ACCEPT"):
            run(
                "iptables",
                "-A",
                "INPUT",
                "-m",
                "recent",
                "--name",
                f"no_{name}_{half}",
                "--rcheck",
                "--rsource",
                *match,
                "-m",
                "recent",
                "--name",
                "cut",
                "--set",
                "--rsource",
                "-j",
                verdict,
            )
    run("iptables", "-I", "INPUT", "-m", "recent", "--name", "cut", "--rcheck", "--rsource", "-j", "DROP")
    run("iptables", "-A", "OUTPUT", "-m", "recent", "--name", "cut", "--rcheck", "--rdest", "-j", "DROP")


class Client:
    """A host, as far as the server can tell."""

    count = 0

    def __init__(self, name: str, version: str = "4.2") -> None:
        Client.count += 1
        n, self.name = Client.count, name
        self.lists: set[str] = set()
        self.address, server = f"10.0.{n}.2", f"10.0.{n}.1"
        # Its first process holds the namespaces.
        self.holder = subprocess.Popen(
            ["unshare", "-n", "-m", "-u", "-p", "-f", "--mount-proc", "sh", "-c", f"hostname {name}; exec sleep 100000"]
        )
        self.pid = wait_for(lambda: children(self.holder.pid))[0]
        wait_for(lambda: get(f"/proc/{self.pid}/comm") == "sleep\n")
        run("ip", "link", "add", f"s{n}", "type", "veth", "peer", "name", f"c{n}", "netns", str(self.pid))
        run("ip", "addr", "add", server + "/24", "dev", f"s{n}")
        run("ip", "link", "set", f"s{n}", "up")
        self.run("ip", "link", "set", "lo", "up")
        self.run("ip", "addr", "add", self.address + "/24", "dev", f"c{n}")
        self.run("ip", "link", "set", f"c{n}", "up")
        self.run("mount", "-t", "tmpfs", "tmpfs", "/var/lib/lunarch")
        self.mount(server, version)

    def mount(self, server: Any, version: Any, at: str = "/mnt") -> None:
        kind = "nfs4" if version.startswith("4") else "nfs"
        more = f"clientaddr={self.address}" if kind == "nfs4" else "proto=tcp,mountproto=tcp,nolock"
        self.run("mount", "-i", "-t", kind, "-o", f"vers={version},addr={server},hard,{more}", f"{server}:{EXPORT}", at)

    @property
    def prefix(self) -> Any:
        return ["nsenter", "-t", str(self.pid), "-n", "-m", "-u", "-p", "--"]

    def run(self, *command: str, **kw: Any) -> Any:
        return run(*self.prefix, *command, **kw)

    def cut(self, how: str = "now") -> None:
        """now, or by the next packet that carries e.g. LINK: "LINK request" loses it, "LINK reply" what is answered."""
        name = "cut" if how == "now" else "no_" + how.replace(" ", "_")
        self.lists.add(name)
        put(f"/proc/net/xt_recent/{name}", "+" + self.address)

    def is_cut(self) -> Any:
        return self.address in get("/proc/net/xt_recent/cut")

    def heal(self) -> None:
        for name in self.lists | {"cut"}:
            put(f"/proc/net/xt_recent/{name}", "-" + self.address)
        self.lists = set()

    def crash(self) -> None:
        """Cut off first, so that nothing can say good-bye. What hangs in the kernel is gone when it is healed."""
        self.cut()
        os.kill(self.pid, signal.SIGKILL)  # the first process of a PID namespace: all others go with it


class Member(Candidate):
    """A candidate on a client: nsenter is its parent, so that it is in the client's PID namespace."""

    def __init__(self, client: Any, *args: Any, **kw: Any) -> None:
        super().__init__(*args, prefix=client.prefix, **kw)
        self.client = client
        wait_for(lambda: children(self.process.pid) or self.process.poll() is not None)
        self.pid = (children(self.process.pid) or [self.pid])[0]


class Shared(field.Field):
    """One lock of all clients, its candidates, and the witness of their terms, which are processes of one kernel."""

    # A round trip takes a virtual machine without KVM some milliseconds, a neighbour's build may cost seconds.
    TIMES = timing("9s", renew="5s", retry="700ms", stop_grace="500ms", kill="1500ms", drift="1s")

    def __init__(self, url: str) -> None:
        field.build = lambda name, *flags: WITNESS
        super().__init__()
        self.lock = url
        self.place = url.split(":")[1].split("?")[0].replace("/mnt", EXPORT)  # on the server
        if os.environ.get("NFS_TALK"):
            threading.Thread(target=talk, args=(self.candidates,), daemon=True).start()

    def enter(self, client: Any, name: str | None = None, *options: Any) -> Any:
        # strict: in another PID namespace the witness cannot see who has what it wants.
        c = Member(
            client,
            "--lock",
            self.lock,
            "--identity",
            name or client.name,
            *options,
            os.path.join(field.FAULTS, "witness.lua"),
            "--",
            WITNESS,
            self.witness,
            name or client.name,
            "strict",
            options=self.TIMES,
            cwd=self.dir,
        )
        c.name = name or client.name
        self.candidates.append(c)
        return c

    def record_seen_by(self, client: Any) -> Any:
        """What a third party is told: an object; None without a record."""
        r = client.run(LUNARCH, "status", "--json", "--lock", self.lock, check=False, timeout=PATIENCE)
        return json.loads(r.stdout) if r.stdout.startswith("{") else None


def leads(c: Any) -> Any:
    """How often it has begun a term, if it leads now, else 0."""
    began, ended = len(c.all("became_leader")), len(c.all("stopped_leading"))
    return began if began > ended else 0


def saved(c: Any) -> Any:
    return len(c.said("saved "))


def talk(candidates: Any) -> None:
    """Prints what candidates say, as it comes, for whoever works on this test: NFS_TALK=1."""
    told: dict[Candidate, int] = {}
    while True:
        for c in candidates:
            for e in c.events[told.get(c, 0) :]:
                note(f"{e['seen']:.2f} {c.name}: {e.get('event')} {e.get('term', '')} {e.get('message', '')}")
                told[c] = told.get(c, 0) + 1
        time.sleep(0.2)

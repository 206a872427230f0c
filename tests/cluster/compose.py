#!/usr/bin/env -S PYTHONPATH=. python3
"""examples/compose: the commands of its README, by podman-compose and podman with crun, in namespaces of their own. One
of three leads; another goes on from its count when its container is stopped, and when it is killed; the health check
tells a standby that answers from one that does not. Docker's compose reads the file, too. Its etcd is Debian's: nothing
is pulled. make test-compose fetches podman-compose."""

import json
import os
import re
import shutil
import subprocess
import time
from typing import Any

from tests.lib.containers import build
from tests.lib.debian import needs
from tests.lib.processes import ROOT, children, scratch, wait_for
from tests.lib.tap import done, note, ok, same

FETCHED = os.path.join(
    os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "lunarch-tests/compose/env/bin"
)
NAMES = ("one", "two", "three")
ETCD = "localhost/etcd:debian"
# A /run of which nobody else sees what is mounted in it; one generation of cgroups, as crun wants it; no
# name server outside.
APART = """
mount -t cgroup2 none /sys/fs/cgroup && mount -t tmpfs tmpfs /run && echo nameserver 127.0.0.1 >/run/resolv.conf &&
mount --bind /run/resolv.conf /etc/resolv.conf && ip link set lo up && echo ready && exec sleep 100000
"""
CONTAINERS = """
[containers]
cgroups="disabled"
default_ulimits=["nofile=1024:1024", "nproc=1024:1024"]
[engine]
cgroup_manager="cgroupfs"
events_logger="file"
"""


class Podman:
    """Its store, its networks and all that runs are in `home` and in the namespaces of one process, and end with it."""

    def __init__(self, home: str) -> None:
        self.home = home
        with open(home + "/containers.conf", "w") as f:
            f.write(CONTAINERS)
        os.mkdir(home + "/bin")
        places = f"--root {home}/root --runroot /run/containers/storage --network-config-dir {home}/networks"
        with open(home + "/bin/podman", "w") as f:
            f.write(f'#!/bin/sh\nexec {shutil.which("podman")} {places} --storage-driver vfs "$@"\n')
        os.chmod(home + "/bin/podman", 0o755)
        apart = [
            "unshare",
            "--mount",
            "--net",
            "--pid",
            "--fork",
            "--mount-proc",
            "--kill-child=KILL",
            "sh",
            "-c",
            APART,
        ]
        self.process = subprocess.Popen(apart, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout and self.process.stdout.readline() == "ready\n"
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("LUNARCH_", "MAKE", "MFLAGS"))}
        self.env |= {"CONTAINERS_CONF": home + "/containers.conf", "PATH": f"{home}/bin:{FETCHED}:{os.environ['PATH']}"}
        self.env |= {"ETCD_IMAGE": ETCD, "HOME": home, "XDG_RUNTIME_DIR": "/run"}

    def run(self, *command: str, cwd: str = ROOT) -> "subprocess.CompletedProcess[str]":
        enter = ["nsenter", f"--target={children(self.process.pid)[0]}", "--mount", "--net", "--pid", f"--wdns={cwd}"]
        return subprocess.run(
            [*enter, *command], env=self.env, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=300
        )

    def must(self, *command: str, cwd: str = ROOT) -> str:
        r = self.run(*command, cwd=cwd)
        if not ok(r.returncode == 0, "$ " + " ".join(command)):
            note(r.stdout[-1500:] + r.stderr[-1500:])
        return r.stdout

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


def etcd_image(podman: Podman, home: str) -> None:
    """Debian's etcd, and what it needs, in the place that the image of its makers has it."""
    root = home + "/etcd"
    program = str(shutil.which("etcd"))
    linked = subprocess.run(["ldd", program], capture_output=True, text=True).stdout
    for path, place in [(program, "/usr/local/bin/etcd"), *((p, p) for p in re.findall(r"(/\S+) \(0x", linked))]:
        os.makedirs(os.path.dirname(root + place), exist_ok=True)
        shutil.copy(path, root + place)
    subprocess.run(["tar", "-C", root, "-cf", home + "/etcd.tar", "."], check=True)
    podman.must("podman", "import", "--quiet", home + "/etcd.tar", ETCD)


def blocks() -> list[list[str]]:
    with open(os.path.join(ROOT, "examples", "compose", "README.md")) as f:
        return [b.splitlines() for b in re.findall(r"^```sh\n(.*?)^```", f.read(), re.M | re.S)]


class Three:
    def __init__(self, podman: Podman, place: str) -> None:
        self.podman, self.place = podman, place

    def counts(self, name: str) -> list[tuple[int, int]]:
        """What it has printed: token and count."""
        r = self.podman.run("podman", "logs", f"compose_{name}_1")
        return [(int(t), int(n)) for n, t in re.findall(r"count (\d+), token (\d+)", r.stdout + r.stderr)]

    def leader(self, after: int = 0) -> tuple[str, int, int]:
        """Name, token and first count of the one whose token is larger than that."""

        def found() -> Any:
            rows = [(t, n, name) for name in NAMES for t, n in self.counts(name) if t > after]
            return min(rows, default=None)

        token, count, name = wait_for(found)
        return name, token, count

    def healthy(self, name: str) -> bool:
        return self.podman.run("podman", "healthcheck", "run", f"compose_{name}_1").returncode == 0

    def pid(self, name: str) -> str:
        """In the namespace of all containers."""
        return self.podman.run("podman", "inspect", "--format", "{{.State.Pid}}", f"compose_{name}_1").stdout.strip()


def compose(podman: Podman, place: str) -> Three:
    """As README.md has it, but that the image is the one of this build's."""
    first, second = blocks()
    same(first[0], "make image", "README begins with the image")
    for line in first[1:3]:
        podman.must(*line.replace("build/image/oci", "image/oci").split(), cwd=podman.home)
    same(first[3:], ["cd examples/compose", "podman-compose up -d"], "and then starts all of it")
    podman.must("podman-compose", "up", "-d", cwd=place)
    three = Three(podman, place)
    first_leader, _, _ = three.leader()
    note(f"{first_leader} leads")
    for line in second[:3]:
        # Without a terminal. Debian 12's aardvark-dns may take longer than a command waits: then it is asked again.
        words = line.replace("exec", "exec -T").split()
        ok(wait_for(lambda: podman.run(*words, cwd=place).returncode == 0), "$ " + line)
    return three


def changes(three: Three) -> None:
    podman, place = three.podman, three.place
    name, token, _ = three.leader()
    ok(all(three.healthy(n) for n in NAMES), "leader and standbys are healthy")
    standby = next(n for n in NAMES if n != name)
    podman.must("podman", "kill", "--signal", "STOP", f"compose_{standby}_1")
    ok(not three.healthy(standby), "a standby that does not answer is not")
    podman.must("podman", "kill", "--signal", "CONT", f"compose_{standby}_1")
    ok(wait_for(lambda: three.healthy(standby)), "and is when it goes on")
    podman.must("podman-compose", "stop", name, cwd=place)
    last = max(n for _, n in three.counts(name))
    second, larger, count = three.leader(token)
    ok(second != name and last <= count <= last + 1, f"stopped at {last}: another goes on with {count}", (name, second))
    podman.must("podman-compose", "start", name, cwd=place)
    podman.must("sh", "-c", f"kill -KILL {three.pid(second)}")
    last = max(n for _, n in three.counts(second))
    third, _, count = three.leader(larger)
    ok(
        third != second and last <= count <= last + 1,
        f"killed at {last}: another goes on with {count}",
        (second, third),
    )
    tokens = sorted((t, n) for name in NAMES for t, n in three.counts(name))
    ok(wait_for(lambda: all(three.healthy(n) for n in NAMES)), "the one that was killed is started again, and healthy")
    ok([n for _, n in tokens] == sorted(n for _, n in tokens), "no count of a larger token is smaller")


needs("podman", "docker-compose", "buildah", "crun")
home = scratch()
os.chmod(home, 0o755)
place = home + "/compose"
shutil.copytree(os.path.join(ROOT, "examples", "compose"), place)
began = time.monotonic()
podman = Podman(home)
try:
    r = podman.run("docker-compose", "config", cwd=place)
    ok(r.returncode == 0, "Docker's compose takes the file", r.stderr)
    build(home + "/image")
    etcd_image(podman, home)
    three = compose(podman, place)
    changes(three)
    podman.must("podman-compose", "down", "--timeout", "10", cwd=place)
    same(json.loads(podman.must("podman", "ps", "--all", "--format", "json")), [], "and all is gone")
finally:
    podman.close()
note(f"{time.monotonic() - began:.0f} s")
done()

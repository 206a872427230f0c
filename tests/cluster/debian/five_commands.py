#!/usr/bin/env -S PYTHONPATH=. python3
"""The commands of README.md's section "Install", as they stand there, on two clean Debian 12 machines (debootstrap,
systemd-nspawn) and an etcd that is there already; then a hand-over. Needs root, a mirror."""

import os
import re
import shutil
import subprocess
import tempfile
from typing import Any

from tests.lib.debian import bootstrap, build, needs, run
from tests.lib.processes import ROOT, children, wait_for
from tests.lib.tap import done, note, ok, same

# What systemd-nspawn wants: all cgroups in one tree, and no registration with a systemd outside.
BOOT = (
    'mount -t cgroup2 cgroup2 /sys/fs/cgroup && exec systemd-nspawn --quiet --directory="$0" --boot --register=no '
    '--keep-unit --machine="$1" --network-namespace-path="/run/netns/$1" --console=pipe'
)
HOSTS = {"etcd1": "10.77.0.1", "one": "10.77.0.2", "two": "10.77.0.3"}
TAG = str(os.getpid())


def commands() -> tuple[list[str], list[str]]:
    """Of that section: what each machine is given, and what then shows a hand-over."""
    with open(os.path.join(ROOT, "README.md")) as f:
        section = re.split(r"^## ", f.read(), flags=re.M)
    [install] = [s for s in section if s.startswith("Install\n")]
    blocks = re.findall(r"^```sh\n(.*?)^```", install, re.M | re.S)
    lines = [[re.split(r"\s+# ", line)[0] for line in b.splitlines()] for b in blocks[:2]]
    return lines[0], lines[1]


class Network:
    """A bridge in a network namespace, with the store's address, and a namespace for each machine."""

    def __init__(self) -> None:
        self.names = [f"lunarch-{n}-{TAG}" for n in HOSTS]
        for name in self.names:
            run("ip", "netns", "add", name)
        store = self.names[0]
        run("ip", "-n", store, "link", "set", "lo", "up")
        run("ip", "-n", store, "link", "add", "bridge", "type", "bridge")
        run("ip", "-n", store, "address", "add", HOSTS["etcd1"] + "/24", "dev", "bridge")
        run("ip", "-n", store, "link", "set", "bridge", "up")
        for name, address in list(zip(self.names, HOSTS.values()))[1:]:
            port = "to-" + name.split("-")[1]
            run("ip", "-n", name, "link", "add", "net", "type", "veth", "peer", "name", port, "netns", store)
            run("ip", "-n", store, "link", "set", port, "master", "bridge", "up")
            run("ip", "-n", name, "address", "add", address + "/24", "dev", "net")
            run("ip", "-n", name, "link", "set", "net", "up")

    def close(self) -> None:
        for name in self.names:
            subprocess.run(["ip", "netns", "delete", name])


class Machine:
    """A Debian that systemd-nspawn boots."""

    def __init__(self, root: str, netns: str) -> None:
        with open(os.path.join(root, "etc", "hosts"), "a") as f:
            f.writelines(f"{address} {name}\n" for name, address in HOSTS.items())
        outer = ["unshare", "--mount", "--propagation", "private", "sh", "-c", BOOT, root, netns]
        self.process = subprocess.Popen(outer, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        if not wait_for(lambda: self.run("systemctl is-system-running").stdout.strip() in ("running", "degraded")):
            raise RuntimeError(f"{root} does not boot")

    def run(self, line: str) -> Any:
        """A line of a person who says yes."""
        inits = children(self.process.pid)
        enter = ["nsenter", f"--target={inits[0] if inits else 0}", "--all", "--root", "--wd"]
        path = ["env", "-i", "HOME=/root", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "sh", "-c", f"cd; {line}"]
        return subprocess.run([*enter, *path], input="y\n", capture_output=True, text=True)

    def must(self, line: str) -> str:
        r = self.run(line)
        if not ok(r.returncode == 0, f"$ {line}"):
            note(r.stdout[-2000:] + r.stderr[-2000:])
        return str(r.stdout)

    def close(self) -> None:
        for init in children(self.process.pid):
            os.kill(init, 9)
        self.process.wait()


def clean_debian(home: str, packages: dict[str, str]) -> str:
    """Its apt has what the packages need: in there it reaches no mirror."""
    root = os.path.join(home, "clean")
    bootstrap(root, "--include=systemd,systemd-sysv,dbus")
    for f in packages.values():
        shutil.copy(f, os.path.join(root, "root"))
    names = sorted("/root/" + os.path.basename(f) for f in packages.values())
    run("chroot", root, "apt-get", "install", "-y", "-q", "--download-only", *names)
    return root


def tried(home: str, network: Network, root: str) -> None:
    each, hand_over = commands()
    ok(len(each) <= 5, f"{len(each)} commands on each machine, five at most")
    roots = [os.path.join(home, name) for name in ("one", "two")]
    for name in roots:
        run("cp", "-a", root, name)
        with open(os.path.join(name, "etc", "hostname"), "w") as f:
            f.write(os.path.basename(name) + "\n")
    machines = [Machine(name, netns) for name, netns in zip(roots, network.names[1:])]

    def leader_is(name: str) -> bool:
        return all(re.search(rf"^leader +{name}_", m.run(each[-1]).stdout, re.M) for m in machines)

    try:
        said = [[m.must(line) for line in each] for m in machines]
        note(said[1][-1])
        ok(wait_for(lambda: leader_is("one")), "the first machine leads, and both see it")
        for line in hand_over:
            note(machines[0].must(line))
        ok(wait_for(lambda: leader_is("two")), "it is stopped there: the second one leads")
        same(machines[1].run("systemctl --failed --plain --no-legend").stdout, "", "no unit has failed")
    finally:
        for m in machines:
            m.close()


needs("debootstrap", "systemd-nspawn", "etcd", "ip")
home = tempfile.mkdtemp(prefix="lunarch-five-")
network = None
try:
    packages = build(os.path.join(home, "packages"))
    clean = clean_debian(home, packages)
    network = Network()
    url = "http://etcd1:2379".replace("etcd1", HOSTS["etcd1"])
    etcd = subprocess.Popen(
        [
            *("ip", "netns", "exec", network.names[0], "etcd", "--data-dir", os.path.join(home, "etcd")),
            *("--listen-client-urls", url, "--advertise-client-urls", url),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        tried(home, network, clean)
    finally:
        etcd.kill()
        etcd.wait()
finally:
    if network:
        network.close()
    subprocess.run(["rm", "-rf", "--one-file-system", home])
done()

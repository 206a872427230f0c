#!/usr/bin/env -S PYTHONPATH=. python3
"""The commands of README.md's section "Install", as they stand there, on two clean Debian 12 machines (debootstrap,
systemd-nspawn) and an etcd that is there already; then a hand-over. Needs root, a mirror."""

import os
import re
import subprocess
import tempfile

from tests.lib.debian import Booted, clean_debian, made, needs, run
from tests.lib.processes import ROOT, wait_for
from tests.lib.tap import done, note, ok, same

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


def tried(home: str, network: Network, root: str) -> None:
    each, hand_over = commands()
    ok(len(each) <= 5, f"{len(each)} commands on each machine, five at most")
    roots = [os.path.join(home, name) for name in ("one", "two")]
    for name in roots:
        run("cp", "-a", root, name)
        with open(os.path.join(name, "etc", "hostname"), "w") as f:
            f.write(os.path.basename(name) + "\n")
        with open(os.path.join(name, "etc", "hosts"), "a") as f:
            f.writelines(f"{address} {host}\n" for host, address in HOSTS.items())
    machines = [Booted(name, netns) for name, netns in zip(roots, network.names[1:])]

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
    clean = clean_debian(home, made())
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

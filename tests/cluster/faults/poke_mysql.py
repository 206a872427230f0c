#!/usr/bin/env -S PYTHONPATH=. python3
"""Pokes on a MariaDB; and between two network namespaces, where the way is open, and where it is closed."""

import subprocess

from tests.lib import apart
from tests.lib.asked import LONG
from tests.lib.candidates import stop_everyone
from tests.lib.poke_cases import Election, before, play, without
from tests.lib.servers import Server, free_port
from tests.lib.stores import MariaDB
from tests.lib.tap import done, ok, same

HERE, THERE, AWAY = "10.91.0.1", "10.91.0.2", "10.92.0.2"


class Machine(Server):
    """A network of its own behind a cable."""

    def command(self) -> list[str]:
        return ["unshare", "--net", "sleep", "infinity"]

    def ready(self) -> bool:
        def network(pid: object) -> str:
            return subprocess.run(["readlink", f"/proc/{pid}/ns/net"], capture_output=True, text=True).stdout

        return network(self.process.pid) != network("self")

    def enter(self) -> list[str]:
        return ["nsenter", f"--net=/proc/{self.process.pid}/ns/net"]

    def connect(self) -> None:
        """AWAY is an address of it that no other machine finds: nobody answers for it (ARP)."""
        for inside, line in (
            (False, f"ip link add name cable type veth peer name net0 netns {self.process.pid}"),
            (False, f"ip address add {HERE}/24 dev cable"),
            (False, "ip link set cable up"),
            (False, f"ip route add {AWAY}/32 dev cable"),
            (True, "ip link set lo up"),
            (True, f"ip address add {THERE}/24 dev net0"),
            (True, "ip link set net0 up"),
            (True, f"ip address add {AWAY}/32 dev lo"),
            (True, "sysctl -qw net.ipv4.conf.net0.arp_ignore=1"),
        ):
            subprocess.run([*(self.enter() if inside else []), *line.split()], check=True)


def across(store: MariaDB) -> None:
    machine, port = Machine(), free_port()
    machine.connect()
    relay = subprocess.Popen(["socat", f"TCP-LISTEN:{port},bind={HERE},fork", f"TCP:127.0.0.1:{store.port}"])
    for poke, address, told in (("auto", THERE, 1), (AWAY, AWAY, 0)):
        way = "an open way" if told else "a closed way"
        f = Election(store, f"across{told}")
        a = f.join("a")
        a.event("became_leader")
        there = f.url.replace(f"127.0.0.1:{store.port}", f"{HERE}:{port}")
        b = f.join("b", poke=poke, url=there, prefix=machine.enter())
        said = f.agreed("b")
        same(said["poke"].split(":")[0], address, f"{way}: b publishes its address")
        a.stop()
        same(len(a.all("pokes")), 1, f"{way}: the leader sends one datagram")
        if told:
            ok(before(b, "poked", "became_leader"), f"{way}: it is heard, and b leads")
        else:
            ok(b.wait("became_leader", patience=LONG), f"{way}: b leads as without it")
            same(len(b.all("poked")), 0, f"{way}: it was lost")
        b.stop()
    relay.terminate()
    relay.wait()
    machine.close()


apart.enter()
store = MariaDB()
try:
    across(store)
    play(store)
    without(store)
finally:
    stop_everyone()
    store.end()
done()

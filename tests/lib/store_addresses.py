"""A store behind a name with several addresses, of which some do not answer, and behind one that moves to another
address. The stores run in the test's network namespace, the candidates in another one: what they send to an address
that the first one does not have is dropped without a word.

Not a name server: the names are in an /etc/hosts of the test's own. Used by the programs addresses*.py. Needs root."""

import os
import socket
import subprocess
from collections.abc import Callable
from typing import Any

from tests.lib import machines
from tests.lib.candidates import Candidate, stop_everyone, timing
from tests.lib.processes import scratch, wait_for
from tests.lib.proxy import Proxy
from tests.lib.servers import _mark
from tests.lib.tap import at_once, done, ok

GOOD, OLD, NEXT, SILENT, *DEAD = (f"10.98.0.{n}" for n in range(1, 7))
NAMES = {"dropped": [DEAD[0], GOOD], "most": [SILENT, *DEAD, GOOD], "moves": [OLD]}
LEADS = "return { on_leading = function() end }"
PRESET = timing("15s")
# A term outlasts some operations that fail, but not a minute.
LONG = timing("40s", renew="30s", retry="1s")


class Place:
    """The network; one for a program. apart() comes before it."""

    def __init__(self) -> None:
        self.hosts = os.path.join(scratch(), "hosts")
        self.names: dict[str, list[str]] = {}
        self.write()
        subprocess.run(["mount", "--bind", self.hosts, "/etc/hosts"], check=True)
        self.holder: Any = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", "echo; exec sleep 100000"], stdout=subprocess.PIPE, start_new_session=True
        )
        _mark("add", self.holder.pid)
        self.holder.stdout.readline()
        self.inside = ["nsenter", f"--net=/proc/{self.holder.pid}/ns/net"]
        self.ip(f"link add here type veth peer name there netns {self.holder.pid}")
        for line in ("link set lo up", "addr add 10.99.0.1/24 dev here", "link set here up"):
            self.ip(line)
        for address in (GOOD, OLD, NEXT, SILENT):
            self.ip(f"addr add {address}/32 dev lo")
        for line in (
            "link set lo up",
            "addr add 10.99.0.2/24 dev there",
            "link set there up",
            "route add 10.98.0.0/24 via 10.99.0.1",
        ):
            self.ip(line, self.inside)

    @staticmethod
    def ip(line: str, prefix: Any = ()) -> None:
        subprocess.run([*prefix, "ip", *line.split()], check=True)

    def write(self) -> None:
        """In place: the file is mounted."""
        lines = ["127.0.0.1 localhost", *(f"{a} {name}" for name, all in self.names.items() for a in all)]
        with open(self.hosts, "w") as f:
            f.write("".join(line + "\n" for line in lines))

    def close(self) -> None:
        stop_everyone()
        self.holder.kill()
        self.holder.wait()


class Site:
    """A store at the addresses. url: of its lock of this key, at this host name."""

    def __init__(self, place: Place, store: Any, url: Callable[[str, str], str]) -> None:
        self.place, self.store, self.url = place, store, url
        self.relays = [Proxy(store.port, at=store.port, on=address) for address in (GOOD, OLD, NEXT)]
        self.silent = socket.create_server((SILENT, store.port))  # takes connections, and never says anything
        self.word = store.name.split(",")[0].replace(" ", "-")
        for name, all in NAMES.items():
            place.names[self.host(name)] = list(all)
        place.write()

    def host(self, name: str) -> str:
        return f"{name}.{self.word}.test"

    def candidate(self, name: str, times: Any) -> Candidate:
        url = self.url("addresses-" + name, self.host(name))
        return Candidate(
            "--lock", url, "-e", LEADS, options=times, prefix=self.place.inside, env=self.store.env, name=self.word
        )

    def leads(self, name: str, what: str) -> None:
        c = self.candidate(name, PRESET)
        if not ok(c.wait("became_leader"), f"{self.store.name}: {what}: it leads"):
            c.log()

    def begin_move(self) -> None:
        self.mover = self.candidate("moves", LONG)
        self.mover.wait("became_leader")

    def end_move(self) -> None:
        """The old address is gone already."""
        ended = self.mover.all
        wait_for(lambda: ended("stopped_leading") or self.relays[2].bytes["down"], 120)
        before = self.store.get("addresses-moves")
        wait_for(lambda: ended("stopped_leading") or self.store.get("addresses-moves") != before, 120)
        good = ok(
            before and not ended("stopped_leading") and self.store.get("addresses-moves") != before,
            f"{self.store.name}: a name that moves to another address: its leader leads on there",
        )
        if not good:
            self.mover.log()


def run(stores: Callable[[Place], list[Callable[[], Site]]]) -> None:
    """stores: what starts each of them."""
    machines.apart()
    place = Place()
    sites: list[Site] = []

    def start(make: Callable[[], Site]) -> None:
        sites.append(make())

    at_once(*(lambda m=m: start(m) for m in stores(place)))
    at_once(*(s.begin_move for s in sites))
    for s in sites:
        place.names[s.host("moves")] = [NEXT]
    place.write()
    place.ip(f"addr del {OLD}/32 dev lo")
    at_once(
        *(s.end_move for s in sites),
        *(
            lambda s=s, n=n, w=w: s.leads(n, w)
            for s in sites
            for n, w in (
                ("dropped", "a name with two addresses, of which the first drops packets"),
                ("most", "a name with four addresses, of which only the last answers"),
            )
        ),
    )
    place.close()
    done()


def by_name(place: Place, kind: Callable[[], Any]) -> Site:
    """A store of stores.py, in whose URL a name stands for its address."""
    store = kind()
    return Site(place, store, lambda key, host: store.url(key).replace("127.0.0.1", host))

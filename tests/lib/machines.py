"""Machines for the chaos test: each has a network and a disk of its own, and what one sends to another passes a relay
(tests/cluster/faults/relay.c), which does to packets what networks do.

Not a machine's memory, clocks or processors: cgroups.py and tests/cluster/faults/shim.c have faults of these. A test
enters a network namespace of its own first (apart). Needs root. Used by tests/cluster/faults/chaos.py."""

import os
import subprocess
import sys
import threading
from typing import Any

from tests.lib.field import build
from tests.lib.processes import scratch
from tests.lib.servers import SmallDisk, _mark
from tests.lib.tap import note

VARIABLE = "LUNARCH_TEST_MACHINES"


def apart() -> None:
    """Begins the test anew where its networks and mounts are nobody else's, unless it is there already."""
    if VARIABLE not in os.environ:
        os.environ[VARIABLE] = "1"
        os.execvp("unshare", ["unshare", "--mount", "--net", sys.executable, *sys.argv])


class Machine(SmallDisk):
    namespaces = ("--mount", "--net")

    def __init__(self, name: str, number: int, address: str, disk: str) -> None:
        self.name, self.number, self.address = name, number, address
        super().__init__(os.path.join(scratch(), name), disk)
        self.network = f"/proc/{self.holder.pid}/ns/net"


class Way:
    """What happens to packets from one machine to another: a mode (pass, drop, reject), seconds, and chances."""

    ORDER = ("pass", "reject", "drop")

    def __init__(
        self,
        mode: str = "pass",
        delay: float = 0,
        jitter: float = 0,
        loss: float = 0,
        twice: float = 0,
        late: float = 0,
    ) -> None:
        self.mode, self.delay, self.jitter, self.loss, self.twice, self.late = mode, delay, jitter, loss, twice, late

    def __or__(self, other: "Way") -> "Way":
        """Both at once."""
        return Way(
            max(self.mode, other.mode, key=self.ORDER.index),
            self.delay + other.delay,
            self.jitter + other.jitter,
            *(
                1 - (1 - a) * (1 - b)
                for a, b in ((self.loss, other.loss), (self.twice, other.twice), (self.late, other.late))
            ),
        )

    def words(self) -> str:
        parts = (self.delay, self.jitter, self.loss, self.twice, self.late)
        return " ".join([self.mode, *(str(int(p * 1_000_000)) for p in parts)])


class Network:
    """number: of the network, for those of one test. The test itself is machine 1 of each, and nothing hurts that."""

    def __init__(self, number: int, seed: int) -> None:
        self.prefix = f"10.77.{number}"
        self.relay: Any = subprocess.Popen(
            [build("relay.c"), str(seed)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        _mark("add", self.relay.pid)
        self.machines: list[Machine] = []
        self.stalls: list[tuple[float, float]] = []  # until when (time.monotonic), seconds
        self.ways: dict[tuple[int, int], str] = {}
        self.saying = threading.Lock()
        self._plug_in(1, f"/proc/{os.getpid()}/ns/net")
        threading.Thread(target=self._listen, daemon=True).start()

    def _plug_in(self, number: int, path: str) -> None:
        self._say(f"machine {self.prefix}.{number} {path}\n")

    def _say(self, text: str) -> None:
        with self.saying:
            self.relay.stdin.write(text)
            self.relay.stdin.flush()

    def _listen(self) -> None:
        for line in self.relay.stdout:
            word, *rest = line.split()
            if word == "stall":
                self.stalls.append((int(rest[0]) / 1000, int(rest[1]) / 1000))
            elif word != "ok":
                note(f"relay: {line.rstrip()}")

    def machine(self, name: str, disk: str = "4m") -> Machine:
        number = len(self.machines) + 2
        m = Machine(name, number, f"{self.prefix}.{number}", disk)
        self._plug_in(number, m.network)
        self.machines.append(m)
        return m

    def set(self, ways: dict[tuple[int, int], Way]) -> None:
        """All that is not named passes."""
        wanted = {pair: w.words() for pair, w in ways.items()}
        plain = Way().words()
        changed = [p for p in wanted.keys() | self.ways.keys() if wanted.get(p, plain) != self.ways.get(p, plain)]
        for a, b in changed:
            self._say(f"way {a} {b} {wanted.get((a, b), plain)}\n")
        self.ways = wanted

    def stalled(self, since: float, until: float) -> float:
        """Seconds for which the machine that runs all this did not run the relay, in that time."""
        return sum(length for at, length in list(self.stalls) if at >= since and at - length <= until)

    def close(self) -> None:
        self.relay.kill()
        self.relay.wait()
        _mark("drop", self.relay.pid)
        for m in self.machines:
            m.close()

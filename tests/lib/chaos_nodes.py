"""An elector of the chaos test on its machine: its processes, its clocks, its cgroup; started again when it has ended.

Not what is done to it: chaos_faults.py. Used by tests/cluster/faults/chaos.py."""

import mmap
import os
import random
import struct
import time
from collections.abc import Callable
from typing import Any

from tests.lib.candidates import timing
from tests.lib.cgroups import Cgroup
from tests.lib.chaos_faults import Unfit
from tests.lib.field import FAULTS, build
from tests.lib.machines import Machine
from tests.lib.processes import LUNARCH, children, runs_lock_file

# From the kill to the next leader 2.6 s, which a machine may be late by if its clocks run equally fast.
LEASE_S = 6.0
TIMES = timing("6s", renew="3s", retry="300ms", stop_grace="400ms", kill="1s", drift="1s")
MEMORY = 96 << 20
START_S = 2.5  # who has ended is started again within


class Clocks:
    """Of one machine, by shim.c."""

    RATES = struct.Struct("=q3q3q")

    def __init__(self, directory: str, name: str) -> None:
        self.shim = build("shim.c", "-shared", "-fPIC")
        self.paths = {v: os.path.join(directory, f"{name}-{v}") for v in ("SHIM_CLOCK", "SHIM_SUSPEND", "SHIM_RATE")}
        self.maps: dict[str, mmap.mmap] = {}
        for variable, path in self.paths.items():
            with open(path, "w+b") as f:
                f.truncate(self.RATES.size)
                self.maps[variable] = mmap.mmap(f.fileno(), self.RATES.size)
        self.turn, self.since, self.ahead, self.ppb, self.slept = 0, 0, 0, 0, 0

    def environment(self) -> dict[str, str]:
        return {"LD_PRELOAD": self.shim, **self.paths}

    def set_wall(self, seconds: float) -> None:
        self.maps["SHIM_CLOCK"][:8] = struct.pack("=q", int(seconds * 1e9))

    def suspend(self, seconds: float) -> None:
        self.slept += int(seconds * 1e9)
        self.maps["SHIM_SUSPEND"][:8] = struct.pack("=q", self.slept)

    def run_faster(self, by: float) -> None:
        now = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
        self.ahead += (now - self.since) * self.ppb // 10**9
        self.since, self.ppb, self.turn = now, int(by * 1e9), self.turn + 1
        at = 8 + 24 * (self.turn & 1)
        self.maps["SHIM_RATE"][at : at + 24] = struct.pack("=3q", self.since, self.ahead, self.ppb)
        self.maps["SHIM_RATE"][:8] = struct.pack("=q", self.turn)


class Node:
    def __init__(self, field: Any, machine: Machine, url: str, seed: str) -> None:
        self.field, self.machine, self.url, self.name = field, machine, url, machine.name
        self.state = os.path.join(machine.path, "state")
        self.clocks = Clocks(field.dir, self.name)
        self.cgroup = Cgroup(f"chaos-{os.getpid()}-{seed}-{self.name}", MEMORY)
        self.candidate: Any = None
        self.claims: dict[str, int] = {}
        self.random = random.Random(f"{seed} {self.name}")
        self.start_at = 0.0
        self.disk_full = self.cut = False
        self.starts = 0

    def start(self) -> None:
        self.starts += 1
        self.candidate = self.field.join(
            self.name,
            "--state-dir",
            self.state,
            times=TIMES,
            acts=True,
            lock=self.url,
            script=os.path.join(FAULTS, "chaos.lua"),
            prefix=[*self.cgroup.prefix(), *self.machine.through()],
            env=self.clocks.environment(),
            start_new_session=True,
        )

    def runs(self) -> bool:
        return self.candidate is not None and self.candidate.process.poll() is None

    def tend(self, now: float) -> None:
        """Starts it some time after it has ended, as whatever watches services does."""
        if self.runs():
            return
        if not self.start_at:
            self.start_at = now + self.random.uniform(0.2, START_S)
        elif now >= self.start_at:
            self.start_at = 0.0
            self.start()

    def parts(self, names: Any) -> list[int]:
        if not self.runs():
            return []
        guards = [p for p in children(self.candidate.pid) if not runs_lock_file(p)]
        workers = [w for g in guards for w in children(g)]
        found = {"elector": [self.candidate.pid], "guard": guards, "worker": workers[:1]}
        return [pid for name in names for pid in found[name]]

    def claim(self, chaos: Any, *parts: str) -> Callable[[], None]:
        """Elector and guard back each other: who hurts one leaves the other alone, or nobody would be there to kill
        (docs/safety.md), unless that is the test."""
        mine = [p for p in parts if p in ("elector", "guard")]
        others = {"elector": "guard", "guard": "elector"}
        if (
            not chaos.beyond
            and any(self.claims.get(others[p]) for p in mine)
            or (not chaos.beyond and len(mine) > 1 and any(self.claims.values()))
        ):
            raise Unfit("has one of elector and guard hurt already")
        for p in mine:
            self.claims[p] = self.claims.get(p, 0) + 1
        done: list[bool] = []

        def free() -> None:
            if not done:
                done.append(True)
                for p in mine:
                    self.claims[p] -= 1

        return free

    def signal(self, sig: int) -> None:
        if not self.runs():
            raise Unfit("is not there")
        self.candidate.kill(sig)

    def resume_campaign(self, chaos: Any) -> None:
        chaos.run([*self.machine.through(), LUNARCH, "ctl", "--state-dir", self.state, "resume"])

    def end(self) -> None:
        self.cgroup.freeze(False)
        self.cgroup.kill()
        if self.candidate:
            self.candidate.leave(10)
        self.cgroup.remove()

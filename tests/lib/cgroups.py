"""A cgroup of a test's own: what is in it stands still at once and goes on at once, has so much memory, or is killed at
once, as a machine's processes when the power goes. Version 2, or version 1 beside it.

Not a machine's network or disk: machines.py. Needs root. Used by tests with machines that stand still or are full."""

import os
import signal
import time
from typing import Any

from tests.lib.processes import alive


class Cgroup:
    """limit: bytes of memory. waits: who needs more than that waits for it, else the kernel kills somebody."""

    def __init__(self, name: str, limit: int | None = None, waits: bool = False) -> None:
        base = next(
            (b for b in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified") if os.path.exists(f"{b}/cgroup.procs")), ""
        )
        self.path = f"{base}/lunarch-{name}" if base and os.access(base, os.W_OK) else ""
        self.waits, self.memory, self.old = waits, "", False
        if self.path:
            os.mkdir(self.path)
        if limit is not None:
            self.old = os.path.isdir("/sys/fs/cgroup/memory")
            self.memory = f"/sys/fs/cgroup/memory/lunarch-{name}" if self.old else self.path
            if self.old:
                os.mkdir(self.memory)
            else:
                self._write(f"{base}/cgroup.subtree_control", "+memory")
            self.set_limit(limit)

    @staticmethod
    def _write(path: str, value: Any) -> None:
        with open(path, "w") as f:
            f.write(str(value))

    def set_limit(self, limit: int) -> None:
        """Version 1 can be told to let its processes wait; in version 2 they do when none may be killed."""
        if self.old:
            self._write(f"{self.memory}/memory.limit_in_bytes", limit)
            self._write(f"{self.memory}/memory.oom_control", int(self.waits))
        else:
            self._write(f"{self.memory}/memory.max", limit)
            self._write(f"{self.memory}/memory.swap.max", 0)

    def prefix(self) -> list[str]:
        """A command line that executes the rest of it inside."""
        spare = "echo -1000 >/proc/self/oom_score_adj && " if self.waits and not self.old else ""
        into = "".join(f"echo $$ >{p}/cgroup.procs && " for p in sorted({self.path, self.memory}) if p)
        return ["sh", "-c", f'{spare}{into}exec "$0" "$@"'] if into else []

    def is_full(self) -> bool:
        name = "memory.oom_control" if self.old else "memory.events"
        with open(f"{self.memory}/{name}") as f:
            text = f.read()
        return "under_oom 1" in text if self.old else int(text.split("max ")[1].split()[0]) > 1000

    def pids(self) -> list[int]:
        found: list[int] = []
        for path in filter(None, (self.path or self.memory,)):
            with open(f"{path}/cgroup.procs") as f:
                found += [p for p in map(int, f.read().split()) if alive(p)]
        return found

    def freeze(self, on: bool, pids: list[int] | None = None) -> None:
        """pids: where there is no such cgroup, signals do it, and what was started last goes on first: the other order
        would help an elector, which must be first."""
        if self.path:
            self._write(f"{self.path}/cgroup.freeze", int(on))
            return
        for pid in reversed(pids or []):
            _send(pid, signal.SIGSTOP if on else signal.SIGCONT)

    def kill(self) -> None:
        """None of them sees another one's end."""
        self.freeze(True)
        for pid in self.pids():
            _send(pid, signal.SIGKILL)
        self.freeze(False)

    def remove(self, patience: float = 10) -> None:
        """When those in it have been killed; they are gone a moment later."""
        end = time.monotonic() + patience
        left = {p for p in (self.path, self.memory) if p}
        while left and time.monotonic() < end:
            for path in sorted(left):
                try:
                    os.rmdir(path)
                    left.remove(path)
                except OSError:
                    time.sleep(0.05)


def _send(pid: int, sig: int) -> None:
    try:
        os.kill(pid, sig)
    except ProcessLookupError:
        pass

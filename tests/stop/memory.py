#!/usr/bin/env python3
"""A memory cgroup that is full, and where the kernel kills nobody: whoever needs another page waits for it. The elector
is stopped, so that the guard alone is left to kill the tree when the lease ends."""

import os
import signal
import sys
from typing import Any

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from candidates import Candidate, stop_everyone
from processes import alive, scratch, wait_for
from tap import done, note, ok, skip

LIMIT = 96 << 20
HOG = """
import signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
held = []
while True:
    held.append(bytearray(1 << 18))
"""
SCRIPT = """
return {
  on_leading = function()
    for _ = 1, 2 do os.execute(("setsid %s -c '%s' %s &"):format(arg[1], arg[2], arg[3])) end
    print("leading")
    os.execute("sleep 1000")
  end,
}
"""


class Group:
    """Version 1 can be told to let its processes wait; in version 2 they do when none may be killed."""

    def __init__(self) -> None:
        self.old = os.path.isdir("/sys/fs/cgroup/memory")
        self.path = f"/sys/fs/cgroup/{'memory/' if self.old else ''}lunarch-test-{os.getpid()}"
        if not self.old:
            with open("/sys/fs/cgroup/cgroup.subtree_control", "w") as f:
                f.write("+memory")
        os.mkdir(self.path)
        if self.old:
            self.write("memory.limit_in_bytes", LIMIT)
            self.write("memory.oom_control", 1)
        else:
            self.write("memory.max", LIMIT)
            self.write("memory.swap.max", 0)

    def write(self, name: str, value: Any) -> None:
        with open(f"{self.path}/{name}", "w") as f:
            f.write(str(value))

    def read(self, name: str) -> Any:
        with open(f"{self.path}/{name}") as f:
            return f.read()

    def enter(self) -> Any:
        """A command line that runs the rest of it inside."""
        spare = "" if self.old else "echo -1000 > /proc/self/oom_score_adj && "
        return ["sh", "-c", f'{spare}echo $$ > {self.path}/cgroup.procs && exec "$0" "$@"']

    def is_full(self) -> Any:
        if self.old:
            return "under_oom 1" in self.read("memory.oom_control")
        return int(self.read("memory.events").split("max ")[1].split()[0]) > 1000

    def pids(self) -> Any:
        return [p for p in map(int, self.read("cgroup.procs").split()) if alive(p)]

    def end(self) -> None:
        wait_for(lambda: not self.pids())
        wait_for(lambda: not self.remove())

    def remove(self) -> Any:
        try:
            os.rmdir(self.path)
        except OSError as e:
            return e


def full() -> None:
    group = Group()
    try:
        kills(group, scratch())
    finally:
        for p in group.pids():
            os.kill(p, signal.SIGKILL)
        group.end()


def kills(group: Any, directory: str) -> None:
    a = Candidate(
        "--lock", directory + "/lock", "-e", SCRIPT, "--", sys.executable, HOG, directory, prefix=group.enter()
    )
    ok(a.wait("print", "leading"), "full memory: a candidate leads")
    worker = a.worker()
    a.kill(signal.SIGSTOP)
    ok(wait_for(group.is_full), "full memory: its tree takes all there is")
    gone = wait_for(lambda: not [p for p in group.pids() if p != a.pid])
    ok(gone and not alive(worker), "full memory: the guard kills everything all the same")
    if not gone:
        for p in group.pids():
            with open(f"/proc/{p}/comm") as f, open(f"/proc/{p}/wchan") as w:
                note(f"{p} {f.read().strip()} {w.read()}")
    a.kill(signal.SIGKILL)
    a.leave()


if os.geteuid() == 0:
    full()
else:
    skip("full memory", "only root can make a memory cgroup")
stop_everyone()
done()

#!/usr/bin/env -S PYTHONPATH=. python3
"""The kernel's OOM killer takes the elector, the guard, or the worker of a leader whose script has eaten all memory of
its cgroup: nothing of the term lives when the next one leads.

What happens where the kernel kills nobody is memory.py's."""

import os
import signal
from typing import Any

from tests.lib.candidates import WATCHED, Candidate, stop_everyone
from tests.lib.processes import alive, can_act, scratch, wait_for
from tests.lib.tap import at_once, done, ok, skip

LIMIT = 48 << 20
EATS = """
return { on_leading = function()
  local child = exec { "sleep", "100000", background = true }
  local go, all = arg[1], {}
  while true do
    local f = io.open(go)
    if f then f:close() break end
    sleep(0.05)
  end
  for i = 1, 1000 do all[i] = ("x"):rep(1 << 20) .. i end
  sleep(1000)
end }
"""


class Group:
    """A memory cgroup, of either version."""

    def __init__(self, name: str) -> None:
        self.old = os.path.isdir("/sys/fs/cgroup/memory")
        self.path = f"/sys/fs/cgroup/{'memory/' if self.old else ''}lunarch-oom-{name}-{os.getpid()}"
        if not self.old:
            with open("/sys/fs/cgroup/cgroup.subtree_control", "w") as f:
                f.write("+memory")
        os.mkdir(self.path)
        self.write("memory.limit_in_bytes" if self.old else "memory.max", LIMIT)
        if not self.old:
            self.write("memory.swap.max", 0)

    def write(self, name: str, value: Any) -> None:
        with open(f"{self.path}/{name}", "w") as f:
            f.write(str(value))

    def kills(self) -> int:
        with open(f"{self.path}/{'memory.oom_control' if self.old else 'memory.events'}") as f:
            return sum(int(line.split()[1]) for line in f if line.startswith("oom_kill "))

    def pids(self) -> list[int]:
        with open(f"{self.path}/cgroup.procs") as f:
            return [p for p in map(int, f.read().split()) if alive(p)]

    def end(self) -> None:
        for p in self.pids():
            os.kill(p, signal.SIGKILL)
        wait_for(lambda: not self.pids())
        wait_for(self.removed)

    def removed(self) -> bool:
        try:
            os.rmdir(self.path)
        except OSError:
            return False
        return True


def kill(what: str) -> None:
    group, room = Group(what), scratch()
    try:
        watch(what, group, room)
    finally:
        group.end()


def watch(what: str, group: Group, room: str) -> None:
    enter = ["sh", "-c", f'echo $$ > {group.path}/cgroup.procs && exec "$0" "$@"']
    lock = ["--lock", f"{room}/lock", "--state-dir", f"{room}/state"]
    a = Candidate(*lock, "-e", EATS, "--", f"{room}/go", prefix=enter, options=WATCHED)
    a.event("became_leader")
    wait_for(lambda: len(group.pids()) == 4)
    tree = [p for p in group.pids() if p != a.pid]
    victim = {"elector": a.pid, "guard": a.guard(), "worker": a.worker()}[what]
    for p in group.pids():
        with open(f"/proc/{p}/oom_score_adj", "w") as f:
            f.write("1000" if p == victim else "0")
    b = Candidate(*lock, "-e", "return { on_leading = function() print 'leads' sleep(1000) end }", options=WATCHED)
    b.event("new_leader")
    left: list[int] = []
    open(f"{room}/go", "w").close()
    ok(wait_for(lambda: not alive(victim)) and group.kills() > 0, f"the kernel kills the {what} for want of memory")
    if what != "elector":  # it campaigns again, and may be first
        wait_for(lambda: a.all("stopped_leading"))
        left = [p for p in tree if can_act(p)]
        ok(wait_for(lambda: not [p for p in tree if can_act(p)]), f"{what}: nothing of the term lives on", left)
        led = wait_for(lambda: b.all("became_leader") or a.all("became_leader")[1:])
    else:
        led = wait_for(lambda: b.all("became_leader"))
        left = [p for p in tree if can_act(p)]
        ok(not left, f"{what}: nothing of the term lives when the next one leads", left)
    ok(led, f"{what}: somebody leads afterwards")
    a.kill()
    b.stop()
    a.leave()


if os.geteuid() == 0:
    at_once(lambda: kill("elector"), lambda: kill("guard"), lambda: kill("worker"))
else:
    skip("what the OOM killer kills", "only root can make a memory cgroup")
stop_everyone()
done()

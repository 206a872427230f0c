#!/usr/bin/env -S PYTHONPATH=. python3
"""Limits that a candidate meets from its start: few descriptors, few processes. It leads, or it ends or waits and says
why; and another one leads (tests/lib/nth.py)."""

import errno
import json
import os
import sys

from tests.lib.nth import STORES, Fault, Lab, Limit, Term, try_all
from tests.lib.tap import done, ok, same, skip

CLONE3 = 435  # asm/unistd_64.h: by which pthread_create(3) starts a thread; fork(2) is another call
FULL = bool(os.environ.get("FULL"))
LOCKS = sys.argv[1:] or (list(STORES) if FULL else ["file", "exec", "redis", "etcd"])


def descriptors(lab: Lab) -> None:
    most = range(4, 40) if FULL else range(4, 30, 3)
    faults = [Fault("limit", "elector", limit=Limit(["prlimit", f"--nofile={n}:"], f"{n} descriptors")) for n in most]
    try_all(lab, faults, f"{lab.name}: {most[0]} and more descriptors, and no more")


class Pids:
    """A cgroup of either version, in which so many processes and threads may be (pids.max)."""

    def __init__(self, most: int) -> None:
        old = os.path.isdir("/sys/fs/cgroup/pids")
        self.most = most
        self.path = f"/sys/fs/cgroup/{'pids/' if old else ''}lunarch-pids-{os.getpid()}-{most}"
        if not old:
            with open("/sys/fs/cgroup/cgroup.subtree_control", "w") as f:
                f.write("+pids")
        os.mkdir(self.path)
        self.allow(most)

    def allow(self, most: int) -> None:
        with open(f"{self.path}/pids.max", "w") as f:
            f.write(str(most))

    def limit(self) -> Limit:
        into = f'echo $$ > {self.path}/cgroup.procs && exec "$0" "$@"'
        return Limit(["sh", "-c", into], f"{self.most} processes and threads in a cgroup", self.end)

    def end(self) -> None:
        os.rmdir(self.path)


def users(most: int) -> Limit:
    """A user who may have so many processes and threads (RLIMIT_NPROC of setrlimit(2)), and has no others. Root has no
    such limit, so what root reads and writes here it may read and write, too."""
    who = 1_000_000 + 64 * os.getpid() + most
    may = "-all,+dac_override,+dac_read_search"
    become = ["setpriv", f"--reuid={who}", f"--regid={who}", "--clear-groups"]
    become += [f"--inh-caps={may}", f"--ambient-caps={may}", "prlimit", f"--nproc={most}:{most}"]
    return Limit(become, f"{most} processes and threads of a user", stranger=True)


def processes(lab: Lab) -> None:
    """One for the elector; up to four threads of it, the guard, the worker, the script's programs."""
    most = range(1, 14) if FULL else range(1, 11, 3)
    for limits, whose in ([Pids(n).limit() for n in most], "in a cgroup"), ([users(n) for n in most], "of a user"):
        faults = [Fault("limit", "elector", limit=limit) for limit in limits]
        try_all(lab, faults, f"{lab.name}: {most[0]} and more processes {whose}, and no more")


def later(lab: Lab, killed: str) -> None:
    """The limit is reached while it leads, and then a process of it dies that must be replaced."""
    pids = Pids(1000)
    t = Term(lab, Fault("limit", "elector", limit=pids.limit()))
    a = t.join("a", prefix=pids.limit().before)
    a.event("print", "saved ")
    b = t.join("b")
    a.event("next_known")
    pids.allow(1)
    what = f"{lab.name}: no process may be started any more, and the {killed} is killed"
    a.kill(pid=a.guard() if killed == "guard" else a.worker())
    ok(t.f.acts(1, "b"), f"{what}: the other one leads")
    ok(a.wait("spawn_failed", "Resource temporarily unavailable"), f"{what}: it says what cannot be started, and why")
    same(a.process.poll(), None, f"{what}: it stays")
    pids.allow(1000)
    same(b.stop(), 0, f"{what}: the other one ends")
    ok(t.f.acts(2, "a"), f"{what}: when they may be started again it leads again")
    same(a.stop(), 0, f"{what}: it ends")
    t.f.verdict(what)
    t.f.end()
    pids.end()


def threads(lab: Lab) -> None:
    """The elector can start no thread, ever: what may have to be waited for is not done on the loop's thread."""
    t = Term(lab, Fault("clone3", "elector", 1, CLONE3, errno.EAGAIN, rest=True))
    path = os.path.join(t.f.dir, "state.json")
    a = t.hurt("--state-file", path)
    what = f"{lab.name}: no thread can be started"
    ok(a.event("print", "saved ") and a.guard(), f"{what}: it leads, on a lock that needs none, with a guard")
    ok(a.event("no_thread", "Resource temporarily unavailable"), f"{what}: that is said")
    with open(path) as f:
        state = json.load(f)
    same(state["elections"], [], f"{what}: the state file is as it was before there was a loop")
    same(a.stop(), 0, f"{what}: it ends")
    ok(a.event("state_file_failed", "no thread"), f"{what}: the state file does not say so, which is said")
    same(len(a.all("no_thread")), 1, f"{what}: all that once for each pool of threads that has jobs")
    t.f.verdict(what)
    t.f.end()


def main() -> None:
    for name in LOCKS:
        lab = Lab(name)
        lab.count("calls")
        descriptors(lab)
        if os.geteuid() == 0:
            processes(lab)
            if name == "file":
                later(lab, "guard")
                later(lab, "worker")
                threads(lab)
        else:
            skip(f"{name}: few processes", "only root can make a cgroup, and be another user")
        lab.store.end()
    done()


main()

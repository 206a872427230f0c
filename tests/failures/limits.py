#!/usr/bin/env python3
"""Limits that a candidate meets from its start: few descriptors, few processes. It leads, or it ends or waits and says
why; and another one leads (tests/lib/nth.py)."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from nth import Fault, Lab, Limit, try_all
from tap import done, skip

FULL = bool(os.environ.get("FULL"))
LOCKS = sys.argv[1:] or ["file", "exec", "redis", "etcd"]


def descriptors(lab: Lab) -> None:
    most = range(4, 40) if FULL else range(4, 30, 3)
    faults = [Fault("limit", "elector", limit=Limit(["prlimit", f"--nofile={n}:"])) for n in most]
    try_all(lab, faults, f"{lab.name}: {most[0]} and more descriptors, and no more")


class Pids:
    """A cgroup of either version, in which so many processes and threads may be."""

    def __init__(self, most: int) -> None:
        old = os.path.isdir("/sys/fs/cgroup/pids")
        self.path = f"/sys/fs/cgroup/{'pids/' if old else ''}lunarch-pids-{os.getpid()}-{most}"
        if not old:
            with open("/sys/fs/cgroup/cgroup.subtree_control", "w") as f:
                f.write("+pids")
        os.mkdir(self.path)
        with open(f"{self.path}/pids.max", "w") as f:
            f.write(str(most))

    def limit(self) -> Limit:
        return Limit(["sh", "-c", f'echo $$ > {self.path}/cgroup.procs && exec "$0" "$@"'], self.end)

    def end(self) -> None:
        os.rmdir(self.path)


def processes(lab: Lab) -> None:
    """One for the elector; up to four threads of it, the guard, the worker, the script's programs."""
    most = range(1, 14) if FULL else range(1, 11, 3)
    faults = [Fault("limit", "elector", limit=Pids(n).limit()) for n in most]
    try_all(lab, faults, f"{lab.name}: {most[0]} and more processes, and no more")


def main() -> None:
    for name in LOCKS:
        lab = Lab(name)
        lab.count("calls")
        descriptors(lab)
        if os.geteuid() == 0:
            processes(lab)
        else:
            skip(f"{name}: few processes", "only root can make a cgroup")
        lab.store.end()
    done()


main()

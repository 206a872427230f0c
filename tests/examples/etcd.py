#!/usr/bin/env -S PYTHONPATH=. python3
"""examples/etcd.lua: jobs in their order, and a new leader goes on where the killed one stopped."""

import os
import shutil
import signal
from typing import Any

from tests.lib.candidates import FAST, Candidate, stop_everyone
from tests.lib.processes import ROOT, scratch, wait_for
from tests.lib.servers import Etcd
from tests.lib.tap import done, ok, same

where = scratch()
out = os.path.join(where, "out")


def job(n: int) -> None:
    with open(os.path.join(where, "new"), "w") as f:
        f.write(f'echo "$JOB $TOKEN" >> {out}\n')
    os.rename(f.name, os.path.join(where, f"{n}.sh"))


def lines() -> Any:
    try:
        with open(out) as f:
            return [tuple(map(int, line.split())) for line in f]
    except FileNotFoundError:
        return []


def candidate(server: Etcd) -> Candidate:
    return Candidate(
        "--lock", server.url("jobs"), os.path.join(ROOT, "examples", "etcd.lua"), "--", where, "0.1", options=FAST
    )


def main() -> None:
    with Etcd() as server:
        for n in range(1, 4):
            job(n)
        first = candidate(server)
        wait_for(lambda: len(lines()) == 3)
        same([n for n, _ in lines()], [1, 2, 3], "the leader runs the jobs in their order")
        wait_for(lambda: len(first.all("job")) == 3)
        second = candidate(server)
        ok(second.wait("new_leader"), "another candidate sees who leads")
        for pid in (first.worker(), first.guard(), first.pid):
            first.kill(signal.SIGKILL, pid)
        for n in range(4, 7):
            job(n)
        wait_for(lambda: any(n == 6 for n, _ in lines()))
        got = [n for n, _ in lines()]
        ok(
            sorted(set(got)) == list(range(1, 7)) and got == sorted(got),
            "after its death the next one does the rest, in order",
        )
        ok(got.count(1) == 1 and got.count(2) == 1, "and does not begin again", lines())
        tokens = [t for _, t in lines()]
        ok(tokens == sorted(tokens) and tokens[-1] > tokens[0], "with a larger token")
        for c in (first, second):
            if not got:
                c.log()
        stop_everyone()
    shutil.rmtree(where)


main()
done()

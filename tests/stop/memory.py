#!/usr/bin/env -S PYTHONPATH=. python3
"""A memory cgroup that is full, and where the kernel kills nobody: whoever needs another page waits for it. The elector
is stopped, so that the guard alone is left to kill the tree when the lease ends."""

import os
import signal
import sys

from tests.lib.candidates import Candidate, stop_everyone
from tests.lib.cgroups import Cgroup
from tests.lib.processes import alive, scratch, wait_for
from tests.lib.tap import done, note, ok, skip

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


def full() -> None:
    group = Cgroup(f"test-{os.getpid()}", LIMIT, waits=True)
    try:
        kills(group, scratch())
    finally:
        group.kill()
        wait_for(lambda: not group.pids())
        group.remove()


def kills(group: Cgroup, directory: str) -> None:
    a = Candidate(
        "--lock", directory + "/lock", "-e", SCRIPT, "--", sys.executable, HOG, directory, prefix=group.prefix()
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

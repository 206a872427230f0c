#!/usr/bin/env -S PYTHONPATH=. python3
"""A memory cgroup that is full, and where the kernel kills nobody: whoever needs another page waits for it. The elector
is stopped, so that the guard alone is left to kill the tree when the lease ends."""

import glob
import os
import signal
import sys

from tests.lib.candidates import Candidate, stop_everyone
from tests.lib.cgroups import Cgroup
from tests.lib.processes import alive, scratch, wait_for
from tests.lib.tap import done, note, ok, skip

LIMIT = 96 << 20
# Half of it before it says that it is up, so that little is left to do before the lease ends.
HOG = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
held = [bytearray(1 << 18) for _ in range(96)]
open(f"{sys.argv[1]}/up-{os.getpid()}", "w").close()
while not os.path.exists(f"{sys.argv[1]}/go"):
    time.sleep(0.01)
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
    wait_for(lambda: len(glob.glob(directory + "/up-*")) == 2)
    a.kill(signal.SIGSTOP)
    open(directory + "/go", "w").close()
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

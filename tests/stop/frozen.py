#!/usr/bin/env -S PYTHONPATH=. python3
"""What is stopped (SIGSTOP) when it is needed: the guard alone, with short leases and long ones, so that the elector
must do its work before the lease is over; and elector, guard and worker together, beside which what they started goes
on."""

import json
import math
import os
import signal
import subprocess
import sys
import time
from typing import Any

from tests.lib.candidates import Candidate, stop_everyone, timing
from tests.lib.processes import PATIENCE, SLOWNESS, alive, moment, scratch, wait_for
from tests.lib.tap import at_once, done, note, ok, same

MAPPED = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
TRIES = 5  # a machine that is busy may be late once; one that was told a wrong time is late always
# Writes down when it acts, as a daemon that ignores what it is told.
ACTOR = """
import signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
with open(sys.argv[1], "a") as f:
    while True:
        f.write("%d %s\\n" % (time.time_ns(), sys.argv[2]))
        f.flush()
        time.sleep(0.002)
"""
SCRIPT = """
return {
  on_leading = function(term)
    os.execute(("setsid %s -c '%s' %s/acts %d &"):format(arg[1], arg[2], arg[3], term.token))
    print("leading " .. term.token)
    if arg[4] == "sleep" then os.execute("sleep 1000") end
    local f, n = io.open(arg[3] .. "/worker", "w"), 0
    while true do
      n = n + 1
      f:seek("set")
      f:write(n)
      f:flush()
    end
  end,
}
"""


class Scene:
    def __init__(self) -> None:
        self.home, self.dir = scratch(), scratch()  # of the lock alone; of what is written down
        self.lock = os.path.join(self.home, "lock")

    def candidate(self, how: str, **kw: Any) -> Any:
        return Candidate("--lock", self.lock, "-e", SCRIPT, "--", sys.executable, ACTOR, self.dir, how, **kw)

    def acts(self) -> Any:
        """(time, token) of all whole lines."""
        try:
            with open(self.dir + "/acts") as f:
                return [tuple(map(int, line.split())) for line in f.read().splitlines(True) if line.endswith("\n")]
        except OSError:
            return []

    def actors(self, token: int | None = None) -> list[int]:
        """Who acts: not the shell that started him, nor the candidates, whose arguments hold the same words."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as f:
                    words = f.read().split(b"\0")
                if (
                    words[1:2] == [b"-c"]
                    and words[3:4] == [(self.dir + "/acts").encode()]
                    and alive(int(pid))
                    and token in (None, int(words[4]))
                ):
                    found.append(int(pid))
            except (OSError, IndexError):
                pass
        return found


def is_stopped(pid: int) -> bool:
    with open(f"/proc/{pid}/stat") as f:
        return f.read().rsplit(")", 1)[1].split()[0] == "T"


def freeze(*pids: int) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    wait_for(lambda: all(is_stopped(p) for p in pids))


def guard_stopped(lease_ms: int) -> float:
    """By how much the last act was before the end of the lease, in ms; without end, if that could not be seen: so short
    a lease may be lost to a busy machine before its guard is stopped."""
    s = Scene()
    apart = [
        "unshare",
        *MAPPED,
        "--mount",
        "--propagation",
        "private",
        "sh",
        "-c",
        f'mount --bind "{s.home}" "{s.home}" && exec "$@"',
        "sh",
    ]
    a = s.candidate("sleep", options=timing(f"{lease_ms}ms"), prefix=apart)
    wait_for(lambda: a.said("leading") and s.acts() and s.actors())
    try:
        freeze(a.guard())
    except OSError as e:
        note(e)
    enter = ["nsenter", "--target", str(a.pid), *(["--user", "--preserve-credentials"] if MAPPED else []), "--mount"]
    subprocess.run([*enter, "mount", "-o", "remount,bind,ro", s.home], check=True, cwd="/")
    killed = a.wait("guard_killed", patience=PATIENCE) and wait_for(lambda: not s.actors())
    a.kill(signal.SIGKILL)
    a.leave()
    with open(s.lock) as f:
        end = moment(json.load(f)["renewTime"]) + SLOWNESS * lease_ms / 1000
    return 1000 * (end - s.acts()[-1][0] / 1e9) if killed else -math.inf


def guard_stopped_in_time(lease_ms: int) -> None:
    spare: list[float] = []
    while len(spare) < TRIES and not (spare and spare[-1] > 0):
        spare.append(guard_stopped(lease_ms))
    ok(spare[-1] > 0, f"guard stopped, {lease_ms} ms: the elector has killed the tree before the lease is over")
    note(f"{lease_ms} ms: last act before its end: {', '.join(f'{x:.0f} ms' for x in spare)}")


def all_three_stopped() -> None:
    """Nobody is left to kill what they started, and the lease runs out: it goes on beside the next leader, which only
    tokens can fence. Promised is what happens when they go on."""
    s = Scene()
    a = s.candidate("write")
    wait_for(lambda: a.said("leading") and s.acts() and os.path.exists(s.dir + "/worker"))
    guard, worker = a.guard(), a.worker()
    freeze(a.pid, guard, worker)
    b = s.candidate("sleep")
    ok(b.wait("print", "leading"), "all three stopped: the next candidate leads when the lease is over")
    tokens = [int(c.said("leading")[0]["message"].split()[1]) for c in (a, b)]
    old = s.actors(tokens[0])
    began = wait_for(lambda: [t for t, token in s.acts() if token == tokens[1]])[0]
    wait_for(lambda: [t for t, token in s.acts() if token == tokens[0] and t > began])
    ok(old, "all three stopped: what the first one started lives on beside it, as documented")
    ok(tokens[0] < tokens[1], "all three stopped: but its token is the smaller one")
    with open(s.dir + "/worker") as f:
        before = f.read()
    for pid in (worker, guard, a.pid):
        os.kill(pid, signal.SIGCONT)
        time.sleep(0.05)  # each of them alone
    ok(
        wait_for(lambda: not s.actors(tokens[0]) and not alive(guard) and not alive(worker)),
        "all three stopped: continued, all of the first one's tree dies",
    )
    with open(s.dir + "/worker") as f:
        same(f.read(), before, "all three stopped: and its script did not run a step more")
    ok(a.wait("stopped_leading"), "all three stopped: its elector knows that the term is over")
    same(len(a.all("became_leader")), 1, "all three stopped: and has not led again beside the other")
    ok(s.actors(tokens[1]), "all three stopped: which works on")
    for c in (a, b):
        c.kill(signal.SIGKILL)
        c.leave()


LEASES = [15000, 3000, 2000, 1000, 500]
jobs = [lambda ms=ms: guard_stopped_in_time(ms) for ms in LEASES]
# The long one beside the others, which are in a hurry one by one.
at_once(jobs[0], all_three_stopped, lambda: [job() for job in jobs[1:]])
stop_everyone()
done()

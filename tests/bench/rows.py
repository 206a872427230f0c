"""What the parts of make bench share: a row of figures, and candidates whose on_leading says a line."""

import os
import signal
import statistics
import subprocess
import sys
import time
from typing import Any

from tests.lib.candidates import Candidate
from tests.lib.processes import ROOT, children, piped

OPTIONS = {"--quick": "fewer runs, for a look", "--json": "an array of rows, for programs", "--help": "this"}
QUICK, JSON = "--quick" in sys.argv, "--json" in sys.argv
RUNS = 5 if QUICK else 30
rows = []
HELLO = "return { on_leading = function(t) io.write('leading\\n') io.flush() end }"


def built(name: str) -> Any:
    return os.path.join(ROOT, "build", "bench", name)


def row(what: str, goal: Any, values: Any, unit: Any, floor: Any = None) -> None:
    """goal, floor: in the row's unit; the floor may be a list of values."""
    values = sorted(values)
    median = statistics.median(values)
    low = statistics.median(floor) if isinstance(floor, list) else floor
    rows.append(
        {
            "what": what.strip(),
            "goal": goal,
            "median": median,
            "min": values[0],
            "max": values[-1],
            "unit": unit,
            "runs": len(values),
            "floor": low,
        }
    )
    if not JSON:
        print(
            f"{what:<62} {median:9.3f} {unit:<2} {values[0]:9.3f} .. {values[-1]:9.3f} "
            f"{goal and f'{goal} {unit}' or '':>8} " + (f"{low:9.3f} {median / low:6.1f}" if low else ""),
            flush=True,
        )


def first_line(argv: Any) -> Any:
    began = time.perf_counter()
    p = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    piped(p.stdout).readline()
    return (time.perf_counter() - began) * 1000, p


def start_times(argv: Any, stop: bool = False) -> Any:
    values = []
    for i in range(RUNS):
        took, p = first_line([a.replace("{i}", str(i)) for a in argv])
        values.append(took)
        if stop:
            p.send_signal(signal.SIGTERM)
        p.wait()
        piped(p.stdout).close()
    return values


class Runner:
    """A candidate whose on_leading says a line."""

    def __init__(self, lock: str, script: str = HELLO, options: Any = ()) -> None:
        self.log = Candidate("--lock", lock, "-e", script, stdout=subprocess.PIPE, options=list(options))
        self.out = piped(self.log.process.stdout)

    def leave(self) -> None:
        self.log.kill(signal.SIGTERM)
        self.log.leave()
        self.out.close()


def standby_of(lock: str, options: Any = ()) -> Any:
    r = Runner(lock, options=options)
    r.log.wait("new_leader")
    time.sleep(0.02)
    return r


def handovers(lock: str, hurt: Any, settle: float = 0.0) -> Any:
    """settle: seconds that a standby has been there."""
    values, leader = [], Runner(lock)
    leader.out.readline()
    for _ in range(RUNS):
        standby = standby_of(lock)
        time.sleep(settle)
        began = time.perf_counter()
        hurt(leader.log)
        standby.out.readline()
        values.append((time.perf_counter() - began) * 1000)
        leader.log.leave()
        leader.out.close()
        leader = standby
    leader.leave()
    return values


def kill_all(c: Any) -> None:
    for pid in family(c):
        c.kill(signal.SIGKILL, pid)  # one of them may have died of another's death already


def family(c: Any) -> Any:
    guard = c.guard()
    return [c.pid, guard, *children(guard)]


def pss(pids: Any) -> Any:
    total = 0
    for pid in pids:
        with open(f"/proc/{pid}/smaps_rollup") as f:
            total += next(int(line.split()[1]) for line in f if line.startswith("Pss:"))
    return total / 1024


def cpu_ms(pids: Any) -> Any:
    total = 0.0
    for pid in pids:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/schedstat") as f:
                total += int(f.read().split()[0]) / 1e6
    return total


MANY = """local n, leading, list = %d, 0, {}
local function lead()
  leading = leading + 1
  if leading == n then io.write("all\\n") io.flush() end
end
for i = 1, n do
  list[i] = { name = "e" .. i, lock = "%s" .. i, on_leading = lead }
  if not LEADS then list[i].on_leading, list[i].on_new_leader = function() end, lead end
end
return list"""


class Crowd:
    """n elections in one process; lock: their URLs but for the number at the end. Each leads, or hears who does."""

    def __init__(self, lock: str, n: Any, options: Any = (), env: Any = None, leads: bool = True) -> None:
        began = time.monotonic()
        script = MANY.replace("LEADS", str(leads).lower()) % (n, lock)
        self.log = Candidate("-e", script, options=list(options), stdout=subprocess.PIPE, env=env)
        piped(self.log.process.stdout).readline()
        self.took = time.monotonic() - began

    def leave(self) -> None:
        self.log.stop(patience=300)
        piped(self.log.process.stdout).close()

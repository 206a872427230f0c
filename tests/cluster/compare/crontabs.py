#!/usr/bin/env -S PYTHONPATH=. python3
"""The same crontab on two machines, whose active one fails between two minutes: who misses a minute, and who runs it
twice? Lunarch's cron, Debian's cron with flock(1) on both, supercronic with flock on both, supercronic alone and
started again. Prints a table; no test: docs/cron.md tells of it. As root. supercronic: in the path, or SUPERCRONIC=FILE
(go install github.com/aptible/supercronic@latest).

The machines are mount namespaces for Debian's cron, else directories. Killed is the scheduler that ran the last minute,
2 s before the next one."""

import collections
import os
import shutil
import signal
import subprocess
import threading
import time
from typing import Any

from tests.lib.processes import LUNARCH, scratch

JOBS, MINUTES, MINUTE = 5, 3, 60
SUPERCRONIC = os.environ.get("SUPERCRONIC") or shutil.which("supercronic")
NAMESPACE = """
mount --make-rprivate / && mount -t tmpfs none /var/spool/cron && mount -t tmpfs none /etc/cron.d &&
mount -t tmpfs none /run && mount --bind /dev/null /etc/crontab && mkdir -m 1730 /var/spool/cron/crontabs &&
cp "$1" /var/spool/cron/crontabs/root && chmod 600 /var/spool/cron/crontabs/root && exec /usr/sbin/cron -f
"""
room = scratch()
begin = (int(time.time() + 12) // MINUTE + 1) * MINUTE  # the first minute that counts


class Machines:
    """Schedulers on one crontab. restart: what has failed comes back after so many seconds; None: never."""

    def __init__(self, name: str, count: int, argv: Any, guard: str, restart: float | None) -> None:
        self.name, self.argv, self.restart = name, argv, restart
        self.place = os.path.join(room, name.replace(" ", "-"))
        os.mkdir(self.place)
        self.tabs = []
        for who in range(count):
            lines = []
            for i in range(JOBS):
                work = f"echo {i} {who} $(date +%s) >>{self.place}/runs".replace("%", self.percent())
                lines.append(f"# lunarch: name=job{i}")  # the lines of two machines differ in their number
                lines.append("* * * * * " + guard.format(lock=f"{self.place}/lock{i}", work=work))
            path = f"{self.place}/tab{who}"
            with open(path, "w") as f:
                f.write("\n".join(lines) + "\n")
            self.tabs.append(path)
        self.programs = [self.start(who) for who in range(count)]

    def percent(self) -> str:
        return "%" if "supercronic" in self.name else "\\%"

    def start(self, who: int) -> Any:
        with open(f"{self.place}/log{who}", "a") as log:
            return subprocess.Popen(
                self.argv(self, who), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def runs(self) -> list[list[int]]:
        try:
            with open(f"{self.place}/runs") as f:
                return [[int(word) for word in line.split()] for line in f if line.count(" ") == 2]
        except FileNotFoundError:
            return []

    def fail(self) -> None:
        """The machine of the last run dies with all that it runs."""
        last = self.runs()[-1][1]
        os.killpg(self.programs[last].pid, signal.SIGKILL)
        if self.restart is not None:
            time.sleep(self.restart)
            self.programs[last] = self.start(last)

    def end(self) -> None:
        for p in self.programs:
            if p.poll() is None:
                os.killpg(p.pid, signal.SIGTERM)
        for p in self.programs:
            p.wait(60)

    def result(self) -> str:
        """By the minute in which a run began; one that is late belongs to the minute before, which has no other."""
        counted = collections.Counter((job, (at - begin) // MINUTE) for job, _, at in self.runs())
        minutes = range(MINUTES)
        missed = sum(counted[job, m] == 0 for job in range(JOBS) for m in minutes)
        twice = sum(max(0, counted[job, m] - 1) for job in range(JOBS) for m in minutes)
        return f"{self.name:34} {JOBS * MINUTES:5} {missed:7} {twice:6}"


def lunarch(m: Machines, who: int) -> list[str]:
    options = ["--state-dir", f"{m.place}/state{who}", "--output-dir", f"{m.place}/out"]
    return [LUNARCH, "cron", "--lock", f"{m.place}/lock", *options, m.tabs[who]]


def debian(m: Machines, who: int) -> list[str]:
    return ["unshare", "-m", "sh", "-c", NAMESPACE, "sh", m.tabs[who]]


def supercronic(m: Machines, who: int) -> list[str]:
    return [SUPERCRONIC or "", m.tabs[who]]


FLOCK = "flock -n {lock} sh -c '{work}'"
all_of = [Machines("lunarch cron, 2 machines", 2, lunarch, "{work}", None)]
if os.path.exists("/usr/sbin/cron"):
    all_of.append(Machines("cron and flock -n, 2 machines", 2, debian, FLOCK, None))
if SUPERCRONIC:
    all_of.append(Machines("supercronic and flock, 2 machines", 2, supercronic, FLOCK, None))
    all_of.append(Machines("supercronic, back after 5 s", 1, supercronic, "{work}", 5))
time.sleep(max(0.0, begin + MINUTE - 2 - time.time()))
threads = [threading.Thread(target=m.fail) for m in all_of]
for t in threads:
    t.start()
for t in threads:
    t.join()
time.sleep(max(0.0, begin + MINUTES * MINUTE - 5 - time.time()))
for m in all_of:
    m.end()
print(f"{'':34} {'times':>5} {'missed':>7} {'twice':>6}")
for m in all_of:
    print(m.result())

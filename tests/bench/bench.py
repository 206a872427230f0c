#!/usr/bin/env -S PYTHONPATH=. python3
"""make bench: figures of this machine; peers and floors in the same run. A floor is a C program that does only what
cannot be left out. Medians. BENCH= takes options and words that choose rows ('--quick idle memory'); --help shows
them."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from typing import Any

from tests.bench import driver_rows
from tests.bench import kube_rows
from tests.bench import next_rows
from tests.bench import script_rows
from tests.bench import store_rows
from tests.lib.candidates import FAST, stop_everyone
from tests.lib.processes import LUNARCH, ROOT, children, piped, scratch
from tests.bench.rows import (
    HELLO,
    JSON,
    OPTIONS,
    QUICK,
    RUNS,
    Crowd,
    Runner,
    built,
    cpu_ms,
    family,
    first_line,
    handovers,
    kill_all,
    pss,
    row,
    rows,
    standby_of,
    start_times,
)

# ---- start ----


def starts(directory: str) -> None:
    floor = start_times([built("floor")])
    row(
        "start to on_leading, free file lock (memory)",
        10,
        start_times([LUNARCH, "run", "--lock", directory + "/s{i}", "-e", HELLO], True),
        "ms",
        floor,
    )
    disk = os.path.join(ROOT, "build", "bench-locks")
    os.makedirs(disk, exist_ok=True)
    row(
        "start to on_leading, free file lock (disk, fsync)",
        None,
        start_times([LUNARCH, "run", "--lock", disk + "/s{i}", "-e", HELLO], True),
        "ms",
        floor,
    )
    shutil.rmtree(disk)
    row(
        "exec: start to the command's first line",
        None,
        start_times([LUNARCH, "exec", "--lock", directory + "/e{i}", "--", "echo", "x"]),
        "ms",
        floor,
    )
    row(
        "  peer: flock(1), start to the command's first line",
        None,
        start_times(["flock", directory + "/f{i}", "echo", "x"]),
        "ms",
    )


# ---- handing over ----


def worker_kills(directory: str) -> Any:
    values = []
    for i in range(RUNS):
        a = Runner(f"{directory}/w{i}")
        a.out.readline()
        b = standby_of(f"{directory}/w{i}")
        worker = a.log.worker()
        began = time.perf_counter()
        os.kill(worker, signal.SIGKILL)
        b.out.readline()
        values.append((time.perf_counter() - began) * 1000)
        a.leave()
        b.leave()
    return values


def flock_handovers(directory: str) -> Any:
    values = []
    for i in range(RUNS):
        holder = subprocess.Popen(
            ["flock", f"{directory}/p{i}", "sh", "-c", "echo x; exec sleep 60"],
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        piped(holder.stdout).readline()
        waiter = subprocess.Popen(["flock", f"{directory}/p{i}", "echo", "x"], stdout=subprocess.PIPE)
        time.sleep(0.03)
        began = time.perf_counter()
        os.killpg(holder.pid, signal.SIGTERM)
        piped(waiter.stdout).readline()
        values.append((time.perf_counter() - began) * 1000)
        for p in (holder, waiter):
            p.wait()
            piped(p.stdout).close()
    return values


def floor_handovers(directory: str, crash: Any) -> Any:
    """A replaced record, or the death of a process, noticed and answered with a replacement."""
    values, where = [], directory + "/floor-h"
    os.makedirs(where, exist_ok=True)
    for _ in range(RUNS):
        holder = subprocess.Popen(["sleep", "60"])
        successor = subprocess.Popen(
            [built("floor_file"), *(["successor", where, str(holder.pid)] if crash else ["next", where])],
            stdout=subprocess.PIPE,
        )
        piped(successor.stdout).readline()
        time.sleep(0.01)
        with open(where + "/.new", "w") as f:
            f.write("x" * 660)
        began = time.perf_counter()
        os.kill(holder.pid, signal.SIGKILL) if crash else os.rename(where + "/.new", where + "/record")
        piped(successor.stdout).readline()
        values.append((time.perf_counter() - began) * 1000)
        successor.wait()
        piped(successor.stdout).close()
        holder.kill()
        holder.wait()
    return values


def hand_over(directory: str) -> None:
    row(
        "SIGTERM to the leader until the next on_leading",
        1,
        handovers(directory + "/h", lambda c: c.kill(signal.SIGTERM)),
        "ms",
        floor_handovers(directory, False),
    )
    crash = floor_handovers(directory, True)
    row(
        "SIGKILL of elector, guard and worker until the next on_leading",
        15,
        handovers(directory + "/h", kill_all),
        "ms",
        crash,
    )
    row(
        "SIGKILL of the elector until the next on_leading",
        15,
        handovers(directory + "/h", lambda c: c.kill(signal.SIGKILL)),
        "ms",
        crash,
    )
    row("SIGKILL of the leading worker until the next on_leading", 15, worker_kills(directory), "ms", crash)
    row("  peer: flock(1), SIGTERM until the next command's first line", None, flock_handovers(directory), "ms")

    def apart(key: str) -> str:
        os.makedirs(f"{directory}/next-{key}", exist_ok=True)  # who watches a file is woken by its directory's changes
        return f"{directory}/next-{key}/lock"

    next_rows.gaps("file", apart, floor_handovers(directory, False))


# ---- killing a large family ----

SPAWN = "i=0; while :; do sleep 100 & i=$((i+1)); [ $i = 1000 ] && echo all; done"
CROWD = f"return {{ on_leading = function() io.write('leading\\n') io.flush() os.execute('{SPAWN}') end }}"


def crowds(directory: str) -> None:
    """Children are still being made when the elector dies: what runs on must be found, killed and reaped before another
    leads."""
    runs, values, floor = 2 if QUICK else 10, [], []
    for i in range(runs):
        a = Runner(f"{directory}/c{i}", CROWD, FAST)
        a.out.readline()
        b = standby_of(f"{directory}/c{i}")
        a.out.readline()
        began = time.perf_counter()
        a.log.kill(signal.SIGKILL)
        b.out.readline()
        values.append((time.perf_counter() - began) * 1000)
        b.leave()
        a.out.close()
        floor.append(float(subprocess.run([built("floor_tree"), SPAWN], capture_output=True, text=True).stdout))
    row("SIGKILL of the elector, its script making 1,000 children", None, values, "ms", floor)


# ---- what it costs to be there ----


def memory(directory: str) -> None:
    values, floor, peer = [], [], []
    for i in range(RUNS):
        r = Runner(f"{directory}/m{i}")
        r.out.readline()
        time.sleep(0.3)
        values.append(pss(family(r.log)))
        r.leave()
        three = [first_line([built("floor"), "stay"])[1] for _ in range(3)]
        floor.append(pss([p.pid for p in three]))
        holder = subprocess.Popen(
            ["flock", f"{directory}/mf{i}", "sh", "-c", "echo x; sleep 60"],
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        piped(holder.stdout).readline()
        time.sleep(0.05)
        peer.append(pss([holder.pid, *children(holder.pid)]))
        os.killpg(holder.pid, signal.SIGKILL)
        for p in (*three, holder):
            p.kill()
            p.wait()
            p.stdout.close()
    row("memory (PSS) of elector + guard + worker, leading, idle", 4, values, "MB", floor)
    row("  peer: flock(1) and its shell", None, peer, "MB")


def sleeps_ended(pids: Any) -> Any:
    """How often the threads of these processes have waited, and so been woken."""
    total = 0
    for pid in pids:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/status") as f:
                total += next(int(line.split()[1]) for line in f if line.startswith("voluntary_ctxt_switches"))
    return total


def idle(directory: str) -> None:
    """A leader, the standby that comes next and another one, several times side by side, and as many pairs of floors;
    each of them in each window is a run. Each lock has a directory of its own: who watches a file is woken by every
    change of its directory. A window is as long as two leases, since N is looked at, and written, once each."""
    trios, windows, length = (4, 1, 30) if QUICK else (10, 3, 30)
    floors: tuple[list[Any], list[Any]] = ([], [])
    leaders, standbys = [], []
    for i in range(trios):
        where = f"{directory}/idle{i}"
        os.mkdir(where)
        leaders.append(Runner(f"{where}/lock"))
        leaders[-1].out.readline()
        standbys.append({name: standby_of(f"{where}/lock", ["--identity", name]) for name in ("a", "b")})
        where = f"{directory}/floor-i{i}"
        os.mkdir(where)
        for role, to in zip(("standby", "leader"), reversed(floors)):
            to.append(subprocess.Popen([built("floor_file"), role, where]))
    following = [next_rows.await_next(f"{directory}/idle{i}/lock") for i in range(trios)]
    groups = [
        [family(r.log) for r in leaders],
        [family(two[name].log) for two, name in zip(standbys, following)],
        [family(r.log) for two, name in zip(standbys, following) for other, r in two.items() if other != name],
        *[[[p.pid] for p in ps] for ps in floors],
    ]
    time.sleep(2)
    spent: list[list[float]] = [[] for _ in groups]
    woken: list[list[float]] = [[] for _ in groups]
    for _ in range(windows):
        cpu, waits = ([[count(pids) for pids in g] for g in groups] for count in (cpu_ms, sleeps_ended))
        began = time.monotonic()
        time.sleep(length)
        minute = 60 / (time.monotonic() - began)
        for g, c, w, of_c, of_w in zip(groups, spent, woken, cpu, waits):
            c += [(cpu_ms(pids) - was) * minute for pids, was in zip(g, of_c)]
            w += [(sleeps_ended(pids) - was) * minute for pids, was in zip(g, of_w)]
    row("CPU of an idle leader, a minute at 15/10/2", 6, spent[0], "ms", spent[3])
    row("CPU of the idle standby that comes next, a minute", 2, spent[1], "ms", spent[4])
    row("CPU of another idle standby, a minute", 2, spent[2], "ms", spent[4])
    row("wake-ups of an idle leader's three processes, a minute", None, woken[0], "", woken[3])
    row("wake-ups of the next's three processes, a minute", None, woken[1], "", woken[4])
    row("wake-ups of another standby's three processes, a minute", None, woken[2], "", woken[4])
    for r in leaders + [r for two in standbys for r in two.values()]:
        r.leave()
    for p in floors[0] + floors[1]:
        p.kill()
        p.wait()


def crowd_of(directory: str, n: Any) -> Any:
    where = os.path.join(directory, f"many{n}")
    os.mkdir(where)
    crowd = Crowd(where + "/e", n)
    time.sleep(3)
    return crowd


def many(directory: str) -> None:
    one = crowd_of(directory, 1)
    alone = pss(family(one.log))
    one.leave()
    c = crowd_of(directory, 1001)
    pids, where, values, floor = family(c.log), directory + "/floor-many", [], []
    row("1,000 elections in a process: added memory of each", 4, [(pss(pids) - alone) * 1024 / 1000], "KB")
    os.mkdir(where)
    for _ in range(RUNS):
        before, began = cpu_ms(pids), time.monotonic()
        time.sleep(2)  # each renews once
        values.append((cpu_ms(pids) - before) * 1000 / (1001 * (time.monotonic() - began) / 2))
    for _ in range(RUNS):
        floor.append(
            float(subprocess.run([built("floor_file"), "renew", where, "1000"], capture_output=True, text=True).stdout)
        )
    row("1,000 elections in a process: CPU of a renewal", 60, values, "us", floor)
    following(directory, pids)
    c.leave()


def following(directory: str, leading: Any) -> None:
    """A second process comes next in all of them."""
    lock = os.path.join(directory, "many1001", "e")
    one = Crowd(lock, 1, leads=False)
    alone = pss(family(one.log))
    one.leave()
    c = Crowd(lock, 1001, leads=False)
    next_rows.await_next(lock + "1001")
    time.sleep(30)
    pids = family(c.log)
    row("1,000 of which it comes next: added memory of each", 4, [(pss(pids) - alone) * 1024 / 1000], "KB")
    before, began = [cpu_ms(pids), cpu_ms(leading)], time.monotonic()
    time.sleep(30)
    minute = 60 / (time.monotonic() - began) / 1001
    for what, was, of in zip(("standby", "leader"), before, (pids, leading)):
        row(f"1,000 elections with a next: CPU of each {what}, a minute", None, [(cpu_ms(of) - was) * minute], "ms")
    c.leave()


# ---- scripts ----


def hooks(directory: str) -> None:
    for part in (script_rows.hook_calls, script_rows.crowd, script_rows.requests, script_rows.piling):
        for each in part(directory, QUICK):
            row(*each)


PARTS = (
    starts,
    hand_over,
    *store_rows.parts,
    *driver_rows.parts,
    *kube_rows.parts,
    *next_rows.parts,
    crowds,
    memory,
    idle,
    many,
    hooks,
)


def usage() -> Any:
    options = "\n".join(f"  {o:<9} {what}" for o, what in OPTIONS.items())
    return (
        f"usage: bench.py [OPTION]... [ROWS]...\n{options}\nROWS (all of them by default):\n  "
        f"{' '.join(p.__name__ for p in PARTS)}"
    )


def chosen(words: Any) -> Any:
    """The parts that the command line asks for, in their order. Ends the program for --help, and for what there is
    not."""
    if "--help" in words or "-h" in words:
        sys.exit(print(usage()))
    names = [p.__name__ for p in PARTS]
    for w in words:
        if w not in OPTIONS and w not in names:
            print(f"bench.py: there is no {'option' if w.startswith('-') else 'row'} {w!r}\n{usage()}", file=sys.stderr)
            sys.exit(2)
    return [p for p in PARTS if p.__name__ in words] or PARTS


def main() -> None:
    parts = chosen(sys.argv[1:])
    directory = scratch()
    if not JSON:
        print(f"{'':<62} {'median':>9}          min .. max       to reach     floor  times", flush=True)
    try:
        for part in parts:
            part(directory)
    finally:
        stop_everyone()
        shutil.rmtree(directory, ignore_errors=True)
    if JSON:
        print(json.dumps(rows, indent=1))


main()

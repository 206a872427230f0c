"""The faults of the chaos test: what can be drawn, and how each is done and undone.

Not when they are done, nor what must hold then: tests/cluster/faults/chaos.py. What a fault does to electors stays
within docs/safety.md, unless it is one of BEYOND. Used by chaos.py."""

import os
import random
import signal
import subprocess
from collections.abc import Callable
from typing import Any

from tests.lib.machines import Way
from tests.lib.processes import LUNARCH

KILL, STOP, CONT = signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT
Undo = Callable[[], object]
PAUSE_S = 0.5  # a machine stands still for so long at most: half of the kill allowance
RATE = 0.04  # two clocks differ by 8.3 % at most, where the drift allowance is for 20 %


class Unfit(Exception):
    """There is nothing to hurt so, or what is hurt already forbids it."""


class Fault:
    """at, length: seconds from the beginning of its storm. target: "leader", or a number. what: all that was drawn."""

    def __init__(self, kind: str, at: float, length: float, target: Any, what: Any) -> None:
        self.kind, self.at, self.length, self.target, self.what = kind, at, length, target, what
        self.done = ""  # to whom it was done, or why it was not
        self.began = self.ended = 0.0

    def __str__(self) -> str:
        return f"{self.at:6.2f} {self.length:5.2f} {self.kind} {self.target} {self.what}"


# ---- of electors. c: the Chaos; n: the Node; each returns what undoes it ----


def pidfds(n: Any, parts: Any) -> list[int]:
    found = []
    for pid in n.parts(parts):
        try:
            found.append(os.pidfd_open(pid))
        except OSError:
            pass
    if not found:
        raise Unfit("is not there")
    return found


def signalled(fds: list[int], sig: int) -> None:
    for fd in fds:
        try:
            signal.pidfd_send_signal(fd, sig)
        except OSError:
            pass


def close(fds: list[int]) -> None:
    for fd in fds:
        os.close(fd)


def killed(c: Any, n: Any, parts: Any) -> Undo:
    free = n.claim(c, *parts)
    try:
        fds = pidfds(n, parts)
    except Unfit:
        free()
        raise
    signalled(fds, KILL)
    close(fds)
    return free


def stopped(c: Any, n: Any, parts: Any) -> Undo:
    free = n.claim(c, *parts)
    try:
        fds = pidfds(n, parts)
    except Unfit:
        free()
        raise
    signalled(fds, STOP)

    def undo() -> None:
        signalled(fds, CONT)
        close(fds)
        free()

    return undo


def crashed(c: Any, n: Any, _: Any) -> Undo:
    """The power goes: nothing on that machine goes on, nor sees another's end."""
    n.cgroup.kill()
    return lambda: None


def stood_still(c: Any, n: Any, _: Any) -> Undo:
    free = n.claim(c, "elector", "guard")
    n.cgroup.freeze(True)

    def undo() -> None:
        n.cgroup.freeze(False)
        free()

    return undo


def out_of_memory(c: Any, n: Any, _: Any) -> Undo:
    """Another program of that machine takes all that the cgroup has, and is killed for it; again and again."""
    free = n.claim(c, "elector", "guard")
    hog = subprocess.Popen(
        [*n.cgroup.prefix(), "sh", "-c", "echo 1000 >/proc/self/oom_score_adj; while :; do tail /dev/zero; done"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )

    def undo() -> None:
        os.killpg(hog.pid, KILL)
        hog.wait()
        free()

    return undo


def disk_full(c: Any, n: Any, _: Any) -> Undo:
    if n.disk_full:
        raise Unfit("is full already")
    n.disk_full = True
    n.machine.fill()

    def undo() -> None:
        n.machine.empty()
        n.disk_full = False

    return undo


def told(c: Any, n: Any, what: str) -> Undo:
    if what in ("SIGHUP", "SIGTERM", "SIGUSR1"):
        n.signal(getattr(signal, what))
    else:
        c.run([*n.machine.through(), LUNARCH, "ctl", "--state-dir", n.state, *what.split()])
    return lambda: n.resume_campaign(c) if what == "pause" else None


def clock_set(c: Any, n: Any, seconds: float) -> Undo:
    n.clocks.set_wall(seconds)
    return lambda: None


def clock_suspended(c: Any, n: Any, seconds: float) -> Undo:
    n.clocks.suspend(seconds)
    return lambda: None


def clock_rate(c: Any, n: Any, faster: float) -> Undo:
    n.clocks.run_faster(faster)
    return lambda: n.clocks.run_faster(0)


def cut_off(c: Any, n: Any, what: Any) -> Undo:
    """what: a mode, a direction, and how much of the servers' numbers."""
    mode, direction, which = what
    if not c.site.nodes:
        if n.cut:
            raise Unfit("is cut off already")
        n.cut = True
        c.site.cut(n.machine, True)

        def undo() -> None:
            c.site.cut(n.machine, False)
            n.cut = False

        return undo
    servers = [s.machine.number for s in c.site.nodes]
    return c.hurt_network(
        [n.machine.number], servers if which < 0 else [servers[which % len(servers)]], direction, Way(mode)
    )


def bad_network(c: Any, n: Any, what: Any) -> Undo:
    if not c.site.nodes:
        raise Unfit("has no network")
    return c.hurt_network([n.machine.number], [s.machine.number for s in c.site.nodes], "both", Way("pass", *what))


# ---- of servers; i: which ----


def server_killed(c: Any, i: int, _: Any) -> Undo:
    c.aside(lambda: c.site.kill(i))
    return lambda: c.aside(lambda: c.site.start(i))


def server_stopped(c: Any, i: int, _: Any) -> Undo:
    c.aside(lambda: c.site.pause(i))
    return lambda: c.aside(lambda: c.site.resume(i))


def server_cut_off(c: Any, i: int, what: Any) -> Undo:
    """From the other servers, and perhaps from the candidates."""
    mode, direction, everybody = what
    me = c.site.nodes[i].machine.number
    others = [s.machine.number for s in c.site.nodes if s.machine.number != me]
    others += [n.machine.number for n in c.nodes] if everybody or not others else []
    return c.hurt_network([me], others, direction, Way(mode))


def server_bad_network(c: Any, i: int, what: Any) -> Undo:
    me = c.site.nodes[i].machine.number
    others = [m.number for m in c.network.machines if m.number != me]
    return c.hurt_network([me], others, "both", Way("pass", *what))


def failed_over(c: Any, i: int, _: Any) -> Undo:
    c.aside(c.site.fail_over)
    return lambda: None


def promoted(c: Any, i: int, what: Any) -> Undo:
    """As an operator does it, who is late in the end with the fencing. what: what is done to the primary before the
    standby is promoted, and how it becomes a standby when it has been fenced."""
    before, back = what
    if not c.site.may_fail_over():
        raise Unfit("has no standby")
    me = c.site.nodes[c.site.primary].machine.number
    others = [m.number for m in c.network.machines if m.number != me]
    heal = c.hurt_network([me], others, "both", Way("drop")) if before == "cut off" else None
    c.aside(lambda: c.site.fail_over(before == "killed", back))

    def undo() -> None:
        if heal:
            heal()
        c.aside(c.site.rejoin)

    return undo


def shared_disk_full(c: Any, i: int, _: Any) -> Undo:
    c.site.fill()
    return lambda: c.site.empty()


# ---- what is drawn ----


def parts(*choices: Any) -> Callable[[random.Random], Any]:
    return lambda r: r.choice(choices)


def nothing(r: random.Random) -> Any:
    return ""


def partition(r: random.Random) -> Any:
    return (r.choice(("drop", "drop", "reject")), r.choice(("both", "both", "to", "from")), r.choice((-1, -1, 0, 1, 2)))


def quality(r: random.Random) -> Any:
    """Delay, jitter, and the chances of loss, duplication and reordering."""
    slow, lossy = r.random() < 0.6, r.random() < 0.6
    return (
        round(r.uniform(0.02, 0.8), 3) if slow else 0.0,
        round(r.uniform(0, 0.2), 3) if slow else 0.0,
        round(r.uniform(0.02, 0.4), 2) if lossy else 0.0,
        round(r.uniform(0, 0.3), 2),
        round(r.uniform(0, 0.3), 2),
    )


def long(r: random.Random) -> float:
    return r.uniform(0.3, 10)


def about_a_lease(r: random.Random) -> float:
    """Shorter, or so long that another leads meanwhile."""
    return r.choice((r.uniform(0.3, 5), r.uniform(6.5, 12)))


def short(r: random.Random) -> float:
    return r.uniform(0.05, PAUSE_S)


def until_fenced(r: random.Random) -> float:
    return r.uniform(0.3, 4)


def promotion(r: random.Random) -> Any:
    return (r.choice(("killed", "cut off", "let be")), r.choice(("rewound", "copied")))


def claimed(r: random.Random) -> float:
    """For as long, nothing else is done to elector and guard of that machine."""
    return 8.0


# kind: (how often, what it does, how long, what else is drawn)
Kind = tuple[float, Callable[..., Undo], Callable[[random.Random], float], Callable[[random.Random], Any]]
ELECTOR: dict[str, Kind] = {
    "killed": (3, killed, claimed, parts(("elector",), ("guard",), ("worker",), ("elector", "worker"))),
    "stopped": (3, stopped, about_a_lease, parts(("elector",), ("guard",), ("worker",), ("elector", "worker"))),
    "crashed": (1, crashed, claimed, nothing),
    "stood still": (1, stood_still, short, nothing),
    "out of memory": (1, out_of_memory, long, nothing),
    "disk full": (1, disk_full, long, nothing),
    "told": (4, told, long, parts("SIGHUP", "SIGHUP", "SIGTERM", "SIGUSR1", "handover", "resign 1s", "pause")),
    "clock set": (1, clock_set, short, lambda r: r.choice((-1, 1)) * round(r.uniform(1, 100000))),
    "clock suspended": (1, clock_suspended, short, lambda r: round(r.uniform(1, 60), 1)),
    "clock rate": (2, clock_rate, long, lambda r: round(r.uniform(-RATE, RATE), 4)),
    "cut off": (4, cut_off, long, partition),
    "bad network": (3, bad_network, long, quality),
}
SERVER: dict[str, Kind] = {
    "server killed": (2, server_killed, long, nothing),
    "server stopped": (2, server_stopped, long, nothing),
    "server cut off": (2, server_cut_off, long, lambda r: (*partition(r)[:2], r.random() < 0.3)),
    "server bad network": (2, server_bad_network, long, quality),
}
BEYOND: dict[str, Kind] = {
    "machine frozen": (4, stood_still, lambda r: r.uniform(6, 14), nothing),
    "all stopped": (
        3,
        stopped,
        lambda r: r.uniform(6, 14),
        parts(("elector", "guard", "worker"), ("elector", "guard")),
    ),
    "both killed": (2, killed, long, parts(("elector", "guard"), ("elector", "guard", "worker"))),
    "clock far off": (3, clock_rate, long, lambda r: round(r.choice((r.uniform(-0.6, -0.3), r.uniform(0.4, 1.5))), 2)),
}


def catalog(site: Any, beyond: bool) -> dict[str, Kind]:
    kinds = {k: v for k, v in ELECTOR.items() if site.nodes or k != "bad network"}
    if site.nodes:
        kinds |= SERVER
    else:
        kinds["shared disk full"] = (1, shared_disk_full, long, nothing)
    if site.fails_over:
        kinds["failed over"] = (2, failed_over, short, nothing)
    if site.promotes:
        kinds["failed over"] = (3, promoted, until_fenced, promotion)
    return kinds | (BEYOND if beyond else {})


def draw(kinds: dict[str, Kind], r: random.Random, seconds: float, electors: int, servers: int) -> list[Fault]:
    """A storm: faults at random moments, so close together that several overlap."""
    found, at = [], 0.0
    names = list(kinds)
    while (at := at + r.expovariate(0.8)) < seconds:
        kind = r.choices(names, [kinds[k][0] for k in names])[0]
        length, what = kinds[kind][2](r), kinds[kind][3](r)
        if kind in ELECTOR or kind in BEYOND:
            target: Any = "leader" if r.random() < 0.6 else r.randrange(electors)
        else:
            target = r.randrange(max(1, servers))
        found.append(Fault(kind, round(at, 2), round(length, 2), target, what))
    return found

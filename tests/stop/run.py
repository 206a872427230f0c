#!/usr/bin/env -S PYTHONPATH=. python3
"""One case for each way to refuse to stop. A script leads and clings to it; the lease is taken from it (or its
processes are killed or frozen); a second candidate must lead after everything of the first is dead, and on_stopped must
have run once."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from typing import Any

from tests.lib.candidates import Candidate, stop_everyone, timing
from tests.lib.processes import alive, can_act, children, marked, scratch, wait_for
from tests.lib.tap import at_once, done, note, ok, same

HERE = os.path.dirname(os.path.abspath(__file__))
KILL, STOP, CONT = signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT
MAPPED = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
# What is not dead within the kill allowance is for good reasons the end of the program, and these scripts keep the
# processors busy themselves: a guard may wait seconds for one, and a thousand processes take many to die.
BUSY = timing("12s", renew="5s", retry="300ms", stop_grace="500ms", kill="3s", drift="3s")
CROWD = timing("30s", renew="8s", retry="300ms", stop_grace="500ms", kill="16s", drift="5s")


def scripts() -> list[str]:
    return sorted(f for f in os.listdir(HERE) if f.endswith(".lua"))


def steal(path: str) -> None:
    """Somebody writes another holder into the record: a definite loss for the leader."""
    import json

    with open(path) as f:
        record = json.load(f)
    record.update(holderIdentity="thief", write="0" * 32, state="leading", pid=0, tree="", bootId="")
    with open(path + ".new", "w") as f:
        json.dump(record, f)
    os.rename(path + ".new", path)


def rob(case: "Case") -> None:
    """A renewal under way, which had looked before, may replace what was written by hand: then once more."""

    def robbed() -> list[dict[str, Any]]:
        steal(case.lock)
        return wait_for(lambda: case.first.all("stopped_leading"), 20)

    wait_for(robbed)


class Case:
    def __init__(self, script: str, options: Any = BUSY, apart: bool = False) -> None:
        self.dir = scratch()
        self.lock = os.path.join(self.dir, "lock")
        self.mark = f"STOP_TEST={self.dir}"
        self.options = options
        self.second: Candidate | None = None
        self.before: set[int] = set()
        self.first = self.candidate(script, prefix=mounted_apart(self.dir) if apart else ())
        if not self.first.wait("print", "leading"):
            self.first.log()

    def candidate(self, script: str, **kw: Any) -> Candidate:
        return Candidate(
            "--lock",
            self.lock,
            os.path.join(HERE, script),
            env={"STOP_TEST": self.dir, "DIR": self.dir},
            options=self.options,
            **kw,
        )

    def tree(self) -> set[int]:
        """What the first candidate's term started, the script's own process included: its guard is told apart by its
        parent."""
        mine = set(marked(self.mark))
        others = set()
        if self.second:
            todo = [self.second.pid]
            while todo:
                pid = todo.pop()
                others.add(pid)
                todo += children(pid)
        return mine - others - {self.first.pid}

    def end(self) -> None:
        for c in (self.first, self.second):
            if c:
                c.stop()
        for pid in marked(self.mark):
            self.first.kill(KILL, pid)
        shutil.rmtree(self.dir, ignore_errors=True)


def seen(pid: int) -> str:
    """What /proc shows of a process."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read()[:80]
    except OSError:
        return f"{pid}, ended by now"


def follow(case: Case, name: str) -> None:
    """A second candidate leads, and nothing that the first one's term started is alive when it does."""
    case.second = case.candidate("00-obedient.lua")
    led = case.second.wait("print", "leading")
    survivors = [seen(p) for p in case.before if can_act(p)]
    ok(led, f"{name}: the next candidate leads")
    same(survivors, [], f"{name}: nothing of the old tree is alive then")
    if not led or survivors:
        case.first.log()
        case.second.log()


def leftovers(case: Case) -> list[Any]:
    """What was started in the first term that this lock has had."""
    found = []
    for pid in marked(case.mark):
        try:
            with open(f"/proc/{pid}/environ", "rb") as f:
                if b"LUNARCH_TERM=0.1" in f.read().split(b"\0") and alive(pid):
                    found.append(pid)
        except OSError:
            pass
    return found


def cut_off(case: Case) -> None:
    """The first candidate alone can write no more, so that it loses the lease by time."""
    enter = [
        "nsenter",
        "--target",
        str(case.first.pid),
        *(["--user", "--preserve-credentials"] if MAPPED else []),
        "--mount",
    ]
    subprocess.run([*enter, "mount", "-o", "remount,bind,ro", case.dir], check=True, cwd="/")


def mounted_apart(directory: str) -> list[str]:
    return [
        "unshare",
        *MAPPED,
        "--mount",
        "--propagation",
        "private",
        "sh",
        "-c",
        f'mount --bind "{directory}" "{directory}" && exec "$@"',
        "sh",
    ]


def next_leader(case: Any) -> Any:
    """That line of a log: the robbed candidate may be the first to get the lock back."""
    return (case.second.said("leading") + case.first.said("leading")[1:] or [None])[0]


TRIES = 4  # a machine that is busy may be late a few times; a program that does not run the hook never does


def on_stopped_ran(case: Any) -> Any:
    """Its first line; None: it has not run, or a worker and two replacements have died, after which none runs it."""
    wait_for(lambda: case.first.said("stopped") or len(case.first.all("worker_gone")) > 2)
    return (case.first.said("stopped") or [None])[0]


def was_late(case: Case, name: str) -> bool:
    """Whether a replacement did not come to its end within the stop grace in which it had nothing to do but to print:
    it was killed, and another one was to run on_stopped, or none. Then nothing follows from whether on_stopped has run,
    nor how often, and the case is played once more."""
    late = len(case.first.all("on_stopped_owed")) > 1
    if late:
        note(f"{name}: once more, since this machine was late by the whole stop grace")
    return late


def lose_the_lease(script: str, how: str, tries: int = TRIES) -> None:
    """how: "robbed" has it at once in somebody else's hands, whose lease the next candidate waits out; "cut off" leaves
    the script until the renew deadline, its grace, and the kill allowance."""
    name = f"{script[3:-4]}, {how}"
    case = Case(script, CROWD if "thousand" in script else BUSY, apart=how == "cut off")
    case.second = second = case.candidate("00-obedient.lua")
    second.wait("new_leader")
    began = time.monotonic()
    rob(case) if how == "robbed" else cut_off(case)
    led = wait_for(lambda: next_leader(case))
    survivors = leftovers(case)
    stopped = on_stopped_ran(case)
    ok(led, f"{name}: the next candidate leads")
    same(survivors, [], f"{name}: nothing that the term started is alive then")
    if tries > 1 and was_late(case, name):
        case.end()
        return lose_the_lease(script, how, tries - 1)
    reason = "lost" if how == "robbed" else "expired"
    if not ok(
        stopped and (reason in stopped["message"] or "killed" in stopped["message"]),
        f"{name}: on_stopped has run ({reason}, or killed)",
    ):
        case.first.log()
    if led and stopped:
        note(
            f"{name}: on_stopped after {1000 * (stopped['seen'] - began):.0f} ms, the next leads after "
            f"{1000 * (led['seen'] - began):.0f} ms"
        )
    time.sleep(0.2)
    # Killed between its last word and its report, on a machine that is late by the whole grace, it has its replacement
    # run it again.
    if not ok(1 <= len(case.first.said("stopped")) <= 1 + len(case.first.all("on_stopped_owed")), f"{name}: once"):
        case.first.log()
    same(len(case.first.said("started")), 1, f"{name}: on_start once, though the worker may have been replaced")
    case.end()


def harm(
    name: str,
    script: str,
    hurt: list[tuple[str, Any]],
    heal: list[tuple[str, Any]] | None = None,
    second_waits: bool = False,
) -> None:
    case = Case(script)
    guard, worker = case.first.guard(), case.first.worker()
    wait_for(lambda: len(case.tree()) >= 3)
    case.before = case.tree() | {guard, worker}
    who = {"elector": case.first.pid, "guard": guard, "worker": worker}
    began = time.monotonic()
    for target, sig in hurt:
        case.first.kill(sig, who[target])
    follow(case, name)
    note(f"{name}: the next leads after {1000 * (time.monotonic() - began):.0f} ms")
    for target, sig in heal or []:
        case.first.kill(sig, who[target])
    if heal:
        ended = case.first.wait("stopped_leading")
        ok(ended or not alive(case.first.pid), f"{name}: continued, it knows that its term is over")
        leads = [e for e in case.first.events if e.get("event") == "became_leader"]
        same(len(leads), 1, f"{name}: and has not led again beside the other")
    case.end()


def recover(name: str, script: str, hurt: list[tuple[str, Any]], heal: Any = None, tries: int = TRIES) -> None:
    """The elector lives: it ends the term, its replacement worker runs on_stopped, and somebody leads again."""
    case = Case(script)
    guard, worker = case.first.guard(), case.first.worker()
    case.before = case.tree() | {guard, worker}
    who = {"elector": case.first.pid, "guard": guard, "worker": worker}
    for target, sig in hurt:
        case.first.kill(sig, who[target])
    if ("worker", STOP) in hurt or ("guard", STOP) in hurt:
        rob(case)
    stopped = on_stopped_ran(case)
    survivors = [seen(p) for p in case.before if p != case.first.pid and can_act(p)]
    if tries > 1 and not survivors and was_late(case, name):
        case.end()
        return recover(name, script, hurt, heal, tries - 1)
    ok(stopped, f"{name}: the replacement runs on_stopped")
    if ("guard", STOP) not in hurt:
        same(survivors, [], f"{name}: after everything of the old tree is dead")
    same(len(case.first.said("started")), 1, f"{name}: on_start is not run again")
    time.sleep(0.2)
    times = len(case.first.said("stopped"))
    ok(1 <= times <= max(1, len(case.first.all("on_stopped_owed"))), f"{name}: on_stopped once", times)
    if not stopped:
        case.first.log()
    case.end()


wanted = sys.argv[1:]
TOGETHER = threading.Semaphore(6)  # scenarios at a time: what they wait for is mostly time


def scenario(name: str, run: Any) -> list[Any]:
    def guarded() -> None:
        with TOGETHER:
            run()

    guarded.__name__ = name
    return [guarded] if not wanted or any(w in name for w in wanted) else []


CASES: list[Any] = [
    (harm, "elector killed", [("elector", KILL)]),
    (harm, "elector and worker killed", [("elector", KILL), ("worker", KILL)]),
    (harm, "elector stopped and continued", [("elector", STOP)], [("elector", CONT)]),
    (
        harm,
        "elector and worker stopped and continued",
        [("elector", STOP), ("worker", STOP)],
        [("worker", CONT), ("elector", CONT)],
    ),
    (harm, "elector, guard and worker killed", [("elector", KILL), ("guard", KILL), ("worker", KILL)]),
    (recover, "worker killed", [("worker", KILL)]),
    (recover, "worker stopped", [("worker", STOP)]),
    (recover, "guard killed", [("guard", KILL)]),
    (recover, "guard stopped", [("guard", STOP)]),
]
jobs = []
for s in sorted(scripts(), key=lambda s: "thousand" not in s):  # the longest first
    if not s.startswith(("9", "00", "21", "22", "23", "24")):
        for how in ("robbed", "cut off"):
            jobs += scenario(f"{s} {how}", lambda s=s, how=how: lose_the_lease(s, how))
for play, name, *hurts in CASES:
    jobs += scenario(name, lambda play=play, name=name, hurts=hurts: play(name, "91-family.lua", *hurts))
at_once(*jobs)
stop_everyone()
done()

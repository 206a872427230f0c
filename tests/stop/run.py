#!/usr/bin/env python3
"""One case for each way to refuse to stop. A script leads and clings to it; the lease is taken from it (or its processes are
killed or frozen); a second candidate must lead after everything of the first is dead, and on_stopped must have run once."""
import os, shutil, signal, sys, time
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import *

HERE = os.path.dirname(os.path.abspath(__file__))
KILL, STOP, CONT = signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT


def scripts():
    return sorted(f for f in os.listdir(HERE) if f.endswith(".lua"))


def steal(path):
    """Somebody writes another holder into the record: a definite loss for the leader."""
    import json
    with open(path) as f:
        record = json.load(f)
    record.update(holderIdentity="thief", write="0" * 32, state="leading", pid=0, tree="", bootId="")
    with open(path + ".new", "w") as f:
        json.dump(record, f)
    os.rename(path + ".new", path)


class Case:
    def __init__(self, script):
        self.dir = scratch()
        self.lock = os.path.join(self.dir, "lock")
        self.mark = f"STOP_TEST={self.dir}"
        self.first = self.candidate(script)
        if not self.first.wait("print", "leading"):
            self.first.log()

    def candidate(self, script):
        return Candidate("--lock", self.lock, os.path.join(HERE, script), env={"STOP_TEST": self.dir, "DIR": self.dir})

    def tree(self):
        """What the first candidate's term started, the script's own process included: its guard is told apart by its parent."""
        mine = set(marked(self.mark))
        others = set()
        if hasattr(self, "second"):
            todo = [self.second.pid]
            while todo:
                pid = todo.pop()
                others.add(pid)
                todo += children(pid)
        return mine - others - {self.first.pid}

    def end(self):
        stop_everyone()
        for pid in marked(self.mark):
            os.kill(pid, KILL)
        shutil.rmtree(self.dir, ignore_errors=True)


def follow(case, name):
    """A second candidate leads, and nothing that the first one's term started is alive when it does."""
    case.second = case.candidate("00-obedient.lua")
    led = case.second.wait("print", "leading")
    survivors = [p for p in case.before if alive(p)]
    ok(led, f"{name}: the next candidate leads")
    same(survivors, [], f"{name}: nothing of the old tree is alive then")
    if not led or survivors:
        case.first.log()
        case.second.log()


def lose_the_lease(script):
    name = script[3:-4]
    case = Case(script)
    case.before = case.tree()
    began = time.monotonic()
    steal(case.lock)
    stopped = case.first.wait("print", "stopped", patience=30)
    ok(stopped, f"{name}: on_stopped has run")
    if stopped:
        note(f"{name}: on_stopped {1000 * (stopped['seen'] - began):.0f} ms after the theft")
    time.sleep(0.2)
    same(len(case.first.said("stopped")), 1, f"{name}: once")
    same(len(case.first.said("started")), 1, f"{name}: on_start once, though the worker may have been replaced")
    wait_for(lambda: not leftovers(case))
    same(leftovers(case), [], f"{name}: nothing that the term started is alive")
    if not stopped:
        case.first.log()
    case.end()


def leftovers(case):
    """Marked processes of an ended term: a worker outside any term has LUNARCH_TERM=-."""
    found = []
    for pid in marked(case.mark):
        try:
            with open(f"/proc/{pid}/environ", "rb") as f:
                if any(e.startswith(b"LUNARCH_TERM=") and e != b"LUNARCH_TERM=-" for e in f.read().split(b"\0")):
                    found.append(pid)
        except OSError:
            pass
    return found


def harm(name, script, hurt, heal=None, second_waits=False):
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
        ended = case.first.wait("stopped_leading", patience=30)
        ok(ended or not alive(case.first.pid), f"{name}: continued, it knows that its term is over")
        leads = [e for e in case.first.events if e.get("event") == "became_leader"]
        same(len(leads), 1, f"{name}: and has not led again beside the other")
    case.end()


def recover(name, script, hurt, heal=None):
    """The elector lives: it ends the term, its replacement worker runs on_stopped, and somebody leads again."""
    case = Case(script)
    guard, worker = case.first.guard(), case.first.worker()
    case.before = case.tree() | {guard, worker}
    who = {"elector": case.first.pid, "guard": guard, "worker": worker}
    for target, sig in hurt:
        case.first.kill(sig, who[target])
    if ("worker", STOP) in hurt or ("guard", STOP) in hurt:
        steal(case.lock)
    stopped = case.first.wait("print", "stopped", patience=30)
    survivors = [p for p in case.before if p != case.first.pid and alive(p)]
    ok(stopped, f"{name}: the replacement runs on_stopped")
    if ("guard", STOP) not in hurt:
        same(survivors, [], f"{name}: after everything of the old tree is dead")
    same(len(case.first.said("started")), 1, f"{name}: on_start is not run again")
    time.sleep(0.2)
    same(len(case.first.said("stopped")), 1, f"{name}: on_stopped once")
    if not stopped:
        case.first.log()
    case.end()


wanted = sys.argv[1:]
for s in scripts():
    if (not wanted or any(w in s for w in wanted)) and not s.startswith(("9", "00", "21", "22", "23", "24")):
        lose_the_lease(s)

CASES = [
    (harm, "elector killed", [("elector", KILL)]),
    (harm, "elector and worker killed", [("elector", KILL), ("worker", KILL)]),
    (harm, "elector stopped and continued", [("elector", STOP)], [("elector", CONT)]),
    (harm, "elector and worker stopped and continued", [("elector", STOP), ("worker", STOP)], [("worker", CONT), ("elector", CONT)]),
    (harm, "elector, guard and worker killed", [("elector", KILL), ("guard", KILL), ("worker", KILL)]),
    (recover, "worker killed", [("worker", KILL)]),
    (recover, "worker stopped", [("worker", STOP)]),
    (recover, "guard killed", [("guard", KILL)]),
    (recover, "guard stopped", [("guard", STOP)]),
]
for how, name, *rest in CASES:
    if not wanted or any(w in name for w in wanted):
        how(name, "91-family.lua", *rest)

done()

#!/usr/bin/env python3
"""Three candidates and a stream of faults at whoever leads, twice side by side: processes killed and frozen, one
candidate cut off from the lock's directory, the record deleted or taken by a stranger, the worker's children killed. No
process of a term may live when the next term's begins; tokens only grow; somebody leads again after every fault.
CHAOS_SEED=N repeats the choice of faults (not the machine's timing); CHAOS_FAULTS=N how many each field gets."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from field import Field, freeze
from processes import children, wait_for
from tap import at_once, done, note, ok, same

KILL, STOP, CONT = signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT
SEED = int(os.environ.get("CHAOS_SEED") or time.time_ns() % 1000000)
FAULTS_EACH = int(os.environ.get("CHAOS_FAULTS") or 12)
ROOTLESS = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]


class Cut(Field):
    """A field whose candidates have a mount namespace each, so that the directory can be taken from one of them
    alone."""

    def start(self, name: str) -> Any:
        mount = f'mount --bind "{self.home}" "{self.home}" && exec "$@"'
        return self.join(
            name, prefix=["unshare", *ROOTLESS, "--mount", "--propagation", "private", "sh", "-c", mount, "sh"]
        )

    def remount(self, c: Any, how: str) -> Any:
        enter = [
            "nsenter",
            "--target",
            str(c.pid),
            *(["--user", "--preserve-credentials"] if ROOTLESS else []),
            "--mount",
        ]
        return subprocess.run([*enter, "mount", "-o", f"remount,bind,{how}", self.home], cwd="/").returncode == 0


def pids_of(c: Any) -> Any:
    guard = children(c.pid)
    worker = children(guard[0]) if guard else []
    return {"elector": c.pid, "guard": guard and guard[0], "worker": worker and worker[0]}


def hurt(c: Any, *names: Any, sig: Any = KILL) -> None:
    who = pids_of(c)
    for n in names:
        if who[n]:
            c.kill(sig, who[n])


def freeze_until_another(field: Any, c: Any, *names: Any) -> None:
    """Frozen until another leads, then continued."""
    terms = len(field.terms())
    hurt(c, *[n for n in names if n != "elector"], sig=STOP)
    if "elector" in names:
        freeze(c, field.lock)
    wait_for(lambda: len(field.terms()) > terms)
    hurt(c, *names, sig=CONT)


def cut_off(field: Any, c: Any) -> Any:
    terms = len(field.terms())
    if not field.remount(c, "ro"):
        return ok(False, f"{field.name}: the directory can be made read-only for one candidate")
    wait_for(lambda: len(field.terms()) > terms)
    field.remount(c, "rw")


def steal(field: Any) -> None:
    record = field.record()
    record.update(holderIdentity="thief", write="0" * 32, pid=0, tree="", bootId="", checkpoint={"data": {}})
    with open(field.lock + ".new", "w") as f:
        json.dump(record, f)
    os.rename(field.lock + ".new", field.lock)


def kill_children(c: Any) -> None:
    worker = pids_of(c)["worker"]
    for pid in children(worker) if worker else []:
        c.kill(KILL, pid)


def in_turn(*faults: Callable[[Any, Any], object]) -> Callable[[Any, Any], object]:
    return lambda f, c: [fault(f, c) for fault in faults]


FAULTS: dict[str, Callable[[Any, Any], object]] = {
    "the elector is killed": lambda f, c: hurt(c, "elector"),
    "the worker is killed": lambda f, c: hurt(c, "worker"),
    "the guard is killed": lambda f, c: hurt(c, "guard"),
    "elector and worker are killed": lambda f, c: hurt(c, "elector", "worker"),
    "elector, guard and worker are killed": lambda f, c: hurt(c, "guard", "elector", "worker"),
    "the elector is frozen": lambda f, c: freeze_until_another(f, c, "elector"),
    "elector and worker are frozen": lambda f, c: freeze_until_another(f, c, "worker", "elector"),
    "it is told to stop": lambda f, c: c.kill(signal.SIGTERM),
    "it is told to resign": lambda f, c: c.kill(signal.SIGUSR1),
    "it is told to reload": lambda f, c: c.kill(signal.SIGHUP),
    "it is told to reload, and the worker is killed": in_turn(
        lambda f, c: c.kill(signal.SIGHUP), lambda f, c: hurt(c, "worker")
    ),
    "it is cut off": cut_off,
    "the record is deleted": lambda f, c: os.unlink(f.lock),
    "the record is stolen": lambda f, c: steal(f),
    "its children are killed": lambda f, c: kill_children(c),
    "the worker is frozen, and the record stolen": in_turn(
        lambda f, c: hurt(c, "worker", sig=STOP), lambda f, c: steal(f)
    ),
    "the guard is frozen, and the record stolen": in_turn(
        lambda f, c: hurt(c, "guard", sig=STOP), lambda f, c: steal(f)
    ),
}
ENDS_NO_TERM = ("its children are killed",)


def leader(f: Any) -> Any:
    """The candidate whose term acted last, if it is still there."""
    terms = f.terms()
    alive = [c for c in f.candidates if terms and c.name == terms[-1][1] and c.process.poll() is None]
    return alive[-1] if alive else None


def refill(f: Any) -> None:
    """Who has died or left is started again."""
    for name in "abc":
        if not [c for c in f.candidates if c.name == name and c.process.poll() is None]:
            f.start(name)


def chaos(number: Any) -> None:
    # Each field gets its own half of a shuffled list, so that a run has had every kind of fault.
    names = sorted(FAULTS)
    random.Random(SEED).shuffle(names)
    pick = random.Random(SEED + number)
    todo = names[number::2]
    todo += [pick.choice(names) for _ in range(FAULTS_EACH - len(todo))]
    f = Cut(f"field {number}")
    refill(f)
    for name in todo:
        c = wait_for(lambda: leader(f))
        if not c:
            break
        terms = len(f.terms())
        FAULTS[name](f, c)
        if name not in ENDS_NO_TERM and not wait_for(lambda: len(f.terms()) > terms):
            break
        note(f"field {number}: {name}: {c.name} -> {f.terms()[-1][1]}")
        refill(f)
        time.sleep(pick.random() * 0.3)
    good = ok(
        c and len(f.terms()) > len(todo) - len(ENDS_NO_TERM) * todo.count(ENDS_NO_TERM[0]),
        f"field {number}: after each of {len(todo)} faults somebody led again (seed {SEED})",
    )
    if not good:
        note(f"not after: {name}")
    good = f.verdict(f"field {number}") and good
    pairing(f, number)
    if not good:
        f.logs()
    f.end()


def pairing(f: Any, number: Any) -> None:
    """on_stopped once for each on_leading that began, unless the elector died with it, and never for another term."""
    wrong = []
    for c in f.candidates:
        c.stop()
        wait_for(lambda: c.closed)
        led = [e["message"].split()[1] for e in c.all("print", "leading ")]
        ended = [e["message"].split()[1] for e in c.all("print", "stopped ")]
        if c.process.returncode != 0:  # killed
            ended += led[len(ended) :] if len(led) - len(ended) == 1 else []
        if led != ended:
            wrong.append((c.name, c.pid, c.process.returncode, led, ended))
            c.log()
    same(wrong, [], f"field {number}: on_stopped ran once, in order, for every term that its elector survived")


at_once(lambda: chaos(0), lambda: chaos(1))
done()

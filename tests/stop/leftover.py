#!/usr/bin/env -S PYTHONPATH=. python3
"""A command or a worker ends by itself, and what it left behind does not die for longer than a renewal: the term is not
called expired meanwhile, and the lease is held until the last process is gone. A process that only looks dead is
found, and killed.

The process that does not die is traced by this test (ptrace(2)): it stops on its way out until the test lets it go."""

import ctypes
import json
import os
import signal
import subprocess

from tests.lib.candidates import Candidate, stop_everyone
from tests.lib.field import compiled
from tests.lib.processes import LUNARCH, alive, scratch, state_of, wait_for
from tests.lib.tap import done, ok, same, skip

PTRACE_CONT, PTRACE_DETACH, PTRACE_SEIZE, PTRACE_O_TRACEEXIT = 7, 17, 0x4206, 0x40
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
libc.ptrace.restype = ctypes.c_long


def hold(pid: int) -> bool:
    """From now on its death takes until let_go."""
    return bool(libc.ptrace(PTRACE_SEIZE, pid, None, PTRACE_O_TRACEEXIT) == 0)


def is_held(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0] == "t"
    except OSError:
        return False


def let_go(pid: int) -> None:
    libc.ptrace(PTRACE_DETACH, pid, None, None)


def left_by(path: str) -> int:
    wait_for(lambda: os.path.exists(path) and open(path).read().strip())
    return int(open(path).read())


def renewals(lock: str) -> str:
    with open(lock) as f:
        return json.load(f)["renewTime"]


def renewed_beside(lock: str, pid: int) -> bool:
    """Waits until this process, which is held, has outlived two renewals."""
    held = wait_for(lambda: is_held(pid))
    for _ in range(3):  # the first may have been under way
        last = renewals(lock)
        wait_for(lambda: renewals(lock) != last)
    return bool(held)


def command() -> None:
    lock, path = os.path.join(scratch(), "lock"), os.path.join(scratch(), "pid")
    line = f"sleep 1000 & echo $! >{path}; while [ ! -e {path}.end ]; do sleep 0.05; done; exit 7"
    c = Candidate("--lock", lock, "--", "sh", "-c", line, command="exec", options=())
    leftover = left_by(path)
    if not hold(leftover):
        skip("leftovers", "no process can be traced here")
        c.kill()
        return
    open(path + ".end", "w").close()
    ok(renewed_beside(lock, leftover), "a command: the lease is renewed while what it left behind lives")
    same(c.all("stopping") + c.all("stopped_leading"), [], "a command: and the term goes on")
    let_go(leftover)
    same(c.leave(), 7, "a command: its exit status is that of the command")
    ok(not alive(leftover), "a command: nothing is left of it")
    same(c.all("stopped_leading", "expired"), [], "a command: the term has not expired")


def worker() -> None:
    lock, path = os.path.join(scratch(), "lock"), os.path.join(scratch(), "pid")
    script = (
        f'return {{ on_leading = function() os.execute("sleep 1000 & echo $! >{path}") print "leading" end, '
        'on_stopped = function(_, reason) print("stopped " .. reason) end }'
    )
    c = Candidate("--lock", lock, "-e", script, options=())
    leftover = left_by(path)
    c.event("print", "leading")
    if not hold(leftover):
        skip("leftovers", "no process can be traced here")
        return
    c.kill(signal.SIGKILL, c.worker())
    ok(renewed_beside(lock, leftover), "a worker: the lease is renewed while what it left behind lives")
    same(c.all("stopping") + c.all("stopped_leading"), [], "a worker: and the term goes on")
    let_go(leftover)
    same(c.event("print", "stopped")["message"], "stopped worker", "a worker: the term ends as with any dead worker")


def leaderless() -> None:
    """A daemon whose first thread has ended, which /proc shows as a zombie, while another thread acts."""
    place, pid_file = scratch(), os.path.join(scratch(), "pid")
    program = compiled(os.path.join(os.path.dirname(os.path.abspath(__file__)), "leaderless.c"), "-pthread")
    script = (
        f'return {{ on_leading = function() os.execute("setsid {program} & echo $! >{pid_file}") print "leading" end, '
        'on_stopped = function(_, reason) print("stopped " .. reason) end }'
    )
    c = Candidate("--lock", f"{place}/lock", "--control", f"{place}/control", "-e", script, options=())
    leftover = left_by(pid_file)
    ok(wait_for(lambda: state_of(leftover) == "Z"), "leaderless: a daemon looks like a zombie")
    c.event("print", "leading")
    subprocess.run([LUNARCH, "ctl", "--control", f"{place}/control", "resign", "1h"], check=True)
    same(c.event("print", "stopped")["message"], "stopped resigned", "leaderless: the term ends in order")
    c.event("no_leader")
    same(len(c.all("leftovers_killed", "1 process")), 1, "leaderless: what is left of it is killed before the release")
    ok(wait_for(lambda: state_of(leftover) == "X"), "leaderless: and is dead")


command()
worker()
leaderless()
stop_everyone()
done()

#!/usr/bin/env -S PYTHONPATH=. python3
"""The first milliseconds of run, cron and exec: a signal that comes then is heard and does not end them by itself; and
where the kernel refuses what no term could be supervised without, nothing campaigns."""

import errno
import json
import os
import signal
import subprocess
from collections.abc import Callable
from typing import Any

from tests.lib.candidates import Logged
from tests.lib.processes import LUNARCH, PATIENCE, piped, scratch, wait_for
from tests.lib.seccomp import held_in, refusing
from tests.lib.tap import ok, run, same

TMP = scratch()
OFTEN = 100
SCRIPT = f"{TMP}/script.lua"
CRONTAB = f"{TMP}/crontab"
with open(SCRIPT, "w") as f:
    f.write("return { on_leading = function() print 'leads' end }\n")
with open(CRONTAB, "w") as f:
    f.write("@monthly true\n")
BLOCKED = "grep -E '^Sig(Blk|Ign)' /proc/self/status"

locks = 0


def new_lock() -> str:
    """In a directory of its own, in which an election would leave its record."""
    global locks
    locks += 1
    os.mkdir(f"{TMP}/{locks}")
    return f"{TMP}/{locks}/lock"


def campaigned(lock: str) -> bool:
    return bool(os.listdir(os.path.dirname(lock)))


def command(kind: str, lock: str) -> list[str]:
    what = {"run": [SCRIPT], "cron": ["--output-dir", TMP, CRONTAB], "exec": ["--", "sh", "-c", BLOCKED]}[kind]
    return [LUNARCH, kind, "--log-format", "json", "--state-dir", f"{TMP}/state", "--lock", lock, *what]


# ---- signals ----

# Where a process is held: at the beginning of the command, as it asks what stderr is (TCGETS), and as it becomes a
# subreaper, just before it watches signals.
PLACES: dict[str, tuple[str, dict[int, int]]] = {
    "at the beginning": ("ioctl", {0: 2, 1: 0x5401}),
    "just before it listens": ("prctl", {0: 36, 1: 1}),
}
DO: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}


def signalled(kind: str, lock: str, place: str, sig: int) -> "subprocess.Popen[str]":
    call, arguments = PLACES[place]
    return held_in(command(kind, lock), call, arguments, lambda pid: os.kill(pid, sig), **DO)


def pending(*signals: int) -> Callable[[], None]:
    """They are blocked and have come, which execve(2) leaves so."""

    def prepare() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signals)
        for s in signals:
            os.kill(os.getpid(), s)

    return prepare


def ended(p: "subprocess.Popen[str]") -> int:
    try:
        p.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        p.kill()
        p.communicate()
    return p.returncode


def test_end() -> None:
    """SIGTERM and SIGINT: it ends as it always does, before it campaigns"""
    for kind in ("run", "cron", "exec"):
        for sig in (signal.SIGTERM, signal.SIGINT):
            status = 128 + sig if kind == "exec" else 0
            for place in PLACES:
                lock = new_lock()
                same(
                    ended(signalled(kind, lock, place, sig)), status, f"{kind}, {sig.name} {place}: ends with {status}"
                )
                ok(not campaigned(lock), "... and has not campaigned")


def test_go_on() -> None:
    """SIGHUP and SIGUSR1 do not end run and cron"""
    for kind in ("run", "cron"):
        for place in PLACES:
            for sig, event in ((signal.SIGHUP, "reloading"), (signal.SIGUSR1, "became_leader")):
                p = signalled(kind, new_lock(), place, sig)
                c = Logged(p, piped(p.stderr))
                ok(c.wait(event) and c.wait("became_leader"), f"{kind}, {sig.name} {place}: it goes on ({event})")
                same(c.stop(), 0, "... until it is told to end")


def test_passed_on() -> None:
    """What exec passes on to its command has nobody to go to yet"""
    for place in PLACES:
        for sig in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGWINCH):
            p = signalled("exec", new_lock(), place, sig)
            out, _ = p.communicate(timeout=PATIENCE)
            same(p.returncode, 0, f"{sig.name} {place}: the command runs")
            same(int(out.split()[1], 16), 0, "... and nothing is blocked in it")
        for sig in (signal.SIGHUP, signal.SIGQUIT):
            lock = new_lock()
            same(ended(signalled("exec", lock, place, sig)), 128 + sig, f"{sig.name} {place}: exec ends, and says so")
            ok(not campaigned(lock), "... and has not campaigned")


def test_many() -> None:
    """The same without a filter, as often as it may be, once the program has begun"""
    ends = set()
    for _ in range(OFTEN):
        p = subprocess.Popen(command("run", f"{TMP}/many"), **DO)
        wait_for(lambda p=p: held(p.pid))  # type: ignore[misc]
        p.send_signal(signal.SIGHUP)
        p.send_signal(signal.SIGUSR1)
        p.send_signal(signal.SIGTERM)
        ends.add(ended(p))
    same(ends, {0}, f"SIGHUP, SIGUSR1 and SIGTERM, {OFTEN} times: all are heard")


def test_last() -> None:
    """Nor does one end it by its default action at its end"""
    ends = set()
    for _ in range(OFTEN):
        p = subprocess.Popen(command("run", f"{TMP}/many"), **DO)
        wait_for(lambda p=p: held(p.pid))  # type: ignore[misc]
        for _ in range(1000):
            if p.poll() is not None:
                break
            p.send_signal(signal.SIGTERM)
        ends.add(ended(p))
    ok(ends <= {0, 143}, f"SIGTERM until it has gone, {OFTEN} times: it ends with 0, or is told twice", ends)


def held(pid: int) -> bool:
    """Whether its default of SIGHUP is gone: it blocks it, or has a handler."""
    with open(f"/proc/{pid}/status") as f:
        masks = [int(line.split()[1], 16) for line in f if line.startswith(("SigBlk", "SigCgt"))]
    return any(mask & 1 << signal.SIGHUP - 1 for mask in masks)


def test_inherited() -> None:
    """Signals that are blocked, and have come, when the program is started"""
    lock = new_lock()
    r = subprocess.run(command("exec", lock), preexec_fn=pending(signal.SIGTERM), timeout=PATIENCE, **DO)
    same(r.returncode, 143, "SIGTERM ends exec all the same")
    ok(not campaigned(lock), "... before it has campaigned")
    r = subprocess.run(command("exec", lock), preexec_fn=pending(signal.SIGUSR1), timeout=PATIENCE, text=True, **DO)
    same((r.returncode, int(r.stdout.split()[1], 16)), (0, 0), "a command begins with nothing blocked")
    lock = new_lock()
    r = subprocess.run(command("run", lock), preexec_fn=pending(signal.SIGTERM, signal.SIGHUP), timeout=PATIENCE, **DO)
    same((r.returncode, campaigned(lock)), (0, False), "SIGTERM and SIGHUP end run")

    def ignoring() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        pending(signal.SIGHUP)()

    r = subprocess.run(command("exec", new_lock()), preexec_fn=ignoring, timeout=PATIENCE, text=True, **DO)
    ok(r.returncode == 0 and int(r.stdout.split()[3], 16) & 1, "what is ignored stays ignored, blocked or not")
    p = subprocess.Popen(command("run", new_lock()), preexec_fn=ignoring, text=True, **DO)
    c = Logged(p, piped(p.stderr))
    c.event("became_leader")

    def unblocked() -> bool:
        with open(f"/proc/{p.pid}/status") as f:
            return any(line.startswith("SigBlk") and int(line.split()[1], 16) == 0 for line in f)

    same((wait_for(unblocked), c.stop()), (True, 0), "... and is not blocked any more")


def test_others() -> None:
    """Commands that only look end by a signal, as programs do"""
    args = [LUNARCH, "check", SCRIPT]
    p = held_in(args, "prctl", {0: 36}, lambda pid: os.kill(pid, signal.SIGTERM), **DO)
    same(ended(p), -signal.SIGTERM, "check")
    args = [LUNARCH, "cron", "check", CRONTAB]
    p = held_in(args, "prctl", {0: 36}, lambda pid: os.kill(pid, signal.SIGTERM), **DO)
    same(ended(p), -signal.SIGTERM, "cron check")


# ---- the kernel ----

NEEDED: dict[str, tuple[str, dict[int, int]]] = {
    "pidfd_open": ("pidfd_open", {}),
    "memfd_create": ("memfd_create", {}),
    "F_SEAL_FUTURE_WRITE": ("fcntl", {1: 1033}),
    "MADV_DONTFORK": ("madvise", {2: 10}),
    "timerfd_create": ("timerfd_create", {}),
    "signalfd": ("signalfd4", {}),
    "socketpair": ("socketpair", {}),
    "PR_SET_CHILD_SUBREAPER": ("prctl", {0: 36}),
}


def without(name: str, error: int, *args: str) -> "subprocess.CompletedProcess[str]":
    call, arguments = NEEDED[name]
    prepare = refusing(call, error, arguments)
    return subprocess.run(args, preexec_fn=prepare, timeout=PATIENCE, text=True, errors="replace", **DO)


def test_refused() -> None:
    """A seccomp filter refuses a call, or the kernel is too old for it"""
    for name in NEEDED:
        for error in (errno.EPERM, errno.ENOSYS):
            for kind in ("run", "exec"):
                lock = new_lock()
                r = without(name, error, *command(kind, lock))
                same(r.returncode, 69, f"{kind} without {name} ({errno.errorcode[error]}): it does not start")
                ok(name in r.stderr and os.strerror(error) in r.stderr and "seccomp" in r.stderr, "... and says why")
                ok(not campaigned(lock), "... before it has campaigned")
    lock = new_lock()
    r = without("signalfd", errno.EPERM, *command("cron", lock))
    same((r.returncode, "signalfd" in r.stderr, campaigned(lock)), (69, True, False), "cron")


def test_told() -> None:
    """check and doctor say so beforehand; who does not supervise needs none of it"""
    r = without("timerfd_create", errno.EPERM, LUNARCH, "check", SCRIPT)
    ok(r.returncode == 1 and "timerfd_create" in r.stdout + r.stderr, "check")
    lock = new_lock()
    r = without("pidfd_open", errno.ENOSYS, LUNARCH, "doctor", "--json", "--lock", lock)
    kernel = [f for f in json.loads(r.stdout)["findings"] if f["name"] == "kernel"]
    ok(r.returncode == 1 and kernel and kernel[0]["verdict"] == "unfit", "doctor")
    ok("pidfd_open" in kernel[0]["text"], "... names the call")
    r = without("signalfd", errno.EPERM, LUNARCH, "status", "--lock", lock)
    same(r.returncode, 1, "status reads a lock as ever")


run([test_end, test_go_on, test_passed_on, test_many, test_last, test_inherited, test_others, test_refused, test_told])

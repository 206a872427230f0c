#!/usr/bin/env -S PYTHONPATH=. python3
"""Each system call fails once, with an error that it can give, in a whole term with a standby beside it: the elector
goes on or ends, nothing is led twice, and no process, file or descriptor is left (tests/lib/nth.py).

With FULL every call of the elector, the guard, and what these start until it executes something, with one of its
errors (EVERY=1: with each of them), and 200 of the worker's, on each lock; else some of some locks, drawn by SEED.
Locks can be named; ONLY=ROLE/CALL/N/ERROR tries that one alone."""

import errno
import os
import re
import subprocess
import sys

from tests.lib.nth import ROLES, STORES, Fault, Lab, drawn, lot, try_all
from tests.lib.processes import LUNARCH
from tests.lib.tap import done, note, ok, same

FULL = bool(os.environ.get("FULL"))
SEED = int(os.environ.get("SEED", "17"))
ONLY = os.environ.get("ONLY")
EVERY = bool(os.environ.get("EVERY"))
DRAWN = int(os.environ.get("DRAWN", "200" if FULL else "14"))
LOCKS = sys.argv[1:] or (list(STORES) if FULL else ["file", "exec", "redis", "etcd", "postgres", "kubernetes"])
FILE, SPACE = "EMFILE ENFILE ENOMEM", "ENOSPC EIO EINTR"
# What each can give by its manual page, where a machine or a kernel is short of something, or a signal comes. Not: brk,
# which says that it failed by the place where the memory still ends; exit, rt_sigreturn and what else cannot fail in a
# correct program.
ERRORS = {
    "read": "EINTR EIO EAGAIN ENOMEM",
    "write": "EINTR ENOSPC EIO EAGAIN",
    "pread64": "EINTR EIO",
    "pwrite64": "EINTR ENOSPC EIO",
    "writev": "EINTR ENOSPC EIO EAGAIN",
    "openat2": FILE + " EINTR ENOSPC EIO EACCES EAGAIN",
    "statfs": "EINTR EIO ENOMEM",
    "fstatfs": "EINTR EIO ENOMEM",
    "fchown": "EPERM EIO",
    "open": FILE + " EINTR ENOSPC EIO EACCES",
    "openat": FILE + " EINTR ENOSPC EIO EACCES",
    "close": "EINTR EIO",
    "fsync": SPACE,
    "fdatasync": SPACE,
    "ftruncate": SPACE,
    "fallocate": SPACE,
    "rename": "ENOSPC EIO ENOMEM",
    "renameat": "ENOSPC EIO ENOMEM",
    "renameat2": "ENOSPC EIO ENOMEM",
    "link": "ENOSPC EIO EMLINK",
    "linkat": "ENOSPC EIO EMLINK",
    "unlink": "EIO EBUSY",
    "unlinkat": "EIO EBUSY",
    "mkdir": "ENOSPC EIO EACCES",
    "mkdirat": "ENOSPC EIO EACCES",
    "chmod": "EIO EROFS EPERM",
    "fchmod": "EIO EROFS EPERM",
    "stat": "EIO ENOMEM EACCES",
    "fstat": "EIO ENOMEM",
    "newfstatat": "EIO ENOMEM EACCES",
    "statx": "EIO ENOMEM EACCES",
    "access": "EIO ENOMEM",
    "readlink": "EIO ENOMEM",
    "getdents64": "EIO ENOMEM",
    "flock": "EINTR ENOLCK",
    "fcntl": "EINTR ENOLCK EMFILE",
    "dup2": "EINTR EMFILE",
    "dup3": "EINTR EMFILE",
    "pipe2": FILE,
    "socket": FILE + " ENOBUFS",
    "socketpair": FILE,
    "accept4": FILE + " EINTR ECONNABORTED",
    "connect": "EINTR ECONNREFUSED ETIMEDOUT EADDRNOTAVAIL ENETUNREACH EAGAIN",
    "bind": "EADDRINUSE ENOMEM EACCES",
    "listen": "EADDRINUSE",
    "setsockopt": "ENOMEM ENOBUFS",
    "getsockopt": "ENOMEM",
    "getsockname": "ENOBUFS",
    "sendto": "EINTR EAGAIN ENOBUFS ENOMEM ECONNRESET EPIPE",
    "sendmsg": "EINTR EAGAIN ENOBUFS ENOMEM ECONNRESET EPIPE",
    "recvfrom": "EINTR EAGAIN ENOMEM ECONNRESET",
    "recvmsg": "EINTR EAGAIN ENOMEM EMFILE ECONNRESET",
    "poll": "EINTR ENOMEM",
    "ppoll": "EINTR ENOMEM",
    "epoll_create1": FILE,
    "epoll_ctl": "ENOMEM ENOSPC",
    "epoll_wait": "EINTR",
    "epoll_pwait": "EINTR",
    "epoll_pwait2": "EINTR",
    "eventfd2": FILE,
    "signalfd4": FILE,
    "timerfd_create": FILE,
    "timerfd_settime": "EINTR ENOMEM",
    "inotify_init1": FILE,
    "inotify_add_watch": "ENOSPC ENOMEM",
    "pidfd_open": FILE,
    "pidfd_send_signal": "EPERM ESRCH",
    "memfd_create": FILE,
    "mmap": "ENOMEM EAGAIN ENFILE",
    "mremap": "ENOMEM EAGAIN",
    "mprotect": "ENOMEM",
    "madvise": "EAGAIN ENOMEM",
    "mlockall": "ENOMEM EPERM EAGAIN",
    "clone": "EAGAIN ENOMEM",
    "clone3": "EAGAIN ENOMEM",
    "fork": "EAGAIN ENOMEM",
    "vfork": "EAGAIN ENOMEM",
    "execve": "EAGAIN ENOMEM EMFILE ENFILE EIO EACCES",
    "wait4": "EINTR",
    "waitid": "EINTR",
    "kill": "EPERM ESRCH EAGAIN",
    "prctl": "EPERM EACCES",
    "setsid": "EPERM",
    "setpgid": "EPERM EACCES",
    "setpriority": "EPERM EACCES",
    "prlimit64": "EPERM",
    "getrandom": "EINTR",
    "futex": "EINTR EAGAIN",
    "close_range": "EMFILE ENOMEM",
    "clock_nanosleep": "EINTR",
    "nanosleep": "EINTR",
    "sched_setaffinity": "EPERM",
    "rt_sigtimedwait": "EINTR EAGAIN",
}
OURS, OTHERS = ("elector", "guard", "launched"), ("worker", "spawned")


def numbers() -> dict[str, int]:
    """Of x86-64, as the compiler's headers have them."""
    for path in ("/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "/usr/include/asm/unistd_64.h"):
        if os.path.exists(path):
            with open(path) as f:
                return {name: int(n) for name, n in re.findall(r"#define __NR_(\w+) (\d+)", f.read())}
    raise RuntimeError("no asm/unistd_64.h: these tests are for x86-64")


NUMBERS = numbers()


# What once went wrong. The worker cannot be started: its set was freed twice. The control socket cannot listen: its
# file stayed. No random bytes yet: the process ended without a word. A descriptor is not watched: what comes there, as
# SIGTERM, was not heard. The guard cannot read an order: exec ended with the status of a command that had not begun.
# The elector has no memory for a message to or from its processes: it was lost, or they were taken for gone. The guard
# cannot tell its worker to begin: that waited for ever. The guard's socket is reset: exec ended with 137, and no word.
KNOWN = {
    "file": [
        "elector/epoll_ctl/5/ENOSPC",
        "elector/epoll_ctl/1/ENOMEM",
        "guard/clone/1/EAGAIN",
        "elector/listen/1/EADDRINUSE",
        "elector/getrandom/2/EINTR",
        "elector/sendto/1/ENOMEM",
        "elector/recvfrom/5/ENOMEM",
        "guard/sendto/1/ENOBUFS",
        "guard/write/1/EIO",
    ],
    "exec": ["guard/recvfrom/1/ENOMEM", "guard/recvfrom/2/ECONNRESET"],
}


def fault(role: str, call: str, n: int, error: str) -> Fault:
    return Fault(call, role, n, NUMBERS[call], getattr(errno, error))


def parsed(text: str) -> Fault:
    role, call, n, error = text.split("/")
    return fault(role, call, int(n), error)


def all_of(lab: Lab) -> tuple[list[Fault], list[Fault]]:
    """Of elector and guard; of the worker, and of all else that belongs to it."""
    file = lab.count("calls")
    ours: list[Fault] = []
    others: list[Fault] = []
    # Guard and worker know no lock.
    for role in (*OURS, *OTHERS) if lab.name in ("file", "exec") else ("elector", "driver"):
        counts = file.counts(role)
        for call, errors in ERRORS.items():
            for n in range(1, counts[NUMBERS[call]] + 1):
                into = ours if role in OURS else others
                each = errors.split()
                one = each[lot(SEED, f"{role} {call} {n}") % len(each)]
                into += [fault(role, call, n, error) for error in (each if EVERY else [one])]
        known = {NUMBERS[c] for c in ERRORS}
        rest = [c for c, n in NUMBERS.items() if n < len(counts) and counts[n] and n not in known]
        note(f"{lab.name}: {role}: not made to fail: {' '.join(rest)}")
    return ours, others


def chosen(lab: Lab) -> list[Fault]:
    ours, others = all_of(lab)
    note(f"{lab.name}: {len(ours)} calls of elector and guard, {len(others)} of others")
    known = [parsed(text) for text in KNOWN.get(lab.name, [])]
    return known + (ours if FULL else drawn(ours, SEED, DRAWN)) + drawn(others, SEED, DRAWN)


def with_command(lab: Lab, call: str, n: int, error: str, command: str) -> tuple[int, str]:
    """exec, in whose guard that call fails: its status, and what it says."""
    file = lab.file()
    file.begin(ROLES.index("guard"), NUMBERS[call], n, getattr(errno, error), *[0] * 6)
    words = [lab.inject, file.path, LUNARCH, "exec", "--lock", lab.store.url(f"command-{call}-{error}"), "--"]
    r = subprocess.run([*words, "sh", "-c", command], capture_output=True, text=True, timeout=300)
    same(file.words(6, 1), [1], f"exec: {call} {n} of its guard gives {error}:")
    return r.returncode, r.stderr


def told(lab: Lab) -> None:
    """A command that stops itself is made to go on, also if its guard cannot send the note of it at first. A guard that
    cannot hear any more kills the command, and says why."""
    for error in ("ENOMEM", "ENOBUFS", "EINTR", "EAGAIN"):
        status, text = with_command(lab, "sendto", 2, error, "kill -STOP $$; exit 7")
        same((status, "cannot be suspended" in text), (7, True), "... its command, which stops itself, goes on")
    status, text = with_command(lab, "recvfrom", 2, "EACCES", "sleep 1000")
    ok(status == 137 and "could not read its orders (Permission denied)" in text, "... it kills, and says why")
    ok("signal 9" in text, "... which exec says, too")


def main() -> None:
    for name in LOCKS:
        lab = Lab(name)
        if ONLY:
            lab.count("calls")
            faults = [parsed(ONLY)]
        else:
            faults = chosen(lab)
        try_all(lab, faults, f"{name}, seed {SEED}: what follows when a system call fails", loud=bool(ONLY))
        if name == "exec" and not ONLY:
            told(lab)
        lab.store.end()
    done()


main()

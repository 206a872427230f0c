"""What a container's seccomp profile does: system calls that the kernel refuses to a program, and a program that is
held in one of them.

Not a sandbox: everything else is allowed. Used by tests of how the program starts."""

import contextlib
import ctypes
import fcntl
import os
import platform
import select
import socket
import struct
import subprocess
import threading
from collections.abc import Callable
from typing import Any

# linux/seccomp.h, linux/bpf_common.h, linux/prctl.h
SET_NO_NEW_PRIVS, SET_MODE_FILTER, NEW_LISTENER = 38, 1, 8
ALLOW, ERRNO, USER_NOTIF = 0x7FFF0000, 0x00050000, 0x7FC00000
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06
NOTIF_RECV, NOTIF_SEND, CONTINUE = 0xC0502100, 0xC0182101, 1
NOTIF_SIZE = 80  # struct seccomp_notif; it begins with the id and the pid

# Of calls that are older than 2019 the number is the machine's own.
NUMBERS = {
    "x86_64": {
        "ioctl": 16,
        "madvise": 28,
        "socketpair": 53,
        "fcntl": 72,
        "prctl": 157,
        "timerfd_create": 283,
        "signalfd4": 289,
        "seccomp": 317,
        "memfd_create": 319,
    },
    "aarch64": {
        "fcntl": 25,
        "ioctl": 29,
        "socketpair": 199,
        "madvise": 233,
        "prctl": 167,
        "timerfd_create": 85,
        "signalfd4": 74,
        "seccomp": 277,
        "memfd_create": 279,
    },
}.get(platform.machine(), {})
NUMBERS["pidfd_open"] = 434

LIBC = ctypes.CDLL(None, use_errno=True)


def install(call: str, arguments: dict[int, int], action: int, flags: int = 0) -> int:
    """In this process, and what it executes. arguments: only calls that have these, by their place."""
    tests = [(0, NUMBERS[call]), *((16 + 8 * place, value) for place, value in arguments.items())]
    code = b""
    for i, (offset, value) in enumerate(tests):
        rest = 2 * (len(tests) - i - 1) + 1  # to the last line, which allows
        code += struct.pack("=HBBI", LOAD, 0, 0, offset) + struct.pack("=HBBI", EQUAL, 0, rest, value)
    code += struct.pack("=HBBI", RETURN, 0, 0, action) + struct.pack("=HBBI", RETURN, 0, 0, ALLOW)
    text = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("@HP", len(code) // 8, ctypes.addressof(text))
    if LIBC.prctl(SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0:
        raise OSError(ctypes.get_errno(), "prctl")
    result = LIBC.syscall(NUMBERS["seccomp"], SET_MODE_FILTER, flags, program)
    if result < 0:
        raise OSError(ctypes.get_errno(), "seccomp")
    return int(result)


def refusing(call: str, error: int, arguments: dict[int, int] | None = None) -> Callable[[], None]:
    """For Popen's preexec_fn."""

    def prepare() -> None:
        install(call, arguments or {}, ERRNO | error)

    return prepare


def held_in(
    command: list[str], call: str, arguments: dict[int, int], then: Callable[[int], None], **kw: Any
) -> "subprocess.Popen[str]":
    """Starts it. Its first such call waits until then(pid) has returned; all later ones are made as usual."""
    ours, theirs = socket.socketpair()

    def prepare() -> None:
        listener = install(call, arguments, USER_NOTIF, NEW_LISTENER)
        socket.send_fds(theirs, [b"."], [listener])
        os.close(listener)

    with ours, theirs:
        process = subprocess.Popen(command, preexec_fn=prepare, text=True, **kw)
        listener = socket.recv_fds(ours, 1, 1)[1][0]
    threading.Thread(target=_let_pass, args=(listener, then), daemon=True).start()
    return process


def _let_pass(listener: int, then: Callable[[int], None]) -> None:
    """Until nobody is left who could make such a call."""
    first = True
    waiting = select.poll()
    waiting.register(listener, select.POLLIN)
    while waiting.poll()[0][1] & select.POLLIN:
        with contextlib.suppress(FileNotFoundError):  # a signal has ended who made the call
            call = bytearray(NOTIF_SIZE)
            fcntl.ioctl(listener, NOTIF_RECV, call)
            number, pid = struct.unpack_from("=QI", call)
            if first:
                then(pid)
            first = False
            fcntl.ioctl(listener, NOTIF_SEND, bytearray(struct.pack("=QqiI", number, 0, 0, CONTINUE)))
    os.close(listener)

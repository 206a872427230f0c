#!/usr/bin/env -S PYTHONPATH=. python3
"""A worker that leads sends its elector a message that makes no sense, of one kind after the other. It is killed, the
log says which message was wrong, and its term ends as with any dead worker: the next worker runs on_stopped, and the
lease is released.

The message is put into the worker's own socket, of which this test makes itself a copy."""

import ctypes
import os
import socket
import struct
from collections.abc import Callable
from typing import Any

from tests.lib.candidates import STEADY, Candidate
from tests.lib.player import END, FIELDS, LEAD, LOADED, SAVE, STARTED, STOPPED, TYPES, pack
from tests.lib.processes import alive, scratch, wait_for
from tests.lib.tap import at_once, done, ok, same

PIDFD_GETFD = 438  # pidfd_getfd(2), which Python does not have
WIRE_MAX = 128 * 1024  # runtime/process/wire.h
WORKERS = 64  # the first number of a message that is for workers
SCRIPT = """return {
  on_leading = function(term) print("leading " .. term.token) sleep(1000) end,
  on_stopped = function(_, reason) print("stopped " .. reason) end,
}"""
NAMES = {number: name.lower() for name, number in TYPES.items()}


def whole(kind: int, **known: int) -> bytes:
    empty: dict[str, Any] = {"u8": 0, "u32": 0, "u64": 0, "i64": 0, "str": "", "cut": "", "list": []}
    return pack(kind, *(known.get(name, empty[letters]) for letters, name in FIELDS[kind]))


CASES: list[tuple[str, str, bytes]] = []  # what it is, what the log calls it, the message
for kind in sorted(k for k in FIELDS if k < WORKERS):
    CASES.append((f"{NAMES[kind]}, cut", NAMES[kind], whole(kind)[:-1]))
    CASES.append((f"{NAMES[kind]}, with a byte behind its end", NAMES[kind], whole(kind) + b"\0"))
CASES += [
    ("a message that is for workers", "lead", whole(LEAD, slot=0, term=1)),
    ("a second list of elections", "loaded", whole(LOADED, count=1)),
    ("a second start", "started", whole(STARTED, ok=1)),
    ("the end of a term for no known reason", "end", whole(END, slot=0, term=1, reason=200)),
    ("a save of an election that the script does not have", "save", whole(SAVE, slot=1, term=1)),
    ("a stop of an election that nobody can have", "stopped", whole(STOPPED, slot=2**32 - 1)),
    ("a number that no message has", "no known type", struct.pack("=I", 63)),
    ("less than a number", "no known type", b"\1"),
    ("a message that is too large", f"{WIRE_MAX + 1} bytes", whole(LOADED) + bytes(WIRE_MAX + 1 - 8)),
]


def say_as(pid: int, message: bytes) -> None:
    """Sends it to the elector of this worker as if the worker did."""
    handle = os.pidfd_open(pid)
    sockets = [
        int(fd) for fd in os.listdir(f"/proc/{pid}/fd") if os.readlink(f"/proc/{pid}/fd/{fd}").startswith("socket:")
    ]
    for number in sockets:
        copy = ctypes.CDLL(None, use_errno=True).syscall(PIDFD_GETFD, handle, number, 0)
        if copy < 0:
            raise OSError(ctypes.get_errno(), "pidfd_getfd")
        with socket.socket(fileno=copy) as s:
            if s.type == socket.SOCK_SEQPACKET:  # nothing else of a worker is
                s.send(message)
    os.close(handle)


def play(what: str, name: str, message: bytes) -> None:
    lock = os.path.join(scratch(), "lock")
    c = Candidate("--lock", lock, "-e", SCRIPT, options=STEADY)
    c.wait("print", "leading")
    worker = c.worker()
    say_as(worker, message)
    said = c.wait("worker_malformed")
    ok(said and name in said["message"], f"{what}: the log says which message it was", said)
    ok(wait_for(lambda: not alive(worker)), f"{what}: the worker is killed")
    c.wait("print", "leading", count=2)
    same(
        [e["message"].split(" ")[0] for e in c.all("print")],
        ["leading", "stopped", "leading"],
        f"{what}: the next worker runs on_stopped, once, and the candidate leads again",
    )
    same([e["message"] for e in c.said("stopped")], ["stopped worker"], f"{what}: as after any worker's death")
    same((c.stop(), len(c.all("worker_malformed"))), (0, 1), f"{what}: nothing else was wrong")


def several(cases: list[tuple[str, str, bytes]]) -> Callable[[], None]:
    def play_all() -> None:
        for case in cases:
            play(*case)

    return play_all


at_once(*(several(CASES[i::4]) for i in range(4)))
done()

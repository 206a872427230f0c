"""Plays the elector for one worker: a socketpair, a page as runtime/process/deadline_page.h lays it out, messages as in
runtime/process/wire_messages.h.

Not an election: terms begin and end when the test says so. Used by the tests in this directory.
"""

import ctypes
import fcntl
import json
import mmap
import os
import re
import select
import signal
import socket
import struct
import subprocess
import tempfile
import time
from typing import Any

from tests.lib.processes import LUNARCH, PATIENCE, ROOT, children, wait_for

SCRIPTS = os.path.join(ROOT, "tests", "script", "scripts")
LIMIT = 2 * PATIENCE  # seconds to wait for anything
OUTPUT_MAX = 1 << 26  # bytes of standard output that are looked at
CHUNK = 1 << 20  # bytes of the log that are looked at in one piece; no line of the log is longer
REPEATED_MAX = 1000  # lines of the log that differ in their time only
KEPT_MAX = 100_000  # lines of the log

with open(os.path.join(ROOT, "runtime", "process", "wire_messages.h")) as f:
    TABLE = f.read()
TYPES = {name: int(number) for number, name in re.findall(r"M\((\d+), (\w+), \w+\)", TABLE)}
LAYOUTS = {  # name: ((u8, u32, u64, i64, str, cut or list; field), ...)
    name: tuple(re.findall(r"F\((\w+), (\w+)\)", fields))
    for name, fields in re.findall(r"#define WIRE_FIELDS_(\w+)\(F\)((?:.*\\\n)*.*)", TABLE)
}
FIELDS = {int(number): LAYOUTS[name] for number, name in re.findall(r"M\((\d+), \w+, (\w+)\)", TABLE)}
NUMBERS = {"u8": "=B", "u32": "=I", "u64": "=Q", "i64": "=q"}
with open(os.path.join(ROOT, "runtime", "config", "options_table.h")) as f:
    OPTIONS = [name.replace("-", "_") for name in re.findall(r'^(?:O|V|KEPT)\(\w+, \w+, "([\w-]+)"', f.read(), re.M)]
ELECTION, LOADED, LOAD_FAILED, STARTED, ANSWER, STOPPED, END, EXIT, SAVE, DRAINED = (
    TYPES[t] for t in "ELECTION LOADED LOAD_FAILED STARTED ANSWER STOPPED END EXIT SAVE DRAINED".split()
)
GO, LEAD, STOP, CLEANUP, LEADER, NO_LEADER, ASK, QUIT, SAVED, DRAIN = (
    TYPES[t] for t in "GO LEAD STOP CLEANUP LEADER NO_LEADER ASK QUIT SAVED DRAIN".split()
)
NEXT, NEXT_OVER, NEXT_STOPPED, LEADS, FAILED = (TYPES[t] for t in "NEXT NEXT_OVER NEXT_STOPPED LEADS FAILED".split())
REASONS = ["resigned", "declined", "shutdown", "expired", "lost", "deleted", "error", "killed", "worker", "reload"]
OBSERVER, MAY_LEAD, ISOLATE, ADDRESS_FUNCTION, PRIORITY_FUNCTION = (1 << i for i in range(5))
ON_STOPPED, ON_STOPPING, ON_NEXT, ON_NEXT_OVER = (1 << i for i in range(5, 9))
NEXT_DONE, NEXT_FAILED, NEXT_TAKEN = range(3)

SLOT = struct.Struct("=QqqqqqI")  # the first fields of the 64 bytes
IDLE, LEADING, STOPPING = range(3)
with open(os.path.join(ROOT, "runtime", "process", "deadline_page.h")) as f:
    WORKS = [name.lower() for name in re.findall(r"^\tPAGE_(\w+),", f.read(), re.M)]


def pack_fields(layout: tuple[Any, ...], values: tuple[Any, ...]) -> bytes:
    out = []
    for (letters, _), value in zip(layout, values):
        if letters in ("str", "cut"):
            raw = value.encode() + b"\0"
            out.append(struct.pack("=I", len(raw)) + raw)
        elif letters == "list":
            out += [pack_fields(LAYOUTS["kept"], part) for part in value]
        else:
            out.append(struct.pack(NUMBERS[letters], value))
    return b"".join(out)


def pack(kind: int, *values: Any) -> bytes:
    """values: the first fields; all of them, if the message is to make sense. A list has a tuple for each part."""
    return struct.pack("=I", kind) + pack_fields(FIELDS[kind], values)


def unpack(data: Any) -> Any:
    kind, at, fields = struct.unpack_from("=I", data)[0], 4, {}
    for letters, name in FIELDS[kind]:
        if letters in ("str", "cut"):
            size = struct.unpack_from("=I", data, at)[0]
            fields[name] = data[at + 4 : at + 3 + size].decode("utf-8", "replace")
            at += 4 + size
        elif letters == "list":  # what the script says by the keys of options: the only one that a worker sends
            part = struct.Struct("".join(["=", *(NUMBERS[n][1] for n, _ in LAYOUTS["said"])]))
            fields[name] = {OPTIONS[option]: number for option, number in part.iter_unpack(data[at:])}
            at = len(data)
        else:
            fields[name] = struct.unpack_from(NUMBERS[letters], data, at)[0]
            at += struct.calcsize(NUMBERS[letters])
    assert at == len(data), "message %d has %d bytes too many" % (kind, len(data) - at)
    return kind, fields


def instant(seconds: float) -> tuple[int, int]:
    ns = int(seconds * 1e9)
    return (time.clock_gettime_ns(time.CLOCK_BOOTTIME) + ns, time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW) + ns)


F_SEAL_FUTURE_WRITE = 0x10  # fcntl(2)


class Page:
    def __init__(self, slots: int = 8192) -> None:
        self.fds = [
            os.memfd_create("page", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING) for _ in range(2)
        ]  # deadlines, marks
        for fd in self.fds:
            os.ftruncate(fd, 64 + 64 * slots)
        self.map, self.marks = (mmap.mmap(fd, 64 + 64 * slots) for fd in self.fds)
        for fd, also in zip(self.fds, (F_SEAL_FUTURE_WRITE, 0)):
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL | also)
        struct.pack_into("=III", self.map, 0, 0x3147504C, slots, 0)

    def put(self, slot: int, term: int, token: int, end: Any, kill: Any, state: Any = LEADING) -> None:
        used = struct.unpack_from("=I", self.map, 8)[0]
        struct.pack_into("=I", self.map, 8, max(used, slot + 1))
        SLOT.pack_into(self.map, 64 + 64 * slot, term, token, *end, *kill, state)

    def begin(self, slot: Any, term: Any, token: Any, seconds: float = 1000, kill: int = 2000) -> None:
        struct.pack_into("=Q", self.marks, 64 + 64 * slot, 0)
        self.put(slot, term, token, instant(seconds), instant(kill))

    def work(self) -> Any:
        """What the worker says that it runs, and for which slot."""
        return struct.unpack_from("=II", self.marks, 0)

    def stop(self, slot: Any, held: bool = False, kill: Any = None) -> None:
        term, token, *deadlines, _ = SLOT.unpack_from(self.map, 64 + 64 * slot)
        end = deadlines[:2] if held else (0, 0)
        self.put(slot, term, token, end, instant(kill) if kill is not None else deadlines[2:], STOPPING)

    def end_next(self, slot: int, number: int) -> None:
        struct.pack_into("=I", self.map, 64 + 64 * slot + SLOT.size, number)

    def close(self) -> None:
        for part in (self.map, self.marks):
            part.close()
        for fd in self.fds:
            os.close(fd)


libc = ctypes.CDLL(None)
libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
PUNCH_HOLE = 3  # fallocate(2): FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE


class Log:
    """A worker's log. A script that logs for ever writes more in a second than can be parsed in one: each line is read
    once, repetitions are not kept, and what was read takes no room in the file system."""

    def __init__(self, path: str) -> None:
        self.file = open(path, "w+b")
        self.at = 0  # this much was read
        self.times: dict[bytes, int] = {}  # a line without its time: how often it came
        self.kept: list[Any] = []

    def _take(self, lines: list[bytes]) -> None:
        for line in lines:
            if not line.startswith(b"{"):
                continue
            rest = line.partition(b",")[2]
            times = self.times[rest] = self.times.get(rest, 0) + 1
            if times > REPEATED_MAX:
                continue
            self.kept.append(json.loads(line))
            if len(self.kept) > KEPT_MAX:
                raise AssertionError(f"more than {KEPT_MAX} different lines in the log; the last one: {line[:1000]!r}")

    def read(self) -> list[Any]:
        """All that was in the file at this call."""
        size = os.fstat(self.file.fileno()).st_size
        while self.at < size:
            piece = os.pread(self.file.fileno(), min(CHUNK, size - self.at), self.at)
            whole = piece.rfind(b"\n") + 1
            if not whole and len(piece) < CHUNK:
                break
            whole = whole or len(piece)  # somebody else's text without an end
            self._take(piece[:whole].split(b"\n"))
            self.at += whole
            if self.at > 2 * CHUNK:  # its end is for log_text; where there are no holes, it only takes more room
                libc.fallocate(self.file.fileno(), PUNCH_HOLE, 0, self.at - CHUNK)
        return list(self.kept)

    def end(self) -> str:
        size = os.fstat(self.file.fileno()).st_size
        shown = min(size, 1 << 16)
        return os.pread(self.file.fileno(), shown, size - shown).decode("utf-8", "replace")

    def close(self) -> None:
        self.file.close()


class Worker:
    """with Worker("tests/script/scripts/x.lua") as w: ... ; text=: the script's text instead of its path; files=: what
    lies beside it."""

    def __init__(
        self,
        script: str | None = None,
        *args: Any,
        text: str | None = None,
        body: Any = None,
        directory: str | None = None,
        env: Any = None,
        files: Any = None,
    ) -> None:
        self.directory = tempfile.TemporaryDirectory(prefix="lunarch-test-")
        if text is not None:
            script = os.path.join(directory or self.directory.name, "script.lua")
            with open(script, "w") as f:
                f.write(text)
        for name, content in (files or {}).items():  # before the start: the worker loads at once
            with open(os.path.join(self.directory.name, name), "w") as f:
                f.write(content)
        self.script = script
        self.page = Page()
        self.wire, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.stdout = open(os.path.join(self.directory.name, "stdout"), "w+b")
        self.lines = Log(os.path.join(self.directory.name, "stderr"))
        kind = ["eval", body] if body is not None else ["file", script]
        self.process = subprocess.Popen(
            [
                LUNARCH,
                "-x",
                "worker",
                str(theirs.fileno()),
                *map(str, self.page.fds),
                "-1",
                "json",
                "debug",
                "",
                *kind,
                *args,
            ],
            pass_fds=(theirs.fileno(), *self.page.fds),
            stdin=subprocess.DEVNULL,
            stdout=self.stdout,
            stderr=self.lines.file,
            cwd=directory or self.directory.name,
            env=dict(os.environ, ASAN_OPTIONS="allocator_may_return_null=1", **(env or {})),
            start_new_session=True,
        )
        theirs.close()
        self.term: dict[str, Any] = {}
        self.failed: list[str] = []  # what hooks and tasks raised
        self.ahead: list[Any] = []  # messages that came before an answer that was waited for

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *exc: Any) -> None:
        groups = [
            self.process.pid,
            *children(self.process.pid),
        ]  # there is no guard: what a script starts is ours to kill
        self.wire.close()
        for group in groups:
            try:
                os.killpg(group, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait()
        if exc[0]:
            print("# the worker's log:\n# " + self.log_text().replace("\n", "\n# "))
        self.stdout.close()
        self.lines.close()
        self.page.close()
        self.directory.cleanup()

    # ---- messages ----

    def receive(self, limit: Any = LIMIT) -> Any:
        """(kind, fields); None at the end of the conversation; fails when nothing comes in time"""
        if self.ahead:
            return self.ahead.pop(0)
        by = time.monotonic() + limit
        while not select.select([self.wire], [], [], max(0, min(1, by - time.monotonic())))[0]:
            if time.monotonic() >= by:
                raise AssertionError("no message within %s s" % limit)
            self.log()  # what it writes meanwhile is not to pile up
        data = self.wire.recv(1 << 18)
        got = unpack(data) if data else None
        if got and got[0] == FAILED:  # told beside what follows from it
            self.failed.append(got[1]["text"])
            return self.receive(limit)
        return got

    def expect(self, kind: int) -> dict[str, Any]:
        got = self.receive()
        if got is None:
            raise AssertionError("the worker is gone, expected message %d" % kind)
        if got[0] != kind:
            raise AssertionError("expected message %d, got %r" % (kind, got))
        return got[1]

    def quiet(self, seconds: float = 0.2) -> bool:
        while not self.ahead and select.select([self.wire], [], [], seconds)[0]:
            data = self.wire.recv(1 << 18)
            if data and unpack(data)[0] == FAILED:
                self.failed.append(unpack(data)[1]["text"])
            else:
                self.ahead.append(unpack(data) if data else None)
        return not self.ahead

    def send(self, kind: Any, *fields: Any) -> None:
        self.wire.send(pack(kind, *fields))

    def load(self) -> Any:
        """the elections, or the text of why there are none"""
        elections: list[dict[str, Any]] = []
        while True:
            kind, fields = self.receive()
            if kind == LOAD_FAILED:
                return fields["text"]
            if kind == LOADED:
                assert fields["count"] == len(elections)
                return elections
            assert kind == ELECTION, (kind, fields)
            elections.append(fields)

    def go(self, count: int = 1, first: bool = True, keep: list[int] | None = None) -> dict[str, Any]:
        """keep: the slots of the elections that the worker keeps; then waits for STARTED"""
        keep = keep if keep is not None else list(range(count))
        parts = [(index, "file:lock%d" % index, "me_%d" % index) for index in keep]
        self.send(GO, first, parts)
        return self.expect(STARTED)

    def ready(self, count: int = 1) -> None:
        loaded = self.load()
        assert isinstance(loaded, list), loaded
        started = self.go(count)
        assert started["ok"], started

    def begin(self, word: str = "in") -> None:
        """A term, whose on_leading has printed this."""
        self.ready()
        self.lead()
        self.wait_print(word)

    def lead(
        self,
        term: int = 1,
        token: int = 100,
        slot: int = 0,
        seconds: float = 1000,
        kill: int = 2000,
        address: str = "host:1",
        checkpoint: str = "",
        number: int = 0,
        wait: bool = True,
    ) -> None:
        """number: of the on_next that goes over into the term. wait: for the answer, or for the worker's end"""
        self.page.begin(slot, term, token, seconds, kill)
        self.send(LEAD, slot, term, token, address, checkpoint, number)
        before = []
        while wait and (got := self.receive()) != (LEADS, {"slot": slot, "term": term}):
            before.append(got)
            wait = got is not None
        self.ahead += before

    def stop(
        self,
        reason: str = "shutdown",
        grace: float = 10.0,
        term: int = 1,
        slot: int = 0,
        held: bool = False,
        interrupt: bool = True,
    ) -> None:
        self.page.stop(slot, held)
        self.send(STOP, slot, term, REASONS.index(reason), int(grace * 1000))
        if interrupt:
            self.process.send_signal(signal.SIGRTMIN)

    def next(self, number: int, grace: float = 10.0, slot: int = 0) -> None:
        self.send(NEXT, slot, number, int(grace * 1000))

    def end_next(self, number: int, slot: int = 0) -> None:
        """as the elector does before NEXT_OVER"""
        self.page.end_next(slot, number)
        self.process.send_signal(signal.SIGRTMIN)

    def next_over(self, number: int, grace: float = 10.0, slot: int = 0) -> None:
        self.send(NEXT_OVER, slot, number, int(grace * 1000))

    def drain(self, reason: str = "shutdown", term: int = 1, slot: int = 0) -> None:
        self.send(DRAIN, slot, term, REASONS.index(reason))

    def saved(self, save: int, how: int = 1, why: str = "", term: int = 1, slot: int = 0) -> None:
        self.send(SAVED, slot, term, save, how, why)

    def leader(
        self,
        identity: str,
        token: int = 1,
        is_self: bool = False,
        previous: str = "",
        slot: int = 0,
        address: str = "there:1",
    ) -> None:
        self.send(LEADER, slot, identity, address, token, is_self, previous)

    def no_leader(self, previous: str = "", slot: int = 0) -> None:
        self.send(NO_LEADER, slot, previous)

    def ask(self, number: Any, slot: int = 0) -> None:
        self.send(ASK, slot, number)

    # ---- what it writes ----

    def output(self) -> str:
        with open(self.stdout.name, "rb") as f:
            return f.read(OUTPUT_MAX).decode("utf-8", "replace")

    def log_text(self) -> str:
        """the end of the log"""
        return self.lines.end()

    def log(self) -> list[Any]:
        """The lines that are whole: one that is just being written may be read in part. Of a line that comes again and
        again the first thousand."""
        return self.lines.read()

    def printed(self) -> list[Any]:
        return [line["message"] for line in self.log() if line["event"] == "print"]

    def wait_for(self, condition: Any, what: str) -> Any:
        """What the condition returns when it is true; fails when it has not come true in time, or at the worker's
        end."""
        wait_for(lambda: condition() or self.process.poll() is not None, LIMIT)
        value = condition()
        if not value:
            raise AssertionError("%s has not happened" % what)
        return value

    def wait_print(self, text: str) -> None:
        self.wait_for(lambda: text in self.printed(), "print of %r" % text)

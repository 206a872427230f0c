"""Plays the elector for one driver: a socketpair, and the messages of runtime/locks/lua/driver_messages.h.

Not a lock: operations begin and end when the test says so. Used by tests/locks/test_driver.py.
"""

import json
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

from tests.lib.processes import LUNARCH, PATIENCE, ROOT
from tests.lib.tap import note

with open(os.path.join(ROOT, "runtime", "locks", "lua", "driver_messages.h")) as f:
    TABLE = f.read()
NUMBERED = re.findall(r"M\((\d+), (\w+), (\w+)\)", TABLE)
TYPES = {kind: int(number) for number, kind, _ in NUMBERED}
LAYOUTS = {
    name: tuple(re.findall(r"F\((\w+), (\w+)\)", fields))
    for name, fields in re.findall(r"#define DRIVER_FIELDS_(\w+)\(F\)((?:.*\\\n)*.*)", TABLE)
}
NAMES = {int(number): name for number, _, name in NUMBERED}
NUMBERS = {"u8": "=B", "u32": "=I", "u64": "=Q", "i64": "=q"}
OUTCOMES = ["ok", "absent", "foreign", "conflict", "unknown", "refused", "invalid", "failed"]
KINDS = ["READ", "WRITE", "REMOVE", "LIST", "ABOUT"]  # enum driver_kind
USAGE = 1  # enum err_code
MESSAGE_MAX = 1 << 20  # bytes; longer than any
RECORD_MAX = 1 << 18  # RECORD_MAX_BYTES
DURABLE, BEGINS, ADVICE, OWN = 1, 2, 4, 8


def pack(kind: str, *values: Any) -> bytes:
    out = [struct.pack("=I", TYPES[kind])]
    for (letters, _), value in zip(LAYOUTS[kind.lower()], values):
        if letters == "str":
            raw = (value if isinstance(value, bytes) else value.encode()) + b"\0"
            out.append(struct.pack("=I", len(raw)) + raw)
        else:
            out.append(struct.pack(NUMBERS[letters], value))
    return b"".join(out)


def unpack(data: bytes) -> tuple[str, dict[str, Any]]:
    name = NAMES[struct.unpack_from("=I", data)[0]]
    at, fields = 4, dict[str, Any]()
    for letters, field in LAYOUTS[name]:
        if letters == "str":
            size = struct.unpack_from("=I", data, at)[0]
            fields[field] = data[at + 4 : at + 3 + size].decode("utf-8", "replace")
            at += 4 + size
        elif letters == "list":
            fields[field] = data[at:]
            at = len(data)
        else:
            fields[field] = struct.unpack_from(NUMBERS[letters], data, at)[0]
            at += struct.calcsize(NUMBERS[letters])
    assert at == len(data), f"{name} has {len(data) - at} bytes too many"
    return name, fields


def deadline(seconds: float) -> tuple[int, int]:
    """raw and boot"""
    ns = int(seconds * 1e9)
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW) + ns, time.clock_gettime_ns(time.CLOCK_BOOTTIME) + ns


class Driver:
    """with Driver("return { ... }") as d: ... ; the text of a lock file, or path= of one."""

    def __init__(
        self, text: str | None = None, path: str | None = None, files: Any = None, env: dict[str, str] | None = None
    ) -> None:
        self.directory = tempfile.TemporaryDirectory(prefix="lunarch-test-")
        self.path = path or os.path.join(self.directory.name, "lock.lua")
        for name, content in {**({"lock.lua": text} if text is not None else {}), **(files or {})}.items():
            with open(os.path.join(self.directory.name, name), "w") as f:
                f.write(content)
            os.chmod(f.name, 0o644)
        self.wire, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in self.wire, theirs:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MESSAGE_MAX)
        self.log_file = open(os.path.join(self.directory.name, "stderr"), "w+b")
        self.out_file = open(os.path.join(self.directory.name, "stdout"), "w+b")
        self.process = subprocess.Popen(
            [LUNARCH, "-x", "driver", str(theirs.fileno()), "json", "debug", "me"],
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=self.out_file,
            stderr=self.log_file,
            env=dict(os.environ, ASAN_OPTIONS="allocator_may_return_null=1", **(env or {})),
        )
        theirs.close()
        self.ids = 0
        self.answers: dict[int, dict[str, Any]] = {}
        self.others: list[tuple[str, dict[str, Any]]] = []

    def __enter__(self) -> "Driver":
        return self

    def __exit__(self, *exc: Any) -> None:
        self.wire.close()
        for kill in (lambda: os.killpg(self.process.pid, signal.SIGKILL), self.process.kill):
            try:
                kill()
            except ProcessLookupError:
                pass
        self.process.wait()
        if exc[0]:
            print("# the driver's log:\n# " + self.log_text().replace("\n", "\n# "))
        self.log_file.close()
        self.out_file.close()
        self.directory.cleanup()

    # ---- messages ----

    def send(self, kind: str, *values: Any) -> None:
        self.wire.send(pack(kind, *values))

    def take(self, limit: float = PATIENCE) -> bool:
        """Takes one message in; false: the driver has ended. Raises where none comes in time."""
        if not select.select([self.wire], [], [], limit)[0]:
            raise AssertionError("no message in time")
        try:
            data = self.wire.recv(MESSAGE_MAX)
        except ConnectionResetError:
            return False
        if not data:
            return False
        name, fields = unpack(data)
        if name == "answer":
            if fields["id"] in self.answers:
                raise AssertionError(f"answered twice: {fields}")
            fields["outcome"] = OUTCOMES[fields["outcome"]]
            self.answers[fields["id"]] = fields
        else:
            self.others.append((name, fields))
        return True

    def next(self, name: str) -> dict[str, Any]:
        """The next message of that name; earlier ones of other names are kept."""
        while True:
            for i, (found, fields) in enumerate(self.others):
                if found == name:
                    del self.others[i]
                    return fields
            if not self.take():
                raise AssertionError(f"the driver has ended: expected {name}")

    def quiet(self, seconds: float = 0.3) -> bool:
        return not self.others and not select.select([self.wire], [], [], seconds)[0]

    def open(self, scheme: str = "lua", **place: Any) -> dict[str, Any]:
        self.send("OPEN", json.dumps(self.place(scheme, **place)))
        return self.next("opened")

    def place(self, scheme: str = "lua", **more: Any) -> dict[str, Any]:
        return {
            "driver": None,
            "file": self.path,
            "scheme": scheme,
            "url": f"{scheme}:{self.path}#k",
            "user": "",
            "password": None,
            "hosts": [],
            "path": None,
            "options": {},
            **more,
        }

    def ask(self, kind: str, *values: Any, within: float = PATIENCE) -> int:
        self.ids += 1
        rest = ("", "", 0, "", 0, "")[len(values) :]
        self.send("ASK", self.ids, KINDS.index(kind), *deadline(within), *values, *rest)
        return self.ids

    def answer(self, number: int) -> dict[str, Any]:
        while number not in self.answers:
            if not self.take():
                raise AssertionError("the driver has ended: expected an answer")
        return self.answers[number]

    def read(self, key: str = "k", within: float = PATIENCE) -> dict[str, Any]:
        return self.answer(self.ask("READ", key, within=within))

    def start_write(self, text: str = "{}", key: str = "k", within: float = PATIENCE, **more: Any) -> int:
        m = {"expected": "", "flags": 0, "waited_out": "", "floor": 0, **more}
        return self.ask("WRITE", key, m["expected"], m["flags"], m["waited_out"], m["floor"], text, within=within)

    def write(self, text: str = "{}", **more: Any) -> dict[str, Any]:
        return self.answer(self.start_write(text, **more))

    def alive(self, number: int = 1) -> bool:
        """It answers a ping."""
        self.send("PING", number)
        return bool(self.next("pong")["number"] == number)

    def end(self) -> int:
        """Closes the socket; the exit status."""
        self.wire.close()
        return self.process.wait(PATIENCE)

    # ---- what it writes ----

    def log_text(self) -> str:
        with open(self.log_file.name, "rb") as f:
            return f.read().decode("utf-8", "replace")

    def log(self, event: str) -> list[str]:
        """The messages of the lines of that event."""
        lines = [json.loads(line) for line in self.log_text().split("\n")[:-1] if line.startswith("{")]
        return [line["message"] for line in lines if line["event"] == event]

    def output(self) -> str:
        with open(self.out_file.name, "rb") as f:
            return f.read().decode("utf-8", "replace")


def told(answer: dict[str, Any], outcome: str, *said: str) -> bool:
    """Whether a driver answered so, with these words; otherwise that is noted."""
    good = answer["outcome"] == outcome and all(s in answer["text"] for s in said)
    if not good:
        note(f"{answer}, not {outcome} {said}")
    return good

#!/usr/bin/env -S PYTHONPATH=. python3
"""What calls itself a PostgreSQL server, and is hostile, before log-in or after it: the program neither ends nor
freezes nor fills its memory, and believes nothing that does not answer its question."""

import base64
import signal
import socket
import struct
import threading
from collections.abc import Iterator
from typing import Any

from tests.lib.candidates import Candidate
from tests.lib.lock_driver import Driver, record
from tests.lib.processes import LUNARCH
from tests.lib.tap import done, note, ok, same

WITHIN = 4000  # ms
MOST_MB = (
    1500 if "/asan/" in LUNARCH else 150
)  # of memory: it takes 10, and one answer may have 8; sanitizers keep what is freed
PID = 4242


def message(kind: bytes, body: bytes = b"") -> bytes:
    return kind + struct.pack(">i", len(body) + 4) + body


def texts(*all: str) -> bytes:
    return b"".join(t.encode() + b"\0" for t in all)


def columns(count: int) -> bytes:
    return message(b"T", struct.pack(">h", count) + (b"c\0" + struct.pack(">ihihih", 0, 0, 25, -1, -1, 0)) * count)


def row(*values: bytes) -> bytes:
    return message(b"D", struct.pack(">h", len(values)) + b"".join(struct.pack(">i", len(v)) + v for v in values))


READY = message(b"Z", b"I")
BOUND = message(b"1") + message(b"2")


def result(*values: bytes) -> bytes:
    return BOUND + columns(len(values)) + row(*values) + message(b"C", texts("SELECT 1"))


def for_ever(piece: bytes) -> Iterator[Any]:
    while True:
        yield piece


def giant(kind: bytes, size: int, head: bytes = b"") -> Iterator[Any]:
    """A message of that size, as fast as it is taken."""
    yield kind + struct.pack(">i", size) + head
    yield from for_ever(b"x" * (1 << 20))


class Hostile:
    """login: what it says instead of letting somebody in; first: instead of an answer to the link's greeting;
    answer(stamp): to a lock's question. Bytes, or a generator of them."""

    def __init__(self, login: Any = None, first: Any = None, answer: Any = None) -> None:
        self.login, self.first, self.answer = login, first, answer
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.port = self.listening.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        while True:
            threading.Thread(target=self.serve, args=(self.listening.accept()[0],), daemon=True).start()

    def serve(self, s: socket.socket) -> None:
        try:
            f = s.makefile("rb")
            while True:
                n, code = struct.unpack(">ii", f.read(8))
                f.read(n - 8)
                if code not in (80877103, 80877104):  # it wants no TLS and no GSSAPI
                    break
                s.sendall(b"N")
            if self.login:
                self.pour(s, self.login(s, f))
                f.read(1)
                return
            s.sendall(
                message(b"R", struct.pack(">i", 0))
                + b"".join(
                    message(b"S", texts(*p))
                    for p in (
                        ("server_version", "15.0"),
                        ("client_encoding", "UTF8"),
                        ("in_hot_standby", "off"),
                        ("default_transaction_read_only", "off"),
                    )
                )
                + message(b"K", struct.pack(">ii", PID, 1))
                + READY
            )
            self.converse(s, f)
        except (OSError, struct.error):
            pass

    def pour(self, s: Any, what: str) -> None:
        for piece in [what] if isinstance(what, bytes) else what:
            s.sendall(piece)

    def converse(self, s: Any, f: Any) -> None:
        statements, stamp = [], b""
        while kind := f.read(1):
            body = f.read(struct.unpack(">i", f.read(4))[0] - 4)
            if kind == b"P":
                statements.append(body.split(b"\0")[1].decode())
            elif kind == b"B" and "set_config('statement_timeout'" in statements[-1]:
                stamp = self.last_parameter(body)
            elif kind == b"S":
                question = any("set_config('statement_timeout'" in x for x in statements)
                if question and self.answer:
                    self.pour(s, self.answer(stamp))
                else:
                    self.pour(s, self.first or self.usual(statements, stamp))
                statements = []

    @staticmethod
    def last_parameter(bind: bytes) -> bytes:
        rest = bind.split(b"\0", 2)[2]
        at = 2 + 2 * struct.unpack(">h", rest[:2])[0]
        count, at, value = struct.unpack(">h", rest[at : at + 2])[0], at + 2, b""
        for _ in range(count):
            n = struct.unpack(">i", rest[at : at + 4])[0]
            value, at = rest[at + 4 : at + 4 + n], at + 4 + n
        return value

    @staticmethod
    def usual(statements: Any, stamp: Any) -> Any:
        out = b""
        for x in statements:
            if "pg_backend_pid" in x:
                out += result(b"%d" % PID)
            elif x.startswith("SELECT pg_catalog.pg_walfile_name"):
                out += result(b"000000010000000000000001")
            elif "set_config('statement_timeout'" in x:
                out += settings(stamp)
            elif x.startswith("SELECT CASE"):
                out += result(b"no record", b"1.x", b"5", b"9", b"")
            else:
                out += BOUND + message(b"n") + message(b"C", texts("SET"))
        return out + READY


def settings(stamp: bytes) -> bytes:
    return result(b"1", b"1", b"on", stamp)


def iterations(count: int) -> Any:
    """SCRAM's first message from the server (RFC 5802): how often the password is to be hashed."""

    def login(s: socket.socket, f: Any) -> bytes:
        s.sendall(message(b"R", struct.pack(">i", 10) + b"SCRAM-SHA-256\0\0"))
        f.read(1)
        first = f.read(struct.unpack(">i", f.read(4))[0] - 4)
        nonce = first.split(b"r=")[1]
        return message(
            b"R", struct.pack(">i", 11) + b"r=" + nonce + b"more,s=" + base64.b64encode(b"salt" * 4) + b",i=%d" % count
        )

    return login


def many_settings(s: socket.socket, f: Any) -> Iterator[Any]:
    yield message(b"R", struct.pack(">i", 0))
    for i in range(10**9):
        yield b"".join(message(b"S", texts(f"setting{i}-{j}", "v" * 100)) for j in range(100))


def peak_mb(pid: int) -> int:
    with open(f"/proc/{pid}/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmHWM")) // 1024


def stands(what: str, server: Hostile, write: bool = False, outcomes: tuple[Any, ...] = ("failed",)) -> None:
    d = Driver({"PGPASSWORD": "secret", "PGSSLMODE": "disable"})
    d.open(f"postgres://luna@127.0.0.1:{server.port}/postgres?table=a.b#x")
    try:
        n = d.start_write(record("a", token=0), "", within=WITHIN) if write else d.start("read", within_ms=WITHIN)
        r = d.wait(n)
        text = r.get("err", {}).get("text", "")
        if not ok(r["outcome"] in outcomes, f"hostile: {what}: {r['outcome']}"):
            note(text)
        mb = peak_mb(d.process.pid)
        ok(mb < MOST_MB, f"hostile: {what}: without much memory ({mb} MB)")
    except (RuntimeError, OSError, StopIteration) as e:
        ok(False, f"hostile: {what}: {e}")
    d.process.kill()
    d.process.wait()
    server.listening.close()


def leaves() -> None:
    """An elector that is told to stop while its log-in is hashing: in peace, and at once."""
    server = Hostile(login=iterations(2**31 - 1))
    c = Candidate(
        "--lock",
        f"postgres://luna@127.0.0.1:{server.port}/postgres?table=a.b#x",
        "--",
        "true",
        command="exec",
        env={"PGPASSWORD": "secret", "PGSSLMODE": "disable"},
    )
    ok(c.wait("read_failed"), "hostile: an elector says that it cannot log in")
    c.kill(signal.SIGTERM)
    same(c.leave(), 128 + signal.SIGTERM, "hostile: and leaves in peace when it is told to")
    server.listening.close()


def before_login() -> None:
    leaves()
    stands("two billion rounds of hashing are asked for", Hostile(login=iterations(2**31 - 1)))
    stands("a notice of 2 GB", Hostile(login=lambda s, f: giant(b"N", 2**31 - 1)))
    stands("settings without end", Hostile(login=many_settings))


def lengths() -> None:
    stands(
        "a row of 1 GB",
        Hostile(
            answer=lambda stamp: chained(
                settings(stamp) + BOUND + columns(5), giant(b"D", 2**30, struct.pack(">hi", 5, 2**30 - 100))
            )
        ),
    )
    stands(
        "rows without end",
        Hostile(
            answer=lambda stamp: chained(
                settings(stamp) + BOUND + columns(5), for_ever(row(b"x" * 1000, b"", b"", b"", b"") * 50)
            )
        ),
    )
    stands("the greeting's rows have no end", Hostile(first=Endless(BOUND + columns(1), row(b"x" * 1000) * 50)))
    stands("notices without end", Hostile(answer=lambda stamp: for_ever(message(b"N", b"SNOTICE\0Mx\0\0") * 1000)))
    stands("answers without a question", Hostile(answer=lambda stamp: for_ever(READY * 1000)))


def chained(head: bytes, rest: Any) -> Iterator[Any]:
    yield head
    yield from rest


class Endless:
    """The same for each connection."""

    def __init__(self, head: Any, piece: Any) -> None:
        self.head, self.piece = head, piece

    def __iter__(self) -> Any:
        return chained(self.head, for_ever(self.piece))


def shapes() -> None:
    for kind, name in ((b"G", "to the server"), (b"H", "from the server"), (b"W", "both ways")):
        stands(f"a copy {name}", Hostile(answer=lambda stamp, kind=kind: BOUND + message(kind, b"\0\0\0") + READY))
    for write, outcome in ((False, "failed"), (True, "unknown")):
        for what, rest in (
            ("too few columns", result(b"{}")),
            ("no columns", result()),
            ("nothing", b""),
            ("a statement without rows", BOUND + message(b"n") + message(b"C", texts("SET"))),
            ("two rows", BOUND + columns(5) + row(b"", b"", b"", b"", b"") * 2 + message(b"C", texts("SELECT 2"))),
        ):
            stands(
                f"{what} for a {'write' if write else 'look'}",
                Hostile(answer=lambda stamp, rest=rest: settings(stamp) + rest + READY),
                write,
                (outcome,),
            )


before_login()
lengths()
shapes()
done()

#!/usr/bin/env -S PYTHONPATH=. python3
"""What can go wrong with a call of gRPC: what is said of a write is definite only where the server surely did not act
upon it, and the lock goes on. A scripted server passes calls on to a real etcd, and does to one what a case says."""

import sys
import time
from collections.abc import Callable
from typing import Any

from tests.lib import servers
from tests.lib.h2 import CONTINUATION, DATA, END_STREAM, HEADERS, Connection, H2Client, H2Server, block, frame, prefixed
from tests.lib.lock_cases import FOR
from tests.lib.lock_driver import NOMINATION, Driver, record
from tests.lib.processes import wait_for
from tests.lib.tap import at_once, done, note, ok, same

REFUSED_STREAM, INTERNAL_ERROR, ENHANCE_YOUR_CALM = 7, 2, 11
UNKNOWN, DEFINITE = ("unknown",), ("failed",)
Fault = Callable[["Faulty", Connection, int, str, bytes], Any]


class Faulty(H2Server):
    """fault: what is done with writes instead of passing them on; `times` of them."""

    def __init__(self, real: servers.Etcd, settings: dict[int, int] | None = None) -> None:
        self.real = H2Client(real.port)
        self.fault: Fault | None = None
        self.times = 0
        super().__init__(self.answered, settings)

    def answered(self, to: Connection, stream: int, path: str, message: bytes) -> None:
        if path.endswith("/Watch"):
            watched(to, stream, message)
        elif path.endswith("/Txn") and self.fault and self.times > 0:
            self.times -= 1
            self.fault(self, to, stream, path, message)
        else:
            to.answer(stream, *self.real.call(path, message))


def watched(to: Connection, stream: int, message: bytes) -> None:
    """A stream of notices on which nothing happens but progress (field 3 of a request)."""
    if to.asked[stream] == 1:
        to.begin(stream)
    if message[:1] == b"\x1a":
        to.say(stream, b"\x0a\x02\x18\x01\x10" + b"\xff" * 9 + b"\x01")
    else:
        to.say(stream, b"\x0a\x02\x18\x01\x18\x01")


def applied(then: Callable[[Connection, int, bytes], Any]) -> Fault:
    """The write is done; then its answer is hurt."""

    def act(s: Faulty, to: Connection, stream: int, path: str, message: bytes) -> None:
        said = s.real.call(path, message)[0]
        then(to, stream, said or b"")

    return act


def ignored(then: Callable[[Connection, int], Any]) -> Fault:
    def act(s: Faulty, to: Connection, stream: int, path: str, message: bytes) -> None:
        then(to, stream)

    return act


def go_on(s: Faulty, to: Connection, stream: int, path: str, message: bytes) -> None:
    """GOAWAY that counts this call, which is answered later."""
    to.go(stream)
    time.sleep(0.1)
    to.answer(stream, *s.real.call(path, message))


def half(to: Connection, stream: int, said: bytes) -> None:
    to.begin(stream)
    to.say(stream, said)
    to.close()


def cut_short(to: Connection, stream: int, said: bytes) -> None:
    to.begin(stream)
    to.raw(frame(DATA, 0, stream, prefixed(said)[:-1]))
    to.end(stream)


def twice(to: Connection, stream: int, said: bytes) -> None:
    to.begin(stream)
    to.say(stream, said)
    to.say(stream, said)
    to.end(stream)


def too_long(to: Connection, stream: int, said: bytes) -> None:
    to.begin(stream)
    to.raw(frame(DATA, 0, stream, b"\0\x01\0\0\0" + b"x" * 1000))


def wide(to: Connection, stream: int, said: bytes) -> None:
    to.begin(stream)
    to.raw(frame(DATA, 0, stream, prefixed(b"x" * 20000)))


def headers_without_end(to: Connection, stream: int, said: bytes) -> None:
    to.raw(frame(HEADERS, 0, stream, block({":status": "200"})))
    try:
        for _ in range(10_000):
            to.raw(frame(CONTINUATION, 0, stream, block({"x": "y" * 1000})))
    except OSError:
        pass


def http(status: str) -> Callable[[Connection, int], Any]:
    return lambda to, stream: to.begin(stream, status, "text/html", end=True)


def status(code: int, text: str = "etcdserver: something") -> Callable[[Connection, int, bytes], Any]:
    return lambda to, stream, said: to.answer(stream, None, code, text)


def no_number(to: Connection, stream: int, said: bytes) -> None:
    to.begin(stream)
    to.say(stream, said)
    to.raw(frame(HEADERS, 4 | END_STREAM, stream, block({"grpc-status": "fine"})))


def no_status(to: Connection, stream: int, said: bytes) -> None:
    to.begin(stream)
    to.raw(frame(DATA, END_STREAM, stream, prefixed(said)))


# A TxnResponse whose header has the revision -1, and that has succeeded.
NEGATIVE = b"\x0a\x0b\x18" + b"\xff" * 9 + b"\x01\x10\x01"
# What is done, so many times; what may be said of the write.
CASES: tuple[tuple[str, Fault, int, tuple[str, ...]], ...] = (
    ("GOAWAY that does not count the call: it is sent again", ignored(lambda to, n: to.go(n - 2)), 1, ("ok",)),
    ("GOAWAY that counts the call: its answer counts", go_on, 1, ("ok",)),
    ("a stream that is refused is begun again", ignored(lambda to, n: to.reset(n, REFUSED_STREAM)), 1, ("ok",)),
    ("refused each time", ignored(lambda to, n: to.reset(n, REFUSED_STREAM)), 9, DEFINITE),
    ("a stream that is reset", applied(lambda to, n, said: to.reset(n, INTERNAL_ERROR)), 1, UNKNOWN),
    ("a connection that ends before the answer", applied(lambda to, n, said: to.close()), 1, UNKNOWN),
    ("a connection that ends before the write is done", ignored(lambda to, n: to.close()), 1, ("ok", "unknown")),
    ("a connection that ends each time", ignored(lambda to, n: to.close()), 9, UNKNOWN),
    ("a connection that ends between answer and status", applied(half), 1, UNKNOWN),
    *((f"status {code} of a write that is done", applied(status(code)), 1, UNKNOWN)
      for code in (1, 2, 4, 6, 9, 10, 11, 13, 14, 15, 99)),
    ("status 14 of one that is not", ignored(lambda to, n: to.answer(n, None, 14, "no leader")), 1, UNKNOWN),
    ("status 3", ignored(lambda to, n: to.answer(n, None, 3, "etcdserver: request is too large")), 1, ("invalid",)),
    ("status 5", ignored(lambda to, n: to.answer(n, None, 5, "not found")), 1, DEFINITE),
    ("status 7", ignored(lambda to, n: to.answer(n, None, 7, "permission denied")), 1, ("refused",)),
    ("status 8 for too much at once", ignored(lambda to, n: to.answer(n, None, 8, "too many requests")), 1, DEFINITE),
    ("status 8 for space", applied(status(8, "etcdserver: mvcc: database space exceeded")), 1, UNKNOWN),
    ("status 12", ignored(lambda to, n: to.answer(n, None, 12, "unknown method")), 1, DEFINITE),
    ("a status that is no number", applied(no_number), 1, UNKNOWN),
    ("no status", applied(no_status), 1, UNKNOWN),
    ("no message", applied(lambda to, n, said: to.answer(n)), 1, UNKNOWN),
    ("an empty message", applied(lambda to, n, said: to.answer(n, b"")), 1, UNKNOWN),
    ("a message that is none of etcd's", applied(lambda to, n, said: to.answer(n, b"\xff" * 30)), 1, UNKNOWN),
    ("a message with a revision below zero", applied(lambda to, n, said: to.answer(n, NEGATIVE)), 1, UNKNOWN),
    ("half a message", applied(cut_short), 1, UNKNOWN),
    ("two messages", applied(twice), 1, UNKNOWN),
    ("a message of 16 MB", applied(too_long), 1, UNKNOWN),
    ("a frame that is too large", applied(wide), 1, UNKNOWN),
    ("headers without end", applied(headers_without_end), 1, UNKNOWN),
    ("a proxy's 503", ignored(http("503")), 1, UNKNOWN),
    ("a proxy's 403", ignored(http("403")), 1, DEFINITE),
    ("a page that is no gRPC", ignored(http("200")), 1, UNKNOWN),
)  # fmt: skip


def ends_of_calls(of: str = "", fields: dict[str, Any] | None = None) -> None:
    """of: what is written, if it is no renewal."""
    fields = fields or {}
    with servers.Etcd() as real:
        server = Faulty(real)
        d, truth = Driver(), Driver()
        for one, url in ((d, f"etcd://127.0.0.1:{server.port}/x"), (truth, real.url("x"))):
            if "nomination" in fields:
                one.open(url, "m")
                one.open_next(url, "m", "a")
            else:
                one.open(url)
        d.write(record("first", **fields), "")
        for case, fault, times, outcomes in CASES:
            what = of + case
            version = truth.read()["version"]
            rec = record("a", **fields)
            server.fault, server.times = fault, times
            w = d.write(rec, version, within=5000)
            server.fault = None
            there = truth.read()["record"]["write"] == rec["write"]
            text = w.get("err", {}).get("text", "")
            good = (
                w["outcome"] in outcomes
                and (w["outcome"] != "ok" or there)
                and (w["outcome"] not in DEFINITE or not there)
            )
            ok(
                good and w["calls"] == 1 and (text.isprintable() and bool(text) or w["outcome"] == "ok"),
                f"{what}: {w['outcome']}",
                f"{w}, there: {there}",
            )
            note(text)
            again = d.write(record("again", **fields), d.read()["version"])
            if again["outcome"] != "ok":
                ok(False, f"{what}: afterwards it works again", again)
        for one in (d, truth):
            one.end()
        server.close()


def ends_of_nominations() -> None:
    ends_of_calls("a next record: ", NOMINATION)


def ends_of_releases() -> None:
    ends_of_calls("a release for somebody: ", FOR)


def few_streams() -> None:
    with servers.Etcd() as real:
        server = Faulty(real, {3: 1})  # MAX_CONCURRENT_STREAMS
        d = Driver()
        for i in range(20):
            d.open(f"etcd://127.0.0.1:{server.port}/few/{i}", f"l{i}")
        asked = [(i, d.start_write(record("a"), "", f"l{i}")) for i in range(20)]
        same(
            [d.wait(op)["outcome"] for i, op in asked],
            ["ok"] * 20,
            "a server that answers one call at a time: 20 writes at once are done, each in its turn",
        )
        same(len(server.connections), 1, "a server that answers one call at a time: on one connection")
        d.end()
        server.close()


def pings() -> None:
    with servers.Etcd() as real:
        server = Faulty(real)
        d = Driver()
        d.open(f"etcd://127.0.0.1:{server.port}/x")
        d.read()
        d.do("watch")

        def sent() -> list[float]:
            return server.connections[0].pings

        ok(wait_for(lambda: len(sent()) >= 3), "PING: a connection with a watch is asked whether it is there")
        gaps = [b - a for a, b in zip(sent(), sent()[1:])]
        ok(min(gaps) >= 5, f"PING: not more often than etcd allows, which is once in 5 s ({gaps})")
        server.connections[0].go(2**31 - 1, ENHANCE_YOUR_CALM, b"too_many_pings")
        ok(
            wait_for(lambda: len(server.connections) > 1 and any(server.connections[-1].asked.values())),
            "PING: where a server calls that too often, another connection is made",
        )
        same(d.read()["outcome"], "absent", "PING: on which it goes on")
        server.answers_pings = False
        count = len(server.connections)
        ok(
            wait_for(lambda: len(server.connections) > count),
            "PING: a connection on which none is answered is replaced",
        )
        same(d.read()["outcome"], "absent", "PING: and that is used")
        d.end()
        server.close()


jobs: tuple[Callable[[], None], ...] = (ends_of_calls, ends_of_nominations, ends_of_releases, few_streams, pings)
at_once(*[job for job in jobs if not sys.argv[1:] or job.__name__ in sys.argv[1:]])
done()

#!/usr/bin/env -S PYTHONPATH=. python3
"""What listens where a Redis server should may be anything: whatever it sends, the elector stays small, and its other
election keeps its term."""

import itertools
import json
import os
import socket
import sys
import threading
import time
from typing import Any

from tests.lib.candidates import Candidate, stop_everyone, timing
from tests.lib.processes import scratch, wait_for
from tests.lib.tap import at_once, done, ok, same

MOST_KB = 64 * 1024
FLOOD = 200 * 1024 * 1024
TWO = """return {
  { name = "healthy", lock = "%s", on_leading = function() sleep(1000) end },
  { name = "hurt", lock = "redis://127.0.0.1:%d/x", on_leading = function() sleep(1000) end } }"""
PATIENT = timing("9s", renew="6s", retry="1s")


class Attacker:
    """Each connection is served by `serve(socket)`."""

    def __init__(self, serve: Any) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port, self.serve, self.served = self.listener.getsockname()[1], serve, 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                s, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._play, args=(s,), daemon=True).start()

    def _play(self, s: socket.socket) -> None:
        with s:
            try:
                self.serve(s)
                self.served += 1
                while s.recv(65536):
                    pass
            except OSError:
                self.served += 1


def flood(beginning: bytes, piece: bytes) -> Any:
    """What never ends, but for this machine's sake."""

    def serve(s: Any) -> None:
        s.sendall(beginning)
        many = piece * (65536 // len(piece) + 1)
        for _ in range(FLOOD // len(many)):
            s.sendall(many)

    return serve


def bulk(text: bytes) -> bytes:
    return b"$%d\r\n%s\r\n" % (len(text), text)


def speaking(answer: Any) -> Any:
    """Greets as Redis does; answer(words): to a script."""

    def serve(s: Any) -> None:
        f = s.makefile("rb")
        while line := f.readline():
            words = []
            for _ in range(int(line[1:])):
                words.append(f.read(int(f.readline()[1:]) + 2)[:-2])
            what = words[0].upper()
            s.sendall(
                bulk(words[1])
                if what == b"ECHO"
                else b"*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n"
                if what == b"ROLE"
                else bulk(b"%040d" % len(words[2]))
                if what == b"SCRIPT"
                else answer(words)
                if what == b"EVALSHA"
                else b"+OK\r\n"
            )

    return serve


DIGEST = bulk(b"a" * 40)
NONSENSE = [
    b"*5\r\n$5\r\nfound\r\n:5\r\n" + DIGEST + bulk(b"1") + bulk(b""),
    b"*5\r\n$5\r\nfound\r\n*1\r\n+x\r\n" + DIGEST + bulk(b"1") + bulk(b""),
    b"*5\r\n$5\r\nfound\r\n$-1\r\n" + DIGEST + bulk(b"1") + bulk(b""),
    b"*5\r\n$5\r\nfound\r\n$2\r\n{}\r\n" + bulk(b"z" * 9) + bulk(b"1") + bulk(b""),
    b"*5\r\n$5\r\nfound\r\n$2\r\n{}\r\n" + DIGEST + bulk(b"9" * 30) + bulk(b""),
    b"*5\r\n$5\r\nfound\r\n$2\r\n{}\r\n" + DIGEST + bulk(b"1") + bulk(b"m" * 64),
    b"*2\r\n$5\r\nlarge\r\n:-3\r\n",
    b"*2\r\n$5\r\nlarge\r\n+many\r\n",
    b"*1\r\n:3\r\n",
    b":7\r\n",
    b"$-1\r\n",
    b"*-1\r\n",
    b"*0\r\n",
    b"+absent\r\n",
]


def is_read(words: list[bytes]) -> bool:
    return len(words[5]) == 6 and words[5].isdigit()


def nonsense() -> Any:
    left = itertools.cycle(NONSENSE)
    return speaking(lambda words: next(left))


def endless_doubt() -> Any:
    """The product of what it says with a thousand is no number."""
    return speaking(
        lambda words: b"*1\r\n" + bulk(b"absent")
        if is_read(words)
        else b"*3\r\n" + bulk(b"doubt") + bulk(b"m.1") + bulk(b"9223372036854775807")
    )


def kb(pid: int, what: str) -> int:
    with open(f"/proc/{pid}/status") as f:
        return int(next(line for line in f if line.startswith(what + ":")).split()[1])


def attacked(name: str, serve: Any, said: str, rounds: int = 3) -> Candidate:
    home = scratch()
    them = Attacker(serve)
    c = Candidate("-e", TWO % (os.path.join(home, "lock"), them.port), options=PATIENT, cwd=home)
    ok(c.wait("became_leader"), f"{name}: one election leads")

    def complained() -> int:
        return sum(len(c.all(e, said)) for e in ("read_failed", "acquire_failed"))

    if not ok(wait_for(lambda: complained() >= 1 and them.served >= rounds), f"{name}: the other is told: {said}"):
        c.log()
    held = json.load(open(os.path.join(home, "lock")))
    time.sleep(1)
    ok(
        wait_for(lambda: json.load(open(os.path.join(home, "lock")))["write"] != held["write"]),
        f"{name}: the first renews",
    )
    same((len(c.all("became_leader")), len(c.all("stopped_leading"))), (1, 0), f"{name}: and has kept its term")
    most = kb(c.pid, "VmHWM")
    ok(most < MOST_KB, f"{name}: the elector never had more than {MOST_KB // 1024} MB ({most // 1024})")
    same(c.stop(), 0, f"{name}: it leaves in peace")
    them.listener.close()
    return c


def announced() -> None:
    """Thirteen bytes, before any login."""
    attacked("announced", lambda s: s.sendall(b"*2147483647\r\n"), "larger than anything asked for")


def many() -> None:
    attacked("many", flood(b"*4000\r\n", bulk(b"x" * 65536)), "larger than anything asked for")


def nested() -> None:
    attacked("nested", flood(b"*1000\r\n", b"*1000\r\n" + b"$1\r\nx\r\n" * 1000), "larger than anything asked for")


def line() -> None:
    attacked("line", flood(b"+", b"x"), "larger than anything asked for")


def garbled() -> None:
    attacked("garbled", nonsense(), "makes no sense", rounds=0)


def doubted() -> None:
    c = attacked("doubted", endless_doubt(), "nobody is elected for another", rounds=0)
    left = [
        float(e["message"].split("for another ")[1].split()[0])
        for e in c.all("acquire_failed", "nobody is elected for another")
    ]
    ok(min(left) > 1e6, "doubted: for as long as it said")


only = [globals()[n] for n in sys.argv[1:]]
try:
    at_once(*(only or (announced, nested, garbled)))
    if not only:
        at_once(many, line, doubted)
finally:
    stop_everyone()
done()

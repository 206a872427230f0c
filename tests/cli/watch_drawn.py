#!/usr/bin/env -S PYTHONPATH=. python3
"""status --watch on a terminal: who led when, drawn in place, as wide as the window; several locks side by side; and
the terminal as it was, at the end."""

import atexit
import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import threading
import time
from typing import Any

from tests.lib.candidates import Candidate, stop_everyone
from tests.lib.lock_driver import record
from tests.lib.processes import LUNARCH, scratch, wait_for
from tests.lib.tap import done, note, ok, same

CLEAN = {k: v for k, v in os.environ.items() if not k.startswith(("LUNARCH_", "NO_COLOR"))}
ENTER, LEAVE = b"\x1b[?1049h", b"\x1b[?1049l"


class Terminal:
    """`lunarch status --watch` on a terminal of this size. what: a lock, or options and words."""

    def __init__(self, what: str | list[str], columns: int, lines: int = 24, **env: str) -> None:
        self.master, slave = pty.openpty()
        self.resize(columns, lines)
        self.before = termios.tcgetattr(slave)
        self.slave = slave
        self.read = b""
        self.process = subprocess.Popen(
            [LUNARCH, "status", "--watch", *(["--lock", what] if isinstance(what, str) else what)],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**CLEAN, "TERM": "xterm", **env},
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        while True:
            try:
                self.read += os.read(self.master, 65536)
            except OSError:
                return

    def resize(self, columns: int, lines: int = 24) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def frame(self) -> list[str]:
        """The last whole one, as lines without colours."""
        frames = self.read.split(b"\x1b[H")
        whole = [f for f in frames if f.endswith(b"\x1b[J") or b"\x1b[J" in f]
        text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", whole[-1].decode()) if whole else ""
        return [line.rstrip("\r") for line in text.split("\n")]

    def key(self, byte: bytes) -> None:
        os.write(self.master, byte)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.master)
        os.close(self.slave)


def enter(lock: str, name: str) -> Any:
    c = Candidate("-e", "sleep(1e6)", "--lock", lock, "--identity", name, name=name)
    return c


def has(t: Terminal, *patterns: str) -> bool:
    """A frame with a line for each comes."""
    found = wait_for(lambda: all(any(re.search(p, line) for line in t.frame()) for p in patterns))
    if not found:
        note("\n".join(t.frame()))
    return bool(found)


def main() -> None:
    atexit.register(stop_everyone)
    lock = "file:" + os.path.join(scratch(), "job")
    t = Terminal(lock, 80)
    ok(has(t, "nobody leads: there is no record"), "before anybody leads, that is said")
    a = enter(lock, "ann")
    ok(has(t, "^ann leads", r"^ann +\|=+\|$"), "a leader is drawn when it leads")
    b = enter(lock, "bob")
    b.wait("new_leader")
    a.stop()
    ok(has(t, "^bob leads", r"^ann +\| *=*s *=*\|$", r"^bob +\| *=+\|$"), "and the next one in a line of its own")
    same({len(line) <= 80 for line in t.frame()}, {True}, "no line is longer than the window")
    same(max(len(line) for line in t.frame()), 80, "and a bar is as wide")
    ok(b"\x1b[32m" in t.read, "it has colours")
    ok(has(t, r"^ann .* shutdown"), "the terms are listed")
    t.resize(60)
    ok(wait_for(lambda: max(len(line) for line in t.frame()) == 60), "in a narrower window it is drawn narrower")
    t.resize(200)
    ok(wait_for(lambda: any(line.endswith("|") and len(line) == 200 for line in t.frame())), "in a wider one, wider")
    ok(LEAVE not in t.read and t.read.count(ENTER) == 1, "the other screen is entered once")
    t.key(b"\x1a")
    ok(wait_for(lambda: t.read.endswith(LEAVE)), "Ctrl-Z gives the terminal back")
    os.kill(t.process.pid, signal.SIGCONT)
    ok(
        wait_for(lambda: t.read.rfind(b"\x1b[J") > t.read.rfind(ENTER) > t.read.rfind(LEAVE)),
        "and it goes on after that",
    )
    t.key(b"\x03")
    same(t.process.wait(60), -signal.SIGINT, "Ctrl-C ends it")
    ok(wait_for(lambda: t.read.endswith(b"\x1b[?25h" + LEAVE)), "the cursor is back, and so is what stood there before")
    same(termios.tcgetattr(t.slave), t.before, "and the terminal's settings are as they were")
    t.end()

    t = Terminal(lock, 80, NO_COLOR="1")
    ok(has(t, "^bob leads", r"^bob +\| *=+\|$"), "with NO_COLOR it draws, too")
    ok(b"\x1b[32m" not in t.read, "without colours")
    t.end()
    t = Terminal(lock, 80, TERM="dumb")
    ok(wait_for(lambda: b"bob leads" in t.read), "a terminal that cannot be drawn on gets a line for each change")
    ok(b"\x1b" not in t.read, "and no sequences")
    t.end()
    p = subprocess.Popen(
        [LUNARCH, "status", "--watch", "--lock", lock], stdout=subprocess.PIPE, env={**CLEAN, "TERM": "xterm"}
    )
    assert p.stdout
    line = p.stdout.readline()
    ok(b"bob leads" in line and b"\x1b" not in line, "and so does a pipe")
    p.kill()
    p.wait()


HOST = "worker-pool-a.example.org_503e0e3f-8581-4e34-9e4f-545286b677"


def ago(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime(time.time() - seconds))


def past(*terms: tuple[str, float, float, str]) -> list[dict[str, Any]]:
    return [
        {"identity": HOST + who, "token": i + 1, "from": ago(begin), "to": ago(end), "reason": reason}
        for i, (who, begin, end, reason) in enumerate(terms)
    ]


def several() -> None:
    """Locks side by side: records as dead leaders left them, beside a leader that lives."""
    room = scratch()
    lock = {name: os.path.join(room, name) for name in ("api", "idle", "nightly", "wrong", "live")}
    terms = past(("a1", 3000, 2000, "shutdown"), ("b2", 2000, 1000, "unknown"))
    records = {
        "nightly": record(HOST + "c3", acquireTime=ago(300), term=3, token=3, pastTerms=terms),
        "idle": record("", state="released", term=3, token=3, pastTerms=past(("a1", 1500, 100, "resigned"))),
    }
    for name, value in records.items():
        with open(lock[name], "w") as f:
            json.dump(value, f)
    with open(lock["wrong"], "w") as f:
        f.write("{nothing}")
    a = enter(lock["live"], HOST + "a1")
    a.wait("became_leader")
    t = Terminal([word for path in lock.values() for word in ("--lock", path)], 100)
    ok(has(t, r"/ +5 locks$"), "several locks are drawn, and what their URLs begin with is said once")
    ok(has(t, r"^nightly \|A+B+x +C+\| C worker-.*c3, 5m"), "each has a bar, and each of its leaders a letter")
    ok(has(t, r"^idle +\| +A+ +\| nobody leads$"), "which is the same in another lock")
    ok(has(t, r"^live +\| +A+\| A worker-.*a1, "), "a leader that lives is there")
    ok(has(t, r"^api +\| +\| nobody: there is no record"), "a lock without a record is there")
    ok(has(t, r"^wrong +\| +\| .*lunarch"), "and one that cannot be read, with the reason")
    ok(
        has(t, r"^A worker\S*a1 +B worker\S*b2 +C worker\S*c3"),
        "whose letter it is stands below, and long names differ",
    )
    ok(b"\x1b[32m" in t.read and b"\x1b[36m" in t.read, "they differ in their colours, too")
    same({len(line) <= 100 for line in t.frame()}, {True}, "no line is longer than the window")
    a.stop()
    ok(has(t, r"^live +\| +A* *\| nobody leads$"), "when a leader ends, its line says so")
    t.resize(40, 9)
    ok(has(t, r"^2 more not shown: nobody leads in 1, 1 c"), "in a smaller window it is said how many are not shown")
    ok(wait_for(lambda: max(map(len, t.frame())) <= 40 and len(t.frame()) <= 9), "and all fits into it")
    t.resize(100, 24)
    ok(has(t, r"^live ", "^nightly "), "in a larger one all are there again")
    t.key(b"\x03")
    same(t.process.wait(60), -signal.SIGINT, "Ctrl-C ends it")
    t.end()

    t = Terminal(["--prefix", room + "/"], 80)
    ok(has(t, r"^nightly \|", "^idle", "^live"), "--prefix draws all elections of a place")
    ok(not any("wrong" in line for line in t.frame()), "and nothing that is no election")
    b = enter(os.path.join(room, "new"), "bob")
    b.wait("became_leader")
    ok(has(t, r"^new +\| +\w+\| \w bob"), "also one that comes later")
    t.end()

    script = os.path.join(room, "two.lua")
    with open(script, "w") as f:
        f.write(
            f"""local on_leading = function() end
return {{ {{ name = "one", lock = "{lock["nightly"]}", on_leading = on_leading }},
  {{ name = "two", lock = "{lock["idle"]}", on_leading = on_leading }} }}"""
        )
    t = Terminal([script], 80)
    ok(has(t, r"^nightly \|", r"^idle +\|"), "all elections of a script are drawn")
    t.end()

    command = [LUNARCH, "status", "--watch", "--json", "--lock", lock["nightly"], "--lock", lock["live"]]
    p = subprocess.Popen(command, stdout=subprocess.PIPE, env=CLEAN)
    assert p.stdout
    first = [json.loads(p.stdout.readline()) for _ in range(2)]
    same([os.path.basename(x["lock"]) for x in first], ["nightly", "live"], "with --json each is an object")
    p.kill()
    p.wait()
    r = subprocess.run([*command[:2], *command[4:]], capture_output=True, text=True, env=CLEAN)
    ok(r.returncode == 2 and "--watch" in r.stderr, "several locks without --watch are an error, which says what to do")


main()
several()
done()

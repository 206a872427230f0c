#!/usr/bin/env python3
"""status --watch on a terminal: who led when, drawn in place, as wide as the window; and the terminal as it was, at the
end."""

import atexit
import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
from typing import Any

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from candidates import Candidate, stop_everyone
from processes import LUNARCH, scratch, wait_for
from tap import done, note, ok, same

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


main()
done()

"""Candidates: running `lunarch run` (or exec), whose log is read as it comes; and the settings that tests give them.

Not what they compete for: stores.py and servers.py start that. Used by all tests with a real election."""

import fcntl
import json
import os
import re
import select
import signal
import subprocess
import termios
import threading
import time
from collections.abc import Mapping, Sequence
from typing import IO, Any

from tests.lib.processes import LUNARCH, PATIENCE, SLOWNESS, children, runs_lock_file, wait_for
from tests.lib.tap import note


def slowed(time_: str) -> str:
    """A time with its unit, as long as it has to be on this machine."""
    return time_ if SLOWNESS == 1 else re.sub(r"^[\d.]+", lambda number: f"{float(number[0]) * SLOWNESS:g}", time_)


def timing(lease: str, **others: str) -> list[str]:
    """Options for an election's times: lease, and of renew, retry, stop_grace, kill and drift those that are given."""
    names = {
        "renew": "--renew-deadline",
        "retry": "--retry-period",
        "stop_grace": "--stop-grace",
        "kill": "--kill-allowance",
        "drift": "--drift-allowance",
    }
    times = {"--lease-duration": lease} | {names[key]: value for key, value in others.items()}
    return [part for option, value in times.items() for part in (option, slowed(value))]


# A machine that stands still for less than the renew deadline, as one may that is shared, costs nobody the lease: 5 s.
FAST = timing("6s", renew="5s", retry="400ms", stop_grace="500ms", kill="250ms", drift="250ms")
# For tests in which a machine that is slow for two seconds is not to cost anybody the lease.
STEADY = timing("6s")
# For terms whose processes are watched: between the kill and the next leader there are 1.5 s, which a machine may be
# late by.
WATCHED = timing("7s", renew="5s", retry="300ms", stop_grace="500ms", kill="750ms", drift="750ms")


class Logged:
    """A process whose log is lines of JSON, each with an "event"."""

    def __init__(self, process: "subprocess.Popen[str]", log: IO[str]) -> None:
        self.process, self.pid = process, process.pid
        self.events: list[dict[str, Any]] = []
        self.news = threading.Condition()
        self.closed, self.read_from = False, log.fileno()
        threading.Thread(target=self._read, args=(log,), daemon=True).start()

    def _read(self, log: IO[str]) -> None:
        """Takes what there is under the lock, so that who holds it knows what is still to come (leave)."""
        ready, rest = select.poll(), b""
        ready.register(log, select.POLLIN)
        with log:
            while not self.closed:
                ready.poll()
                with self.news:
                    chunk = os.read(log.fileno(), 1 << 16)
                    *lines, rest = (rest + chunk).split(b"\n")
                    self.closed = not chunk
                    for line in lines + [rest] * (self.closed and bool(rest)):
                        self._take(line)
                    self.news.notify_all()

    def _take(self, line: bytes) -> None:
        try:
            event = json.loads(line)
        except ValueError:
            event = None
        if not isinstance(event, dict):
            event = {"event": "unparsed", "message": line.decode(errors="replace").rstrip()}
        self.events.append({**event, "seen": time.monotonic()})

    def all(self, event: str, text: str = "") -> list[dict[str, Any]]:
        return [e for e in list(self.events) if e.get("event") == event and text in e.get("message", "")]

    def wait(self, event: str, text: str = "", count: int = 1, patience: float = PATIENCE) -> dict[str, Any] | None:
        """The so-many-th such event, or None if it does not come."""
        with self.news:
            self.news.wait_for(lambda: self.closed or len(self.all(event, text)) >= count, patience)
        found = self.all(event, text)
        return found[count - 1] if len(found) >= count else None

    def event(self, event: str, text: str = "", count: int = 1) -> dict[str, Any]:
        """The so-many-th such event; shows the log and raises if it does not come."""
        found = self.wait(event, text, count)
        if not found:
            self.log()
            raise RuntimeError(f"no event {event!r} {text!r}")
        return found

    def log(self) -> None:
        for e in self.events[-25:]:
            note(f"  {self.pid}: {e.get('event')} {e.get('term', '')} {e.get('message', '')}")

    def kill(self, sig: int = signal.SIGKILL, pid: int | None = None) -> None:
        """pid: another process, as one of its own. What has ended is let be: its pid may be another's."""
        if pid is None and self.process.poll() is not None:
            return
        try:
            os.kill(pid or self.pid, sig)
        except ProcessLookupError:
            pass

    def leave(self, patience: float = PATIENCE) -> int | None:
        """Waits for its end; its status, or None if it does not end. All that it has said is known then."""
        try:
            status = self.process.wait(patience)
        except subprocess.TimeoutExpired:
            return None
        wait_for(self._is_read)
        return status

    def _is_read(self) -> bool:
        """What it may have left behind can hold its log open, so that is not always closed."""
        with self.news:
            return self.closed or fcntl.ioctl(self.read_from, termios.FIONREAD, bytes(4)) == bytes(4)

    def ask_to_stop(self, sig: int = signal.SIGTERM) -> None:
        """Whatever state it is in."""
        self.kill(signal.SIGCONT)
        self.kill(sig)

    def stop(self, sig: int = signal.SIGTERM, patience: float = PATIENCE) -> int | None:
        """Its status; None: it did not end of itself, and has been killed."""
        self.ask_to_stop(sig)
        status = self.leave(patience)
        if status is None:
            self.kill()
            self.leave(patience)
        return status


class Candidate(Logged):
    everyone: list["Candidate"] = []

    def __init__(
        self,
        *args: str,
        command: str = "run",
        program: str = LUNARCH,
        env: Mapping[str, str] | None = None,
        stdin: Any = subprocess.DEVNULL,
        stdout: Any = subprocess.DEVNULL,
        options: Sequence[str] = FAST,
        prefix: Sequence[str] = (),
        name: str = "?",
        **kw: Any,
    ) -> None:
        """prefix: a command line that executes the rest of it in its own place. name: for the test's own use."""
        self.name = name
        process = subprocess.Popen(
            [*prefix, program, command, "--log-format", "json", *options, *args],
            stdin=stdin,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env={**os.environ, **(env or {})},
            **kw,
        )
        assert process.stderr
        super().__init__(process, process.stderr)
        Candidate.everyone.append(self)

    def said(self, text: str) -> list[dict[str, Any]]:
        return self.all("print", text)

    def complaints(self, about: str = "") -> list[str]:
        """What it has said does not work, for this reason."""
        return [
            e["message"] for event in ("read_failed", "acquire_failed", "renew_failed") for e in self.all(event, about)
        ]

    def guard(self) -> int:
        """The newest: while a reload's old worker leaves there are two."""
        return wait_for(lambda: [p for p in children(self.pid) if not runs_lock_file(p)])[-1]

    def worker(self) -> int:
        return wait_for(lambda: children(self.guard()))[0]


def stop_everyone() -> None:
    """All are asked first, so that they end side by side."""
    for c in Candidate.everyone:
        c.ask_to_stop()
    for c in Candidate.everyone:
        if c.leave(10) is None:
            c.kill()
            c.leave(10)

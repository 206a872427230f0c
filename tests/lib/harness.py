"""What the system tests share: TAP, processes that are stopped by pid, JSON logs, and waiting for events, never for time."""

import atexit
import datetime
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LUNARCH = os.environ.get("LUNARCH", os.path.join(ROOT, "build", "lunarch"))
PATIENCE = 60  # seconds; generous on purpose

_count = _failed = 0
_speaking = threading.RLock()  # scenarios may run side by side


def _say(line):
    """In one piece: a line of another thread in the middle of it would hide a sentence from prove."""
    with _speaking:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def ok(good, what):
    global _count, _failed
    with _speaking:
        _count += 1
        _failed += not good
        _say(f"{'ok' if good else 'not ok'} {_count} - {what}")
    return bool(good)


def same(got, want, what):
    with _speaking:
        good = ok(got == want, what)
        if not good:
            _say(f"# got {got!r}, wanted {want!r}")
        return good


def note(text):
    for line in str(text).splitlines():
        _say(f"# {line}")


def skip(what, why):
    global _count
    with _speaking:
        _count += 1
        _say(f"ok {_count} - {what} # SKIP {why}")


def done():
    _say(f"1..{_count}")
    sys.exit(_failed > 0)


def wait_for(predicate, patience=PATIENCE):
    end = time.monotonic() + patience
    while time.monotonic() < end:
        value = predicate()
        if value:
            return value
        time.sleep(0.005)
    return predicate()


def moment(text):
    """A record's time, in seconds since the epoch."""
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def scratch():
    """A directory of this test's own, in memory where there is such a file system; gone when the test ends."""
    path = tempfile.mkdtemp(prefix="lunarch-test-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
    atexit.register(_remove, path, os.getpid())
    return path


def _remove(path, owner):
    if os.getpid() == owner:
        shutil.rmtree(path, ignore_errors=True)


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def marked(marker):
    """Pids of the living processes whose environment has this entry."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as f:
                if marker.encode() in f.read().split(b"\0") and alive(pid):
                    found.append(int(pid))
        except OSError:
            pass
    return found


def children(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as f:
            return [int(p) for p in f.read().split()]
    except OSError:
        return []


FAST = [
    "--lease-duration",
    "3s",
    "--renew-deadline",
    "2s",
    "--retry-period",
    "400ms",
    "--stop-grace",
    "500ms",
    "--kill-allowance",
    "250ms",
    "--drift-allowance",
    "250ms",
]
# For tests in which a machine that is slow for two seconds is not to cost anybody the lease.
STEADY = ["--lease-duration", "6s"]


class Candidate:
    """A running `lunarch run` (or exec) whose JSON log is read as it comes."""

    everyone = []

    def __init__(
        self,
        *args,
        command="run",
        env=None,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        options=FAST,
        prefix=(),
        **kw,
    ):
        """prefix: a command line that executes the rest of it in its own place."""
        self.events, self.closed = [], False
        self.process = subprocess.Popen(
            [*prefix, LUNARCH, command, "--log-format", "json", *options, *args],
            stdin=stdin,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env={**os.environ, **(env or {})},
            **kw,
        )
        self.pid = self.process.pid
        threading.Thread(target=self._read, daemon=True).start()
        Candidate.everyone.append(self)

    def _read(self):
        for line in self.process.stderr:
            try:
                event = json.loads(line)
            except ValueError:
                event = {"event": "unparsed", "message": line.rstrip()}
            event["seen"] = time.monotonic()
            self.events.append(event)
        self.closed = True

    def all(self, event, text=""):
        return [e for e in list(self.events) if e.get("event") == event and text in e.get("message", "")]

    def said(self, text):
        return self.all("print", text)

    def complaints(self, about=""):
        """What it has said does not work, for this reason."""
        return [
            e["message"] for event in ("read_failed", "acquire_failed", "renew_failed") for e in self.all(event, about)
        ]

    def wait(self, event, text="", count=1, patience=PATIENCE):
        wait_for(lambda: len(self.all(event, text)) >= count, patience)
        found = self.all(event, text)
        return found[count - 1] if len(found) >= count else None

    def guard(self):
        """The newest: while a reload's old worker leaves there are two."""
        return wait_for(lambda: children(self.pid))[-1]

    def worker(self):
        return wait_for(lambda: children(self.guard()))[0]

    def kill(self, sig, pid=None):
        try:
            os.kill(pid or self.pid, sig)
        except ProcessLookupError:
            pass

    def leave(self, patience=PATIENCE):
        try:
            return self.process.wait(patience)
        except subprocess.TimeoutExpired:
            return None

    def log(self):
        for e in self.events[-25:]:
            note(f"  {self.pid}: {e.get('event')} {e.get('term', '')} {e.get('message', '')}")


def stop_everyone():
    for c in Candidate.everyone:
        if c.process.poll() is None:
            c.kill(signal.SIGCONT)
            c.kill(signal.SIGTERM)
    for c in Candidate.everyone:
        if c.leave(10) is None:
            c.kill(signal.SIGKILL)
            c.leave(10)


def at_once(*jobs):
    """Runs functions side by side; their sentences may come in any order. An exception in one is a failure."""

    def guarded(job):
        try:
            job()
        except Exception as e:  # reported as a sentence, or prove would see a plan that fits
            ok(False, f"{job.__name__}: {type(e).__name__}: {e}")

    threads = [threading.Thread(target=guarded, args=(j,)) for j in jobs]
    for t in threads:
        t.start()
    for t in threads:
        t.join()

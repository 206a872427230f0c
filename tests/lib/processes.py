"""Where the program under test is, waiting for events (never for time), directories that vanish, and what /proc says of
processes.

Not how anything is started: candidates.py and servers.py do that. Used by all of tests/lib and by most tests."""

import atexit
import datetime
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from types import TracebackType
from typing import IO, AnyStr, TypeVar

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LUNARCH = os.environ.get("LUNARCH", os.path.join(ROOT, "build", "lunarch"))
CACHE = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "lunarch-tests")
# How many times as long all takes here as on the machine of the check; a machine that is emulated says so (kernel.py).
# An election's times (candidates.py) and what a test waits for at most are so many times as long, and nothing else is.
SLOWNESS = float(os.environ.get("SLOWNESS", "1"))
PATIENCE = 60.0 * SLOWNESS  # seconds; generous on purpose

# Under nohup(1), or in a shell script's background, these are ignored, and lunarch would go on ignoring them. A program
# that is started gets the default for a signal that has a handler here.
for _signal in (signal.SIGHUP, signal.SIGINT):
    if signal.getsignal(_signal) == signal.SIG_IGN:
        signal.signal(_signal, lambda *_: None)

T = TypeVar("T")


def _unbuilt(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """A test that is run before what it runs was built says what to do."""
    path = getattr(error, "filename", None)
    if isinstance(error, FileNotFoundError) and path and str(path).startswith(os.path.dirname(LUNARCH) + "/"):
        name = os.path.relpath(path, ROOT)
        print(f"{name} is missing: `make{'' if path == LUNARCH else ' ' + name}` builds it", file=sys.stderr)
    else:
        sys.__excepthook__(kind, error, trace)


sys.excepthook = _unbuilt


def wait_for(predicate: Callable[[], T], patience: float = PATIENCE) -> T:
    """What the predicate returns, soon after that is true; after so many seconds, whatever it returns then. It is asked
    ever more seldom, since what it asks has to answer, beside other tests: who has waited for long can wait for a
    twentieth more."""
    began = time.monotonic()
    while (waited := time.monotonic() - began) < patience:
        value = predicate()
        if value:
            return value
        time.sleep(min(max(0.005, waited / 20), 0.05))
    return predicate()


def piped(stream: IO[AnyStr] | None) -> IO[AnyStr]:
    """A process's stream, which was started with a pipe there."""
    assert stream
    return stream


def moment(text: str) -> float:
    """A record's time, in seconds since the epoch."""
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def new_directory(prefix: str = "lunarch-test-") -> str:
    """A new one, in memory where there is such a file system. Who asks removes it."""
    return tempfile.mkdtemp(prefix=prefix, dir="/dev/shm" if os.path.isdir("/dev/shm") else None)


def scratch(on_disk: bool = False) -> str:
    """A directory of this test's own, gone when the test ends."""
    path = tempfile.mkdtemp(prefix="lunarch-test-", dir="/var/tmp") if on_disk else new_directory()
    atexit.register(_remove, path, os.getpid())
    return path


def _remove(path: str, owner: int) -> None:
    if os.getpid() == owner:
        shutil.rmtree(path, ignore_errors=True)


def state_of(pid: int, thread: int | str | None = None) -> str:
    """The letter of proc_pid_stat(5), of its main thread by default; X: there is no such process."""
    try:
        with open(f"/proc/{pid}/task/{thread or pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0]
    except OSError:
        return "X"


def parent(pid: int | str) -> int:
    """Raises OSError where there is no such process."""
    with open(f"/proc/{pid}/stat") as f:
        return int(f.read().rsplit(")", 1)[1].split()[1])


def alive(pid: int) -> bool:
    return state_of(pid) not in "ZX"


def can_act(pid: int) -> bool:
    """Whether it lives and has memory. What is ending gives that back before its files (do_exit in the kernel), and
    runs no instruction of its own from then on, though its state is R for a while where much is to be freed."""
    try:
        with open(f"/proc/{pid}/status") as f:
            return alive(pid) and "\nVmSize:" in f.read()
    except OSError:
        return False


def stands_still(pid: int) -> bool:
    """Whether none of its threads runs: a busy machine takes its time to stop them, and one could still act."""
    try:
        return all(state_of(pid, thread) in "tTXZ" for thread in os.listdir(f"/proc/{pid}/task"))
    except OSError:
        return True


def waited() -> float | None:
    """Seconds since this machine began in which something waited for a processor, memory or a disk (proc_pressure,
    PSI); where two waited for different things, both count. None: this kernel does not tell."""
    total = 0
    try:
        for what in ("cpu", "memory", "io"):
            with open(f"/proc/pressure/{what}") as f:
                total += int(f.readline().rsplit("total=", 1)[1])
    except OSError:
        return None
    return total / 1e6


def marked(marker: str) -> list[int]:
    """Pids of the living processes whose environment has this entry."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as f:
                if marker.encode() in f.read().split(b"\0") and alive(int(pid)):
                    found.append(int(pid))
        except OSError:
            pass
    return found


def runs_lock_file(pid: int) -> bool:
    """Whether it is the driver of a lock in Lua."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as f:
            line = f.read()
    except OSError:
        return False
    return line.startswith((b"lunarch: lock ", b"lunarch\0-x\0driver\0"))


FIRST_PID_NAMESPACE = 0xEFFFFFFC  # PROC_PID_INIT_INO, include/linux/proc_ns.h: the machine's own


def socket_name(pid: int, namespace: int = 0) -> str:
    """An elector's control socket: its PID, as it sees that itself, and in a container its namespace, too."""
    namespace = namespace or os.stat("/proc/self/ns/pid").st_ino
    return f"{pid}.sock" if namespace == FIRST_PID_NAMESPACE else f"{pid}-{namespace}.sock"


def children(pid: int) -> list[int]:
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as f:
            return [int(p) for p in f.read().split()]
    except OSError:
        return []

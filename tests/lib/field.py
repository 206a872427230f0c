"""What the fault tests share: candidates whose terms hold what only one living process can hold, and the verdict on
it."""

import functools
import json
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from typing import Any

from tests.lib.candidates import WATCHED, Candidate
from tests.lib.processes import LUNARCH, PATIENCE, ROOT, scratch, stands_still, wait_for
from tests.lib.tap import note, same

FAULTS = os.path.join(ROOT, "tests", "cluster", "faults")


def build(name: str, *flags: str) -> str:
    """A C file of this directory, compiled beside the binary under test; its path."""
    return compiled(os.path.join(FAULTS, name), *flags)


@functools.lru_cache(maxsize=None)
def compiled(source: str, *flags: str) -> str:
    """A C file of the tests, likewise, once for each program of the tests."""
    home = os.path.join(os.path.dirname(LUNARCH), os.path.relpath(os.path.dirname(source), ROOT))
    os.makedirs(home, exist_ok=True)
    out = os.path.join(home, os.path.basename(source).replace(".c", ".so" if "-shared" in flags else ""))
    new = tempfile.mktemp(dir=home)
    subprocess.run(
        [
            *shlex.split(os.environ.get("CC", "cc")),
            "-std=gnu11",
            "-D_GNU_SOURCE",
            "-O1",
            "-Wall",
            "-Wextra",
            *flags,
            "-o",
            new,
            source,
            "-ldl",
        ],
        check=True,
    )
    os.rename(new, out)
    return out


class Field:
    """One lock, its candidates, and the witness of their terms."""

    def __init__(self, name: str = "field") -> None:
        self.name = name
        self.dir = scratch()
        os.chmod(self.dir, 0o777)
        self.home = os.path.join(self.dir, "home")  # of the lock alone
        os.mkdir(self.home)
        os.chmod(self.home, 0o777)
        self.lock = os.path.join(self.home, "lock")
        self.witness = os.path.join(self.dir, "witness")
        self.program = build("witness.c")
        self.candidates: list[Candidate] = []
        self.counted = ""

    def join(
        self,
        name: str,
        *options: Any,
        times: Any = WATCHED,
        strict: bool = False,
        acts: bool = False,
        lock: str | None = None,
        script: Any = os.path.join(FAULTS, "witness.lua"),
        **kw: Any,
    ) -> Any:
        c = Candidate(
            "--lock",
            lock or self.lock,
            "--identity",
            name,
            *options,
            script,
            "--",
            self.program,
            self.witness,
            name,
            *(["strict"] if strict else ["acts"] if acts else []),
            options=times,
            cwd=self.dir,
            name=name,
            **kw,
        )
        self.candidates.append(c)
        return c

    def lines(self, ending: str) -> list[str]:
        try:
            with open(f"{self.witness}.{ending}") as f:
                return f.read().splitlines()
        except OSError:
            return []

    def terms(self) -> list[Any]:
        """(token, name) of every term, in the order in which their processes acted."""
        return [(int(line.split()[0]), line.split()[1]) for line in self.lines("terms")]

    def acts(self, count: int, name: str | None = None, patience: float = PATIENCE) -> Any:
        """Waits until so many terms (of that candidate) have acted; the last of them."""

        def there() -> Any:
            t = [t for t in self.terms() if name in (None, t[1])]
            return len(t) >= count and t[count - 1]

        return wait_for(there, patience)

    def record(self) -> dict[str, Any]:
        with open(self.lock) as f:
            return json.load(f)

    def stale(self, kept: bool = False) -> list[Any]:
        """Terms whose checkpoint was older than what an earlier term knew to be saved: there must be none. kept: the
        record was never deleted or stolen, so that no checkpoint is an old one, too."""
        loaded: dict[int, int] = {}
        saved: dict[int, int] = {}
        for c in self.candidates:
            for word, seen in (("loaded ", loaded), ("saved ", saved)):
                for token, n in (e["message"].split()[1:] for e in c.said(word) if e["message"].startswith(word)):
                    if (
                        n == "none"
                    ):  # nothing saved yet, or the record was deleted or stolen, and the checkpoint with it
                        if kept:
                            seen.setdefault(int(token), 0)
                    else:
                        seen[int(token)] = max(int(n), seen.get(int(token), 0))
        self.counted = f"{len(saved)} terms saved, {len(loaded)} loaded"
        return [
            (token, n, earlier, saved[earlier])
            for token, n in loaded.items()
            for earlier in saved
            if earlier < token and saved[earlier] > n
        ]

    def checkpoints(self, kept: bool = False) -> list[Any]:
        """The same, for a verdict."""
        stale = self.stale(kept)
        note(self.counted)
        return stale

    def verdict(self, what: str) -> bool:
        overlaps, tokens = self.lines("overlaps"), [t for t, _ in self.terms()]
        same(overlaps, [], f"{what}: no process of a term lived when the next term's began")
        same(tokens, sorted(set(tokens)), f"{what}: every token is larger than all before it")
        same(
            self.checkpoints(),
            [],
            f"{what}: every term loaded what earlier ones knew to be saved, and nobody saved after its term",
        )
        return not overlaps

    def logs(self) -> None:
        for c in self.candidates:
            note(f"{c.name} ({c.pid}):")
            c.log()

    def end(self) -> None:
        for c in self.candidates:
            c.stop()
        shutil.rmtree(self.dir, ignore_errors=True)


def in_kernel_lock(pid: int, lock: str) -> bool:
    """Whether a process has the kernel lock of that file lock (proc_locks(5)): for the moment in which it compares and
    replaces."""
    try:
        inode = os.stat(os.path.join(os.path.dirname(lock), f".{os.path.basename(lock)}.lock")).st_ino
    except OSError:
        return False
    with open("/proc/locks") as f:
        held = [line.split() for line in f if " FLOCK " in line and "->" not in line]
    return any(h[4] == str(pid) and h[5].split(":")[2] == str(inode) for h in held)


def freeze(c: Candidate, lock: str) -> None:
    """Stops an elector, but not inside the kernel lock of its file: as long as it stands still there nobody can lead
    (docs/stores)."""
    while True:
        c.kill(signal.SIGSTOP)
        wait_for(lambda: stands_still(c.pid))
        if not in_kernel_lock(c.pid, lock):
            return
        note(f"{c.pid} was stopped inside the kernel lock: it goes on, and is stopped again")
        c.kill(signal.SIGCONT)
        time.sleep(0.01)

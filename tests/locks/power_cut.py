#!/usr/bin/env -S PYTHONPATH=. python3
"""The file lock and a power cut. A real candidate leads, renews, begins another term, resigns, leads again and leaves,
while strace(1) writes down what it asks of the file system. The log is then cut after every step, and everything that a
disk may show after a cut there is laid out as a directory: what was written but not synced may be there, half there or
missing; what was renamed but whose directory was not synced may still have its old name. In each of them there must be
one whole record, whose token and holder are not older than any term that had been reported by then; and a candidate
that finds it must lead with a larger token than any of those."""

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from typing import Any

from tests.lib.candidates import FAST, STEADY, Candidate, stop_everyone
from tests.lib.processes import LUNARCH, PATIENCE, ROOT, children, wait_for
from tests.lib.tap import at_once, done, note, ok, same, skip

CALLS = [
    "openat",
    "sendto",
    "creat",
    "write",
    "pwrite64",
    "writev",
    "pwritev",
    "pwritev2",
    "truncate",
    "ftruncate",
    "fallocate",
    "fsync",
    "fdatasync",
    "sync_file_range",
    "syncfs",
    "rename",
    "renameat",
    "renameat2",
    "link",
    "linkat",
    "unlink",
    "unlinkat",
    "mkdir",
    "mkdirat",
    "copy_file_range",
    "sendfile",
    "splice",
    "io_uring_enter",
]
LINE = re.compile(r"^(\d+) +(\w+)\((.*)\) += (-?\d+|\?)")


def on_disk() -> Any:
    """A directory whose file system is one that loses something in a power cut."""
    for where in "/var/tmp", ROOT, "/tmp":
        kind = subprocess.run(["stat", "-f", "-c", "%T", where], capture_output=True, text=True).stdout.strip()
        if kind not in ("tmpfs", "ramfs"):
            return tempfile.mkdtemp(prefix="lunarch-power-", dir=where)
    return None


# ---- the log ----


def text(hexed: str) -> str:
    return bytes.fromhex(hexed.replace("\\x", "")).decode("utf-8", "surrogateescape")


def lines(path: str) -> Iterator[Any]:
    """Calls in the order in which they ended; one that another thread interrupted is put together again."""
    begun = {}
    with open(path) as f:
        for line in f:
            pid = line.split(" ", 1)[0]
            if "<unfinished ...>" in line:
                begun[pid] = line.split(" <unfinished", 1)[0]
            elif " resumed>" in line and pid in begun:
                line = begun.pop(pid) + line.split(" resumed>", 1)[1]
                yield re.sub(r"\) += ", ") = ", line)
            else:
                yield line


def steps(path: str, home: str) -> Iterator[Any]:
    """(what, arguments) for all that concerns the directory; ("said", record) for every term that was reported."""
    for line in lines(path):
        m = LINE.match(line)
        if not m or m[4] == "?" or int(m[4]) < 0:
            continue
        call, arguments = m[2], m[3]
        paths = [text(p) for p in re.findall(r"<((?:\\x[0-9a-f]{2})*)>", arguments)]
        strings = [text(s) for s in re.findall(r'"((?:\\x[0-9a-f]{2})*)"', arguments)]
        if (
            call in ("write", "sendto")
            and strings
            and strings[0].startswith('{"time"')
            and '"became_leader"' in strings[0]
        ):
            yield "said", json.loads(strings[0])
        elif call in ("openat", "renameat", "renameat2", "unlinkat", "linkat", "mkdirat"):
            names = [os.path.normpath(os.path.join(p, s)) for p, s in zip(paths, strings)]
            if any(n.startswith(home + "/") for n in names):
                made = "O_CREAT" in arguments or "O_TRUNC" in arguments or "O_TMPFILE" in arguments
                if call != "openat" or made:
                    yield call, names
        elif paths and (paths[0] == home or paths[0].startswith(home + "/")):
            yield call, [paths[0], *strings, int(m[4])]
        elif any(s.startswith(home) for s in strings):
            yield call, strings


# ---- the disk ----


class File:
    def __init__(self) -> None:
        self.now, self.durable = b"", b""  # what a reader sees; what a cut cannot take any more
        self.between: list[bytes] = []  # what a cut may leave

    def write(self, data: Any) -> None:
        self.between += [self.now, self.now + data[: len(data) // 2]]
        self.now += data

    def sync(self) -> None:
        self.durable, self.between = self.now, []

    def may_be(self) -> Any:
        return {self.durable, self.now, *self.between}


class Disk:
    def __init__(self, name: str) -> None:
        self.name = name
        self.files: dict[str, File] = {}
        self.durable: File | None = None  # the file that has the record's name for good
        self.since: list[File] = []  # those that had it since the directory was synced
        self.said: list[str] = []

    def step(self, what: str, arguments: Any) -> None:
        if what == "said":
            self.said.append(arguments)
        elif what == "openat":
            self.files.setdefault(arguments[0], File())
        elif what == "write":
            self.files[arguments[0]].write(arguments[1].encode("utf-8", "surrogateescape"))
        elif what in ("fsync", "fdatasync"):
            if arguments[0] in self.files:
                self.files[arguments[0]].sync()
            elif self.since:
                self.durable, self.since = self.since[-1], []
        elif what in ("renameat", "renameat2"):
            moved = self.files.pop(arguments[0])
            self.files[arguments[1]] = moved
            if arguments[1] == self.name:
                self.since.append(moved)
        elif what == "unlinkat" and arguments[0] != self.name:
            self.files.pop(arguments[0], None)
        else:
            raise ValueError(f"this test does not know what a power cut makes of {what} {arguments}: teach it")

    def may_show(self) -> Any:
        """What a reader may find under the record's name after a cut now; None: nothing."""
        found = {None} if self.durable is None else set()
        for f in [self.durable, *self.since]:
            found |= f.may_be() if f else set()
        return found


class Versions(Disk):
    """Of a lock with ?shared=link: a directory, in which the highest name counts."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.names: dict[str, File | None] = {}  # that are there for good
        self.made = False  # the directory itself, too
        self.changes: list[
            tuple[str, File | None]
        ] = []  # (name, file or None) since the directory was synced; they reach the disk in their order

    def step(self, what: str, arguments: Any) -> None:
        if what == "mkdirat":
            return
        if what == "linkat":
            self.changes.append((arguments[1], self.files[arguments[0]]))
        elif what == "unlinkat" and os.path.basename(arguments[0]).isdigit():
            self.changes.append((arguments[0], None))
        elif what in ("fsync", "fdatasync") and arguments[0] == self.name:
            self.names, self.changes = self.after(len(self.changes)), []
        elif what in ("fsync", "fdatasync") and arguments[0] not in self.files:
            self.made = True
        else:
            super().step(what, arguments)

    def after(self, count: int) -> dict[str, Any]:
        names = dict(self.names)
        for name, file in self.changes[:count]:
            names[name] = file
        return {n: f for n, f in names.items() if f}

    def may_show(self) -> Any:
        found = set() if self.made else {None}
        for count in range(len(self.changes) + 1):
            names = self.after(count)
            found |= names[max(names)].may_be() if names else {None}
        return found


def complaint(content: bytes | None, said: list[dict[str, Any]]) -> str | None:
    """What is wrong with a disk that shows this, after those terms were reported."""
    if content is None:
        return "the record is gone" if said else None
    try:
        record = json.loads(content)
    except ValueError:
        return f"no whole record: {content[:60]!r}"
    newest = max([s["token"] for s in said], default=0)
    if record.get("token", 0) < newest:
        return f"token {record.get('token')} is older than {newest}, which was reported"
    return None if record.get("holderIdentity") or record.get("previousHolder") else "no holder"


def cuts(log: list[Any], home: str, kind: Any, ignore: Any = lambda what, arguments: False) -> tuple[Any, Any, Any]:
    """Every (content, tokens reported before it) that may be found, and what is wrong with it."""
    disk, found, wrong, count = kind(home + "/lock"), set(), [], 0
    for what, arguments in log:
        if ignore(what, arguments):
            continue
        disk.step(what, arguments)
        count += 1
        for content in disk.may_show():
            found.add((content, max([s["token"] for s in disk.said], default=0)))
            problem = complaint(content, disk.said)
            if problem:
                wrong.append(f"after step {count} ({what}): {problem}")
    return found, wrong, count


# ---- the test ----


def current(lock: str) -> str:
    if not os.path.isdir(lock):
        with open(lock) as f:
            return f.read()
    with open(os.path.join(lock, max(n for n in os.listdir(lock) if n.isdigit()))) as f:
        return f.read()


def record_life(home: str, log: str, option: str) -> int:
    """A life with everything in it that writes."""
    trace = ["strace", "--quiet=all", "-f", "-y", "-xx", "-s", "300000", "-o", log, "-e", "trace=" + ",".join(CALLS)]
    c = Candidate(
        "--lock",
        home + "/lock" + option,
        "--identity",
        "one",
        "-e",
        "while true do sleep(60) end",
        prefix=trace,
        options=STEADY,
    )

    def elector() -> int:
        return wait_for(lambda: children(c.pid))[0]

    def renewed(times: int) -> None:
        seen = set()

        def enough() -> bool:
            seen.add(current(home + "/lock"))
            return len(seen) > times

        wait_for(enough)

    c.wait("became_leader")
    renewed(3)
    os.kill(elector(), signal.SIGHUP)
    c.wait("became_leader", count=2)
    renewed(3)
    os.kill(elector(), signal.SIGUSR1)
    c.wait("became_leader", count=3)
    renewed(2)
    os.kill(elector(), signal.SIGTERM)
    c.leave()
    return len(c.all("became_leader"))


def replay(found: set[Any], directory: str, option: str) -> tuple[int, int]:
    """Each state as a directory of its own, which real commands read, and in which somebody leads next."""
    unread, nexts = 0, []
    for number, (content, newest) in enumerate(sorted(found, key=lambda f: (f[0] or b"", f[1]))):
        lock = f"{directory}/cut-{number}"
        if content is not None:
            if option:
                os.mkdir(lock)
            with open(os.path.join(lock, f"{1:016}") if option else lock, "wb") as f:
                f.write(content)
            r = subprocess.run(
                [LUNARCH, "status", "--json", "--lock", lock + option], capture_output=True, text=True, timeout=PATIENCE
            )
            unread += r.returncode not in (0, 1) or json.loads(r.stdout)["token"] < newest
        nexts.append(
            (
                newest,
                subprocess.Popen(
                    [LUNARCH, "exec", *FAST, "--lock", lock + option, "--", "printenv", "LUNARCH_TOKEN"],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    text=True,
                ),
            )
        )
    return unread, sum(int(p.communicate(timeout=PATIENCE)[0] or 0) <= newest for newest, p in nexts)


def cut(what: str, option: str, kind: Any, replaces: str) -> None:
    home = on_disk()
    if not home:
        skip("a power cut", "every file system here is in memory")
        return
    try:
        terms = record_life(home, home + ".log", option)
        log = list(steps(home + ".log", home))
        found, wrong, count = cuts(log, home, kind)
        kinds = {w for w, _ in log}
        ok(
            terms == 3
            and len([w for w, _ in log if w == "said"]) == 3
            and kinds >= {"openat", "write", replaces, "fsync", "fdatasync"},
            what + "a life of three terms is on record, with everything that it wrote",
        )
        note(f"{count} steps, {len(found)} different disks")
        same(
            wrong[:5],
            [],
            what + "after a cut at any step there is one whole record, not older than any term that was reported",
        )
        unread, lower = replay(found, home, option)
        same(unread, 0, what + "status reads each of those disks")
        same(lower, 0, what + "and whoever leads next on it has a larger token than was ever reported")
        # The judge must be able to find something.
        no_data = cuts(
            log, home, kind, lambda what, a: what == "fdatasync" or what == "fsync" and not os.path.isdir(a[0])
        )[1]
        ok(
            [w for w in no_data if "no whole record" in w],
            what + "without the sync of the file it would find half a record",
        )
        no_names = cuts(log, home, kind, lambda what, a: what == "fsync" and os.path.isdir(a[0]))[1]
        ok(
            [w for w in no_names if "gone" in w or "older" in w],
            what + "without the sync of the directory it would find a term that was lost",
        )
    finally:
        shutil.rmtree(home, ignore_errors=True)
        if os.path.exists(home + ".log"):
            os.unlink(home + ".log")


at_once(lambda: cut("", "", Disk, "renameat"), lambda: cut("shared=link: ", "?shared=link", Versions, "linkat"))
stop_everyone()
done()

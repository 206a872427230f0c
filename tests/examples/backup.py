#!/usr/bin/env -S PYTHONPATH=. python3
"""examples/backup.lua: real archives of a real directory, whole and with the right checksum, the newest kept, whoever
is killed over one."""

import hashlib
import os
import shutil
import signal
import tarfile
from typing import Any

from tests.lib.candidates import Candidate, stop_everyone
from tests.lib.processes import ROOT, scratch, wait_for
from tests.lib.tap import done, ok, same

SCRIPT = os.path.join(ROOT, "examples", "backup.lua")
where = scratch()
SOURCE, TARGET = os.path.join(where, "source"), os.path.join(where, "target")
os.mkdir(SOURCE)
for i in range(50):
    with open(os.path.join(SOURCE, f"file {i}"), "wb") as f:
        f.write(os.urandom(20000))


def join(name: str) -> Any:
    return Candidate(
        "--lock", os.path.join(where, "lock"), "--identity", name, SCRIPT, "--", SOURCE, TARGET, "0.3", "3"
    )


def archives() -> list[str]:
    try:
        return sorted(n for n in os.listdir(TARGET) if n.endswith(".tar.gz"))
    except FileNotFoundError:
        return []


def of(term: Any) -> Any:
    return [n for n in archives() if int(n.split("-")[1]) == term["token"]]


def verified(name: str) -> Any:
    """None: it was rotated away meanwhile."""
    path = os.path.join(TARGET, name)
    try:
        with open(path, "rb") as f, open(path + ".sha256") as sums:
            if sums.read() != f"{hashlib.sha256(f.read()).hexdigest()}  {name}\n":
                return False
        with tarfile.open(path) as t:
            return {os.path.basename(m.name): m.size for m in t if m.isfile()} == {n: 20000 for n in os.listdir(SOURCE)}
    except FileNotFoundError:
        return None


a = join("a")
first = a.wait("became_leader")
ok(
    first and wait_for(lambda: len(of(first)) >= 2),
    "the leader makes an archive again and again, with its token in the name",
)
ok(wait_for(lambda: a.all("backup") and len(a.all("backup")) >= 6) and len(archives()) <= 4, "only the newest are kept")
b = join("b")
ok(b.wait("new_leader"), "another waits")
a.kill(signal.SIGKILL)
second = b.wait("became_leader")
ok(
    second and wait_for(lambda: of(second)) and second["token"] > first["token"],
    "when it is killed the other goes on, under a larger token",
)
ok(
    wait_for(lambda: len(of(second)) >= 3 and not of(first)),
    "whose archives sort after those of the first, which are rotated away",
)
b.kill(signal.SIGTERM)
same(b.leave(), 0, "it leaves in peace")
last = archives()
same(
    [verified(n) for n in last],
    [True] * len(last),
    f"each of the {len(last)} archives is whole, has everything in it, and the right checksum",
)
same(
    [n for n in os.listdir(TARGET) if n.endswith(".part") and f"{second['token']:020d}" in n],
    [],
    "and the one that left cleanly left nothing half made",
)
stop_everyone()
shutil.rmtree(where)
done()

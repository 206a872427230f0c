#!/usr/bin/env -S PYTHONPATH=. python3
"""examples/compact.lua: segments of a log, plain and compressed, become one state, whoever is killed meanwhile; a
damaged one stays."""

import gzip
import os
import random
import shutil
import signal
from typing import Any

from tests.lib.candidates import Candidate, stop_everyone
from tests.lib.processes import ROOT, scratch, wait_for
from tests.lib.tap import done, ok, same

SCRIPT = os.path.join(ROOT, "examples", "compact.lua")
where = scratch()
LOGS = os.path.join(where, "logs")
os.mkdir(LOGS)
STATE = os.path.join(LOGS, "state")
random.seed(7)
values: dict[str, str] = {}
number = 0


def segment(lines: int, packed: bool = False, damaged: bool = False) -> tuple[str, bytes]:
    """The next one; what it says is expected from now on. Returns its path."""
    global number
    number += 1
    out = []
    for _ in range(lines):
        key = f"key{random.randrange(lines // 4 + 1)}"
        if random.random() < 0.2:
            values.pop(key, None)
            out.append(key)
        else:
            values[key] = f"value {random.random()} ä"
            out.append(f"{key} {values[key]}")
    data = ("\n".join(out) + "\n").encode()
    data = gzip.compress(data) if packed else data
    path = os.path.join(LOGS, f"{number:08d}.log" + (".gz" if packed else ""))
    with open(path + ".open", "wb") as f:
        f.write(data[: len(data) // 2] if damaged else data)
    os.rename(path + ".open", path)
    return path, data


def state() -> tuple[int, dict[str, str]] | None:
    """(up to which segment, what it says), None without one."""
    try:
        with open(STATE, encoding="utf-8") as f:
            lines = f.read().split("\n")
    except FileNotFoundError:
        return None
    return int(lines[0][2:]), dict(line.split(" ", 1) for line in lines[1:] if line)


def segments() -> list[str]:
    return sorted(n for n in os.listdir(LOGS) if n[0].isdigit() and not n.endswith(".open"))


def join(name: str) -> Any:
    return Candidate("--lock", os.path.join(where, "lock"), "--identity", name, SCRIPT, "--", LOGS, "0.1")


segment(8000)
segment(8000, packed=True)
a = join("a")
ok(wait_for(lambda: state() == (2, values)), "all segments, plain and compressed, become one state")
ok(wait_for(lambda: not segments()), "and are removed")
b = join("b")
ok(b.wait("new_leader"), "another waits")
for packed in (True, False, True):
    segment(20000, packed)
a.kill(signal.SIGKILL)
ok(b.wait("became_leader"), "when the leader is killed over them another leads")
ok(wait_for(lambda: state() == (5, values) and not segments()), "and nothing is lost, nothing is merged twice")
with open(os.path.join(LOGS, "00000003.log"), "w") as f:
    f.write("key1 old\n")
ok(wait_for(lambda: not segments()), "a segment that was merged already, left by a crash, is removed")
same(state(), (5, values), "and changes nothing")
path, whole = segment(1000, packed=True, damaged=True)
before = state()
failed = b.wait("stopped_leading", "error")
ok(
    failed and any("00000006.log.gz" in e.get("message", "") for e in b.events),
    "a damaged segment ends the term, and is named",
)
ok(os.path.exists(path) and state() == before, "it stays, and so does the state")
with open(path + ".open", "wb") as again:
    again.write(whole)
os.rename(path + ".open", path)
ok(wait_for(lambda: state() == (6, values)), "when it is mended it is merged")
same(sorted(n for n in os.listdir(LOGS) if n.endswith(".new")), [], "no temporary file is left")
b.kill(signal.SIGTERM)
same(b.leave(), 0, "the leader leaves in peace")
stop_everyone()
shutil.rmtree(where)
done()

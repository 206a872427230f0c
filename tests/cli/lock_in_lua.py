#!/usr/bin/env -S PYTHONPATH=. python3
"""Every command that looks at a lock does so where it is one in Lua; and says, with status 2, what is wrong with it."""

import json
import os
import shutil
import subprocess
from typing import Any

from tests.lib.candidates import Candidate, stop_everyone
from tests.lib.processes import LUNARCH
from tests.lib.stores import Box
from tests.lib.tap import done, note, ok, same

box = Box()
ENV = {k: v for k, v in os.environ.items() if not k.startswith("LUNARCH_")} | box.env
os.environ |= box.env
PLACE = f"box://127.0.0.1:{box.port}/app/"
LOCK = PLACE + "one"


def lunarch(*args: str) -> Any:
    return subprocess.run(
        [LUNARCH, *args], capture_output=True, text=True, timeout=120, env=ENV, stdin=subprocess.DEVNULL
    )


def says(r: Any, status: int, *words: str, what: str) -> None:
    if not ok(r.returncode == status and all(w in r.stdout + r.stderr for w in words), what):
        note(f"status {r.returncode}\n{r.stdout}{r.stderr}")


def drivers(pid: int) -> list[str]:
    """The drivers that this process has started, by their titles."""
    r = subprocess.run(["ps", "--ppid", str(pid), "-o", "args="], capture_output=True, text=True)
    return [line.strip() for line in r.stdout.splitlines() if line.startswith("lunarch: lock ")]


says(lunarch("status", "--lock", LOCK), 1, "nobody", what="status: nobody leads")
says(lunarch("list", PLACE), 1, "no election", what="list: nothing is there")
says(
    lunarch("--help"),
    0,
    "s3://",
    "consul://",
    "mysql://",
    "box.lua",
    what="--help names the kinds of lock, and one's own",
)
says(lunarch("check", "-e", "sleep(1)", "--lock", LOCK), 0, "nobody leads", "no problem", what="check reads it")

leader = Candidate("--lock", LOCK, "--address", "here:1", "-e", "return { on_leading = function() end }")
ok(leader.wait("became_leader"), "an election runs on it")
same(drivers(leader.process.pid), ["lunarch: lock box"], "ps names its driver")
says(lunarch("status", "--lock", LOCK), 0, "here:1", what="status: the leader")
says(lunarch("status", "--verify", "--lock", LOCK), 0, what="status --verify: it renews")
same(lunarch("leader", "--lock", LOCK).stdout, "here:1\n", "leader: its address")
says(lunarch("list", PLACE), 0, LOCK, "leading", what="list: the election")
listed = json.loads(lunarch("list", "--json", PLACE).stdout)
same((listed["lock"], listed["state"]), (LOCK, "leading"), "list --json: the same")
token = str(listed["token"])
says(lunarch("doctor", "--lock", LOCK), 0, "is fit", what="doctor: it is fit, with a leader beside")
ok(not leader.all("stopped_leading"), "which has not noticed")
leader.process.kill()
leader.process.wait()
released = lunarch("release", "--force", "--lock", LOCK, "--reason", "it is dead", "--token", token)
says(released, 0, what="release --force: frees the record of a dead leader")
says(lunarch("status", "--lock", LOCK), 1, "it is dead", what="status: and why")

for command in (["status"], ["leader"], ["doctor"], ["doctor", "--full"]):
    name = " ".join(command)
    says(
        lunarch(*command, "--lock", LOCK + "?hots=x"),
        2,
        "'hots'",
        "did you mean 'host'?",
        what=f"{name}: a wrong option",
    )
    says(
        lunarch(*command, "--lock", "bocks://h/k"),
        2,
        "bocks.lua",
        "new --lock",
        what=f"{name}: a kind that is not there",
    )
bad = os.path.join(box.directory, "bad.lua")
with open(bad, "w") as f:
    f.write("return { scheme = 'bad', open = print, read = print, wrte = print }\n")
says(lunarch("status", "--lock", "bad://h/k"), 2, "bad.lua", "did you mean 'write'?", what="status: a faulty lock file")
says(lunarch("check", bad), 1, "did you mean 'write'?", what="check: of that file itself")
with open(os.path.join(box.directory, "other.lua"), "w") as f:
    f.write("return { scheme = 'one', open = print, read = print, write = print }\n")
says(
    lunarch("status", "--lock", "other://h/k"),
    2,
    "its scheme is one",
    'scheme = "other"',
    what="status: a file that has another scheme than its name",
)
stop_everyone()
box.end()
shutil.rmtree(box.directory, True)
done()

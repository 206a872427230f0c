#!/usr/bin/env -S PYTHONPATH=. python3
"""Every command that looks at a lock does so where it is one in Lua; and says, with status 2, what is wrong with it."""

import functools
import json
import os
import shutil
import subprocess

from tests.lib import commands
from tests.lib.candidates import Candidate, stop_everyone
from tests.lib.commands import check
from tests.lib.stores import Box
from tests.lib.tap import done, ok, same

box = Box()
os.environ |= box.env
run = functools.partial(commands.run, env=box.env)
PLACE = f"box://127.0.0.1:{box.port}/app/"
LOCK = PLACE + "one"


def drivers(pid: int) -> list[str]:
    """The drivers that this process has started, by their titles."""
    r = subprocess.run(["ps", "--ppid", str(pid), "-o", "args="], capture_output=True, text=True)
    return [line.strip() for line in r.stdout.splitlines() if line.startswith("lunarch: lock ")]


check(run("status", "--lock", LOCK), 1, "nobody", what="status: nobody leads")
check(run("list", PLACE), 1, "no election", what="list: nothing is there")
check(
    run("--help"), 0, "s3://", "consul://", "mysql://", "box.lua", what="--help names the kinds of lock, and one's own"
)
check(run("check", "-e", "sleep(1)", "--lock", LOCK), 0, "nobody leads", "no problem", what="check reads it")

leader = Candidate("--lock", LOCK, "--address", "here:1", "-e", "return { on_leading = function() end }")
ok(leader.wait("became_leader"), "an election runs on it")
same(drivers(leader.process.pid), ["lunarch: lock box"], "ps names its driver")
check(run("status", "--lock", LOCK), 0, "here:1", what="status: the leader")
check(run("status", "--verify", "--lock", LOCK), 0, what="status --verify: it renews")
same(run("leader", "--lock", LOCK).stdout, "here:1\n", "leader: its address")
check(run("list", PLACE), 0, LOCK, "leading", what="list: the election")
listed = json.loads(run("list", "--json", PLACE).stdout)
same((listed["lock"], listed["state"]), (LOCK, "leading"), "list --json: the same")
token = str(listed["token"])
check(run("doctor", "--lock", LOCK), 0, "is fit", what="doctor: it is fit, with a leader beside")
ok(not leader.all("stopped_leading"), "which has not noticed")
leader.process.kill()
leader.process.wait()
released = run("release", "--force", "--lock", LOCK, "--reason", "it is dead", "--token", token)
check(released, 0, what="release --force: frees the record of a dead leader")
check(run("status", "--lock", LOCK), 1, "it is dead", what="status: and why")

for command in (["status"], ["leader"], ["doctor"], ["doctor", "--full"]):
    name = " ".join(command)
    check(
        run(*command, "--lock", LOCK + "?hots=x"), 2, "'hots'", "did you mean 'host'?", what=f"{name}: a wrong option"
    )
    check(
        run(*command, "--lock", "bocks://h/k"), 2, "bocks.lua", "new --lock", what=f"{name}: a kind that is not there"
    )
bad = os.path.join(box.directory, "bad.lua")
with open(bad, "w") as f:
    f.write("return { scheme = 'bad', open = print, read = print, wrte = print }\n")
check(run("status", "--lock", "bad://h/k"), 2, "bad.lua", "did you mean 'write'?", what="status: a faulty lock file")
check(run("check", bad), 1, "did you mean 'write'?", what="check: of that file itself")
with open(os.path.join(box.directory, "other.lua"), "w") as f:
    f.write("return { scheme = 'one', open = print, read = print, write = print }\n")
check(
    run("status", "--lock", "other://h/k"),
    2,
    "its scheme is one",
    'scheme = "other"',
    what="status: a file that has another scheme than its name",
)

reads = os.path.join(box.directory, "reads")
with open(os.path.join(box.directory, "counted.lua"), "w") as f:
    f.write(
        "return { scheme = 'counted', open = function() return {} end, write = print,\n"
        "read = function() local f <close> = io.open(%r, 'a') f:write('x') return 'absent' end,\n"
        "watch = function(_, _, changed) changed() while true do sleep(1) end end }\n" % reads
    )
run("leader", "--wait", "4s", "--lock", "counted://h/k")
ok(
    0 < os.path.getsize(reads) <= 6,
    "leader --wait: where there are notices it waits for them, and does not poll",
    os.path.getsize(reads),
)
stop_everyone()
box.end()
shutil.rmtree(box.directory, True)
done()

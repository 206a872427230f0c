#!/usr/bin/env python3
"""lunarch exec from outside: status, streams, signals, waiting, losing, nesting."""

import os
import shutil
import signal
import subprocess
import sys
from typing import Any

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from candidates import Candidate, stop_everyone
from processes import LUNARCH, PATIENCE, alive, children, piped, scratch, wait_for
from tap import done, ok, same

directory = scratch()


def run(*args: Any, **kw: Any) -> Any:
    return subprocess.run([LUNARCH, "exec", *args], capture_output=True, text=True, timeout=PATIENCE, **kw)


r = run("--lock", directory + "/a", "--", "sh", "-c", "cat; echo $LUNARCH_TOKEN >&2; exit 3", input="hello")
same((r.returncode, r.stdout), (3, "hello"), "status, stdin and stdout are passed through")
same(
    run("--lock", directory + "/a", "--", "sh", "-c", "kill -KILL $$").returncode,
    137,
    "a command killed by a signal: 128 + signal",
)
same(run("--lock", directory + "/a", "--", "/no/such/thing").returncode, 127, "a missing command: 127")
same(run("--lock", directory + "/a", "--", "/etc/passwd").returncode, 126, "one that cannot run: 126")
r = run("--", "true")
ok(r.returncode == 2 and "--lock" in r.stderr, "without --lock: usage, with the line to type")

holder = Candidate(
    "--lock", directory + "/b", "--", "sh", "-c", "echo on; exec sleep 100", command="exec", stdout=subprocess.PIPE
)
piped(holder.process.stdout).readline()
r = run("--lock", directory + "/b", "-n", "--", "true")
same(r.returncode, 75, "-n: another holds it: 75")
same(
    run("--lock", directory + "/b", "-n", "--conflict-exit-code", "9", "--", "true").returncode,
    9,
    "... or what --conflict-exit-code says",
)
same(run("--lock", directory + "/b", "--wait", "300ms", "--", "true").returncode, 75, "--wait: not had in time: 75")
holder.kill(signal.SIGTERM)
same(holder.leave(), 143, "SIGTERM is forwarded, and the command's end is ours")

r = run("--lock", directory + "/c", "--", LUNARCH, "exec", "--lock", directory + "/c", "--", "true")
ok(r.returncode == 2 and "itself" in r.stderr, "nested on the same lock: says so instead of waiting for ever")
r = run("--lock", directory + "/c", "--", LUNARCH, "exec", "--lock", directory + "/d", "--", "sh", "-c", "exit 5")
same(r.returncode, 5, "nested on another lock: works")

at_least = Candidate("--lock", directory + "/e", "--at-least", "100s", "--", "true", command="exec")
at_least.wait("became_leader")
same(
    run("--lock", directory + "/e", "-n", "--", "true").returncode,
    75,
    "--at-least: held although the command has ended",
)
wait_for(lambda: not children(at_least.pid))
at_least.kill(signal.SIGTERM)
same(at_least.leave(), 0, "... and told to stop it leaves with the command's status")

script = f"echo x >> {directory}/runs; exec sleep 100"
lost = Candidate("--lock", directory + "/f", "--", "sh", "-c", script, command="exec")
ok(wait_for(lambda: os.path.exists(directory + "/runs")), "the command runs")
os.unlink(directory + "/f")
same(lost.leave(), 76, "the record is deleted: the command is stopped, 76")

again = Candidate("--lock", directory + "/g", "--restart", "on-loss", "--", "sh", "-c", script, command="exec")
ok(wait_for(lambda: open(directory + "/runs").read().count("x") == 2), "--restart on-loss: the command runs")
os.unlink(directory + "/g")
ok(
    wait_for(lambda: open(directory + "/runs").read().count("x") == 3),
    "... and again, after the lease was lost and waited out",
)
again.kill(signal.SIGTERM)
again.leave()

daemon = run("--lock", directory + "/h", "--", "sh", "-c", "setsid sleep 1000 & echo $!")
ok(not alive(int(daemon.stdout)), "what the command leaves behind is killed before the lock is released")
stop_everyone()
shutil.rmtree(directory, ignore_errors=True)
done()

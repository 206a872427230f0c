#!/usr/bin/env -S PYTHONPATH=. python3
"""lunarch exec from outside: status, streams, signals, waiting, losing, nesting."""

import os
import shutil
import signal
import subprocess
from typing import Any

from tests.lib.candidates import Candidate, stop_everyone
from tests.lib.processes import LUNARCH, PATIENCE, alive, children, marked, piped, scratch, stands_still, wait_for
from tests.lib.tap import done, ok, same

directory = scratch()


def run(*args: str, **kw: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([LUNARCH, "exec", *args], capture_output=True, text=True, timeout=PATIENCE, **kw)


r = run("--lock", directory + "/a", "--", "sh", "-c", "cat; echo $LUNARCH_TOKEN >&2; exit 3", input="hello")
same((r.returncode, r.stdout), (3, "hello"), "status, stdin and stdout are passed through")
r = run("--lock", directory + "/a", "--", "sh", "-c", "kill -KILL $$")
same(r.returncode, 137, "a command killed by a signal: 128 + signal,")
ok("signal 9" in r.stderr and "137" in r.stderr and "dmesg" in r.stderr, "... and by which, and where to look")
r = run("--lock", directory + "/a", "--", "sh", "-c", "kill -PIPE $$")
same((r.returncode, "signal" in r.stderr), (141, False), "... but for one whose reader has had enough")
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


def waiting(lock: str, *command: str) -> tuple[Candidate, Candidate]:
    """One that holds the lock, and one that waits for it with its guard."""
    first = Candidate("--lock", lock, "--", "sleep", "100", command="exec")
    first.wait("became_leader")
    second = Candidate("--lock", lock, "--", *command, command="exec")
    second.wait("new_leader")
    second.guard()
    return first, second


# A guard whose command has not begun may be killed, and is no command that has ended well.
first, second = waiting(directory + "/i", "sh", "-c", "exit 5")
guard = second.guard()
second.kill(pid=guard)
ok(wait_for(lambda: not alive(guard) and children(second.pid)), "a guard that is killed before its term is replaced")
first.stop()
same(second.leave(), 5, "... and the command runs, and its status is ours")

first, second = waiting(directory + "/j", "sh", "-c", f"echo > {directory}/began")
guard = second.guard()
second.kill(signal.SIGSTOP, pid=guard)
ok(wait_for(lambda: stands_still(guard)), "a guard stands still,")
first.stop()
ok(second.wait("became_leader"), "... its candidate leads,")
second.kill(pid=guard)
ok((second.leave() or 0) > 0, "... and it is killed: that is no success")
ok(not os.path.exists(directory + "/began"), "... since the command has not run")

first, second = waiting(directory + "/k", "true")
guard = second.guard()
same(second.stop(), 143, "one that is stopped while it waits leaves with 143")
ok(not alive(guard), "... and leaves no guard behind")
first.stop()

# The guard is begun before the lock is opened.
alone = {**os.environ, "MARK": directory}
for lock, env, words, what in (
    ("nosuch://x", alone, "there is no such kind of lock", "a lock that there is not"),
    (
        directory + "/l",
        {**alone, "LUNARCH_TERM_LOCK": f"file:{directory}/l"},
        "wait for itself",
        "one that is held above",
    ),
):
    r = run("--lock", lock, "--", "sh", "-c", f"echo > {directory}/ran", env=env)
    ok(r.returncode == 2 and words in r.stderr, f"{what}: 2, and why,")
    ok(not marked(f"MARK={directory}") and not os.path.exists(directory + "/ran"), "... and nothing has run or is left")

stop_everyone()
shutil.rmtree(directory, ignore_errors=True)
done()

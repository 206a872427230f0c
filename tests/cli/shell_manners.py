#!/usr/bin/env -S PYTHONPATH=. python3
"""lunarch exec as a shell's user knows commands: ignored signals, background jobs, restarts, flock's options."""

import json
import os
import pty
import select
import shutil
import signal
import subprocess
import time
from typing import Any

from tests.lib.candidates import Candidate, stop_everyone, timing
from tests.lib.processes import LUNARCH, PATIENCE, scratch, wait_for
from tests.lib.tap import done, note, ok, same

directory = scratch()


def run(*args: str, **kw: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([LUNARCH, "exec", *args], capture_output=True, text=True, timeout=PATIENCE, **kw)


def ignoring(*signals: int) -> Any:
    return lambda: [signal.signal(s, signal.SIG_IGN) for s in signals]


def ignores(pid: int | str, *signals: int) -> bool:
    with open(f"/proc/{pid}/status") as status:
        mask = int(next(line.split()[1] for line in status if line.startswith("SigIgn")), 16)
    return all(mask >> s - 1 & 1 for s in signals)


def test_ignored_signals() -> None:
    """nohup(1), and what a shell script starts with `&`."""
    out = directory + "/nohup"
    nohup = Candidate(
        *("--lock", directory + "/a", "--", "sh", "-c", f"echo $$ > {out}.new; mv {out}.new {out}; exec sleep 1000"),
        command="exec",
        preexec_fn=ignoring(signal.SIGHUP, signal.SIGINT, signal.SIGPIPE, signal.SIGCHLD),
    )
    wait_for(lambda: os.path.exists(out))
    with open(out) as file:
        command = file.read().strip()
    ok(
        ignores(nohup.pid, signal.SIGHUP, signal.SIGINT) and ignores(command, signal.SIGHUP, signal.SIGINT),
        "signals that are ignored at the start stay ignored, by the command too",
    )
    ok(ignores(command, signal.SIGPIPE) and not ignores(command, signal.SIGTERM), "... SIGPIPE too, and no others")
    nohup.kill(signal.SIGHUP)
    nohup.kill(signal.SIGINT)
    nohup.kill(signal.SIGTERM)
    same(nohup.leave(), 143, "so nohup's command outlives SIGHUP and an inherited SIGINT, until SIGTERM ends it")
    script = directory + "/idle.lua"
    with open(script, "w") as file:
        file.write("return { on_leading = function() end }")
    r = Candidate("--lock", directory + "/b", script, preexec_fn=ignoring(signal.SIGHUP, signal.SIGINT))
    r.wait("became_leader")
    r.kill(signal.SIGHUP)
    r.kill(signal.SIGINT)
    same(r.stop(), 0, "run: the same")
    ok(not r.all("reloading"), "... and SIGHUP loads nothing again")


def type_into(lines: str, until: str) -> str:
    """Types lines into an interactive shell on a terminal of its own, and returns what that shows until this text."""
    pid, fd = pty.fork()
    if pid == 0:
        os.execvpe("bash", ["bash", "--norc", "-i"], {**os.environ, "PS1": "", "LUNARCH": LUNARCH})
    os.write(fd, lines.encode())
    shown, by = "", time.monotonic() + PATIENCE
    while until not in shown and select.select([fd], [], [], max(0, by - time.monotonic()))[0]:
        try:
            shown += os.read(fd, 4096).decode(errors="replace")
        except OSError:
            break
    os.kill(pid, signal.SIGKILL)
    os.close(fd)
    os.waitpid(pid, 0)
    if until not in shown:
        note(shown)
    return shown


def test_background() -> None:
    """A command of another session than the terminal's is not stopped when it reads: it would take what is typed."""
    command = f"$LUNARCH exec --lock {directory}/c -- sh -c 'echo its-stdin $(readlink /proc/self/fd/0)'"
    shown = type_into(f"stty -echo; {command} & wait; echo done $((20+22))\n", "done 42")
    ok("its-stdin /dev/null" in shown, "in an interactive shell's background the command's stdin is /dev/null")
    ok("in the background" in shown, "... and a line on the terminal says so")
    shown = type_into(f"stty -echo; {command}; echo done $((20+22))\n", "done 42")
    ok("its-stdin /dev/pts/" in shown and "in the background" not in shown, "in the foreground it is the terminal")
    shown = type_into(
        f"stty -echo; echo mine | {command.replace('echo', 'cat; echo')} & wait; echo done $((20+22))\n", "done 42"
    )
    ok("mine" in shown and "its-stdin pipe:" in shown, "a pipe is the command's in the background too")
    script = directory + "/read.lua"
    with open(script, "w") as file:
        file.write("return { on_leading = function() print('read', io.read('l')) lunarch.exit(0) end }")
    command = f"$LUNARCH run --lock {directory}/r {script}"
    shown = type_into(f"stty -echo; {command} & wait; echo done $((20+22))\n", "done 42")
    ok("read\tnil" in shown, "run: in the background a script reads nothing of what is typed")
    shown = type_into(f"stty -echo; {command}; echo done $((20+22))\nmine\n", "done 42")
    ok("read\tmine" in shown, "run: in the foreground it reads the terminal")


def test_plain_name() -> None:
    """A lock that is a plain name is this machine's alone, which who types it may not know."""
    script = directory + "/own.lua"
    with open(script, "w") as file:
        file.write("return { on_leading = function() lunarch.exit(0) end }")
    state, said = f"--state-dir {directory}/state", "this machine's alone"
    for what, command in (
        ("exec", f"exec {state} --lock LOCK true"),
        ("run", f"run {state} --lock LOCK {script}"),
        ("check", f"check {state} --lock LOCK {script}"),
    ):
        for lock, local in (("plain", True), ("file:plain", False), (directory + "/plain", False)):
            shown = type_into(
                f"stty -echo; $LUNARCH {command.replace('LOCK', lock)}; echo done $((20+22))\n", "done 42"
            )
            ok(
                (said in shown) == local,
                f"{what} --lock {lock if '/' not in lock else 'PATH'}: "
                + ("a line on the terminal says that it is this machine's alone" if local else "no such line"),
            )
    shown = type_into(f"stty -echo; $LUNARCH run {state} {script}; echo done $((20+22))\n", "done 42")
    ok(said in shown, "run without --lock: the script's own lock is such a one, too")
    r = run("--state-dir", directory + "/state", "--lock", "plain", "true")
    ok(r.returncode == 0 and said not in r.stderr, "without a terminal nothing is said")


def test_restart() -> None:
    """--restart always: pauses that grow, and a line for each end."""
    control = directory + "/ctl"
    always = Candidate(
        *("--lock", directory + "/d", "--restart", "always", "--control", control, "--", "sh", "-c", "exit 3"),
        command="exec",
        options=timing("60s"),  # on a machine that is slow for seconds the term goes on, too
    )
    ends = [always.event("command_ended", count=n + 1)["message"] for n in range(3)]
    ok(all("(status 3)" in e for e in ends), "--restart always: each end is logged with its status")
    same([e.partition("again in ")[2] for e in ends], ["1 s", "2 s", "4 s"], "... and with the pause, which grows")
    why = subprocess.run(
        [LUNARCH, "ctl", "--control", control, "why"], capture_output=True, text=True, timeout=PATIENCE
    )
    ok("(status 3): it is started again in" in why.stdout, "... which `ctl why` says, too")
    ok(not always.all("stopped_leading"), "the lock is kept meanwhile", always.all("stopped_leading"))
    same(always.stop(), 3, "SIGTERM in a pause: it leaves at once, with the status of the last run")
    shortest = ("--restart", "always", "--restart-pause", "250ms")
    missing = Candidate("--lock", directory + "/d", *shortest, "--", "/no/such/thing", command="exec")
    ok(missing.event("command_ended", "(status 127)", 2), "a command that cannot be started counts too")
    end = missing.event("command_ended", count=3)["message"]
    same(end.partition("again in ")[2], "0.25 s", "--restart-pause: the pause does not grow beyond it")
    missing.stop()


def record(name: str, seconds_ago: float) -> str:
    """A lock that a leader on another machine renewed so long ago."""
    then = time.time() - seconds_ago
    renewed = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(then)) + f".{int(then % 1 * 1e6):06}Z"
    with open(directory + "/" + name, "w") as file:
        json.dump(
            {
                "holderIdentity": "elsewhere",
                "leaseDurationSeconds": 2,
                "acquireTime": renewed,
                "renewTime": renewed,
                "leaderTransitions": 3,
            },
            file,
        )
    return directory + "/" + name


def decision_s(lock: str) -> float:
    """How long -n thought about a held lock after it had read it."""
    r = run("-n", "--log-format", "json", "--lock", lock, "--", "true")
    at = {}
    for line in r.stderr.splitlines():
        event = json.loads(line)
        at[event["event"]] = float(event["time"].rstrip("Z").rpartition(":")[2])
    return (at["not_acquired"] - at["new_leader"]) % 60


def test_flock() -> None:
    """flock(1)'s options."""
    lock = directory + "/e"
    same(run("--lock", lock, "-c", "echo a | tr a b").stdout, "b\n", "-c LINE: a shell's line")
    r = run("--lock", lock, "-c", "true", "--", "false")
    ok(r.returncode == 2 and "one of them" in r.stderr, "... and no command besides")
    holder = Candidate("--lock", lock, "--", "sleep", "1000", command="exec")
    holder.wait("became_leader")
    same(run("--lock", lock, "-n", "-E", "7", "--", "true").returncode, 7, "-E 7")
    same(run("--lock", lock, "-nE0", "true").returncode, 0, "... as letters together: -nE0")
    same(run("--lock", lock, "-w", "0.2", "--", "true").returncode, 75, "-w 0.2: seconds")
    same(run("--lock", lock, "-w0", "-E7", "true").returncode, 7, "-w0 -E7")
    same(run("--lock", lock, "--nonblock", "true").returncode, 75, "--nonblock")
    same(run("--lock", lock, "--timeout", "100ms", "true").returncode, 75, "--timeout")
    r = run("--lock", lock, "-q", "true")
    ok(r.returncode == 2 and "unknown option -q" in r.stderr, "an unknown letter is an error")
    r = run("--lock", lock, "-wait", "3s", "true")
    ok(r.returncode == 2 and "--wait" in r.stderr, "-wait is --wait with a dash too few, and no -w")
    ok(min(decision_s(lock) for _ in range(10)) < 0.2, "-n on a lock whose holder lives answers at its first look")
    ok(min(decision_s(record("f", -60)) for _ in range(3)) < 0.2, "... on another machine's too")
    holder.stop()
    same(
        run("-n", "--lock", record("g", 3600), "--", "true").returncode,
        0,
        "-n waits out the lease of a leader that vanished long ago: nobody would ever run again otherwise",
    )


for test in (test_ignored_signals, test_background, test_plain_name, test_restart, test_flock):
    test()
stop_everyone()
shutil.rmtree(directory, ignore_errors=True)
done()

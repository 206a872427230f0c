#!/usr/bin/env -S PYTHONPATH=. python3
"""The command line itself: help, suggestions, exit codes, versions, completion."""

import os
import re
import subprocess
from typing import Any

from tests.lib.commands import CLEAN, run
from tests.lib.processes import LUNARCH, ROOT, piped, scratch
from tests.lib.tap import done, note, ok, same

COMMANDS = "run exec leader status history list release check cron doctor test new ctl".split()


def refused(args: Any, words: Any, status: int = 2, env: Any = None) -> None:
    r = run(*args, env=env)
    if not ok(
        r.returncode == status and all(w in r.stderr for w in words) and not r.stdout,
        f"`lunarch {' '.join(args)}` ends with {status} and says: {', '.join(words)}",
    ):
        note(f"{r.returncode}: {r.stderr}{r.stdout}")


def test_help() -> None:
    r = run("--help")
    ok(r.returncode == 0 and all(f"lunarch {c} " in r.stdout for c in COMMANDS), "--help names every command")
    ok(run().returncode == 2 and "Usage" in run().stderr, "without a command the help goes to stderr, with status 2")
    for command in COMMANDS:
        r = run(command, "--help")
        ok(
            r.returncode == 0
            and all(w in r.stdout for w in (f"Usage: lunarch {command}", "Examples:", "Exit status", "--help"))
            or command == "ctl"
            and "Commands:" in r.stdout,
            f"{command} --help has usage, options, exit statuses and examples",
        )
        ok(
            r.stdout == run("help", command).stdout == run(command, "-h").stdout,
            f"help {command} and {command} -h are the same",
        )
        ok(max(map(len, r.stdout.splitlines())) <= 120, f"{command} --help fits into 120 columns")
    ok(
        run("run", "--help", env={"LUNARCH_RETRY_PERIOD": "nonsense"}).returncode == 0,
        "help is given whatever the environment says",
    )


def test_kube_scheduler() -> None:
    """Options for people who come from kube-scheduler."""
    r = run("run", "--leader-elect=false", "-e", "print(term.lock, term:is_leading()) lunarch.exit(0)")
    ok(r.returncode == 0 and "none:\ttrue" in r.stderr, "--leader-elect=false: this replica works, whoever else does")
    r = run("exec", "--leader-elect=false", "--", "echo", "worked")
    same((r.returncode, r.stdout), (0, "worked\n"), "exec too, and it needs no --lock")
    two = [
        subprocess.Popen(
            [LUNARCH, "run", "--leader-elect=false", "-e", "io.write('up') io.flush() sleep(1000)"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=CLEAN,
        )
        for _ in range(2)
    ]
    same([piped(p.stdout).read(2) for p in two], [b"up", b"up"], "two of them work at once")
    for p in two:
        p.terminate()
    same([p.wait(60) for p in two], [0, 0], "and stop as any other")
    r = run(
        "check",
        "--leader-elect-lease-duration=3s",
        "--leader-elect-renew-deadline",
        "2s",
        "--leader-elect-retry-period=500ms",
        "--leader-elect=false",
        "-e",
        "x = 1",
    )
    ok(
        all(w in r.stdout for w in ("lease 3s", "renew deadline 2s", "retry period 500ms")),
        "its names of the durations",
    )
    for command in (["run", "-e", "print(1)"], ["exec", "--", "true"]):
        refused(
            [command[0], "--leader-elect-resource-namespace=ns", *command[1:]], ["needs --leader-elect-resource-name"]
        )
        refused([command[0], "--leader-elect-resource-name=n", "--lock=x", *command[1:]], ["--lock both say where"])
        refused(
            [command[0], "--leader-elect-resource-name=n", "--leader-elect-resource-lock=pods", *command[1:]],
            ["'pods' is none of leases|configmaps"],
        )


def test_bad_locks() -> None:
    for lock, words in (("/no/such/place/x", ["/no/such/place"]), ("nothing://x", ["no such kind of lock"])):
        for command in (["run", "-e", "print(1)"], ["exec", "true"]):
            r = run(command[0], "--lock", lock, *command[1:])
            ok(
                r.returncode in (2, 69) and all(w in r.stderr for w in words),
                f"{command[0]} --lock {lock} says what is wrong",
            )


def test_version() -> None:
    r = run("--version")
    ok(
        r.returncode == 0
        and all(w in r.stdout for w in ("lunarch ", "Lua 5.4", "libev 4", "jansson 2", "locks: file")),
        "--version names the libraries and the locks",
    )
    same(run("run", "--version").stdout, r.stdout, "as an option of a command too")


def test_refusals() -> None:
    refused(["rnu"], ["unknown command 'rnu'", "did you mean `lunarch run`?"])
    refused(["backup.lua"], ["did you mean `lunarch run backup.lua`?"])
    refused(["frobnicate"], ["`lunarch --help`"])
    refused(["help", "statsu"], ["did you mean `lunarch status`?"])
    refused(["run", "--lok", "x", "a.lua"], ["unknown option --lok", "did you mean --lock?"])
    refused(["run", "--lease-duration", "15", "a.lua"], ["--lease-duration", "'15'", "unit"])
    refused(["exec", "--lock", "x", "--restart", "sometimes", "true"], ["'sometimes'", "never|on-loss|always"])
    refused(["exec", "true"], ["lunarch exec --lock"])
    refused(["leader"], ["lunarch leader --lock URL"])
    refused(["status"], ["lunarch status --lock URL"])
    refused(["check"], ["lunarch check SCRIPT.lua"])
    refused(["check", "-e", "x = 1", "a.lua"], ["not both"])
    refused(["ctl"], ["which command"])
    refused(["ctl", "resing"], ["'resing'", "did you mean resign?"])
    refused(["ctl", "resign", "30"], ["'30'", "unit"])
    refused(["ctl", "pause", "30s"], ["unexpected argument '30s'"])
    refused(["status", "--lock", "mars://x/y"], ["mars", "file"])
    refused(
        ["exec", "--lock", "x", "--", "true"], ["LUNARCH_LEASE_DURATION", "'1x'"], env={"LUNARCH_LEASE_DURATION": "1x"}
    )
    refused(
        ["exec", "--lock", "x", "--lease-duration", "5s", "--renew-deadline", "5s", "--", "true"],
        ["5s from --lease-duration", "5s from --renew-deadline", "shorter"],
    )
    refused(["run", "--", "a.lua"], ["script"])
    refused(["exec", "--lock", "a", "--bad"], ["--bad"])


def test_output_is_plain() -> None:
    r = run("status", "--lock", "/nowhere/\033[2Jx")
    ok(
        "\033" not in r.stderr and "\\x1b" in r.stderr,
        "an error that quotes an argument shows its control characters as text",
    )


def complete(line: str) -> Any:
    words = line.split(" ")
    script = (
        f"source {ROOT}/scripts/completion.bash; COMP_WORDS=({' '.join(repr(w) for w in words)}); "
        f"COMP_CWORD={len(words) - 1}; _lunarch; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    )
    path = os.path.dirname(LUNARCH) + ":" + os.environ["PATH"]
    r = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env={**CLEAN, "PATH": path}, timeout=60)
    return r.stdout.split()


def test_completion() -> None:
    same(complete("lunarch st"), ["status"], "completion: a command")
    same(complete("lunarch run --lock-"), [], "completion: nothing for what does not exist")
    same(complete("lunarch run --reta"), [], "completion: nor for what is misspelled")
    same(complete("lunarch run --ret"), ["--retry-period"], "completion: an option of that command")
    same(complete("lunarch leader --ret"), [], "completion: not one of another command")
    same(complete("lunarch run --log-format j"), ["json"], "completion: a value")
    same(complete("lunarch ctl is"), ["is-leading"], "completion: an order of ctl")
    same(sorted(complete("lunarch ")), sorted(COMMANDS + ["help", "--help", "--version"]), "completion: all commands")
    empty = scratch()
    open(os.path.join(empty, "a.lua"), "w").close()
    same(complete(f"lunarch run {empty}/"), [f"{empty}/a.lua"], "completion: a file")
    os.unlink(os.path.join(empty, "a.lua"))
    os.rmdir(empty)


def test_completion_of_values() -> None:
    here = scratch()
    for name in ("a.lua", "a_test.lua", "notes.txt"):
        open(os.path.join(here, name), "w").close()
    os.mkdir(os.path.join(here, "more"))
    more = f"{here}/more"
    same(
        sorted(complete(f"lunarch run {here}/")),
        [f"{here}/a.lua", f"{here}/a_test.lua", more],
        "completion: run: scripts",
    )
    same(
        sorted(complete(f"lunarch check {here}/a")),
        [f"{here}/a.lua", f"{here}/a_test.lua"],
        "completion: check: scripts",
    )
    same(sorted(complete(f"lunarch test {here}/")), [f"{here}/a_test.lua", more], "completion: test: tests")
    same(
        sorted(complete(f"lunarch run {here}/a.lua -- {here}/n")),
        [f"{here}/notes.txt"],
        "completion: any file behind --",
    )
    same(complete("lunarch exec --restart on"), ["on-loss"], "completion: a choice")
    same(complete("lunarch exec --lease-duration "), ["15s"], "completion: a preset")
    same(complete("lunarch exec -E "), ["75"], "completion: the value of a letter")
    same(complete("lunarch exec --log-level = d"), ["debug"], "completion: a value behind =")
    same(complete("lunarch run --leader-elect-resource-lock lea"), ["leases"], "completion: the kinds of a resource")
    ok("redis://" in complete("lunarch status --lock re"), "completion: the kinds of locks")
    same(complete("lunarch run --identity "), [], "completion: nothing for a value that only its user knows")
    same(complete("lunarch exec --lock x unshar"), ["unshare"], "completion: a program for exec")
    same(complete("lunarch exec --lock x -- unshar"), ["unshare"], "completion: and behind --")
    same(sorted(complete(f"lunarch exec --lock x cat {here}/n")), [f"{here}/notes.txt"], "completion: then its files")
    ok("--lock" in complete("lunarch doctor "), "completion: options where nothing else can stand")
    same(complete("lunarch help st"), ["status"], "completion: help of a command")
    ok("term:resign" in complete("lunarch help api term:re"), "completion: help of a function")
    state = ["--state-dir", here]
    p = subprocess.Popen(
        [LUNARCH, "run", *state, "--lock", here + "/lock", "-e", "print 'up' sleep(1000)"],
        stderr=subprocess.PIPE,
        text=True,
        env=CLEAN,
    )
    piped(p.stderr).readline()
    listed = re.findall(r"^pid \d+  (.*)$", run("ctl", "--list", *state).stdout, re.M)
    ok(len(listed) == 1 and listed[0].startswith(here), "an elector has a socket", listed)
    same(
        complete(f"lunarch ctl --state-dir {here} --control "),
        listed,
        "completion: the sockets of the electors that run",
    )
    p.terminate()
    p.wait(60)


def test_completion_of_everything() -> None:
    """In one bash, which has the file sourced and asks for the function that `complete` has registered."""
    wanted = {}
    for command in COMMANDS:
        text = run(command, "--help").stdout.split("\nOptions:\n")[1].split("\n\n")[0]
        wanted[command] = sorted(re.findall(r"^  (?:-\w|  ) (--[a-z-]+)", text, re.M))
    script = [
        f"source {ROOT}/scripts/completion.bash",
        'set -- $(complete -p lunarch); [ "$3" = _lunarch ] || echo unregistered',
        'try() { COMP_WORDS=(lunarch "$@"); COMP_CWORD=$#; COMPREPLY=(); _lunarch; echo "$*:${COMPREPLY[*]}"; }',
    ]
    for command in COMMANDS:
        script += [f"try {command}", f"try {command} --"] + [f"try {command} {option}" for option in wanted[command]]
    path = os.path.dirname(LUNARCH) + ":" + os.environ["PATH"]
    r = subprocess.run(
        ["bash", "-u", "-c", "\n".join(script)],
        capture_output=True,
        text=True,
        env={**CLEAN, "PATH": path},
        timeout=300,
    )
    got = dict(line.split(":", 1) for line in r.stdout.splitlines() if ":" in line)
    same(("unregistered" in r.stdout, r.stderr), (False, ""), "completion: bash takes the file without a word")
    for command in COMMANDS:
        ok(len(wanted[command]) >= 2, f"{command} has options")
        same(got.get(command), command, f"completion: {command}")
        same(
            sorted(got.get(f"{command} --", "").split()),
            wanted[command],
            f"completion: every option that {command} --help names, and no other",
        )
        missed = [o for o in wanted[command] if o not in got.get(f"{command} {o}", "").split()]
        same(missed, [], "completion: each of them by its name")


def test_closed_descriptors() -> None:
    r = subprocess.run(
        ["sh", "-c", f"exec '{LUNARCH}' --version 0<&- 2>&-"], capture_output=True, text=True, timeout=60
    )
    ok(r.returncode == 0 and "locks" in r.stdout, "it runs with stdin and stderr closed")


test_help()
test_version()
test_kube_scheduler()
test_bad_locks()
test_refusals()
test_output_is_plain()
test_completion()
test_completion_of_values()
test_completion_of_everything()
test_closed_descriptors()
done()

#!/usr/bin/env -S PYTHONPATH=. python3
"""The command line itself: help, suggestions, exit codes, versions. What is parsed how: unit/config/test_options.c."""

import subprocess

from tests.lib.commands import CLEAN, COMMANDS, run
from tests.lib.processes import LUNARCH, piped
from tests.lib.tap import done, note, ok, same


def refused(args: list[str], words: list[str], status: int = 2, env: dict[str, str] | None = None) -> None:
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
    refused(["run", "--lease-duration", "15", "a.lua"], ["--lease-duration", "'15'", "unit"])
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
    refused(["run", "--", "a.lua"], ["script"])
    refused(["exec", "--lock", "a", "--bad"], ["--bad"])


def test_output_is_plain() -> None:
    r = run("status", "--lock", "/nowhere/\033[2Jx")
    ok(
        "\033" not in r.stderr and "\\x1b" in r.stderr,
        "an error that quotes an argument shows its control characters as text",
    )


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
test_closed_descriptors()
done()

#!/usr/bin/env -S PYTHONPATH=. python3
"""What ps shows of the processes that Lunarch starts itself: what each is, and of which script or command."""

import atexit
import os
import subprocess

from tests.lib.candidates import STEADY, Candidate, stop_everyone
from tests.lib.processes import LUNARCH, children, scratch, wait_for
from tests.lib.tap import ok, run, same

TMP = scratch()
atexit.register(stop_everyone)


def shown(pid: int, column: str) -> str:
    """A column of ps, as people see it."""
    return subprocess.run(["ps", "-o", column + "=", "-p", str(pid)], capture_output=True, text=True).stdout.strip()


def environment(pid: int) -> list[bytes]:
    with open(f"/proc/{pid}/environ", "rb") as f:
        return f.read().split(b"\0")


def test_run() -> None:
    """guard and worker of a script"""
    path = os.path.join(TMP, "backup.lua")
    with open(path, "w") as f:
        f.write("return { on_leading = function() print(arg[0], arg[1], #arg) end }\n")
    c = Candidate("--lock", TMP + "/lock", path, "--", "an argument", "another", options=STEADY)
    same((c.wait("print") or {}).get("message"), f"{path}\tan argument\t2", "the script has its arguments")
    guard, worker = c.guard(), c.worker()
    wait_for(lambda: "guard" in shown(guard, "args"))
    same(
        (shown(guard, "args"), shown(worker, "args")),
        ("lunarch: guard backup", "lunarch: worker backup"),
        "ps: what they are, and of which script",
    )
    same((shown(guard, "comm"), shown(worker, "comm")), ("lunarch-guard", "lunarch-worker"), "and their short names")
    for name, pid in (("guard", guard), ("worker", worker)):
        ok(
            any(e.startswith(b"LUNARCH_TREE=") for e in environment(pid)),
            f"{name}: its environment is what it was, so that its death can be proved",
        )
    c.kill()
    ok(wait_for(lambda: not os.path.exists(f"/proc/{worker}")), "and they end with their elector")


def test_eval() -> None:
    """those of a text"""
    c = Candidate("--lock", TMP + "/text", "-e", "print 'leading'", options=STEADY)
    c.wait("print")
    same(shown(c.worker(), "args"), "lunarch: worker -e", "ps: a text has no name")


def test_exec() -> None:
    """the guard of a command"""
    p = subprocess.Popen(
        [LUNARCH, "exec", "--lock", TMP + "/exec", "--", "/bin/sleep", "1000"], stderr=subprocess.DEVNULL
    )
    guard = wait_for(lambda: children(p.pid))[0]
    ok(wait_for(lambda: shown(guard, "args") == "lunarch: guard sleep"), "ps: the command's name", shown(guard, "args"))
    ok(wait_for(lambda: [shown(c, "args") for c in children(guard)] == ["/bin/sleep 1000"]), "the command has its own")
    p.terminate()
    p.wait(60)


run([test_run, test_eval, test_exec])

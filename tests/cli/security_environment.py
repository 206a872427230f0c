#!/usr/bin/env -S PYTHONPATH=. python3
"""An environment that somebody else has made, as under a sudo that keeps it: which of its variables lead to another's
code, and which do not."""

import atexit
import os
import subprocess

from tests.lib.candidates import Candidate, stop_everyone
from tests.lib.hostile import ATTACKER, CLEAN, directory, lunarch
from tests.lib.processes import LUNARCH, scratch
from tests.lib.tap import ok, run, same, skip

TMP = scratch()
os.chmod(TMP, 0o755)
atexit.register(stop_everyone)
STATE = ["--state-dir", f"{TMP}/state"]
THEIRS = directory(f"{TMP}/theirs", 0o755, ATTACKER if os.geteuid() == 0 else os.geteuid())
CALLED = f"{TMP}/called"
NAMES = (
    "lunarch sh bash env sleep true ps kill setsid flock timeout psql redis-cli aws cp cat mv nice id hostname".split()
)


def make(name: str, text: str, mode: int = 0o755) -> str:
    path = f"{THEIRS}/{name}"
    with open(path, "w") as f:
        f.write(text)
    os.chmod(path, mode)
    if os.geteuid() == 0:
        os.chown(path, ATTACKER, ATTACKER)
    return path


def called() -> list[str]:
    if not os.path.exists(CALLED):
        return []
    with open(CALLED) as f:
        names = f.read().split()
    os.unlink(CALLED)
    return names


def test_path() -> None:
    """PATH: nothing that the program itself needs is looked for there"""
    for name in NAMES:
        make(name, f"#!/bin/sh\necho {name} >>{CALLED}\n")
    env = {"PATH": f"{THEIRS}:{os.environ['PATH']}"}
    for args in (
        ("exec", *STATE, "--lock", "a", "-c", ":"),
        ("exec", *STATE, "--lock", "a", "/bin/true"),
        ("run", *STATE, "--once", "--lock", "b", "-e", "os.exit()"),
        ("doctor", *STATE, "--lock", "c"),
        ("status", *STATE, "--lock", "a"),
        ("list", *STATE),
        ("ctl", *STATE, "--list"),
    ):
        lunarch(*args, env=env)
        same(called(), [], f"{args[0]} {args[-1]}: none of the programs in PATH is run")
    lunarch("exec", *STATE, "--lock", "a", "true", env=env)
    same(called(), ["true"], "a command that is given by its name is found by PATH, as by any shell")


def test_lua() -> None:
    """LUA_PATH and its like, and the current directory"""
    make("mine.lua", f"os.execute('echo mine >>{CALLED}') return {{}}")
    variables = ("LUA_PATH", "LUA_PATH_5_4", "LUA_CPATH", "LUA_CPATH_5_4", "LUA_INIT", "LUA_INIT_5_4")
    env = {name: f"@{THEIRS}/mine.lua" if "INIT" in name else f"{THEIRS}/?.lua" for name in variables}
    script = "pcall(require, 'mine') os.exit()"
    r = subprocess.run(
        [
            *("sh", "-c", 'cd "$0" && exec "$@"', THEIRS),
            *(LUNARCH, "run", *STATE),
            *("--once", "--lock", "lua", "-e", script),
        ],
        capture_output=True,
        text=True,
        env={**CLEAN, **env},
        timeout=60,
    )
    same((r.returncode, called()), (0, []), "no module is taken from where they say, nor from the current directory")


def test_lock_files() -> None:
    """LUNARCH_LOCKS_DIR: a lock file of another user's"""
    if os.geteuid() != 0:
        skip("another user's lock file", "only root can be several users")
        return
    make("theirs.lua", f"os.execute('echo lock >>{CALLED}') return {{}}", 0o644)
    env = {"LUNARCH_LOCKS_DIR": THEIRS}
    for lock in ("theirs://host/key", f"lua:{THEIRS}/theirs.lua#key"):
        r = lunarch("exec", "-n", "--lock", lock, "true", env=env)
        ok(r.returncode != 0 and f"belongs to {ATTACKER}" in r.stderr, f"{lock}: is not run, and its owner is named", r)
    os.chown(f"{THEIRS}/theirs.lua", 0, 0)
    os.chmod(f"{THEIRS}/theirs.lua", 0o666)
    r = lunarch("exec", "-n", "--lock", "theirs://host/key", "true", env=env)
    ok(r.returncode != 0 and "everybody" in r.stderr, "nor one that everybody may write", r)
    same(called(), [], "none of it was run")


def test_preload() -> None:
    """LD_PRELOAD, LD_LIBRARY_PATH: the program is not set-user-ID, so the loader obeys; this says that it is so"""
    c = Candidate(*STATE, "--lock", "mode", "-e", "return { on_leading = function() end }", env=CLEAN)
    c.event("became_leader")
    mode = os.stat(f"/proc/{c.pid}/exe").st_mode
    same(mode & 0o6000, 0, "the program has neither set-user-ID nor set-group-ID: who sets its environment is its user")
    c.stop()


run([test_path, test_lua, test_lock_files, test_preload])

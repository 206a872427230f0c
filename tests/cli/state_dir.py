#!/usr/bin/env -S PYTHONPATH=. python3
"""Where plain-name locks, tree files and control sockets lie: the user's directory or --state-dir, whatever the
environment says. In a mount namespace of its own, so that the user's directory holds nobody else's files."""

import atexit
import os
import shutil
import signal
import subprocess
from typing import Any

from tests.lib import apart
from tests.lib.candidates import Candidate, stop_everyone
from tests.lib.processes import LUNARCH, scratch, socket_name
from tests.lib.tap import done, ok, same, skip

apart.enter()
ROOT_USER = os.environ[apart.VARIABLE] == "0"
TMP = scratch()
os.chmod(TMP, 0o777)
atexit.register(shutil.rmtree, TMP, True)
atexit.register(stop_everyone)
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith(("LUNARCH_", "RUNTIME_", "STATE_", "XDG_"))}
USER = 1_000_000_000 + os.getpid()  # without an entry in the password file, and with a directory in /tmp of its own
AS_USER = ["setpriv", "--reuid", str(USER), "--regid", str(USER), "--clear-groups"]
IDLE = "return { on_leading = function() end }"


def run(*args: str, env: Any = None, prefix: Any = ()) -> Any:
    return subprocess.run(
        [*prefix, LUNARCH, *args], capture_output=True, text=True, timeout=120, env={**CLEAN, **(env or {})}
    )


def where(*options: str, env: Any = None) -> str:
    """The lock that the name `nightly` means."""
    return run("exec", *options, "--lock", "nightly", "-c", 'echo "$LUNARCH_TERM_LOCK"', env=env).stdout.strip()


def test_environment() -> None:
    names = ["HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "RUNTIME_DIRECTORY", "STATE_DIRECTORY", "LUNARCH_STATE_DIR"]
    env = {name: os.path.join(TMP, name) for name in names}
    for directory in env.values():
        os.mkdir(directory)
    same(where(), "file:/var/lib/lunarch/nightly", "root's plain names are in /var/lib/lunarch, as in older versions")
    same(where(env=env), where(), "whatever the environment says")
    same([n for n, d in env.items() if os.listdir(d)], [], "... and nothing is put where it points to")


def test_given() -> None:
    home = os.path.join(TMP, "state")
    os.symlink(home, os.path.join(TMP, "link"))
    here = ["--state-dir", home]
    a = Candidate(*here, "--lock", "nightly", "-e", IDLE, env={"LUNARCH_STATE_DIR": "/nowhere"})
    a.wait("became_leader")
    kinds = sorted(n if not n.endswith(".tree") else ".tree" for n in os.listdir(home))
    same(kinds, [".nightly.lock", ".tree", "ctl", "nightly"], "--state-dir DIR: lock, tree file and sockets are in DIR")
    same(os.stat(home).st_mode & 0o777, 0o700, "... which is made, for its user alone")
    same(run("exec", *here, "-n", "--lock", "nightly", "true").returncode, 75, "exec sees the lock there")
    link = ["--state-dir", os.path.join(TMP, "link")]
    same(run("exec", *link, "-n", "--lock", "nightly", "true").returncode, 75, "... by another path to DIR, too")
    same(run("exec", "-n", "--lock", "nightly", "true").returncode, 0, "without --state-dir it is another lock")
    ok("nightly" in run("list", *here).stdout, "list shows it")
    same(run("status", *here, "--lock", "nightly").returncode, 0, "status reads it")
    ok(str(a.pid) in run("ctl", *here, "--list").stdout, "ctl --list finds the elector")
    same(run("ctl", *here, "is-leading").returncode, 0, "ctl asks it")
    same(run("ctl", "--list").returncode, 1, "... which it does not without --state-dir")
    b = Candidate(*link, "--lock", "nightly", "-e", IDLE)
    b.wait("new_leader")
    a.kill(signal.SIGKILL)
    ok(b.wait("holder_dead"), "a death beside the locks of DIR is proved, not waited for")
    b.stop()
    r = run("exec", "--state-dir", "/no/such/place", "--lock", "nightly", "true")
    ok(r.returncode == 2 and "/no/such/place" in r.stderr, "a DIR that cannot be made is an error, not a warning")
    r = run("run", "--state-dir", "/proc/self", "--lock", "nightly", "-e", IDLE)
    ok(r.returncode == 2 and "/proc/self" in r.stderr, "... and one that cannot be written to")


def test_homeless() -> None:
    """A user without a home, as in the pods of examples/kubernetes."""
    lock = os.path.join(TMP, "open")
    sockets = f"/tmp/lunarch-{USER}"
    if not ROOT_USER:
        skip("a user without a home", "only root can be one")
        return
    r = run("exec", "--lock", "nightly", "true", prefix=AS_USER)
    ok(r.returncode == 69 and '"nightly"' in r.stderr and "--state-dir" in r.stderr, "a plain name: says what to give")
    a = Candidate("--lock", lock, "-e", IDLE, prefix=AS_USER, env={"RUNTIME_DIRECTORY": ""})
    a.wait("became_leader")
    same(
        [e for e in a.events if e.get("level") in ("warn", "error")],
        [],
        "with another lock it starts without a warning",
    )
    r = run("ctl", "is-leading", prefix=AS_USER)
    ok(r.returncode == 0 and os.listdir(sockets) == [socket_name(a.pid)], "... and ctl works")
    a.stop()
    os.mkdir(f"{TMP}/runtime", 0o777)
    os.chown(f"{TMP}/runtime", USER, USER)
    env = {"RUNTIME_DIRECTORY": f"{TMP}/runtime:/elsewhere"}
    b = Candidate("--lock", lock, "-e", IDLE, prefix=AS_USER, env=env)
    b.wait("became_leader")
    same(os.listdir(f"{TMP}/runtime/ctl"), [socket_name(b.pid)], "under systemd the socket is in $RUNTIME_DIRECTORY")
    ok(f"{b.pid}" in run("ctl", "--list", prefix=AS_USER, env=env).stdout, "... where ctl finds it")
    b.stop()
    os.makedirs(f"/run/user/{USER}")
    os.chown(f"/run/user/{USER}", USER, USER)
    c = Candidate("--lock", lock, "-e", IDLE, prefix=AS_USER, env={"RUNTIME_DIRECTORY": ""})
    c.wait("became_leader")
    same(os.listdir(f"/run/user/{USER}/lunarch"), [socket_name(c.pid)], "in a session it is in /run/user/UID")
    c.stop()
    shutil.rmtree(f"/run/user/{USER}")
    shutil.rmtree(sockets)
    os.mkdir(sockets, 0o777)
    d = Candidate("--lock", lock, "-e", IDLE, prefix=AS_USER, env={"RUNTIME_DIRECTORY": ""})
    d.wait("became_leader")
    os.rmdir(sockets)
    ok(d.all("no_control"), "a directory of somebody else's in /tmp is not used")


for test in (test_environment, test_given, test_homeless):
    test()
done()

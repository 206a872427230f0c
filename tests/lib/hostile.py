"""Other users of the machine, for tests of security: one who attacks, one who is attacked, and what the first plants.

Not their attacks: tests/cli/security_*.py say those. Only root can be several users."""

import os
import socket
import stat
import subprocess

from tests.lib.processes import LUNARCH, PATIENCE

# Without entries in the password file, and this test's own: nobody else's processes and files are theirs.
ATTACKER = 1_100_000_000 + os.getpid()
VICTIM = 1_200_000_000 + os.getpid()
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith(("LUNARCH_", "RUNTIME_", "STATE_", "XDG_"))}


def as_user(uid: int) -> list[str]:
    """What to put before a command line."""
    return ["setpriv", "--reuid", str(uid), "--regid", str(uid), "--clear-groups"] if uid != os.geteuid() else []


def lunarch(*args: str, uid: int = 0, env: dict[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*as_user(uid), LUNARCH, *args],
        capture_output=True,
        text=True,
        errors="replace",
        timeout=PATIENCE,
        stdin=subprocess.DEVNULL,
        env={**CLEAN, **(env or {})},
    )


def directory(path: str, mode: int, owner: int = 0) -> str:
    """Whatever the umask is."""
    os.mkdir(path)
    os.chown(path, owner, owner)
    os.chmod(path, mode)
    return path


def plant(kind: str, path: str, target: str = "", owner: int = ATTACKER) -> None:
    """symlink, hard link (to what the kernel may not let its planter link: root does it), fifo, socket, device,
    directory."""
    if kind == "symlink":
        os.symlink(target, path)
    elif kind == "hard link":
        os.link(target, path)
        return
    elif kind == "fifo":
        os.mkfifo(path, 0o666)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as s:
            s.bind(path)
    elif kind == "device":
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 5))
    elif kind == "directory":
        os.mkdir(path)
    os.lchown(path, owner, owner)

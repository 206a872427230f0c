#!/usr/bin/env -S PYTHONPATH=. python3
"""Who may give an elector orders: its own user and root, by the socket's mode and by the peer's credentials."""

import atexit
import os
import socket
import stat
import subprocess
import sys

from tests.lib.candidates import Candidate, stop_everyone
from tests.lib.hostile import ATTACKER, CLEAN, VICTIM, as_user, directory, lunarch
from tests.lib.processes import PATIENCE, scratch
from tests.lib.tap import ok, run, same, skip

TMP = scratch()
os.chmod(TMP, 0o755)
atexit.register(stop_everyone)
IDLE = "return { on_leading = function() end }"
ROOT = os.geteuid() == 0


def elector(name: str, uid: int) -> tuple[Candidate, str]:
    """Leading, with its socket in a directory of its user's."""
    home = directory(f"{TMP}/{name}", 0o700, uid)
    path = f"{home}/ctl.sock"
    arguments = ["--lock", f"{home}/lock", "--state-dir", f"{home}/state", "--control", path, "-e", IDLE]
    c = Candidate(*arguments, prefix=["sh", "-c", 'umask 0; exec "$@"', "sh", *as_user(uid)], env=CLEAN)
    c.event("became_leader")
    return c, path


def ask_raw(path: str, uid: int, command: str) -> str:
    """As a program of that user, which does not look at what ctl looks at."""
    code = "import socket, sys\ns = socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\n"
    code += (
        "try: s.sendall(b'POST /' + sys.argv[2].encode() + b' HTTP/1.0\\r\\n\\r\\n')\nexcept BrokenPipeError: pass\n"
    )
    code += "print(s.recv(65536).decode())"
    r = subprocess.run(
        [*as_user(uid), sys.executable, "-c", code, path, command], capture_output=True, text=True, timeout=PATIENCE
    )
    return r.stdout.strip() or r.stderr.strip().rsplit("\n", 1)[-1]


def test_modes() -> None:
    """The socket is its user's alone, whatever the umask is."""
    c, path = elector("modes", 0 if ROOT else os.geteuid())
    same(oct(os.lstat(path).st_mode), oct(stat.S_IFSOCK | 0o600), "a socket has the mode 0600, whatever the umask is")
    d = Candidate("--lock", f"{TMP}/modes/2", "--state-dir", f"{TMP}/modes/s", "-e", IDLE, env=CLEAN)
    d.event("became_leader")
    same(oct(os.stat(f"{TMP}/modes/s/ctl").st_mode & 0o7777), "0o700", "the directory that is made for sockets: 0700")
    c.stop()
    d.stop()


def test_peers() -> None:
    """Where the modes were opened by hand, the peer's credentials decide."""
    if not ROOT:
        skip("other users are refused", "only root can be several users")
        return
    c, path = elector("peers", VICTIM)
    said = ask_raw(path, ATTACKER, "resign")
    ok("Permission" in said, "another user does not reach the socket", said)
    os.chmod(os.path.dirname(path), 0o755)
    os.chmod(path, 0o666)
    for command in ("resign", "pause", "reload", "status", "handover"):
        said = ask_raw(path, ATTACKER, command)
        ok(
            '"ok":false' in said and f"user {VICTIM} and from root alone; you are user {ATTACKER}" in said,
            f"where the modes were opened: {command} by another user is refused, and both are named",
            said,
        )
    r = lunarch("ctl", "--control", path, "resign", uid=ATTACKER)
    ok(
        r.returncode != 0 and f"user {VICTIM} and from root alone" in r.stderr,
        "lunarch ctl prints the reason",
        r.stderr,
    )
    s = [socket.socket(socket.AF_UNIX) for _ in range(3)]
    for each in s:
        each.connect(path)
    same(lunarch("ctl", "--control", path, "is-leading", uid=VICTIM).returncode, 0, "its own user: it still leads")
    same(len(c.all("became_leader")), 1, "... in the same term")
    same(lunarch("ctl", "--control", path, "is-leading").returncode, 0, "root is answered")
    for each in s:
        each.close()
    c.stop()


run([test_modes, test_peers])

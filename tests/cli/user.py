#!/usr/bin/env -S PYTHONPATH=. python3
"""--user and --no-new-privs: all three processes are another user before anything is opened or started, and what is
started has no privileges. As root, with the user nobody."""

import os
import pwd
import shutil
import signal
import tempfile

from tests.lib.candidates import Candidate, stop_everyone
from tests.lib.commands import run
from tests.lib.processes import alive, scratch, wait_for
from tests.lib.tap import done, ok, same, skip

if os.geteuid() != 0:
    skip("another user", "this needs root")
    done()
NOBODY = pwd.getpwnam("nobody")
TMP = scratch()
os.chmod(TMP, 0o755)
OWN = os.path.join(TMP, "own")
os.mkdir(OWN)
os.chown(OWN, NOBODY.pw_uid, NOBODY.pw_gid)
LOCK = OWN + "/lock"
AS = ["--user", "nobody", "--state-dir", OWN]
STATUS = "cat /proc/self/status /proc/$PPID/status"


def fields(text: str, name: str) -> list[list[str]]:
    return [line.split()[1:] for line in text.splitlines() if line.startswith(name + ":")]


def become() -> None:
    """Root here has the groups 4 and 24, which are not to stay."""
    extra = ["setpriv", "--groups", "4,24"]
    r = run("exec", "--lock", LOCK, *AS, "-c", STATUS, prefix=extra)
    uid, gid = [str(NOBODY.pw_uid)] * 4, [str(NOBODY.pw_gid)] * 4
    same(fields(r.stdout, "Uid"), [uid, uid], "a command and its guard are the user")
    same(fields(r.stdout, "Gid"), [gid, gid], "and of its group")
    same(fields(r.stdout, "Groups"), [gid[:1]] * 2, "and of no group of root's")
    same(fields(r.stdout, "CapPrm"), [["0" * 16]] * 2, "without capabilities")
    same(os.stat(LOCK).st_uid, NOBODY.pw_uid, "the record is the user's")
    r = run("exec", "--lock", LOCK, *AS, "-c", 'echo "$HOME $USER $LOGNAME $SHELL"')
    same(r.stdout.split(), [NOBODY.pw_dir, "nobody", "nobody", NOBODY.pw_shell], "the environment says so, too")
    r = run("exec", "--lock", LOCK, "--user", "nobody:root", "--state-dir", OWN, "-c", "id -g; id -G")
    same(r.stdout.split(), ["0", "0"], "NAME:GROUP is another group")
    closed = os.path.join(TMP, "closed")
    os.mkdir(closed, 0o700)
    r = run("exec", "-n", "--lock", closed + "/lock", *AS, "true")
    ok(r.returncode not in (0, 75) and "Permission denied" in r.stderr, "what only root may open is refused", r.stderr)


def refuse() -> None:
    for user, says in (
        ("no-such-user", "no such user"),
        ("nobody:no-such-group", "no such group"),
        ("nobody:", "expected NAME"),
        ("", "expected NAME"),
    ):
        for command in (["exec", "--lock", LOCK], ["run", "-e", "print 'ran'", "--lock", LOCK]):
            r = run(*command, "--state-dir", OWN, "--user", user, *(["echo", "ran"] if command[0] == "exec" else []))
            ok(
                r.returncode == 2 and says in r.stderr and "ran" not in r.stdout + r.stderr.split("\n", 1)[1],
                f'{command[0]} --user "{user}" is refused: {says}',
                r.stderr,
            )
    nobody = ["setpriv", "--reuid", "nobody", "--regid", str(NOBODY.pw_gid), "--clear-groups"]
    r = run("exec", "--lock", LOCK, "--state-dir", OWN, "--user", "root", "echo", "ran", prefix=nobody)
    ok(
        r.returncode == 2 and "only root can" in r.stderr and not r.stdout,
        "who is not root becomes nobody else",
        r.stderr,
    )
    r = run("exec", "--lock", LOCK, *AS, "id", "-un", prefix=nobody)
    same(r.stdout.strip(), "nobody", "who is that user already, as by systemd's User=, goes on")


def die() -> None:
    """The elector has been root, so the kernel would hide it from its user, and its death could not be proved."""
    options = [*AS, "--lock", LOCK, "--lease-duration", "10m", "--renew-deadline", "5m", "--retry-period", "1s"]
    script = "return { on_leading = function() os.execute('setsid sleep 1000 & exec sleep 1000') end }"
    first = Candidate("-e", script, options=[*options, "--identity", "first"])
    first.event("became_leader")
    guard = first.guard()
    three = [first.pid, guard, first.worker()]
    uids = [os.stat(f"/proc/{pid}/environ").st_uid for pid in three]
    same(uids, [NOBODY.pw_uid] * 3, "elector, guard and worker are the user's, and its to look into")
    second = Candidate("-e", "return { on_leading = function() end }", options=[*options, "--identity", "second"])
    second.event("new_leader")
    for pid in (first.pid, guard):
        os.kill(pid, signal.SIGKILL)
    ok(second.wait("became_leader"), "a crash is proved by the user's next candidate, and no lease is waited out")
    ok(wait_for(lambda: not any(map(alive, three))), "nothing of the dead one lives")
    second.stop()


def drop() -> None:
    r = run("exec", "--lock", TMP + "/root", "--no-new-privs", "-c", STATUS)
    same(
        fields(r.stdout, "NoNewPrivs"), [["1"], ["0"]], "--no-new-privs: the command gains none, its guard is as before"
    )
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        same(fields(r.stdout, name)[0], ["0" * 16], f"{name} is empty")
    ok(fields(r.stdout, "CapEff")[1] != ["0" * 16], "the guard has root's: it must be able to kill")
    script = "for l in io.lines '/proc/self/status' do print(l) end"
    c = Candidate("-e", script, options=["--lock", TMP + "/root", "--no-new-privs"])
    ok(c.wait("print", "NoNewPrivs:\t1") and c.wait("print", "CapBnd:\t" + "0" * 16), "so it is with a worker")
    c.stop()
    directory = tempfile.mkdtemp()  # not in memory, where set-user-ID may count for nothing
    os.chmod(directory, 0o755)
    own = shutil.copy("/usr/bin/id", directory + "/id")
    os.chmod(own, 0o4755)
    r = run("exec", "--lock", LOCK, *AS, own, "-u")
    counts = not os.statvfs(own).f_flag & os.ST_NOSUID
    same(r.stdout.strip(), "0" if counts else str(NOBODY.pw_uid), "a set-user-ID program is root's")
    r = run("exec", "--lock", LOCK, *AS, "--no-new-privs", own, "-u")
    same(r.stdout.strip(), str(NOBODY.pw_uid), "and with --no-new-privs the user's")
    shutil.rmtree(directory)


try:
    become()
    refuse()
    die()
    drop()
finally:
    stop_everyone()
done()

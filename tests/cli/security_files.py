#!/usr/bin/env -S PYTHONPATH=. python3
"""What other users plant where root keeps locks, state and sockets: nothing of it is followed, overwritten, or hung on.

Each case is made in a directory like /tmp and in one that everybody may write into and that has no sticky bit: in the
latter no sysctl of the kernel (fs.protected_symlinks and its neighbours) protects anybody."""

import atexit
import ctypes
import os
import re
import stat
import time

from tests.lib.candidates import Candidate, stop_everyone
from tests.lib.hostile import ATTACKER, CLEAN, VICTIM, directory, lunarch, plant
from tests.lib.processes import scratch, wait_for
from tests.lib.tap import note, ok, run, same, skip

TMP = scratch()
os.chmod(TMP, 0o755)
atexit.register(stop_everyone)
IDLE = "return { on_leading = function() end }"
PRIVATE = directory(f"{TMP}/private", 0o755)  # where planted links lead: of the victim's, and of nobody else's
STATE = ["--state-dir", directory(f"{TMP}/state", 0o700)]
KINDS = {"sticky": 0o1777, "open": 0o777}


def quiet(where: str = PRIVATE) -> list[str]:
    """What has come to be in the private directory."""
    return sorted(os.listdir(where))


def once(lock: str, *more: str, uid: int = 0) -> tuple[int, str]:
    r = lunarch("exec", *STATE, "-n", "--log-format", "json", *more, "--lock", lock, "true", uid=uid)
    return r.returncode, r.stderr


def test_symlinks() -> None:
    """A symbolic link at a lock's path"""
    for kind, mode in KINDS.items():
        place = directory(f"{TMP}/links-{kind}", mode)
        plant("symlink", f"{place}/lock", f"{PRIVATE}/nologin")
        status, said = once(f"{place}/lock")
        ok(status not in (0, 75) and quiet() == [], f"{kind}: root does not follow another's link to nothing", said)
        ok(f"user {ATTACKER}" in said and f"{place}/lock" in said, "... and names the link and its owner", said)
        plant("symlink", f"{place}/way", PRIVATE)
        status, said = once(f"{place}/way/lock")
        ok(status not in (0, 75) and quiet() == [], f"{kind}: nor one on the way to the lock", said)
        os.symlink(f"{place}/way/x", f"{place}/own")
        status, said = once(f"{place}/own")
        ok(status not in (0, 75) and quiet() == [], f"{kind}: nor one that a link of its own leads to", said)
        os.symlink(f"{PRIVATE}/of-ours", f"{place}/ours")
        same(once(f"{place}/ours")[0], 0, f"{kind}: a link of root's is followed")
        ok("of-ours" in quiet(), "... and the lock is where it leads")
        for name in quiet():
            os.unlink(f"{PRIVATE}/{name}")
        plant("symlink", f"{place}/.beside.lock", f"{PRIVATE}/created")
        status, said = once(f"{place}/beside")
        ok(status not in (0, 75) and quiet() == [], f"{kind}: a link at the name of the kernel lock", said)
        os.chown(f"{place}/.beside.lock", 0, 0, follow_symlinks=False)
        ok(once(f"{place}/beside")[0] not in (0, 75) and quiet() == [], "... whoever made it")
    theirs = directory(f"{TMP}/links-theirs", 0o755, ATTACKER)
    plant("symlink", f"{theirs}/lock", f"{TMP}/links-elsewhere")
    same(once(f"{theirs}/lock")[0], 0, "who has a directory that nobody else may write into decides where it leads")


def test_victims() -> None:
    """For a user who is not root the rule is the same."""
    mine = directory(f"{TMP}/victims", 0o700, VICTIM)
    home = ["--state-dir", directory(f"{TMP}/victims-state", 0o700, VICTIM)]
    for kind, mode in KINDS.items():
        place = directory(f"{TMP}/victims-{kind}", mode)
        plant("symlink", f"{place}/lock", f"{mine}/bashrc")
        r = lunarch("exec", *home, "-n", "--lock", f"{place}/lock", "true", uid=VICTIM)
        ok(r.returncode not in (0, 75) and quiet(mine) == [], f"{kind}: another's link is not followed", r.stderr)


def test_swapped() -> None:
    """A directory that becomes a link while a candidate leads"""
    for kind, mode in KINDS.items():
        place = directory(f"{TMP}/swap-{kind}", mode)
        directory(f"{place}/locks", 0o777, ATTACKER)
        c = Candidate(*STATE, "--lock", f"{place}/locks/lock", "-e", IDLE, env=CLEAN)
        c.event("became_leader")
        os.rename(f"{place}/locks", f"{place}/gone")
        plant("symlink", f"{place}/locks", PRIVATE)
        # In a directory like /tmp the kernel may be first to refuse, with another reason. A look in the moment in which
        # there was neither directory nor link says so first.
        reasons = ["symbolic link"] + (["denied"] if kind == "sticky" else [])
        ok(
            wait_for(lambda: any(c.all("read_failed", reason) for reason in reasons)),
            f"{kind}: nothing is read where it leads, and the log says why",
            str(c.all("read_failed")),
        )
        c.event("stopped_leading")
        same(quiet(), [], "... nor written")
        c.stop()


def next_temporary(place: str) -> tuple[str, int]:
    """What an attacker sees who watches the directory: the name of a temporary file up to its number, and that. The
    names cannot be guessed, but who has seen one knows the next ones (inotify(7), IN_CREATE)."""
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.inotify_init()
    assert libc.inotify_add_watch(fd, place.encode(), 0x100) >= 0
    found = None
    while not found:
        found = re.search(rb"(\.lock\.[0-9a-f]+(?:-\d+)+-)(\d+)\.tmp", os.read(fd, 65536))
    os.close(fd)
    return found[1].decode(), int(found[2])


def test_next_and_temporaries() -> None:
    """Links at the names beside a record: of who comes next, and of files that become the record"""
    place = directory(f"{TMP}/beside", 0o777)
    plant("symlink", f"{place}/.lock.next", f"{PRIVATE}/next")
    c = Candidate(*STATE, "--lock", f"{place}/lock", "-e", IDLE, env=CLEAN)
    c.event("became_leader")
    d = Candidate(*STATE, "--lock", f"{place}/lock", "-e", IDLE, env=CLEAN)
    d.event("new_leader")
    c.stop()
    d.event("became_leader")
    ok(quiet() == [], "who comes next is not written where a link leads")
    before, serial = next_temporary(place)
    for n in range(serial + 1, serial + 400):
        plant("symlink", f"{place}/{before}{n}.tmp", f"{PRIVATE}/temp{n}")
    hit = d.wait("renew_failed")
    ok(
        hit and "beside the record" in hit["message"],
        "a link at the next temporary name: the write fails, and says so",
        hit,
    )
    same(quiet(), [], "... and nothing is made where it leads")
    d.stop()


def test_hard_links() -> None:
    """A hard link at a lock's path, to a file of the victim's"""
    for kind, mode in KINDS.items():
        place = directory(f"{TMP}/hard-{kind}", mode)
        with open(f"{place}-precious", "w") as f:
            f.write("precious")
        plant("hard link", f"{place}/lock", f"{place}-precious")
        status, said = once(f"{place}/lock")
        with open(f"{place}-precious") as f:
            ok(status not in (0, 75) and f.read() == "precious", f"{kind}: what is no record is left alone", said)
        same(once(f"{place}-record", "--at-least", "1ms")[0], 0, "there is another lock's record")
        with open(f"{place}-record") as f:
            before = f.read()
        mode_before = os.stat(f"{place}-record").st_mode
        plant("hard link", f"{place}/other", f"{place}-record")
        once(f"{place}/other")
        with open(f"{place}-record") as f:
            same(f.read(), before, f"{kind}: a link to another lock's record: that record stays as it was")
        same(os.stat(f"{place}-record").st_mode, mode_before, "... its mode too")
        plant("hard link", f"{place}/.beside.lock", f"{place}-precious")
        once(f"{place}/beside")
        with open(f"{place}-precious") as f:
            same(f.read(), "precious", f"{kind}: a link at the name of the kernel lock: nothing is written there")


def test_kinds() -> None:
    """Pipes, sockets and devices: nobody waits for whoever is at the other end."""
    for kind, mode in KINDS.items():
        place = directory(f"{TMP}/kinds-{kind}", mode)
        for what in ("fifo", "socket", "device", "directory"):
            plant(what, f"{place}/{what}")
            status, said = once(f"{place}/{what}")  # a hang is the end of this test
            ok(status not in (0, 75) and f"{place}/{what}" in said, f"{kind}: a {what} is refused, and named", said)
            ok(os.path.lexists(f"{place}/{what}"), "... and left there")
            plant(what, f"{place}/.beside-{what}.lock")
            began = time.monotonic()
            once(f"{place}/beside-{what}")
            ok(time.monotonic() - began < 30, f"{kind}: a {what} at the name of the kernel lock hangs nobody")


def test_state_dir() -> None:
    """A state directory that others can write into, or that is another's"""
    for kind, mode in KINDS.items():
        place = directory(f"{TMP}/state-{kind}", mode)
        plant("symlink", f"{place}/ctl", PRIVATE)
        c = Candidate("--state-dir", place, "--lock", f"{TMP}/state-lock-{kind}", "-e", IDLE, env=CLEAN)
        c.event("became_leader")
        said = c.event("state_dir_shared")["message"]
        ok(place in said and "everybody" in said and f"{mode:04o}" in said, f"{kind}: a warning with the reason", said)
        said = c.event("no_control")["message"]
        ok(f"{place}/ctl" in said, "... sockets are not put where a link leads", said)
        same(quiet(), [], "... and nothing is made there")
        c.stop()
        os.unlink(f"{place}/ctl")
        directory(f"{place}/ctl", 0o755, ATTACKER)
        plant("socket", f"{place}/ctl/1.sock")
        c = Candidate("--state-dir", place, "--lock", f"{TMP}/state-lock-{kind}", "-e", IDLE, env=CLEAN)
        said = c.event("no_control")["message"]
        ok(f"user {ATTACKER}" in said, f"{kind}: nor into another's directory", said)
        r = lunarch("ctl", "--state-dir", place, "why")
        ok(r.returncode and f"user {ATTACKER}" in r.stderr, f"{kind}: and ctl asks nobody there", r.stderr)
        ok(os.path.lexists(f"{place}/ctl/1.sock"), "... and removes nothing")
        c.stop()
    theirs = directory(f"{TMP}/state-theirs", 0o755, ATTACKER)
    c = Candidate("--state-dir", theirs, "--lock", f"{TMP}/state-lock", "-e", IDLE, env=CLEAN)
    said = c.event("state_dir_shared")["message"]
    ok(f"user {ATTACKER}" in said, "another's state directory: a warning that names the owner", said)
    c.stop()
    place = directory(f"{TMP}/state-link", 0o777)
    plant("symlink", f"{place}/home", PRIVATE)
    r = lunarch("exec", "--state-dir", f"{place}/home", "--lock", "plain", "true")
    ok(
        r.returncode == 2 and f"user {ATTACKER}" in r.stderr,
        "a state directory that is another's link: refused",
        r.stderr,
    )
    same(quiet(), [], "... and nothing is made there")
    c = Candidate("--state-dir", f"{TMP}/state", "--lock", f"{TMP}/state-lock", "-e", IDLE, env=CLEAN)
    c.event("became_leader")
    same(c.all("state_dir_shared") + c.all("no_control"), [], "one's own, mode 0700: no warning")
    c.stop()


def test_sockets() -> None:
    """What is planted where a control socket should be"""
    place = directory(f"{TMP}/sockets", 0o777)
    with open(f"{PRIVATE}/file", "w") as f:
        f.write("precious")
    for what in ("symlink", "fifo", "device", "hard link", "socket"):
        path = f"{place}/{what}.sock"
        plant(what, path, f"{PRIVATE}/file")
        c = Candidate(*STATE, "--lock", f"{TMP}/sockets-{what}", "--control", path, "-e", IDLE, env=CLEAN)
        c.event("became_leader")
        if what == "socket":  # that nobody listens at: as one that was left behind
            ok(stat.S_IMODE(os.lstat(path).st_mode) == 0o600, "a dead socket is replaced by one of our own")
        else:
            ok(c.wait("no_control", path), f"{what}: there is no control socket, and the log says so")
            ok(os.path.lexists(path), "... what was planted is left there")
        c.stop()
    with open(f"{PRIVATE}/file") as f:
        same(f.read(), "precious", "nothing was written through any of them")
    os.unlink(f"{PRIVATE}/file")


def test_sysctls() -> None:
    """Which of the kernel's protections were on, for whoever reads this test's output"""
    for name in ("symlinks", "hardlinks", "fifos", "regular"):
        path = f"/proc/sys/fs/protected_{name}"
        if os.path.exists(path):
            with open(path) as f:
                note(f"fs.protected_{name} = {f.read().strip()}")
    ok(True, "none of them is needed in a directory without the sticky bit")


if os.geteuid() != 0:
    skip("what other users plant", "only root can be several users")
    run([])
run(
    [
        test_symlinks,
        test_victims,
        test_swapped,
        test_next_and_temporaries,
        test_hard_links,
        test_kinds,
        test_state_dir,
        test_sockets,
        test_sysctls,
    ]
)

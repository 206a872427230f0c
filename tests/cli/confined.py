#!/usr/bin/env -S PYTHONPATH=. python3
"""Where a machine or a container gives less than usual (docs/platforms.md): a command and a script lead there, and what
the command leaves behind is ended. As root, with mount namespaces."""

import os
from collections.abc import Iterable

from tests.lib.commands import run
from tests.lib.processes import ROOT, scratch
from tests.lib.tap import done, ok, same, skip

if os.geteuid() != 0:
    skip("less than usual", "this needs root")
    done()
MOUNTS = ["unshare", "--mount", "--propagation", "private"]
NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
NO_EXECUTION = [d for d in ("/tmp", "/var/tmp", "/dev/shm") if not ROOT.startswith(d + "/")]
LEADS = 'return { on_leading = function() print "leads" lunarch.exit(0) end }'
# What is done before, and a command that succeeds only where that is so. $0: a directory to write to.
PLACES = {
    "a user namespace": (
        ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc"],
        '[ "$(wc -l </proc/self/uid_map)" = 1 ] && ! grep -q 4294967295 /proc/self/uid_map',
    ),
    "a root that is read-only, but for the state directory": (
        [*MOUNTS, "sh", "-c", 'mount --rbind "$0" "$0" && mount -o remount,bind,ro / && exec "$@"'],
        "! touch /var/tmp/x 2>/dev/null && ! touch /x 2>/dev/null",
    ),
    "directories without execution": (
        [*MOUNTS, "sh", "-c", 'for d in "$0" $PLACES; do mount -t tmpfs -o noexec,nosuid t "$d"; done; exec "$@"'],
        "for d in $PLACES; do cp /bin/true $d/true && ! $d/true 2>/dev/null || exit 9; done",
    ),
    "a /proc that shows nobody else's processes": (
        [
            *("unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c"),
            f'mount -t proc -o hidepid=2 proc /proc && {" ".join(NOBODY)} "$@"',
        ],
        "[ ! -e /proc/1 ]",
    ),
    "a user without an entry in passwd": (
        ["sh", "-c", 'exec setpriv --reuid=54321 --regid=54321 --clear-groups "$@"'],
        "! id -un >/dev/null 2>&1",
    ),
}


def arguments() -> Iterable[list[bytes]]:
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                yield f.read().split(b"\0")
        except OSError:  # it has ended meanwhile
            pass


def tried(name: str, before: list[str], is_so: str) -> None:
    home = scratch()
    os.chmod(home, 0o777)
    # A shell's -c has its first argument as $0.
    prefix = [*before, home] if "-c" in before else before
    where = ["--lock", home + "/lock", "--state-dir", home]
    word = f"left-{os.path.basename(home)}"
    left = f'setsid sh -c "echo >{home}/up; while :; do sleep 1; done" {word}'
    command = f"{is_so} || exit 9; {left} & while [ ! -e {home}/up ]; do sleep 0.05; done; echo ran"
    env = {"PLACES": " ".join(NO_EXECUTION), "TMPDIR": home}
    r = run("exec", *where, "-c", command, prefix=prefix, env=env)
    same((r.returncode, r.stdout), (0, "ran\n"), f"{name}: a command leads")
    ok(not any(word.encode() in words for words in arguments()), f"{name}: and what it leaves behind is ended")
    r = run("run", *where, "-e", LEADS, prefix=prefix, env=env)
    ok(r.returncode == 0 and "leads" in r.stderr + r.stdout, f"{name}: a script leads", r.stderr)


for name, (before, is_so) in PLACES.items():
    tried(name, before, is_so)
done()

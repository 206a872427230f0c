"""A test that looks for all electors of a user, or for plain names of locks, runs in a mount namespace of its own:
other tests, and other copies of itself, have theirs in the same directories. And in a network namespace of its own:
root's `ctl` asks the kernel for the sockets of all users' electors, and is told of those of one namespace.

Not for what has a directory of its own by --state-dir or --control. Used by tests of these places."""

import os
import sys

VARIABLE = "LUNARCH_TEST_PRIVATE"  # set inside: the user outside
# Every directory that runtime/program/control_dir.c knows.
MOUNT = (
    'of_user="/tmp/lunarch-$(id -u)"; mkdir -p -m 700 "$of_user"; mount -t tmpfs tmpfs /var/lib && '
    'mount -t tmpfs -o mode=1777 tmpfs /run && mount -t tmpfs -o mode=700 tmpfs "$of_user" && '
    'ip link set lo up && exec "$@"'
)


def enter() -> None:
    """Begins the test anew in there, unless it is there already: so this comes before all else."""
    if VARIABLE in os.environ:
        return
    private = ["unshare", "--mount", "--net"] + ([] if os.getuid() == 0 else ["--user", "--map-root-user"])
    os.environ[VARIABLE] = str(os.getuid())
    os.execvp(private[0], [*private, "sh", "-c", MOUNT, "sh", sys.executable, *sys.argv])

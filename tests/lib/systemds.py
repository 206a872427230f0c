"""A machine with Debian's systemd as process 1 of a PID namespace, for tests. Needs root. As servers.py's."""

import os
import shlex
import subprocess
from typing import Any

from tests.lib.candidates import Candidate
from tests.lib.processes import PATIENCE, children, wait_for
from tests.lib.servers import Server

# All that the machine has, beside a test's own units. The system's are hidden: what they do at a start (clean /tmp, for
# one) would be done to this machine's files.
TARGETS = ("quiet", "basic", "local-fs", "multi-user", "network-online", "shutdown", "sysinit", "default")
BASE = {f"{name}.target": "[Unit]\nDefaultDependencies=no\n" for name in TARGETS}


class Systemd(Server):
    """units: names and texts of its units; of its user kind, run as mine.service, users_units. Its /run is the
    directory `run` of this test, and its cgroups are below a cgroup of their own. binds: what else it sees in place of
    this machine's directories, by path."""

    TREE = (
        'mount -t cgroup2 none "$0/cgroup" && own="$0/cgroup$(sed -n s/^0:://p '
        '/proc/self/cgroup)/lunarch-test-${0##*-}" && '
    )
    OUTSIDE = TREE + (
        'mkdir "$own" && echo 0 >"$own/cgroup.procs" && umount "$0/cgroup" && '
        'exec unshare --pid --cgroup --mount --mount-proc --ipc --uts --net --fork --kill-child=KILL sh -c "$1" "$0"'
    )
    INSIDE = (
        'mount --bind "$0/units" /usr/lib/systemd/system && mount --bind "$0/generators" '
        '/usr/lib/systemd/system-generators && mount --bind "$0/run" /run && '
        'mount -t cgroup2 cgroup2 /sys/fs/cgroup && mount --bind "$0/console" /dev/console && '
        "container=lunarch exec /lib/systemd/systemd --system --unit=quiet.target --log-target=console --show-status=no"
    )
    SWEEP = TREE + 'find "$own" -depth -type d -exec rmdir {} +'

    def __init__(
        self, units: dict[str, str], users_units: dict[str, str] | None = None, binds: dict[str, str] | None = None
    ) -> None:
        self.units, self.users_units, self.binds = units, users_units or {}, binds or {}
        super().__init__()

    def prepare(self) -> None:
        for name in ("cgroup", "generators", "units", "run/systemd/system", "run/mine/systemd/user"):
            os.makedirs(os.path.join(self.dir, name))
        os.chmod(os.path.join(self.dir, "run", "mine"), 0o700)
        with open(os.path.join(self.dir, "console"), "w"):
            pass
        for where, units in (
            ("units", BASE),
            ("run/systemd/system", self.units),
            ("run/mine/systemd/user", {**BASE, **self.users_units}),
        ):
            for name, text in units.items():
                with open(os.path.join(self.dir, where, name), "w") as f:
                    f.write(text)

    def command(self) -> list[str]:
        binds = "".join(f"mount --bind {shlex.quote(here)} {there} && " for there, here in self.binds.items())
        inside = binds + self.INSIDE
        return ["unshare", "--mount", "--propagation", "private", "sh", "-c", self.OUTSIDE, self.dir, inside]

    def enter(self) -> Any:
        """systemd answers nobody from another PID namespace."""
        return ["nsenter", f"--target={wait_for(lambda: children(self.process.pid))[0]}", "--mount", "--pid"]

    def systemctl(self, *args: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self.enter(), "systemctl", *args],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            env={**os.environ, **(env or {})},
        )

    def ready(self) -> bool:
        return self.systemctl("is-active", "quiet.target").stdout.strip() == "active"

    def active(self, unit: str) -> bool:
        return self.systemctl("is-active", unit).stdout.strip() == "active"

    def close(self) -> None:
        if self.process:
            self.kill()

        def swept() -> bool:
            return (
                subprocess.run(
                    ["unshare", "--mount", "--propagation", "private", "sh", "-c", self.SWEEP, self.dir],
                    capture_output=True,
                ).returncode
                == 0
            )

        if os.path.isdir(self.dir):
            wait_for(swept, 10)
        super().close()

    def lunarch(self, *args: str, **kw: Any) -> Candidate:
        c = Candidate(*args, prefix=self.enter(), **kw)
        c.pid = wait_for(lambda: children(c.pid))[0]  # nsenter waits outside
        return c

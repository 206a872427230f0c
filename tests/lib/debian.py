"""Packages of this tree, and a Debian in a directory to install them in or to build in, for tests. Needs root,
debootstrap, a mirror. As the programs of tests/cluster/debian use it."""

import fcntl
import glob
import os
import shutil
import subprocess
import sys
from typing import Any

from tests.lib.processes import CACHE, ROOT, children, wait_for
from tests.lib.tap import note, ok, same


def run(*command: str, **more: Any) -> str:
    """Its output; a failure is shown, and ends the test."""
    more.setdefault("stdin", subprocess.DEVNULL)
    r = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)
    if r.returncode:
        note(r.stdout[-3000:])
        raise RuntimeError(f"{' '.join(command)[:200]}: status {r.returncode}")
    return str(r.stdout)


def needs(*programs: str) -> None:
    lacks = [p for p in programs if not shutil.which(p)]
    if os.geteuid() != 0 or lacks:
        sys.exit(f"this test needs root, and {' and '.join(programs)}")


def installed_kb(package: str) -> str:
    return run("dpkg-deb", "--field", package, "Installed-Size").strip()


def build(directory: str, *version: str) -> dict[str, str]:
    """The packages, made anew: file by name."""
    said = run(os.path.join(ROOT, "packaging", "deb.sh"), directory, *version)
    same(said, "", f"lintian has nothing to say ({os.path.basename(directory)})")
    files = made(directory)
    for f in sorted(files.values()):
        note(f"{os.path.basename(f)}: {os.path.getsize(f) / 1000:.0f} KB, {installed_kb(f)} KB installed")
    return files


def made(directory: str = os.path.join(ROOT, "build", "deb")) -> dict[str, str]:
    """Those that are there, without those of symbols. make test-deb does `make deb` before the tests."""
    files = [f for f in glob.glob(os.path.join(directory, "*.deb")) if "-dbgsym" not in f]
    return {os.path.basename(f).split("_")[0]: f for f in files}


def mirror() -> str:
    """Where this machine's apt has Debian from."""
    return run(os.path.join(ROOT, "scripts", "mirror.sh")).strip()


def resolves(root: str) -> None:
    """Names are looked up in there as they are here."""
    shutil.copy("/etc/resolv.conf", os.path.join(root, "etc", "resolv.conf"))


def bootstrap(root: str, *options: str, suite: str = "bookworm") -> None:
    """A Debian in root that reaches the mirror as this machine does."""
    # What it mounts is gone with it, however it ends.
    run("unshare", "--mount", "--propagation", "private", "debootstrap", *options, suite, root, mirror())
    resolves(root)
    for name in glob.glob("/etc/apt/apt.conf.d/*proxy*"):
        shutil.copy(name, os.path.join(root, "etc", "apt", "apt.conf.d"))


class Machine:
    """A Debian in a directory. What runs in it has a PID namespace of its own, and this machine's network."""

    ENVIRONMENT = ("/usr/bin/env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND=noninteractive")
    MOUNTS = 'mount -t proc proc "$root/proc"'
    START = 'exec chroot "$root" "$@"'
    inherited: tuple[int, ...] = ()  # descriptors

    def __init__(self, root: str, *options: str, suite: str = "bookworm") -> None:
        self.root = root
        os.makedirs(os.path.dirname(root), exist_ok=True)
        bootstrap(self.root, "--variant=minbase", *options, suite=suite)

    def enter(self, *command: str) -> list[str]:
        mounts = f"root=$1; shift; {self.MOUNTS} && {self.START}"
        start = ("unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child=KILL")
        return [*start, "sh", "-c", mounts, "sh", self.root, *self.ENVIRONMENT, *command]

    def run(self, *command: str) -> str:
        return run(*self.enter(*command), pass_fds=self.inherited)

    def ask(self, *command: str) -> Any:
        more: Any = {"capture_output": True, "text": True, "errors": "replace", "stdin": subprocess.DEVNULL}
        return subprocess.run(self.enter(*command), pass_fds=self.inherited, **more)

    def install(self, *files: str) -> None:
        for f in files:
            shutil.copy(f, self.root)
        names = ["/" + os.path.basename(f) for f in files]
        self.run("apt-get", "install", "-y", "-q", "--no-install-recommends", "--allow-downgrades", *names)

    def packages(self) -> list[str]:
        return self.run("dpkg-query", "-W", "-f", "${Package}\n").split()

    def write(self, path: str, text: str) -> None:
        with open(self.root + path, "w") as f:
            f.write(text)


class Workshop(Machine):
    """One of another release, to build and to test this checkout in, which is copied to /src. It is made once and kept,
    so one test at a time has it. It shares this machine's devices, cgroups and network."""

    # A root like any other: in one of chroot(2) there are no user namespaces, and it cannot be made private. The shell
    # stays: as the first process it reaps what is left behind.
    MOUNTS = (
        'mount --bind "$root" "$root" && cd "$root" && mount -t proc proc proc && '
        "mount --rbind /dev dev && mount --rbind /sys sys"
    )
    START = """pivot_root . mnt && exec chroot . sh -c 'umount -l /mnt && "$@"; exit $?' sh "$@\""""
    COPY = (
        'rm -rf --one-file-system "$1/src" && mkdir "$1/src" && '
        'tar -c --exclude=./build . | tar -x --no-same-owner -C "$1/src"'
    )

    def __init__(self, suite: str) -> None:
        home = os.path.join(CACHE, "debian")
        os.makedirs(home, exist_ok=True)
        self.inherited = (self.alone(os.path.join(home, suite + ".lock")),)
        self.root = os.path.join(home, suite)
        made = os.path.join(home, suite + ".made")
        if not os.path.exists(made):
            run("rm", "-rf", "--one-file-system", self.root)
            super().__init__(self.root, suite=suite)
            open(made, "w").close()
        resolves(self.root)
        run("sh", "-c", self.COPY, "sh", self.root, cwd=ROOT)
        self.run("dpkg", "--configure", "-a")  # what was installed when one before this was killed
        self.run("/src/scripts/deps.sh")

    def alone(self, path: str) -> int:
        """The lock's descriptor; job.sh may have locked it. What runs in there inherits it, so that the Debian is free
        only when that has ended, too."""
        lock = int(os.environ.get("WORKSHOP_LOCK", "0")) or os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with open(path) as f:
                note(f"{path} is locked by {f.read().strip()}: waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        os.ftruncate(lock, 0)
        os.write(lock, f"process {os.getpid()} of {ROOT}\n".encode())
        return lock

    def enter(self, *command: str) -> list[str]:
        there = ("sh", "-c", 'cd /src && "$@"', "sh", "env", "HOME=/root", "LANG=C.UTF-8", "CI=1", *command)
        return super().enter(*there)


def clean_debian(home: str, packages: dict[str, str]) -> str:
    """With systemd. The packages are in /root, and its apt has what they need: in there it may reach no mirror."""
    root = os.path.join(home, "clean")
    bootstrap(root, "--include=systemd,systemd-sysv,dbus")
    for f in packages.values():
        shutil.copy(f, os.path.join(root, "root"))
    names = sorted("/root/" + os.path.basename(f) for f in packages.values())
    run("chroot", root, "apt-get", "install", "-y", "-q", "--download-only", *names)
    return root


class Booted:
    """A Debian that systemd-nspawn boots. netns: its network; without, it has this machine's."""

    # What systemd-nspawn wants: all cgroups in one tree, and no registration with a systemd outside.
    BOOT = (
        'mount -t cgroup2 cgroup2 /sys/fs/cgroup && exec systemd-nspawn --quiet --directory="$0" --boot --register=no '
        '--keep-unit --console=pipe "$@"'
    )

    def __init__(self, root: str, netns: str | None = None) -> None:
        self.root = root
        options = [f"--machine={netns or 'lunarch-' + str(os.getpid())}"]
        options += [f"--network-namespace-path=/run/netns/{netns}"] if netns else []
        outer = ["unshare", "--mount", "--propagation", "private", "sh", "-c", self.BOOT, root, *options]
        self.process = subprocess.Popen(outer, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        if not wait_for(lambda: self.run("systemctl is-system-running").stdout.strip() in ("running", "degraded")):
            raise RuntimeError(f"{root} does not boot")

    def run(self, line: str) -> Any:
        """A line of a person who says yes."""
        inits = children(self.process.pid)
        enter = ["nsenter", f"--target={inits[0] if inits else 0}", "--all", "--root", "--wd"]
        path = ["env", "-i", "HOME=/root", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "sh", "-c", f"cd; {line}"]
        return subprocess.run([*enter, *path], input="y\n", capture_output=True, text=True)

    def must(self, line: str) -> str:
        r = self.run(line)
        if not ok(r.returncode == 0, f"$ {line}"):
            note(r.stdout[-2000:] + r.stderr[-2000:])
        return str(r.stdout)

    def write(self, path: str, text: str) -> None:
        os.makedirs(os.path.dirname(self.root + path), exist_ok=True)
        with open(self.root + path, "w") as f:
            f.write(text)

    def close(self) -> None:
        for init in children(self.process.pid):
            os.kill(init, 9)
        self.process.wait()

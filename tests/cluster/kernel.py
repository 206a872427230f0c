#!/usr/bin/env -S PYTHONPATH=. python3
"""What stops, limits and watches processes, on Debian 12's own kernel, where all cgroups are of version 2: in a virtual
machine that has this one's files, of which it can write none. With the names of tests: those. Needs root, a mirror."""

import glob
import os
import shlex
import subprocess
import sys

from tests.lib.debian import needs
from tests.lib.processes import CACHE, ROOT, scratch
from tests.lib.tap import done, ok
from tests.lib.vm import Archive, modules, play

UNPACKED = os.path.join(CACHE, "kernel-amd64")
LIMIT = int(os.environ.get("KERNEL_LIMIT", "3600"))  # seconds; a machine that hangs is a failure
SLOWNESS = "4"  # tests/lib/processes.py
MODULES = ["virtio_pci", "9pnet_virtio", "9p", "overlay", "veth"]
MACHINE = "qemu-system-x86_64 -accel tcg -cpu max -smp 2 -m 4096 -serial stdio".split()
INIT = """#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t devtmpfs dev /dev
for m in {modules}; do insmod $m; done
mkdir /lower /over /new
mount -t 9p -o trans=virtio,version=9p2000.L,ro,msize=262144,cache=loose host /lower
mount -t tmpfs tmpfs /over; mkdir /over/upper /over/work
mount -t overlay -o lowerdir=/lower,upperdir=/over/upper,workdir=/over/work overlay /new
for d in proc sys dev; do mount --move /$d /new/$d; done
exec switch_root /new /bin/sh -c {command}
"""
# The first process: it reaps what others leave behind.
COMMAND = r"""
mkdir -p /dev/pts /dev/shm; mount -t devpts devpts /dev/pts; mount -t tmpfs tmpfs /dev/shm; mount -t tmpfs tmpfs /run
mount -t cgroup2 cgroup2 /sys/fs/cgroup
ip link set lo up
ln -sfn /proc/self/fd /dev/fd
cd {root}
export {environment}
echo "$(uname -r): cgroups of version 2: $(cat /sys/fs/cgroup/cgroup.controllers)"
for p in {programs}; do
  echo "@ $p"
  timeout -k 10 1800 $p 2>/dev/shm/errors </dev/null
  status=$?
  [ $status = 0 ] || sed 's/^/# /' /dev/shm/errors
  echo "@ status $status"
done
echo o >/proc/sysrq-trigger
sleep 60
"""


def boot_image(home: str, version: str, programs: list[str]) -> str:
    kept = {k: os.environ[k] for k in ("PATH", "HOME", "LANG", "XDG_CACHE_HOME") if k in os.environ}
    environment = " ".join(
        f"{k}={shlex.quote(v)}" for k, v in (kept | {"PYTHONPATH": ".", "SLOWNESS": SLOWNESS}).items()
    )
    command = COMMAND.format(root=shlex.quote(ROOT), environment=environment, programs=shlex.join(programs))
    order = modules(UNPACKED, version, MODULES)
    it = Archive(home + "/initrd")
    for where in ("/proc", "/sys", "/dev"):
        it.directory(where)
    it.copy(UNPACKED + "/bin/busybox", "/bin/busybox")
    for path in order:
        it.copy(UNPACKED + path, path)
    it.add("/init", INIT.format(modules=" ".join(order), command=shlex.quote(command)).encode())
    it.close()
    return home + "/initrd"


needs("qemu-system-x86_64")
fetched = ["linux-image-amd64", "busybox-static"]
subprocess.run(["scripts/sysroot.sh", "x86_64-linux-gnu", UNPACKED, "bookworm", *fetched], cwd=ROOT, check=True)
[version] = os.listdir(UNPACKED + "/lib/modules")
subprocess.run([UNPACKED + "/bin/busybox", "depmod", "-b", UNPACKED, version], check=True)
programs = sys.argv[1:] or sorted(
    [
        *glob.glob("build/tests/unit/process/test_*"),
        *glob.glob("build/tests/unit/election/test_death_*"),
        *glob.glob("tests/stop/*.py"),
    ]
)
programs = [p for p in programs if os.access(p, os.X_OK)]
ok(programs, f"(tests: {len(programs)})")
line = [*MACHINE, "-kernel", f"{UNPACKED}/boot/vmlinuz-{version}", "-initrd", boot_image(scratch(), version, programs)]
line += ["-virtfs", "local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap"]
play([*line, "-append", "console=ttyS0 loglevel=1 panic=-1 tsc=unstable"], LIMIT)
done()

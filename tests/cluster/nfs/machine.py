#!/usr/bin/env -S PYTHONPATH=. python3
"""A virtual machine of Debian's kernel and NFS server (fetch.sh), in which a Python program of this directory runs as
root; what it prints, TAP, is printed here, and its status is ours. It has no network but its own. Usage: machine.py
PROGRAM [ARGUMENT...]"""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from typing import Any

from tests.lib import field
from tests.lib.processes import CACHE, LUNARCH, ROOT
from tests.lib.vm import Archive, modules, serial

HERE = os.path.dirname(os.path.abspath(__file__))
UNPACKED = os.path.join(CACHE, "nfs-root")
CJSON = "/usr/lib/x86_64-linux-gnu/lua/5.4/cjson.so"
LIMIT = int(os.environ.get("NFS_LIMIT", "1500"))  # seconds; a machine that hangs is a failure with a log
MODULES = ["nfsd", "nfsv4", "nfsv3", "veth", "iptable_filter", "xt_string", "ts_kmp", "ts_bm", "xt_recent"]
SERVER = [
    "usr/sbin/rpc.nfsd",
    "usr/sbin/rpc.mountd",
    "usr/sbin/exportfs",
    "usr/sbin/nfsdcld",
    "sbin/rpcbind",
    "usr/sbin/xtables-legacy-multi",
]
EXTENSIONS = [f"usr/lib/x86_64-linux-gnu/xtables/libxt_{name}.so" for name in ("string", "standard", "recent")]
ETC = {
    "passwd": "root:x:0:0::/root:/bin/sh\n_rpc:x:101:65534::/run/rpcbind:/bin/false\n",
    "group": "root:x:0:\n",
    "hosts": "127.0.0.1 localhost\n",
    "protocols": "tcp 6 TCP\nudp 17 UDP\n",
    "services": "nfs 2049/tcp\nsunrpc 111/tcp portmapper\nsunrpc 111/udp portmapper\n",
}
DIRECTORIES = [
    "/proc",
    "/sys",
    "/dev",
    "/root",
    "/run/rpcbind",
    "/var/run",
    "/var/lib/nfs/rpc_pipefs",
    "/var/lib/nfs/nfsdcld",
    "/mnt",
    "/var/lib/lunarch",
]
# What of the tests' own Python is used in the machine, and what that imports while it runs.
PYTHON = (
    "import sys, tests.lib.field, encodings.ascii, encodings.latin_1, encodings.idna, random, statistics; "
    "print(*(f for m in list(sys.modules.values()) for f in (getattr(m, '__file__', None), getattr(m, '__cached__', "
    "None)) if f), sep='\\n')"
)
INIT = """#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/usr/sbin:/sbin:/usr/bin:/bin LD_LIBRARY_PATH={libraries} HOME=/root LC_ALL=C.UTF-8 {environment}
mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t devtmpfs dev /dev; mkdir -p /dev/shm; mount -t tmpfs\
 tmpfs /dev/shm
for m in {modules}; do insmod $m; done
stty -F /dev/ttyS0 raw
cd / && {program} >/dev/ttyS0 2>&1 </dev/null
echo "status $?" >/dev/ttyS0
sync; poweroff -f
"""


def libraries(program: Any) -> Any:
    """The files that its dynamic linker loads, by the names by which it asks for them."""
    where = [os.path.join(UNPACKED, d) for d in ("lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu")]
    r = subprocess.run(
        ["ldd", program], capture_output=True, text=True, env={**os.environ, "LD_LIBRARY_PATH": ":".join(where)}
    )
    if "not found" in r.stdout:
        sys.exit(f"{program} lacks a library:\n{r.stdout}")
    return [word for line in r.stdout.splitlines() for word in line.split() if word.startswith("/")]


def in_machine(path: str) -> Any:
    """Where a file of the unpacked packages has to be."""
    return path[len(UNPACKED) :] if path.startswith(UNPACKED + "/") else path


class Image(Archive):
    """What the machine boots with."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.library_dirs: set[str] = set()

    def program(self, source: Any, path: str | None = None) -> None:
        self.copy(source, path or in_machine(source))
        for library in libraries(source):
            if not library.startswith("/lib64"):
                self.library_dirs.add(os.path.dirname(in_machine(library)))
            self.copy(library, in_machine(library))

    def system(self) -> None:
        self.copy(f"{UNPACKED}/bin/busybox", "/bin/busybox")
        for path in SERVER:
            self.program(f"{UNPACKED}/{path}")
        self.program(shutil.which("ip"), "/usr/sbin/ip")
        self.add("/usr/sbin/iptables", b'#!/bin/sh\nexec xtables-legacy-multi iptables "$@"\n')
        for extension in EXTENSIONS:
            self.copy(f"{UNPACKED}/{extension}", "/" + extension)
        self.copy(f"{UNPACKED}/etc/netconfig", "/etc/netconfig")
        for path, content in ETC.items():
            self.add("/etc/" + path, content.encode(), 0o644)
        for path in DIRECTORIES:
            self.directory(path)
        self.directory("/tmp", 0o1777)

    def python(self) -> None:
        self.program(os.path.realpath(sys.executable), "/usr/bin/python3")
        used = subprocess.run([sys.executable, "-c", PYTHON], capture_output=True, text=True, check=True).stdout.split(
            "\n"
        )
        for path in used:
            if os.path.exists(path) and not path.startswith(ROOT + "/"):
                self.program(path) if path.endswith(".so") else self.copy(path)

    def project(self) -> None:
        built = os.path.dirname(LUNARCH)
        self.program(LUNARCH, "/lunarch/build/lunarch")
        self.program(os.path.join(built, "conform"), "/lunarch/build/conform")
        self.program(CJSON)
        self.program(field.build("witness.c"), "/lunarch/build/tests/cluster/faults/witness")
        for path in (
            "__init__.py",
            *(f"lib/{name}.py" for name in ("tap", "processes", "candidates", "field")),
            "cluster/faults/witness.lua",
            *("cluster/nfs/" + n for n in os.listdir(HERE) if n.endswith(".py")),
        ):
            self.copy(f"{ROOT}/tests/{path}", f"/lunarch/tests/{path}")

    def init(self, version: Any, program: Any) -> None:
        order = modules(UNPACKED, version, MODULES)
        for path in order:
            self.copy(UNPACKED + path, path)
        environment = {
            "PYTHONHOME": sys.prefix,
            "PYTHONPATH": "/lunarch",
            **{k: v for k, v in os.environ.items() if k.startswith("NFS_")},
        }
        self.add(
            "/init",
            INIT.format(
                libraries=":".join(sorted(self.library_dirs)),
                modules=" ".join(order),
                program=shlex.join(program),
                environment=" ".join(f"{k}={shlex.quote(v)}" for k, v in environment.items()),
            ).encode(),
        )


def boot(kernel: str, initrd: str, log: str) -> int | None:
    """Runs the machine; what is written to its first line is printed, the kernel's own messages go to the second, a
    file. Its status, if it told one."""
    status = None
    line = [
        "qemu-system-x86_64",
        "-accel",
        "tcg",
        "-smp",
        "2",
        "-m",
        "640",
        "-serial",
        "stdio",
        "-serial",
        f"file:{log}",
    ]
    line += ["-kernel", kernel, "-initrd", initrd, "-append", "console=ttyS1 loglevel=6 panic=-1 tsc=unstable"]
    for told in serial(line, LIMIT):
        if told.startswith("status "):
            status = int(told.split()[1])
        else:
            print(told, flush=True)
    return status


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="lunarch-nfs-") as home:
        version = os.listdir(f"{UNPACKED}/lib/modules")[0]
        image = Image(home + "/initrd")
        image.system()
        image.python()
        image.project()
        image.init(version, ["/usr/bin/python3", f"/lunarch/tests/cluster/nfs/{sys.argv[1]}", *sys.argv[2:]])
        image.close()
        status = boot(f"{UNPACKED}/boot/vmlinuz-{version}", home + "/initrd", home + "/log")
        if status != 0:
            with open(home + "/log", errors="replace") as f:
                print("".join("# kernel: " + line for line in f.readlines()[-60:]))
    if status is None:
        print(f"Bail out! The machine ended without a status, or was not done in {LIMIT} s")
    sys.exit(1 if status is None else status)


main()

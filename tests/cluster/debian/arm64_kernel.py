#!/usr/bin/env -S PYTHONPATH=. python3
"""The unit tests built for arm64, and terms of the program of its packages, on a kernel of arm64 whose pages have 16 KB
(Debian 13's, in QEMU without KVM). With the names of unit tests (lease/test_record): those alone. Needs a mirror."""

import glob
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from tests.lib.debian import made
from tests.lib.processes import CACHE, ROOT, scratch
from tests.lib.tap import done, note, ok
from tests.lib.vm import Archive, play

BUILD = os.path.join(ROOT, "build", "aarch64-linux-gnu")
SYSROOT = os.path.join(BUILD, "sysroot")
KERNEL = os.path.join(CACHE, "arm64-kernel")
TOOLS = os.path.join(CACHE, "arm64-tools")
UNIT = os.path.join(BUILD, "tests", "unit")
LIMIT = int(os.environ.get("ARM64_LIMIT", "5400"))  # seconds; a machine that hangs is a failure
# What each instruction set extension is for is on: pointers that are signed, places to jump to that are marked. With
# QEMU's own signature, since the architecture's makes it slow.
MACHINE = "qemu-system-aarch64 -accel tcg,thread=multi -M virt -cpu max,pauth-impdef=on -smp 2 -m 3072".split()
INIT = """#!/bin/busybox sh
/bin/busybox --install -s /bin 2>/dev/null # but for what is there
export PATH=/usr/bin:/bin:/usr/sbin:/sbin HOME=/root LANG=C.UTF-8 XDG_RUNTIME_DIR=/run
mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t devtmpfs dev /dev; mount -t tmpfs tmpfs /tmp
mkdir -p /dev/shm /dev/pts /run; mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm; mount -t tmpfs tmpfs /run
ip link set lo up
cd /src
for p in {programs}; do
  echo "@ $p"
  timeout -k 10 600 $p 2>/tmp/errors </dev/null
  status=$?
  [ $status = 0 ] || sed 's/^/# /' /tmp/errors
  echo "@ status $status"
done
poweroff -f
"""
# Terms of the program itself, in a shell: TAP.
TERMS = r"""#!/bin/sh
n=0
check() {
  n=$((n + 1))
  if [ "$1" = 0 ]; then echo "ok $n - $2"; else echo "not ok $n - $2"; sed 's/^/# /' /tmp/said; fi
}
lunarch --version >/tmp/said 2>&1 && ! grep -q cannot /tmp/said && [ "$(grep -c '^module ' /tmp/said)" = 9 ]
check $? "$(uname -m), $(uname -r), $(grep -m 1 KernelPageSize /proc/self/smaps | tr -s ' '): each module is there"
lunarch exec --lock /tmp/command -- sh -c 'echo held by $LUNARCH_TOKEN' >/tmp/said 2>&1 && grep -q 'held by 1' /tmp/said
check $? "a command leads"
lunarch run --lock /tmp/script -e 'print(require "cjson".encode { "it leads" }) lunarch.exit(0)' >/tmp/said 2>&1 &&
  grep -q 'it leads' /tmp/said
check $? "a script leads"
script='return { on_leading = function(term)
  local f = io.open("/tmp/led", "a")
  f:write(term.token, "\n")
  f:close()
  while true do sleep(1) end
end }'
lunarch run --lock /tmp/two -e "$script" >/tmp/said 2>&1 & one=$!
until [ -s /tmp/led ]; do sleep 1; done
lunarch run --lock /tmp/two -e "$script" >>/tmp/said 2>&1 & other=$!
kill -9 $one
until [ "$(wc -l </tmp/led)" = 2 ]; do sleep 1; done
set -- $(cat /tmp/led)
[ "$2" -gt "$1" ]
check $? "the leader is killed: the other one leads, with a larger token"
kill $other; wait $other
check $? "SIGTERM ends that one well"
lunarch doctor --full --lock /tmp/doctor >/tmp/said 2>&1
check $? "doctor --full: $(grep -c ' good ' /tmp/said) rules of a lock hold on a file"
echo 1..$n
"""


def stripped(programs: list[str], place: str) -> None:
    def strip(path: str) -> None:
        out = os.path.join(place, os.path.relpath(path, ROOT))
        os.makedirs(os.path.dirname(out), exist_ok=True)
        subprocess.run(["aarch64-linux-gnu-strip", "-o", out, path], check=True)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(strip, programs))


def image(home: str, programs: list[str]) -> str:
    stripped(programs, home + "/src")
    for path in made(os.path.join(BUILD, "deb")).values():
        subprocess.run(["dpkg-deb", "-x", path, home + "/packages"], check=True)
    with open(home + "/src/terms", "w") as f:
        f.write(TERMS)
    os.chmod(home + "/src/terms", 0o755)
    it = Archive(home + "/initrd")
    for where in ("/proc", "/sys", "/dev", "/root", "/run", "/var/lib"):
        it.directory(where)
    it.directory("/tmp", 0o1777)
    it.copy(TOOLS + "/bin/busybox", "/bin/busybox")
    it.copy(TOOLS + "/bin/bash-static", "/bin/bash")
    # Not Busybox's shell: its `read` polls a terminal, so that a job in the background is not stopped, and its own
    # setpriv, which knows no users, comes before the real one.
    it.link("/bin/sh", "bash")
    it.tree(TOOLS, wanted=lambda path: ".so" in path or path == "/usr/bin/setpriv")
    it.tree(SYSROOT, wanted=lambda path: ".so" in path or path.startswith("/usr/share/zoneinfo/"))
    it.tree(home + "/packages", wanted=lambda path: "/share/" not in path)
    it.tree(home + "/src", "/src")
    it.tree(os.path.join(ROOT, "tests"), "/src/tests", lambda path: path.startswith("/unit/") and path.endswith(".lua"))
    it.add("/etc/passwd", b"root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n", 0o644)
    it.add("/etc/group", b"root:x:0:\nnogroup:x:65534:\n", 0o644)
    it.add("/etc/hosts", b"127.0.0.1 localhost\n", 0o644)
    places = ["/src/terms", *("/src/" + os.path.relpath(p, ROOT) for p in programs)]
    it.add("/init", INIT.format(programs=" ".join(places)).encode())
    it.close()
    return home + "/initrd"


fetch = ["scripts/sysroot.sh", "aarch64-linux-gnu"]
subprocess.run([*fetch, KERNEL, "trixie", "linux-image-arm64-16k"], cwd=ROOT, check=True)
subprocess.run([*fetch, TOOLS, "bookworm", "busybox-static", "bash-static", "util-linux"], cwd=ROOT, check=True)
names = sys.argv[1:]
programs = sorted(p for p in glob.glob(UNIT + "/**/test_*", recursive=True) if os.access(p, os.X_OK))
programs = [p for p in programs if not names or any(p.endswith("/" + n) for n in names)]
ok(names or len(programs) > 70, f"(unit tests: {len(programs)})")
[kernel] = glob.glob(KERNEL + "/boot/vmlinuz-*")
initrd = image(scratch(), programs)
note(f"{os.path.basename(kernel)}; {os.path.getsize(initrd) / 1e6:.0f} MB to boot from")
line = [*MACHINE, "-serial", "stdio", "-kernel", kernel, "-initrd", initrd]
line += ["-append", "console=ttyAMA0 loglevel=1 panic=-1"]
play(line, LIMIT)
done()

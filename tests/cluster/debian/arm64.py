#!/usr/bin/env -S PYTHONPATH=. python3
"""The packages, the archive and the image of ARCH=arm64, unpacked and run by an emulator of one process (qemu-user):
what lintian says, what they need, each module with its libraries, and doctor --full on real servers. A command or a
script cannot lead in there, as a process of arm64 cannot start another: arm64_kernel.py. Needs root, a mirror."""

import glob
import json
import os
import subprocess

from tests.lib import stores
from tests.lib.bare import C_LIBRARY
from tests.lib.candidates import stop_everyone
from tests.lib.containers import blob, checked, manifest, unpack
from tests.lib.debian import made, needs
from tests.lib.processes import ROOT, scratch
from tests.lib.tap import done, note, ok, same

BUILD = os.path.join(ROOT, "build", "aarch64-linux-gnu")
SYSROOT = os.path.join(BUILD, "sysroot")
EMULATOR = checked(os.path.join(ROOT, "tests", "lib", "next_debian.sh"), "qemu-user").strip() + "/usr/bin/qemu-aarch64"
STORES = (stores.Redis, stores.Etcd, stores.Postgres, stores.ZooKeeper)


def emulated(root: str, *command: str) -> subprocess.CompletedProcess[str]:
    """root: where the program finds its loader and its libraries, if they are not beside it."""
    line = [EMULATOR, "-L", root, *command]
    return subprocess.run(line, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=300)


def modules(root: str, program: str, where: str) -> None:
    r = emulated(root, program, "--version")
    whole = r.returncode == 0 and "cannot" not in r.stdout and r.stdout.count("\nmodule ") == 9
    ok(whole, f"{where}: each module finds its libraries", r.stdout + r.stderr)
    note(f"{where}: {r.stdout.splitlines()[0] if r.stdout else '?'}")


def packages(home: str) -> str:
    """Where they are unpacked."""
    files = made(os.path.join(BUILD, "deb"))
    same(len(files), 8, "the program's package, and one for each store's library")
    [changes] = glob.glob(os.path.join(BUILD, "deb", "*.changes"))
    line = ["lintian", "--fail-on", "error,warning", "--allow-root", changes]
    r = subprocess.run(line, capture_output=True, text=True)
    same((r.returncode, r.stdout), (0, ""), "lintian has nothing to say")
    for name, path in sorted(files.items()):
        said = checked("dpkg-deb", "--field", path, "Architecture", "Depends")
        ok(
            "Architecture: arm64" in said and "libc6 (>= 2." in said,
            f"{name} is arm64's, and knows its C library",
            said,
        )
        checked("dpkg-deb", "-x", path, home + "/packages")
        note(f"{os.path.basename(path)}: {os.path.getsize(path) / 1000:.0f} KB")
    return home + "/packages/usr/bin/lunarch"


def archive(home: str) -> None:
    """Unpacked beside a C library and nothing else."""
    [path] = glob.glob(os.path.join(BUILD, "tarball", "*-linux-arm64.tar.gz"))
    os.mkdir(home + "/archive")
    checked("tar", "-xf", path, "-C", home + "/archive")
    [tree] = glob.glob(home + "/archive/*")
    libraries = os.path.join(home, "bare", "lib", "aarch64-linux-gnu")
    os.makedirs(libraries)
    for name in ("ld-linux-aarch64.so.1", *C_LIBRARY):
        checked("cp", "-L", f"{SYSROOT}/lib/aarch64-linux-gnu/{name}", libraries)
    os.symlink("aarch64-linux-gnu/ld-linux-aarch64.so.1", home + "/bare/lib/ld-linux-aarch64.so.1")
    modules(home + "/bare", tree + "/bin/lunarch", "the archive")
    with open(tree + "/share/doc/lunarch/sbom.cdx.json") as f:
        parts = json.load(f)["components"]
    same(
        [p["name"] for p in parts if "arch=arm64" not in p["purl"]], [], f"its bill of materials: {len(parts)} of arm64"
    )
    note(f"{os.path.basename(path)}: {os.path.getsize(path) / 1000:.0f} KB")


def image(home: str) -> None:
    layout = os.path.join(BUILD, "image", "oci")
    said = blob(layout, blob(layout, manifest(layout))["config"]["digest"])
    same((said["architecture"], said["os"]), ("arm64", "linux"), "the image says for which machine it is")
    root = unpack(layout, home) + "/rootfs"
    modules(root, root + "/usr/bin/lunarch", "the image")
    with open(root + "/etc/ssl/certs/ca-certificates.crt") as f:
        ok(f.read().count("BEGIN CERTIFICATE") > 100, "it has certificates of authorities")
    ok(os.path.exists(root + "/usr/share/zoneinfo/Europe/Berlin"), "and the time zones")


def servers(program: str) -> None:
    """Doctor plays all rules of a lock, through arm64's libraries. What it says of the server's own settings (row
    "server") is about this machine's."""
    for kind in STORES:
        store = kind()
        r = emulated(SYSROOT, program, "doctor", "--full", "--json", "--lock", store.url("arm64"))
        store.server.close()
        rows = [f for f in json.loads(r.stdout or '{"findings":[]}')["findings"] if f["name"] != "server"]
        good = sum(f["verdict"] == "good" for f in rows)
        bad = [f for f in rows if f["verdict"] not in ("good", "note")]
        ok(good > 18 and not bad, f"{store.name}: {good} rules hold on a real server", (bad, r.stderr))


needs("lintian", "dpkg-deb", "umoci")
home = scratch()
try:
    program = packages(home)
    modules(SYSROOT, program, "the packages")
    archive(home)
    image(home)
    servers(program)
finally:
    stop_everyone()
done()

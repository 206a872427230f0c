"""Packages of this tree, and a Debian 12 in a directory to install them in, for tests. Needs root, debootstrap, a
mirror. As packages.py and five_commands.py use it."""

import glob
import os
import shutil
import subprocess
import sys
from typing import Any

from tests.lib.processes import ROOT
from tests.lib.tap import note, same


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
        sys.exit(f"make test-deb makes a Debian in a directory: it needs root, and {' and '.join(programs)}")


def installed_kb(package: str) -> str:
    return run("dpkg-deb", "--field", package, "Installed-Size").strip()


def build(directory: str, *version: str) -> dict[str, str]:
    """The packages, without those of symbols: file by name."""
    said = run(os.path.join(ROOT, "scripts", "deb.sh"), directory, *version)
    same(said, "", f"lintian has nothing to say ({os.path.basename(directory)})")
    note("lintian: no error and no warning")
    files = [f for f in glob.glob(os.path.join(directory, "*.deb")) if "-dbgsym" not in f]
    for f in sorted(files):
        note(f"{os.path.basename(f)}: {os.path.getsize(f) / 1000:.0f} KB, {installed_kb(f)} KB installed")
    return {os.path.basename(f).split("_")[0]: f for f in files}


def bootstrap(root: str, *options: str) -> None:
    """A Debian in root that reaches the mirror as this machine does."""
    run("debootstrap", *options, "bookworm", root)
    shutil.copy("/etc/resolv.conf", os.path.join(root, "etc", "resolv.conf"))
    for name in glob.glob("/etc/apt/apt.conf.d/*proxy*"):
        shutil.copy(name, os.path.join(root, "etc", "apt", "apt.conf.d"))

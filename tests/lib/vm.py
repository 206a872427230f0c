"""A virtual machine that boots from memory: its initramfs, and QEMU with what it says on its first serial line. It has
no network and no disk.

Not what is in it. Used by nfs/machine.py, kernel.py and debian/arm64_kernel.py of tests/cluster."""

import os
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

from tests.lib.processes import piped
from tests.lib.tap import note, ok, retell


class Archive:
    """An initramfs: cpio(5), the "newc" format, of which the kernel makes a file system in memory."""

    def __init__(self, path: str) -> None:
        self.file, self.number = open(path, "wb"), 0
        self.seen: set[str] = set()

    def _entry(self, name: str, mode: Any, content: bytes = b"", mtime: int = 0) -> None:
        self.number += 1
        fields = (self.number, mode, 0, 0, 1, mtime, len(content), 0, 0, 0, 0, len(name) + 1, 0)
        head = b"070701" + b"".join(b"%08X" % f for f in fields) + name.encode() + b"\0"
        self.file.write(head + b"\0" * (-len(head) % 4) + content + b"\0" * (-len(content) % 4))

    def directory(self, path: str, mode: int = 0o755) -> None:
        if path in ("", "/") or path in self.seen:
            return
        self.directory(os.path.dirname(path))
        self.seen.add(path)
        self._entry(path[1:], 0o040000 | mode)

    def add(self, path: str, content: Any, mode: int = 0o755, mtime: int = 0) -> None:
        if path not in self.seen:
            self.directory(os.path.dirname(path))
            self.seen.add(path)
            self._entry(path[1:], 0o100000 | mode, content, mtime)

    def link(self, path: str, target: str) -> None:
        if path not in self.seen:
            self.directory(os.path.dirname(path))
            self.seen.add(path)
            self._entry(path[1:], 0o120777, target.encode())

    def tree(self, source: str, place: str = "", wanted: Callable[[str], bool] = lambda path: True) -> None:
        """A directory with all that is in it. wanted: of files, by their path below it."""
        for where, directories, names in os.walk(source):
            below = where[len(source) :]
            for name in (*directories, *names):
                path = os.path.join(where, name)
                if os.path.islink(path):
                    self.link(f"{place}{below}/{name}", os.readlink(path))
                elif name in names and wanted(f"{below}/{name}"):
                    self.copy(path, f"{place}{below}/{name}")

    def copy(self, source: Any, path: str | None = None) -> None:
        st = os.stat(source)
        with open(source, "rb") as f:
            self.add(path or source, f.read(), st.st_mode & 0o777, int(st.st_mtime))

    def close(self) -> None:
        self._entry("TRAILER!!!", 0)
        self.file.close()


def modules(root: str, version: str, wanted: list[str]) -> list[str]:
    """The files of those modules of a kernel that is unpacked in root, and of what they need, in the order in which
    they can be loaded."""
    needs, found = {}, []
    with open(f"{root}/lib/modules/{version}/modules.dep") as f:
        for line in f:
            name, _, rest = line.partition(":")
            needs[os.path.basename(name)[: -len(".ko")]] = [name, *rest.split()]
    for m in wanted:
        name, *below = needs[m]
        found += [p for p in [*reversed(below), name] if p not in found]
    return [f"/lib/modules/{version}/{p}" for p in found]


def play(line: list[str], limit: int) -> None:
    """A machine that runs tests: "@ PATH", what that prints, and "@ status N", of one after the other. All that they
    say is told as this test's."""
    name, said = "", ""
    for told in serial(line, limit):
        if told.startswith("@ status "):
            retell(name, said, int(told.split()[2]))
            name = ""
        elif told.startswith("@ "):
            name, said = told.rpartition("/")[2], ""
        elif name:
            said += told + "\n"
        else:
            note(told)
    ok(not name, "the machine came to its end", f"{name}\n{said[-2000:]}")


def serial(machine: list[str], limit: int) -> Iterator[str]:
    """Runs it for so many seconds at most. machine: QEMU's own command line, whose first serial line is stdio."""
    line = ["timeout", "--foreground", "--kill-after=10", str(limit), *machine]
    line += ["-nic", "none", "-display", "none", "-no-reboot"]
    with subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, errors="replace") as q:
        for told in piped(q.stdout):
            yield told.rstrip("\r\n")

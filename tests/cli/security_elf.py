#!/usr/bin/env -S PYTHONPATH=. python3
"""How the program and its modules are built, read from the files (readelf of binutils) and not from the Makefile's
flags: a mistake in memory is not to become another's code; and it runs with each C library that
docs/platforms.md promises."""

import glob
import os
import platform
import re
import subprocess

from tests.lib.processes import LUNARCH
from tests.lib.tap import ok, run, same, skip

ENDBR64 = b"\xf3\x0f\x1e\xfa"  # where an indirect jump may land, with CET
OLDEST = (2, 34)  # of glibc
BUILT_WITH = (2, 36)  # the newest whose headers ask for nothing newer by themselves (2.38: __isoc23_strtol)
FILES = [LUNARCH, *sorted(glob.glob(os.path.join(os.path.dirname(LUNARCH), "modules", "*.so")))]


def readelf(option: str, path: str) -> str:
    return subprocess.run(["readelf", "-W", option, path], capture_output=True, text=True, check=True).stdout


def segments(path: str) -> list[tuple[str, str]]:
    """(type, flags as "RWE")"""
    found = re.findall(
        r"^\s+([A-Z_]+)\s+(?:0x[0-9a-f]+\s+){5}([RWE ]+?)\s+0x", readelf("--program-headers", path), re.M
    )
    return [(kind, flags.replace(" ", "")) for kind, flags in found]


def imported(path: str) -> set[str]:
    """Names of functions that it takes from libc and others, without their versions."""
    symbols = readelf("--dyn-syms", path)
    return {name.split("@")[0] for name in re.findall(r"\bUND (\S+)", symbols)}


def too_new(path: str) -> list[str]:
    """Functions of the C library that came after OLDEST, each with its version."""
    found = re.findall(r"\bUND (\S+@GLIBC_(\d+)\.(\d+))", readelf("--dyn-syms", path))
    return sorted(symbol for symbol, *version in found if tuple(map(int, version)) > OLDEST)


def text_of(path: str) -> bytes:
    at = re.search(r"\.text\s+PROGBITS\s+[0-9a-f]+ ([0-9a-f]+) ([0-9a-f]+)", readelf("--sections", path))
    assert at
    with open(path, "rb") as f:
        f.seek(int(at[1], 16))
        return f.read(int(at[2], 16))


def check(path: str) -> None:
    name = os.path.basename(path)
    have, dynamic = segments(path), readelf("--dynamic", path)
    kind = re.search(r"Type:\s+(\w+)", readelf("--file-header", path))
    ok(kind and kind[1] == "DYN", f"{name}: its address is chosen at random (position-independent)")
    if path == LUNARCH:
        ok(re.search(r"\(FLAGS_1\).*\bPIE\b", dynamic), f"{name}: ... as a program's")
    ok("GNU_RELRO" in [k for k, _ in have], f"{name}: what is only written while it is loaded is read-only afterwards")
    ok(re.search(r"\(FLAGS\).*BIND_NOW|\(BIND_NOW\)|\(FLAGS_1\).*\bNOW\b", dynamic), f"{name}: ... all of it, at once")
    same([f for k, f in have if k == "GNU_STACK"], ["RW"], f"{name}: its stacks are not executable")
    same([f for k, f in have if "W" in f and "E" in f], [], f"{name}: nothing is both writable and executable")
    ok("(TEXTREL)" not in dynamic, f"{name}: its code is not changed while it is loaded")
    ok("(RPATH)" not in dynamic and "(RUNPATH)" not in dynamic, f"{name}: its libraries are the system's")
    ok("__stack_chk_fail" in imported(path), f"{name}: its stack frames are checked")
    if platform.machine() == "x86_64":
        ok(ENDBR64 in text_of(path), f"{name}: where indirect jumps may land is marked")


def test_each() -> None:
    """The program, and every module"""
    if re.search(r"\b__(asan_init|gcov_\w+|tsan_init)\b", readelf("--symbols", LUNARCH)):
        skip("how it is built", "it is built for a sanitizer, or for coverage")
        return
    libc = tuple(map(int, os.confstr("CS_GNU_LIBC_VERSION").split()[1].split(".")))  # type: ignore[union-attr]
    for path in FILES:
        check(path)
        if libc <= BUILT_WITH:
            same(
                too_new(path),
                [],
                f"{os.path.basename(path)}: glibc {'.'.join(map(str, OLDEST))} has all that it asks for",
            )
    ok(len(FILES) > 5, "the modules are looked at, too", FILES)
    checked = {n for path in FILES for n in imported(path) if re.fullmatch(r"__\w+_chk", n)}
    ok({"__memcpy_chk", "__snprintf_chk", "__read_chk"} <= checked, "the sizes of buffers are checked", sorted(checked))


run([test_each])

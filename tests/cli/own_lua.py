#!/usr/bin/env -S PYTHONPATH=. python3
"""The program's own Lua (lua/) is in it as bytecode, which knows its lines. Scripts are text, and nothing else."""

import glob
import os
import re
import shutil
import subprocess

from tests.lib.commands import run
from tests.lib.processes import LUNARCH, ROOT, scratch
from tests.lib.tap import done, note, ok, same

place = scratch()


def write(name: str, content: bytes) -> str:
    path = os.path.join(place, name)
    with open(path, "wb") as f:
        f.write(content)
    return path


def compiled() -> None:
    """A program that links Lua shared has text: another Lua than at the build may run it."""
    with open(LUNARCH, "rb") as f:
        program = f.read()
    files = [f for f in glob.glob(os.path.join(ROOT, "lua", "**", "*.lua"), recursive=True) if "/lua/meta/" not in f]
    shared = "liblua5.4" in subprocess.run(["ldd", LUNARCH], capture_output=True, text=True).stdout
    texts = program.count(b"local use = ...\n")
    chunks = program.count(b"\x1bLua\x54\0\x19\x93\r\n\x1a\n")
    note(f"{len(files)} files, {chunks} compiled, {texts} as text; Lua is {'shared' if shared else 'linked in'}")
    same((chunks, texts > 0), (0, True) if shared else (len(files), False), "each file of lua/ is in it as bytecode")


def lines() -> None:
    r = run(
        "run",
        "--lock",
        os.path.join(place, "lock"),
        "-e",
        'require "lunarch.retry".call(function() print(debug.traceback()) return true end) lunarch.exit(0)',
    )
    frames = re.findall(r"lunarch\.retry:(\d+): in (?:function|upvalue|local) '?([^'\\]+)", r.stderr)
    with open(os.path.join(ROOT, "lua", "lunarch", "retry.lua")) as f:
        text = f.read().splitlines()
    ok(r.returncode == 0 and frames, "a traceback names the functions and lines of the library", r.stderr)
    same(
        [bool(re.search(r"\w\(", text[int(n) - 1])) for n, _ in frames],
        [True] * len(frames),
        "and there is a call in each of these lines of the source",
    )


def refused() -> None:
    """Bytecode is not verified when it is loaded, so it can crash the worker."""
    source = write("text.lua", b"return { on_leading = print }\n")
    out = write("bytecode.lua", b"")
    made = run(
        "run",
        "--lock",
        os.path.join(place, "lock"),
        "-e",
        f"io.open('{out}', 'wb'):write(string.dump(loadfile '{source}')):close() lunarch.exit(0)",
    )
    with open(out, "rb") as f:
        ok(made.returncode == 0 and f.read(4) == b"\x1bLua", "bytecode is made of a script", made.stderr)
    for command in (["run", "--lock", os.path.join(place, "lock")], ["check"], ["test"]):
        r = run(*command, out)
        ok(
            r.returncode != 0 and "attempt to load a binary chunk" in r.stderr,
            f"{command[0]} refuses a script that is bytecode",
            r.stderr,
        )


compiled()
lines()
refused()
shutil.rmtree(place)
done()

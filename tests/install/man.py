#!/usr/bin/env -S PYTHONPATH=. python3
"""The manual pages (make man): one for each command, without a fault that mandoc(1) finds, and with all that --help
has."""

import os
import re
import subprocess

from tests.lib.processes import LUNARCH, PATIENCE, ROOT, scratch
from tests.lib.tap import done, ok, same

HERE = scratch()


def run(*argv: str) -> str:
    r = subprocess.run(
        argv, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, env=os.environ | {"LC_ALL": "C"}
    )
    return r.stdout + r.stderr


def made(directory: str) -> dict[str, str]:
    """The pages that packaging/man.lua writes, by name: lunarch.1."""
    for section in ("man1", "man7"):
        os.makedirs(os.path.join(directory, section))
    said = run("env", "SOURCE_DATE_EPOCH=1700000000", "lua5.4", "packaging/man.lua", LUNARCH, directory)
    same(said, "", "making the pages says nothing")
    return {f: os.path.join(base, f) for base, _, names in os.walk(directory) for f in names}


def shown(path: str) -> str:
    """As a reader sees it, without bold type and without the breaks of lines."""
    return " ".join(re.sub(".\b", "", run("mandoc", "-T", "ascii", path)).split())


def faults(pages: dict[str, str]) -> list[str]:
    found = []
    for name, path in sorted(pages.items()):
        for line in run("mandoc", "-T", "lint", "-W", "style", path).splitlines():
            other = re.search(r"referenced manual not found: Xr (\S+) (\d)", line)
            if not (other and f"{other[1]}.{other[2]}" in pages):
                found.append(f"{name}: {line}")
    return found


pages = made(os.path.join(HERE, "man"))
commands = re.findall(r"^  lunarch (\w+) .*  ", run(LUNARCH, "--help"), re.M)
commands.remove("help")
same(
    sorted(pages),
    sorted([f"lunarch-{c}.1" for c in commands] + ["lunarch.1", "lunarch.7", "lunarch-script.7"]),
    "there is a page for each command, one for the program, one for the ideas and one for scripts",
)
same(faults(pages), [], "mandoc finds no fault in them, and each page that they refer to is there")

for command in commands:
    text, told = shown(pages[f"lunarch-{command}.1"]), run(LUNARCH, command, "--help")
    lacks = [o for o in re.findall(r"(--[a-z][a-z-]+)", told) if o not in text]
    lacks += [v for v in re.findall(r"^  (LUNARCH_\w+)", told, re.M) if v not in text]
    examples = [" ".join(e.split()) for e in told.split("\nExamples:\n")[1].splitlines()]
    same(lacks + [e for e in examples if e not in text], [], f"lunarch-{command}(1) has all that --help has")

script, program, ideas = (shown(pages[p]) for p in ("lunarch-script.7", "lunarch.1", "lunarch.7"))
with open(os.path.join(ROOT, "docs", "api.md")) as f:
    api = f.read()
functions = [" ".join(h.split()) for h in re.findall(r"^### `(.*)`$", api, re.M)]
ok(len(functions) > 50, "docs/api.md has functions")
same([f for f in functions if f not in script], [], "lunarch-script(7) has every function of docs/api.md")
ok(
    "SIGHUP" in program and "LUNARCH_TOKEN" in program and "76" in program,
    "lunarch(1) has signals, variables, statuses",
)
ok("fencing token" in ideas and "--lease-duration" in ideas, "lunarch(7) has the words and the times")

again = made(os.path.join(HERE, "again"))
same(
    [p for p in pages if open(pages[p], "rb").read() != open(again[p], "rb").read()],
    [],
    "made twice they are the same, byte for byte",
)
done()

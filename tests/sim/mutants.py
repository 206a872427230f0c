#!/usr/bin/env -S PYTHONPATH=. python3
"""Proves that the tests of what safety rests upon can fail: breaks one rule at a time, and a test must notice: the
simulator (sim) or a unit test. All mutants of a source are in one object: each is a copy of its function, which the
function calls in its place when the program starts with the mutant's number. So all of them are built at once, beside
the objects of the plain program. Words choose mutants by name; --check only looks whether each fits its source.

One TAP line a program as it is, which must pass, and one a mutant. A mutant that survives is a failure."""

import contextlib
import functools
import glob
import os
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from tests.lib import source_text

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.realpath(os.path.join(HERE, "..", ".."))

BUILD = os.environ.get("BUILD", "build")
SOURCES = os.path.join(ROOT, BUILD, "mutants", "src")
SEEDS = os.environ.get("MUTANT_SEEDS", "20000")
# A mutant may make its test wait for ever. It is silent then: so many times as long as the program ever was as it is,
# and some more.
TIMES, MORE_S = 10, 30.0
# Most tests wait most of the time.
AT_ONCE = 4 * (os.cpu_count() or 1)


class Mutant(NamedTuple):
    name: str
    rule: str
    path: str
    function: str
    test: str
    old: str
    new: str

    @property
    def number(self) -> int:
        """Which stays the same when others come before it: what has not changed is not built again."""
        return zlib.crc32(self.name.encode()) & 0x7FFFFFFF or 1

    @property
    def lua(self) -> bool:
        return self.path.endswith(".lua")


def blocks(path: str) -> Iterator[tuple[str, str, str, str, str]]:
    """Blocks of `name | rule`, a line that says where, the text, `=>`, the replacement; they end with a line `---`."""
    with open(path) as f:
        for block in f.read().split("\n---\n"):
            lines = [line for line in block.split("\n") if not line.startswith("# ")]
            while lines and not lines[0].strip():
                lines.pop(0)
            if not lines:
                continue
            name, rule = [s.strip() for s in lines[0].split("|", 1)]
            if lines.count("=>") != 1:
                sys.exit(f"{path}: {name}: expected one line =>, found {lines.count('=>')}: is a line --- missing?")
            cut = lines.index("=>")
            yield name, rule, lines[1].strip(), "\n".join(lines[2:cut]), "\n".join(lines[cut + 1 :])


def mutants() -> list[Mutant]:
    """Those of mutants.txt."""
    paths = {}
    for pattern in ("runtime/**/*.c", "tests/sim/*.c", "lua/**/*.lua"):
        for path in glob.glob(os.path.join(ROOT, pattern), recursive=True):
            if "/meta/" not in path:
                paths[os.path.basename(path)] = os.path.relpath(path, ROOT)
    found = []
    for name, rule, where, old, new in blocks(os.path.join(HERE, "mutants.txt")):
        source, function, test = where.split()
        if source not in paths:
            sys.exit(f"mutants.txt: {name}: there is no file {source}")
        found.append(Mutant(name, rule, paths[source], function, test, old, new))
    return found


@functools.lru_cache(maxsize=None)
def source(path: str) -> str:
    return text_of(path)


def text_of(path: str) -> str:
    with open(os.path.join(ROOT, path)) as f:
        return f.read()


def changed(mutant: Mutant, text: str) -> str:
    """The text of the mutant's function, or of its file in Lua. ValueError: it does not fit."""
    if mutant.lua:
        return source_text.replaced(text, mutant.old, mutant.new, lua=True)
    f = source_text.function(text, mutant.function)
    if f.variadic:
        raise ValueError(f"{f.name} has a variable number of arguments, and cannot be called in another's place")
    return source_text.replaced(text[f.start : f.end], mutant.old, mutant.new)


def broken(mutant: Mutant) -> str:
    """The whole text of the mutant's source."""
    text = source(mutant.path)
    if mutant.lua:
        return changed(mutant, text)
    f = source_text.function(text, mutant.function)
    return text[: f.start] + changed(mutant, text) + text[f.end :]


def with_mutants(path: str, those: list[Mutant]) -> str:
    """This source with these mutants in it."""
    text = source(path)
    out, last = ["extern int mutant_chosen;\n", f'#line 1 "{path}"\n'], 0
    wanted = {mutant.function for mutant in those}
    for f in source_text.functions(text):
        if f.name not in wanted:
            continue
        head = f.head
        cases, copies = [], [head.rstrip() + ";\n"]
        for mutant in those:
            if mutant.function == f.name:
                copy = changed(mutant, text)
                name = f"{f.name}_mutant_{mutant.number}"
                start = copy.index(f.name + "(")
                words = [word for word in copy[:start].split() if word not in ("static", "extern", "inline")]
                copies.append(" ".join(["static", *words, name]) + copy[start + len(f.name) :] + "\n")
                call = f"{name}({', '.join(f.parameters)});"
                is_void = words == ["void"]
                cases.append(
                    f"if (mutant_chosen == {mutant.number}) "
                    + (f"{{ {call} return; }}" if is_void else f"return {call}")
                )
        line = text.count("\n", 0, f.start) + 1
        body = text.count("\n", 0, f.body) + 1
        out += [text[last : f.start], *copies, f'#line {line} "{path}"\n', head, "{ ", " ".join(cases)]
        out.append(f'\n#line {body} "{path}"\n')
        last = f.body + 1
    return "".join([*out, text[last:]])


def write(path: str, text: str) -> None:
    """Unless it has this text already."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if os.path.exists(path) and text_of(path) == text:
        return
    with open(path, "w") as f:
        f.write(text)


def make(*arguments: str) -> None:
    """With what the make around it was told, but for the number of its jobs."""
    command = ["make", "--silent", "--no-print-directory", f"-j{os.cpu_count()}", f"BUILD={BUILD}", *arguments]
    subprocess.run(command, cwd=ROOT, check=True, stdout=sys.stderr)


def unit_tests() -> dict[str, str]:
    found = glob.glob(os.path.join(ROOT, "tests", "unit", "**", "*.c"), recursive=True)
    return {
        os.path.basename(path)[:-2]: os.path.relpath(path, os.path.join(ROOT, "tests", "unit"))[:-2] for path in found
    }


def build(those: list[Mutant]) -> dict[str, str]:
    """Builds the programs that these need: each one's path. In C: with all mutants of each source."""
    of_path: dict[str, list[Mutant]] = {}
    for mutant in mutants():
        if not mutant.lua:
            of_path.setdefault(mutant.path, []).append(mutant)
    for path, found in of_path.items():
        write(os.path.join(SOURCES, path), with_mutants(path, found))
    units = unit_tests()
    programs = {
        mutant.test: os.path.join(BUILD, "mutants", "sim" if mutant.test == "sim" else "tests/" + units[mutant.test])
        for mutant in those
        if not mutant.lua
    }
    mutated = " ".join(sorted(path[:-2] for path in of_path))
    make("MUTATED=" + mutated, *programs.values())
    for mutant in those:
        if mutant.lua:
            directory = os.path.join(BUILD, "mutants", "lua", mutant.name)
            embed(os.path.join(ROOT, directory), mutant)
            programs[mutant.name] = os.path.join(directory, "program")
            make(f"LUA_TEST=tests/unit/{units[mutant.test]}.c", programs[mutant.name])
    return {name: os.path.join(ROOT, path) for name, path in programs.items()}


def embed(directory: str, mutant: Mutant) -> None:
    """Makes prelude.c in that directory, of the files of lua/, with the mutant's text in its file."""
    files = [os.path.relpath(path, ROOT) for path in sorted(glob.glob(os.path.join(ROOT, "lua", "*", "*.lua")))]
    files = [path for path in files if "/meta/" not in path]
    with tempfile.TemporaryDirectory() as tree:
        for path in files:
            os.makedirs(os.path.join(tree, os.path.dirname(path)), exist_ok=True)
            if path != mutant.path:
                os.symlink(os.path.join(ROOT, path), os.path.join(tree, path))
        with open(os.path.join(tree, mutant.path), "w") as f:
            f.write(broken(mutant))
        script = os.path.join(ROOT, "scripts", "embed-lua.sh")
        made = subprocess.run([script, "-", *files], cwd=tree, capture_output=True, text=True, check=True)
    write(os.path.join(directory, "prelude.c"), made.stdout)


def ended(child: subprocess.Popen[bytes], out: str, limit_s: float) -> tuple[int | None, float]:
    """Its exit status, and how long it was silent at most; None: it was silent for so many seconds, or has said before
    it ended that some sentence does not hold."""
    size, spoke, longest = 0, time.monotonic(), 0.0
    while longest < limit_s:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return child.wait(0.05), max(longest, time.monotonic() - spoke)
        with open(out, errors="replace") as f:
            said = f.read()
        if any(line.startswith("not ok ") for line in said.split("\n")[:-1]):
            return None, longest
        longest = max(longest, time.monotonic() - spoke)
        if len(said) != size:
            size, spoke = len(said), time.monotonic()
    return None, longest


def run(program: str, number: int, limit_s: float) -> tuple[str, int | None, float]:
    """What it printed, its exit status, and its longest silence; None: it was killed, with all that it started, after
    so many silent seconds, or once it had failed. Its name says its number. What is used after it was freed holds no
    more what it held."""
    named = f"{program}.{number}"
    command = [named, "--seeds", SEEDS] if os.path.basename(program) == "sim" else [named]
    environment = {**os.environ, "MALLOC_PERTURB_": "85"}
    with contextlib.suppress(FileNotFoundError):
        os.unlink(named)
    os.link(program, named)
    with tempfile.NamedTemporaryFile("w+", errors="replace") as out:
        child = subprocess.Popen(
            command, cwd=ROOT, stdout=out, stderr=subprocess.DEVNULL, env=environment, start_new_session=True
        )
        try:
            status, silent_s = ended(child, out.name, limit_s)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            os.unlink(named)
        out.seek(0)
        return out.read(), status, silent_s


def found_by(program: str, number: int, limit_s: float) -> str | None:
    """What notices this mutant; None: it survives."""
    out, status, _ = run(program, number, limit_s)
    seeds = [line for line in out.split("\n") if line.startswith("# seed ")]
    if seeds:
        return seeds[0][2:].split(" (see")[0]
    failed = [line for line in out.split("\n") if line.startswith("not ok ")]
    if failed:
        return failed[0].split(" - ", 1)[1]
    return "never ending" if status is None else "a crash" if status else None


def check(those: list[Mutant]) -> int:
    bad = 0
    names = {mutant.number: mutant.name for mutant in those}
    units = unit_tests()
    for mutant in those:
        try:
            changed(mutant, source(mutant.path))
            if names[mutant.number] != mutant.name:
                raise ValueError(f"its name or number is that of {names[mutant.number]}")
            if mutant.test not in units and mutant.test != "sim":
                raise ValueError(f"there is no test {mutant.test}")
        except ValueError as wrong:
            print(f"mutants.txt: {mutant.name}: {mutant.path}: {wrong}")
            bad += 1
    return int(bad > 0)


def main() -> int:
    words = sys.argv[1:]
    those = [m for m in mutants() if not words or words == ["--check"] or any(word in m.name for word in words)]
    wrong_ones = check(those)
    if words == ["--check"]:
        print(f"{len(those)} mutants, of which the simulator runs {sum(m.test == 'sim' for m in those)}")
    if wrong_ones or words == ["--check"]:
        return wrong_ones
    start = time.monotonic()
    programs = build(those)
    built_s = time.monotonic() - start
    as_they_are = sorted({mutant.test for mutant in those if not mutant.lua})
    print(f"1..{len(those) + len(as_they_are)}", flush=True)
    n = failed = 0
    silent: dict[str, float] = {}
    slowest: list[tuple[float, str]] = []

    def say(good: bool, text: str) -> None:
        nonlocal n, failed
        n += 1
        failed += not good
        print(f"{'ok' if good else 'not ok'} {n} - {text}", flush=True)

    def examine(mutant: Mutant) -> tuple[Mutant, str | None, float]:
        began, limit_s = time.monotonic(), TIMES * silent.get(mutant.test, 0.0) + MORE_S
        found = found_by(programs[mutant.name if mutant.lua else mutant.test], mutant.number, limit_s)
        return mutant, found, time.monotonic() - began

    with ThreadPoolExecutor(2 * (os.cpu_count() or 1)) as pool:  # which must not fail beside others
        for name, (said, status, silent[name]) in zip(
            as_they_are, pool.map(lambda name: run(programs[name], 0, 600.0), as_they_are)
        ):
            wrong = [line for line in said.split("\n") if line.startswith("not ok ")] or [f"status {status}"]
            say(status == 0, f"{name} passes as it is" + (f": {wrong[0]}" if status != 0 else ""))
    those.sort(key=lambda mutant: -silent.get(mutant.test, 0.0))  # what may wait long begins first
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for mutant, found, took_s in pool.map(examine, those):
            slowest.append((took_s, mutant.name))
            how = f"dies by {found}" if found else f"survives {mutant.test}"
            say(found is not None, f"{mutant.name} ({mutant.rule}) {how}")
    for took_s, name in sorted(slowest, reverse=True)[:10]:
        print(f"# {name} took {took_s:.1f} s")
    used = os.times()
    cpu_s = used.children_user + used.children_system
    print(f"# {len(those)} mutants: {time.monotonic() - start:.0f} s, {cpu_s:.0f} s of CPU, built in {built_s:.0f} s")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())

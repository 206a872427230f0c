#!/usr/bin/env python3
"""Proves that the tests of what safety rests upon can fail: breaks one rule at a time, of the lease (then the simulator
looks for the seed that notices), or of a term's supervision, an elector's records, what locks in networked stores share
or the messages between processes (then their unit tests are to notice). Words choose mutants by name, --part 1/4 every
fourth one. One TAP line a mutant; a mutant that survives is a failure, and so is one whose text is not there exactly
once."""

import contextlib
import glob
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")


def sources_in(*rooms: str) -> list[str]:
    found = [path for room in rooms for path in sorted(glob.glob(os.path.join(ROOT, "runtime", room, "*.c")))]
    return [os.path.relpath(path, ROOT) for path in found]


# The files of lua/ as C, made in the directory of the objects.
PRELUDE = "prelude.c"

# A program that is built of it also tests the files of lua/.
LUA_FILES = sorted(
    os.path.relpath(path, ROOT) for path in glob.glob(os.path.join(ROOT, "lua", "*", "*.lua")) if "/meta/" not in path
)

# What each program is built of. A mutant belongs to the first one that has its file, and the test that it names.
LEASE = [f"runtime/lease/{name}.c" for name in ("lease", "lease_times", "lease_waits")]
SIMULATOR = [
    *LEASE,
    "runtime/locks/lock_failover.c",
    "runtime/base/clock.c",
    "runtime/base/err.c",
    "runtime/lease/successor.c",
    "tests/sim/sim.c",
    "tests/sim/sim_next.c",
    "tests/sim/main.c",
]
UNIT_TESTS = [
    ["runtime/base/clock.c", "tests/unit/base/test_clock.c"],
    *(
        [*LEASE, "runtime/base/clock.c", "runtime/base/err.c", f"tests/unit/lease/{test}.c"]
        for test in ("test_lease", "test_lease_turns")
    ),
    [
        "runtime/life/term_hooks.c",
        *LEASE,
        "runtime/base/clock.c",
        "runtime/base/err.c",
        "tests/unit/life/test_term_hooks.c",
    ],
    [
        "runtime/runner/script_version.c",
        "runtime/runner/election_settings.c",
        "runtime/process/sources.c",
        "runtime/base/buf.c",
        "runtime/base/err.c",
        "runtime/base/mem.c",
        "tests/unit/runner/test_script_version.c",
    ],
    [
        "runtime/election/readiness.c",
        "runtime/election/store_contact.c",
        "runtime/base/clock.c",
        "tests/unit/election/test_readiness.c",
    ],
    ["runtime/election/store_contact.c", "runtime/base/clock.c", "tests/unit/election/test_store_contact.c"],
    ["runtime/election/saves.c", "runtime/base/mem.c", "tests/unit/election/test_saves.c"],
    [
        "runtime/election/death_proof.c",
        "runtime/lease/advice.c",
        "runtime/lease/past.c",
        "runtime/lease/record.c",
        "runtime/lease/record_time.c",
        "runtime/base/buf.c",
        "runtime/base/clock.c",
        "runtime/base/err.c",
        "runtime/base/mem.c",
        "runtime/base/nonce.c",
        "runtime/base/proc.c",
        "tests/unit/election/test_death_proof.c",
    ],
    [
        "runtime/election/author.c",
        "runtime/lease/nomination.c",
        "runtime/election/death_proof.c",
        "runtime/lease/reading.c",
        "runtime/lease/advice.c",
        "runtime/lease/past.c",
        "runtime/lease/record.c",
        "runtime/lease/record_time.c",
        "runtime/base/buf.c",
        "runtime/base/clock.c",
        "runtime/base/err.c",
        "runtime/base/log.c",
        "runtime/base/mem.c",
        "runtime/base/nonce.c",
        "runtime/base/proc.c",
        "runtime/base/proc_tree.c",
        "tests/unit/election/test_author.c",
    ],
    [
        "runtime/lease/reading.c",
        "runtime/lease/advice.c",
        "runtime/lease/past.c",
        "runtime/lease/record.c",
        "runtime/lease/record_time.c",
        "runtime/base/buf.c",
        "runtime/base/clock.c",
        "runtime/base/err.c",
        "runtime/base/mem.c",
        "tests/unit/lease/test_reading.c",
    ],
    [
        "runtime/locks/lock_none.c",
        "runtime/lease/advice.c",
        "runtime/lease/past.c",
        "runtime/lease/record.c",
        "runtime/lease/record_time.c",
        "runtime/base/buf.c",
        "runtime/base/clock.c",
        "runtime/base/err.c",
        "runtime/base/mem.c",
        "tests/unit/locks/test_lock_none.c",
    ],
    [
        "runtime/lease/advice.c",
        "runtime/lease/past.c",
        "runtime/lease/nomination.c",
        "runtime/lease/record.c",
        "runtime/lease/record_time.c",
        "runtime/base/buf.c",
        "runtime/base/err.c",
        "runtime/base/mem.c",
        "tests/unit/lease/test_advice.c",
    ],
    [
        "runtime/lease/successor.c",
        "runtime/lease/nomination.c",
        "runtime/lease/advice.c",
        "runtime/lease/past.c",
        "runtime/lease/record.c",
        "runtime/lease/record_time.c",
        "runtime/base/buf.c",
        "runtime/base/clock.c",
        "runtime/base/err.c",
        "runtime/base/mem.c",
        "tests/unit/lease/test_successor.c",
    ],
    sources_in("base", "loop", "lease", "locks", "locks/file", "locks/driver") + ["tests/unit/locks/test_lock_link.c"],
    sources_in("base", "loop", "lease", "locks", "locks/file", "locks/driver") + ["tests/unit/locks/test_lock_user.c"],
    sources_in("base", "loop", "lease", "locks", "locks/file", "locks/driver")
    + ["tests/unit/locks/file/test_lock_file.c"],
    sources_in("base", "loop", "lease", "locks", "locks/file", "locks/driver")
    + ["tests/unit/locks/driver/test_lock_driver.c"],
    sources_in("base", "loop", "lease", "locks", "locks/file", "locks/driver")
    + [
        "runtime/election/author.c",
        "runtime/election/death_proof.c",
        "runtime/election/next_link.c",
        "runtime/election/outcome.c",
        "runtime/election/readiness.c",
        "runtime/election/store_contact.c",
        "tests/unit/election/test_next_link.c",
    ],
    sources_in("base", "loop", "lease", "locks", "locks/file", "locks/driver")
    + ["runtime/locks/etcd/etcd_answer.c", "tests/unit/locks/etcd/test_etcd_answer.c"],
    ["runtime/locks/zookeeper/zk_seen.c", "tests/unit/locks/zookeeper/test_zk_seen.c"],
    [
        "runtime/process/channel.c",
        "runtime/base/buf.c",
        "runtime/base/clock.c",
        "runtime/base/log.c",
        "runtime/base/mem.c",
        "tests/unit/process/test_channel.c",
    ],
    ["runtime/base/proc_tree.c", "runtime/base/clock.c", "tests/unit/base/test_proc_tree.c"],
    *(
        sources_in("base", "loop", "lease", "locks", "locks/file", "locks/driver", "election")
        + [f"tests/unit/election/{test}.c"]
        for test in ("test_elector", "test_elector_calls", "test_elector_deaths", "test_death_watch")
    ),
    sources_in("base", "loop", "lease", "locks", "locks/file", "locks/driver", "election")
    + ["runtime/simulation/sim_store.c", "tests/unit/election/test_past_terms.c"],
    sources_in("base", "loop", "lease", "locks", "locks/file", "locks/driver", "election")
    + ["runtime/simulation/sim_store.c", "tests/unit/election/test_elector_time.c"],
    sources_in("base", "lease") + ["tests/unit/lease/test_past.c"],
    sources_in("base", "lease") + ["tests/unit/lease/test_record.c"],
    ["runtime/process/sweeps.c", "tests/unit/process/test_sweeps.c"],
    [
        "runtime/process/sources.c",
        "runtime/base/buf.c",
        "runtime/base/err.c",
        "runtime/base/mem.c",
        "tests/unit/process/test_sources.c",
    ],
    sources_in("base", "loop") + ["tests/unit/loop/test_reaper.c"],
    *(sources_in("base", "loop") + [f"tests/unit/loop/{test}.c"] for test in ("test_offload", "test_resolve")),
    sources_in("base", "loop", "lease", "locks", "locks/file", "locks/driver")
    + ["runtime/locks/postgres/pg_login.c", "runtime/locks/postgres/pg_url.c"]
    + ["tests/unit/locks/postgres/test_pg_login.c"],
    *(
        sources_in("base", "loop", "process")
        + [
            "runtime/election/death_proof.c",
            "runtime/lease/advice.c",
            "runtime/lease/past.c",
            "runtime/lease/record.c",
            "runtime/lease/record_time.c",
            test,
        ]
        for test in ("tests/unit/process/test_held.c", "tests/unit/process/test_guard_start.c")
    ),
    sources_in("base", "loop", "lease", "locks", "locks/file", "locks/driver", "process", "script", "cron")
    + [f"runtime/api/lua_{name}.c" for name in ("coroutine", "cron", "exec", "json", "log", "signal", "task", "time")]
    + ["runtime/election/death_proof.c", PRELUDE, "tests/unit/script/test_worker.c"],
    *(
        sources_in("base", "loop", "lease", "process") + ["runtime/election/death_proof.c", test]
        for test in (
            "tests/unit/process/test_deadline_page.c",
            "tests/unit/process/test_guard.c",
            "tests/unit/process/test_guard_orders.c",
        )
    ),
    ["runtime/process/kernel.c", "runtime/base/err.c", "tests/unit/process/test_kernel.c"],
    sources_in("base") + ["runtime/process/exec_warm.c", "tests/unit/process/test_exec_warm.c"],
    ["runtime/life/next_hooks.c", "tests/unit/life/test_next_hooks.c"],
    ["runtime/life/life.c", "tests/unit/life/test_life.c"],
    [
        "runtime/life/life.c",
        "runtime/life/term_hooks.c",
        "runtime/life/next_hooks.c",
        "runtime/base/clock.c",
        "tests/unit/life/test_life_search.c",
    ],
    [path for path in sources_in("driver") if not path.endswith("/driver.c")]  # the process around it
    + sources_in("base", "loop", "lease", "locks", "locks/file", "locks/driver", "process", "script", "cron")
    + [f"runtime/api/lua_{name}.c" for name in ("coroutine", "cron", "exec", "json", "log", "signal", "task", "time")]
    + ["runtime/election/death_proof.c", PRELUDE, "tests/unit/driver/test_driver.c"],
    sources_in("base", "cron")
    + ["runtime/api/lua_cron.c", "runtime/script/bind.c", PRELUDE, "tests/unit/cron/test_cron.c"],
]
LIBRARIES = ["-Wl,--as-needed", "-llua5.4", "-ldl", "-lev", "-ljansson", "-lm", "-lpq", "-pthread"]
# What is used after it was freed is a crash; nobody waits for long for what a mutant lets never happen.
UNIT_FLAGS = ["-O1", "-fsanitize=address", "-DPATIENCE_S=5."]
UNIT_LIMIT_S = 180.0  # a unit test takes seconds; a mutant may make it wait for ever
SEEDS = os.environ.get("MUTANT_SEEDS", "20000")
CC = shlex.split(os.environ.get("CC", "cc"))
LUA = subprocess.run(["pkg-config", "--cflags", "lua5.4"], capture_output=True, text=True).stdout.split()


def mutants(path: str = os.path.join(HERE, "mutants.txt")) -> Iterator[Any]:
    """mutants.txt, or one like it: blocks of `name | rule`, a file name (and the test's, if it is not the first that
    has the file), the text, `=>`, the replacement; blocks end with a line `---`."""
    with open(path) as f:
        for block in f.read().split("\n---\n"):
            lines = [line for line in block.split("\n") if not line.startswith("#")]
            while lines and not lines[0].strip():
                lines.pop(0)
            if not lines:
                continue
            name, rule = [s.strip() for s in lines[0].split("|", 1)]
            cut = lines.index("=>")
            yield name, rule, lines[1].strip(), "\n".join(lines[2:cut]), "\n".join(lines[cut + 1 :])


def program_of(name: str) -> Any:
    """The sources of the program that tests this file, and the file's path."""
    for sources in (SIMULATOR, *UNIT_TESTS):
        paths = {os.path.basename(path): path for path in sources + (LUA_FILES if PRELUDE in sources else [])}
        if all(word in paths for word in name.split()):
            return sources, paths[name.split()[0]]
    sys.exit(f"mutants.txt: no program is built of {name}")


def embed(directory: str, changed: str = "", text: str = "") -> str:
    """Makes the prelude in that directory, of the files of lua/, with another text in one of them. Its path."""
    with tempfile.TemporaryDirectory() as d:
        for path in LUA_FILES:
            os.makedirs(os.path.join(d, os.path.dirname(path)), exist_ok=True)
            if path != changed:
                os.symlink(os.path.join(os.path.realpath(ROOT), path), os.path.join(d, path))
        if changed:
            with open(os.path.join(d, changed), "w") as f:
                f.write(text)
        out = os.path.join(directory, PRELUDE)
        script = os.path.join(os.path.realpath(ROOT), "scripts", "embed-lua.sh")
        with open(out, "w") as f:
            subprocess.run([script, "-", *LUA_FILES], cwd=d, stdout=f, check=True)
    return out


def compiled(room: str, directory: str, path: str, flags: list[str]) -> str:
    """The object file of this source, which stays in the directory."""
    if os.path.basename(path) == PRELUDE and directory == room:
        path = os.path.join(room, PRELUDE)
    out = os.path.join(directory, (flags[0] + os.path.relpath(path, ROOT)).replace("/", "-") + ".o")
    includes = [os.path.join(ROOT, d) for d in ("tests/sim", "tests/lib", "runtime")] + [room]
    if not os.path.exists(out):
        options = flags + ["-std=gnu11", "-D_GNU_SOURCE", "-w", *LUA] + ["-I" + d for d in includes]
        subprocess.run(CC + options + ["-c", "-o", out, path], check=True)
    return out


def build(room: str, directory: str, sources: Any, broken: Any, text: str) -> Any:
    """room: a directory with version.h, for the objects of what has no mutant."""
    flags = ["-O2"] if sources is SIMULATOR else UNIT_FLAGS
    if broken in LUA_FILES:
        changed, broken = embed(directory, broken, text), PRELUDE
    else:
        changed = os.path.join(directory, os.path.basename(broken))
        with open(changed, "w") as f:
            f.write(text)
    program = os.path.join(directory, "program")
    objects = [
        compiled(room, *((directory, changed) if path == broken else (room, os.path.join(ROOT, path))), flags)
        for path in sources
    ]
    subprocess.run(CC + flags + ["-o", program] + objects + LIBRARIES, check=True)
    return program


def ended(child: subprocess.Popen[bytes], out: str, limit: float) -> int | None:
    """Its exit status; None: it has not ended in so many seconds, or has said before that some sentence does not
    hold."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return child.wait(0.1)
        with open(out, errors="replace") as f:
            if any(line.startswith("not ok ") and line.endswith("\n") for line in f):
                return None
    return None


def run(command: list[str], limit: float | None) -> tuple[str, int | None]:
    """What it printed, and its exit status; None: it was killed, with all that it started, after so many seconds, or
    once it had failed."""
    env = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}
    with tempfile.NamedTemporaryFile("w+", errors="replace") as out:
        child = subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL, env=env, start_new_session=True)
        try:
            status = child.wait() if limit is None else ended(child, out.name, limit)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        out.seek(0)
        return out.read(), status


def found_by(sources: Any, program: Any) -> Any:
    """What notices the mutant that this program has; None: it survives."""
    if sources is not SIMULATOR:
        out, status = run([program], UNIT_LIMIT_S)
        found = [line for line in out.split("\n") if line.startswith("not ok ")]
        if found:
            return found[0].split(" - ", 1)[1]
        return "never ending" if status is None else "a crash" if status else None
    out, status = run([program, "--seeds", SEEDS], None)
    found = [line for line in out.split("\n") if line.startswith("# seed ")]
    if found:
        return found[0][2:].split(" (see")[0]
    return "a crash" if status is None or status < 0 or "seeds" not in out else None


def main() -> Any:
    words, part, parts = sys.argv[1:], 0, 1
    if words[:1] == ["--part"]:
        part, parts = map(int, words[1].split("/"))
        words = words[2:]
    n = failed = 0
    room = tempfile.TemporaryDirectory()
    with open(os.path.join(room.name, "version.h"), "w") as f:
        f.write('#define LUNARCH_VERSION "of mutants"\n')
    embed(room.name)
    for number, (name, rule, source, text, replacement) in enumerate(mutants()):
        if number % parts != part % parts or (words and not any(word in name for word in words)):
            continue
        n += 1
        sources, path = program_of(source)
        with open(os.path.join(ROOT, path)) as f:
            whole = f.read()
        if whole.count(text) != 1:
            print(f"not ok {n} - {name}: its text occurs {whole.count(text)} times in {source}, expected once")
            failed += 1
            continue
        with tempfile.TemporaryDirectory() as d:
            program = build(room.name, d, sources, path, whole.replace(text, replacement))
            found = found_by(sources, program)
        failed += found is None
        how = f"dies by {found}" if found else f"survives {SEEDS} seeds" if sources is SIMULATOR else "survives"
        print(f"{'ok' if found else 'not ok'} {n} - {name} ({rule}) {how}")
        sys.stdout.flush()
    print(f"1..{n}")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())

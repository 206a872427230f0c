#!/usr/bin/env -S PYTHONPATH=. python3
"""Runs the fuzzers of tests/fuzz, which `make fuzz-programs` builds: `ci TARGET` is the suite fuzz: of the queue (the
corpus, then a fixed number of executions of a fixed seed), `run` is `make fuzz`, `planted` plants a bug for each target
(planted.txt) that the target has to find, and `merge` makes the corpora of the tree small again. All print TAP."""

import argparse
import base64
import concurrent.futures
import contextlib
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

from tests.sim.mutants import blocks
from tests.lib.tap import done, ok

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")

BUILD = os.path.join(ROOT, "build", "fuzz")
FOUND = os.path.join(BUILD, "found")  # what `run` has collected, which the next run goes on with; and reproducers
TARGETS = sorted(os.path.basename(path)[:-2] for path in glob.glob(os.path.join(HERE, "*.c")))
# Executions in the whole check: a second or two of a processor's time. A socket, a directory or a Lua state makes them
# slow.
RUNS = 30000
SLOW = {"control": 10000, "driver": 8000, "file": 4000, "grpc": 8000, "http": 5000, "redis": 6000, "zookeeper": 5000}
SLOW |= {
    "kubeconfig": 5000,
    "kube_object": 8000,
    "kube_slice": 8000,
    "kube_watch": 12000,
    "record": 6000,
    "wire": 15000,
}
SLOW |= {"crontab": 3000, "json": 20000, "template": 20000, "history": 15000, "ask": 15000}
# Bytes of an input at most: 4096, but where longer ones cost more and say nothing new.
LONGEST = {"cron": 256, "lock_url": 256, "duration": 512, "postgres": 512, "template": 512, "kube_exec": 512}
LONGEST |= {"history": 1024, "crontab": 1024, "control": 2048, "record": 2048}
PLANTED_RUNS = 400000  # in which a planted bug has to be found, in so many seconds at most:
PLANTED_SECONDS = 1200
# Where addresses differ from run to run, so does what libFuzzer keeps, and a seed does not say what is tried: nor where
# it looks into its directory by the clock (-reload). Not every container allows the first.
SAME_ADDRESSES = (
    ["setarch", "-R"] if subprocess.run(["setarch", "-R", "true"], capture_output=True).returncode == 0 else []
)
# A Lua state keeps memory from one execution to the next, which libFuzzer would look through each time.
KEEPS = ("json", "template", "crontab")
# AddressSanitizer remembers where each block was made, 30 calls deep, and keeps 256 MB of freed ones: both cost more
# than most executions. A finding's reproducer says the same without them (`build/fuzz/targets/NAME FILE`).
ASAN = "malloc_context_size=2:quarantine_size_mb=4"

# A limit of the resident memory is looked after by a thread, which libFuzzer starts beside the first executions. What
# that thread makes of its own is a leak to LeakSanitizer, if it looks while the thread begins.
ONE_THREAD = ["-rss_limit_mb=0", "-malloc_limit_mb=4096"]


class Run:
    """One target at work; `directory` is its corpus, to which it adds."""

    def __init__(self, target: str, program: str, directory: str, options: list[str]) -> None:
        self.target = target
        self.reproducer = os.path.join(FOUND, "crash-" + target + "-")
        os.makedirs(FOUND, exist_ok=True)
        words = os.path.join(HERE, target + ".dict")
        command = SAME_ADDRESSES + [program, f"-artifact_prefix={self.reproducer}", "-timeout=60", *ONE_THREAD]
        command += ["-print_final_stats=1", f"-max_len={LONGEST.get(target, 4096)}"] + options
        command += ["-detect_leaks=0"] if target in KEEPS else []
        command += [f"-dict={words}"] if os.path.exists(words) else []
        for old in glob.glob(self.reproducer + "*"):
            os.remove(old)
        began = time.monotonic()
        done = subprocess.run(
            command + [directory],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            env=dict(os.environ, ASAN_OPTIONS=ASAN),
        )
        self.seconds = time.monotonic() - began
        self.good, self.text = done.returncode == 0, done.stderr.decode(errors="replace")
        executions = re.findall(r"number_of_executed_units: (\d+)", self.text) or re.findall(
            r"^#(\d+)", self.text, re.M
        )
        edges = re.findall(r"cov: (\d+)", self.text)
        self.executions, self.edges = (int(found[-1]) if found else 0 for found in (executions, edges))

    def why(self) -> str:
        """What was found, the stack, and the reproducer, as a path and in base64."""
        lines = self.text.splitlines()
        first = next((i for i, line in enumerate(lines) if re.search(r"must hold|ERROR:|runtime error", line)), 0)
        kept = [line for line in lines[first : first + 60] if re.search(r"must hold|ERROR:|runtime error|^ +#\d", line)]
        for path in glob.glob(self.reproducer + "*"):
            with open(path, "rb") as f:
                kept += [os.path.relpath(path, ROOT), "base64: " + base64.b64encode(f.read()).decode()]
        return "\n".join(kept or lines[-20:])


def program(target: str) -> str:
    return os.path.join(BUILD, "targets", target)


def corpus(target: str) -> str:
    return os.path.join(HERE, "corpus", target)


def ci(target: str) -> None:
    subprocess.run(
        ["make", "--silent", "--no-print-directory", "fuzz-programs", "TARGET=" + target], cwd=ROOT, check=True
    )
    with tempfile.TemporaryDirectory() as directory:
        shutil.copytree(corpus(target), directory, dirs_exist_ok=True)
        count = len(os.listdir(directory))
        replayed = Run(target, program(target), directory, ["-runs=0"])
        ok(replayed.good and count, f"{target}: {count} inputs of its corpus do no harm", replayed.why())
        runs = SLOW.get(target, RUNS)
        fuzzed = Run(target, program(target), directory, [f"-runs={runs}", "-seed=1", "-reload=0"])
        ok(fuzzed.good, f"{target}: {runs} executions find nothing, at {fuzzed.edges} edges", fuzzed.why())


def fuzz(targets: list[str], minutes: float, jobs: int, runs: int) -> None:
    def one(target: str) -> Run:
        directory = os.path.join(FOUND, target)
        shutil.copytree(corpus(target), directory, dirs_exist_ok=True)
        options = [f"-max_total_time={int(minutes * 60)}"] + ([f"-runs={runs}"] if runs else [])
        return Run(target, program(target), directory, options)

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for work in concurrent.futures.as_completed([pool.submit(one, target) for target in targets]):
            r = work.result()
            what = f"{r.target}: {r.executions} executions in {r.seconds:.0f} s, {r.edges} edges"
            ok(r.good, what + (", no finding" if r.good else ", a finding"), r.why())


def changed_source(source: str, text: str) -> str:
    """As C: the files of lua/ are one file, which scripts/embed-lua.sh makes."""
    if not source.endswith(".lua"):
        return text
    with tempfile.TemporaryDirectory() as tree:
        shutil.copytree(os.path.join(ROOT, "lua"), os.path.join(tree, "lua"))
        with open(os.path.join(tree, source), "w") as f:
            f.write(text)
        files = sorted(glob.glob("lua/*/*.lua", root_dir=tree))
        script = os.path.join(ROOT, "scripts", "embed-lua.sh")
        names = [name for name in files if "/meta/" not in name]
        return subprocess.run([script, "-", *names], cwd=tree, check=True, capture_output=True, text=True).stdout


def plant(only: list[str]) -> None:
    directory = os.path.join(BUILD, "planted")
    os.makedirs(directory, exist_ok=True)
    planted = set()
    for target, what, source, text, replacement in blocks(os.path.join(HERE, "planted.txt")):
        planted.add(target)
        if only and target not in only:
            continue
        with open(os.path.join(ROOT, source)) as f:
            whole = f.read()
        if not ok(whole.count(text) == 1, f"{target}: the text of its bug is in {source} once"):
            continue
        with open(os.path.join(directory, target + ".c"), "w") as f:
            f.write(changed_source(source, whole.replace(text, replacement)))
        changed = os.path.join("build/fuzz/planted", target)
        name = os.path.splitext(os.path.basename(source))[0]
        subprocess.run(
            ["make", "--silent", "fuzz-programs", "PLANTED=" + changed, "PLANTED_IN=" + name], cwd=ROOT, check=True
        )
        with tempfile.TemporaryDirectory() as copy:
            shutil.copytree(corpus(target), copy, dirs_exist_ok=True)
            options = [f"-runs={PLANTED_RUNS}", "-seed=1", f"-max_total_time={PLANTED_SECONDS}"]
            r = Run(target, os.path.join(ROOT, changed), copy, options)
        ok(not r.good, f"{target} finds: {what}, by {r.executions} executions in {r.seconds:.0f} s")
        for path in glob.glob(r.reproducer + "*"):
            os.remove(path)
    if not only:
        ok(planted == set(TARGETS), "each target has a bug to find", set(TARGETS) ^ planted)


def merge(targets: list[str]) -> None:
    """The fewest inputs, of the tree's and of what was found, that reach the same edges, beside those that have a name:
    findings, and what is written by hand."""
    for target in targets:
        with tempfile.TemporaryDirectory() as small:
            for path in glob.glob(corpus(target) + "/*"):
                if not re.fullmatch("[0-9a-f]{40}", os.path.basename(path)):
                    shutil.copy(path, small)
            sources = [path for path in (corpus(target), os.path.join(FOUND, target)) if os.path.isdir(path)]
            options = ["-set_cover_merge=1", "-use_counters=0", "-max_len=4096", "-detect_leaks=0"]
            subprocess.run([program(target), *options, small, *sources], check=True, stderr=subprocess.DEVNULL)
            shutil.rmtree(corpus(target))
            shutil.copytree(small, corpus(target))
            sizes = [os.path.getsize(path) for path in glob.glob(small + "/*")]
        ok(sizes, f"{target}: {len(sizes)} inputs, {sum(sizes)} bytes")


def main() -> None:
    a = argparse.ArgumentParser()
    a.add_argument("mode", choices=["ci", "run", "planted", "merge"])
    a.add_argument("--minutes", type=float, default=1)
    a.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    a.add_argument("--runs", type=int, default=0, help="of each target at most; 0: as many as there is time for")
    a.add_argument("targets", nargs="*")
    given = a.parse_intermixed_args()
    unknown = [target for target in given.targets if target not in TARGETS]
    if unknown:
        sys.exit(f"no target {', '.join(unknown)}: there are {', '.join(TARGETS)}")
    targets = given.targets or TARGETS
    if given.mode == "ci":
        for target in targets:
            ci(target)
    elif given.mode == "run":
        fuzz(targets, given.minutes, given.jobs, given.runs)
    elif given.mode == "planted":
        plant(given.targets)
    else:
        merge(targets)
    for left in glob.glob("/dev/shm/lunarch-fuzz-*") + glob.glob("/tmp/lunarch-fuzz-*.sock"):
        with contextlib.suppress(OSError, ValueError):
            if not os.path.exists("/proc/" + re.sub(r"\D", "", os.path.basename(left))):
                os.remove(left) if left.endswith(".sock") else shutil.rmtree(left)
    done()


main()

#!/usr/bin/env python3
"""make demo: three candidates back up a real directory under the file lock; one leader is stopped, another is killed.
Shows who led when, verifies every archive, and checks that no two terms overlapped."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from typing import Any

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LUNARCH = os.path.join(ROOT, "build", "lunarch")
COLOUR = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
NAMES = "abc"


class Candidate:
    def __init__(self, name: str, work: Any, began: Any) -> None:
        self.name, self.began, self.leads = name, began, False
        self.terms: list[Any] = []
        self.process = subprocess.Popen(
            [
                LUNARCH,
                "run",
                "--lock",
                os.path.join(work, "lock"),
                "--identity",
                f"candidate-{name}",
                "--log-format",
                "json",
                "--lease-duration",
                "3s",
                "--renew-deadline",
                "2s",
                "--retry-period",
                "400ms",
                os.path.join(ROOT, "examples", "backup.lua"),
                "--",
                os.path.join(ROOT, "runtime"),
                os.path.join(work, "backups"),
                "0.7",
                "50",
            ],
            stderr=subprocess.PIPE,
            text=True,
        )
        threading.Thread(target=self.read, daemon=True).start()

    def read(self) -> None:
        for line in self.process.stderr or ():
            event = json.loads(line)
            now = time.monotonic() - self.began
            if event["event"] == "became_leader":
                self.terms.append([now, None, event["token"], ""])
                self.leads = True
            elif event["event"] == "stopped_leading":
                self.terms[-1][1:4:2] = now, event["message"].split()[0]
                self.leads = False
            elif event["level"] == "error":
                print(f"  {self.name}: {event['message']}")

    def end(self, sig: Any) -> None:
        if self.leads:
            self.terms[-1][1] = time.monotonic() - self.began
            self.terms[-1][3] = "killed" if sig == signal.SIGKILL else "shutdown"
        self.leads = False
        self.process.send_signal(sig)


def leader(candidates: Any, but: Any = None) -> Any:
    end = time.monotonic() + 30
    while time.monotonic() < end:
        for c in candidates:
            if c.leads and c is not but:
                return c
        time.sleep(0.001)
    sys.exit("demo: nobody leads after 30 s")


def timeline(candidates: Any, length: Any) -> None:
    width = 72
    print(f"\nWho led when ({length:.1f} s; = leads, x killed, s stopped):\n")
    for c in candidates:
        row = [" "] * (width + 1)
        for start, end, token, why in c.terms:
            a, b = int(start / length * width), int((end or length) / length * width)
            row[a : b + 1] = "=" * (b - a + 1)
            if why == "killed":
                row[b] = "x"
            elif end:
                row[b] = "s"
        line = "".join(row)
        print(f"  {c.name} |" + (f"\033[32m{line}\033[0m" if COLOUR else line) + "|")
    print()
    for start, end, token, why, name in sorted((*t, c.name) for c in candidates for t in c.terms):
        print(f"  {start:6.2f} s to {end or length:6.2f} s  {name}  token {token}  {why}")


def verify(directory: str) -> Any:
    good = 0
    for name in sorted(os.listdir(directory)):
        path = os.path.join(directory, name)
        if not name.endswith(".tar.gz"):
            continue
        with open(path, "rb") as f:
            digest = hashlib.sha256(f.read()).hexdigest()
        with open(path + ".sha256") as f:
            assert f.read().split()[0] == digest, f"{name}: the checksum differs"
        with tarfile.open(path) as tar:
            assert any(m.name.endswith("lease.c") for m in tar), f"{name} lacks a file"
        good += 1
    return good


def check_terms(lock: str) -> int:
    """By the record. The logs tell of an end a moment after the release, when the next one may lead already."""
    said = subprocess.run([LUNARCH, "history", "--json", "--lock", lock], capture_output=True, text=True, check=True)
    terms = json.loads(said.stdout)["terms"]
    for earlier, later in zip(terms, terms[1:]):
        assert earlier["to"] and earlier["to"] <= later["from"], f"terms overlap: {earlier} and {later}"
        assert earlier["token"] < later["token"], f"the token did not grow: {earlier} and {later}"
    return len(terms)


def main() -> None:
    work = tempfile.mkdtemp(prefix="lunarch-demo-")
    began = time.monotonic()
    print("Three candidates of examples/backup.lua, one file lock, backups every 0.7 s.")
    candidates = [Candidate(n, work, began) for n in NAMES]
    try:
        first = leader(candidates)
        time.sleep(3)
        print(f"Stopping the leader ({first.name}) with SIGTERM ...")
        first.end(signal.SIGTERM)
        second = leader(candidates, first)
        time.sleep(3)
        print(f"Killing the leader ({second.name}) with SIGKILL ...")
        second.end(signal.SIGKILL)
        third = leader(candidates, second)
        time.sleep(3)
        third.end(signal.SIGTERM)
        third.process.wait(30)
        timeline(candidates, time.monotonic() - began)
        archives = verify(os.path.join(work, "backups"))
        terms = check_terms(os.path.join(work, "lock"))
        assert terms >= 3 and archives >= 6, f"only {terms} terms and {archives} archives"
        print(f"\n{archives} archives verified, {terms} terms, no two at once, every token larger than the one before.")
    finally:
        for c in candidates:
            if c.process.poll() is None:
                c.process.kill()
                c.process.wait()
        shutil.rmtree(work, ignore_errors=True)


main()

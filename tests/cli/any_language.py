#!/usr/bin/env -S PYTHONPATH=. python3
"""docs/any-language.md: each program there follows a standby that becomes leader and is then killed."""

import atexit
import os
import re
import signal
import subprocess
import sys
import threading

from tests.lib.candidates import STEADY, Candidate, stop_everyone
from tests.lib.processes import PATIENCE, ROOT, piped, scratch, wait_for
from tests.lib.tap import done, note, ok

TMP = scratch()
atexit.register(stop_everyone)
SOCKET, FILE = f"{TMP}/web.sock", f"{TMP}/web.json"
with open(os.path.join(ROOT, "docs", "any-language.md"), encoding="utf-8") as f:
    TEXT = f.read()


def block(heading: str) -> str:
    """The first block of code under it, with our socket."""
    found = re.search(rf"^## {heading}$.*?^```[^\n]*\n(.*?)^```$", TEXT, re.M | re.S)
    assert found, heading
    return found[1].replace("/run/web.sock", SOCKET).replace("/run/web.json", FILE)


class Program:
    def __init__(self, heading: str, suffix: str, *command: str) -> None:
        path = f"{TMP}/{heading}.{suffix}"
        with open(path, "w", encoding="utf-8") as f:
            f.write(block(heading))
        env = os.environ | {"GO111MODULE": "off", "GOTOOLCHAIN": "local"}
        self.heading, self.lines = heading, list[str]()
        self.process = subprocess.Popen(
            [*command, path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env
        )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in piped(self.process.stdout):
            self.lines.append(line.strip())

    def says(self, word: str, what: str) -> None:
        if not ok(wait_for(lambda: self.lines[-1:] == [word]), f"{self.heading}: {what}", str(self.lines)):
            self.process.kill()
            note(piped(self.process.stderr).read())


def candidate(name: str, *more: str) -> Candidate:
    return Candidate(
        *("--lock", f"{TMP}/lock", "--identity", name, *more, "--", "sleep", "1000"), command="exec", options=STEADY
    )


first = candidate("first")
first.event("became_leader")
second = candidate("second", "--listen", f"unix:{SOCKET}", "--control", f"{TMP}/ctl.sock", "--state-file", FILE)
second.event("comes_next")
programs = [
    Program("Shell", "sh", "sh"),
    Program("Python", "py", sys.executable),
    Program("Go", "go", "go", "run"),
    Program("Node", "js", "node"),
    Program("A file, in shell", "sh", "sh"),
    Program("A file, in Python", "py", sys.executable),
]
for p in programs:
    p.says("standby", "it is told that its elector stands by")
first.kill(signal.SIGUSR1)
for p in programs:
    p.says("leading", "and that it leads")

orders = block("Orders").replace("$LUNARCH_CONTROL", f"{TMP}/ctl.sock")
r = subprocess.run(["sh", "-e", "-c", orders], capture_output=True, text=True, timeout=PATIENCE)
ok(r.returncode == 0 and r.stdout.count('"ok":true') == 2, "what is said of orders is so", r.stdout + r.stderr)
second.leave()  # the command of exec has ended with its term
for p in programs:
    p.says("unknown", "and that nothing is known when the elector has gone")
    p.process.wait(PATIENCE)
done()

"""Candidates that are asked: each with a control socket and an admin endpoint of its own.

Not what they should answer. Used by the tests of what ctl, /status and the metrics tell."""

import json
import os
import re
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

from tests.lib.candidates import FAST, Candidate
from tests.lib.processes import LUNARCH, PATIENCE, scratch, wait_for
from tests.lib.tap import note, ok

_sockets = scratch()
LONG = 180.0  # who comes next is published when it has been seen to change, after one to two leases of 6 s


def until(predicate: Callable[[], Any]) -> Any:
    return wait_for(predicate, LONG)


class Asked(Candidate):
    def __init__(self, *args: str, **kw: Any) -> None:
        self.socket = os.path.join(_sockets, f"{len(Candidate.everyone)}.sock")
        super().__init__("--control", self.socket, "--listen", "127.0.0.1:0", *args, **kw)
        self.url = re.findall(r"http://\S+:\d+", self.event("listening")["message"])[0]

    def ctl(self, *args: str, patience: float = PATIENCE) -> tuple[int, str]:
        """Exit status, and what it says."""
        command = [LUNARCH, "ctl", "--control", self.socket, *args]
        r = subprocess.run(command, capture_output=True, text=True, timeout=patience)
        return r.returncode, r.stdout + r.stderr

    def why(self) -> str:
        """What `ctl why` says before what happened."""
        return self.ctl("why")[1].split("what happened")[0]

    def status(self) -> dict[str, Any]:
        return json.loads(self.ctl("--json", "status")[1])["elections"][0]

    def get(self, path: str, method: str = "GET") -> tuple[int, str]:
        try:
            with urllib.request.urlopen(urllib.request.Request(self.url + path, method=method), timeout=PATIENCE) as r:
                return r.status, r.read().decode()
        except urllib.error.HTTPError as e:
            return e.code, e.read().decode()

    def metric(self, name: str, labels: str = "") -> float:
        """The sum over its elections; labels: what must stand among a series' labels."""
        found = re.findall(rf"(?m)^{name}\{{(.*)\}} ([\d.]+)$", self.get("/metrics")[1])
        return sum(float(value) for given, value in found if labels in given)

    def says(self, *words: str, what: str) -> None:
        """To people: `ctl why` begins with it, and `ctl status` shows it."""
        if not ok(until(lambda: all(w in self.why() and w in self.ctl("status")[1] for w in words)), what):
            note(self.why() + self.ctl("status")[1])


def candidate(lock: str, name: str, *args: str, **kw: Any) -> Asked:
    return Asked("--lock", lock, "--identity", name, *args, options=FAST, name=name, **kw)

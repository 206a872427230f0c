"""Candidates that are asked: each with a control socket and an admin endpoint of its own.

Not what they should answer. Used by the tests of what ctl, /status and the metrics tell."""

import json
import os
import re
import subprocess
import urllib.error
import urllib.request
from typing import Any

from tests.lib.candidates import Candidate
from tests.lib.processes import LUNARCH, PATIENCE, scratch

_sockets = scratch()


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

    def status(self) -> Any:
        return json.loads(self.ctl("--json", "status")[1])["elections"][0]

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(self.url + path, timeout=PATIENCE) as r:
                return r.status, r.read().decode()
        except urllib.error.HTTPError as e:
            return e.code, e.read().decode()

    def metric(self, name: str, labels: str = "") -> float:
        """The sum over its elections; labels: what must stand among a series' labels."""
        found = re.findall(rf"(?m)^{name}\{{(.*)\}} ([\d.]+)$", self.get("/metrics")[1])
        return sum(float(value) for given, value in found if labels in given)

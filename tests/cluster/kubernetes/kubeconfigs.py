#!/usr/bin/env -S PYTHONPATH=. python3
"""Kubeconfigs as clouds and distributions write them (kubeconfigs/), and as YAML may have them, read by Lunarch's
reader and by client-go's (make kube-server): both find the same, or both refuse."""

import json
import os
import shutil
import subprocess
from glob import glob
from typing import Any

from tests.lib.kube_rig import TOOLS
from tests.lib.processes import PATIENCE, ROOT, scratch
from tests.lib.tap import done, note, ok, same

OURS = os.path.join(ROOT, "build", "tests", "unit", "kube", "test_kube_config")
THEIRS = os.path.join(TOOLS, "contender")
FILES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "kubeconfigs")


def read_by(*command: str) -> dict[str, Any] | None:
    """What a reader finds; None: it refuses, and why is noted."""
    p = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    if p.returncode:
        note((p.stderr or p.stdout).strip()[:300])
        return None
    return json.loads(p.stdout)


def main() -> None:
    home = shutil.copytree(FILES, os.path.join(scratch(), "kubeconfigs"))
    os.makedirs(os.path.join(home, "profiles", "minikube"))
    for name in ("ca.crt", "profiles/minikube/client.crt", "profiles/minikube/client.key"):
        open(os.path.join(home, name), "w").close()  # client-go asks whether they are there
    files = sorted(glob(home + "/*.yaml"))
    ok(len(files) > 15, "there are kubeconfigs")
    for file in files:
        name = os.path.basename(file).removesuffix(".yaml")
        theirs = read_by(THEIRS, "-print", "-kubeconfig", file)
        what = "is refused, as by client-go" if theirs is None else "is read as by client-go"
        same(read_by(OURS, file), theirs, f"{name}: {what}")


main()
done()

"""What the Debian after this one has: its packages, unpacked and not installed."""

import os
import subprocess

from tests.lib.processes import ROOT


def next_debian(*packages: str) -> str:
    """Where they are."""
    fetch = [os.path.join(ROOT, "tests/lib/next_debian.sh"), *packages]
    return subprocess.run(fetch, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()

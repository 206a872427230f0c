"""A directory with the crontab, state and output of one `lunarch cron`, and `lunarch cron run` there.

Not the crontab. Used by cli/cron_asked.py and cli/cron_runs.py."""

import os
import re
import subprocess
from typing import Any

from tests.lib import commands
from tests.lib.processes import LUNARCH, scratch
from tests.lib.tap import ok

room = scratch()
STATE = ("--state-dir", os.path.join(room, "state"))
OUT = ("--output-dir", os.path.join(room, "out"))
TAB = os.path.join(room, "tab")
_RUN = ("cron", "run", *STATE, "--lock", "jobs")


def run(*args: str) -> commands.Result:
    return commands.run(*_RUN, *args)


def later(*args: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [LUNARCH, *_RUN, "--wait", *args],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def answer(p: Any, status: int, pattern: str, what: str) -> None:
    """p: one that has ended, or later()'s."""
    said = p.communicate(timeout=120)[0] if isinstance(p, subprocess.Popen) else p.stdout + p.stderr
    ok(p.returncode == status and re.search(pattern, said), what, f"status {p.returncode}: {said}")

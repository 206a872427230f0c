"""Debian's cron and cronie as judges: real daemons, told by the clock of cron_clock.c what time it is. Needs root.

They run nothing: what they would have run is written down, with the time, the input and the environment. Used by
tests/cli/cron.py."""

import os
import re
import subprocess
from typing import Any, NamedTuple

from tests.lib.next_debian import next_debian
from tests.lib.processes import ROOT

ZONE = "Europe/Berlin"


class Job(NamedTuple):
    """What would have been run."""

    shell: str
    command: str
    input: str
    env: tuple[tuple[str, str], ...]


class Verdict(NamedTuple):
    """Of one crontab. error: why it is refused, "" if it is taken; jobs: the minutes in which each was run."""

    error: str
    jobs: dict[Job, list[int]]


# "(NAME) ERROR (...)" of Debian's cron; "(CRON) bad minute (/.../NAME)" or "missing newline" of cronie.
SAID = re.compile(r"^\((?:\*system\*)?(\w+)\) ERROR |^\(CRON\) (?:bad|missing|ERROR) .*/(\w+)\)$")

# Users of their own for each crontab, all of them root. What is written to these directories stays in the namespace.
NAMESPACE = """
set -e
mount --make-rprivate /
for d in /var/spool/cron /etc/cron.d /etc/pam.d /run; do mount -t tmpfs none $d; done
mount --bind /dev/null /etc/crontab
mkdir -m 1730 /var/spool/cron/crontabs
for s in cron cronie crond other; do printf '%s required pam_permit.so\\n' auth account session >/etc/pam.d/$s; done
cp "$1"/user/* /var/spool/cron/crontabs/ 2>/dev/null || :
cp "$1"/system/* /etc/cron.d/ 2>/dev/null || :
chmod 600 /var/spool/cron/crontabs/* 2>/dev/null || :
mount --bind "$1/passwd" /etc/passwd
export LD_PRELOAD="$2"
shift 2
exec "$@"
"""


def debian() -> list[str]:
    return ["/usr/sbin/cron", "-f"]


def cronie() -> list[str]:
    root = next_debian("cronie", "libc6")
    lib = root + "/usr/lib/x86_64-linux-gnu"
    return [f"{lib}/ld-linux-x86-64.so.2", *("--library-path", lib), *(root + "/usr/sbin/crond", "-f", "-p")]


def build_clock(place: str) -> str:
    clock = os.path.join(place, "cron_clock.so")
    source = os.path.join(ROOT, "tests/lib/cron_clock.c")
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-w", "-o", clock, source], check=True)
    return clock


def read_records(path: str) -> list[list[str]]:
    with open(path, "rb") as f:
        text = f.read().decode("utf-8", "surrogateescape")
    return [["" if t == " " else t for t in record.split("\0")] for record in text.split("\0\0") if record]


def judge(
    daemon: list[str], clock: str, place: str, tabs: dict[str, tuple[bool, str]], spans: list[tuple[int, int]]
) -> dict[str, Verdict]:
    """tabs: name (a user's, too) -> whether it is a system crontab, and its text. spans: (from, to), seconds."""
    for kind in ("user", "system"):
        os.makedirs(os.path.join(place, kind))
    with open(os.path.join(place, "passwd"), "w") as f:
        f.write("root:x:0:0:root:/root:/bin/sh\n" + "".join(f"{name}:x:0:0::/root:/bin/sh\n" for name in tabs))
    for name, (system, text) in tabs.items():
        with open(os.path.join(place, "system" if system else "user", name), "wb") as g:
            g.write((f"CRONTAB_NAME={name}\n" * system + text).encode("utf-8", "surrogateescape"))
    env = {"PATH": "/usr/bin:/bin:/usr/sbin", "TZ": ZONE, "CRON_CLOCK_OUT": os.path.join(place, "out")}
    env["CRON_CLOCK_PLAN"] = " ".join(f"{begin - 30}-{end}" for begin, end in spans)
    argv = ["unshare", "-m", "sh", "-c", NAMESPACE, "sh", place, clock, *daemon]
    p = subprocess.run(argv, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
    if p.returncode != 0:
        raise RuntimeError(f"{daemon}: {p}")
    verdicts = {name: Verdict("", {}) for name in tabs}
    for record in read_records(os.path.join(place, "out")):
        if record[0] == "log" or any(begin <= int(record[1]) < end for begin, end in spans):
            take_record(record, verdicts)
    return verdicts


def job_of(shell: str, command: str, given: str, env: dict[str, str]) -> Job:
    """Without what differs for other reasons: users, and the variables that docs/cron.md says."""
    left = {k: v for k, v in env.items() if k not in ("LOGNAME", "SHELL", "LANG", "CRON_TZ")}
    return Job(shell, command, given, tuple(sorted(left.items())))


def verdict(error: str, jobs: list[dict[str, Any]]) -> Verdict:
    """Of what tests/cli/crontabs.lua writes."""
    v = Verdict(error, {})
    for j in jobs:
        v.jobs.setdefault(job_of(j["shell"], j["command"], j["input"], j["env"]), []).extend(j["times"])
    return Verdict(error, {job: times for job, times in v.jobs.items() if times})


def take_record(record: list[str], verdicts: dict[str, Verdict]) -> None:
    if record[0] == "job":
        time, shell, command, given = record[1:5]
        env = dict(v.partition("=")[::2] for v in record[5:])
        name = env.pop("CRONTAB_NAME", env["LOGNAME"])
        if env.get("USER") == env["LOGNAME"]:
            del env["USER"]  # cronie's
        if env["PATH"] == "/usr/bin:/bin:/usr/sbin:/sbin":
            env["PATH"] = "/usr/bin:/bin"  # cronie's preset is longer
        verdicts[name].jobs.setdefault(job_of(shell, command, given, env), []).append(int(time) // 60)
        return
    said = SAID.search(record[1])
    who = str(said[1] or said[2]) if said else ""
    if who in verdicts:
        verdicts[who] = verdicts[who]._replace(error=record[1])

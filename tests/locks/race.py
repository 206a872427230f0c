#!/usr/bin/env -S PYTHONPATH=. python3
"""Many processes of several users want one lock, again and again: each round has one winner, tokens only grow, and
every winner holds alone. Real `lunarch exec`, all starting at the same time; as root they belong to four users of one
group."""

import os
import shutil
import signal
import subprocess
import tempfile
from typing import Any

from tests.lib.candidates import FAST, Candidate, stop_everyone
from tests.lib.processes import LUNARCH, piped
from tests.lib.tap import done, note, ok, same

ROUNDS, EACH, GROUP = 6, 3, 54321
USERS: list[int | None] = [0, 54322, 54323, 54324] if os.geteuid() == 0 else [None] * 4
# What the winner does: alone in the directory, it notes its token, and stays a moment.
HOLD = (
    'umask 0; mkdir "$0/alone" || echo "$LUNARCH_TOKEN" >>"$0/together"; echo "$LUNARCH_TOKEN $1" >>"$0/won"; sleep '
    '0.02; rmdir "$0/alone"'
)


def as_user(uid: Any) -> Any:
    """For a directory of a group: everybody's files are for the group, whatever the umask."""
    return [] if uid is None else ["setpriv", f"--reuid={uid}", f"--regid={GROUP}", "--clear-groups"]


def shared_directory() -> str:
    d = tempfile.mkdtemp(prefix="lunarch-race-", dir="/var/tmp")
    if os.geteuid() == 0:
        os.chown(d, 0, GROUP)
        os.chmod(d, 0o2770)
    return d


def contend(d: Any, wait: Any, option: Any) -> Any:
    """One process for each of EACH candidates of each user, all at once; their statuses."""
    running = [
        subprocess.Popen(
            [
                *as_user(uid),
                LUNARCH,
                "exec",
                *FAST,
                *wait,
                "--lock",
                d + "/lock" + option,
                "--",
                "sh",
                "-c",
                HOLD,
                d,
                f"{uid}-{n}",
            ],
            stderr=subprocess.PIPE,
            text=True,
        )
        for uid in USERS
        for n in range(EACH)
    ]
    errors = [p.communicate(timeout=120)[1] for p in running]
    return [p.returncode for p in running], errors


def read(path: str) -> list[str]:
    try:
        with open(path) as f:
            return f.read().split("\n")[:-1]
    except OSError:
        return []


def everyone_in_turn(d: str, option: str, rounds: int) -> None:
    for _ in range(rounds):
        statuses, errors = contend(d, [], option)
        if set(statuses) != {0}:
            note("\n".join(errors))
    won = [line.split() for line in read(d + "/won")]
    same(
        len(won),
        rounds * EACH * len(USERS),
        f"{option} {EACH * len(USERS)} processes of {len(set(USERS))} user(s), {rounds} times: each has the lock once",
    )
    same(len({who for _, who in won}), EACH * len(USERS), "and none is left out")
    tokens = [int(t) for t, _ in won]
    ok(tokens == sorted(set(tokens)), "each with a token larger than all before it")
    same(read(d + "/together"), [], "and nobody else in the room")


def one_winner(d: str, option: str) -> None:
    """With -n nobody waits: of those that start together while it is held, nobody gets it."""
    before = len(read(d + "/won"))
    holder = Candidate(
        "--lock",
        d + "/lock" + option,
        "--",
        "sh",
        "-c",
        "echo on; exec sleep 1000",
        command="exec",
        stdout=subprocess.PIPE,
    )
    piped(holder.process.stdout).readline()
    statuses, _ = contend(d, ["-n"], option)
    same(set(statuses), {75}, "while one process holds the lock, -n refuses all the others with 75")
    same(len(read(d + "/won")), before, "and none of their commands has run")
    holder.kill(signal.SIGTERM)
    holder.leave()
    left = [n for _, _, names in os.walk(d) for n in names if n.endswith(".tmp")]
    same(left, [], "no temporary file is left")


def race(option: str, rounds: int) -> None:
    d = shared_directory()
    everyone_in_turn(d, option, rounds)
    one_winner(d, option)
    shutil.rmtree(d)


race("", ROUNDS)
race("?shared=link", 1)  # nobody is told there, so each handover takes a retry period
stop_everyone()
done()

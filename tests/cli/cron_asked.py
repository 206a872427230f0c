#!/usr/bin/env -S PYTHONPATH=. python3
"""`lunarch cron run JOB`: a job now, on the leader, beside the rules of its crontab; and what a running `lunarch cron`
shows of itself. Takes 10 s."""

import json
import os
import re
import subprocess
from typing import Any

from tests.lib.candidates import Candidate, stop_everyone
from tests.lib.commands import run as lunarch
from tests.lib.cron_room import OUT, STATE, TAB, answer, later, room, run
from tests.lib.processes import ROOT, wait_for
from tests.lib.tap import done, note, ok, same

BEGAN, GATES, LISTEN = (os.path.join(room, name) for name in ("began", "gates", "listen.sock"))
# Says that it begins, and ends when its gate is open: a file in GATES.
GATED = f'echo "$LUNARCH_CRON_JOB" >>{BEGAN}; while [ ! -e {GATES}/$LUNARCH_CRON_JOB ]; do sleep 0.05; done'
JOBS = f"""MAILTO=''
# lunarch: name=quick
0 0 1 1 * echo hi; exit 3
# lunarch: name=killed
0 0 1 1 * kill -9 $$
# lunarch: name=slow timeout=1s
0 0 1 1 * exec sleep 1000
# lunarch: name=allows
0 0 1 1 * {GATED}
# lunarch: name=skips overlap=skip
0 0 1 1 * {GATED}
# lunarch: name=waits overlap=wait
0 0 1 1 * {GATED}
# lunarch: name=again on_crash=again
0 0 1 1 * {GATED}
# lunarch: name=never overlap=wait
0 0 1 1 * {GATED}
0 0 1 1 * /bin/true one
0 0 1 1 * /bin/true two
0 0 1 1 * /bin/echo three
"""


def began(name: str) -> int:
    if not os.path.exists(BEGAN):
        return 0
    with open(BEGAN) as f:
        return f.read().split().count(name)


def begins(name: str, times: int = 1) -> bool:
    return bool(wait_for(lambda: began(name) == times))


def opens(name: str) -> None:
    open(os.path.join(GATES, name), "w").close()


def elector(name: str, *args: str) -> Candidate:
    identity = ("--identity", name, "--address", f"{name}.example:1", "--shutdown-grace", "2s")
    return Candidate(*STATE, *OUT, "--lock", "jobs", *identity, *args, TAB, command="cron", name=name)


def history() -> list[Any]:
    return [json.loads(line) for line in lunarch("cron", "history", "--json", *OUT).stdout.splitlines()]


def ended(name: str, times: int, status: str = "ok") -> bool:
    return bool(wait_for(lambda: len([r for r in history() if r["job"] == name and r["status"] == status]) == times))


def names() -> None:
    answer(run("quick"), 0, r'^the job "quick" starts$', "a job starts when it is asked for")
    answer(run("--wait", "quick"), 3, r"exit status 3, after", "with --wait the job's exit status is the command's")
    answer(run("--wait", "killed"), 137, r"signal 9", "or 128 and the signal, as a shell has it")
    answer(run("--wait", "slow"), 124, r"after its timeout of 1 s", "or 124 after its timeout")
    p = run("--json", "--wait", "quick")
    same((p.returncode, json.loads(p.stdout)["exitStatus"]), (3, 3), "with --json the answer is an object")
    answer(run("qiuck"), 1, r"no job 'qiuck' \(did you mean 'quick'\?\); there are: again, ", "a near name is offered")
    answer(run("true"), 1, r"begin with it: true-\w+, true-\w+$", "a name that two jobs share is refused, with both")
    answer(run("--wait", "echo"), 0, r'"echo-\w+": exit status 0', "a job without a name is found by its program's")
    answer(run("quic"), 1, r"begin with it: quick$", "the beginning of a name is none")
    answer(run(), 2, r"which job\?", "without a name it is wrong usage")
    answer(lunarch("cron", "run", *STATE, "quick"), 0, "starts", "without --lock it is the only one that leads here")


def overlaps(a: Candidate) -> None:
    for name, rule in (("skips", "overlap=skip"), ("again", "overlap=skip")):
        first = later(name)
        begins(name)
        answer(run(name), 1, f"runs already, since 2.*Z, and {rule}: no other run begins", f"{name}: one at a time")
        opens(name)
        answer(first, 0, "exit status 0", f"{name}: --wait ends with the job")
        same(began(name), 1, f"{name}: it has run once")
    answer(run("allows"), 0, "starts$", "with overlap=allow it starts")
    begins("allows")
    answer(run("allows"), 0, r"starts, beside its run since 2.*Z$", "and again, beside itself")
    ok(begins("allows", 2), "both run")
    opens("allows")
    ok(ended("allows", 2), "both end")
    first = later("waits")
    begins("waits")
    second = later("waits")
    a.event("cron_queued", '"waits"')
    answer(run("waits"), 1, r"one that was asked for waits for it", "with overlap=wait one waits, and no more")
    same((began("waits"), second.poll()), (1, None), "while the first one runs, it has not begun")
    opens("waits")
    answer(first, 0, "exit status 0", "the first one ends")
    answer(second, 0, "exit status 0", "and then the second one")
    same(began("waits"), 2, "two have run")


def shown(a: Candidate) -> None:
    who = subprocess.run(["id", "-un"], capture_output=True, text=True).stdout.strip()
    runs = [r for r in history() if r["job"] != "never"]
    same({r.get("asked_by") for r in runs}, {who}, "the history says who has asked for a run")
    same(len({r["id"] for r in runs}), len(runs), "each run has a line of its own")
    text = lunarch("cron", "history", *OUT).stdout
    ok(f"asked for by {who}  exit status 3" in text, "so does its text", text)
    ok(
        a.all("cron_started", f'"quick" ({TAB}:3) starts for') and a.all("cron_started", f"as {who} has asked"),
        "and the log",
    )
    listed = lunarch("ctl", "--list", *STATE).stdout
    ok(f"\n  cron {TAB}\n" in listed and "run -e" not in listed, "`ctl --list` shows the crontabs", listed)
    shows = json.loads(lunarch("ctl", "status", *STATE, "--lock", "jobs", "--json").stdout)
    same((shows["cron"], "script" in shows), ([TAB], False), "so does the status, in place of a script")
    curl = ["curl", "-s", "--unix-socket", LISTEN, "http://localhost/metrics"]
    metrics = subprocess.run(curl, capture_output=True, text=True).stdout
    with open(os.path.join(ROOT, "examples", "prometheus-alerts.yml")) as f:
        used = set(re.findall(r"\blunarch_cron_[a-z_]+", f.read()))
    there = set(re.findall(r"^(lunarch_cron_\w+)\{", metrics, re.M))
    ok(len(used) >= 2 and used <= there, "the example's alert rules use metrics that there are", f"{used} {there}")


def elsewhere(b: str) -> None:
    pattern = r"it does not lead: a does, with the address a\.example:1\. .* give this order where it runs"
    answer(run("--control", b, "quick"), 1, pattern, "a standby says who leads, and where")
    p = lunarch("cron", "run", "--state-dir", os.path.join(room, "other"), "--lock", f"file:{room}/state/jobs", "quick")
    answer(p, 69, r"a leads.* at a\.example:1.*: give this order there", "so does a machine that has no candidate")
    with Script() as script:
        p = lunarch("cron", "run", "--control", script, "quick")
        answer(p, 1, "this script runs no crontab", "a script that has no crontab refuses")
    curl = ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "--unix-socket", b, "http://x/run?job=quick"]
    same(subprocess.run(curl, capture_output=True, text=True).stdout, "405", "a GET asks for nothing")


class Script:
    def __enter__(self) -> str:
        path = os.path.join(room, "script.sock")
        self.c = Candidate("--control", path, *STATE, "--lock", "other", "-e", "sleep(1000)")
        self.c.event("became_leader")
        return path

    def __exit__(self, *_: Any) -> None:
        self.c.stop()


def ends(a: Candidate) -> None:
    os.remove(os.path.join(GATES, "waits"))
    runs, waits = later("never"), later("waits")
    begins("never"), begins("waits", 3)
    queued = later("never")
    a.event("cron_queued", '"never"')
    os.kill(a.worker(), 9)
    for p in (runs, waits, queued):
        answer(
            p, 1, "the process that runs the jobs has died, and they with it", "who waits is told that the worker died"
        )
    wait_for(lambda: run("--wait", "quick").returncode == 3)
    runs = later("never")
    begins("never", 2)
    queued = later("never")
    a.event("cron_queued", '"never"', count=2)
    a.ask_to_stop()
    answer(runs, 1, "the term has ended", "and that the term has ended")
    answer(queued, 1, "the term has ended|the term ends", "so is who waits for a run to begin")
    same(a.leave(), 0, "the elector ends as it should")
    ok(ended("never", 1, "skipped"), "what waited stands in the history as skipped", history()[-3:])
    same(began("never"), 2, "and has not begun")


def words() -> None:
    answer(
        lunarch("cron", "lst"),
        2,
        r"'lst' .* none of the words check, list, history and run: did you mean list\?",
        "a word that is none is refused",
    )
    answer(
        lunarch("cron", "--lock", "x", *STATE, "nothing"),
        2,
        "'nothing' is no file here",
        "so is a file that is not there",
    )
    answer(lunarch("cron", "check", "--json", TAB), 2, "--json is for", "--json is refused where nothing is shown")
    answer(lunarch("cron", "--wait", TAB), 2, "--wait is for", "and --wait where nothing is run")
    listed = [json.loads(line) for line in lunarch("cron", "list", "--json", TAB).stdout.splitlines()]
    same([j["name"] for j in listed][:2], ["quick", "killed"], "`list --json` has an object for each job")
    ok(
        len(listed[0]["next"]) == 3 and listed[0]["next"][0].endswith("Z") and listed[0]["line"] == 3,
        "with its next times",
        listed[0],
    )


os.makedirs(GATES)
with open(TAB, "w") as out:
    out.write(JOBS)
first_one = elector("a", "--listen", f"unix:{LISTEN}")
first_one.event("became_leader")
try:
    names()
    overlaps(first_one)
    shown(first_one)
    standby = os.path.join(room, "b.sock")
    second_one = elector("b", "--control", standby)
    second_one.event("new_leader", "a leads")
    elsewhere(standby)
    second_one.stop()
    ends(first_one)
    words()
except Exception as e:  # pylint: disable=broad-except
    ok(False, "the test comes to its end", repr(e))
    first_one.log()
    note(repr(e))
stop_everyone()
done()

#!/usr/bin/env -S PYTHONPATH=. python3
"""`lunarch cron`: how long a run lasts, and what is kept of it, told of it and taken on into changed crontabs. Takes
20 s."""

import json
import os
import re
import signal
import subprocess
from typing import Any

from tests.lib.candidates import Candidate, stop_everyone
from tests.lib.commands import run as lunarch
from tests.lib.cron_room import OUT, STATE, TAB, answer, later, room, run
from tests.lib.processes import wait_for
from tests.lib.tap import done, note, ok, same

GATED = (
    f"echo began >>{room}/$LUNARCH_CRON_JOB.began; while [ ! -e {room}/$LUNARCH_CRON_JOB.gate ]; do sleep 0.05; done"
)
LINGERS = f'echo $$ >{room}/lingers.pid; trap "" TERM; while :; do sleep 1; done'


def text(name: str) -> str:
    path = os.path.join(room, name)
    if not os.path.exists(path):
        return ""
    with open(path, errors="replace") as f:
        return f.read()


def write(name: str, content: str) -> None:
    with open(os.path.join(room, name), "w") as f:
        f.write(content)


def opens(name: str) -> None:
    write(name + ".gate", "")


def output(name: str) -> str:
    host = os.uname().nodename
    return text(f"out/{name}.{host}.log")


def gone(pid: str) -> bool:
    """It has ended, whether it was reaped or not. A process that has not written its number yet has not."""
    if not pid.strip():
        return False
    try:
        with open(f"/proc/{pid.strip()}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def elector(name: str, *args: str) -> Candidate:
    identity = ("--identity", name, "--shutdown-grace", "2s")
    return Candidate(*STATE, *OUT, "--lock", "jobs", *identity, *args, TAB, command="cron", name=name)


TIMES = "0 0 1 1 *"

# ---- how long a run lasts ----

BACKGROUND = f"""MAILTO=''
# lunarch: name=behind overlap=skip
0 0 1 1 * echo $$ >{room}/behind.pid; echo early; {{ {GATED}; echo late; echo end >{room}/behind.end; }} &
# lunarch: name=lingers timeout=1s
0 0 1 1 * setsid sh -c '{LINGERS}' &
# lunarch: name=daemon
0 0 1 1 * sh -c 'echo $$ >{room}/daemon.pid; exec sleep 1000' >/dev/null 2>&1 & echo started
# lunarch: name=long
0 0 1 1 * echo begins; yes | head -c 1000000; echo ends; exit 5
"""


def background() -> None:
    p = later("behind")
    wait_for(lambda: text("behind.began") and gone(text("behind.pid")))
    answer(run("behind"), 1, "it runs already", "`job &` runs as long as it holds its output, also for overlap=skip")
    opens("behind")
    answer(p, 0, "exit status 0", "and its run has ended when it has")
    same(text("behind.end"), "end\n", "it has come to its end, and not died of SIGPIPE at its output")
    ok("\nearly\nlate\n" in output("behind"), "which is kept, as that of before", output("behind"))
    answer(run("--wait", "lingers"), 124, "its timeout of 1 s", "a timeout holds for what goes on in the background")
    ok(
        wait_for(lambda: not text("lingers.pid") or gone(text("lingers.pid"))),  # none: it was killed before it began
        "and kills it, in a session of its own and without SIGTERM, too",
    )
    answer(run("--wait", "daemon"), 0, "exit status 0", "a run does not wait for what has closed its output")
    wait_for(lambda: text("daemon.pid"))  # the run, and its answer, may come first
    ok(not gone(text("daemon.pid")), "and lets it go on")


def long_output() -> None:
    answer(run("--wait", "long"), 5, "exit status 5", "a job says much")
    kept, cut = output("long"), re.search(r"\n\[(\d+) bytes are left out here\]\n", output("long"))
    ok("\nbegins\ny\n" in kept and kept.endswith("\ny\nends\n"), "its beginning and its end are kept", kept[-100:])
    ok(cut and int(cut[1]) == 1000000 + 12 - 262144, "and a line says how much is left out between them", cut)


# ---- variables ----


def environment() -> None:
    write("env", '\ufeff# a comment\n\n  FROM_FILE="as it is" # all of it\r\nTAKEN\nOVER=file\nOWN=file\n')
    names = ("GIVEN", "TAKEN", "ABSENT", "NOT", "FROM_FILE", "OVER", "OWN", "EMPTY")
    shown_as = ",".join(f"${{{name}-none}}" for name in names)
    write("tab", f"MAILTO=''\nOWN=tab\n# lunarch: name=env\n{TIMES} echo \"{shown_as}\"; echo $PATH\n")
    given = (
        "--env",
        "GIVEN=a=b",
        "--env",
        "ABSENT",
        "--env=OVER=option",
        "--env",
        "EMPTY=",
        "--env",
        "PATH=/bin:/opt/x",
    )
    c = Candidate(
        *(*STATE, *OUT, "--lock", "env", *given, "--env-file", f"{room}/env", TAB),
        command="cron",
        env={"TAKEN": "two", "NOT": "three"},
    )
    c.event("became_leader")
    lunarch("cron", "run", *STATE, "--lock", "env", "--wait", "env")
    got = output("env").split("\n")[1:3]
    same(
        got,
        ['a=b,two,none,none,"as it is" # all of it,option,tab,', "/bin:/opt/x"],
        "--env and --env-file give jobs variables, and a crontab's own lines come after them",
    )
    c.stop()
    for args, want in (
        (("--env", "A B=1"), "--env:1: expected the name of a variable, or NAME=VALUE"),
        (("--env", "LOGNAME=x"), "--env:1: LOGNAME cannot be set"),
        (("--env-file", f"{room}/nothing"), "nothing: No such file"),
        (("--env-file", TAB), f"{TAB}:4: expected the name of a variable"),
    ):
        p = lunarch("cron", "check", *args, TAB)
        ok(p.returncode == 1 and want in p.stderr, f"check {args}: {want}", p.stderr)


# ---- who is told ----


def tellers() -> tuple[str, ...]:
    write("sendmail", f"#!/bin/sh\ncat >>{room}/mail\n")
    os.chmod(f"{room}/sendmail", 0o755)
    line = f"echo \"$LUNARCH_CRON_JOB $LUNARCH_CRON_STATUS $(tr '\\n' ' ')\" >>{room}/told"
    return ("--on-failure", line, "--sendmail", f"{room}/sendmail")


def machine(name: str, *args: str) -> Candidate:
    """With a history of its own, and a control socket, as another machine."""
    own = ("--output-dir", f"{room}/out-{name}", "--identity", name, "--control", f"{room}/{name}.sock")
    return Candidate(*STATE, "--lock", "told", *own, "--shutdown-grace", "5s", *args, TAB, command="cron", name=name)


def begin(name: str, job: str) -> None:
    before = text(job + ".began").count("began")
    lunarch("cron", "run", "--control", f"{room}/{name}.sock", job)
    wait_for(lambda: text(job + ".began").count("began") > before)


def told() -> None:
    write("tab", f"MAILTO=ann\n# lunarch: name=long\n{TIMES} echo so far; {GATED}\n{TIMES} /bin/true short\n")
    c = machine("c", *tellers())
    c.event("became_leader")
    begin("c", "long")
    c.stop()
    same(
        text("told"),
        "long interrupted so far \n",
        "--on-failure hears of a run that the term's end has interrupted, with its output",
    )
    ok(
        "Subject: Cron" in text("mail") and "so far\n" in text("mail") and "since the term ended" in text("mail"),
        "so does MAILTO",
    )
    d, e = machine("d", *tellers()), machine("e", *tellers())
    wait_for(lambda: d.all("became_leader") or e.all("became_leader"))
    first_led, then = (d, e) if d.all("became_leader") else (e, d)
    lunarch("cron", "run", "--wait", "--control", f"{room}/{first_led.name}.sock", "true")
    begin(first_led.name, "long")
    wait_for(lambda: "long@" in text("state/told"))
    first_led.kill()
    then.event("became_leader")
    then.event("cron_failed", "it was lost with the process that ran it")
    ok(
        wait_for(lambda: text("told").count("long lost")),
        "of one that was lost with its leader the next one tells",
        text("told"),
    )
    ok(wait_for(lambda: "lost with the process" in text("mail")), "by mail, too")
    found = [
        json.loads(x)
        for x in lunarch("cron", "history", "--json", "--output-dir", f"{room}/out-{then.name}").stdout.splitlines()
    ]
    same([(r["job"], r["status"]) for r in found], [("long", "lost")], "its history has it")
    begin(then.name, "long")
    os.kill(then.worker(), 9)
    ok(wait_for(lambda: text("told").count("long lost") == 2), "and of one that was lost with its worker", text("told"))
    then.stop()
    same(text("told").count("\n"), 3, "each is told once, and a run that has ended is not")
    ok("long@" not in text("state/told"), "then the record forgets them", text("state/told"))
    same([x["message"] for c in (c, d, e) for x in c.all("hook_failed")], [], "no hook has failed meanwhile")


# ---- changed crontabs ----

BEFORE = f"""MAILTO=''
# lunarch: name=goes
{TIMES} {GATED}
# lunarch: name=stays overlap=skip
{TIMES} {GATED}
# lunarch: name=changes overlap=skip
{TIMES} {GATED}
# lunarch: name=minute
{TIMES} echo another
{TIMES} /bin/echo unnamed
"""
AFTER = f"""MAILTO=''
# lunarch: name=fresh
{TIMES} exit 9
# lunarch: name=changes overlap=skip
{TIMES} exit 8
# lunarch: name=minute
* * * * * echo this one
{TIMES} /bin/echo unnamed
# lunarch: name=stays overlap=skip
{TIMES} {GATED}
"""


def reload(*where: str) -> Any:
    return lunarch("ctl", "reload", *STATE, *(where or ("--lock", "jobs")))


def shown() -> set[str]:
    curl = ["curl", "-s", "--unix-socket", f"{room}/listen.sock", "http://localhost/jobs"]
    answered = subprocess.run(curl, capture_output=True, text=True).stdout
    return {j["name"].partition("-")[0] for j in json.loads(answered)["elections"][0]["jobs"]}


def reloads(a: Candidate) -> None:
    worker, terms = a.worker(), len(a.all("became_leader"))
    write("tab", BEFORE)
    os.kill(a.pid, 1)
    a.event("crontabs_taken", "5 jobs: 5 new, 0 changed, 4 gone")
    b = elector("b", "--control", f"{room}/b.sock")
    b.event("new_leader", "a leads")
    runs = {name: later(name) for name in ("stays", "changes", "goes")}
    wait_for(lambda: all(text(name + ".began") for name in runs))
    write("tab", AFTER)
    for where in (("--control", f"{room}/b.sock"), ("--lock", "jobs")):
        p = reload(*where)
        same((p.returncode, p.stderr), (0, ""), f"changed crontabs are taken ({where[0]})")
    a.event("crontabs_taken", "5 jobs: 1 new, 2 changed, 1 gone; what runs goes on")
    same(
        [p.poll() for p in runs.values()],
        [None] * 3,
        "what ran goes on, whether its line has changed, is gone, or neither",
    )
    answer(run("--wait", "fresh"), 9, "exit status 9", "a new line is a job at once")
    answer(run("goes"), 1, "there is no job 'goes'", "one that is gone is none")
    for name in ("stays", "changes"):
        answer(run(name), 1, "it runs already", f"{name}: its overlap rule holds for what goes on")
    ok(
        wait_for(lambda: shown() == {"fresh", "changes", "minute", "echo", "stays"}),
        "/jobs shows the jobs of now",
        shown(),
    )
    for name, p in runs.items():
        opens(name)
        answer(p, 0, "exit status 0", f"{name}: it is left to finish")
    answer(run("--wait", "changes"), 8, "exit status 8", "a changed line runs as it is now")
    same((a.worker(), len(a.all("became_leader"))), (worker, terms), "all that in one term and one worker")
    write("tab", AFTER + "61 * * * * x\n")
    p, why = reload(), '"61 * * * *": minute: expected 0 to 59, found "61"'
    ok(p.returncode == 1 and "the old jobs go on" in p.stderr and why in p.stderr, "a mistake is said", p.stderr)
    a.event("load_failed", why)
    told = lunarch("ctl", "why", *STATE, "--lock", "jobs").stdout
    ok("The last reload failed" in told and why in told, "and by `ctl why`", told)
    ok(a.event("cron_started", '"minute"'), "and a time that a line has got is kept", a.all("cron_started"))
    os.kill(worker, 9)
    b.event("became_leader")
    p = lunarch("cron", "run", "--wait", "--control", f"{room}/b.sock", "fresh")
    answer(p, 9, "exit status 9", "a standby has taken them, too")
    b.stop()
    a.event("became_leader", count=terms + 1)
    answer(
        run("--wait", "changes"),
        8,
        "exit status 8",
        "and so has a worker in place of a dead one, not what is there now",
    )


def hangs() -> None:
    write("tab", f"MAILTO=''\n# lunarch: name=before\n{TIMES} exit 3\n")
    c = Candidate(*STATE, *OUT, "--lock", "hangs", "--start-timeout", "5s", TAB, command="cron", name="hangs")
    c.event("became_leader")
    worker = c.worker()
    os.remove(TAB)
    os.mkfifo(TAB)  # a file in which whoever opens it hangs, as in one of a server that is gone
    where, why = ("--lock", "hangs"), "has not read the crontabs within 5 s (--start-timeout)"
    p = reload(*where)
    ok(p.returncode == 1 and why in p.stderr, "who waits for a reload that hangs is told", p.stderr)
    ok(c.event("worker_silent", why), "so does the log")
    told = lunarch("ctl", "why", *STATE, *where).stdout
    ok("The last reload failed" in told and why in told, "and `ctl why`", told)
    os.rename(TAB, f"{room}/hung")
    write("tab", f"MAILTO=''\n# lunarch: name=after\n{TIMES} exit 4\n")
    write("hung", f"MAILTO=''\n# lunarch: name=between\n{TIMES} exit 5\n")
    c.event("crontabs_taken", count=2)
    answer(
        lunarch("cron", "run", *STATE, *where, "--wait", "after"),
        4,
        "exit status 4",
        "when it ends, the files of then are taken",
    )
    ok(
        wait_for(lambda: "The last reload failed" not in lunarch("ctl", "why", *STATE, *where).stdout),
        "and that none failed is known",
    )
    same(c.worker(), worker, "by the same process")
    os.kill(worker, signal.SIGSTOP)
    p = reload(*where)
    ok(p.returncode == 1 and why in p.stderr, "a process that was stopped has a deadline, too", p.stderr)
    p = reload(*where)
    same((p.returncode, p.stderr), (0, ""), "and the next reload does without it")
    ok(wait_for(lambda: gone(str(worker))), "it is replaced")
    c.event("became_leader", count=2)
    c.stop()


write("tab", BACKGROUND)
first = elector("a", "--listen", f"unix:{room}/listen.sock")
first.event("became_leader")
try:
    background()
    long_output()
    environment()
    told()
    reloads(first)
    hangs()
except Exception as e:  # pylint: disable=broad-except
    ok(False, "the test comes to its end", repr(e))
    first.log()
    note(repr(e))
stop_everyone()
done()

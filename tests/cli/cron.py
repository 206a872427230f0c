#!/usr/bin/env -S PYTHONPATH=. python3
"""`lunarch cron`: what it takes for a crontab, beside Debian's cron and cronie; what its jobs see, beside Debian's
cron(8); and real hand-overs and crashes between minutes, on a file and on Redis. Takes two minutes, nearly all of them
asleep."""

import calendar
import collections
import json
import os
import platform
import re
import signal
import subprocess
import time
from typing import Any

from tests.lib import crons
from tests.lib.commands import Result, run
from tests.lib.processes import LUNARCH, ROOT, scratch, wait_for
from tests.lib.servers import Redis
from tests.lib.tap import at_once, done, note, ok, same, skip

MINUTE = 60
JOBS = 60  # of each minute
room = scratch()
STATE = ("--state-dir", os.path.join(room, "state"))


def write(name: str, text: str) -> str:
    path = os.path.join(room, name)
    with open(path, "w") as f:
        f.write(text)
    return path


def cron(*args: str) -> Result:
    return run("cron", *args)


def refused(text: str, *options: str) -> str:
    p = cron("check", *options, write("tab", text))
    return p.stderr.replace(room + "/", "") if p.returncode == 1 else f"status {p.returncode}: {p.stdout}"


def says() -> None:
    for text, pattern in [
        ("\n61 * * * * x", r'tab:2: "61 \* \* \* \*": minute: expected 0 to 59, found "61"'),
        ("5-1 * * * * x", r"a range goes upwards, found 5-1"),
        ("1 2 3 x", r"tab:1: found 4 fields, expected five"),
        ("@reboot x", r"tab:1: @reboot is about a machine"),
        ("CRON_TZ=Mars\n* * * * * x", r'tab:1: CRON_TZ: there is no time zone "Mars" \('),
        ("0 0 3 * * * x", r"tab:1: found '\*' where the command is expected"),
        ("0 0 3 * * MON-FRI x", r"tab:1: found 'MON-FRI' where the command is expected"),
        ("*/x * * * * x", r'minute: expected a step as in \*/5, found "x"'),
        ("LOGNAME=x\n* * * * * x", r"tab:1: LOGNAME cannot be set"),
        ("LUNARCH_TOKEN=1\n* * * * * x", r"tab:1: LUNARCH_TOKEN cannot be set"),
        ("MAILTO=-oQ/tmp\n* * * * * x", r"tab:1: MAILTO: '-oQ/tmp' is no address"),
        ("# lunarch: timout=3m\n* * * * * x", r"there is no setting 'timout' \(did you mean 'timeout'\?\)"),
        ("# lunarch: timeout=3\n* * * * * x", r"tab:1: timeout: found '3', expected a time above 0, as 30m"),
        ("# lunarch: timeout=3m\nA=1\n* * * * * x", r"tab:2: found a variable below '# lunarch: ...'"),
        ("* * * * * x\n# lunarch: timeout=3m\n", r"tab:2: found the end of the file below"),
        (
            "# lunarch: name=a\n* * * * * x\n# lunarch: name=a\n* * * * * y\n",
            r"tab:4: the name 'a' is taken by \S*tab:2",
        ),
        ("# lunarch: on_crash=again overlap=allow\n* * * * * x", r"exclude each other"),
        ("# nothing\n", r"tab: found no job"),
        ("* * * * * a\0b\n", r"tab:1: found a zero byte"),
        ("\x1b[31m * * * * x", r"tab:1: "),
    ]:
        said = refused(text)
        ok(re.search(pattern, said) and "traceback" not in said and "\x1b" not in said, f"{text!r}: {pattern}", said)
    me = subprocess.run(["id", "-un"], capture_output=True, text=True).stdout.strip()
    same(cron("check", "--system", write("tab", f"* * * * * {me} true\n")).returncode, 0, "a system crontab has a user")
    ok(
        "tab:1: found a job of the user 'nobody1'" in refused("* * * * * nobody1 true", "--system"),
        "another user is refused",
    )
    ok("expected a user and a command" in refused("* * * * * true", "--system"), "so is a line that has none")
    same(
        cron("check", "/nonexistent").stderr,
        "/nonexistent: No such file or directory\n",
        "a file that is missing is said",
    )
    p = cron("--lock", os.path.join(room, "never"), write("tab", "nonsense\n"))
    ok(
        p.returncode == 1 and "tab:1: found 1 field, " in p.stderr,
        "a crontab that is wrong is not begun with",
        p.stderr,
    )
    ok("--lock URL" in cron(write("tab", "* * * * * true\n")).stderr, "without a lock it does not begin")
    os.mkdir(os.path.join(room, "cron.d"))
    write("cron.d/a", "* * * * * a\n"), write("cron.d/b.dpkg-old", "nonsense\n"), write("cron.d/c_d-e", "* * * * * c\n")
    p = cron("list", os.path.join(room, "cron.d"))
    ok(
        re.search(r"^a-\w+ .*\n.*\n(  next .*\n){3}c-", p.stdout),
        "of a directory it takes the files whose names cron takes",
        p,
    )
    same(cron("check", os.path.join(ROOT, "examples", "crontab")).returncode, 0, "the example is a crontab")


WARNED = [
    ("0 4 * * * d $(date +%F)", r"tab:1: the command ends at its first %, and 'F\)' is its input: .* write \\%"),
    (
        "TZ=UTC 0 5 * * * x\n* * * * * y",
        r"tab:1: all of this line is the value of TZ, and no job: put '0 5 \* \* \* x' on",
    ),
    ("TZ=UTC @daily x\n* * * * * y", r"tab:1: all of this line is the value of TZ"),
    ("PATH=$PATH:/opt\n* * * * * x", r"tab:1: \$PATH is not expanded: .* Write it in full"),
    (
        "* * * * * x\n* * * * * root /x",
        r"tab:2: the command begins with 'root', which is a user and no program: .*--system",
    ),
    ("* * * * * x\r", r"tab:1: the lines end with a carriage return, .*dos2unix"),
    ("\ufeff* * * * * x", r"tab:1: the file begins with a byte order mark, .*: save it as UTF-8 without one"),
    ("*/60 * * * * x", r"tab:1: '\*/60' means its first value alone"),
    ("5/15 * * * * x", r"tab:1: '5/15' goes on to the end of the field here, and cron\(8\) refuses it"),
    ("MAILFROM=a b\n* * * * * x", r"tab:1: MAILFROM: 'a b' is no address"),
]


def says_and_warns() -> None:
    """One after the other: they write the same file."""
    says()
    warns()


def warns() -> None:
    for text, pattern in WARNED:
        p = cron("check", write("tab", text + "\n"))
        good = p.returncode == 0 and p.stdout.count("warning: ") == 1 and re.search(pattern, p.stdout)
        ok(good and p.stdout.endswith(" 1 warning\n"), f"check warns of {text!r}", p)
    quiet = "MAILTO=ann\n0 5 * * * x $HOME \\%\n0 5 1-7 * */7 date y\nC='cost $5'\n* * * * * sync x\n"
    same(
        cron("check", write("tab", quiet)).stdout, "3 jobs, no problem found\n", "and of nothing that is as it is meant"
    )
    names = (
        "cd /srv && /usr/bin/flock -n /run/l timeout 5m /opt/make -j2 all",
        "A=b env C=d python3 x",
        "flock -n /l",
        "/bin/a.sh",
    )
    listed = cron("list", write("tab", "".join(f"* * * * * {n}\n" for n in names))).stdout
    found = re.findall(r"^([\w-]+)-[0-9a-f]{8} ", listed, re.M)
    same(found, ["make", "python3", "flock", "a"], "a job is called by its program, and not by what only runs it")


# ---- a machine without a shell, as Lunarch's image is ----

# A root with the libraries and what this test has, and without /bin and /usr/bin. Arguments: that root, directories,
# "--", a command.
WITHOUT_SHELL = """
root=$1; shift; mount -t tmpfs none "$root"
for d in /usr/lib /lib /lib64 /proc /dev /etc; do
  [ ! -d "$d" ] || { mkdir -p "$root$d"; mount --rbind "$d" "$root$d"; }
done
while [ "$1" != -- ]; do mkdir -p "$root$1"; mount --rbind "$1" "$root$1"; shift; done; shift
exec chroot "$root" "$@"
"""


def shell_less() -> None:
    top = os.path.join(room, "root")
    os.mkdir(top)
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    apart = [
        "unshare",
        *user,
        "--mount",
        "sh",
        "-c",
        WITHOUT_SHELL,
        "sh",
        top,
        ROOT,
        os.path.dirname(LUNARCH),
        room,
        "--",
    ]

    def inside(*args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*apart, LUNARCH, "cron", *args], capture_output=True, text=True, timeout=240, stdin=subprocess.DEVNULL
        )

    tab = write("shell.tab", f"SHELL={LUNARCH}\n* * * * * true\nSHELL=/bin/sh\n* * * * * true\n* * * * * false\n")
    said = f"{tab}:4: there is no /bin/sh on this machine, the shell with which this command is run."
    lock, out = os.path.join(room, "shell.lock"), os.path.join(room, "shell.out")
    r = inside("check", tab)
    ok(
        r.returncode == 1 and r.stderr.startswith(said) and r.stderr.count("\n") == 1 and "SHELL=" in r.stderr,
        "without /bin/sh: cron check says so once, with the first line that needs it",
        r.stderr,
    )
    r = inside("--lock", lock, "--output-dir", out, tab)
    ok(r.returncode == 1 and r.stderr.startswith(said), "... and cron does at its start", r.stderr)
    ok(not os.path.exists(lock), "... and does not campaign")
    r = inside("list", tab)
    ok(r.returncode == 0 and r.stdout.count("next") == 9, "... a list needs no shell", r.stdout + r.stderr)
    other = write("shell.other", f"SHELL={LUNARCH}\n* * * * * true\n")
    r = inside("check", other)
    same((r.returncode, r.stdout), (0, "1 job, no problem found\n"), "... nor does a job with a shell that is there")
    r = inside("--lock", lock, "--output-dir", out, "--on-failure", "true", other)
    ok(
        r.returncode == 1 and "--on-failure is run with /bin/sh, and there is none" in r.stderr,
        "... --on-failure needs it",
        r.stderr,
    )
    r = cron("check", write("shell.bad", "* * * * * true\nSHELL=/bin/nosh\n* * * * * true\n"))
    ok(
        r.returncode == 1 and "shell.bad:3: there is no /bin/nosh" in r.stderr,
        "a SHELL that is nowhere is named",
        r.stderr,
    )


# ---- crontabs from the wild, beside Debian's cron and cronie ----

# UTC: an ordinary day, and the nights in which the clock changes. The daemons look at three moments of many other days.
DAY: Any = [((2026, 3, 2), (2026, 3, 3))]
NIGHTS: Any = [((2026, 3, 28, 22), (2026, 3, 29, 6)), ((2026, 10, 24, 21), (2026, 10, 25, 6))]
MOMENTS: Any = [
    ((2026, month, day, hour), (2026, month, day, hour, 1))
    for month, days in ((1, (1, 2)), (2, (28,)), (7, range(1, 17)), (12, (31,)))
    for day in days
    for hour in ((23, 4, 11) if month in (1, 2, 12) else (22, 3, 10))
]


def seconds(date: tuple[int, ...]) -> int:
    return calendar.timegm((*date, 0, 0, 0, 0)[:6])


def wild_tabs() -> dict[str, tuple[str, str]]:
    """A name -> the reasons why the judges differ, and the text of the crontab."""
    tabs = {}
    system = False
    with open(os.path.join(ROOT, "tests/cli/crontabs.txt"), encoding="utf-8") as f:
        for number, line in enumerate(f, 1):
            if number < 3 or line.startswith("## "):
                system = line.startswith("## system")
                continue
            why, text = re.match(r"(?:\[([^\]]*)\] )?(.*)\n", line).groups()  # type: ignore[union-attr]
            text = (text + "␊").replace("⟪EOF⟫␊", "").replace("⟪BOM⟫", "\ufeff")
            text = text.replace("␊", "\n").replace("␍", "\r").replace("␉", "\t")
            tabs[f"{'s' if system else 'u'}{number:03}"] = (why or "", text)
    return tabs


def ours(place: str, tabs: dict[str, tuple[bool, str]], spans: list[tuple[int, int]]) -> dict[str, crons.Verdict]:
    os.mkdir(place)
    for name, (_, text) in tabs.items():
        with open(os.path.join(place, name), "w", encoding="utf-8", newline="") as f:
            f.write(text)
    out, script = os.path.join(place, "out"), os.path.join(ROOT, "tests/cli/crontabs.lua")
    plan = " ".join(f"{begin}-{end}" for begin, end in spans)
    paths = [os.path.join(place, name) for name in tabs]
    argv = [LUNARCH, "check", script, "--", out, plan, *paths]
    p = subprocess.run(argv, env={**os.environ, "TZ": crons.ZONE}, capture_output=True, text=True, timeout=120)
    verdicts = {}
    with open(out, encoding="utf-8") as f:
        for line in f:
            seen = json.loads(line)
            verdicts[seen["name"]] = crons.verdict(seen["error"], seen["jobs"])
    if len(verdicts) != len(tabs):
        raise RuntimeError(p.stderr)
    return verdicts


def differs(mine: crons.Verdict, theirs: crons.Verdict) -> bool:
    return bool(mine.error) != bool(theirs.error) or (not mine.error and mine.jobs != theirs.jobs)


def shown(v: crons.Verdict) -> str:
    if v.error:
        return f"refused: {v.error.splitlines()[0]}"
    runs = [f"{len(times)} x {job.command!r} {dict(job.env)}" for job, times in v.jobs.items()]
    return "taken: " + ("; ".join(runs) or "never runs")


# Reasons that are over where cron is Debian 13's: it does as Lunarch does.
OVER = {"empty value"} if platform.freedesktop_os_release().get("VERSION_ID") == "13" else set()


def wild() -> None:
    """Each crontab is taken or refused, and runs at the same minutes, as by the real ones; or the docs say why."""
    place = os.path.join(room, "wild")
    os.mkdir(place)
    clock, known = crons.build_clock(place), wild_tabs()
    tabs = {name: (name[0] == "s", text) for name, (_, text) in known.items()}
    whole, nights = [sorted((seconds(a), seconds(b)) for a, b in spans) for spans in (DAY + NIGHTS + MOMENTS, NIGHTS)]
    said = {"ours": ours(f"{place}/ours", tabs, whole)}
    often = {n for n, v in said["ours"].items() if sum(len(t) for t in v.jobs.values()) > 200}
    groups = {"rare": ([n for n in tabs if n not in often], whole), "often": (sorted(often), nights)}
    said["ours"].update(ours(f"{place}/nights", {n: tabs[n] for n in often}, nights))
    for judge, daemon in (("Debian's cron", crons.debian()), ("cronie", crons.cronie())):
        said[judge] = {}
        for group, (names, spans) in groups.items():
            os.mkdir(f"{place}/{judge[0]}{group}")
            its = {n: tabs[n] for n in names}
            said[judge].update(crons.judge(daemon, clock, f"{place}/{judge[0]}{group}", its, spans))
    wrong, differing = [], set()
    for name, (why, text) in known.items():
        who = [j for j in ("Debian's cron", "cronie") if differs(said["ours"][name], said[j][name])]
        verdicts = "".join(f"\n    {j}: {shown(v[name])}" for j, v in said.items())
        if who:
            differing.add(why)
            note(f"{text!r}: {why or 'NOT LISTED'}{verdicts}")
        if bool(who) != bool(why and why not in OVER):
            wrong.append(f"{text!r} [{why}]: differs from {who}{verdicts}")
    what = f"{len(known)} crontabs from the wild: as Debian's cron and cronie, but for what is meant"
    ok(not wrong, what, "\n".join(wrong))
    with open(os.path.join(ROOT, "docs/cron.md"), encoding="utf-8") as f:
        table = f.read().partition("## Beside cron(8)")[2].partition("\n## ")[0]
    listed = set(re.findall(r"^\| ([^|]+?) \| ", table, re.M)) - {"what"}
    same(listed - OVER, differing, "what is meant is the list in docs/cron.md, and nothing of it is over")


# ---- beside Debian's cron(8) ----

TABLE = """\
OUT={out}
A = two words
B="  kept"
SHELL=/bin/bash
* * * * * env -0 >$OUT/env.new && mv $OUT/env.new $OUT/env
* * * * * cat >$OUT/in.new && mv $OUT/in.new $OUT/in; pwd >$OUT/pwd%one\\%% two %%three\\n
* * * * * printf '\\%s|' a\\%b '\\x' >$OUT/arg.new && mv $OUT/arg.new $OUT/arg; readlink /proc/$$/exe >$OUT/shell
HOME=/usr
A=z
* * * * * echo $A $B $PWD >$OUT/later.new && mv $OUT/later.new $OUT/later
"""
NAMESPACE = """
mount --make-rprivate / && mount -t tmpfs none /var/spool/cron && mount -t tmpfs none /etc/cron.d &&
mount -t tmpfs none /run && mount --bind /dev/null /etc/crontab && mkdir -m 1730 /var/spool/cron/crontabs &&
cp "$1" /var/spool/cron/crontabs/root && chmod 600 /var/spool/cron/crontabs/root && exec /usr/sbin/cron -f
"""
WRITTEN = ("env", "in", "pwd", "arg", "shell", "later")


def beside_debian() -> None:
    outs, programs = {}, []
    for who in ("debian", "lunarch"):
        outs[who] = os.path.join(room, who)
        os.mkdir(outs[who])
        path = write(f"{who}.tab", TABLE.format(out=outs[who]))
        argv = ["unshare", "-m", "sh", "-c", NAMESPACE, "sh", path]
        if who == "lunarch":
            argv = [LUNARCH, "cron", "--lock", os.path.join(room, "beside"), *STATE, path]
        programs.append(
            subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=open(path + ".log", "w"))
        )
    try:
        wait_for(lambda: all(os.path.exists(os.path.join(out, f)) for out in outs.values() for f in WRITTEN), 240)
    finally:
        for p in programs:
            p.terminate()
            p.wait()

    def content(who: str, name: str) -> str:
        with open(os.path.join(outs[who], name)) as f:
            return f.read().replace(outs[who], "OUT")

    for name in WRITTEN[1:]:
        same(content("lunarch", name), content("debian", name), f"{name}: as with Debian's cron")
    envs = {}
    for who in outs:
        envs[who] = dict(v.partition("=")[::2] for v in content(who, "env").split("\0") if v)
        for name in [
            n for n in envs[who] if n.startswith("LUNARCH_") or n in ("LANG", "TZ", "_", "SHLVL") or n.startswith("LC_")
        ]:
            del envs[who][name]
    same(envs["lunarch"], envs["debian"], "the environment: as with Debian's cron")


# ---- hand-over and crash ----


class Cluster:
    """Three candidates with one crontab, which write a line for each run."""

    def __init__(self, name: str, lock: str, jobs: int) -> None:
        self.name, self.place, self.jobs = name, os.path.join(room, name), jobs
        os.mkdir(self.place)
        self.runs = os.path.join(self.place, "runs")
        open(self.runs, "w").close()
        line = f'echo "$LUNARCH_CRON_JOB $LUNARCH_CRON_TIME" >>{self.runs}'
        text = "MAILTO=''\n" + "".join(f"# lunarch: name=j{i}\n* * * * * {line}\n" for i in range(jobs))
        text += f"# lunarch: name=slow overlap=skip\n* * * * * {line}; exec sleep 1000\n"
        text += f"# lunarch: name=again on_crash=again\n* * * * * {line}; exec sleep 1000\n"
        text += f"# lunarch: name=bad\n* * * * * {line}; echo no luck; exit 7\n"
        tab = write(f"{name}/tab", text)
        tell = f'echo "$LUNARCH_CRON_JOB $LUNARCH_CRON_STATUS $LUNARCH_CRON_WHY $(cat)" >>{self.place}/told'
        mailer = write(f"{name}/sendmail", f"#!/bin/sh\ncat >>{self.place}/mail\n")
        os.chmod(mailer, 0o755)
        self.out = os.path.join(self.place, "out")
        self.electors = {}
        for who in "abc":
            argv = [
                LUNARCH,
                "cron",
                "--lock",
                lock,
                *STATE,
                "--identity",
                f"{name}-{who}",
                "--lease-duration=6s",
                "--renew-deadline=4s",
            ]
            argv += [
                "--retry-period=1s",
                "--stop-grace=500ms",
                "--kill-allowance=500ms",
                "--drift-allowance=500ms",
                "--shutdown-grace=5s",
            ]
            argv += ["--log-format=json", "--output-dir", self.out, "--on-failure", tell, "--sendmail", mailer, tab]
            with open(f"{self.place}/{who}.log", "w") as log:
                self.electors[who] = subprocess.Popen(
                    argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
                )

    def leader(self) -> str:
        """The one that lives whose last word about that is that it leads."""
        for who, p in self.electors.items():
            with open(f"{self.place}/{who}.log") as f:
                events = [e for e in re.findall(r'"event":"(became_leader|stopped_leading)"', f.read())]
            if p.poll() is None and events and events[-1] == "became_leader":
                return who
        return ""

    def counted(self) -> collections.Counter:
        with open(self.runs) as f:
            return collections.Counter(tuple(line.split()) for line in f.read().splitlines())

    def all_ran(self, minute: int, also: tuple[Any, ...] = ("slow", "bad")) -> bool:
        seen, stamp = self.counted(), time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(minute))
        return all(seen[name, stamp] for name in [f"j{i}" for i in range(self.jobs)] + list(also))

    def history(self) -> list[Any]:
        return [json.loads(line) for line in cron("history", "--json", "--output-dir", self.out).stdout.splitlines()]

    def settled(self, minute: int) -> bool:
        """All that ends by itself has ended."""
        ended = {r["job"] for r in self.history() if r["time"] == minute and r["status"] in ("ok", "failed")}
        return len(ended) == self.jobs + 1

    def end(self) -> None:
        for p in self.electors.values():
            if p.poll() is None:
                p.send_signal(signal.SIGTERM)
        for p in self.electors.values():
            p.wait(60)


def faults(cluster: Cluster) -> None:
    first = wait_for(cluster.leader, 60)
    minute = (int(time.time() + 5) // MINUTE + 1) * MINUTE
    time.sleep(max(0.0, minute - time.time() - 0.2))
    cluster.electors[first].send_signal(signal.SIGTERM)
    wait_for(lambda: cluster.all_ran(minute), 120)
    ok(True, f"{cluster.name}: all jobs of the minute in which the leader stops are run")
    same(cluster.electors[first].wait(60), 0, f"{cluster.name}: the leader that was stopped has ended")
    wait_for(lambda: cluster.settled(minute), 120)
    second = wait_for(cluster.leader, 60)
    cluster.electors[second].kill()
    wait_for(lambda: cluster.leader() not in ("", second), 120)
    wait_for(lambda: cluster.all_ran(minute + MINUTE), 200)
    ok(True, f"{cluster.name}: after a crash of the leader all jobs of the next minute are run")
    cluster.end()
    counted = cluster.counted()
    twice = {key: n for key, n in counted.items() if n > 1 and key[0] != "again"}
    same(twice, {}, f"{cluster.name}: no job has run twice for the same minute ({len(counted)} runs)")
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(minute))
    same(counted["again", stamp], 2, f"{cluster.name}: one that the crash has cut has run again where on_crash=again")
    told(cluster, minute)


def told(cluster: Cluster, minute: int) -> None:
    with open(f"{cluster.place}/told") as f:
        ok(
            "bad failed exit status 7 no luck" in f.read(),
            f"{cluster.name}: --on-failure was told, and given the output",
        )
    ok(not os.path.exists(f"{cluster.place}/mail"), f"{cluster.name}: an empty MAILTO means no mail")
    how = collections.Counter(
        (r["job"], r["status"])
        for r in cluster.history()
        if r["time"] == minute and r["job"] in ("j0", "slow", "again", "bad")
    )
    want = {
        ("j0", "ok"): 1,
        ("bad", "failed"): 1,
        ("slow", "lost"): 1,
        ("again", "lost"): 1,
        ("again", "interrupted"): 1,
    }
    same(dict(how), want, f"{cluster.name}: the history says what came of each")


SENDER = "MAILFROM=cron@example.org\nCONTENT_TYPE=text/html\nCONTENT_TRANSFER_ENCODING=7bit\n* * * * * echo sent%\n"


def with_mail() -> None:
    mailer = write(
        "sendmail",
        f'#!/bin/sh\ncase "$*" in *" -f "*) to={room}/sender ;; *) to={room}/mail ;; esac\n'
        'echo "$@" >$to.args\ncat >$to.new && mv $to.new $to\n',
    )
    os.chmod(mailer, 0o755)
    tab = write("mail.tab", "MAILTO=ann@example.org,joe\n# lunarch: name=talks\n* * * * * echo said%\n" + SENDER)
    p = subprocess.Popen(
        [LUNARCH, "cron", "--lock", f"{room}/mailing", *STATE, "--sendmail", mailer, tab], stderr=subprocess.DEVNULL
    )
    try:
        wait_for(lambda: all(os.path.exists(f"{room}/{name}") for name in ("mail", "sender")), 240)
    finally:
        p.terminate()
        same(p.wait(60), 0, "it stops with status 0")
    with open(f"{room}/mail") as f:
        text = f.read()
    ok(
        "To: ann@example.org,joe\n" in text and "Subject: Cron <" in text and text.endswith("\n\nsaid\n"),
        "output is mailed, as cron does",
        text,
    )
    with open(f"{room}/mail.args") as f:
        ok(f.read().endswith(" ann@example.org joe\n"), "to those that MAILTO names")
    ok(re.match(r'From: "\(Cron Daemon\)" <\w+@[\w.-]+>\n', text), "from the user at this machine", text)
    with open(f"{room}/sender") as f, open(f"{room}/sender.args") as g:
        text, argv = f.read(), g.read()
    good = text.startswith('From: "(Cron Daemon)" <cron@example.org>\n') and " -f cron@example.org " in argv
    ok(good, "or from MAILFROM", text + argv)
    good = "\nContent-Type: text/html\nContent-Transfer-Encoding: 7bit\n" in text
    ok(good, "CONTENT_TYPE and CONTENT_TRANSFER_ENCODING are the mail's", text)
    said = cron("history", "--lock", f"{room}/mailing", *STATE)
    ok(re.search(r"Z  ok +\d+\.\d s  talks  for 2", said.stdout), "the history has a line for it", said)


def on_redis() -> None:
    with Redis() as server:
        faults(Cluster("redis", f"redis://127.0.0.1:{server.port}/cron", 5))


slow = [
    lambda: faults(Cluster("file", os.path.join(room, "lock"), JOBS)),
    on_redis,
    with_mail,
    says_and_warns,
    shell_less,
]
if os.geteuid() == 0 and os.path.exists("/usr/sbin/cron") and subprocess.run(["unshare", "-m", "true"]).returncode == 0:
    slow += [beside_debian, wild]
else:
    skip("beside Debian's cron", "this needs root, namespaces and Debian's package cron")
    note("install cron")
at_once(*slow)
done()

#!/usr/bin/env -S PYTHONPATH=. python3
"""The units that are installed, lunarch@, lunarch-exec@ and lunarch-cron@, on two machines with Debian's systemd as
process 1. Needs root."""

import os
import re
import shutil
import subprocess

from tests.lib.processes import ROOT, new_directory, wait_for
from tests.lib.systemds import Systemd
from tests.lib.tap import done, note, ok, same

HOME = new_directory("lunarch-units-")
INSTALLED = os.path.join(HOME, "opt/lunarch/lib/systemd/system")
STATE = "/var/lib/lunarch-service"
SEEN = os.path.join(HOME, "var", os.path.basename(STATE))  # the same, from here
SOCKET = "/run/lunarch-tab.sock"  # each machine has a /run of its own
JOBS = "/var/lib/lunarch-jobs"  # as docs/cron.md has it, for jobs of another user
# As docs/cron.md has it, and with a capability that systemd leaves to that user.
ANOTHER_USER = "[Service]\nUser=lunarch\nStateDirectory=\nStateDirectory=lunarch-jobs\nAmbientCapabilities={0}\n"
ANOTHER_USER += "StandardError=append:/var/lib/said\n"
EXPOSURE = 30  # of 100: what systemd-analyze(1) calls 3.0
# Else a watchdog takes half a minute.
QUICK = "[Service]\nWatchdogSec=4s\nEnvironment=LUNARCH_LEASE_DURATION=12s\n"
SCRIPTS = {
    "heartbeat": f"{STATE}/sign 1",
    "compact": f"{STATE}/segments 1",
    "backup": f"{STATE}/segments {STATE}/backups 1",
}


def read(*path: str) -> str:
    with open(os.path.join(*path)) as f:
        return f.read()


def install() -> dict[str, str]:
    """make install into a directory; the units' texts by name. What is built is taken as it is."""
    subprocess.run(
        ["make", "-s", "-o", "all", "-o", "build/lunarch", "install", f"DESTDIR={HOME}", "PREFIX=/opt/lunarch"],
        cwd=ROOT,
        check=True,
        env={k: v for k, v in os.environ.items() if not k.startswith(("LUNARCH_", "MAKE", "MFLAGS"))},
    )
    os.chmod(HOME, 0o755)
    return {name: read(INSTALLED, name) for name in sorted(os.listdir(INSTALLED))}


def configure() -> None:
    """An /etc with the user that lunarch.conf declares, scripts and settings. A /var/lib that both machines share."""
    etc = os.path.join(HOME, "etc")
    subprocess.run(["cp", "-a", "/etc", etc], check=True)
    shutil.rmtree(os.path.join(etc, "systemd"))
    subprocess.run(
        ["systemd-sysusers", f"--root={HOME}", os.path.join(ROOT, "packaging/units/lunarch.conf")], check=True
    )
    os.makedirs(os.path.join(etc, "lunarch"), exist_ok=True)
    for directory in ("segments", "backups"):
        os.makedirs(os.path.join(SEEN, directory))
    for name, arguments in SCRIPTS.items():
        shutil.copy(os.path.join(ROOT, "examples", name + ".lua"), os.path.join(etc, "lunarch"))
        with open(os.path.join(etc, "lunarch", name + ".env"), "w") as f:
            f.write(f"LUNARCH_LOCK={name}\nARGS={arguments}\n")
    with open(os.path.join(etc, "lunarch", "job.env"), "w") as f:
        f.write("LUNARCH_LOCK=job\nCOMMAND='echo \"$LUNARCH_TOKEN\" >>/var/lib/ran; exec sleep 1000'\n")
    with open(os.path.join(etc, "lunarch", "tab.env"), "w") as f:
        f.write(f"LUNARCH_LOCK=tab\nLUNARCH_CONTROL_SOCKET={SOCKET}\nARGS=--sendmail /nonexistent\n")
    with open(os.path.join(etc, "lunarch", "tab.crontab"), "w") as f:
        f.write('# lunarch: name=work\n0 0 1 1 * echo "$LUNARCH_TOKEN $(id -un) $HOME" >>/var/lib/worked\n')
    for name, user in (("own", "lunarch"), ("both", "nobody")):
        with open(os.path.join(etc, "lunarch", name + ".env"), "w") as f:
            f.write(f"LUNARCH_LOCK={name}\nARGS=--sendmail /nonexistent --state-dir {JOBS} --user {user}\n")
        with open(os.path.join(etc, "lunarch", name + ".crontab"), "w") as f:
            f.write(
                f"HOME={JOBS}\n# lunarch: name=work\n"
                f"0 0 1 1 * (id -un; pwd; grep CapEff /proc/self/status) >{JOBS}/{name}.ran\n"
            )


def machine(units: dict[str, str]) -> Systemd:
    binds = {"/etc": "etc", "/opt": "opt", "/var/lib": "var"}
    m = Systemd(units, binds={there: os.path.join(HOME, here) for there, here in binds.items()})
    for unit in ("lunarch@", "lunarch-exec@", "lunarch-cron@"):
        directory = os.path.join(m.dir, "run/systemd/system", unit + ".service.d")
        os.makedirs(directory)
        with open(os.path.join(directory, "quick.conf"), "w") as f:
            f.write(QUICK)
    for name, capabilities in (("own", "CAP_NET_BIND_SERVICE"), ("both", "CAP_SETUID CAP_SETGID")):
        directory = os.path.join(m.dir, f"run/systemd/system/lunarch-cron@{name}.service.d")
        os.makedirs(directory)
        with open(os.path.join(directory, "user.conf"), "w") as f:
            f.write(ANOTHER_USER.format(capabilities))
    m.systemctl("daemon-reload")
    return m


def shows(m: Systemd, unit: str, what: str) -> str:
    return str(m.systemctl("show", "--value", "-p", what, unit).stdout.strip())


def started(m: Systemd, unit: str) -> bool:
    r = m.systemctl("start", unit)
    if r.returncode:
        note(r.stderr + m.systemctl("status", unit).stdout + read(m.log)[-3000:])
    return bool(r.returncode == 0)


def becomes(m: Systemd, unit: str, text: str) -> bool:
    there = bool(wait_for(lambda: shows(m, unit, "StatusText") == text))
    if not there:
        note(m.systemctl("status", unit).stdout + read(m.log)[-3000:])
    return there


def user_of(m: Systemd, pid: str) -> str:
    r = subprocess.run([*m.enter(), "stat", "-c", "%U", f"/proc/{pid}"], capture_output=True, text=True)
    return r.stdout.strip()


def listed(m: Systemd) -> str:
    """The electors that ctl finds as the units' user. Before the other machine has any, since both share /var/lib."""
    become = ["setpriv", "--reuid=lunarch", "--regid=lunarch", "--init-groups", "--reset-env"]
    argv = [*m.enter(), *become, "/opt/lunarch/bin/lunarch", "ctl", "--list"]
    r = subprocess.run(argv, capture_output=True, text=True)
    if r.returncode or r.stderr:
        note(r.stdout + r.stderr)
    return r.stdout


def analyse() -> None:
    for name in sorted(os.listdir(INSTALLED)):
        r = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", os.path.join(INSTALLED, name)], capture_output=True, text=True
        )
        said = [line for line in r.stderr.splitlines() if name.split("@")[0] + "@" in line and "/opt/" not in line]
        same(said, [], f"systemd-analyze verify finds nothing in {name}")
    r = subprocess.run(
        [
            "systemd-analyze",
            "security",
            "--offline=true",
            f"--threshold={EXPOSURE}",
            os.path.join(INSTALLED, "lunarch@.service"),
        ],
        capture_output=True,
        text=True,
    )
    note(re.sub("\x1b\\[[0-9;]*m", "", r.stdout).strip().splitlines()[-1])
    same(r.returncode, 0, f"systemd-analyze security: the exposure of lunarch@ is {EXPOSURE / 10} at most")


def scripts(a: Systemd, b: Systemd) -> None:
    unit = "lunarch@heartbeat"
    ok(all(started(a, f"lunarch@{name}") for name in SCRIPTS), "three examples start as units")
    ok(all(becomes(a, f"lunarch@{name}", "leading") for name in SCRIPTS), "the status says that they lead")
    found = listed(a)
    ok(all(found.count(f"/{name}.lua") == 1 for name in SCRIPTS), "ctl of the units' user finds them")
    ok(started(b, unit) and becomes(b, unit, "standing by"), "on another machine one is active, and stands by")
    same(user_of(a, shows(a, unit, "MainPID")), "lunarch", "it runs as the user lunarch")
    ok(wait_for(lambda: os.listdir(os.path.join(SEEN, "backups"))), "the backup is made")
    ok(wait_for(lambda: os.path.exists(os.path.join(SEEN, "sign"))), "the sign of life is written")
    same(a.systemctl("stop", unit).returncode, 0, "it is stopped where it leads")
    ok(becomes(b, unit, "leading"), "the other machine leads")
    pid = shows(b, unit, "MainPID")
    same(b.systemctl("reload", unit).returncode, 0, "it is reloaded")
    ok(becomes(b, unit, "leading") and shows(b, unit, "MainPID") == pid, "the same process leads with the new script")
    ok(started(a, unit) and becomes(a, unit, "standing by"), "the first one stands by again")
    b.systemctl("kill", "--kill-whom=main", "--signal=STOP", unit)
    ok(wait_for(lambda: int(shows(b, unit, "NRestarts") or 0) > 0), "the watchdog starts an elector that is stopped")
    ok(
        wait_for(lambda: {shows(m, unit, "StatusText") for m in (a, b)} == {"leading", "standing by"}),
        "then one leads, and one stands by",
    )
    for name in SCRIPTS:
        a.systemctl("stop", f"lunarch@{name}")
    same([shows(a, f"lunarch@{name}", "Result") for name in SCRIPTS], ["success"] * 3, "all end as they should")
    b.systemctl("stop", unit)


def command(a: Systemd, b: Systemd) -> None:
    unit, ran = "lunarch-exec@job", os.path.join(HOME, "var", "ran")
    ok(started(a, unit) and becomes(a, unit, "leading"), "a command starts as a unit, and leads")
    ok(started(b, unit) and becomes(b, unit, "standing by"), "on another machine it stands by")
    a.systemctl("stop", unit)
    ok(becomes(b, unit, "leading"), "it is stopped, and the other machine's leads")
    ok(wait_for(lambda: len(read(ran).split()) == 2), "the command ran once on each")
    tokens = [int(t) for t in read(ran).split()]
    ok(tokens[0] < tokens[1], "with a fencing token that grows")
    b.systemctl("stop", unit)


def asked(m: Systemd) -> int:
    """Has the job run there now. The exit status."""
    argv = [*m.enter(), "/opt/lunarch/bin/lunarch", "cron", "run", "--control", SOCKET, "--wait", "work"]
    r = subprocess.run(argv, capture_output=True, text=True)
    note(r.stdout + r.stderr)
    return r.returncode


def crontab(a: Systemd, b: Systemd) -> None:
    unit, tab = "lunarch-cron@tab", os.path.join(HOME, "etc/lunarch/tab.crontab")
    ok(started(a, unit) and becomes(a, unit, "leading"), "a crontab starts as a unit, and leads")
    ok(started(b, unit) and becomes(b, unit, "standing by"), "on another machine it stands by")
    same((asked(a), asked(b)), (0, 1), "a job runs when it is asked for, on the leader alone")
    pid = shows(a, unit, "MainPID")
    with open(tab, "a") as f:
        f.write("# lunarch: name=more\n0 0 1 1 * true\n")
    same(a.systemctl("reload", unit).returncode, 0, "it is reloaded")
    ok(wait_for(lambda: becomes(a, unit, "leading") and asked(a) == 0), "and leads again")
    same(shows(a, unit, "MainPID"), pid, "as the same process")
    a.systemctl("stop", unit)
    ok(becomes(b, unit, "leading") and asked(b) == 0, "it is stopped, and the other machine's runs the job")
    ran = [line.split() for line in read(HOME, "var", "worked").splitlines()]
    tokens = [int(line[0]) for line in ran]
    same([line[1:] for line in ran], [["root", "/root"]] * 3, "jobs run as root, in its home")
    ok(tokens == sorted(tokens) and tokens[0] < tokens[-1], "with fencing tokens that grow")
    b.systemctl("stop", unit)
    same([shows(m, unit, "Result") for m in (a, b)], ["success"] * 2, "both end as they should")


def another_user(m: Systemd) -> None:
    """User= of the unit, and --user as well: the same user, which is content, and another, which is refused."""
    unit, jobs = "lunarch-cron@own", os.path.join(HOME, "var", "lunarch-jobs")
    was = os.stat(os.path.join(HOME, "var", "lunarch"))
    ok(started(m, unit) and becomes(m, unit, "leading"), "a crontab of another user starts as a unit, and leads")
    lunarch = [*m.enter(), "/opt/lunarch/bin/lunarch"]
    r = subprocess.run(
        [*lunarch, "cron", "run", "--state-dir", JOBS, "--wait", "work"], capture_output=True, text=True, timeout=300
    )
    same(r.returncode, 0, "root has its job run, which is found by --state-dir")
    same(
        read(jobs, "own.ran").split(),
        ["lunarch", JOBS, "CapEff:", f"{1 << 10:016x}"],
        "the job runs as that user, with what AmbientCapabilities= gives and no more",
    )
    pid, found = shows(m, unit, "MainPID"), sorted(os.listdir(jobs))
    same(user_of(m, pid), "lunarch", "the elector is that user")
    ok(any(n.endswith(".tree") for n in found), "evidence of its death is in the directory of its own", found)
    ok({os.stat(os.path.join(jobs, n)).st_uid for n in found} == {os.stat(jobs).st_uid}, "all in there is that user's")
    is_now = os.stat(os.path.join(HOME, "var", "lunarch"))
    same((is_now.st_uid, is_now.st_mode), (was.st_uid, was.st_mode), "and root's directory is root's as before")
    m.systemctl("stop", unit)
    same(shows(m, unit, "Result"), "success", "it ends as it should")

    unit, said = "lunarch-cron@both", os.path.join(HOME, "var", "said")
    open(said, "w").close()
    ok(m.systemctl("start", unit).returncode != 0, "a unit with User= and with --user of another user does not start")
    m.systemctl("stop", unit)
    ok(
        "--user nobody: this runs as user " in read(said) and "leave one of them out: User= in the unit" in read(said),
        "and says that one of both must go, also with the capability to change its user",
        read(said),
    )
    ok(not os.path.exists(os.path.join(jobs, "both")), "and has not campaigned")


UNITS = install()
same(
    sorted(UNITS),
    ["lunarch-cron@.service", "lunarch-exec@.service", "lunarch@.service"],
    "make install brings three units",
)
configure()
analyse()
with machine(UNITS) as first, machine(UNITS) as second:
    scripts(first, second)
    command(first, second)
    crontab(first, second)
    another_user(first)
shutil.rmtree(HOME)
done()

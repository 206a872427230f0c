#!/usr/bin/env -S PYTHONPATH=. python3
"""--state-file: what it says at each change; that a reader finds a whole one at any time; that it never claims a lease
for longer than that is proven; what is refused; a full disk, and one that hangs. Real processes."""

import atexit
import json
import os
import pwd
import signal
import stat
import subprocess
import sys
import threading
import time
from typing import Any

from tests.lib.candidates import STEADY, Candidate, stop_everyone
from tests.lib.processes import LUNARCH, PATIENCE, scratch, wait_for
from tests.lib.tap import done, note, ok, same, skip

INSIDE = "LUNARCH_TEST_STATE_FILE"
if os.geteuid() != 0:
    skip("a state file", "this needs root, for mounts and another user")
    done()
if INSIDE not in os.environ:  # no mount of this test's is left to anybody
    os.environ[INSIDE] = "1"
    os.execvp("unshare", ["unshare", "--mount", "--", sys.executable, os.path.abspath(__file__)])
TMP = scratch()
os.chmod(TMP, 0o755)
atexit.register(stop_everyone)
SOCKET = f"{TMP}/ctl.sock"
RENEW_S = 4  # the renew deadline of STEADY
with open("/proc/sys/kernel/random/boot_id") as boot_file:
    BOOT = boot_file.read().strip()


def state(path: str) -> Any:
    with open(path, encoding="utf-8") as f:
        return json.load(f)


def uptime() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def leads(s: Any) -> bool:
    """What docs/any-language.md tells a reader to check."""
    return s["boot"] == BOOT and any(e["leading"] and uptime() < e["leadingUntilUptime"] for e in s["elections"])


def shows(path: str, what: str, true: Any) -> Any:
    """As soon as that is so of the file, and there is one."""

    def found() -> Any:
        s = state(path) if os.path.exists(path) else None
        return s if s and true(s) else None

    s = wait_for(found)
    if not ok(s, what):
        note(str(os.path.exists(path) and state(path)))
    return s or state(path)


def candidate(name: str, file: str, *more: str, **kw: Any) -> Candidate:
    words = ("--lock", f"{TMP}/lock", "--identity", name, "--state-file", file)
    return Candidate(*words, *(more or ("-e", "sleep(1000)")), options=STEADY, **kw)


def ctl(*words: str) -> str:
    line = [LUNARCH, "ctl", *words, "--control", SOCKET]
    return subprocess.run(line, capture_output=True, text=True, timeout=PATIENCE).stdout


class Reader:
    """Reads files again and again. wrong: what it found that is no whole state, or claims more than was renewed."""

    def __init__(self, *paths: str) -> None:
        self.paths, self.wrong, self.reads, self.over = paths, list[str](), 0, False
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self) -> None:
        while not self.over:
            for path in self.paths:
                try:
                    s = state(path)
                    if not (isinstance(s["elections"], list) and s["boot"] == BOOT and s["pid"] > 0):
                        self.wrong.append(json.dumps(s))
                    for e in s["elections"]:
                        if e["leadingUntilUptime"] > uptime() + RENEW_S:
                            self.wrong.append(f"claims too much: {json.dumps(e)}")
                except (OSError, ValueError, KeyError) as e:
                    self.wrong.append(f"{path}: {e!r}")
                self.reads += 1
            time.sleep(0.0002)


A, B = f"{TMP}/a.json", f"{TMP}/b.json"


def changes() -> None:
    os.umask(0o022)
    a = candidate("a", A)
    a.event("became_leader")
    s = shows(A, "the file of a leader says that it leads", leads)
    (e,) = s["elections"]
    term = a.event("became_leader")
    same(
        (e["identity"], e["leader"], e["token"], s["pid"], s["stopped"]),
        ("a", "a", term["token"], a.pid, False),
        "who, with which token, and which process says so",
    )
    with open(f"/proc/{a.pid}/stat") as f:
        same(s["startTicks"], int(f.read().rsplit(")", 1)[1].split()[19]), "with when that process was started")
    left = e["leadingUntilUptime"] - uptime()
    ok(left <= RENEW_S, "it claims no more than the renew deadline", str(left))
    same(stat.S_IMODE(os.stat(A).st_mode), 0o644, "everybody may read it, by the umask")
    os.umask(0o077)
    b = candidate("b", B)
    b.event("comes_next")
    s = shows(
        B, "the file of a standby names the leader", lambda s: s["elections"] and s["elections"][0]["leader"] == "a"
    )
    ok(not leads(s) and s["elections"][0]["leadingUntil"] == "", "and claims nothing")
    same(stat.S_IMODE(os.stat(B).st_mode), 0o600, "a stricter umask counts")
    os.umask(0o022)
    shows(A, "who comes next is a change, too", lambda s: s["elections"][0]["next"]["identity"] == "b")
    first = state(A)["elections"][0]["leadingUntilUptime"]
    s = shows(A, "while it renews its claim moves on", lambda s: s["elections"][0]["leadingUntilUptime"] > first + 2)
    ok(leads(s), "before it is over")
    reader = Reader(A, B)
    with open(A, encoding="utf-8") as held:
        before = held.read()
        shows(A, "a reader that keeps the file open", lambda s: json.dumps(s) != json.dumps(json.loads(before)))
        held.seek(0)
        same(held.read(), before, "goes on seeing the one that it opened, whole:")
        same(os.fstat(held.fileno()).st_nlink, 0, "it is replaced, and never written into")
    a.kill(signal.SIGUSR1)
    s = shows(B, "after a hand-over the next leader's file says so,", leads)
    ok(s["elections"][0]["token"] > term["token"], "with its token")
    shows(A, "and the other's names it", lambda s: not leads(s) and s["elections"][0]["leader"] == "b")
    b.kill()
    s = state(B)
    ok(s["elections"][0]["leading"] and not s["stopped"], "what is killed leaves its last file")
    shows(A, "after its lease the other's file says who leads", leads)
    ok(not leads(state(B)), "and then the dead one's claim is over, which it says itself")
    b = candidate("b", B)
    b.event("new_leader")
    shows(B, "the next process takes that file over", lambda s: s["pid"] == b.pid and s["elections"])
    same(a.stop(), 0, "a process that is stopped ends well")
    s = state(A)
    same((s["stopped"], s["elections"]), (True, []), "and its file says that nobody leads there")
    same(b.stop(), 0, "so does the other")
    reader.over = True
    reader.thread.join(PATIENCE)
    same(
        reader.wrong[:3],
        [],
        f"in all that time each of {reader.reads} reads found a whole file, with no claim that is too long",
    )
    ok(reader.reads > 100, "of which there were many", str(reader.reads))
    same([n for n in os.listdir(TMP) if n.endswith("-new")], [], "and nothing else lies there")


def several() -> None:
    script = f"{TMP}/two.lua"
    election = '{ name = "%s", lock = "' + TMP + '/%s", on_leading = function() sleep(1000) end },'

    def write(*names: str) -> None:
        with open(script, "w") as f:
            f.write("return {" + "".join(election % (n, n) for n in names) + "}")

    def known(s: Any) -> list[tuple[str, bool]]:
        return [(e["name"], e["leading"]) for e in s["elections"]]

    write("p", "q")
    c = Candidate(script, "--state-file", A, options=STEADY)
    shows(A, "several elections are in one file", lambda s: known(s) == [("p", True), ("q", True)])
    write("q")
    c.kill(signal.SIGHUP)
    shows(A, "one that a reload takes away is not in it any more", lambda s: known(s) == [("q", True)])
    same(c.stop(), 0, "it ends")
    env = {"LUNARCH_STATE_FILE": A}
    c = Candidate("--lock", f"{TMP}/x", "--", "sleep", "1000", command="exec", env=env, options=STEADY)
    shows(A, "exec has it, by its variable", lambda s: leads(s) and s["pid"] == c.pid)
    c.stop()
    crontab = f"{TMP}/crontab"
    with open(crontab, "w") as f:
        f.write("0 0 1 1 * true\n")
    c = Candidate(
        *("--lock", f"{TMP}/cron", "--output-dir", f"{TMP}/out", "--state-file", A, crontab),
        command="cron",
        options=STEADY,
    )
    shows(A, "and cron", lambda s: leads(s) and s["pid"] == c.pid)
    c.stop()


def refused(file: str, why: str, what: str, *more: str) -> None:
    words = [LUNARCH, "exec", "--lock", f"{TMP}/y", "--state-file", file, *more, "--", "true"]
    r = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE)
    ok(r.returncode and why in r.stderr and file in r.stderr, what, r.stderr)


def refusals() -> None:
    target, link = f"{TMP}/target", f"{TMP}/link"
    with open(target, "w") as f:
        f.write('{"version":"x","pid":"mine"}')
    os.symlink(target, link)
    os.mkdir(f"{TMP}/closed", 0o700)
    refused(f"{TMP}/none/x", "No such file", "a directory that is not there is refused at the start")
    refused(TMP + "/", "name of a file", "so is what names no file")
    refused(TMP, "something else", "a directory,")
    refused(target, "no state file", "a file that somebody else wrote,")
    refused(link, "symbolic link", "a symbolic link,")
    user = ("--user", "nobody", "--state-dir", f"{TMP}/own")
    os.mkdir(f"{TMP}/own")
    os.chown(f"{TMP}/own", pwd.getpwnam("nobody").pw_uid, -1)
    refused(f"{TMP}/closed/x", "Permission denied", "and what the user whom --user names may not write", *user)
    with open(target) as f:
        same(f.read(), '{"version":"x","pid":"mine"}', "nothing was written to what was refused")
    a = candidate("a", A)
    a.event("became_leader")
    refused(A, f"process {a.pid} writes", "a file that another process writes is refused")
    a.stop()
    os.symlink(target, f"{TMP}/.a.json.lunarch-new")
    a = candidate("a", A)
    shows(A, "a link in the place of the temporary file is replaced,", leads)
    with open(target) as f:
        same(f.read(), '{"version":"x","pid":"mine"}', "and not followed")
    a.stop()
    words = ("--lock", f"{TMP}/own/lock", "--state-file", f"{TMP}/own/s.json", *user, "-e", "sleep(1000)")
    a = Candidate(*words, options=STEADY)
    shows(f"{TMP}/own/s.json", "the user whom --user names writes where it may", leads)
    same(os.stat(f"{TMP}/own/s.json").st_uid, pwd.getpwnam("nobody").pw_uid, "a file of its own")
    a.stop()


def full_disk() -> None:
    """A file system of 64 KB in memory."""
    place = f"{TMP}/small"
    os.mkdir(place)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", place], check=True)

    def fill() -> None:
        subprocess.run(["sh", "-c", f"head -c 1M /dev/zero >{place}/fill"], stderr=subprocess.DEVNULL)

    fill()
    c = candidate("c", f"{place}/s.json", "--control", SOCKET, "-e", "sleep(1000)")
    c.event("state_file_failed", "No space left")
    ok(c.wait("became_leader"), "a disk that is full stops no election")
    said = ctl("why")
    ok("cannot be written" in said and "No space left" in said, "`ctl why` says so", said)
    os.remove(f"{place}/fill")
    c.event("state_file_written")
    shows(f"{place}/s.json", "when there is room the file is there", leads)
    ok("cannot be written" not in ctl("why"), "and `ctl why` says nothing of it")
    fill()
    c.event("state_file_failed", count=2)
    s = state(f"{place}/s.json")
    ok(s["pid"] == c.pid, "when it is full again the last file is whole, and stays")
    wait_for(lambda: uptime() > s["elections"][0]["leadingUntilUptime"])
    ok(not leads(state(f"{place}/s.json")), "until its claim is over, though this process leads: never the other way")
    same(len(c.all("state_file_failed")), 2, "each time it was said once, not at each try")
    same(os.listdir(place).count(".s.json.lunarch-new"), 0, "and no try left anything")
    same(c.stop(), 0, "and it ends")
    subprocess.run(["umount", place], check=True)


def hanging_disk() -> None:
    """A file system in user space (bindfs), which is stopped."""
    real, place = f"{TMP}/real", f"{TMP}/mounted"
    os.mkdir(real)
    os.mkdir(place)
    daemon = subprocess.Popen(["bindfs", "-f", real, place], stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: os.path.ismount(place))
        # What a thread that hangs may still use is not freed, on purpose.
        env = {"ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"}
        c = candidate("c", f"{place}/s.json", "--control", SOCKET, "-e", "sleep(1000)", env=env)
        shows(f"{real}/s.json", "on a file system in user space, too, the file says who leads", leads)
        daemon.send_signal(signal.SIGSTOP)

        def renewals() -> int:
            return int(json.loads(ctl("status", "--json"))["elections"][0]["renewals"])

        had = renewals()
        ok(
            wait_for(lambda: renewals() >= had + 6), "one that hangs costs nobody the lease"
        )  # 0.8 s each; the lease: 6 s
        ok(not leads(state(f"{real}/s.json")), "its file claims nothing any more")
        c.ask_to_stop()
        ok(c.wait("state_file_failed", "does not answer"), "it keeps the process from ending for a short time alone")
    finally:
        daemon.kill()
        daemon.wait(PATIENCE)
        subprocess.run(["umount", "--lazy", place])
    same(c.leave(), 0, "and it ends well")


changes()
several()
refusals()
full_disk()
hanging_disk()
done()

#!/usr/bin/env -S PYTHONPATH=. python3
"""Directories that are not this machine's alone: a real FUSE file system (bindfs), mounted twice as two machines would
have it, in mount namespaces where something else, or nothing, is mounted for one candidate. Plain file locks are
refused there; with ?shared=link one leads; with ?must_exist= nobody leads in what is there instead."""

import json
import os
import signal
import subprocess
import sys
import threading
from typing import Any

from tests.lib import lock_cases
from tests.lib import stores
from tests.lib.candidates import Candidate, stop_everyone
from tests.lib.lock_driver import Driver, record
from tests.lib.processes import LUNARCH, PATIENCE, piped, scratch, wait_for
from tests.lib.tap import at_once, done, note, ok, same, skip

INSIDE = "LUNARCH_TEST_MOUNTS"
if os.geteuid() == 0 and INSIDE not in os.environ:  # no mount of this test's is left to anybody
    os.execvpe(
        "unshare", ["unshare", "--mount", "--", sys.executable, os.path.abspath(__file__)], {**os.environ, INSIDE: "1"}
    )
SCRIPT = ["-e", "return { on_leading = function() while true do sleep(60) end end }"]
APART = ["unshare", "--mount", "--"]
daemons = []


def mount(what: str, where: str, prefix: Any = ()) -> Any:
    """bindfs in the foreground, so that it ends with this test."""
    daemons.append(
        subprocess.Popen(
            [*prefix, "bindfs", "-f", "-o", "nonempty", what, where],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
    )
    return daemons[-1]


def two_mounts() -> Any:
    """A directory, and two mounts of it, each with caches of its own."""
    real, a, b = (os.path.join(scratch(), n) for n in ("real", "a", "b"))
    for d in real, a, b:
        os.makedirs(d)
    for d in a, b:
        mount(real, d)
    if not wait_for(lambda: os.path.ismount(a) and os.path.ismount(b)):
        raise RuntimeError("bindfs does not mount: " + piped(daemons[-1].stderr).read())
    return real, a, b


def lunarch(*args: Any) -> Any:
    env = {k: v for k, v in os.environ.items() if not k.startswith("LUNARCH_")}
    # timeout(1), so that one that leads, where it is to be refused, is a failure and no exception
    return subprocess.run(
        ["timeout", str(PATIENCE), LUNARCH, *args], capture_output=True, text=True, stdin=subprocess.DEVNULL, env=env
    )


def said(r: Any) -> Any:
    return f"status {r.returncode}\n{r.stdout}{r.stderr}"


def refused(fuse: Any) -> None:
    lock, script = fuse + "/lock", os.path.join(scratch(), "script.lua")
    with open(script, "w") as f:
        f.write("return { on_leading = function() end }\n")
    for command, status in (
        (["run", "--lock", lock, script], 2),
        (["exec", "--lock", lock, "--", "true"], 2),
        (["check", "--lock", lock, script], 1),
        (["doctor", "--lock", lock], 2),
    ):
        r = lunarch(*command)
        text = r.stdout + r.stderr
        if not ok(
            r.returncode == status
            and all(w in text for w in (fuse, "FUSE", "?shared=link", "cut off", "Or use a store")),
            f"{command[0]}: a plain lock on FUSE is refused at once, with the place, its type, the reason and the "
            "ways out",
        ):
            note(said(r))
    same(os.listdir(fuse), [], "and nothing is left there")


def led(real: Any, a: Any, b: Any) -> None:
    one = Candidate("--lock", a + "/lock?shared=link", "--identity", "one", "--address", "one:1", *SCRIPT)
    ok(one.wait("became_leader"), "shared=link: on FUSE somebody leads")
    two = Candidate("--lock", b + "/lock?shared=link", "--identity", "two", *SCRIPT)
    ok(two.wait("new_leader", "one leads"), "shared=link: another follows, by another mount")
    r = lunarch("leader", "--lock", a + "/lock?shared=link")
    s = lunarch("status", "--json", "--lock", f"file:{b}/lock?shared=link")
    if not ok(
        r.returncode == 0 and s.returncode == 0 and json.loads(s.stdout)["leader"] == "one",
        "shared=link: leader and status see the one who leads",
    ):
        note(said(r) + said(s))
    r = lunarch("doctor", "--lock", a + "/lock?shared=link")
    if not ok(
        r.returncode == 0 and "no must_exist=FILE is set" in r.stdout and "one winner in each" in r.stdout,
        "shared=link: doctor calls it fit, and says that nothing guards against its not being mounted",
    ):
        note(said(r))
    with open(real + "/marker", "w"):
        pass
    r = lunarch("doctor", "--lock", a + "/lock?shared=link&must_exist=marker")
    if not ok(
        r.returncode == 0 and "with must_exist set" in r.stdout and "no must_exist" not in r.stdout,
        "shared=link: or that something does",
    ):
        note(said(r))
    one.stop()
    ok(two.wait("became_leader"), "shared=link: when the leader stops the other leads")
    tokens = [c.all("became_leader")[0]["token"] for c in (one, two)]
    ok(tokens[0] < tokens[1], "shared=link: with a larger token")
    two.kill(signal.SIGKILL)
    two.leave()
    three = Candidate("--lock", a + "/lock?shared=link", "--identity", "three", *SCRIPT)
    ok(three.wait("became_leader"), "shared=link: a leader that was killed is followed")
    three.stop()
    same([n for n in os.listdir(real + "/lock") if n.endswith(".tmp")], [], "shared=link: no temporary file stays")
    same(sorted(n for n in os.listdir(real) if "doctor" in n), [], "shared=link: nothing of doctor's stays")
    newest = max(n for n in os.listdir(real + "/lock") if n.isdigit())
    os.link(f"{real}/lock/{newest}", real + "/lock/.lock.left.tmp")
    r = lunarch("exec", "--lease-duration", "1s", "--wait", "60s", "--lock", a + "/lock?shared=link", "--", "true")
    if not ok(
        r.returncode == 0,
        "shared=link: the second name that a writer left who died before he removed it holds up no short lease",
    ):
        note(said(r))
    r = lunarch("exec", "-n", "--lock", real + "/lock", "--", "true")
    if not ok(
        r.returncode == 69 and "as locks are that are named with ?shared=link" in r.stderr,
        "a plain lock of that name, which the machine that has the disk could take, is refused with what it is",
    ):
        note(said(r))


class Mounted(stores.SharedFile):
    """In a directory that outlives it."""

    rounds = 100

    def end(self) -> None:
        pass


def conforms(a: Any) -> None:
    lock_cases.run(Mounted(a), [lock_cases.examined, lock_cases.by_hand, lock_cases.foreign, lock_cases.racing])


def race_between(a: Any, b: Any) -> None:
    """Two processes on each mount; everybody reads, then writes the next token on what was read, as fast as may be."""
    wins: dict[int, list[str]] = {}
    most, lock = 60, threading.Lock()

    def compete(name: str, where: str) -> None:
        d = Driver()
        d.open(f"file:{where}/race?shared=link")
        token = 0
        while token < most:
            r = d.read()
            token = r.get("record", {}).get("token", 0)
            if token < most and d.write(record(name, token=token + 1), r.get("version", ""))["outcome"] == "ok":
                with lock:
                    wins.setdefault(token + 1, []).append(name)
        d.end()

    at_once(*[lambda n=n, w=w: compete(n, w) for n, w in (("a1", a), ("b1", b), ("a2", a), ("b2", b))])
    same(
        [t for t in range(1, most + 1) if len(wins.get(t, [])) != 1],
        [],
        "a race by two mounts: each token is written by exactly one",
    )
    note(f"{len([t for t in wins if wins[t][0][0] == 'a'])} of {most} by the first mount")


def mounted_over() -> None:
    """A plain lock in memory, over which something shared is mounted while it leads."""
    home, other = scratch(), scratch()
    c = Candidate("--lock", home + "/lock", *SCRIPT, prefix=APART)
    c.wait("became_leader")
    mount(other, home, ["nsenter", "--target", str(c.pid), "--mount", "--"])
    ok(c.wait("stopped_leading"), "mounted over: the leader's term ends")
    ok(wait_for(lambda: c.complaints("that other machines may share")), "mounted over: and it says why")
    same([n for n in os.listdir(other) if not n.endswith(".lock")], [], "mounted over: nothing is written there")
    c.stop()


def not_mounted() -> None:
    """A directory that is mounted for one candidate, and not for the other, which sees an empty one in its place."""
    disk, home = scratch(), scratch()
    with open(disk + "/mounted", "w"):
        pass
    there = ["unshare", "--mount", "--", "sh", "-c", f'mount --bind {disk} {home} && exec "$@"', "sh"]
    for name, option in ("plain", "?must_exist=mounted"), ("links", "?shared=link&must_exist=mounted"):
        lock = f"{home}/{name}{option}"
        a = Candidate("--lock", lock, "--identity", "a", *SCRIPT, prefix=there)
        ok(a.wait("became_leader"), f"{option}: where it is mounted somebody leads")
        r = lunarch("exec", "-n", "--lock", lock, "--", "true")
        if not ok(
            r.returncode == 69 and "mounted, which must exist" in r.stderr and "probably not mounted" in r.stderr,
            f"{option}: where it is not, nobody does, and it is said why",
        ):
            note(said(r))
        same(os.listdir(home), [], f"{option}: nothing is made there")
        b = Candidate("--lock", lock, "--identity", "b", *SCRIPT, prefix=there)
        ok(b.wait("new_leader", "a leads"), f"{option}: a second one follows where it is mounted")
        subprocess.run(["nsenter", "--target", str(b.pid), "--mount", "--", "umount", "--lazy", home], check=True)
        a.stop()
        ok(wait_for(lambda: b.complaints("which must exist")), f"{option}: unmounted under it, it says so")
        same(
            [b.all("became_leader"), os.listdir(home)],
            [[], []],
            f"{option}: and does not lead in what is there instead",
        )
        subprocess.run(["nsenter", "--target", str(b.pid), "--mount", "--", "mount", "--bind", disk, home], check=True)
        ok(b.wait("became_leader"), f"{option}: mounted again, it leads")
        b.stop()


def main() -> None:
    if os.geteuid() != 0:
        skip("directories that are not this machine's alone", "needs root, to mount")
        return
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    try:
        refused(two_mounts()[1])
        real, a, b = two_mounts()
        led(real, a, b)
        conforms(a)
        race_between(a, b)
        at_once(mounted_over, not_mounted)
    finally:
        stop_everyone()
        for d in daemons:
            d.terminate()
            d.wait()


main()
done()

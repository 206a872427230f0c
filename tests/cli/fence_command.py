#!/usr/bin/env -S PYTHONPATH=. python3
"""--fence and `lunarch fence`: what a leader has started outside of its process tree, here by a daemon of this test,
is stopped before the next term begins, and nobody leads before that."""

import atexit
import json
import os
import re
import signal
import subprocess
import threading
from typing import Any

from tests.lib.candidates import Candidate, stop_everyone
from tests.lib.commands import CLEAN, run
from tests.lib.processes import alive, scratch, stands_still, wait_for
from tests.lib.tap import ok, run as run_tests, same

TMP = scratch()


class Daemon:
    """Starts work for who asks by a line in a pipe, as a container daemon does: it is no child of theirs. "start NAME"
    and "stop NAME"; it notes what runs beside what."""

    def __init__(self, name: str) -> None:
        self.directory = os.path.join(TMP, name)
        os.mkdir(self.directory)
        self.pipe = os.path.join(self.directory, "pipe")
        os.mkfifo(self.pipe)
        self.works: dict[str, subprocess.Popen[bytes]] = {}
        self.beside: list[str] = []
        self.started: list[str] = []
        atexit.register(self.end)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with open(os.open(self.pipe, os.O_RDWR), encoding="utf-8") as orders:
            for line in orders:
                what, name = line.split()
                if what == "start":
                    self.beside += [f"{other} beside {name}" for other in self.works]
                    self.started.append(name)
                    self.works[name] = subprocess.Popen(["sleep", "1000"], stdout=subprocess.DEVNULL)
                elif name in self.works:
                    work = self.works.pop(name)
                    work.kill()
                    work.wait()
                if what == "stop":
                    with open(os.path.join(self.directory, f"stopped-{name}"), "w", encoding="utf-8"):
                        pass

    def runs(self, name: str) -> bool:
        return name in self.works and alive(self.works[name].pid)

    def order(self, line: str) -> None:
        with open(self.pipe, "w", encoding="utf-8") as f:
            f.write(line + "\n")

    def end(self) -> None:
        for work in self.works.values():
            work.kill()
            work.wait()

    # A table on this machine says which device an identity is, and refuses what is not in it.
    def fence(self, before: str = ":") -> str:
        stopped = f"{self.directory}/stopped-$LUNARCH_PREVIOUS_IDENTITY"
        return (
            f"env | grep ^LUNARCH >> {self.directory}/fenced; "
            "case $LUNARCH_PREVIOUS_IDENTITY in a|b|c|d) ;; *) exit 3;; esac; "
            f"{before}; rm -f {stopped}; echo stop $LUNARCH_PREVIOUS_IDENTITY > {self.pipe}; "
            f"while ! [ -e {stopped} ]; do sleep 0.01; done"
        )

    def work(self) -> list[str]:
        return ["sh", "-c", f"echo start $LUNARCH_TERM_IDENTITY > {self.pipe}; exec sleep 1000"]

    def lock(self) -> str:
        return f"file:{self.directory}/lock"

    def fenced(self) -> str:
        path = f"{self.directory}/fenced"
        return open(path, encoding="utf-8").read() if os.path.exists(path) else ""

    def record(self) -> dict[str, Any]:
        with open(f"{self.directory}/lock", encoding="utf-8") as f:
            return json.load(f)

    def debtors(self) -> list[str]:
        return [o["identity"] for o in self.record().get("unfenced", [])]


def candidate(d: Daemon, name: str, *options: str, command: list[str] | None = None, home: str = "") -> Candidate:
    """On a machine of its own: nobody's death is proved elsewhere. It leads again after a loss."""
    state = os.path.join(d.directory, home or name)
    os.makedirs(state, exist_ok=True)
    at = [
        "--lock",
        d.lock(),
        "--identity",
        name,
        "--state-dir",
        state,
        "--control",
        f"{d.directory}/{home or name}.sock",
    ]
    return Candidate(
        *at, "--restart", "on-loss", *options, "--", *(command or d.work()), command="exec", name=name, env=CLEAN
    )


def cut_power(c: Candidate) -> None:
    """Elector, guard and command at once: the elector is stopped first, so that it sees nothing of it."""
    guard = c.guard()
    c.kill(signal.SIGSTOP)
    wait_for(lambda: stands_still(c.pid))
    c.kill(pid=guard)
    c.kill()
    c.leave()


def leading(d: Daemon, name: str, *options: str) -> Candidate:
    c = candidate(d, name, *options)
    c.event("became_leader")
    wait_for(lambda: d.runs(name))
    return c


def ctl(d: Daemon, name: str, *words: str) -> str:
    return run("ctl", *words, "--control", f"{d.directory}/{name}.sock").stdout


def death() -> None:
    d = Daemon("death")
    first = leading(d, "a", "--fence", d.fence())
    same(d.debtors(), ["a"], "a term that has a fence books itself in the record")
    cut_power(first)
    ok(d.runs("a"), "what it has started outside of its tree goes on when all of its processes are killed")
    observer = Candidate(
        "--lock", d.lock(), "-e", "return { on_new_leader = function(l) print('now ' .. l.identity) end }"
    )
    gate = f"{d.directory}/go"
    second = candidate(d, "b", "--fence", d.fence(f"while ! [ -e {gate} ]; do sleep 0.01; done"))
    second.event("fencing")
    wait_for(d.fenced)
    shown = json.loads(run("status", "--json", "--lock", d.lock()).stdout)
    same((shown["state"], shown["leader"]), ("fencing", None), "while the next one fences nobody leads")
    same([o["identity"] for o in shown["unfenced"]], ["a", "b"], "and who may still act is told")
    same(run("leader", "--lock", d.lock()).stdout, "", "nor has anybody an address")
    text = run("status", "--lock", d.lock()).stdout
    lines = re.search(r"^leader +nobody\nfences +b$", text, re.M), re.search(r"^unfenced +a, token \d+$", text, re.M)
    ok(all(lines), "and people see who fences whom", text)
    state = json.loads(ctl(d, "b", "status", "--json"))
    own = state["elections"][0] if "elections" in state else state
    same((own["phase"], own["leading"], own["leader"]), ("fencing", False, ""), "not even by what it says itself")
    ok("fences earlier holders" in ctl(d, "b", "why"), "which `ctl why` explains")
    same(
        (observer.said("now b"), d.started), ([], ["a"]), "nobody has heard of a leader, and its command has not begun"
    )
    with open(gate, "w", encoding="utf-8"):
        pass
    second.event("became_leader")
    wait_for(lambda: d.runs("b"))
    same((d.beside, d.runs("a")), ([], False), "when the work is stopped it leads, and its own begins")
    same((d.debtors(), "fencing" in d.record()), (["b"], False), "which the record says, too")
    ok(wait_for(lambda: observer.said("now b")), "and others hear of it")
    env = dict(line.split("=", 1) for line in d.fenced().splitlines())
    same(
        (env["LUNARCH_PREVIOUS_IDENTITY"], env["LUNARCH_PREVIOUS_WHY"], env["LUNARCH_TERM_IDENTITY"]),
        ("a", "expired", "b"),
        "the command is told whom it fences, why, and for whom",
    )
    ok(int(env["LUNARCH_TOKEN"]) > int(env["LUNARCH_PREVIOUS_TOKEN"]) > 0, "and both tokens")
    ok("LUNARCH_FENCE" not in env, "but not what is the elector's")
    third = candidate(d, "c", "--fence", d.fence())
    third.event("new_leader")
    d.order("stop b")
    second.stop()
    third.event("became_leader")
    same((third.all("fencing"), "b" in d.debtors()), ([], False), "after a clean release nobody is fenced")
    for c in (third, observer):
        c.stop()
    d.end()


def between() -> None:
    d = Daemon("between")
    cut_power(leading(d, "a", "--fence", d.fence()))
    plain = candidate(d, "b", command=["sleep", "1000"])
    plain.event("became_leader")
    same(d.debtors(), ["a"], "a leader without a fence keeps the debt, and books nothing")
    plain.stop()
    same(d.debtors(), ["a"], "also when it releases the lock")
    last = candidate(d, "c", "--fence", d.fence())
    last.event("became_leader")
    wait_for(lambda: d.runs("c"))
    same((d.beside, d.debtors()), ([], ["c"]), "and the next one that has a fence pays it")
    last.stop()
    d.end()


def failure() -> None:
    d = Daemon("failure")
    cut_power(leading(d, "a", "--fence", d.fence()))
    bad = candidate(d, "b", "--fence", "exit 7")
    why = bad.event("fence_failed")["message"]
    ok("a could not be fenced" in why and "status 7" in why, "a fence that fails is told of")
    bad.event("not_begun")
    wait_for(lambda: d.record()["holderIdentity"] == "")
    same((d.debtors(), d.started), (["a"], ["a"]), "the lock is released with the debt, and nothing has begun")
    ok("sits out" in ctl(d, "b", "why"), "this candidate sits out")
    good = candidate(d, "c", "--fence", d.fence())
    good.event("became_leader")
    wait_for(lambda: d.runs("c"))
    same((d.beside, d.debtors()), ([], ["c"]), "and another one fences")
    same(bad.all("became_leader"), [], "it never led")
    past = [t["reason"] for t in d.record()["pastTerms"]]
    ok("fence_failed" in past, "the past terms say so", past)
    good.stop()
    bad.stop()
    d.end()


def late() -> None:
    d = Daemon("late")
    cut_power(leading(d, "a", "--fence", d.fence()))
    slow = candidate(
        d, "b", "--fence", f"sleep 1001 & echo $! > {d.directory}/child; sleep 1002", "--fence-timeout", "5s"
    )
    slow.event("fence_failed", "--fence-timeout")
    child = int(open(f"{d.directory}/child", encoding="utf-8").read())
    wait_for(lambda: d.record()["holderIdentity"] == "")
    ok(not alive(child), "a fence that is not done in time is killed, with what it has started, before the release")
    wait_for(lambda: slow.all("fencing") and len(slow.all("fence_failed")) > 1)
    slow.stop()
    stopped = candidate(d, "c", "--fence", f"echo $$ > {d.directory}/shell; sleep 1003")
    shell = int(wait_for(lambda: os.path.exists(f"{d.directory}/shell") and open(f"{d.directory}/shell").read()) or 0)
    same(stopped.stop(), 143, "one that is asked to stop while it fences leaves at once")
    ok(not alive(shell) and d.record()["holderIdentity"] == "", "its fence is killed, and the lock released")
    same((d.debtors(), d.started), (["a"], ["a"]), "and the debt is still there")
    d.end()


def lost() -> None:
    d = Daemon("lost")
    cut_power(leading(d, "a", "--fence", d.fence()))
    c = candidate(d, "b", "--fence", f"echo $$ >> {d.directory}/shells; sleep 1004")
    c.event("fencing")
    shell = int(wait_for(lambda: os.path.exists(f"{d.directory}/shells") and open(f"{d.directory}/shells").read()) or 0)
    os.unlink(f"{d.directory}/lock")
    c.event("not_begun")
    wait_for(lambda: not alive(shell))
    ok(not alive(shell), "a lost lease kills the fence")
    c.event("fencing", count=2)
    ok("a" in d.debtors(), "and who has seen the record that is gone carries its debt")
    c.stop()
    d.end()


def oneself() -> None:
    d = Daemon("oneself")
    cut_power(leading(d, "a", "--fence", d.fence()))
    again = candidate(d, "a", "--fence", d.fence(), home="a2")
    why = again.event("barred")["message"]
    ok("nobody fences himself" in why, "an earlier run with its own identity is not fenced by oneself", why)
    text = ctl(d, "a2", "why")
    ok(
        "`lunarch fence --done`" in text and "a (token" in text,
        "which `ctl why` explains, with whom and what to do",
        text,
    )
    other = candidate(d, "b", "--fence", d.fence())
    other.event("became_leader")
    wait_for(lambda: d.runs("b"))
    same(d.beside, [], "another one fences it")
    again.event("new_leader", "b leads")
    other.kill(signal.SIGTERM)
    again.event("became_leader")
    same(other.leave(), 143, "after which it may lead")
    again.stop()
    d.end()


def by_hand() -> None:
    d = Daemon("by_hand")
    cut_power(leading(d, "a", "--fence", d.fence()))
    fence = ["fence", "--lock", d.lock()]
    pay = [*fence, "--reason", "its disk was removed", "--done", "a"]
    again = candidate(d, "a", "--fence", d.fence(), home="a2")
    again.event("barred")
    token = d.record()["unfenced"][0]["token"]
    r = run(*fence)
    ok(r.returncode == 2 and f"a, token {token}" in r.stderr, "`lunarch fence` shows who may still act", r.stderr)
    r = run(*pay, "--token", str(token - 1))
    ok(r.returncode == 1 and str(token) in r.stderr, "with another token it changes nothing", r.stderr)
    r = run("fence", "--lock", d.lock(), "--reason", "gone", "--done", "x", "--token", "1")
    ok(r.returncode == 1 and "none of those" in r.stderr, "nor for one that owes nothing")
    same(run("fence", "--lock", d.lock(), "--done", "a", "--token", "1").returncode, 2, "nor without a reason")
    same((d.debtors(), d.record()["holderIdentity"]), (["a"], "a"), "the record is as it was")
    d.order("stop a")
    r = run(*pay, "--token", str(token))
    same(r.returncode, 0, f"with name, token and reason the debt is paid: {r.stderr}")
    again.event("became_leader")
    wait_for(lambda: d.runs("a"))
    same((d.beside, again.all("fencing")), ([], []), "and its own next run leads without a fence")
    ok("its disk was removed" in again.event("paid_by_hand")["message"], "which is in the log, with the reason")
    ok("paidByHand" not in d.record(), "and in the record until the term began")
    cut_power(again)
    plain = candidate(d, "b", command=["sleep", "1000"])
    plain.event("became_leader")
    token = d.record()["unfenced"][0]["token"]
    r = run(*pay, "--token", str(token))
    ok(
        r.returncode == 1 and "b holds the lock" in r.stderr,
        "while another holds the lock nothing is changed",
        r.stderr,
    )
    plain.stop()
    r = run("release", "--lock", d.lock(), "--force", "--reason", "x", "--token", str(d.record()["token"]))
    same((r.returncode, d.debtors()), (1, ["a"]), "a forced release pays nothing")
    same(run(*pay, "--token", str(token)).returncode, 0, "when it is free, it is")
    same(d.debtors(), [], "and nobody owes")
    d.end()


def hostile() -> None:
    d = Daemon("hostile")
    for name in ("-rf", "a\nb", "a\x1b[2J"):
        record = {
            "holderIdentity": name,
            "leaseDurationSeconds": 1,
            "leaseDurationMs": 10,
            "term": 3,
            "token": 4,
            "state": "leading",
            "incarnation": "01234567-89ab-cdef-0123-456789abcdef",
        }
        with open(f"{d.directory}/lock", "w", encoding="utf-8") as f:
            json.dump(record, f)
        c = candidate(d, "b", "--fence", d.fence())
        ok("no command gets to see" in c.event("fence_failed")["message"], f"the name {name!r} is refused")
        c.stop()
    same((d.fenced(), d.started), ("", []), "before the command runs")
    d.end()


def script() -> None:
    d = Daemon("script")
    cut_power(leading(d, "a", "--fence", d.fence()))
    state = os.path.join(d.directory, "s")
    os.mkdir(state)
    text = f"exec {{ 'sh', '-c', 'echo start b > {d.pipe}' }} sleep(1e6)"
    c = Candidate("--lock", d.lock(), "--identity", "b", "--state-dir", state, "--fence", d.fence(), "-e", text)
    c.event("became_leader")
    wait_for(lambda: d.runs("b"))
    same(
        (d.beside, d.debtors(), len(c.all("fenced"))),
        ([], ["b"], 1),
        "a script's on_leading begins after the fence, too",
    )
    c.stop()
    d.end()


def nobody() -> None:
    d = Daemon("nobody")
    c = candidate(d, "a", command=["sleep", "1000"])
    c.event("became_leader")
    wait_for(lambda: d.record()["writes"] > 2)
    same(
        [k for k in d.record() if k in ("unfenced", "fencing")],
        [],
        "where nobody has a fence the record says nothing new",
    )
    c.stop()
    d.end()


atexit.register(stop_everyone)
run_tests([death, between, failure, late, lost, oneself, by_hand, hostile, script, nobody])

#!/usr/bin/env -S PYTHONPATH=. python3
"""SIGHUP, through `run`, with a second candidate that would take the lock at once if it could: the holder keeps it and
gets a larger token; a script that does not load changes nothing; another identity is released; isolated elections too.
What else a reload may change: reload_whole.py."""

import json
import os
import shutil
import signal
import time
from typing import Any

from tests.lib.candidates import Candidate, stop_everyone
from tests.lib.processes import alive, children, scratch, wait_for
from tests.lib.tap import at_once, done, ok, same

SCRIPT = """
%s
return {
  lock = "%s", %s
  on_start = function() print("started %s") end,
  on_leading = function(term) print("leading %s " .. term.token) end,
  on_stopped = function(term, reason) print("stopped %s " .. term.token .. " " .. reason) end,
}
"""


class Place:
    def __init__(self) -> None:
        self.dir = scratch()
        self.script, self.lock = self.dir + "/s.lua", self.dir + "/lock"

    def put(
        self, version: str, lock: str | None = None, keys: str = "", before: str = "", text: str | None = None
    ) -> None:
        with open(self.script + ".new", "w") as f:
            f.write(text or SCRIPT % (before, lock or self.lock, keys, version, version, version))
        os.rename(self.script + ".new", self.script)

    def start(self, *options: Any, **kw: Any) -> Any:
        return Candidate(*options, self.script, **kw)

    def rival(self, lock: str | None = None) -> Candidate:
        c = Candidate("--lock", lock or self.lock, "--identity", "rival", "-e", "print 'the rival leads'")
        c.wait("new_leader")
        return c

    def record(self, lock: str | None = None) -> dict[str, Any]:
        with open(lock or self.lock) as f:
            return json.load(f)

    def end(self) -> None:
        shutil.rmtree(self.dir, ignore_errors=True)


def end(*candidates: Any) -> Any:
    for c in candidates:
        c.kill(signal.SIGTERM)
    return [c.leave() for c in candidates]


def prints(c: Candidate) -> list[list[str]]:
    return [e["message"].split() for e in c.all("print")]


def the_same_election() -> None:
    p = Place()
    p.put("one")
    c = p.start("--identity", "me")
    c.wait("print", "leading one")
    rival = p.rival()
    before = p.record()
    p.put("two", keys="lease_duration = 9, renew_deadline = 7,")
    c.kill(signal.SIGHUP)
    ok(c.wait("print", "leading two"), "reload: the new script leads")
    after = p.record()
    same(
        [w[:2] for w in prints(c)],
        [["started", "one"], ["leading", "one"], ["stopped", "one"], ["leading", "two"]],
        "reload: after the old one's on_stopped; and on_start is not run again",
    )
    same(prints(c)[2][3], "reload", "reload: which is told why")
    same(
        (after["holderIdentity"], after["incarnation"], after["leaderTransitions"]),
        ("me", before["incarnation"], before["leaderTransitions"]),
        "reload: the holder has not changed",
    )
    ok(after["token"] > before["token"] and after["term"] == before["term"] + 1, "reload: token and term have grown")
    same(prints(c)[3][2], str(after["token"]), "reload: and the script knows the new token")
    same(prints(rival), [], "reload: nobody has led in between")
    ok(rival.wait("new_leader", count=2), "reload: others have seen the new term")
    # The options of the command line come before the script's: these candidates run with FAST.
    same(after["leaseDurationMs"], 6000, "reload: an option is stronger than the new script's key")
    for version in "three", "four", "five":
        p.put(version)
        c.kill(signal.SIGHUP)
        c.wait("print", f"leading {version}")
    ok(prints(c)[-1][1] == "five" and not prints(rival), "reload: again and again, and nobody leads in between")
    same(end(rival, c), [0, 0], "reload: everybody leaves with 0")
    wait_for(lambda: c.closed)
    same(
        sorted(w[1] for w in prints(c) if w[0] == "stopped"),
        sorted(["one", "two", "three", "four", "five"]),
        "reload: each term had its on_stopped, once",
    )
    p.end()


def a_standby() -> None:
    p = Place()
    rival = Candidate("--lock", p.lock, "--identity", "rival", "-e", "print 'the rival leads'")
    rival.wait("became_leader")
    p.put("one")
    c = p.start()
    c.wait("new_leader")
    old = c.guard()
    p.put("two")
    c.kill(signal.SIGHUP)
    wait_for(lambda: not alive(old))  # the new script has taken its place
    end(rival)
    ok(c.wait("print", "leading two"), "reload of a standby: the new script leads when it is its turn")
    same(
        [w[:2] for w in prints(c)],
        [["started", "one"], ["leading", "two"]],
        "reload of a standby: the old one never did",
    )
    end(c)
    p.end()


def who_leads() -> None:
    """A worker that is new has not heard the news that the one before it heard."""
    p = Place()
    leader = Candidate("--lock", p.lock, "--identity", "leader", "-e", "print 'leads'")
    leader.wait("print", "leads")
    hears = 'return { lock = "%s", on_new_leader = function(l) print("%s hears of", l.identity) end }'
    p.put("", text=hears % (p.lock, "one"))
    c = p.start()
    ok(c.wait("print", "one hears of\tleader"), "who leads: a worker hears of a leader that was there before")
    p.put("", text=hears % (p.lock, "two"))
    c.kill(signal.SIGHUP)
    ok(c.wait("print", "two hears of\tleader"), "who leads: after a reload the new one hears of it, too")
    c.kill(signal.SIGKILL, c.worker())
    ok(c.wait("print", "two hears of\tleader", count=2), "who leads: so does the one that follows a dead one")
    same(end(c, leader), [0, 0], "who leads: both leave with 0")
    wait_for(lambda: c.closed)
    same(len(prints(c)), 3, "who leads: each of them heard it once")
    p.end()


def a_broken_script() -> None:
    p = Place()
    p.put("one")
    c = p.start()
    c.wait("print", "leading one")
    rival = p.rival()
    before = p.record()
    worker = c.worker()
    for number, (what, text, says) in enumerate(
        [
            ("a syntax error", "return {", "s.lua:1"),
            ("an error while loading", "error 'no good'", "no good"),
            ("a typo", "return { on_laeding = function() end }", "on_leading"),
            ("nonsense", "return 7", "s.lua"),
            ("a crash", "os.execute 'kill -ABRT $PPID' while true do end", "signal 6"),
            ("no file", None, "s.lua"),
        ],
        1,
    ):
        p.put("", text=text or " ")
        if text is None:
            os.unlink(p.script)
        c.kill(signal.SIGHUP)
        c.wait("reload_failed", count=number)
        ok(
            len(c.all("reload_failed")) == number
            and [e for e in c.all("load_failed") + c.all("worker_gone") if says in e["message"]],
            f"broken script: {what} is reported ({says})",
        )
    ok(
        alive(worker) and p.record()["token"] == before["token"] and p.record()["holderIdentity"],
        "broken script: the old one leads on, in the same term",
    )
    same([w[0] for w in prints(c)], ["started", "leading"], "broken script: no hook was run")
    same(prints(rival), [], "broken script: and nobody else has led")
    p.put("two")
    c.kill(signal.SIGHUP)
    ok(c.wait("print", "leading two"), "broken script: repaired, it is taken over")
    end(rival, c)
    p.end()


def another_identity() -> None:
    p = Place()
    p.put("one", keys="identity = 'first',")
    c = p.start()
    c.wait("print", "leading one")
    rival = p.rival()
    c.wait("next_known")  # so the lock is released for the rival
    p.put("two", keys="identity = 'second',")
    c.kill(signal.SIGHUP)
    ok(
        rival.wait("print", "the rival leads"),
        "another identity: the lock is released, since another would hold it, and the rival has it",
    )
    end(rival)
    ok(c.wait("print", "leading two"), "another identity: the new one leads after it")
    same(p.record()["holderIdentity"], "second", "another identity: under its name")
    end(c)
    p.end()


def isolated() -> None:
    """Three elections, two of them in workers of their own."""
    p = Place()
    text = (
        """
    local function election(name, alone)
      return { name = name, lock = "%s/" .. name, isolate = alone,
        on_leading = function(term) print("leading VERSION " .. name) if name == "stuck" then while true do end end end,
        on_stopped = function(term, reason) print("stopped VERSION " .. name .. " " .. reason) end }
    end
    return { election("shared", false), election("alone", true), election("stuck", true) }
    """
        % p.dir
    )
    p.put("", text=text.replace("VERSION", "one"))
    c = p.start()
    names = "shared", "alone", "stuck"
    ok(all(c.wait("print", f"leading one {n}") for n in names), "isolated: all three lead")
    same(len(children(c.pid)), 3, "isolated: in three workers")
    before = {n: p.record(f"{p.dir}/{n}") for n in names}
    rivals = [p.rival(f"{p.dir}/{n}") for n in names]
    p.put("", text=text.replace("VERSION", "two"))
    c.kill(signal.SIGHUP)
    ok(all(c.wait("print", f"leading two {n}") for n in names), "isolated: all three lead the new script")
    same(
        [len(c.all("print", f"stopped one {n} reload")) for n in ("shared", "alone")],
        [1, 1],
        "isolated: after on_stopped of the old one",
    )
    ok(len(c.all("print", "stopped one stuck")) == 1, "isolated: also of the one whose on_leading never ends")
    after = {n: p.record(f"{p.dir}/{n}") for n in names}
    ok(
        all(
            after[n]["token"] > before[n]["token"] and after[n]["holderIdentity"] == before[n]["holderIdentity"]
            for n in ("shared", "alone")
        ),
        "isolated: with the same holder and larger tokens",
    )
    same([r.said("rival") for r in rivals[:2]], [[], []], "isolated: nobody has led in between")
    ok(wait_for(lambda: len(children(c.pid)) == 3), "isolated: the old workers are gone")
    same(end(c), [0], "isolated: and everything leaves with 0")
    end(*rivals)
    p.end()


def in_a_hurry() -> None:
    """Many signals, and SIGTERM among them."""
    p = Place()
    p.put("one", before="for i = 1, 2000000 do end")
    c = p.start()
    c.wait("print", "leading one")
    for _ in range(20):
        c.kill(signal.SIGHUP)
        time.sleep(0.01)
    ok(c.wait("print", "leading one", count=2), "in a hurry: twenty signals are at least one reload")
    c.kill(signal.SIGHUP)
    c.kill(signal.SIGTERM)
    same(c.leave(), 0, "in a hurry: told to leave in the middle of it, it does")
    wait_for(lambda: c.closed)
    same(len(c.said("leading one")), len(c.said("stopped one")), "in a hurry: each term had its on_stopped")
    same(p.record()["holderIdentity"], "", "in a hurry: and the lock is released")
    p.end()


at_once(the_same_election, a_standby, who_leads, a_broken_script, another_identity, isolated, in_a_hurry)
stop_everyone()
done()

#!/usr/bin/env -S PYTHONPATH=. python3
"""What a leader saved in the record: the next one has it, however the term ended; a leader that lost the lock cannot
save."""

import json
import os
import signal
from typing import Any

from tests.lib.candidates import WATCHED, Candidate, stop_everyone
from tests.lib.field import freeze
from tests.lib.processes import scratch, wait_for
from tests.lib.tap import at_once, done, ok, same

SCRIPT = """
return {
  on_leading = function(term)
    local c = term:load() or { n = 0 }
    print("loaded " .. c.n)
    local function count()
      c.n = c.n + 1
      local good, err = term:save(c)
      if good then print("saved " .. c.n) else print("not saved: " .. err.code) end
      return good
    end
    count()
    while arg[1] == "on" do sleep(0.02) count() end
    sleep(1000)
  end,
  on_stopped = function(term, reason)
    local c = term:load()
    c.last = reason
    print("stopped " .. reason .. " " .. tostring(term:save(c)))
  end,
}
"""


class Ring:
    def __init__(self, script: str = SCRIPT) -> None:
        self.dir = scratch()
        self.lock = os.path.join(self.dir, "lock")
        self.script = os.path.join(self.dir, "script.lua")
        self.write(script)

    def write(self, script: str) -> None:
        with open(self.script, "w") as f:
            f.write(script)

    def join(self, name: str, *args: Any, **kw: Any) -> Any:
        return Candidate(
            "--lock",
            self.lock,
            "--identity",
            name,
            self.script,
            *(["--", *args] if args else []),
            options=WATCHED,
            cwd=self.dir,
            **kw,
        )

    def record(self) -> dict[str, Any]:
        if not os.path.exists(self.lock):
            return {}
        with open(self.lock) as f:
            return json.load(f)

    def data(self) -> dict[str, Any]:
        return self.record().get("checkpoint", {}).get("data")


def last(c: Candidate) -> int:
    """The last number that it knew to be saved."""
    said = [e["message"] for e in c.said("saved ") if e["message"].startswith("saved ")]
    return int(said[-1].split()[1]) if said else 0


def loaded(c: Any, count: int = 1) -> Any:
    e = c.wait("print", "loaded", count)
    return int(e["message"].split()[1]) if e else None


def clean() -> None:
    r = Ring()
    a = r.join("a")
    ok(a.wait("print", "saved 1"), "the first leader saves")
    b = r.join("b")
    a.kill(signal.SIGTERM)
    same(loaded(b), 1, "after a clean handover the next leader has it")
    ok(a.said("stopped shutdown true"), "and what on_stopped saved while the lease was held")
    same(r.data()["last"], "shutdown", "is in the record, for people to read")
    b.wait("print", "saved 2")
    b.kill(signal.SIGHUP)
    same(loaded(b, 2), 2, "after a reload the new worker has it")
    ok(b.wait("print", "saved 3"), "and saves")
    same(r.data()["last"], "reload", "upon what on_stopped of the old one saved")
    b.kill(signal.SIGKILL, b.worker())
    if not same(loaded(b, 3), 3, "after the worker was killed, the next term has it"):
        b.log()
    same(r.data()["last"], "worker", "and what its on_stopped, run by the replacement, saved")
    c = r.join("c")
    for pid in (b.guard(), b.pid):
        b.kill(signal.SIGKILL, pid)
    ok(loaded(c) >= 3, "after guard and elector were killed, the next leader has it")
    c.wait("print", "saved ")
    c.kill(signal.SIGTERM)
    c.leave()
    d = r.join("d")
    same(loaded(d), last(c), "and when nobody was there for a while, whoever comes then")


def never_twice() -> None:
    """A number is saved upon the one that was loaded: were a deposed leader's save good, it would be said twice."""
    r = Ring()
    a, b = r.join("a", "on"), r.join("b", "on")
    everyone = [a, b]
    for sig, who in [
        (signal.SIGSTOP, "elector"),
        (signal.SIGKILL, "worker"),
        (signal.SIGSTOP, "elector"),
        (signal.SIGKILL, "elector"),
    ]:
        leader = wait_for(lambda: [c for c in everyone if c.process.poll() is None and c.pid == r.record().get("pid")])[
            0
        ]
        before = last(leader)
        wait_for(lambda: last(leader) > before + 3)
        n, terms = max(map(last, everyone)), sum(len(c.said("loaded")) for c in everyone)
        pid = leader.pid if who == "elector" else leader.worker()
        if sig == signal.SIGSTOP:
            freeze(leader, r.lock)
        else:
            leader.kill(sig, pid)
        wait_for(lambda: sum(len(c.said("loaded")) for c in everyone) > terms and max(map(last, everyone)) > n + 3)
        if sig == signal.SIGSTOP:
            leader.kill(signal.SIGCONT, pid)
        if leader.process.poll() is not None or (sig, who) == (signal.SIGKILL, "elector"):
            everyone.append(r.join("c", "on"))
    numbers = [
        int(e["message"].split()[1]) for c in everyone for e in c.said("saved ") if e["message"].startswith("saved ")
    ]
    same(len(numbers), len(set(numbers)), "frozen and killed leaders: no number was saved twice")
    ok(
        r.data()["n"] >= max(numbers) and len(numbers) > 10,
        f"and none that was said to be saved was lost ({len(numbers)} saves)",
    )


def robbed() -> None:
    r = Ring()
    a = r.join("a", "on")
    a.wait("print", "saved 5")
    record = r.record()
    record.update(holderIdentity="thief", write="0" * 32, pid=0, tree="", bootId="", checkpoint={"data": {"n": 1000}})
    with open(r.lock + ".new", "w") as f:
        json.dump(record, f)
    os.rename(r.lock + ".new", r.lock)
    ok(a.wait("print", "stopped lost nil"), "robbed of the lock: on_stopped cannot save any more")
    same(r.data(), {"n": 1000}, "what the thief put there stands")
    same(loaded(a, 2), 1000, "and is what the next term loads, once the thief's lease is over")


def several() -> None:
    two = (
        SCRIPT.replace("return {", "local one = {", 1) + "\nlocal two = {} for k, v in pairs(one) do two[k] = v end\n"
        "one.name, two.name = 'one', 'two' return { one, two }"
    )
    r = Ring(two)
    a = Candidate("--lock", r.lock + "-{name}", r.script, options=WATCHED, cwd=r.dir)
    ok(a.wait("print", "saved 1", 2), "two elections of a script save side by side, each into its own record")
    a.kill(signal.SIGTERM)
    a.leave()
    b = Candidate("--lock", r.lock + "-{name}", r.script, options=WATCHED, cwd=r.dir)
    ok(b.wait("print", "loaded 1", 2), "and load from it")


try:
    at_once(clean, never_twice, robbed, several)
finally:
    stop_everyone()
done()

#!/usr/bin/env -S PYTHONPATH=. /usr/bin/python3
"""on_next and on_next_over with real candidates on a lock: the children of on_next are gone when it is over, and when
the term is over that it went into; what its worker's death and a reload do to it."""

import os
import signal

from tests.lib.candidates import Candidate, stop_everyone, timing
from tests.lib.processes import alive, children, scratch, wait_for
from tests.lib.tap import at_once, done, ok, same

# Time for on_next_over on a machine that does much besides.
TIMES = timing("18s", renew="8s", retry="400ms", stop_grace="8s", kill="500ms", drift="500ms")

SCRIPT = """
local version = "%s"
return {
  lock = "%s",
  on_next = function(s)
    s.data.version = version
    s:spawn(function() exec { "sleep", "100000" } end)
    exec { "setsid", "--fork", "sleep", "100000" }
    print("next " .. version)
    sleep(100000)
  end,
  on_next_over = function(s) print("over " .. s.data.version) end,
  on_leading = function(term) print("leading " .. version .. " " .. (term.warm and "warm" or "cold")) end,
  on_stopped = function(term, reason) print("stopped " .. reason) end,
}
"""


class Place:
    def __init__(self) -> None:
        self.dir = scratch()
        self.put("one")

    def put(self, version: str) -> None:
        with open(self.dir + "/new.lua", "w") as f:
            f.write(SCRIPT % (version, self.dir + "/lock"))
        os.rename(self.dir + "/new.lua", self.dir + "/s.lua")

    def start(self, name: str) -> Candidate:
        return Candidate("--identity", name, self.dir + "/s.lua", options=TIMES)

    def pair(self) -> tuple[Candidate, Candidate]:
        """a leader, and who comes next, with its two children"""
        leader = self.start("first")
        ok(leader.wait("print", "leading one cold"), "the first one leads, cold")
        standby = self.start("second")
        ok(standby.wait("print", "next one"), "the second one comes next, and on_next runs")
        same(leader.all("print", "next one"), [], "not in the leader")
        wait_for(lambda: len(below(standby)) == 2)
        return leader, standby


def environment(pid: int) -> list[str]:
    try:
        with open(f"/proc/{pid}/environ", "rb") as f:
            return f.read().decode("utf-8", "replace").split("\0")
    except OSError:
        return []


def descendants(pid: int) -> list[int]:
    found = []
    for child in children(pid):
        found += [child, *descendants(child)]
    return found


def below(c: Candidate) -> list[int]:
    """what on_next has started"""
    marks = [pid for pid in descendants(c.pid) if alive(pid)]
    return [pid for pid in marks if any(e.startswith("LUNARCH_NEXT=") for e in environment(pid))]


def all_gone(pids: list[int]) -> bool:
    return wait_for(lambda: not [pid for pid in pids if alive(pid)])


def next_over() -> None:
    place = Place()
    leader, standby = place.pair()
    pids = below(standby)
    ok(all("LUNARCH_TERM=-" in environment(pid) for pid in pids), "its children have no term")
    standby.kill(signal.SIGTERM)
    same(standby.leave(), 0, "the one that comes next is stopped")
    same([e["message"] for e in standby.all("print")], ["next one", "over one"], "on_next_over has run before its end")
    all_gone(pids)
    same([pid for pid in pids if alive(pid)], [], "and nothing that on_next started lives")
    leader.kill(signal.SIGTERM)
    leader.leave()


def next_leads() -> None:
    place = Place()
    leader, standby = place.pair()
    pids = below(standby)
    leader.kill(signal.SIGTERM)
    leader.leave()
    ok(standby.wait("print", "leading one warm"), "the one that comes next leads, warm")
    same([pid for pid in pids if not alive(pid)], [], "what on_next started goes on in the term")
    leader = place.start("first")
    ok(leader.wait("print", "next one"), "another one comes next")
    standby.kill(signal.SIGTERM)
    same(standby.leave(), 0, "the term ends")
    ok(leader.wait("print", "leading one warm"), "and the other one leads")
    all_gone(pids)
    same([pid for pid in pids if alive(pid)], [], "what on_next started has ended with the term")
    same(standby.all("print", "over"), [], "on_next_over has not run")
    leader.kill(signal.SIGTERM)
    leader.leave()


def worker_dies() -> None:
    place = Place()
    leader, standby = place.pair()
    pids = below(standby)
    os.kill(standby.worker(), signal.SIGKILL)
    ok(standby.wait("print", "next one", count=2), "the worker of on_next dies: it runs in the one that follows")
    all_gone(pids)
    same([pid for pid in pids if alive(pid)], [], "what it had started is gone")
    leader.kill(signal.SIGTERM)
    leader.leave()
    ok(standby.wait("print", "leading one warm"), "and the term that follows is warm")
    standby.kill(signal.SIGTERM)
    standby.leave()


def reload() -> None:
    place = Place()
    leader, standby = place.pair()
    pids = below(standby)
    for version in ("two", "three"):
        place.put(version)
        standby.kill(signal.SIGHUP)
        ok(standby.wait("print", f"next {version}"), f"reload: on_next of the script {version} runs")
    said = [e["message"] for e in standby.all("print")]
    same(
        [line for line in said if line != "next one"][:4],
        ["over one", "next two", "over two", "next three"],
        "reload: after the old one's on_next_over",
    )
    all_gone(pids)
    same([pid for pid in pids if alive(pid)], [], "reload: what the old one started is gone")
    leader.kill(signal.SIGTERM)
    leader.leave()
    ok(standby.wait("print", "leading three warm"), "reload: the new one leads, warm")
    standby.kill(signal.SIGTERM)
    standby.leave()


def killed_in_a_reload() -> None:
    """The old worker must be killed in a reload: the next reload does not wait for it."""
    place = Place()
    c = place.start("only")
    ok(c.wait("print", "leading one"), "a leader")
    with open(place.dir + "/s.lua") as f:
        text = f.read()
    busy = 'on_stopping = function() while true do pcall(string.rep, "x", 1) end end,\n  on_stopped'
    with open(place.dir + "/s.lua", "w") as f:
        f.write(text.replace("on_stopped", busy).replace('"one"', '"busy"'))
    c.kill(signal.SIGHUP)
    ok(c.wait("print", "leading busy"), "is given a script that does not stop")
    for version in ("two", "three"):
        place.put(version)
        if version == "two":
            worker = c.worker()
            c.kill(signal.SIGHUP)
            c.wait("draining", count=1)
            os.kill(worker, signal.SIGKILL)
        else:
            c.kill(signal.SIGHUP)
        ok(c.wait("print", f"leading {version}"), f"whose worker is killed in a reload: {version} leads")
    c.kill(signal.SIGTERM)
    same(c.leave(), 0, "and stops")


at_once(next_over, next_leads, worker_dies, reload, killed_in_a_reload)
stop_everyone()
done()

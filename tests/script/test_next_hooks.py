#!/usr/bin/env -S PYTHONPATH=. /usr/bin/python3
"""on_next and on_next_over in a worker whose elector is the test: what they may do, when they end, and how a term takes
what on_next started."""

import os
import time
from typing import Any

from tests.lib.player import (
    DRAINED,
    END,
    LEADS,
    NEXT_DONE,
    NEXT_FAILED,
    NEXT_STOPPED,
    NEXT_TAKEN,
    REASONS,
    STOPPED,
    Worker,
)
from tests.lib.tap import ok, run, same

HOOKS = """
return {
  on_next = function(s)
    s.data.loaded = "the cache"
    s:spawn(function() print("led", s:wait().token) end)
    print("next", s.identity, s.lock)
    sleep(1000)
  end,
  on_next_over = function(s) print("over", s.data.loaded) end,
  on_leading = function(term) print("leading", term.token, term.warm and term.warm.loaded) end,
  on_stopped = function(term, reason) print("stopped", reason) end,
}"""


def worker(text: str, **more: Any) -> Any:
    w = Worker(text=text, **more)
    w.ready()
    return w


def stopped(number: int, how: int) -> dict[str, int]:
    return {"slot": 0, "number": number, "how": how}


def marked(mark: str, *names: str) -> list[str]:
    """the processes that live, and have all of these in their environment"""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/stat" % pid) as f:
                state = f.read().rsplit(")", 1)[1].split()[0]
            with open("/proc/%s/environ" % pid, "rb") as f:
                env = f.read().split(b"\0")
            if state != "Z" and all(name.encode() in env for name in (mark, *names)):
                found.append(pid)
        except OSError:
            pass
    return found


def without_a_term() -> None:
    """It comes next, and then no more"""
    with worker(HOOKS) as w:
        w.next(1)
        w.wait_print("next\tme_0\tfile:lock0")
        w.next_over(1)
        same(w.expect(NEXT_STOPPED), stopped(1, NEXT_DONE), "NEXT_OVER is answered when everything has stopped")
        same(w.printed()[1:], ["over\tthe cache"], "on_next_over has run, with the same s")
        w.next(2)
        w.wait_for(lambda: len(w.printed()) == 3, "on_next")
        w.next_over(2)
        same(w.expect(NEXT_STOPPED), stopped(2, NEXT_DONE), "and again, in the same worker")
        w.lead()
        w.wait_print("leading\t100\tnil")
        ok(True, "a term after that begins cold")
        w.stop()
        w.expect(STOPPED)
        w.next_over(2)
        ok(w.quiet(), "what was answered is not answered again")


def into_a_term() -> None:
    """It comes next, and then leads"""
    with worker(HOOKS) as w:
        w.next(1)
        w.wait_print("next\tme_0\tfile:lock0")
        w.lead(number=1)
        same(w.expect(NEXT_STOPPED), stopped(1, NEXT_TAKEN), "LEAD is answered when the term has taken it")
        w.wait_print("leading\t100\tthe cache")
        w.wait_print("led\t100")
        ok(True, "on_leading begins while on_next still runs, s:wait() has the term, and term.warm is s.data")
        w.stop()
        w.expect(STOPPED)
        same(w.printed()[-1], "stopped\tshutdown", "it stops with the term")
        ok(not [p for p in w.printed() if p.startswith("over")], "and on_next_over does not run")
        w.next(2)
        w.wait_for(lambda: w.printed().count("next\tme_0\tfile:lock0") == 2, "on_next")
        w.lead(term=2, number=1)
        w.wait_print("leading\t100\tnil")
        ok(True, "a term takes no on_next of another number")
        w.next_over(2)
        same(w.expect(NEXT_STOPPED), stopped(2, NEXT_DONE), "which is still there to be ended")
        w.stop(term=2)
        w.expect(STOPPED)


CHILDREN = """
local function children()
  spawn(function() exec 'sleep 1000 & sleep 1001 & wait' end)
  spawn(function() exec { 'sleep', '1002' } end)
end
return {
  on_next = function(s)
    children()
    print(os.getenv 'LUNARCH_TERM', os.getenv 'LUNARCH_NEXT', os.getenv 'LUNARCH_TOKEN')
    local term = s:wait()
    print(os.getenv 'LUNARCH_TERM', os.getenv 'LUNARCH_NEXT', os.getenv 'LUNARCH_TOKEN')
    children()
    sleep(1000)
  end,
  on_next_over = function(s)
    print(exec('echo $LUNARCH_TERM:$LUNARCH_NEXT').stdout)
    spawn(children)
    sleep(0.1)
  end,
  on_leading = function() print 'leading' end,
}"""


def children() -> None:
    """Children, and the marks by which they are found"""
    mark = "TEST_MARK=mark-%d-%f" % (os.getpid(), time.time())
    with worker(CHILDREN, env=dict([mark.split("=", 1)])) as w:
        w.next(7)
        w.wait_print("-\t0.7\tnil")
        w.wait_for(lambda: len(marked(mark, "LUNARCH_TERM=-", "LUNARCH_NEXT=0.7")) == 4, "four processes of on_next")
        ok(True, "what on_next starts has its number, and no term")
        w.next_over(7)
        same(w.expect(NEXT_STOPPED), stopped(7, NEXT_DONE), "it is over")
        same(marked(mark, "LUNARCH_NEXT=0.7"), [], "its children, and those of on_next_over, were stopped and reaped")
        ok("-:0.7\n" in w.printed(), "on_next_over has the same mark", w.printed())
        w.next(8)
        w.wait_for(lambda: len(marked(mark, "LUNARCH_NEXT=0.8")) == 4, "four processes of on_next")
        w.lead(term=3, token=30, number=8)
        w.expect(NEXT_STOPPED)
        w.wait_print("0.3\tnil\t30")
        w.wait_for(lambda: len(marked(mark, "LUNARCH_TERM=0.3")) == 4, "four processes of the term")
        same(len(marked(mark, "LUNARCH_NEXT=0.8")), 4, "those of on_next go on in the term")
        w.stop(term=3)
        w.expect(STOPPED)
        same(len(marked(mark)), 1, "and are stopped and reaped with it: the worker is what is left")


def errors() -> None:
    """Errors"""
    broken = "error 'broken'"
    text = (
        "return { on_next = function(s) %s end, on_leading = function(t) print('leading', t.warm) %s end,"
        " on_next_over = function() print 'over' %s end }"
    )
    with worker(text % (broken, "", "")) as w:
        w.next(1)
        same(w.expect(NEXT_STOPPED), stopped(1, NEXT_FAILED), "an on_next that raises is over")
        ok("over" in w.printed(), "on_next_over has run")
        w.wait_for(lambda: [x for x in w.log() if "on_next: " in x["message"]], "the error's line")
        (line,) = [x for x in w.log() if x["event"] == "hook_failed"]
        ok("script.lua:1: broken" in line["message"] and line["lock"] == "file:lock0", "the log has its line", line)
        w.lead(number=1)
        w.wait_print("leading\tnil")
        ok(True, "a term that was to take it begins cold")
        w.stop()
        w.expect(STOPPED)
    with worker(text % ("s:spawn(function() sleep(0.01) error 'broken' end) sleep(1000)", "", broken)) as w:
        w.next(1)
        same(w.expect(NEXT_STOPPED), stopped(1, NEXT_FAILED), "the same for a task of it, and if on_next_over raises")
    with worker(text % ("s:wait() error 'broken'", "", "")) as w:
        w.next(1)
        w.lead(number=1)
        same(w.expect(NEXT_STOPPED), stopped(1, NEXT_TAKEN), "what raises after it was taken")
        same(REASONS[w.expect(END)["reason"]], "error", "ends the term")
        w.stop("error")
        w.expect(STOPPED)
    with worker(text % ("s:every(0.01, function() print 'tick' end)", "", "")) as w:
        w.next(1)
        w.wait_print("tick")
        ok(w.quiet(), "the return of on_next ends nothing")
        w.lead(number=1)
        w.expect(NEXT_STOPPED)
        before = w.printed().count("tick")
        w.wait_for(lambda: w.printed().count("tick") > before + 1, "the calls go on")
        w.stop()
        w.expect(STOPPED)
        ok(True, "not even in the term")


REFUSED = [
    ("s:save {}", "save needs a term: this candidate comes next, and does not lead"),
    ("s:resign()", "resign needs a term"),
    ("s:cron('@daily', print)", "cron needs a term"),
    ("s:is_leading()", "is_leading needs a term"),
    ("return s.token", "s has no 'token'"),
    ("s.data = nil", "attempt to index a"),
    ("s:wait(-1)", "s:wait"),
]


def refused() -> None:
    """What needs a term"""
    text = "return { on_next = function(s) print(select(2, pcall(function() %s end))) end, on_leading = print }"
    for code, message in REFUSED:
        with worker(text % code) as w:
            w.next(1)
            w.wait_for(lambda: w.printed(), "what it says")
            ok(message in w.printed()[0], code, w.printed())


BUSY = """
local busy = %s
return {
  on_next = function(s) print 'busy' %s end,
  on_next_over = function() print 'over' end,
  on_leading = function(term) print('leading', term.warm) end,
}"""


def without_waiting() -> None:
    """Code that does not wait"""
    for what, code in (
        ("a loop", "while true do end"),
        ("one that catches errors", "while true do pcall(function() while true do end end) end"),
    ):
        with worker(BUSY % ("nil", code)) as w:
            w.next(1)
            w.wait_print("busy")
            w.end_next(1)
            w.next_over(1)
            same(w.expect(NEXT_STOPPED), stopped(1, NEXT_DONE), "%s is interrupted when the page says so" % what)
            ok("over" in w.printed(), "and on_next_over runs", w.printed())
        with worker(BUSY % ("nil", code)) as w:
            w.next(1)
            w.wait_print("busy")
            w.lead(number=1, wait=False)
            ok(w.quiet(), "on_leading waits for %s" % what)
            w.end_next(1)
            same(w.expect(LEADS), {"slot": 0, "term": 1}, "and so does the answer to LEAD")
            same(w.expect(NEXT_STOPPED), stopped(1, NEXT_DONE), "until the page ends that")
            w.wait_print("leading\tnil")
            ok(True, "then the term begins, cold")
            w.stop()
            w.expect(STOPPED)


def hurry() -> None:
    """The time for on_next_over"""
    slow = "return { on_next = print, on_leading = print, on_next_over = function() print 'over' sleep(1000) end }"
    with worker(slow) as w:
        w.next(1)
        w.next_over(1, grace=0.3)
        same(w.expect(NEXT_STOPPED), stopped(1, NEXT_DONE), "on_next_over is cancelled when its time is almost over")
        w.wait_for(lambda: [x for x in w.log() if x["event"] == "on_next_over_slow"], "the log's word for it")
        w.next(2)
        w.next_over(2, grace=1000)
        w.wait_for(lambda: w.printed().count("over") == 2, "on_next_over")
        w.next_over(2, grace=0.1)
        same(w.expect(NEXT_STOPPED), stopped(2, NEXT_DONE), "or sooner, if there is less time than was said")
        w.next(3)
        w.next_over(3, grace=1000)
        w.wait_for(lambda: w.printed().count("over") == 3, "on_next_over")
        w.lead()
        w.stop()
        w.expect(STOPPED)
        ok(True, "a term does not wait for it")


def draining() -> None:
    """on_stopping of a term that has taken on_next"""
    with worker(
        "return { on_next = function(s) s:every(0.01, function() print 'tick' end) s.data.work ="
        " spawn(function() s:wait() while not s:wait():stopping() do sleep(0.01) end print 'last' end) end,"
        " on_leading = print, on_stopping = function(t) t.warm.work:wait() end }"
    ) as w:
        w.next(1)
        w.wait_print("tick")
        w.lead(number=1)
        w.expect(NEXT_STOPPED)
        w.drain()
        w.expect(DRAINED)
        ok("last" in w.printed(), "waits for a task of on_next")
        w.stop()
        w.expect(STOPPED)


run([without_a_term, into_a_term, children, errors, refused, without_waiting, hurry, draining])

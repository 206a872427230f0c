#!/usr/bin/env -S PYTHONPATH=. /usr/bin/python3
"""Stopping: whatever the script does, it ends or can be ended; what is orderly, and how fast, is told in comments."""

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

from tests.lib.player import END, STOPPED, Worker
from tests.lib.tap import ok, run, same

PRELUDE = """
local function leave(what) return setmetatable({}, { __close = function() print("closed", what) end }) end
local spin = 0
local function for_ever() while true do spin = spin + 1 end end
return { on_stopped = function(term, why) print("stopped", why) end, on_leading = function(term)
  local mark <close> = leave "mark"
  print "in"
  %s
  print "must not come here"
end }
"""

ORDERLY = [
    ("a busy loop", "for_ever()"),
    ("a busy loop under pcall", "while true do pcall(for_ever) end"),
    ("a loop of pcalls", "while true do pcall(error) end"),
    ("a busy loop in a coroutine", "coroutine.wrap(for_ever)()"),
    ("busy loops in new coroutines for ever", "while true do coroutine.resume(coroutine.create(for_ever)) end"),
    (
        "a busy loop five coroutines deep, each under pcall",
        "local function nest(n) while true do pcall(coroutine.wrap(n == 0 and for_ever or nest), n - 1) end end "
        "nest(5)",
    ),
    ("a busy loop in a spawned task", "spawn(for_ever) sleep(1000)"),
    ("waiting", "sleep(1000)"),
    ("waiting under pcall for ever", "while true do pcall(sleep, 1000) end"),
    ("waiting in a coroutine under pcall for ever", "while true do pcall(coroutine.wrap(sleep), 1000) end"),
    ("waiting for a task", "spawn(sleep, 1000):wait()"),
    (
        "waiting for all of several tasks, under pcall",
        "while true do pcall(tasks.wait_all, { function() sleep(1000) end, function() sleep(1000) end }) end",
    ),
    ("a scope whose task never waits", "tasks.scope(function(s) s:spawn(sleep, 1000) s:spawn(for_ever) end)"),
    ("waiting with a time limit, over and over", "while true do pcall(tasks.with_timeout, 1000, sleep, 1000) end"),
    (
        "waiting at an empty queue, at a full one, and for a permit",
        "local q, s = tasks.queue(1), tasks.semaphore(1) q:put(1) s:acquire() spawn(q.put, q, 2) spawn(s.acquire, s) "
        "spawn(s.acquire, s) tasks.queue():take()",
    ),
    (
        "two tasks that hand a value to each other for ever",
        "local a, b = tasks.queue(), tasks.queue() spawn(function() while true do b:put(a:take()) end end) while true "
        "do a:put(1) b:take() end",
    ),
    ("a line that never comes", "for _ in exec({ 'sleep', '1000', background = true }):lines() do end"),
    ("a child in the background that nobody waits for", "exec { 'sleep', '1000', background = true } sleep(1000)"),
    ("a thousand waiting tasks", "for i = 1, 1000 do spawn(sleep, 1000) end sleep(1000)"),
    ("a task that spawns tasks for ever", "local function again() spawn(again) sleep(0) end again() sleep(1000)"),
    ("sleeping not at all, for ever", "while true do sleep(0) end"),
    ("a sort that compares for ever", "table.sort({1,2,3,4}, function() for_ever() end)"),
    ("a gsub that replaces for ever", "string.gsub('x', 'x', for_ever)"),
    ("concatenation for ever", "while true do local s = ('x'):rep(1000) .. spin end"),
    ("collecting for ever", "while true do collectgarbage() end"),
    ("a metamethod that loops", "local x = setmetatable({}, { __index = for_ever }).x"),
    ("reading from a pipe that nobody writes to", "io.popen('sleep 1000'):read 'a' for_ever()"),
    ("waiting for a child", "exec { 'sleep', '1000' }"),
    ("waiting for a child that ignores SIGTERM", "exec \"trap '' TERM; while :; do sleep 0.05; done\""),
    ("waiting for a child that stopped itself", "exec 'kill -STOP $$'"),
    ("logging for ever", "while true do log.debug 'again' end"),
    ("parked by lunarch.exit", "lunarch.exit(3)"),
    ("resigned, and going on", "term:resign() for_ever()"),
]


def orderly(what: str, code: Any) -> None:
    with Worker(text=PRELUDE % code) as w:
        w.begin()
        time.sleep(0.02)
        while not w.quiet(0):
            w.receive()
        begun = time.monotonic()
        w.stop("expired", grace=2.0)
        while True:
            kind, _ = w.receive()
            if kind == STOPPED:
                break
            assert kind == END
        took = time.monotonic() - begun
        printed = w.printed()
        good = (
            printed.count("stopped\texpired") == 1
            and printed.count("closed\tmark") == 1
            and printed.index("closed\tmark") < printed.index("stopped\texpired")
            and "must not come here" not in printed
        )
        ok(good and w.process.poll() is None, what + " ends in order: <close>, then on_stopped, once", printed)
        print("# %.1f ms" % (took * 1000))
        w.lead(term=2)
        w.wait_for(lambda: w.printed().count("in") == 2, "the next term")


def cleaning_up() -> None:
    """Cleaning up"""
    with Worker(
        text=PRELUDE % "local c <close> = setmetatable({}, { __close = function() local n = 0 "
        "for i = 1, 100000 do n = n + i end print('sum', n) end }) for_ever()"
    ) as w:
        w.begin()
        w.stop()
        w.expect(STOPPED)
        ok(
            "sum\t5000050000" in w.printed(),
            "an interrupted task has room for some 100,000 steps of clean-up",
            w.printed(),
        )
    with Worker(text=PRELUDE % "local c <close> = setmetatable({}, { __close = for_ever }) for_ever()") as w:
        w.begin()
        w.stop()
        w.expect(STOPPED)
        ok("closed\tmark" in w.printed(), "a clean-up that does not end is interrupted in turn", w.printed())
    with Worker(
        text="return { on_leading = function(term) term:spawn(sleep, 100) exec { 'sleep', '100' } end,"
        "on_stopped = function() print(exec('echo ran').stdout) spawn(sleep, 100) end }"
    ) as w:
        w.ready()
        w.lead()
        w.stop()
        w.expect(STOPPED)
        ok(True, "what on_stopped starts ends with it")
    with Worker(
        text="return { on_leading = function() print 'in' end, on_stopped = function() print 'slow' sleep(1000) end }"
    ) as w:
        w.begin()
        w.stop(grace=0.3)
        w.expect(STOPPED)
        ok(
            [x for x in w.log() if x["event"] == "on_stopped_slow"],
            "an on_stopped that waits too long is cancelled, and that is logged",
        )
    with Worker(
        text="return { on_leading = function() print 'in' end, on_stopped = function() print 'slow' sleep(1000) end }"
    ) as w:
        w.begin()
        w.stop("shutdown", grace=1000.0, held=True)
        w.wait_print("slow")
        w.stop("lost", grace=0.1)
        w.expect(STOPPED)
        ok(True, "a second STOP may shorten the time")
    with Worker(
        text="return { on_leading = function() exec(\"trap '' TERM; echo in; while :; do sleep 0.05; done\", { stdout "
        "= 'inherit' }) end }"
    ) as w:
        w.ready()
        w.lead()
        w.wait_for(lambda: w.output() == "in\n", "the child's word")
        w.stop("shutdown", grace=1000.0, held=True)
        ok(w.quiet(), "a child that ignores SIGTERM has half the time")
        w.stop("lost", grace=0.2)
        w.expect(STOPPED)
        ok(True, "which a second STOP shortens too")
    with Worker(
        text="return { on_leading = function() exec(\"trap '' TERM; echo in; while :; do sleep 0.05; done\", { stdout "
        "= 'inherit', kill_after = 0.05 }) end }"
    ) as w:
        w.ready()
        w.lead()
        w.wait_for(lambda: w.output() == "in\n", "the child's word")
        w.stop("shutdown", grace=1000.0, held=True)
        ok(w.quiet(1.0), "and no less because the exec that waits for it gives less after a timeout")
        w.stop("lost", grace=0.2)
        w.expect(STOPPED)


def children() -> None:
    """Children"""
    mark = "mark-%d-%f" % (os.getpid(), time.time())
    with Worker(
        text="return { on_leading = function() spawn(function() exec 'sleep 1000 & sleep 1001 & wait' end)"
        " spawn(function() exec { 'sleep', '1002' } end) print 'in' sleep(1000) end }",
        env={"TEST_MARK": mark},
    ) as w:

        def alive() -> list[str]:
            found = []
            for pid in filter(str.isdigit, os.listdir("/proc")):
                try:
                    with open("/proc/%s/stat" % pid) as f:
                        stat = f.read().rsplit(")", 1)
                    with open("/proc/%s/environ" % pid, "rb") as f:
                        env = f.read()
                        if mark.encode() in env and b"LUNARCH_TERM=0.1" in env and stat[1].split()[0] != "Z":
                            found.append(pid)
                except OSError:
                    pass
            return found

        w.ready()
        w.lead()
        w.wait_for(lambda: len(alive()) == 4, "four processes of the term")
        w.stop()
        w.expect(STOPPED)
        w.wait_for(lambda: not alive(), "the end of the groups")
        ok(True, "children and what their groups hold are gone with the term")


def not_ours_to_stop() -> None:
    """Not ours to stop"""
    with Worker(
        text="return { on_leading = function() print 'in' string.find(('a'):rep(60), ('a*'):rep(60) .. 'b') end }"
    ) as w:
        w.begin()

        def spent_ns() -> int:
            with open(f"/proc/{w.process.pid}/schedstat") as f:
                return int(f.read().split()[0])

        before = spent_ns()
        w.wait_for(lambda: spent_ns() > before + 2e8, "its time in string.find")  # before that it can be stopped
        w.stop()
        ok(w.quiet(0.3), "a pathological string.find runs on: it is the guard's")
        w.process.send_signal(signal.SIGKILL)
        same(w.process.wait(30), -signal.SIGKILL, "and SIGKILL ends it")


def waking_late() -> None:
    """Waking up late"""
    spin = (
        "return { on_leading = function() print 'in' local n = 0 while true do n = n + 1 if n % 1000 == 0 then "
        "io.write(n, '\\n') end end end }"
    )
    with Worker(text=spin) as w:
        w.ready()
        w.lead(seconds=1000, kill=2000)
        w.wait_print("in")
        w.process.send_signal(signal.SIGSTOP)
        os.waitpid(w.process.pid, os.WUNTRACED)
        before = w.output()
        w.page.begin(0, 1, 100, seconds=-5, kill=-1)
        w.process.send_signal(signal.SIGCONT)
        same(w.process.wait(30), -signal.SIGKILL, "continued after the kill deadline it kills itself")
        ok(len(w.output()) - len(before) < 100, "before the script's code runs on")
    with Worker(text=PRELUDE % "for_ever()") as w:
        w.begin()
        w.process.send_signal(signal.SIGSTOP)
        os.waitpid(w.process.pid, os.WUNTRACED)
        w.page.begin(0, 1, 100, seconds=-5, kill=100)
        w.process.send_signal(signal.SIGCONT)
        w.wait_print("closed\tmark")
        ok(
            w.quiet(),
            "continued after the end of the term, but before that deadline: the task ends, and STOP is awaited",
        )
        w.stop("expired", interrupt=False)
        w.expect(STOPPED)
        same(w.printed()[-1], "stopped\texpired", "then on_stopped runs")
    with Worker(
        text="return { on_leading = function(term) print 'in' local ok, why repeat ok, why = pcall(sleep, 0.01) until "
        "not ok print(why, term:is_leading()) end }"
    ) as w:
        w.ready()
        w.lead(seconds=0.1)
        w.wait_print("term ended\tfalse")
        ok(True, "a term that runs out ends its waits without any message")
    with Worker(text=PRELUDE % "for_ever()") as w:
        w.begin()
        for _ in range(200):
            w.process.send_signal(signal.SIGRTMIN)
            w.process.send_signal(signal.SIGCONT)
        time.sleep(0.05)
        same(w.printed(), ["in"], "a signal without a cause changes nothing")


def cases() -> Iterator[Any]:
    for what, code in ORDERLY:

        def test(what: str = what, code: Any = code) -> None:
            orderly(what, code)

        test.__doc__ = what
        yield test


run([*cases(), cleaning_up, children, not_ours_to_stop, waking_late])

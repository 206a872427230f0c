#!/usr/bin/env -S PYTHONPATH=. /usr/bin/python3
"""The hooks: when each runs, what it is given, and what its return or its error leads to."""

import os
from typing import Any

from tests.lib.player import (
    ANSWER,
    CLEANUP,
    DRAINED,
    END,
    EXIT,
    GO,
    LEADS,
    NEXT_STOPPED,
    QUIT,
    REASONS,
    STARTED,
    STOPPED,
)
from tests.lib.player import WORKS, Worker
from tests.lib.processes import scratch, wait_for
from tests.lib.tap import ok, run, same

OBSERVE = """
return {
  on_leading = function(term) print("leading", term.token) sleep(1000) end,
  on_stopped = function(term, reason) print("stopped", term.token, reason, term:is_leading()) end,
  on_new_leader = function(l) print("leader", l.identity, l.address, l.token, l.is_self, l.previous) end,
  on_no_leader = function(previous) print("nobody", previous) end,
}"""


def worker(text: str) -> Worker:
    w = Worker(text=text)
    w.ready()
    return w


def a_term() -> None:
    """A term from its beginning to its end"""
    with worker(OBSERVE) as w:
        w.lead(term=7, token=41)
        w.wait_print("leading\t41")
        w.stop("resigned", term=7)
        same(w.expect(STOPPED), {"slot": 0, "term": 7}, "STOP is answered when everything has stopped")
        same(w.printed(), ["leading\t41", "stopped\t41\tresigned\tfalse"], "on_leading, then on_stopped, each once")
        about = [line for line in w.log() if line["event"] == "print"][-1]
        same(
            (about["lock"], about["term"], about["token"]), ("file:lock0", 7, 41), "their log lines say whose they are"
        )
        w.lead(term=8, token=42)
        w.wait_print("leading\t42")
        w.stop("lost", term=8)
        w.expect(STOPPED)
        same(w.printed()[2:], ["leading\t42", "stopped\t42\tlost\tfalse"], "the next term in the same worker")
        w.stop("lost", term=9)
        same(w.expect(STOPPED), {"slot": 0, "term": 9}, "of a term that never was here nothing is left either")
        same(len(w.printed()), 4, "and no hook runs for it")
        w.send(QUIT)
        same(w.process.wait(30), 0, "and out")


def answering() -> None:
    """The answer to LEAD"""
    place = scratch()
    busy = (
        f"local PLACE = '{place}/'"
        + """
local function hook(name)
  return function() print(name) while not io.open(PLACE .. name) do end end
end
local function task() spawn(hook "task") sleep(1000) end
return {
  { name = "a", on_start = hook "on_start", may_lead = hook "may_lead", on_new_leader = hook "on_new_leader",
    on_no_leader = hook "on_no_leader", on_leading = hook "on_leading", on_next = hook "on_next",
    on_next_over = hook "on_next_over", on_stopping = hook "on_stopping", on_stopped = hook "on_stopped" },
  { name = "b", on_leading = task },
}"""
    )
    with Worker(text=busy) as w:

        def does(name: str, slot: int) -> bool:
            """it is busy there, and says so; then it goes on"""
            w.wait_print(name)
            good = w.page.work() == (WORKS.index(name), slot)
            with open(os.path.join(place, name), "w"):
                pass
            return good

        loaded = w.load()
        assert isinstance(loaded, list), loaded
        w.send(GO, 1, [(i, "file:lock%d" % i, "me") for i in range(2)])
        ok(does("on_start", 0), "while on_start runs, the page says so")
        w.expect(STARTED)
        w.leader("she")
        w.wait_print("on_new_leader")
        w.lead(wait=False)
        ok(w.quiet(), "LEAD is not answered while on_new_leader is busy")
        ok(does("on_new_leader", 0), "and the page says with what")
        same(w.expect(LEADS), {"slot": 0, "term": 1}, "but then it is")
        ok(does("on_leading", 0), "before on_leading ends")
        w.lead(slot=1)
        ok(does("task", 1), "a task is one of the election whose hook has started it")
        w.drain()
        ok(does("on_stopping", 0), "on_stopping")
        w.expect(DRAINED)
        w.stop()
        ok(does("on_stopped", 0), "on_stopped")
        w.expect(STOPPED)
        w.ask(1)
        ok(does("may_lead", 0), "may_lead")
        w.expect(ANSWER)
        w.no_leader()
        ok(does("on_no_leader", 0), "on_no_leader")
        w.next(1)
        ok(does("on_next", 0), "on_next")
        w.next_over(1)
        ok(does("on_next_over", 0), "on_next_over")
        w.expect(NEXT_STOPPED)
        ok(wait_for(lambda: w.page.work()[0] == WORKS.index("waits")), "in between it says that it waits")


def reasons() -> None:
    """Reasons"""
    with worker(OBSERVE) as w:
        for i, reason in enumerate(REASONS):
            w.lead(term=i + 1)
            w.wait_for(lambda: len([p for p in w.printed() if p.startswith("leading")]) == i + 1, "on_leading")
            w.stop(reason, term=i + 1, held=True)
            w.expect(STOPPED)
        got = [p.split("\t")[2] for p in w.printed() if p.startswith("stopped")]
        same(got, REASONS, "each reason by its name")
        ok(
            all(p.endswith("true") for p in w.printed() if p.startswith("stopped")),
            "is_leading stays true while the lease is held",
        )


def pairing() -> None:
    """on_stopped is paired with on_leading"""
    with worker(OBSERVE) as w:
        w.lead()
        w.stop(interrupt=False)
        w.expect(STOPPED)
        ok(
            sorted(w.printed()) in ([], ["leading\t100", "stopped\t100\tshutdown\tfalse"]),
            "STOP right behind LEAD: both hooks, or neither",
            w.printed(),
        )
        w.page.begin(0, 2, 5, seconds=-1)
        w.lead(term=2, seconds=-1)
        w.stop(term=2)
        w.expect(STOPPED)
        ok(not [p for p in w.printed() if "101" in p], "a term that is over before it began runs no hook")
    with worker("return { on_leading = function() print 'in' sleep(0) print 'out' end }") as w:
        w.lead()
        w.wait_print("out")
        ok(w.quiet(), "the return of on_leading does not end the term")
        w.stop()
        w.expect(STOPPED)
        ok(True, "a script without on_stopped stops too")


DRAINS = """
local work
return {
  on_leading = function(term)
    print(term:stopping())
    work = spawn(function()
      while not term:stopping() do sleep(0.01) end
      print("last step", term:is_leading(), pcall(sleep, 0.01))
    end)
    %s
  end,
  on_stopping = function(term, reason)
    print("draining", reason, term:stopping(), term:is_leading(), term:resign())
    work:wait()
    print "drained"
    %s
  end,
  on_stopped = function(term, reason) print("stopped", reason, term:stopping()) end,
}"""


def draining() -> None:
    """on_stopping"""
    with worker(DRAINS % ("", "")) as w:
        w.lead()
        w.wait_print("false")
        w.drain("resigned")
        same(w.expect(DRAINED), {"slot": 0, "term": 1}, "DRAIN is answered when on_stopping has returned")
        same(
            w.printed(),
            ["false", "draining\tresigned\ttrue\ttrue\tfalse", "last step\ttrue\ttrue", "drained"],
            "it may wait for a task of the term, which leads, may wait, and knows that it is to come to its end",
        )
        w.stop("resigned", held=True)
        w.expect(STOPPED)
        same(w.printed()[4:], ["stopped\tresigned\ttrue"], "then on_stopped, as always")
        w.drain()
        same(w.expect(DRAINED), {"slot": 0, "term": 1}, "of a term that is over nothing is left to drain")
        w.lead(term=2)
        w.drain(term=2)
        same(w.expect(DRAINED)["term"], 2, "DRAIN right behind LEAD: on_leading has begun before")
    with worker(OBSERVE) as w:
        w.lead()
        w.drain()
        w.expect(DRAINED)
        w.stop()
        w.expect(STOPPED)
        ok(True, "a script without on_stopping has drained at once")
    with worker(DRAINS % ("", "error 'broken'")) as w:
        w.lead()
        w.drain()
        w.expect(DRAINED)
        ok(
            [x for x in w.log() if x["event"] == "hook_failed" and "on_stopping: " in x["message"]],
            "an error in it is logged, and the drain is over",
        )
    with worker(DRAINS % ("sleep(0.05) while not term:stopping() do sleep(0.01) end error 'late'", "sleep(0.3)")) as w:
        w.lead()
        w.wait_print("false")
        w.drain()
        w.expect(DRAINED)
        ok(
            [x for x in w.log() if x["event"] == "hook_failed" and "late" in x["message"]],
            "an error in a task of the term is logged, and does not end the drain",
        )
    with worker(DRAINS % ("", "sleep(1000)")) as w:
        w.lead()
        w.drain()
        w.wait_print("drained")
        w.stop("shutdown", grace=5.0)
        while w.receive()[0] != STOPPED:  # DRAINED may have been on its way
            pass
        same(w.printed()[-1], "stopped\tshutdown\ttrue", "STOP cuts it, and on_stopped runs")


EVERY = """
local ticker, other, cron
return {
  on_leading = function(term)
    ticker = term:every(0.01, function() print "call" sleep(0.2) print "call ends" end, { now = true })
    other = every(1000, print)
    cron = term:cron("* * * * *", print)
  end,
  on_stopping = function(term)
    term:every(0.01, function() print "new" end, { now = true })
    print("waits", (ticker:wait()), (other:wait()), (cron:wait()))
    sleep(0.1)
  end,
}"""


def draining_tickers() -> None:
    """every and cron in a drain"""
    with worker(EVERY) as w:
        w.lead()
        w.wait_print("call")
        kind, saved = w.receive()  # the mark of the cron job
        w.saved(saved["save"])
        w.drain()
        w.expect(DRAINED)
        told = w.printed()
        calls = told.count("call")
        same(
            (told[-2:], told.count("call ends"), "new" in told),
            (["call ends", "waits\tnil\tnil\tnil"], calls, False),
            "a call of every ends, and no other begins; its task ends, and so do those of every and cron that wait",
        )


def declining() -> None:
    """Declining and resigning"""
    with worker("return { on_leading = function() return false, 'too busy' end }") as w:
        w.lead()
        same(
            w.expect(END), dict(slot=0, term=1, reason=1, sit_out_ms=-1, text="too busy"), "return false, why: declines"
        )
    with worker("return { on_leading = function() return nil end }") as w:
        w.lead()
        ok(w.quiet(), "return nil does not")
    with worker(
        "return { on_leading = function(term) print(term:resign(2.5), term:resign()) sleep(0) print 'on' end }"
    ) as w:
        w.lead()
        same(w.expect(END), dict(slot=0, term=1, reason=0, sit_out_ms=2500, text=""), "term:resign(seconds)")
        w.wait_print("on")
        same(w.printed(), ["true\tfalse", "on"], "resigning twice is once; the task goes on until it waits after STOP")
        ok(w.quiet(), "one message")
    with worker("return { on_leading = function(term) term:resign() end }") as w:
        w.lead()
        same(w.expect(END)["sit_out_ms"], -1, "term:resign(): as long as the elector thinks right")
    with worker(
        "local t return { on_leading = function(term) t = term print 'in' end, on_start = function() spawn(function()"
        " while not t do sleep(0.01) end while t:is_leading() do sleep(0.01) end sleep(0.1)"
        " print(t:resign(), t.token, t:remaining(), pcall(t.spawn, t, print)) end) end }"
    ) as w:
        w.lead()
        w.wait_print("in")
        w.stop()
        w.expect(STOPPED)
        w.wait_for(lambda: len(w.printed()) == 2, "the late use of the term")
        same(
            w.printed()[1:], ["false\t100\t0.0\tfalse\tterm ended"], "a term object may outlive its term, and knows it"
        )


def errors() -> None:
    """Errors in hooks"""
    with worker(
        "local function deep() error('broken') end\nreturn { on_leading = function(term)\n deep() end,\n"
        "on_stopped = function(_, why) print(why) error('also broken') end }"
    ) as w:
        w.lead()
        end = w.expect(END)
        same((end["reason"], end["sit_out_ms"]), (REASONS.index("error"), -1), "an error in on_leading ends the term")
        ok(end["text"].endswith("script.lua:1: broken"), "the message says where", end)
        (line,) = [x for x in w.log() if x["event"] == "hook_failed"]
        ok(
            "script.lua:3: in " in line["message"] and line["level"] == "error" and line["term"] == 1,
            "the log has the traceback with the script's lines",
            line,
        )
        w.stop("error")
        w.expect(STOPPED)
        failed = [x["message"] for x in w.log() if x["event"] == "hook_failed"]
        ok(
            w.printed() == ["error"] and len(failed) == 2 and "also broken" in failed[1],
            "an error in on_stopped is logged, and ends nothing",
            failed,
        )
        told = [(text.split(":")[0], text.rsplit(": ", 1)[1]) for text in w.failed]
        same(told, [("on_leading", "broken"), ("on_stopped", "also broken")], "the elector is told of each")
        w.lead(term=2)
        w.expect(END)
        ok(True, "the worker goes on to lead again")
    with worker(
        "return { on_leading = function(term) term:every(0.01, function() error({ code = 7 }) end) sleep(1000) end }"
    ) as w:
        w.lead()
        text = w.expect(END)["text"]
        ok(
            'script.lua:1: (the error is a table, not a text: expected error("why")' in text,
            "an error in a task of the term ends it too",
            text,
        )
    with worker("return { on_leading = function()\n error({ message = 'disk full' }) end }") as w:
        w.lead()
        ok(
            w.expect(END)["text"].endswith("script.lua:2: disk full"),
            "an error that is a table with a message prints as that, with its line",
        )
    with worker("return { on_leading = function() local r, err = exec { '/nowhere' } error(err) end }") as w:
        w.lead()
        text = w.expect(END)["text"]
        ok(
            "script.lua:1: " in text and "No such file" in text,
            "an err that is raised prints as its message, with its line",
            text,
        )
    with worker("return { on_leading = function() error(('x'):rep(1 << 20)) end }") as w:
        w.lead()
        same(len(w.expect(END)["text"]), 16384, "a message of a megabyte is cut")
    with worker("return { on_new_leader = function() print 'told' error('x') end }") as w:
        w.leader("a")
        w.leader("b")
        w.wait_for(lambda: len(w.printed()) == 2, "the second call")
        ok(w.quiet(), "an error in on_new_leader is logged, and the next change is told")
    with Worker(text="return { on_leading = print,\non_start = function() error('no start') end }") as w:
        w.load()
        started = w.go()
        ok(
            not started["ok"] and "script.lua:2: no start" in started["text"],
            "an error in on_start is reported",
            started,
        )


def starting() -> None:
    """on_start"""
    text = (
        "return { { name = 'a', on_leading = print, on_start = function() sleep(0.05) print 'a' end },"
        " { name = 'b', on_leading = print, on_start = function() print 'b' end }, { name = 'c', on_leading = print } }"
    )
    with Worker(text=text) as w:
        w.load()
        w.go(3)
        same(w.printed(), ["a", "b"], "on_start of each election, one after the other, before STARTED")
    with Worker(text=text) as w:
        w.load()
        ok(w.go(3, first=False)["ok"] and w.printed() == [], "not in a replacement")
    with Worker(text=text) as w:
        w.load()
        w.go(keep=[1])
        same(w.printed(), ["b"], "not of elections that live elsewhere")
        w.lead(slot=1)
        w.wait_for(lambda: len(w.printed()) == 2, "on_leading")
        ok(w.printed()[1].startswith("term"), "the slot is the elector's choice")
        w.lead(slot=0)
        same(w.process.wait(30), 1, "a message for one that is not here ends the worker")


def leaders() -> None:
    """on_new_leader and on_no_leader"""
    with worker(OBSERVE) as w:
        w.leader("a")
        w.leader("me_0", token=2, is_self=True, previous="a", address="")
        w.no_leader("me_0")
        w.no_leader()
        w.wait_for(lambda: len(w.printed()) == 4, "four hooks")
        same(
            w.printed(),
            ["leader\ta\tthere:1\t1\tfalse\tnil", "leader\tme_0\t\t2\ttrue\ta", "nobody\tme_0", "nobody\tnil"],
            "once per change, in order, with what is known",
        )
    with worker(
        "return { on_new_leader = function(l) print('begin', l.identity) sleep(0.02) print('end', l.identity) end }"
    ) as w:
        for name in "abc":
            w.leader(name)
        w.wait_print("end\tc")
        same(w.printed(), [x + "\t" + n for n in "abc" for x in ("begin", "end")], "one at a time")
    with worker(
        "return { on_new_leader = function() print(election:leader().identity, election:lock(), "
        "election:is_leading()) end }"
    ) as w:
        w.leader("a")
        w.wait_print("a\tfile:lock0\tfalse")
        ok(True, "election tells the same")
    with worker("return { on_no_leader = function() print(election:leader()) end }") as w:
        w.leader("a")
        w.no_leader("a")
        w.wait_print("nil")
        ok(True, "and nil when nobody leads")
    with worker("return { on_new_leader = function() sleep(1000) end }") as w:
        for i in range(65):
            w.leader("n%d" % i)
        w.wait_for(lambda: [x for x in w.log() if x["event"] == "hook_slow"], "a warning")
        ok(True, "a hook that never returns is warned about")
    with worker(
        "return { on_leading = function() print 'leading' sleep(1000) end,"
        "on_new_leader = function() print 'told' sleep(1000) end, on_stopped = function() print 'stopped' end }"
    ) as w:
        w.lead()
        w.leader("me_0", is_self=True)
        w.wait_print("told")
        w.stop()
        w.expect(STOPPED)
        ok(True, "on_new_leader belongs to no term: it does not hold up its end")


def asking() -> None:
    """may_lead and address"""

    def answers(hooks: Any, number: int = 1) -> Any:
        with worker("return { on_leading = print, %s }" % hooks) as w:
            w.ask(number)
            got = w.expect(ANSWER)
            assert got["ask"] == number and got["slot"] == 0
            return got["yes"], got["why"], got["address"]

    same(answers("may_lead = function() return true end", 77), (1, "", ""), "yes")
    same(answers("may_lead = function() return false, 'low disk' end"), (0, "low disk", ""), "no, and why")
    same(answers("may_lead = function() end"), (0, "", ""), "nothing is a no")
    yes, why, _ = answers("may_lead = function() error('broken') end")
    ok(not yes and why.endswith("broken"), "an error is a no", why)
    same(answers("may_lead = function() local r = exec('exit 0') return r.ok end"), (1, "", ""), "it may wait")
    same(answers("address = function() return 'h:' .. 5 end"), (1, "", "h:5"), "the address from a function")
    same(answers("may_lead = function() return false end, address = error"), (0, "", ""), "not asked for without need")
    yes, why, _ = answers("address = function() return {} end")
    same((yes, why), (0, "address: expected a text, found a table"), "an address that is none is a no")
    with worker(
        "local n = 0 return { on_leading = print, may_lead = function() n = n + 1 if n == 1 then sleep(1000) end "
        "return true end }"
    ) as w:
        w.ask(1)
        w.ask(2)
        same(w.expect(ANSWER)["ask"], 2, "asked again, the first call is dropped")
        ok(w.quiet(), "and never answered")


def cleaning() -> None:
    """After a death: CLEANUP"""
    with worker(OBSERVE) as w:
        w.send(CLEANUP, 0, 5, 50, REASONS.index("killed"), 3000, "")
        same(w.expect(STOPPED), {"slot": 0, "term": 5}, "the replacement runs on_stopped")
        same(w.printed(), ["stopped\t50\tkilled\tfalse"], "and nothing else, for the term that died")
    with worker("return { on_leading = print }") as w:
        w.send(CLEANUP, 0, 5, 50, 8, 3000, "")
        same(w.expect(STOPPED)["term"], 5, "also when there is no such hook")


def many() -> None:
    """Many elections in one worker"""
    text = (
        "local l = {} for i = 1, 1000 do l[i] = { name = 'e' .. i, on_leading = function(term) sleep(1000) end } end "
        "return l"
    )
    with Worker(text=text) as w:
        w.load()

        def resident() -> int:
            with open("/proc/%d/smaps_rollup" % w.process.pid) as f:
                return int([x for x in f if x.startswith("Pss:")][0].split()[1])

        w.go(keep=list(range(1000)))
        idle = resident()
        for i in range(1000):
            w.lead(slot=i, term=i + 1, token=i)
        w.ask(1, slot=999)
        w.expect(ANSWER)
        leading = resident()
        for i in range(1000):
            w.stop(slot=i, term=i + 1, interrupt=False)
        got = sorted(w.expect(STOPPED)["slot"] for _ in range(1000))
        same(got, list(range(1000)), "a thousand terms in one worker, each stopped")
        print("# 1,000 elections: worker %d KB; all leading: %d KB" % (idle, leading))
    with Worker(
        text="return { { name = 'a', on_leading = print, on_start = function() print 'a' end },"
        "{ name = 'b', on_leading = print, on_start = function() print 'b' end } }"
    ) as w:
        w.load()
        w.send(GO, 2, [(0, "l", "i")])
        ok(w.quiet() and w.printed() == [], "a GO in parts: nothing starts before the last")
        w.send(GO, 1, [(1, "l", "i")])
        w.expect(STARTED)
        same(w.printed(), ["a", "b"], "then both do")
        w.send(GO, 1, [])
        same(w.process.wait(30), 1, "and a second GO makes no sense")
    with Worker(text="return { on_leading = print }") as w:
        w.ready()
        print(
            "# 1 election: worker %d KB"
            % (lambda f: int([x for x in f if x.startswith("Pss:")][0].split()[1]))(
                open("/proc/%d/smaps_rollup" % w.process.pid)
            )
        )
    with Worker(
        text="return { { name = 'a', on_leading = function() election:lock() print(election:lock()) end },"
        "{ name = 'b', on_leading = function() spawn(function() print(election:lock()) end) end } }"
    ) as w:
        w.ready(2)
        w.lead(slot=0)
        w.lead(slot=1)
        w.wait_for(lambda: len(w.printed()) == 2, "both")
        same(sorted(w.printed()), ["file:lock0", "file:lock1"], "election is the one whose hook runs")


def leaving() -> None:
    """lunarch.exit and os.exit"""
    for text, code in [
        ("lunarch.exit(5)", 5),
        ("os.exit()", 0),
        ("os.exit(true)", 0),
        ("os.exit(false)", 1),
        ("os.exit(255)", 255),
    ]:
        with worker(
            "return { on_leading = function() pcall(function() %s end) print 'on' end, on_stopped = function() print "
            "'stopped' end }" % text
        ) as w:
            w.lead()
            same(w.expect(EXIT)["code"], code, text + " asks for the end of the program")
            ok(w.process.poll() is None and w.printed() == [], "and waits for it")
            w.stop()
            w.expect(STOPPED)
            same(w.printed()[-1], "stopped", "on_stopped runs as for any other end")
    with worker("return { on_leading = function() os.exit(300) end }") as w:
        w.lead()
        ok("from 0 to 255" in w.expect(END)["text"], "a status that is none is misuse")


def environment() -> None:
    """What children see outside a term"""
    with Worker(
        text="return { on_leading = print, on_start = function() print(exec('echo "
        "$LUNARCH_TERM:$LUNARCH_TOKEN').stdout)"
        " print(os.getenv 'LUNARCH_TERM', os.getenv 'LUNARCH_TOKEN') end,"
        " on_stopped = function() print(exec('echo $LUNARCH_TERM').stdout) end }",
        env={"LUNARCH_TERM": "9.9", "LUNARCH_TOKEN": "stale"},
    ) as w:
        w.load()
        w.go()
        same(w.printed(), ["-:\n", "-\tnil"], "no token, and a dash for the term, whatever was inherited")
        w.send(CLEANUP, 0, 5, 50, 7, 3000, "")
        w.expect(STOPPED)
        same(w.printed()[2], "0.5\n", "what on_stopped starts belongs to its term")


def far_errors() -> None:
    """Errors of tasks"""
    text = """local function deep() error 'deep down' end
local function middle() sleep(0.001) deep() end
return { on_leading = function() tasks.wait_all { middle } end }"""
    with worker(text) as w:
        w.lead()
        got = w.expect(END)["text"]
        ok(
            got.endswith("script.lua:1: deep down"),
            "an error in a task of wait_all ends the term, when nobody catches it",
            got,
        )
        log = [line["message"] for line in w.log() if line["event"] == "hook_failed"][0]
        ok(
            0 < log.find("script.lua:1: in") < log.find("script.lua:2: in") < log.rfind("script.lua:3: in")
            and log.count("stack traceback") == 2,
            "its traceback shows where it was raised, and who waited",
            log,
        )
    with worker(
        "return { on_leading = function() local q = tasks.queue() spawn(function() q:put(1) error 'lost' end) "
        "q:take() sleep(100) end }"
    ) as w:
        w.lead()
        ok(w.expect(END)["text"].endswith("lost"), "an error in a task that nobody waits for ends it at once")
    with worker(
        "return { on_leading = function() pcall(tasks.first, { function() pcall(sleep, 100) error 'late' end, "
        "function() end }) print 'on' sleep(100) end }"
    ) as w:
        w.lead()
        w.wait_print("on")
        ok(
            w.quiet() and "late" in w.log_text(),
            "one of a task that is being cancelled is logged, and the term goes on",
        )


run(
    [
        far_errors,
        a_term,
        answering,
        reasons,
        pairing,
        draining,
        draining_tickers,
        declining,
        errors,
        starting,
        leaders,
        asking,
        cleaning,
        many,
        leaving,
        environment,
    ]
)

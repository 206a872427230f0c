#!/usr/bin/env -S PYTHONPATH=. /usr/bin/python3
"""Loading: what a script may return, and what is wrong with one, in words that name file, line, key and value."""

from typing import Any

from tests.lib.player import (
    ADDRESS_FUNCTION,
    ISOLATE,
    LOAD_FAILED,
    MAY_LEAD,
    OBSERVER,
    ON_NEXT,
    ON_NEXT_OVER,
    ON_STOPPED,
    ON_STOPPING,
    PRIORITY_FUNCTION,
    QUIT,
    Worker,
)
from tests.lib.tap import ok, run, same


def load(text: str | None = None, *args: str, **more: Any) -> Any:
    with Worker(None, *args, text=text, **more) as w:
        return w.load()


def a_table() -> None:
    """One election, with every key"""
    (e,) = load(
        """
local function nothing() end
return {
  name = "backup", lock = "etcd://h:1/k", identity = "it", address = "h:2",
  lease_duration = 15, renew_deadline = 10.5, retry_period = 0.25, stop_grace = 3, shutdown_grace = 60,
  isolate = true, reclaim = true, may_lead = nothing, on_start = nothing, on_stopped = nothing, on_stopping = nothing,
  on_new_leader = nothing, on_no_leader = nothing, may_lead_timeout = 2.5, on_next = nothing, on_next_over = nothing,
  priority = -5, preempt = true, preempt_after = 30, max_term = 86400,
  on_leading = function(term)
  end,
}"""
    )
    where = e.pop("where")
    ok(where.endswith("script.lua:9"), "it says where on_leading is", where)
    same(
        e,
        dict(
            index=0,
            name="backup",
            lock="etcd://h:1/k",
            identity="it",
            address="h:2",
            said=dict(
                lease_duration=15000,
                renew_deadline=10500,
                retry_period=250,
                stop_grace=3000,
                shutdown_grace=60000,
                may_lead_timeout=2500,
                priority=-5,
                preempt=1,
                preempt_after=30000,
                max_term=86400000,
                reclaim=1,
            ),
            flags=MAY_LEAD | ISOLATE | ON_STOPPED | ON_STOPPING | ON_NEXT | ON_NEXT_OVER,
            slot=0,
            hooks="on_leading, on_start, on_stopping, on_stopped, may_lead, on_next, on_next_over, on_new_leader, "
            "on_no_leader",
        ),
        "all keys arrive",
    )


def smaller() -> None:
    """Other ways to say it"""
    (e,) = load("return { on_new_leader = print, address = function() return 'a' end }")
    same(e["flags"], OBSERVER | ADDRESS_FUNCTION, "no on_leading: an observer; the address may be a function")
    same((e["said"], e["lock"]), ({}, ""), "what is not given is not sent")
    (e,) = load("return { on_leading = print, priority = function() return 1 end, preempt = false }")
    same(e["flags"], PRIORITY_FUNCTION, "the priority may be a function, which is asked later,")
    same(e["said"], {"preempt": 0}, "and preempt false")
    (e,) = load("\n\nfunction on_leading(term) end\nfunction on_stopped() end\nlocal function helper() end helper()")
    ok(e["where"].endswith("script.lua:3") and e["flags"] == ON_STOPPED, "hooks may be global functions", e)
    many = load("local l = {} for i = 1, 1000 do l[i] = { name = 'e' .. i, on_leading = print } end return l")
    same([e["name"] for e in many], ["e%d" % i for i in range(1, 1001)], "a list of a thousand elections, in order")
    same(len(load("#!/usr/bin/lunarch run\nreturn { on_leading = print }")), 1, "a first line for the shell is skipped")
    same(
        len(load("sleep(0.01) local r = exec { 'true' } assert(r.ok) return { on_leading = print }")),
        1,
        "a script may wait while it loads",
    )
    (e,) = load(
        "assert(... == 'a' and select('#', ...) == 2 and arg[2] == 'b c')\nreturn { on_leading = print }", "a", "b c"
    )
    same(e["index"], 0, "arguments come as ... and arg")


def bodies() -> None:
    """Text given with -e"""
    for body, what in [
        ("print(term.token)", "text that returns nothing is the body of on_leading"),
        ("while true do sleep(1) end", "and does not run while it loads"),
        ("return false, 'not me'", "also when it declines at once"),
    ]:
        (e,) = load(body=body)
        same((e["flags"], e["where"]), (0, "(-e):1"), what)
    (e,) = load(body="function on_leading() end function on_stopped() end")
    same(e["flags"], ON_STOPPED, "text that defines hooks is a script")
    (e,) = load(body="return { on_new_leader = print }")
    same(e["flags"], OBSERVER, "text that returns a table too")
    same(load(body="x ="), "(-e):1: unexpected symbol near <eof>", "a syntax error in it")


WRONG = [
    ("return { on_leadng = print }", "script.lua:1: unknown key 'on_leadng' (did you mean 'on_leading'?)"),
    ("return {\n on_leading = print,\n lock_ = 'x' }", "script.lua:3: unknown key 'lock_' (did you mean 'lock'?)"),
    (
        "return {\n on_leading = print,\n lease_duraton = 5 }",
        "script.lua:3: unknown key 'lease_duraton' (did you mean " "'lease_duration'?)",
    ),
    ("return { on_leading = print,\n colour = 1 }", "script.lua:2: unknown key 'colour'"),
    ("return {\n\n on_leading = 5 }", "script.lua:3: on_leading: expected a function, found 5"),
    (
        "return { on_leading = print,\n lease_duration = '15s' }",
        "script.lua:2: lease_duration: expected a number of seconds, " 'from 0.001 to a year, found the text "15s"',
    ),
    ("return { on_leading = print, retry_period = 0 }", "retry_period: expected a number of seconds"),
    (
        "return { on_leading = print, priority = 1.5 }",
        "priority: expected a whole number from -1000000000 to 1000000000",
    ),
    ("return { on_leading = print, priority = 1000000001 }", "priority: expected a whole number"),
    ("return { on_leading = print, preempt = 1 }", "preempt: expected true or false, found 1"),
    ("return { on_leading = print, max_term = 'day' }", "max_term: expected a number of seconds, from 0.001 to a year"),
    ("return { on_leading = print, stop_grace = -1 }", "found -1"),
    ("return { on_leading = print, stop_grace = 0/0 }", "stop_grace: expected"),
    ("return { on_leading = print, isolate = 1 }", "isolate: expected true or false, found 1"),
    ("return { on_leading = print, lock = '' }", "lock: expected a text of 1 to 8192 bytes, found an empty text"),
    ("return { on_leading = print, lock = {} }", "lock: expected a text of 1 to 8192 bytes, found a table"),
    ("return { on_leading = print, identity = 'a\\0b' }", "identity: expected a text"),
    ("return { on_leading = print, address = 7 }", "address: expected a text or a function that returns one, found 7"),
    ("return { on_leading = print, name = 'a b' }", "name: expected a name of letters, digits"),
    ("return { on_leading = print, 5, [true] = 1 }", "election 1 of the list: expected a table, found 5"),
    ("return { on_leading = print, [true] = 1 }", "unknown key 'true'"),
    ("return { name = 'x' }", "an election has no hook"),
    ("return {}", "returns an empty table"),
    ("return", "returns nothing and defines no hook: expected `return {"),
    ("x = 1", "returns nothing and defines no hook"),
    ("return 5", "returns 5: expected an election, or a list of them"),
    ("return print", "returns a function: expected an election"),
    ("return {}, {}", "returns 2 values"),
    ("return { { on_leading = print }, name = 'x' }", "a list of elections has the key 'name' besides"),
    ("return { { on_leading = print }, nil, { on_leading = print } }", "election 2 of the list is nil"),
    (
        "return { { name = 'a', on_leading = print }, { name = 'a', on_leading = print } }",
        "elections 1 and 2 have the same name 'a'",
    ),
    ("\nfunction on_leadin() end", "script.lua:2: global function 'on_leadin' is no hook (did you mean 'on_leading'?)"),
    ("\non_stopped = 5", "script.lua:2: on_stopped: expected a function, found 5"),
    (
        "function on_leading() end\nreturn { on_leading = print }",
        "defines the global on_leading, and returns elections",
    ),
    ("local x = = 1", "script.lua:1: unexpected symbol near '='"),
    ("\n\nerror('no good')", "script.lua:3: no good\nstack traceback:"),
    ("error({ code = 5 })", "script.lua:1: (the error is a table, not a text: expected error("),
    ("error(setmetatable({}, { __tostring = function() return 'my error' end }))", "my error"),
    ("error(setmetatable({}, { __tostring = function() error('x') end }))", "x"),
    ("error()", "script.lua:1: (the error is a nil, not a text: expected error("),
    ("\nslep(1)", "script.lua:2: undefined global 'slep' (did you mean 'sleep'?)"),
    ("require 'no_such_module'", "module 'no_such_module' not found"),
    ("require 'broken'", "broken.lua:2:"),
    ("local function f() return f() + 1 end f()", "stack overflow"),
    ("election:leader()", "no election is known while the script loads"),
    ("\x1bLua", "attempt to load a binary chunk"),
]
WRONG += [
    (f"return {{ {hook[:-1]} = print }}", f"unknown key '{hook[:-1]}' (did you mean '{hook}'?)")
    for hook in ("on_leading", "on_new_leader", "on_no_leader", "on_start", "on_stopped", "may_lead")
]


def mistakes() -> None:
    """Mistakes are told"""
    for text, part in WRONG:
        with Worker(text=text, files={"broken.lua": "\nlocal x = = 1"}) as w:
            got = w.load()
        ok(isinstance(got, str) and part in got, "%r: %r" % (text[:60], part), got)
    with Worker(text="\nrequire('lunarch.retry').call(5)") as w:
        place, _, rest = w.load().splitlines()[0].partition("script.lua:2: ")
    same(
        (":" in place, rest),
        (False, "retry.call: expected a function, found a number"),
        "a mistake with a module names the script's line, and no other",
    )


def files() -> None:
    """Scripts that cannot be read"""
    with Worker("/nowhere/x.lua") as w:
        same(w.load(), "cannot open the script /nowhere/x.lua: No such file or directory", "a script that is not there")
    with Worker("/tmp") as w:
        same(w.load(), "cannot read the script /tmp: Is a directory", "a directory")
    with Worker("/dev/zero") as w:
        same(w.load(), "the script /dev/zero is larger than 16 MB", "an endless file")
    with Worker(text="") as w:
        ok("returns nothing" in w.load(), "an empty file")
        w.send(QUIT)
        same(w.process.wait(30), 0, "after a failed load the worker waits to be told to leave")
    env = {
        "LUA_PATH": "/evil/?.lua",
        "LUA_CPATH": "/evil/?.so",
        "LUA_PATH_5_4": "/evil/?.lua",
        "LUA_INIT": "error('x')",
    }
    got = load("assert(not (package.path .. package.cpath):find 'evil') return { on_leading = print }", env=env)
    same(len(got), 1, "LUA_PATH and its like do not count")


def quitting() -> None:
    """Leaving"""
    with Worker(text="return { on_leading = print }") as w:
        w.load()
        w.wire.close()
        same(w.process.wait(30), 0, "when the elector is gone the worker leaves, with status 0")
    with Worker(text="io.write('no newline') return { on_leading = print }") as w:
        w.load()
        w.send(QUIT)
        same((w.process.wait(30), w.output()), (0, "no newline"), "what was written is flushed at the end")
    with Worker(text="return { on_leading = print }") as w:
        w.load()
        w.send(LOAD_FAILED)
        same(w.process.wait(30), 1, "a message that makes no sense ends the worker")
    with Worker(text="os.exit(3)") as w:
        same(w.receive()[1], {"code": 3}, "os.exit while loading asks for the end of the program")


run([a_table, smaller, bodies, mistakes, files, quitting])

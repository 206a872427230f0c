#!/usr/bin/env -S PYTHONPATH=. /usr/bin/python3
"""term:save and term:load between the script and the elector: what is asked for, what is answered, and when."""

import json
from typing import Any

from tests.lib.player import CLEANUP, END, REASONS, SAVE, STOPPED, Worker
from tests.lib.tap import ok, run, same

NOT, GOOD, REFUSED = range(3)


def leading(code: str, checkpoint: str = "", stopped: str = "", **kw: Any) -> Worker:
    w = Worker(
        text="return { on_stopped = function(term, reason) %s end, on_leading = function(term)\n%s\nend }"
        % (stopped, code),
        **kw
    )
    w.ready()
    w.lead(checkpoint=checkpoint)
    return w


def saved_and_loaded() -> None:
    """Saved and loaded"""
    with leading("print(term:load()) print(term:save { n = 7, list = { 1, 2 } }) print(term:load().n)") as w:
        got = w.expect(SAVE)
        same(
            (got["slot"], got["term"], json.loads(got["checkpoint"])),
            (0, 1, {"data": {"n": 7, "list": [1, 2]}}),
            "save sends the table as JSON",
        )
        same(w.printed(), ["nil"], "and waits; there was nothing to load")
        w.saved(got["save"])
        w.wait_print("7")
        same(w.printed(), ["nil", "true", "7"], "until it is known to be in the record; then load has it")
    with leading(
        "local c = term:load() print(c.big, c.float, c.none == json.null, math.type(c.float)) c.more = 1 "
        "print(term:save(c))",
        checkpoint='{"data":{"big":9007199254740993,"float":1.0,"none":null},"cron":{"x":1},"later":[1]}',
    ) as w:
        got = json.loads(w.expect(SAVE)["checkpoint"])
        same(
            got,
            {"data": {"big": 9007199254740993, "float": 1.0, "none": None, "more": 1}, "cron": {"x": 1}, "later": [1]},
            "what a former leader saved is loaded as it was, and what else is kept there stays",
        )
        w.wait_print("9007199254740993\t1.0\ttrue\tfloat")
    with leading(
        "local a, b = spawn(function() return term:save { n = 1 } end), spawn(function() sleep(0.01) return term:save "
        "{ n = 2 } end)"
        "\nlocal c = spawn(function() sleep(0.02) return term:save { n = 3 } end)"
        "\nsleep(0.05) print(term:load()) print(a:wait()) print(term:load().n) print(b:wait()) print(c:wait()) "
        "print(term:load().n)"
    ) as w:
        first = w.expect(SAVE)
        w.wait_print("nil")
        ok(w.quiet(), "one save at a time is on its way; until it is there, load has what was there before")
        w.saved(first["save"])
        second = w.expect(SAVE)
        w.wait_print("1")
        same(json.loads(second["checkpoint"])["data"], {"n": 3}, "later ones go together, the last of them")
        w.saved(second["save"])
        w.wait_print("3")
        same(w.printed(), ["nil", "true", "1", "true", "true", "3"], "and all are answered")


def not_saved() -> None:
    """Not saved"""
    with leading("print(term:save { n = 1 }) print(term:load())") as w:
        w.saved(w.expect(SAVE)["save"], NOT)
        w.wait_print("nil")
        ok(w.printed()[0].startswith("nil\tthe term is over"), "the elector says no: nil and an error", w.printed())
    with leading("print(term:save { n = 1 }) print('on')") as w:
        w.saved(w.expect(SAVE)["save"], REFUSED, "no room")
        w.wait_print("on")
        same(w.printed()[0], "nil\tterm:save: no room", "refused: with the reason")
    with leading("print(pcall(term.save, term, { n = 1 })) print('swallowed')") as w:
        w.expect(SAVE)
        w.stop("lost", interrupt=False)  # which could come before it waits, and then it would not go on to print
        w.expect(STOPPED)
        ok(
            w.printed() in ([], ["false\tterm ended", "swallowed"]),
            "the term ends first: the wait raises (and what catches that may be interrupted), it never says true",
            w.printed(),
        )
    with leading(
        "spawn(function() print(term:save({ n = 1 }, { timeout = 0.05 })) print(term:save { n = 2 }) end)"
    ) as w:
        first = w.expect(SAVE)
        w.wait_for(lambda: w.printed(), "the timeout")
        ok("not known to be in the record within 0.05" in w.printed()[0], "timeout: nil, not known", w.printed())
        ok(w.quiet(), "the next one waits for it")
        w.saved(first["save"] + 5)
        ok(w.quiet(), "an answer to what was not asked is nothing")
        w.saved(first["save"])
        w.saved(w.expect(SAVE)["save"])
        w.wait_print("true")
    with Worker(
        text="local kept return { { name = 'a', on_leading = function(term) kept = term print 'in' end },"
        " { name = 'b', on_leading = function() print(kept:load()) print(kept:save { n = 1 }) end } }"
    ) as w:
        w.ready(2)
        w.lead()
        w.wait_print("in")
        w.stop()
        w.expect(STOPPED)
        w.lead(slot=1)
        w.wait_for(lambda: len(w.printed()) == 3, "both")
        ok(
            all(p.startswith("nil\tthe term is over") for p in w.printed()[1:]) and w.quiet(),
            "after the term: nil and an error, and nothing is sent",
            w.printed(),
        )


def stopping() -> None:
    """While it stops"""
    with leading("print 'in' sleep(100)", '{"data":{"n":4}}', stopped="print(term:load().n, term:save { n = 5 })") as w:
        w.wait_print("in")
        w.stop("resigned", held=True)
        got = w.expect(SAVE)
        w.saved(got["save"])
        w.expect(STOPPED)
        same(w.printed(), ["in", "4\ttrue"], "on_stopped may load and save while the lease is held")
    with Worker(text="return { on_leading = print, on_stopped = function(term) print(term:load().n) end }") as w:
        w.ready()
        w.send(CLEANUP, 0, 5, 50, REASONS.index("worker"), 3000, '{"data":{"n":6}}')
        w.expect(STOPPED)
        same(w.printed(), ["6"], "and a replacement's on_stopped loads it too")


def refused() -> None:
    """Refused"""
    with leading(
        "for _, n in ipairs { 16000, 16373, 16374, 20000000 } do print(n, term:save { text = ('x'):rep(n) }) end"
    ) as w:
        w.saved(w.expect(SAVE)["save"])
        w.wait_for(lambda: w.printed(), "the first")
        while len(w.printed()) < 4 and not w.quiet(0.3):
            w.saved(w.expect(SAVE)["save"])
        w.wait_for(lambda: len(w.printed()) == 4, "all")
        ok(
            w.printed()[0] == "16000\ttrue" and "at most 16384" in w.printed()[3],
            "16 KB fit, more is an error that says so",
            w.printed(),
        )
    for code, part in [
        ("term:save 'x'", "script.lua:3: term:save: expected a table, found a string"),
        ("term:save()", "script.lua:3: term:save: expected a table, found nil"),
        ("term:save { f = print }", "script.lua:3: term:save: json.encode: JSON has no function, at value.f"),
        ("term:save({}, { timout = 1 })", "script.lua:3: term:save: unknown option 'timout' (did you mean 'timeout'?)"),
        ("term:save({}, 5)", "script.lua:3: term:save: the options are a table"),
        ("local t = {} t.t = t term:save(t)", "script.lua:3: term:save: json.encode:"),
        ("table.sort({ 1, 2 }, function() term:save {} end)", "cannot wait here"),
        ("term.load {}", "expected, got table"),
    ]:
        with leading("\n" + code) as w:
            got = w.expect(END)["text"]
            ok(part in got, "misuse: " + code, got)
    for checkpoint in ("[1,2]", "5", "nonsense"):
        with leading("print(term:load()) print(term:save { n = 1 })", checkpoint=checkpoint) as w:
            w.wait_for(lambda: len(w.printed()) == 2, "both")
            ok(
                all("was not written by this program" in p for p in w.printed()) and w.quiet(),
                "a checkpoint of some other program (%s) is neither loaded nor overwritten" % checkpoint,
                w.printed(),
            )


run([saved_and_loaded, not_saved, stopping, refused])

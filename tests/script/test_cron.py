#!/usr/bin/env -S PYTHONPATH=. /usr/bin/python3
"""term:cron: what is marked in the checkpoint and when, what is caught up, what is refused; then real failovers."""

import json
import os
import signal
import time
from typing import Any

from tests.lib.candidates import WATCHED, Candidate, stop_everyone
from tests.lib.player import END, SAVE, STOPPED, Worker
from tests.lib.processes import scratch, wait_for
from tests.lib.tap import ok, run, same

MINUTE = 60


def leading(code: str, last: dict[str, int] | None = None, **kw: Any) -> Worker:
    w = Worker(text="return { on_leading = function(term)\n%s\nend }" % code, **kw)
    w.ready()
    w.lead(checkpoint=json.dumps({"cron": last, "data": {"mine": 1}}) if last else "")
    return w


def saves(w: Worker, good: int = 1) -> dict[str, dict[str, int]]:
    got = w.expect(SAVE)
    w.saved(got["save"], good)
    return json.loads(got["checkpoint"])


def begins() -> None:
    """Begins"""
    with leading("term:cron('* * * * *', function(tick) print(tick.time) end)") as w:
        before = int(time.time())
        got = saves(w)
        ok(before - 1 <= got["cron"]["* * * * *"] <= time.time() + 1, "a job that no leader has seen begins now", got)
        minute = (got["cron"]["* * * * *"] // MINUTE + 1) * MINUTE
        kind, fields = w.receive(120)
        late = time.time() - minute
        same(json.loads(fields["checkpoint"])["cron"], {"* * * * *": minute}, "when its minute comes, that is marked")
        ok(0 <= late < 30, "not before it")
        print("# %.0f ms late" % (late * 1000))
        ok(not w.printed(), "and the job does not run before the mark is in the record")
        w.saved(fields["save"])
        w.wait_print(str(minute))
        ok(True, "then it does")


def half_an_hour_from(now: int) -> tuple[str, int]:
    """A job of each hour, and when it was due last: neither comes while a test runs."""
    minute = now // MINUTE - 30
    return "%d * * * *" % (minute % 60), minute * MINUTE


def caught_up() -> None:
    """Caught up"""
    now = int(time.time())
    expr, due = half_an_hour_from(now)
    with leading(
        "term:cron('%s', function(tick) print(tick.time, tick.caught_up, tick.late >= 0) end, { zone = 'UTC', "
        "catch_up = 'all', name = 'h' })" % expr,
        {"h": due - 3 * 3600},
    ) as w:
        marks = [saves(w)["cron"]["h"] for _ in range(3)]
        same(marks, [due - 7200, due - 3600, due], "all: each that was missed, in order")
        w.wait_for(lambda: len(w.printed()) == 3, "the runs")
        same(w.printed()[0], "%d\ttrue\ttrue" % (due - 7200), "and the job is told which, and that it is late")
    with leading(
        "term:cron('%s', function(tick) print(tick.time) end, { zone = 'UTC' })" % expr, {expr: due - 100 * 3600}
    ) as w:
        got = saves(w)
        same(
            got,
            {"cron": {expr: due}, "data": {"mine": 1}},
            "last (the default): once, for the last one; what the script saved stays",
        )
        w.wait_print(str(due))
        ok(w.quiet(), "and no more")
    with leading(
        "term:cron('%s', print, { zone = 'UTC', catch_up = 'skip' }) print 'on'" % expr, {expr: due - 100 * 3600}
    ) as w:
        w.wait_print("on")
        ok(w.quiet(), "skip: nothing")
    with leading("term:cron('%s', print, { zone = 'UTC', again = true, name = 'a' })" % expr, {"a": due - 3600}) as w:
        w.wait_for(lambda: w.printed(), "the run")
        same(saves(w)["cron"]["a"], due, "again: marked when it has come to its end")
    with leading(
        "term:cron('%s', function() error 'broken' end, { zone = 'UTC', again = true, name = 'a' })" % expr,
        {"a": due - 3600},
    ) as w:
        ok("broken" in w.expect(END)["text"] and w.quiet(), "and not marked if it fails")


def clock_behind() -> None:
    """A clock behind the mark"""
    now = int(time.time())

    def said(w: Worker) -> list[str]:
        return [e["message"] for e in w.log() if e["event"] == "cron_future" and e["level"] == "warn"]

    for ahead in (2 * 86400, 2 * 3600):
        mark = (now + ahead) // 3600 * 3600
        code = (
            "for _, how in ipairs { 'all', 'last', 'skip' } do term:cron('@hourly', print, { zone = 'UTC', name = "
            "how, catch_up = how }) end print 'on'"
        )
        with leading(code, {"all": mark, "last": mark, "skip": mark}) as w:
            w.wait_for(lambda: len(said(w)) >= 3, "the warnings")
            ok(
                w.quiet(0.5) and w.printed() == ["on"],
                "%d h ahead: nothing is marked, and nothing runs, however it catches up" % (ahead // 3600),
                w.printed(),
            )
            stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(mark))
            ok(
                len(said(w)) == 3
                and all(stamp in m and "this machine's clock says 20" in m for m in said(w))
                and '"last"' in "".join(said(w)),
                "each job says so once, with both times",
                said(w),
            )
    with leading("term:cron('* * * * *', print, { zone = 'UTC', name = 'a' }) print 'on'", {"a": now + 15}) as w:
        w.wait_print("on")
        ok(w.quiet() and not said(w), "clocks of two machines that differ by seconds are not worth a word")
    for last in (2**62, -(2**62)):
        with leading(
            "term:cron('@yearly', print, { zone = 'UTC', name = 'a', catch_up = 'skip' }) print 'on'", {"a": last}
        ) as w:
            w.wait_print("on")
            ok(w.quiet(), "a mark that is no time (%d) does not end the term" % last)


def side_by_side() -> None:
    """Side by side"""
    now = int(time.time())
    expr, due = half_an_hour_from(now)
    last = {"a": due - 3600, "b": due - 3600, "old": now - 500 * 86400, "young": now - 86400}
    with leading(
        "for _, n in ipairs { 'a', 'b' } do term:cron('%s', function() print(n) end, { zone = 'UTC', name = n }) end"
        % expr,
        last,
    ) as w:
        first = w.expect(SAVE)
        w.saved(first["save"])
        second = w.expect(SAVE)
        same(
            json.loads(second["checkpoint"])["cron"],
            {"a": due, "b": due, "young": now - 86400},
            "two jobs at once: neither mark undoes the other, and what nobody has used for a year is forgotten",
        )
        w.saved(second["save"])
        w.wait_for(lambda: sorted(w.printed()) == ["a", "b"], "both")
    code = (
        "local n = 0 term:cron('%s', function(tick) n = n + 1 print('in', n) sleep(0.3) print('out', n) n = n - 1 end, "
        "{ zone = 'UTC', name = 'x', catch_up = 'all', overlap = %s })"
    )
    for overlap in (False, True):
        with leading(code % (expr, str(overlap).lower()), {"x": due - 3 * 3600}) as w:
            for _ in range(3):
                saves(w)
            w.wait_for(lambda: len(w.printed()) == 6, "three runs")
            most = max(int(p.split("\t")[1]) for p in w.printed())
            same(most, 3 if overlap else 1, "with overlap, three at a time" if overlap else "no job overlaps itself")
    with leading("term:cron('%s', print, { zone = 'UTC', name = 'x' }) sleep(100)" % expr, {"x": due - 3600}) as w:
        w.expect(SAVE)
        w.stop("shutdown", held=True)
        got = w.expect(SAVE)
        same(
            json.loads(got["checkpoint"])["cron"],
            {"x": due - 3600},
            "a term that ends before the mark is known takes it back",
        )
        w.expect(STOPPED)
        ok(not w.printed(), "since the job has not run")
    with leading(
        "local task = term:cron('0 * * * *', print, { name = 'x' }) task:cancel() sleep(0) sleep(0) term:cron('1 * * "
        "* *', print, { name = 'x' }) print 'on'"
    ) as w:
        w.wait_print("on")
        ok(True, "a job that was cancelled makes room for another of its name")


def misuse() -> None:
    """Misuse"""
    for code, part in [
        (
            "term:cron('61 * * * *', print)",
            'script.lua:2: term:cron: "61 * * * *": minute: expected 0 to 59, found "61"',
        ),
        (
            "term:cron('0 0 31 2 *', print)",
            'script.lua:2: term:cron: "0 0 31 2 *": no month that is meant has that day',
        ),
        ("term:cron(5, print)", "script.lua:2: term:cron: expected a cron expression"),
        ("term:cron('* * * * *')", "script.lua:2: term:cron: expected a function"),
        (
            "term:cron('* * * * *', print, { catchup = 'all' })",
            "script.lua:2: term:cron: unknown option 'catchup' (did you mean 'catch_up'?)",
        ),
        (
            "term:cron('* * * * *', print, { catch_up = 'never' })",
            'expected "all", "last", "skip", or a number of seconds',
        ),
        (
            "term:cron('* * * * *', print, { zone = 'Europe/Berln' })",
            'script.lua:2: term:cron: there is no time zone "Europe/Berln"',
        ),
        ("term:cron('* * * * *', print, { zone = '../passwd' })", "expected the name of a time zone"),
        ("term:cron('* * * * *', print, { name = '' })", "1 to 100 bytes"),
        ("term:cron('* * * * *', print, { again = true, overlap = true })", "exclude each other"),
        (
            "for i = 1, 2 do term:cron('* * * * *', print) end",
            'script.lua:2: term:cron: there is a job "* * * * *" already',
        ),
        (
            "term:every(1, print, { jitter = 2 })",
            "script.lua:2: every: option 'jitter': expected less than the 1 seconds",
        ),
    ]:
        with leading(code) as w:
            kind, fields = w.receive()
            while kind == SAVE:
                kind, fields = w.receive()
            ok(kind == END and part in fields["text"], code, fields)


def every() -> None:
    """every"""
    code = """local began, n, sum = time.monotonic(), 0, 0
every(0.02, function() n = n + 1 sleep(0.005) if n == 50 then print('drift', (time.monotonic() - began) // 0.02) end\
 end, { jitter = 0.01 })
local now, most = 0, 0
local task = every(0.01, function() now = now + 1 most = math.max(most, now) sleep(0.1) now = now - 1 end, { overlap =\
 true, now = true })
sleep(0.5) task:cancel() print('most', most > 1)"""
    with leading(code) as w:
        w.wait_for(lambda: [p for p in w.printed() if p.startswith("drift")], "fifty calls")
        n = float([p for p in w.printed() if p.startswith("drift")][0].split("\t")[1])
        ok(n >= 50, "every with jitter: never early, steps do not drift", n)
        w.wait_print("most\ttrue")
        ok(True, "with overlap a call does not wait for the one before it")


def failovers() -> None:
    """Real failovers: sixty hours to catch up, three leaders, two of them killed"""
    directory = scratch()
    lock, script = os.path.join(directory, "lock"), os.path.join(directory, "script.lua")
    with open(script, "w") as f:
        f.write(
            "return { on_leading = function(term) term:cron('0 * * * *', function(tick) print('ran ' .. tick.time) "
            "sleep(0.05) end, "
            "{ zone = 'UTC', catch_up = 'all', name = 'job' }) end }"
        )

    def join(name: str) -> Any:
        return Candidate("--lock", lock, "--identity", name, script, options=WATCHED, cwd=directory)

    a = join("a")
    wait_for(lambda: os.path.exists(lock) and "job" in open(lock).read())
    a.kill(signal.SIGTERM)
    a.leave()
    with open(lock) as f:
        record = json.load(f)
    hour = int(time.time()) // 3600 * 3600
    record["checkpoint"]["cron"]["job"] = hour - 60 * 3600
    with open(lock + ".new", "w") as f:
        json.dump(record, f)
    os.rename(lock + ".new", lock)
    try:
        everyone = [join("b"), join("c"), join("d")]

        def ran() -> list[tuple[int, float]]:
            return [(int(e["message"].split()[1]), e["seen"]) for c in everyone for e in c.said("ran ")]

        for count, who in ((10, "elector"), (25, "worker")):
            wait_for(lambda: len(ran()) >= count)
            with open(lock) as f:
                pid = json.load(f)["pid"]
            leader = [c for c in everyone if c.pid == pid][0]
            leader.kill(signal.SIGKILL, leader.pid if who == "elector" else leader.worker())
        wait_for(lambda: ran() and max(r[0] for r in ran()) >= hour)
        times = [r[0] for r in ran()]
        same(len(times), len(set(times)), "no hour ran twice")
        missing = set(range(hour - 59 * 3600, hour + 1, 3600)) - set(times)
        ok(
            len(missing) <= 2,
            "and none was lost but what was being taken when its leader was killed (%d)" % len(missing),
            sorted(missing),
        )
        ok(len([c for c in everyone if c.said("ran ")]) >= 2, "by several leaders, one after the other")
    finally:
        stop_everyone()


run([begins, caught_up, clock_behind, side_by_side, misuse, every, failovers])

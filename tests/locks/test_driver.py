#!/usr/bin/env -S PYTHONPATH=. python3
"""The process of a lock file: what it makes of one that is wrong, answers nonsense, blocks, crashes or takes too much.

Not what a lock does (lock_cases.py). First the process alone, to which the test is the elector; then with one."""

import json
import os
import re
import signal
import sys
import time
from typing import Any

from tests.lib.driver_player import ADVICE, BEGINS, DURABLE, OWN, RECORD_MAX, USAGE, Driver
from tests.lib.lock_driver import Driver as Lock, record, tried
from tests.lib.candidates import Candidate, timing
from tests.lib.processes import LUNARCH, PATIENCE, alive, children, parent, wait_for
from tests.lib.stores import Box, lock_files
from tests.lib.tap import at_once, done, note, ok, same, skip

OPEN = "open = function(place) return place end,"
READ = "read = function() return 'absent' end,"
WRITE = "write = function() return 'ok', 'v1' end,"


def file(**functions: str) -> str:
    """A lock file with these functions, and what each needs."""
    parts = {"open": OPEN, "read": READ, "write": WRITE}
    parts.update({name: f"{name} = {text}," for name, text in functions.items()})
    return "return {\n" + "\n".join(parts.values()) + "\n}\n"


def opened(text: str, **more: Any) -> Any:
    d = Driver(text, **more)
    o = d.open()
    if not o["ok"]:
        raise AssertionError(o["text"])
    return d


def refused(text: str | None, what: str, *said: str, code: int = USAGE, prepare: Any = None, **place: Any) -> None:
    """It is not opened, the error has all of these words, and the process ends by itself."""
    with Driver(text) as d:
        if prepare:
            prepare(d)
        o = d.open(**place)
        good = ok(
            not o["ok"] and (o["code"] == USAGE) == (code == USAGE) and all(s in o["text"] for s in said),
            f"wrong: {what}: is told",
        )
        if not good:
            note(o)
        same(d.process.wait(60), 0, f"wrong: {what}: and the process ends")


def wrong() -> None:
    refused("return {\n\tread = = 1 }", "a syntax error", "lock.lua:2:", "unexpected symbol")
    refused("local x = nil\nx.y = 1", "an error while it loads", "lock.lua:2:", "attempt to index")
    refused(None, "no such file", "cannot open", "No such file", code=0 + USAGE)
    refused("return 1", "no table", "return { ... }")
    refused("return { open = print, read = print }", "no write", "'write'", "each lock file needs it")
    refused(file(wrote="print"), "an unknown key", "'wrote'", "did you mean 'write'?")
    refused(
        file().replace("return {", "return { options = { region = 'text' },"),
        "an unknown option",
        "'regoin'",
        "did you mean 'region'?",
        options={"regoin": "x"},
    )
    refused(
        file().replace("return {", "return { options = { tries = 'count' },"),
        "a wrong option",
        "'tries'",
        "a whole number",
        options={"tries": "many"},
    )
    refused(file().replace("return {", "return { scheme = 'that',"), "another scheme", "not for this://", scheme="this")
    refused(file().replace("return {", "return { scheme = 'this', key = 'fragment',"), "no key", "'#'", scheme="this")
    refused(file().replace("return {", "return { scheme = 'this',"), "a key too many", "'#'", scheme="this", path="x")
    refused(file(open="function() error('no bucket', 0) end"), "an open that raises", "no bucket")
    refused(file(open="function(p) return p.x.y end"), "an open with a mistake", "lock.lua:", "attempt to index")
    refused(file(open="function() end"), "an open that returns nothing", "open: expected a store")
    refused(file(open="function() return nil, 'not now' end"), "an open that fails", "not now", code=0)
    refused(
        "undefinedd = 1\nreturn " + file()[7:].replace(OPEN, "open = function() return oepn end,"),
        "an undefined global",
        "undefined global 'oepn'",
    )


def guarded() -> None:
    """A file that somebody else may write is not run."""

    def mode(bits: int) -> Any:
        return lambda d: os.chmod(d.path, bits)

    refused(file(), "writable by everybody", "mode 0666", "everybody", "chmod go-w", prepare=mode(0o666))
    refused(file(), "writable by its group", "mode 0664", "its group", "chmod go-w", prepare=mode(0o664))

    def fifo(d: Driver) -> None:
        os.unlink(d.path)
        os.mkfifo(d.path)

    refused(file(), "a FIFO", "no regular file", prepare=fifo)
    if os.geteuid() != 0:
        skip("wrong: of another user", "giving a file away needs root")
        return
    refused(
        file(),
        "of another user",
        "belongs to",
        "expected root",
        "chown root",
        prepare=lambda d: os.chown(d.path, 12345, 0),
    )


def normalised() -> None:
    """What the functions return, and what the elector gets."""
    text = file(
        read="function(s, key) return table.unpack(load('return {n = 10, ' .. key .. '}')(), 1, 10) end",
        write="function(s, key) return table.unpack(load('return {n = 10, ' .. key .. '}')(), 1, 10) end",
        remove="function(s, key) return table.unpack(load('return {n = 10, ' .. key .. '}')(), 1, 10) end",
        list="function(s, key) return table.unpack(load('return {n = 10, ' .. key .. '}')(), 1, 10) end",
    )
    reads = [
        ("'ok', 'text', 'v'", "ok"),
        ("'ok', 'text', 'v', 'doubt'", "ok"),
        ("'ok', 'text', ('v'):rep(63)", "ok"),
        ("'ok', 'text', ('v'):rep(64)", "failed"),
        ("'ok', 'text', ''", "failed"),
        ("'ok', 'text', 'a\\0b'", "failed"),
        ("'ok', 'text', 5", "failed"),
        ("'ok', 'text'", "failed"),
        ("'ok', {}, 'v'", "failed"),
        ("'ok', ('x'):rep(1 << 18), 'v'", "ok"),
        ("'ok', ('x'):rep((1 << 18) + 1), 'v'", "foreign"),
        ("'absent'", "absent"),
        ("'absent', 'v'", "absent"),
        ("'absent', 5", "failed"),
        ("'failed', 'why'", "failed"),
        ("'refused', 'why'", "refused"),
        ("'foreign', 'why'", "foreign"),
        ("nil, 'why'", "failed"),
        ("nil", "failed"),
        ("'conflict'", "failed"),
        ("true", "failed"),
        ("{}", "failed"),
    ]
    writes = [
        ("'ok', 'v'", "ok"),
        ("'ok', 'v', 'doubt'", "ok"),
        ("'ok'", "unknown"),
        ("'ok', ('v'):rep(64)", "unknown"),
        ("'ok', 'a\\0b'", "unknown"),
        ("'ok', 7", "unknown"),
        ("'ok', 'v', {}", "unknown"),
        ("'conflict'", "conflict"),
        ("'unknown', 'why'", "unknown"),
        ("'refused', 'why'", "refused"),
        ("'invalid', 'why'", "invalid"),
        ("'failed', 'why'", "failed"),
        ("'doubt', 'name'", "failed"),
        ("'doubt'", "unknown"),
        ("nil, 'why'", "unknown"),
        ("nil, { message = 'why', unsent = true }", "failed"),
        ("nil, { message = 'why', unsent = 1 }", "unknown"),
        ("nil", "unknown"),
        ("false", "unknown"),
        ("true", "unknown"),
        ("'absent'", "unknown"),
        ("'OK', 'v'", "unknown"),
    ]
    with opened(text) as d:
        for said, want in reads:
            same(d.read(said)["outcome"], want, f"normalised: read returns {said}: {want}")
        for said, want in writes:
            same(d.write("{}", key=said)["outcome"], want, f"normalised: write returns {said}: {want}")
        for said, want in (("'absent'", "absent"), ("'ok'", "ok"), ("nil", "unknown"), ("'conflict'", "conflict")):
            same(d.answer(d.ask("REMOVE", said, "v"))["outcome"], want, f"normalised: remove returns {said}: {want}")
        a = d.read("'ok', 'a\\0\\xff', 'v', 'd'")
        same((a["bytes"], a["version"], a["doubt"]), (b"a\0\xff", "v", "d"), "normalised: a text comes as it is")
        a = d.write("{}", key="'doubt', 'd1'")
        same((a["outcome"], a["doubt"]), ("failed", "d1"), "normalised: a doubt has its name")
        a = d.read("nil, { message = 'slow', code = 'timeout' }")
        same((a["text"], a["code"]), ("slow", 7), "normalised: an error of the library keeps text and code")
        a = d.read("nil")
        ok("lock.lua: read: expected" in a["text"] and "found nothing" in a["text"], "normalised: and is told", a)
        ok(any("found nothing" in line for line in d.log("lock_driver_error")), "normalised: as is the file's author")
        a = d.answer(d.ask("LIST", "'ok', { 'a', 'b' }"))
        same(
            (a["outcome"], json.loads(a["bytes"])),
            ("ok", {"names": ["a", "b"], "more": False}),
            "normalised: a listing",
        )
        a = d.answer(d.ask("LIST", "'ok', {}, true"))
        ok(b"[]" in a["bytes"] and b"true" in a["bytes"], "normalised: an empty one, with more behind it", a)
        a = d.answer(
            d.ask(
                "LIST",
                "'ok', (function() local t = {} for i = 1, 1000 do t[i] = ('k'):rep(1500) .. i end return t end)()",
            )
        )
        ok(
            a["outcome"] == "ok" and len(a["bytes"]) <= RECORD_MAX and b'"more":true' in a["bytes"],
            "normalised: of one that is too long for a message, a part",
            len(a["bytes"]),
        )
        same(d.answer(d.ask("ABOUT"))["outcome"], "failed", "normalised: about, which the file lacks, has failed")
        same(d.end(), 0, "normalised: it ends with its socket")


def told() -> None:
    """What the functions are given."""
    text = file(
        open="function(place) return place end",
        read="function(place, key, op)"
        " return 'ok', json.encode({ place = place, key = key, timeout = op.timeout }), 'v' end",
        write="function(place, key, text, op) return 'refused', json.encode({ text = text, op = op }) end",
    ).replace("return {", "return { options = { wait = 'seconds', fast = 'boolean', n = 'count', t = 'text' },", 1)
    with Driver(text) as d:
        same(
            d.open(
                options={"wait": "1500ms", "fast": "true", "n": "3", "t": "x"},
                user="u",
                hosts=[{"name": "h", "port": 5}],
            )["can"],
            0,
            "told: it can nothing more",
        )
        got = json.loads(d.read("a\u00e4/#?", within=30)["bytes"])
        place = got["place"]
        same(place["options"], {"wait": 1.5, "fast": True, "n": 3, "t": "x"}, "told: options have their types")
        same(
            (place["user"], place["hosts"], place.get("password"), place["lock"]),
            ("u", [{"name": "h", "port": 5}], None, place["url"]),
            "told: the place",
        )
        same(got["key"], "a\u00e4/#?", "told: the key")
        ok(0 < got["timeout"] <= 30, "told: the seconds that are left", got)
        a = json.loads(d.write("{text}", expected="v0", flags=DURABLE | OWN, waited_out="d", floor=2**53 + 1)["text"])
        same(
            a,
            {
                "text": "{text}",
                "op": {
                    "timeout": a["op"]["timeout"],
                    "expected": "v0",
                    "durable": True,
                    "begins": False,
                    "advice": False,
                    "own": True,
                    "waited_out": "d",
                    "floor": 2**53 + 1,
                },
            },
            "told: of a write",
        )
        a = json.loads(d.write("{}", flags=BEGINS | ADVICE)["text"])["op"]
        same((a["durable"], a["begins"], a["advice"], a["own"]), (False, True, True, False), "told: the other flags")


def raising() -> None:
    """An error inside a write leaves it unknown, since it may have been applied; and its author reads where."""
    text = file(
        write="function(s, key)\n local done = true\n if key == 'table' then error({ message = 'odd' }) end\n"
        " if key == 'nil' then error() end\n return s.nothing.more end",
        read="function() error('no read') end",
    )
    with opened(text) as d:
        a = d.write()
        ok(
            a["outcome"] == "unknown" and "lock.lua:" in a["text"],
            "raising: a write is unknown, and the line is told",
            a,
        )
        a = d.read()
        ok(a["outcome"] == "failed" and "no read" in a["text"], "raising: a read has failed", a)
        same(d.write(key="table")["outcome"], "unknown", "raising: whatever is raised")
        same(d.write(key="nil")["outcome"], "unknown", "raising: even nothing")
        for _ in range(20):
            d.write()
        lines = [line for line in d.log("lock_driver_error") if "attempt to index" in line]
        same(len(lines), 1, "raising: an error is logged once a minute, however often it comes")
        ok(lines and "lock.lua:" in lines[0] and "traceback" in lines[0], "raising: with its line", lines)


def said() -> None:
    """What it prints goes to the log, and nothing to the command's standard output."""
    secret = "hush-hush-9"
    text = file(
        read="function(s) print('printed') lunarch.log.warn('logged') io.write('written\\n') io.stdout:flush()"
        " os.execute('echo executed') error('the password is ' .. s.password) end"
    )
    with Driver(text) as d:
        d.open(password=secret)
        a = d.read()
        same(d.output(), "", "said: nothing of a lock file goes to standard output")
        ok("printed" in d.log("print") and "logged" in d.log("script"), "said: print and log go to the log")
        ok("written" in d.log_text() and "executed" in d.log_text(), "said: the rest goes to standard error")
        ok(secret not in a["text"] and "***" in a["text"], "said: no error has the password in it", a)
        ok(secret not in d.log_text(), "said: nor has the log")
        with open(f"/proc/{d.process.pid}/cmdline", "rb") as f:
            title = f.read()
        ok(title.startswith(b"lunarch: lock lock\0") and secret.encode() not in title, "said: ps shows its name", title)


def cut(ask: Any) -> dict[str, Any]:
    """The answer to what ask(seconds) begins and its deadline ends. What reaches the driver when its deadline has
    passed, on a busy machine, is not begun and has failed: then once more, with twice the time."""
    within = 0.3
    while (a := ask(within))["outcome"] == "failed" and within < PATIENCE:
        within *= 2
    return a


def late() -> None:
    """An operation ends at its deadline, or when it is cancelled: a write unknown."""
    text = file(
        write="function(s, key) if key == 'calm' then pcall(sleep, 1000) return 'failed', 'says pcall' end"
        " sleep(1000) end",
        read="function(s, key) if key == 'now' then return 'absent' end sleep(1000) end",
    )
    with opened(text) as d:
        a = cut(lambda within: d.write(within=within))
        same((a["outcome"], a["code"]), ("unknown", 7), "late: a write ends at its deadline, unknown")
        same(d.read(within=0.3)["outcome"], "failed", "late: a read has failed")
        a = cut(lambda within: d.write(key="calm", within=within))
        same(a["outcome"], "unknown", "late: and what it says after that does not count")
        same(d.write(within=-1)["outcome"], "failed", "late: one whose deadline has passed is not begun")
        ids = [d.start_write(), d.ask("READ", "k"), d.start_write(key="calm")]
        same(d.read("now")["outcome"], "absent", "late: operations wait side by side")
        for i in ids:
            d.send("CANCEL", i)
        same(
            [d.answer(i)["outcome"] for i in ids], ["unknown", "failed", "unknown"], "late: cancelled ones are answered"
        )
        d.send("CANCEL", ids[0])
        d.send("CANCEL", 12345)
        ok(d.alive(), "late: once, and a cancel of no operation does nothing")
        same(d.log("lock_driver_error"), [], "late: none of that is a mistake of the file's")
    with Driver(file(open="function(place) sleep(0.3) return place end", write="function() return 'ok', 'v' end")) as d:
        first, soon = d.start_write(), d.start_write(within=0.05)
        d.open()
        same(d.answer(first)["outcome"], "ok", "late: what is asked before the store is open waits")
        same(d.answer(soon)["outcome"], "failed", "late: not beyond its deadline, and has not begun then")


def blocked() -> None:
    """One that blocks does not answer to a ping: so the elector knows."""
    with opened(file(read="function() os.execute('sleep 1') return 'absent' end")) as d:
        i = d.ask("READ", "k")
        wait_for(lambda: children(d.process.pid))
        d.send("PING", 7)
        ok(d.quiet(0.2), "blocked: while a lock file blocks, nothing answers")
        same(d.answer(i)["outcome"], "absent", "blocked: then it does")
        same(d.next("pong")["number"], 7, "blocked: and the ping is answered")
    with opened(file(read="function() sleep(1000) end")) as d:
        d.ask("READ", "k")
        ok(d.alive(), "blocked: who waits by the library's means blocks nobody")


def greedy() -> None:
    """Memory: what takes too much fails, and the process goes on."""
    text = file(
        write="function() local t = {} for i = 1, 1e9 do t[i] = ('x'):rep(1e6) .. i end return 'ok', 'v' end",
        read="function() return 'absent', nil end",
    )
    with opened(text) as d:
        a = d.write()
        ok(a["outcome"] == "unknown" and "not enough memory" in a["text"], "greedy: more than 64 MB: unknown", a)
        ok("lock.lua:" in a["text"], "greedy: with the line", a)
        same(d.read()["outcome"], "absent", "greedy: and it goes on")
        with open(f"/proc/{d.process.pid}/limits") as f:
            limits = {line[:26].strip(): line[26:].split()[0] for line in f}
        same(limits["Max core file size"], "0", "greedy: it leaves no core file")
        if "/asan/" not in LUNARCH:
            same(
                limits["Max address space"], str(1 << 30), "greedy: what is not Lua's has 1 GB of address space at most"
            )
        with open(f"/proc/{d.process.pid}/status") as f:
            peak = int(next(line.split()[1] for line in f if line.startswith("VmHWM:")))
        ok(peak < 700 * 1024, "greedy: it never had much more", peak)


def cut_off() -> None:
    """As doctor --full has it: the answer to the nth request of an operation is lost, or the request is sent again."""
    store = Box()
    text = file(
        write="""function(place)
            local said = {}
            for i = 1, 3 do
                local r, err = http.put(place.options.url, { body = "1", stream = i == 3 })
                said[i] = r and r.headers.etag .. (r.repeated and " again" or "")
                    or ("%s %s"):format(err.code, err.unsent)
            end
            return "failed", table.concat(said, ", ")
        end""",
        list="""function(place)
            local r, err = http.get(place.options.url, { retries = 1 })
            return "failed", r and "answered" or err
        end""",
    ).replace("return {", "return { options = { url = 'text' },")
    with Driver(text) as d:
        d.open(options={"url": f"http://127.0.0.1:{store.port}/k/x"})

        def said(*lose: int) -> Any:
            if lose:
                d.send("LOSE", d.ids + 1, *lose)
            return d.write()["text"]

        same(said(), '"1", "2", "3"', "cut off: three requests have three answers")
        same(said(1, 0), 'unreachable false, "5", "6"', "cut off: the first answer is lost, and the request was done")
        same(d.next("lost")["id"], d.ids, "cut off: and it is said")
        same(said(2, 1), '"7", "9" again, "10"', "cut off: the second request is sent again, and is said to be")
        same(said(3, 0), '"11", "12", unreachable false', "cut off: as is the answer of a stream")
        d.next("lost"), d.next("lost")
        same(said(4, 0), '"14", "15", "16"', "cut off: where there is no fourth one nothing is lost")
        same((d.quiet(), said()), (True, '"17", "18", "19"'), "cut off: nor of what is done after that")
        d.send("LOSE", d.ids + 1, 1, 0)
        same(d.answer(d.ask("LIST", ""))["text"], "answered", "cut off: who tries again has an answer")
        d.send("LOSE", d.ids + 1, 0, 0)
        same(d.process.wait(60), 1, "cut off: the answer to no request cannot be lost")
    store.end()


def unstopped() -> None:
    """What ends a script, or a whole service, does not end it; its elector's end does."""
    with opened(file(read="function() os.exit(3) end", write="function() lunarch.exit() end")) as d:
        a = d.read()
        ok(
            a["outcome"] == "failed" and "a lock file cannot end its process" in a["text"],
            "unstopped: os.exit is refused",
            a,
        )
        same(d.write()["outcome"], "unknown", "unstopped: as is lunarch.exit")
        for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
            d.process.send_signal(s)
        ok(d.alive(), "unstopped: nor do the signals that stop a service end it")
        same(os.getsid(d.process.pid), d.process.pid, "unstopped: it is in a session of its own")
        same(d.end(), 0, "unstopped: but the end of its socket does")
    with opened(file(read="function() error('x') end")) as d:
        d.wire.send(b"nonsense")
        same(d.process.wait(60), 1, "unstopped: a message that makes no sense ends it")
    for name, message in (("OPEN", ("{}",)), ("ANSWER", (1, 0, 0, "", "", ""))):
        with opened(file()) as d:
            d.send(name, *message)
            same(d.process.wait(60), 1, f"unstopped: as does {name} where it does not belong")


def watched() -> None:
    """Notices begin with the first call of changed, and begin again after an end."""
    text = file(
        watch="""function(s, key, changed)
            changed()
            if key == 'once' then return nil, 'enough' end
            if key == 'raises' then error('broken') end
            while true do sleep(0.05) changed() end
        end"""
    )
    with Driver(text) as d:
        d.send("WATCH", "k", 1)
        same(d.open()["can"], 1, "watched: the file can")
        w = d.next("watching")
        same((w["key"], w["yes"]), ("k", 1), "watched: its first call says that no change is missed from now on")
        same([d.next("changed")["key"] for _ in range(3)], ["k"] * 3, "watched: then each is a notice")
        d.send("WATCH", "k", 1)
        same(d.next("watching")["yes"], 1, "watched: who asks again is told again")
        d.send("WATCH", "k", 0)
        ok(d.alive(), "watched: it is unwatched")
        d.others.clear()
        ok(d.quiet(0.5), "watched: and then there are no notices")
        d.send("WATCH", "once", 1)
        seen = [d.next("watching") for _ in range(4)]
        same(
            [(w["yes"], w["why"]) for w in seen],
            [(1, ""), (0, "enough")] * 2,
            "watched: an end is told, and it begins again",
        )
        d.send("WATCH", "raises", 1)
        d.others.clear()
        while True:
            w = d.next("watching")
            if w["key"] == "raises" and not w["yes"]:
                break
        ok("broken" in w["why"] and d.log("lock_driver_error"), "watched: an error, too, and the author reads it", w)
        d.send("WATCH", "once", 0)
        d.send("WATCH", "raises", 0)
        same(d.end(), 0, "watched: and it ends in peace")
    with opened(file()) as d:
        d.send("WATCH", "k", 1)
        w = d.next("watching")
        ok(not w["yes"] and "watch" in w["why"], "watched: a file without the function has no notices", w)


# ---- with an elector ----


class Filed:
    """tests/locks/drivers/filed.lua, in a directory of its own."""

    def __init__(self) -> None:
        self.dir = lock_files()
        self.file, self.lua = os.path.join(self.dir, "record"), os.path.join(self.dir, "filed.lua")
        self.url = f"lua:{self.lua}?file={self.file}#k"

    def fault(self, code: str) -> None:
        with open(self.file + ".new-fault", "w") as f:
            f.write(code)
        os.rename(f.name, self.file + ".fault")

    def version(self) -> str:
        try:
            with open(self.file) as f:
                return f.readline().strip()
        except FileNotFoundError:
            return ""


def title(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as f:
            return f.read().rstrip(b"\0").decode(errors="replace")
    except OSError:
        return ""


def driver_of(pid: int) -> int | None:
    """Of the process that has this elector."""
    return next((p for p in children(pid) if title(p).startswith("lunarch: lock ") and alive(p)), None)


FAULTS = {
    "raises": "error('after all')",
    "returns nothing": "return {}",
    "returns nonsense": "return { 'sure' }",
    "returns too long a version": "return { 'ok', ('v'):rep(64) }",
    "loops for ever": "while true do end",
    "loops and catches": "while true do pcall(function() while true do end end) end",
    "waits for ever": "sleep(1e6)",
    "takes all memory": "local t = {} while true do t[#t + 1] = ('x'):rep(100000) .. #t end",
    "is killed": "os.execute('kill -KILL $PPID')",
    "crashes": "os.execute('kill -SEGV $PPID')",
    "ends its process": "os.exit(0)",
}


def broken() -> None:
    """Whatever a lock file does after it has written: the write is unknown, and the next operations work."""
    for what, code in FAULTS.items():
        store = Filed()
        d = Lock()
        d.open(store.url)
        w = d.write(record("a"), "")
        store.fault(code)
        rec = record("b")
        w = d.write(rec, w["version"], within=1500)
        if not same((w["outcome"], w["calls"]), ("unknown", 1), f"broken: a write that {what} is unknown"):
            note(w)
        r = tried(lambda: d.read(), "ok")
        same(r.get("record", {}).get("write"), rec["write"], f"broken: {what}: a look shows that it was applied")
        w = tried(lambda: d.write(record("c"), r["version"]), "ok")
        same(w["outcome"], "ok", f"broken: {what}: and the lock goes on working")
        same(d.end(), 0, f"broken: {what}: and ends in peace")


def stuck() -> None:
    """A lock file that blocks its process beyond a deadline: the operation ends in time, and the process is replaced,
    with what it has started."""
    store = Filed()
    d = Lock()
    d.open(store.url)
    w = d.write(record("a"), "")
    first = driver_of(d.process.pid)
    store.fault(f"os.execute('echo $$ >{store.file}.pid; exec sleep 1000')")
    w = d.write(record("b"), w["version"], within=1000)
    same(w["outcome"], "unknown", "stuck: a write that blocks is unknown at its deadline")
    ok(w["took_ms"] < 20_000, "stuck: and not much later", w)
    ok(wait_for(lambda: d.read(within=3000)["outcome"] == "ok"), "stuck: then another process serves the lock")
    ok(wait_for(lambda: driver_of(d.process.pid) not in (None, first)), "stuck: a new one, and the first has ended")
    with open(store.file + ".pid") as f:
        pid = int(f.read())
    ok(wait_for(lambda: not alive(pid)), "stuck: what it had started by os.execute has ended, too")
    same(d.end(), 0, "stuck: and all ends in peace")


def unfit() -> None:
    """What a lock file may not be is told to who uses the lock."""
    store = Filed()
    for what, url, prepare, said in (
        ("missing", f"lua:{store.dir}/none.lua#k", None, "none.lua"),
        ("writable by all", store.url, 0o666, "chmod go-w"),
        ("a wrong option", store.url.replace("?file", "?flie"), 0o644, "did you mean 'file'?"),
        ("no key", store.url.replace("#k", ""), 0o644, "key"),
    ):
        if prepare:
            os.chmod(store.lua, prepare)
        d = Lock()
        o = d.open(url)
        r = d.read(within=20_000) if o["ok"] else {"outcome": "refused", "err": {"text": o["err"]}}
        ok(r["outcome"] == "refused" and said in r["err"]["text"], f"unfit: {what}: is refused, and told", r)
        d.end()


def secret() -> None:
    """The password reaches the lock file, and nobody else."""
    store = Filed()
    hidden = "hush-hush-9"
    d = Lock({"LUNARCH_LOCK_PASSWORD": hidden})
    d.open(store.url)
    same(d.read()["outcome"], "absent", "secret: the lock file is given the password of the environment")
    pid = driver_of(d.process.pid)
    for what in "cmdline", "environ":
        with open(f"/proc/{pid}/{what}", "rb") as f:
            ok(hidden.encode() not in f.read(), f"secret: it is not in the driver's {what}")
    d.end()
    d = Lock({"LUNARCH_LOCK_PASSWORD": "another"})
    d.open(store.url)
    r = d.read()
    ok(r["outcome"] == "refused" and "a wrong password" in r["err"]["text"], "secret: and can refuse it", r)
    d.end()


def led() -> None:
    """A leader keeps its term while its driver is killed again and again; and leaves none behind."""
    store = Filed()
    c = Candidate(
        "--lock",
        store.url,
        "-e",
        "print('leads ' .. term.token) while true do sleep(1) end",
        options=timing("15s", retry="300ms"),
    )
    c.event("print", "leads")
    worker = next(p for p in children(c.pid) if "lunarch: lock" not in title(p))
    pids = set()
    for _ in range(8):
        before = store.version()
        wait_for(lambda: store.version() != before)  # a renewal: this driver has done something
        pid = wait_for(lambda: driver_of(c.pid)) or 0
        pids.add(pid)
        c.kill(pid=pid)
        wait_for(lambda: driver_of(c.pid) not in (None, pid))
    ok(len(pids) == 8, "led: a driver that was killed is replaced each time, at the next operation", pids)
    same(len(c.all("print", "leads")), 1, "led: and the term goes on")
    same(len(c.all("lock_driver_died")), 8, "led: each end is a line of the log")
    ok(all("signal 9" in e["message"] for e in c.all("lock_driver_died")), "led: which says how it ended")
    pid = wait_for(lambda: driver_of(c.pid)) or 0
    with open(f"/proc/{pid}/environ", "rb") as f:
        ok(not re.search(rb"LUNARCH_TERM=[0-9]", f.read()), "led: a driver belongs to no term")
    ok(pid not in children(worker) and parent(pid) == c.pid, "led: and is no part of any term's tree")
    c.kill()
    ok(wait_for(lambda: not alive(pid)), "led: it ends with its elector, however that ends")
    c.leave()


def noticed() -> None:
    """Who watches a record is told of what happens while its driver is dead, or hangs, and of what comes after that."""
    store = Box(named=False)
    d = Lock()
    d.open(store.url("w"))
    d.do("watch")
    d.write(record("a"), "")
    for how in signal.SIGKILL, signal.SIGSTOP:
        d.read()
        pid = wait_for(lambda: driver_of(d.process.pid)) or 0
        seen = d.count()
        os.kill(pid, how)
        store.put("w", json.dumps(record("b")).encode())
        ok(d.noticed(seen), f"noticed: what happens to a record whose driver has got {how.name}")
        ok(wait_for(lambda: d.read(within=3000)["outcome"] == "ok"), f"noticed: {how.name}: it is read again")
        wait_for(lambda: driver_of(d.process.pid) not in (None, pid))
        time.sleep(0.2)  # a notice of what was before may still come
        seen = d.count()
        store.put("w", json.dumps(record("c")).encode())
        ok(d.noticed(seen), f"noticed: {how.name}: as is what happens then")
    same(d.end(), 0, "noticed: and it ends in peace")
    store.end()


ALONE = [wrong, guarded, normalised, told, raising, said, late, blocked, greedy, cut_off, unstopped, watched]
TOGETHER = [broken, stuck, unfit, secret, led, noticed]
only = [globals()[n] for n in sys.argv[1:]]
if only:
    at_once(*only)
    done()
at_once(*ALONE, *TOGETHER)
done()

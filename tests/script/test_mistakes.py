#!/usr/bin/env -S PYTHONPATH=. python3
"""Scripts that make mistakes, HTTP servers that send nonsense, children that print without end, in a real election:
each is told, with file and line and what was expected; all the while the lease is renewed, and the checkpoint is
whole."""

import gzip
import json
import os
import shutil
import signal
import subprocess
import threading
import time
from socketserver import StreamRequestHandler, ThreadingTCPServer
from typing import Any

from tests.lib.candidates import Candidate, stop_everyone
from tests.lib.processes import LUNARCH, piped, scratch, wait_for
from tests.lib.tap import at_once, done, ok, same

TMP = scratch()
# Two gigabytes that nobody has: a machine's memory must not decide what is tested.
SCARCE = ["prlimit", "--as=1500000000"]
SCARCE_ASAN = {"ASAN_OPTIONS": "allocator_may_return_null=1:max_allocation_size_mb=1024"}
SANITIZED = "asan" in LUNARCH


# ---- a server that keeps no rule ----


class Server(ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, *_: object) -> None:
        pass  # clients leave when they have had enough


class Nonsense(StreamRequestHandler):
    def handle(self) -> None:
        path = self.rfile.readline().split()[1].decode()[1:]
        while self.rfile.readline().strip():
            pass
        getattr(self, "do_" + path.split("/")[0], self.plain)(path)

    def plain(self, path: str) -> None:
        self.wfile.write(PLAIN[path])

    def for_ever(self, begin: bytes, part: bytes, pause: float = 0.0) -> None:
        self.wfile.write(begin)
        while True:
            self.wfile.write(part)
            time.sleep(pause)

    def do_header(self, _: str) -> None:
        self.for_ever(b"HTTP/1.1 200 OK\r\nX-Endless: ", b"0123456789" * 100)

    def do_hints(self, _: str) -> None:
        self.for_ever(b"", b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n", 0.001)

    def do_slow(self, _: str) -> None:
        self.for_ever(b"HTTP/1.1 200 OK\r\nX-Slow: ", b"x", 0.02)

    def do_drip(self, _: str) -> None:
        self.for_ever(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", b"x", 0.02)

    def do_endless(self, _: str) -> None:
        self.for_ever(b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 65536)

    def do_line(self, _: str) -> None:
        self.for_ever(b"HTTP/1.1 200 OK\r\n\r\n", b"no line end " * 5000)


def answer(head: bytes, body: bytes = b"", status: str = "200 OK") -> bytes:
    return f"HTTP/1.1 {status}\r\n".encode() + head + b"\r\n\r\n" + body


PLAIN = {
    "good": answer(b"Content-Length: 5", b"hello"),
    "binary": bytes(range(256)) * 16,
    "long": answer(b"Content-Length: 5", b"hello and much more"),
    "negative": answer(b"Content-Length: -5", b"hello"),
    "vast": answer(b"Content-Length: 99999999999999999999999", b"hello"),
    "chunk": answer(b"Transfer-Encoding: chunked", b"no number\r\nhello\r\n0\r\n\r\n"),
    "chunks": answer(b"Transfer-Encoding: chunked", b"ffffffffffffffffffff\r\nhello\r\n0\r\n\r\n"),
    "cut": answer(b"Transfer-Encoding: chunked", b"100\r\nhello"),
    "zero": answer(b"X-Zero: a\0b\r\nContent-Length: 0"),
    "zip": answer(b"Content-Encoding: gzip\r\nContent-Length: 11", b"not zipped!"),
    "bomb": (lambda z: answer(b"Content-Encoding: gzip\r\nContent-Length: %d" % len(z), z))(
        gzip.compress(bytes(64 << 20))
    ),
    "nowhere": answer(b"Location: http://[::bad/\r\nContent-Length: 0", status="302 Found"),
}

# Beside those of unit/net/http/test_http.c: path, options, what the error's code may be
REQUESTS = [
    ("binary", "", "invalid"),
    ("negative", "", "invalid"),
    ("vast", "", "invalid"),
    ("chunk", "", "invalid unreachable"),
    ("chunks", "", "invalid unreachable"),
    ("cut", "", "invalid unreachable"),
    ("zero", "", "invalid"),
    ("zip", "", "invalid"),
    ("bomb", "", "full"),
    ("header", "", "invalid"),
    ("endless", "max_body = 1000", "full"),
    ("nowhere", "", "invalid"),
    ("hints", "timeout = 0.3", "timeout invalid"),
    ("slow", "timeout = 0.3", "timeout"),
    ("drip", "timeout = 0.3", "timeout"),
    ("drip", "silence = 0.005", "timeout"),
]

# ---- mistakes: one line of Lua each, and what its error says behind the line's number ----

MISTAKES = [
    ("sleep '1s'", 'sleep: expected a number of seconds, found the text "1s"'),
    ("term:resign('60s')", "term:resign: expected a number of seconds, found the text"),
    ("term:every('60s', print)", 'every: expected a number of seconds above 0, found the text "60s"'),
    (
        "term:every(60, print, { jitter = '5s' })",
        "option 'jitter': expected a number of seconds, 0 or more, found the text \"5s\"",
    ),
    (
        "exec { 'true', timeout = '5s' }",
        "exec: option 'timeout': expected a number of seconds, 0 or more, found the text \"5s\"",
    ),
    (
        "http.get(base, { timeout = '5s' })",
        "http: option 'timeout': expected a number of seconds, 0 or more, found the text \"5s\"",
    ),
    ("tasks.with_timeout('5s', print)", "tasks.with_timeout: expected a number of seconds, found 5s"),
    ("tasks.queue():take '5s'", "queue:take: expected a number of seconds, found 5s"),
    ("tasks.wait_all({}, { timeout = '5s' })", "option 'timeout': expected a number of seconds"),
    ("spawn(sleep, 0):wait '5s'", "task:wait: expected a number of seconds, found the text"),
    ("term:save({}, { timeout = '5s' })", "term:save: option 'timeout': expected a number of seconds"),
    ("exec { 'true', timout = 5 }", "exec: unknown option 'timout' (did you mean 'timeout'?)"),
    ("http.get(base, { retris = 5 })", "http: unknown option 'retris' (did you mean 'retries'?)"),
    ("http.get(base, { tls = { caa = 'x' } })", "http: tls: unknown option 'caa' (did you mean 'ca'?)"),
    (
        "term:cron('0 * * * *', print, { catchup = 'all' })",
        "term:cron: unknown option 'catchup' (did you mean 'catch_up'?)",
    ),
    ("term:cron('0 * * *', print)", "expected five fields"),
    ("term:every(1, print, { nwo = true })", "every: unknown option 'nwo' (did you mean 'now'?)"),
    ("exec { 'echo', {} }", "exec: argument 2: expected a text, found a table"),
    ("exec(5)", "exec: expected exec{"),
    ("http.get { url = base }", "http: option 'url': expected a text, found a table"),
    ("http.get('http://' .. ('x'):rep(2 << 20))", "http: the URL: expected a text of at most 1 MB"),
    ("term:save(5)", "term:save: expected a table, found a number"),
    ("term:save { f = print }", "json.encode: JSON has no function, at value.f"),
    ("term:save(setmetatable({}, { __pairs = error, __index = error })) error 'no harm'", "no harm"),
    ("tasks.wait_all { print, 5 }", "tasks.wait_all: expected functions or tasks, found a number at 2"),
    ("spawn(5)", "function expected, got number"),
    ("return term.tokn", "term has no 'tokn'"),
    ("term:evry(1, print)", "term has no 'evry': did you mean 'every'?"),
    ("log.wran('x')", "log has no 'wran': did you mean 'warn'?"),
    ("return time.mow()", "time has no 'mow': did you mean 'now'?"),
    ("http.gte('http://x')", "http has no 'gte': did you mean 'get'?"),
    ("tasks.wait_al {}", "tasks has no 'wait_al': did you mean 'wait_all'?"),
    ("lunarch.slep(1)", "lunarch has no 'slep': did you mean 'sleep'?"),
    ("return election.leadr()", "election has no 'leadr': did you mean 'leader'?"),
    ("spawn(print):canel()", "task has no 'canel': did you mean 'cancel'?"),
    ("tasks.queue():tkae()", "queue has no 'tkae': did you mean 'take'?"),
    ("require('lunarch.retry').cal()", "lunarch.retry has no 'cal': did you mean 'call'?"),
    ("exec({ 'true', background = true }):kil()", "child has no 'kil': did you mean 'kill'?"),
    ("return slep(1)", "undefined global 'slep' (did you mean 'sleep'?)"),
    ("new_global = 1", "assignment to the undeclared global 'new_global'"),
    ("log.info('%d rows', 5)", "log.info: the second argument is a table of fields, found a number"),
    ("table.sort({ 1, 2, 3 }, function() sleep(0) end)", "sleep cannot wait here: Lua cannot yield inside"),
    ("string.gsub('x', 'x', function() exec { 'true' } end)", "exec cannot wait here: Lua cannot yield inside"),
    (
        "tostring(setmetatable({}, { __tostring = function() http.get(base) end }))",
        "cannot wait here: Lua cannot yield inside",
    ),
    ("table.sort({ 1, 2, 3 }, function() term:save {} end)", "cannot wait here: Lua cannot yield inside"),
    (
        "coroutine.wrap(function() table.sort({ 1, 2 }, coroutine.yield) end)()",
        "coroutine.yield: Lua cannot yield inside",
    ),
    ("local function deep() return 1 + deep() end deep()", "stack overflow"),
    ("local t = {} for _ = 1, 100000 do t = { t } end json.encode(t)", "json.encode: nested too deeply"),
    ("assert(load('return ' .. ('('):rep(1000)))", "C stack overflow"),
    ("json.encode { big:rep(3), big }", "json.encode: more than 128 MB"),
    ("return ('x'):rep(1 << 31)", "resulting string too large"),
    ("return 1 < 'x'", "attempt to compare number with string"),
]

# What is no error of the script's, or not of one line: code, and what comes of it
OTHERS = [
    (
        "return setmetatable({}, { __index = function() sleep(0) return 'waited' end }).x",
        "waited",
    ),  # Lua can yield in these
    ("local function deep() return pcall(deep) end return tostring(deep())", "true"),
    (
        "local function deep() return (string.gsub('x', 'x', deep)) end return select(2, pcall(deep))",
        "C stack overflow",
    ),
    (
        "local function deep() return coroutine.wrap(deep)() end return select(2, pcall(deep)):sub(-20)",
        "C stack overflow",
    ),
    ("setmetatable({}, { __gc = function() error 'in a finalizer' end }) collectgarbage() return 'on'", "on"),
    ("setmetatable({}, { __gc = function() error {} end }) collectgarbage() return 'on'", "on"),
    ("setmetatable({}, { __gc = function() sleep(1) end }) collectgarbage() return 'on'", "on"),
    ("return type(select(2, pcall(error, { code = 7 })))", "table"),
    ("return select(2, json.decode(big:rep(3))).code", "full"),
    ("return select(2, json.decode(('['):rep(100000))).code", "invalid"),
    ("return select(2, term:save { big:sub(1, 20000) }).code", "full"),
    ("return http.get(base .. '/long').body", "hello"),
    ("return http.get(base .. '/good').body", "hello"),
    (
        "local r = http.get(base .. '/line', { stream = true }) local n = #r:lines()() r:close() return n >= 1 << 20",
        "true",
    ),
    ("local r, e = exec { 'yes', timeout = 0.3 } return e.code .. #e.result.stdout", "timeout1048576"),
    (
        "local r, e = exec('yes >&2', { timeout = 0.3, max_output = 1000 }) return e.code .. #e.result.stderr",
        "timeout1000",
    ),
    ("local r, e = exec { { 'yes' }, { 'cat' }, timeout = 0.3 } return e.code .. #e.result.stdout", "timeout1048576"),
    (
        "local r = exec { { 'cat', '/dev/zero' }, { 'head', '-c', '100000000' } } return r.truncated and #r.stdout",
        "1048576",
    ),
    ("local c <close> = exec { 'cat', '/dev/zero', background = true } return #c:lines()()", "1048576"),
    ("local c <close> = exec { 'yes', background = true } sleep(0.3) return tostring(c:running())", "true"),
    ("for _ = 1, 20 do print(big:sub(1, 1 << 20)) end return 'on'", "on"),
    ("collectgarbage() collectgarbage() return collectgarbage 'count' < 100000", "true"),
]

HEAD = """local base, big = ..., ("x"):rep(60 << 20)
local function text(value) return type(value) == "table" and value.code .. ": " .. value.message or tostring(value) end
return { on_leading = function(term)
  local done = term:load() or { stages = {} }
  local function stage(number, f)
    local good, value = pcall(f)
    io.write(json.encode { number = number, good = good, text = text(value):sub(1, 2000) }, "\\n")
    done.stages[#done.stages + 1] = number
    assert(term:save(done))
  end
"""


def caught(base: str) -> None:
    """Every kind, one after the other, in one term of one script that catches what is raised."""
    lines = [code for code, _ in MISTAKES]
    lines += [
        f"local r, err = http.get(base .. '/{path}', {{ {options} }}) assert(not r) return err"
        for path, options, _ in REQUESTS
    ]
    lines += [code for code, _ in OTHERS]
    path, lock = os.path.join(TMP, "caught.lua"), os.path.join(TMP, "caught")
    first = HEAD.count("\n") + 1
    with open(path, "w") as f:
        f.write(
            HEAD
            + "".join(f"  stage({i}, function() {line} end)\n" for i, line in enumerate(lines))
            + "  io.write 'end\\n'\nend }\n"
        )
    c = Candidate("--lock", lock, path, "--", base, stdout=subprocess.PIPE, options=["--log-level", "info"])
    renewals, over = set(), threading.Event()

    def watch() -> None:
        while not over.is_set():
            renewals.add(record(lock).get("renewTime"))
            time.sleep(0.05)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    results = []
    for line in piped(c.process.stdout):
        if line == "end\n":
            break
        results.append(json.loads(line))
    same([r["number"] for r in results], list(range(len(lines))), "mistakes: the script goes on to its end")
    at = iter(results)
    for i, (code, words) in enumerate(MISTAKES):
        r = next(at)
        good = not r["good"] and f"caught.lua:{first + i}: " in r["text"] and words in r["text"]
        ok(good, f"mistake: {code[:70]}: line {first + i}, and what was expected", r["text"])
    for path, options, codes in REQUESTS:
        r = next(at)
        good = r["good"] and r["text"].split(":")[0] in codes.split() and base in r["text"]
        ok(good, f"http: /{path} {options}: an error that names the URL", r["text"])
    for code, words in OTHERS:
        r = next(at)
        ok(r["good"] and words in r["text"], f"goes on: {code[:90]}", r["text"])
    ok(
        c.wait("script_warning", "caught.lua") and c.wait("script_warning", "in a finalizer"),
        "an error in __gc is told in the log, with its line",
    )
    seen = len(renewals)
    ok(wait_for(lambda: len(renewals) >= max(4, seen + 1)), "all the while, and after, the lease is renewed")
    over.set()
    watcher.join()
    if not ok(len(c.all("became_leader")) == 1 and not c.all("stopped_leading"), "it was one term"):
        c.log()
    same(
        json.loads(record(lock)["checkpoint"])
        if isinstance(record(lock)["checkpoint"], str)
        else record(lock)["checkpoint"],
        {"data": {"stages": list(range(len(lines)))}},
        "and the checkpoint has what was saved after each of them",
    )
    c.kill(signal.SIGTERM)
    same(c.leave(), 0, "it leaves in peace")
    piped(c.process.stdout).close()


def record(lock: str) -> dict[str, Any]:
    try:
        with open(lock) as f:
            return json.load(f)
    except (FileNotFoundError, ValueError):
        return {}


# ---- and what nobody catches ----

UNCAUGHT = {
    "a table": ("error({ code = 7 })", "(the error is a table, not a text: expected error"),
    "a table with a message": ("error({ code = 7, message = 'disk full' })", "disk full"),
    "nothing": ("error()", "(the error is a nil, not a text"),
    "an expected failure": ("assert(exec { '/nowhere' })", "cannot start /nowhere: No such file or directory"),
    "deep recursion": ("local function deep() return 1 + deep() end deep()", "stack overflow"),
    "deep recursion through C": (
        "local function deep() return string.gsub('x', 'x', deep) end deep()",
        "C stack overflow",
    ),
    "a task's error": ("spawn(function() sleep(0) error 'in a task' end) sleep(1000)", "in a task"),
    "a forgotten unit": ("term:every('60s', print)", "every: expected a number of seconds"),
    "two gigabytes": ("local s = ('x'):rep((1 << 31) - 1) print(#s)", "not enough memory"),
    "more and more memory": ("local s = ('x'):rep(1 << 29) while true do s = s .. s end", "not enough memory"),
}

LATER = """return { on_leading = function(term)
  local before = term:load()
  if before then print("again " .. before.n) sleep(1000) end
  assert(term:save { n = 42 })
  MISTAKE
end }
"""


def uncaught(what: str) -> None:
    code, words = UNCAUGHT[what]
    name = what.replace(" ", "-")
    path = os.path.join(TMP, name + ".lua")
    with open(path, "w") as f:
        f.write(LATER.replace("MISTAKE", code))
    scarce = "memory" in words
    if scarce and SANITIZED:
        SCARCE.clear()
    c = Candidate(
        "--lock",
        os.path.join(TMP, name),
        path,
        prefix=SCARCE if scarce else (),
        env=SCARCE_ASAN if scarce else None,
        options=[],
    )
    said = c.wait("hook_failed", words)
    if not ok(said and f"{name}.lua:5: " in said["message"], f"uncaught: {what}: the log has the line"):
        c.log()
    ok(c.wait("stopped_leading", "error"), f"uncaught: {what}: the term ends")
    if not ok(c.wait("print", "again 42"), f"uncaught: {what}: the next term finds the checkpoint"):
        c.log()
    ok(not c.all("worker_gone"), f"uncaught: {what}: in the same process")
    c.kill(signal.SIGTERM)
    same(c.leave(), 0, f"uncaught: {what}: it leaves in peace")


server = Server(("127.0.0.1", 0), Nonsense)
threading.Thread(target=server.serve_forever, daemon=True).start()
at_once(lambda: caught(f"http://127.0.0.1:{server.server_address[1]}"))
names = list(UNCAUGHT)
for some in (names[:5], names[5:]):
    at_once(*[lambda what=what: uncaught(what) for what in some])
stop_everyone()
shutil.rmtree(TMP, ignore_errors=True)
done()

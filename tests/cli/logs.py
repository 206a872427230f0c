#!/usr/bin/env -S PYTHONPATH=. python3
"""The log: short on a terminal, structured as JSON, and as it was where a text goes into a file."""

import json
import os
import pty
import re
import subprocess
from typing import Any

from tests.lib.candidates import FAST
from tests.lib.processes import LUNARCH, scratch
from tests.lib.tap import ok, run, same

TMP = scratch()
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith("LUNARCH_")}


def on_terminal(*args: str) -> str:
    """What it writes to a terminal."""
    master, slave = pty.openpty()
    p = subprocess.Popen(
        [LUNARCH, *args], stdin=subprocess.DEVNULL, stdout=slave, stderr=slave, env={**CLEAN, "NO_COLOR": "1"}
    )
    os.close(slave)
    text = b""
    while True:
        try:
            part = os.read(master, 65536)
        except OSError:  # EIO: nobody has it open any more
            break
        if not part:
            break
        text += part
    os.close(master)
    p.wait(60)
    return text.decode().replace("\r\n", "\n")


def lines_of(*args: str) -> list[Any]:
    r = subprocess.run(
        [LUNARCH, *args], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, env=CLEAN
    )
    return [json.loads(line) for line in r.stderr.splitlines()]


def script(name: str, text: str) -> str:
    path = os.path.join(TMP, name)
    with open(path, "w") as f:
        f.write(text)
    return path


def test_exec() -> None:
    """exec says that it leads, and nothing more if all goes well"""
    lock = ["--lock", TMP + "/exec"]
    said = on_terminal("exec", *lock, "--", "echo", "worked")
    same(re.findall(r" (\w+): ", said), ["became_leader"], "exec on a terminal: one line besides the command's")
    ok("worked\n" in said, "and what the command writes", said)
    said = on_terminal("exec", "-v", *lock, "--", "true")
    ok("stopped_leading: done" in said and "no_leader" in said, "exec -v: more", said)
    said = on_terminal("exec", "--at-least", "1ms", *lock, "--", "true")
    ok("asked to shut down" not in said, "a command that ended was not asked to shut down", said)
    said = on_terminal("exec", "--log-format", "json", *lock, "--", "false")
    ok("shutdown" not in said, "nor one that failed", said)


def test_journal() -> None:
    """what the journal adds by itself is left out, where stderr is the journal's stream"""
    words = [LUNARCH, "run", "--once", "--lock", TMP + "/journal", *FAST, "-e", "log.warn 'two' error 'three'"]
    for whose in "this", "another's":
        r, w = os.pipe()
        st = os.fstat(w if whose == "this" else 0)
        env = {**CLEAN, "JOURNAL_STREAM": f"{st.st_dev}:{st.st_ino}"}
        with subprocess.Popen(words, stdin=subprocess.DEVNULL, stderr=w, env=env) as p:
            os.close(w)
            with open(r, encoding="utf-8") as f:
                said = f.read()
            p.wait(60)
        line = r"^<4>WARN  .*two$" if whose == "this" else r"^\d{4}-\d\d-\d\d [\d:.]+ WARN  .*two$"
        ok(re.search(line, said, re.M), f"JOURNAL_STREAM is {whose} stream: {line}", said)
        ok(whose != "this" or all(s[:3] in ("<6>", "<4>", "<3>") for s in said.splitlines()), "... in every line", said)


def test_short() -> None:
    """on a terminal lock, term and token are named where they change"""
    code = "print 'one' print 'two' error 'three'"
    said = on_terminal("run", "--once", "--lock", TMP + "/short", *FAST, "-e", code)
    same([said.count(w) for w in ("lock=", "term=", "token=")], [1, 1, 1], "on a terminal each is named once")
    ok(re.search(r"\n[\d:.]+ INFO  print: two\n", said), "and a line of the script is short", said)
    ok(
        re.search(r"hook_failed: .*three\n    stack traceback:\n    \s*\[C\]: in function 'error'\n", said),
        "a traceback has its lines",
        said,
    )
    two = script(
        "two.lua",
        """
        local led = 0
        local function work() led = led + 1 if led == 2 then lunarch.exit(0) end end
        return { { name = "a", on_leading = work }, { name = "b", on_leading = work } }
        """,
    )
    said = on_terminal("run", "--lock", TMP + "/{name}", *FAST, two)
    ok(
        re.search(r"lock=file:\S+/a term=\d+ token=\d+ became", said)
        and re.search(r"lock=file:\S+/b term=\d+ token=\d+ became", said),
        "of two elections each is named where the other had the line before",
        said,
    )


def test_file() -> None:
    """a text that goes elsewhere has all of it in each line"""
    r = subprocess.run(
        [LUNARCH, "run", "--once", "--lock", TMP + "/file", *FAST, "-e", "print 'one' error 'two'"],
        capture_output=True,
        text=True,
        timeout=60,
        env=CLEAN,
    )
    about = [line for line in r.stderr.splitlines() if re.search("lock=.* term=.* token=", line)]
    same(len(about), len(r.stderr.splitlines()), "each line of a file names lock, term and token")
    ok("\\nstack traceback:\\n" in r.stderr, "and a traceback is in one line", r.stderr)


CODE = r"""
log.info("disk", { free = 3, part = 0.5, nested = { a = 1, list = { 1, 2 } }, mounted = true, name = "/srv" })
log.warn("some text", { 7, f = print, far = math.huge, bytes = "a\xff" })
print "printed"
warn "@on"
log.error "no fields"
log.info("much", { text = ("x"):rep(6000) })
term:resign()
"""


def test_json() -> None:
    """the log as JSON"""
    name = script("named.lua", "return { name = 'nightly', on_leading = function(term) %s end }" % CODE)
    lock = TMP + "/json"
    lines = lines_of("run", "--once", "--log-format", "json", "--identity", "me", "--lock", lock, *FAST, name)
    by_event = {line["event"]: line for line in lines}
    same(
        by_event["disk"].get("fields"),
        {"free": 3, "part": 0.5, "nested": {"a": 1, "list": [1, 2]}, "mounted": True, "name": "/srv"},
        "fields are what they were: numbers, tables, truth",
    )
    ok("free=3" in by_event["disk"]["message"], "and the message has them as a text", by_event["disk"])
    texts = [line for line in lines if line["event"] == "script"]
    odd = texts[0].get("fields", {})
    same((odd.get("1"), odd.get("bytes")), (7, "a\ufffd"), "keys are texts, and so is what JSON cannot have")
    ok(odd.get("f", "").startswith("function") and odd.get("far") == "inf", "also functions and infinite numbers", odd)
    ok("fields" not in texts[1] and "fields" not in by_event["print"], "without fields there is no key for them")
    ok(
        "fields" not in by_event["much"] and by_event["much"]["message"].startswith("text=xxx"),
        "fields that fit into no line are in the text",
    )
    same(
        {(line.get("identity"), line.get("election")) for line in lines},
        {("me", "nightly")},
        "each line names identity and election",
    )
    lines = lines_of("exec", "--log-format", "json", "-v", "--lock", lock, "--", "true")
    same({line.get("election") for line in lines}, {"file:" + lock}, "an election of no name is called after its lock")
    same(len({line["identity"] for line in lines}), 1, "and the identity that nobody gave is named, too")
    loading = script(
        "loading.lua", "print 'loading' return { on_start = function() lunarch.exit(0) end, on_leading = print }"
    )
    lines = lines_of("run", "--log-format", "json", "--identity", "me", "--lock", lock, *FAST, loading)
    ok(
        lines and lines[0]["message"] == "loading" and lines[0]["identity"] == "me",
        "while the script loads, an identity that was given",
        lines,
    )


run([test_exec, test_journal, test_short, test_file, test_json])

#!/usr/bin/env -S PYTHONPATH=. python3
"""`lunarch test`: simulated nodes under every fault, the examples' own tests, and tests that fail as they should."""

import glob
import os
import re
import shutil
import subprocess
from typing import Any

from tests.lib.processes import LUNARCH, ROOT, scratch
from tests.lib.tap import done, note, ok, same

HERE = os.path.dirname(os.path.abspath(__file__))
room = scratch()


def run(*args: Any, **kw: Any) -> Any:
    p = subprocess.run(
        [LUNARCH, "test", *args], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600, **kw
    )
    return p.returncode, p.stdout, p.stderr


def relay(*files: str) -> None:
    status, out, err = run(*files)
    sentences = re.findall(r"^(not ok|ok) \d+ - (.*)$", out, re.M)
    for how, what in sentences:
        ok(how == "ok", what)
    ok(
        status == 0 and out.rstrip().endswith(f"1..{len(sentences)}"),
        f"{', '.join(os.path.basename(f) for f in files)}: status 0 and a plan that fits",
    )
    if status:
        note(out + err)


def write(name: str, text: str) -> Any:
    path = os.path.join(room, name)
    with open(path, "w") as f:
        f.write(text)
    return path


write(
    "worker.lua",
    """return {
  on_leading = function(term) term:every(10, function() exec { "work", timeout = 5 } end) end,
}
""",
)


def fails(body: str, pattern: str, what: str) -> None:
    status, out, err = run(write("some_test.lua", f"test('it holds', function()\n{body}\nend)\n"))
    if not ok(status == 1 and "not ok 1 - it holds" in out and re.search(pattern, out), what):
        note(out + err)


relay(os.path.join(HERE, "simulated", "faults_test.lua"))
relay(os.path.join(HERE, "simulated", "library_test.lua"))
relay(os.path.join(HERE, "simulated", "stops_test.lua"))
relay(os.path.join(HERE, "simulated", "slots_test.lua"))
relay(os.path.join(HERE, "simulated", "shards_test.lua"))
relay(os.path.join(HERE, "simulated", "names_test.lua"))
relay(os.path.join(HERE, "simulated", "successor_test.lua"))
os.environ["TMPDIR"] = room  # for the crontabs that it writes
relay(os.path.join(HERE, "simulated", "crontab_test.lua"))
relay(*sorted(glob.glob(os.path.join(ROOT, "examples", "*_test.lua"))))

# An example's test that passes whatever the script does would be none.
idle = os.path.join(room, "examples")
os.mkdir(idle)
for path in glob.glob(os.path.join(ROOT, "examples", "*_test.lua")):
    shutil.copy(path, idle)
    name = os.path.basename(path)
    with open(os.path.join(idle, name.replace("_test", "")), "w") as f:
        f.write("return { on_leading = function() end }\n")
    status, out, _ = run(os.path.join(idle, name))
    same((status, out.count("not ok") > 0), (1, True), f"{name} fails for a script that does nothing")

fails(
    "local sim = simulate { script = 'worker.lua' } sim:elect() sim:run(60) sim:errors()\nequal(#sim:calls(), 99)",
    r"some_test.lua:3: expected 99, found \d+",
    "a failed assertion names file, line, what was expected and what was found",
)
fails(
    "local sim = simulate { script = 'worker.lua' } sim:close() sim:run(1)",
    "this simulation is closed",
    "a simulation that was closed says so",
)
fails(
    "local sim = simulate { script = 'worker.lua' } sim:elect() sim:run(60)",
    r'a hook failed.*"work" has no stub',
    "a hook that fails fails the test, and a program without a stub is not run",
)
fails(
    "local sim = simulate { script = 'worker.lua', nodes = 2 } sim:stub('work', 7)",
    r"sim:stub: expected",
    "a stub that is none is refused",
)
fails(
    "local sim = simulate { script = 'worker.lua' } sim:stub('work', { exit = 1 }) sim:elect() sim:run(60)",
    r"unknown option 'exit'",
    "so is an unknown key in what it says",
)
write("raises.lua", "return { on_leading = function() end, may_lead = function() error('no disk') end }\n")
fails(
    "local sim = simulate { script = 'raises.lua' } sim:elect()",
    r"sim:elect: nobody leads within 3600 s; the last error was \w+ on \w+: .*raises.lua:1: no disk",
    "where nobody leads since a hook fails, the hook's error is named",
)
write("late.lua", "return { on_leading = function() end, on_stopped = function(term) term:spawn(print, 'late') end }\n")
fails(
    "local sim = simulate { script = 'late.lua' } sim:stop(sim:elect()) sim:run(5)",
    r"late.lua:1: term:spawn: the term is over",
    "term:spawn in on_stopped, which would end at once, is refused",
)
fails(
    "local sim = simulate { script = 'worker.lua' } sim:events { evnt = 'print' }",
    r"sim:events: unknown option 'evnt' \(did you mean 'event'\?\)",
    "a field that no event has is refused, since it would look like what has not happened",
)
fails(
    "local sim = simulate { script = 'worker.lua' } sim:printed('leads', 'z')",
    r"there is no node 'z'",
    "so is a node that there is not",
)
write("broken.lua", "return { on_laeding = function() end }\n")
fails(
    "simulate { script = 'broken.lua' }",
    r"broken.lua:1: unknown key 'on_laeding' \(did you mean 'on_leading'\?\)",
    "a script that cannot be loaded is said by file, line and key",
)
write("typo.lua", "return { on_leading = function() http.gte 'http://x' end }\n")
fails(
    "local sim = simulate { script = 'typo.lua' } sim:elect() sim:run(1)",
    r"typo.lua:1: http has no 'gte': did you mean 'get'\?",
    "a misspelled function is said by file and line, also where it is the first that is used",
)
write("shell.lua", "return { on_leading = function() os.execute 'touch was-here' end }\n")
fails(
    "local sim = simulate { script = 'shell.lua' } sim:elect() sim:run(1)",
    r"os.execute runs a real program",
    "os.execute runs nothing in a test",
)
ok(not os.path.exists("was-here"), "and leaves nothing behind")
fails("error({})", r"not ok 1", "an error that is a table is a failure like any other")
fails(
    "local sim = simulate { script = 'worker.lua' }\nsim:run_until(function() return false end, 60)",
    r"has not come true within 60 s",
    "what never comes true is said after the time that was given",
)

good = write("good_test.lua", "test('one', function() end)\ntest('two # hash', function() expect(true) end)\n")
status, out, err = run(good, good)
same(
    (status, out),
    (0, "ok 1 - one\nok 2 - two \\# hash\nok 3 - one\nok 4 - two \\# hash\n1..4\n"),
    "several files make one TAP document",
)
status, out, err = run(write("empty_test.lua", "local x = 1\n"))
ok(status == 1 and "has no test" in err, "a file without a test is a failure")
for text in (
    "return { on_leading = function() end }",
    "function on_leading() end",
    "log.info 'x'",
    "local r = require 'lunarch.retry' return { on_leading = r.call }",
):
    status, out, err = run(write("some.lua", text + "\n"))
    ok(
        status == 1 and err.count("\n") == 1 and "some.lua is a script and no test" in err,
        f"a script is no test, and that is said in one line: {text}",
        err,
    )
status, out, err = run(write("syntax_test.lua", "test('x', function(\n"))
ok(status == 1 and "syntax_test.lua" in err, "a file that is no Lua is a failure that names it")
status, out, err = run(os.path.join(room, "none_test.lua"))
ok(status == 1 and "none_test.lua" in err, "a file that is not there is one, too")
status, out, err = run()
ok(status == 2 and "which tests?" in err, "no file at all is misuse")
status, out, err = run(good, env={**os.environ, "LUNARCH_LEASE_DURATION": "1ms", "LUNARCH_LOCK": "etcd://nowhere/x"})
ok(status == 0, "the environment's options do not reach a test")
shutil.rmtree(room)
done()

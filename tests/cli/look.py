#!/usr/bin/env -S PYTHONPATH=. python3
"""leader, status and check: what they say about a record, and that they change nothing."""

import atexit
import datetime
import functools
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
from typing import Any

from tests.lib.candidates import FAST, Candidate, stop_everyone
from tests.lib.commands import CLEAN, check, run
from tests.lib.processes import LUNARCH, piped, scratch, wait_for
from tests.lib.tap import done, ok, same

TMP = scratch()
atexit.register(shutil.rmtree, TMP, True)
atexit.register(stop_everyone)


def path(name: str) -> str:
    return os.path.join(TMP, name)


def put(name: str, content: bytes | str) -> str:
    with open(path(name), "wb") as f:
        f.write(content if isinstance(content, bytes) else content.encode())
    return path(name)


def record(**fields: int | str) -> str:
    """A record as another client writes it: Kubernetes' five fields and no more."""
    return json.dumps(
        {
            "holderIdentity": "somebody",
            "leaseDurationSeconds": 15,
            "acquireTime": "2020-01-02T03:04:05Z",
            "renewTime": "2020-01-02T03:04:06Z",
            "leaderTransitions": 3,
            **fields,
        }
    )


def tree_hash(directory: str) -> str:
    """Names, types and contents; the lock's own guard files (.NAME.lock) hold nothing and are not the record."""
    h = hashlib.sha256()
    for base, dirs, files in sorted(os.walk(directory)):
        dirs.sort()
        for name in sorted(files):
            if not (name.startswith(".") and name.endswith(".lock")):
                full = os.path.join(base, name)
                h.update((full + "\0").encode())
                h.update(os.readlink(full).encode() if os.path.islink(full) else open(full, "rb").read())
    return h.hexdigest()


# ---- nobody ----


def test_absent() -> None:
    lock = path("absent")
    check(run("status", "--lock", lock), 1, "nobody", "there is none", what="status: no record is 1")
    same(
        json.loads(run("status", "--json", "--lock", lock).stdout),
        {"lock": f"file:{lock}", "state": "absent", "leader": None},
        "status --json: no record",
    )
    r = run("leader", "--lock", lock)
    check(r, 1, "nobody leads", what="leader: no record is 1, and says so")
    same(r.stdout, "", "leader: nothing on stdout without an address")
    ok(not os.path.exists(lock), "looking made no record")


# ---- records of others ----


def test_foreign_leader() -> None:
    lock = put("client-go", record())
    r = run("status", "--lock", lock)
    check(r, 1, "somebody", "15s", "transitions 3", "--verify", what="status: a record of another client is understood")
    got = json.loads(run("status", "--json", "--lock", lock).stdout)
    ok(
        got["leader"] == "somebody"
        and got["leaseDurationMs"] == 15000
        and got["token"] is None
        and got["term"] is None
        and got["leaderTransitions"] == 3
        and got["acquired"].startswith("2020-01-02T03:04:05"),
        "status --json: the same",
    )
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    r = run("leader", "--lock", put("no-address", record(renewTime=now, leaseDurationSeconds=3600)))
    check(r, 1, "somebody leads", "no address", what="leader: a leader without an address is 1")
    lock = put("emptied", record(holderIdentity="", leaseDurationSeconds=1))
    check(run("status", "--lock", lock), 1, "nobody", what="status: an empty holder is nobody")


def test_broken_records() -> None:
    cases = {
        "empty": b"",
        "truncated": record()[:40].encode(),
        "binary": os.urandom(3000),
        "other": b'{"name":"x"}',
        "text": b"hello\n",
        "wrong": record(leaseDurationSeconds="long").encode(),
        "huge": b" " * 300_000 + record().encode(),
    }
    for name, content in cases.items():
        lock = put("broken-" + name, content)
        before = tree_hash(TMP)
        for command in ("status", "leader"):
            r = run(command, "--lock", lock)
            check(r, 69, lock, what=f"{command}: a record that is {name} is an error that names the file")
        same(tree_hash(TMP), before, f"and the record that is {name} is left as it was")
    os.mkdir(path("directory"))
    check(run("status", "--lock", path("directory")), 69, path("directory"), what="status: a directory in its place")
    os.symlink("loop", path("loop"))
    check(run("status", "--lock", path("loop")), 69, path("loop"), what="status: a symbolic link to itself")
    r = run("status", "--lock", put("broken-wrong2", record(leaseDurationSeconds="long")))
    ok("leaseDurationSeconds" in r.stderr and "long" in r.stderr, "status: a wrong key is named, with what was found")


# ---- a live leader ----


def test_live() -> None:
    lock, script = path("live"), put("live.lua", 'return { on_leading = function(term) print("leading") end }')
    c = Candidate("--lock", lock, "--identity", "me", "--address", "10.1.2.3:80", script, options=FAST)
    leading = c.event("became_leader")
    r = run("leader", "--lock", lock)
    ok(leading and r.returncode == 0 and r.stdout == "10.1.2.3:80\n", "leader: the address alone, on a line")
    got = json.loads(run("status", "--json", "--lock", lock).stdout)
    ok(
        got["leader"] == "me"
        and got["token"] == leading["token"]
        and got["term"] == leading["term"]
        and got["leaseDurationMs"] == 6000
        and got["renewDeadlineMs"] == 5000
        and got["retryPeriodMs"] == 400,
        "status --json: holder, token, term and settings of a live leader",
    )
    check(run("status", "--verify", "--lock", lock), 0, "it renews", what="status --verify: a leader that renews is 0")
    watcher = subprocess.Popen(
        [LUNARCH, "status", "--watch", "--json", "--lock", lock], stdout=subprocess.PIPE, text=True, env=CLEAN
    )
    seen: list[dict[str, Any]] = []
    threading.Thread(target=lambda: seen.extend(map(json.loads, piped(watcher.stdout))), daemon=True).start()
    ok(wait_for(lambda: len(seen) == 1) and seen[0]["leader"] == "me", "status --watch: first what there is")
    before = json.loads(open(lock).read())["renewTime"]
    wait_for(lambda: json.loads(open(lock).read())["renewTime"] != before)
    c.kill(signal.SIGTERM)
    same(c.leave(), 0, "the leader stops")
    ok(
        wait_for(lambda: len(seen) >= 2) and seen[1]["state"] == "released" and seen[1]["previousHolder"] == "me",
        "status --watch: then each change, but no renewal",
    )
    check(run("status", "--lock", lock), 1, "nobody", "previous    me", what="status: a released lock is 1")
    check(run("leader", "--lock", lock), 1, "released", "me", what="leader: a released lock is 1")
    waiting = subprocess.Popen(
        [LUNARCH, "leader", "--wait", "60s", "--lock", lock], stdout=subprocess.PIPE, text=True, env=CLEAN
    )
    c = Candidate("--lock", lock, "--identity", "you", "--address", "[::1]:8080", script, options=FAST)
    ok(
        waiting.communicate(timeout=60)[0] == "[::1]:8080\n" and waiting.returncode == 0,
        "leader --wait: the address when there is one",
    )
    ok(
        wait_for(lambda: len(seen) >= 3) and seen[2]["leader"] == "you" and seen[2]["term"] == 2,
        "status --watch: the next leader",
    )
    watcher.send_signal(signal.SIGTERM)
    watcher.wait(60)
    piped(watcher.stdout).close()
    c.kill(signal.SIGTERM)
    c.leave()


def test_silent() -> None:
    lock = put("silent", record(leaseDurationSeconds=1))
    before = tree_hash(TMP)
    check(
        run("status", "--verify", "--lock", lock),
        1,
        "did not renew",
        what="status --verify: a leader that does not renew is 1",
    )
    same(tree_hash(TMP), before, "and it stays in the record")


def answers(socket_path: str, path: str) -> Any:
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(socket_path)
        s.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
        text = b"".join(iter(lambda: s.recv(65536), b""))
    return json.loads(text.split(b"\r\n\r\n", 1)[1])["elections"][0]


def states(lock: str) -> dict[str, Any]:
    """What each command says of the lock, in both forms, and its exit status."""
    said = {c: run(*c.split(), *([lock] if c.startswith("list") else ["--lock", lock])) for c in COMMANDS}
    words = {
        c: json.loads(r.stdout).get("state")
        if "--json" in c
        else next((w for w in ("overdue", "leading", "leads") if w in r.stdout + r.stderr), "")
        for c, r in said.items()
    }
    return {c: (words[c], r.returncode) for c, r in said.items()}


COMMANDS = ("status", "status --json", "list", "list --json", "history", "history --json", "leader")


def test_dead() -> None:
    """A leader that was killed with its guard, so that nobody releases: all say the same of it."""
    lock, at = path("dead"), path("dead.sock")
    watched = [
        subprocess.Popen([LUNARCH, "status", "--watch", "--json", *locks], stdout=subprocess.PIPE, text=True, env=CLEAN)
        for locks in (["--lock", lock], ["--lock", lock, "--lock", path("other")])
    ]
    seen: list[list[Any]] = [[], []]
    for w, into in zip(watched, seen):
        threading.Thread(
            target=lambda w=w, into=into: into.extend(map(json.loads, piped(w.stdout))), daemon=True
        ).start()
    c = Candidate("-e", "sleep(1e6)", "--lock", lock, "--identity", "me", "--address", "a:1", options=FAST)
    c.wait("became_leader")
    observer = put("observes.lua", "return { on_no_leader = function() end }")
    o = Candidate("--lock", lock, "--listen", "unix:" + at, observer, options=FAST)
    o.wait("new_leader")
    same([answers(at, p).get("state") for p in ("/status", "/history")], ["leading"] * 2, "/status, /history: it leads")
    guard = c.guard()
    c.kill(signal.SIGSTOP)  # it must not see that the guard is gone
    c.kill(pid=guard)
    c.kill()
    c.leave()
    ok(wait_for(lambda: states(lock)["status --json"] == ("overdue", 1)), "status --json: a dead leader is overdue")
    same(
        states(lock),
        {k: ("overdue", 0 if k.startswith("history") else 1) for k in COMMANDS},
        "a dead leader: all commands say overdue, with the status that their help promises",
    )
    for w, into, name in zip(watched, seen, ("one", "several")):
        ok(wait_for(functools.partial(silent, into)), f"status --watch of {name}: so does it", into)
        w.kill()
        w.wait(60)
    ok(
        wait_for(lambda: [answers(at, p).get("state") for p in ("/status", "/history")] == ["overdue"] * 2),
        "/status, /history: so does who watches it",
    )
    o.stop()
    check(run("status", "--verify", "--lock", lock), 1, "did not renew", what="status --verify: it is 1")


def silent(into: list[Any]) -> list[Any]:
    return [s for s in into if s["state"] == "overdue" and s.get("verified") == "silent"]


def test_unit() -> None:
    """check sees the options that the unit's lunarch run will have."""
    put("unit.lua", "return { on_leading = print, name = os.getenv 'WHAT' }")
    check(run("check", path("unit.lua")), 0, "unit", what="check: a script without a unit's variables")
    put("unit.env", f"# of lunarch@unit\n\nLUNARCH_LOCK={path('unit-lock')}\nWHAT=\"a-b\"\n")
    r = run("check", path("unit.lua"))
    check(r, 0, f"{path('unit.env')}: LUNARCH_LOCK WHAT", path("unit-lock"), "election 1 a-b", what="check: with them")
    put("unit.env", "LUNARCH_LEASE_DURATION=nonsense\n")
    check(run("check", path("unit.lua")), 2, "LUNARCH_LEASE_DURATION", what="check: a wrong one is said as of any")
    put("unit.env", "\nSECRET PASSWORD\n")
    r = run("check", path("unit.lua"))
    check(r, 1, f"{path('unit.env')}:2: expected NAME=VALUE", what="check: a line that is none is named")
    ok("PASSWORD" not in r.stdout + r.stderr, "check: and not shown")
    put("unit.env", "ARGS=a \\\n b\n")
    check(run("check", path("unit.lua")), 1, "unit.env:1: a value that goes on", what="check: nor one that goes on")


def test_clocks_differ() -> None:
    """The holder's clock is an hour behind: what is seen counts more than what its record says."""
    lock, stop = put("skewed", record(leaseDurationSeconds=60, address="a:1")), threading.Event()
    first = json.loads(open(lock).read())

    def renew() -> None:
        for i in range(10**6):
            if stop.wait(0.2):
                return
            with open(lock + ".new", "w") as f:
                json.dump({**first, "renewTime": f"2020-01-02T03:{i // 60 % 60:02}:{i % 60:02}Z"}, f)
            os.rename(lock + ".new", lock)

    check(run("leader", "--lock", lock), 1, "overdue", "--wait", what="leader: of who is overdue no address is told")
    renewing = threading.Thread(target=renew)
    renewing.start()
    same(states(lock)["status --json"], ("overdue", 1), "a leader whose clock is behind is overdue at a single look")
    r = run("status", "--verify", "--json", "--lock", lock)
    got = json.loads(r.stdout)
    same((got["state"], got["verified"], r.returncode), ("leading", "renews", 0), "status --verify: but it leads")
    r = run("leader", "--wait", "60s", "--lock", lock)
    same((r.stdout, r.returncode), ("a:1\n", 0), "leader --wait: a renewal that it sees counts, too")
    stop.set()
    renewing.join()


# ---- check ----


def test_check_hooks() -> None:
    hooks = ["on_leading", "on_start", "on_stopped", "may_lead", "on_new_leader", "on_no_leader"]
    all_of_them = put("hooks.lua", "return { %s }" % ", ".join(f"{h} = function() end" for h in hooks))
    r = run("check", "--lock", path("hooks"), all_of_them)
    check(r, 0, "hooks      " + ", ".join(hooks), what="check: every hook that the script has")
    observer = put("observer.lua", "return { on_no_leader = function() end }")
    r = run("check", "--lock", path("hooks"), observer)
    check(r, 0, "never campaigns; on_no_leader\n", what="check: the hooks of one that only observes")


def test_wrong_lock() -> None:
    """Who named a lock that is none is blamed for it."""
    own = put("own.lua", 'return {\n  on_leading = function() end,\n  lock = "mars://x" }')
    for command in ("run", "check"):
        r = run(command, "--lock", "venus://x", own)
        said = r.stderr + r.stdout
        ok(
            r.returncode != 0 and '--lock: lock "venus' in said and "own.lua:2: lock" not in said,
            f"{command} --lock",
            said,
        )
        r = run(command, own, env={**CLEAN, "LUNARCH_LOCK": "venus://x"})
        said = r.stderr + r.stdout
        ok(r.returncode != 0 and 'LUNARCH_LOCK: lock "venus' in said, f"{command} with LUNARCH_LOCK", said)
    r = run("run", own)
    ok('own.lua:2: lock "mars' in r.stderr, "run: the script's own lock is blamed on the script", r.stderr)
    r = run(
        "run",
        "--lock",
        path("one"),
        put("two_names.lua", "return {{name='a', on_leading=print},{name='b', on_leading=print}}"),
    )
    ok(
        ": --lock" in r.stderr and "two_names.lua" not in r.stderr,
        "run: one --lock for two elections is the option's fault",
        r.stderr,
    )
    ok("75" not in run("run", "--help").stdout, "run --help does not name exit status 75, which only exec has")


def test_check() -> None:
    two = put(
        "two.lua",
        """
        return {
            { name = "a", lock = "%s/two-a", on_start = function() error "a hook ran" end, may_lead = function() end,
              on_leading = function() error "a hook ran" end, on_stopped = function() error "a hook ran" end,\
 lease_duration = 30 },
            { name = "b", lock = "%s/two-b", on_new_leader = function() error "a hook ran" end },
        }"""
        % (TMP, TMP),
    )
    before = tree_hash(TMP)
    r = run("check", two)
    check(
        r,
        0,
        "election 1 a",
        "election 2 b",
        "on_leading, on_start, on_stopped, may_lead",
        "may_lead timeout 5s",
        "only observes",
        "lease 30s, renew deadline " "20s",
        "7.1%",
        f"file:{TMP}/two-a",
        "there is no record",
        "no problem found",
        what="check: elections, hooks, times, locks",
    )
    same(tree_hash(TMP), before, "check changes nothing and runs no hook")
    r = run("check", "--lease-duration", "6s", "--lock", TMP + "/{name}-lock", two)
    check(r, 0, "lease 6s", f"file:{TMP}/a-lock", f"file:{TMP}/b-lock", what="check: options come before the script")
    check(run("check", "--lock", path("one"), two), 1, "{name}", what="check: one lock for two elections is a problem")
    check(
        run("check", "--retry-period", "30s", two),
        1,
        "PROBLEM",
        "30s from --retry-period",
        what="check: bad times, with the numbers",
    )
    twice = put(
        "twice.lua",
        'return { { name = "a", lock = "%s/same", on_leading = function() end }, '
        '{ name = "b", lock = "file:%s/../%s/same", on_leading = function() end } }'
        % (TMP, TMP, os.path.basename(TMP)),
    )
    check(run("check", twice), 1, "listed twice", what="check: a lock listed twice, in two spellings")
    check(
        run("check", "--lock", put("notours", "hello"), put("x.lua", "return { on_leading = function() end }")),
        1,
        "PROBLEM",
        path("notours"),
        what="check: a lock file of another program is a problem",
    )
    args = put("args.lua", 'assert((...) == "--odd"); return { on_leading = function() end }')
    check(run("check", "--lock", path("args"), args, "--", "--odd"), 0, what="check: the script gets its arguments")


def test_check_scripts() -> None:
    """What is found when a script is loaded: script/test_load.py."""
    check(
        run("check", put("syntax.lua", "return {\n  x = = 1\n}")),
        1,
        "syntax.lua:2:",
        what="check: a syntax error, with its line",
    )
    r = run(
        "check",
        put(
            "names.lua",
            """local function on_stopped() end
return { on_leading = function(term)
  own = 1
  prnt(own)
  os.execute("ls")
  for line in io.lines("x") do print(line) end
  return function() return string.format("%d", sleeep(1)), _G, arg[0] end
end }""",
        ),
    )
    check(
        r,
        1,
        "line 1: the local function on_stopped is never used",
        "line 4: undefined global 'prnt' (did you mean 'print'?)",
        "note       line 5: os.execute cannot be interrupted",
        "note       line 6: io.lines",
        "line 7: undefined global 'sleeep' (did you mean 'sleep'?)",
        "3 problems",
        what="check: names that nobody defines, forgotten hooks, calls that hold everything up, each with its line",
    )
    ok("'arg'" not in r.stdout, "check: and nothing about those that are defined")
    ok(
        "note       line 3: assignment to the undeclared global 'own'" in r.stdout,
        "check: an assignment in a hook to a global that is declared nowhere",
        r.stdout,
    )
    r = run("check", put("declared.lua", "own = 0\nreturn { on_leading = function() own = 1 print(own) end }"))
    ok(r.returncode == 0 and "'own'" not in r.stdout, "check: ... and none to one that the script declares", r.stdout)
    os.mkdir(path("bare"))
    bare = path("bare") + "/lunarch"
    shutil.copy(LUNARCH, bare)
    r = subprocess.run(
        [bare, "check", put("needs.lua", "return { on_leading = function()\n  http.get('http://h/')\nend }")],
        capture_output=True,
        text=True,
        timeout=120,
        env=CLEAN,
    )
    check(
        r,
        1,
        "PROBLEM    line 2: http: ",
        "lunarch-http",
        what="check: a module that is not installed, with its package",
    )
    many = put(
        "many.lua",
        "local t = { %s }\nreturn { on_leading = function() for i = 1, 2 do\n\n\nmissing(t, i) end end }"
        % ", ".join(f'"{i}"' for i in range(600)),
    )
    check(
        run("check", many),
        1,
        "line 5: undefined global 'missing'",
        what="check: in a large script, too, at the right line",
    )
    large = put(
        "large.lua",
        "local t = { %s }\nfunction helper() end\nlocal function f() helper(t) end\nif t == f then\nmissing()\nend\n"
        "return { on_leading = f }" % ", ".join(f'"{i}"' for i in range(600)),
    )
    r = run("check", large)
    check(
        r,
        1,
        "line 5: undefined global 'missing'",
        "1 problem",
        what="check: where a function has more constants than an instruction can name",
    )
    check(
        run(
            "check",
            put("module.lua", 'local m = require "suite"\nreturn { on_leading = function() helper(m) end }'),
            *(["--"] if put("suite.lua", "helper = print return 1") else []),
        ),
        0,
        "note       line 2: undefined global 'helper', unless a module defines it",
        what="check: a global that a module may define is a note",
    )
    r = run(
        "check",
        put(
            "library.lua",
            """local retry = require "lunarch.retry"
return { on_leading = function()
  retry.call(prnt)
  local late = require("lunarch.retyr")
  local own = require("own." .. late.name)
end }""",
        ),
    )
    check(
        r,
        1,
        "line 4: the library has no module 'lunarch.retyr' (did you mean 'lunarch.retry'?)",
        what="check: a typo in the name of a library module",
    )
    check(
        run(
            "check",
            put(
                "library.lua",
                'local retry = require "lunarch.retry"\nreturn { on_leading = function() retry.call(prnt) end }',
            ),
        ),
        1,
        "line 2: undefined global 'prnt' (did you mean 'print'?)",
        "1 problem",
        what="check: modules of the library define no globals",
    )
    check(
        run("check", put("watch.lua", "return { on_new_leader = print, on_stopped = print, may_lead = print }")),
        1,
        "on_stopped never runs",
        "may_lead is never asked",
        what="check: hooks of a term in an election that only observes",
    )
    check(
        run("check", "-e", "print(term.token) prnt(1)"),
        1,
        "line 1: undefined global 'prnt'",
        "1 problem",
        what="check: a text, too",
    )
    check(
        run("check", put("exit.lua", "os.exit(3)")),
        1,
        "exit status 3",
        what="check: a script that leaves while it is loaded",
    )
    check(
        run("check", put("loop.lua", "while true do end")),
        1,
        "still loading",
        what="check: a script that never finishes loading",
    )


test_absent()
test_foreign_leader()
test_broken_records()
test_live()
test_silent()
test_dead()
test_unit()
test_clocks_differ()
test_check_hooks()
test_wrong_lock()
test_check()
test_check_scripts()
done()

"""A running script whose file is changed, whose workers are killed and which is reloaded; and what is asked of it then.

Not what must hold: script/test_life.py and cli/reload_whole.py say that. Used by both."""

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Sequence
from typing import Any

from tests.lib.candidates import Candidate, timing
from tests.lib.processes import LUNARCH, PATIENCE, alive, children, runs_lock_file, scratch, wait_for
from tests.lib.tap import ok

# A worker that is held up for a second still runs its on_stopped in time, and one that is killed has 6 s to be gone:
# after that its elector would end with 1.
CALM = timing("18s", renew="8s", retry="400ms", stop_grace="2s", kill="6s", drift="750ms")

# Elections say in which version of the script their hooks ran. hold() holds up the whole worker until there is a file
# of that name, wait() the task alone. note() appends the worker's pid to the file. first() is true in one of the
# processes that ask for that name.
SCRIPT = """
local dir, version = "%s", "%s"
local function there(name) local f = io.open(dir .. "/" .. name) return f and f:close() end
local function hold(name) os.execute("until test -e " .. dir .. "/" .. name .. "; do sleep 0.05; done") end
local function wait(name) while not there(name) do sleep(0.05) end end
local function note(name) os.execute("echo $PPID >>" .. dir .. "/" .. name) end
local function first(name) return os.execute("mkdir " .. dir .. "/" .. name .. " 2>/dev/null") == true end
local function say(what, name, ...) print(table.concat({ what, version, name, ... }, " ")) end
local function election(name, keys)
  local e = { name = name, lock = dir .. "/" .. name,
    on_leading = function(term) say("leading", name, term.token) end,
    on_stopped = function(term, reason) say("stopped", name, term.token, reason) end }
  for k, v in pairs(keys or {}) do e[k] = v or nil end
  return e
end
local function slow(name, keys)
  keys = keys or {}
  keys.on_stopping = function() say("stopping", name) wait("drained") end
  return election(name, keys)
end
%s
"""


class Life:
    def __init__(self) -> None:
        self.dir = scratch()
        self.script, self.control, self.listen = (f"{self.dir}/{n}" for n in ("s.lua", "control", "listen"))

    def put(self, version: str, text: str, raw: bool = False) -> None:
        """raw: the text is the whole file."""
        with open(self.script + ".new", "w") as f:
            f.write(text if raw else SCRIPT % (self.dir, version, text))
        os.rename(self.script + ".new", self.script)

    def start(self, *words: str, options: Sequence[str] = CALM) -> Candidate:
        self.c = Candidate(
            "--control", self.control, "--listen", "unix:" + self.listen, *words, self.script, options=options
        )
        return self.c

    def rival(self, lock: str) -> Candidate:
        """One that leads there, or would at once."""
        c = Candidate("--lock", f"{self.dir}/{lock}", "--identity", "rival", "-e", "print 'the rival leads'")
        wait_for(lambda: c.all("new_leader") + c.all("became_leader"))
        return c

    def touch(self, name: str) -> None:
        open(f"{self.dir}/{name}", "w").close()

    def noted(self, name: str) -> list[int]:
        """Pids of the workers that have called note(name)."""
        try:
            with open(f"{self.dir}/{name}") as f:
                return [int(line) for line in f]
        except FileNotFoundError:
            return []

    def record(self, lock: str = "a") -> dict[str, Any]:
        """{}: there is none."""
        try:
            with open(f"{self.dir}/{lock}") as f:
                return json.load(f)
        except FileNotFoundError:
            return {}

    def begin(self, *words: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [LUNARCH, "ctl", "--control", self.control, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def answer(self, asked: "subprocess.Popen[str]", patience: float = PATIENCE) -> tuple[int | None, str]:
        """Status and text; None: there was no answer in time."""
        try:
            text = asked.communicate(timeout=patience)[0]
            return asked.returncode, text
        except subprocess.TimeoutExpired:
            asked.kill()
            asked.communicate()
            return None, ""

    def ctl(self, *words: str) -> tuple[int | None, str]:
        return self.answer(self.begin(*words))

    def standing(self, name: str = "a") -> dict[str, Any]:
        """What `ctl status` says of an election; {}: there is none of that name, or no answer."""
        status, text = self.ctl("--json", "status")
        listed = json.loads(text)["elections"] if status == 0 else []
        return next((e for e in listed if e["name"] == name), {})

    def code(self, path: str) -> int:
        """The endpoint's status; 0: nobody answers."""
        c = http.client.HTTPConnection("lunarch", timeout=PATIENCE)
        c.sock = socket.socket(socket.AF_UNIX)
        c.sock.settimeout(PATIENCE)
        try:
            c.sock.connect(self.listen)
            c.request("GET", path)
            return c.getresponse().status
        except OSError:
            return 0
        finally:
            c.close()

    def guards(self) -> list[int]:
        """One for each worker, the oldest first."""
        return [p for p in children(self.c.pid) if alive(p) and not runs_lock_file(p)]

    def guard_beside(self, *known: int) -> int:
        """A guard that is none of these, or 0 if there is none in time."""
        return wait_for(lambda: next((g for g in self.guards() if g not in known), 0))

    def worker_of(self, guard: int) -> int:
        return wait_for(lambda: next(iter(children(guard)), 0))

    def kill_worker(self, guard: int) -> None:
        worker = self.worker_of(guard)
        if not worker:
            raise RuntimeError(f"guard {guard} has no worker")
        self.c.kill(signal.SIGKILL, worker)
        wait_for(lambda: not alive(guard))

    def leads(self, version: str, name: str = "a", count: int = 1) -> bool:
        return bool(self.c.wait("print", f"leading {version} {name}", count))

    def terms(self, what: str) -> list[list[str]]:
        """The words of the lines that begin so."""
        return [e["message"].split() for e in self.c.all("print") if e["message"].startswith(what + " ")]

    def agrees(self, what: str, names: Sequence[str] = ("a",)) -> bool:
        """Everybody who asks hears that it leads, and is well."""

        def all_say() -> bool:
            paths = ["/healthz", "/readyz", *("/leader/" + n for n in names)]
            said = [self.code(path) for path in paths] + [self.ctl("--election", n, "is-leading")[0] for n in names]
            return said == [200] * len(paths) + [0] * len(names)

        return ok(wait_for(all_say), f"{what}: /healthz, /readyz, /leader and ctl agree that it leads")

    def ends(self, what: str) -> None:
        """Ends it: each term that began has had one on_stopped, and nothing is left."""
        status = self.c.stop()
        wait_for(lambda: self.c.closed)
        began = sorted((w[2], w[3]) for w in self.terms("leading"))
        stopped = sorted((w[2], w[3]) for w in self.terms("stopped"))
        good = ok(status == 0, f"{what}: it ends with 0", f"status {status}")
        good &= ok(stopped == began, f"{what}: each term had its on_stopped, once", f"began {began}, stopped {stopped}")
        if not good:
            self.c.log()
        shutil.rmtree(self.dir, ignore_errors=True)

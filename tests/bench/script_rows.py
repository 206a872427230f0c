"""The rows of make bench about scripts: how soon a hook runs, what timers, tasks and requests cost, and that nothing
piles up. Each function yields (what, goal, values, unit, floor) for bench.py's row()."""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from typing import Any

from tests.lib import player
from tests.lib.processes import LUNARCH, ROOT
from tests.lib.servers import Server, ask

FLOOR = os.path.join(ROOT, "build", "bench", "floor_script")


def script(directory: str, text: str, *args: Any, name: str = "script") -> Any:
    """Runs it to its end, and returns what it wrote: JSON."""
    path = os.path.join(directory, name + ".lua")
    with open(path, "w") as f:
        f.write(WEIGH + text)
    p = subprocess.run(
        [LUNARCH, "run", "--log-level", "warn", "--lock", os.path.join(directory, name), path, "--", *map(str, args)],
        capture_output=True,
        text=True,
    )
    if p.returncode:
        raise RuntimeError(p.stderr)
    return json.loads(p.stdout)


WEIGH = """
local function weigh() -- KB of its own: what is shared with other processes depends on them
  collectgarbage() collectgarbage()
  for line in io.lines "/proc/self/smaps_rollup" do
    local kb = line:match "^Anonymous:%s+(%d+)"
    if kb then return tonumber(kb) end
  end
end
local function finish(result) io.write(json.encode(result)) os.exit(0) end
"""


# ---- a hook's call ----

FIRST = """return {
  on_leading = function() local now = time.monotonic() io.write(("%.9f\\n"):format(now)) io.flush() end,
  on_new_leader = function() local now = time.monotonic() io.write(("%.9f\\n"):format(now)) io.flush() end,
}"""


def calls(runs: Any, call: Any) -> Any:
    """From the message to the worker until the hook's first line has run, in microseconds; each after a pause, as in
    life."""
    sent = []
    with player.Worker(text=FIRST) as w:
        w.ready()
        for i in range(runs):
            time.sleep(0.005)
            sent.append(call(w, i))
            w.wait_for(lambda: w.output().count("\n") > i, "the hook")
        began = [float(line) for line in w.output().split()]
    return [(b - s) * 1e6 for b, s in zip(began, sent)]


def lead(w: Any, i: Any) -> Any:
    if i:
        w.stop(term=i)
        w.expect(player.STOPPED)
        time.sleep(0.002)
    w.page.begin(0, i + 1, i + 1)
    message = player.pack(player.LEAD, 0, i + 1, i + 1, "host:1", "")
    now = time.monotonic()
    w.wire.send(message)
    return now


def new_leader(w: Any, i: Any) -> Any:
    message = player.pack(player.LEADER, 0, f"n{i}", "", i + 1, False, "")
    now = time.monotonic()
    w.wire.send(message)
    return now


def hook_calls(directory: str, quick: Any) -> Iterator[Any]:
    runs = 100 if quick else 1000
    floor = [
        float(x)
        for x in subprocess.run([FLOOR, "wake", str(runs)], capture_output=True, text=True, check=True).stdout.split()
    ]
    yield "message to on_leading's first line", 200, calls(runs, lead), "us", floor
    yield "message to on_new_leader's first line", 200, calls(runs, new_leader), "us", floor


# ---- timers and tasks ----

CROWD = """
local seconds <const>, timers <const>, waiting <const> = tonumber(...), 10000, 1000
local now = time.monotonic
local function p99(list) table.sort(list) return list[#list - #list // 100] * 1000 end
return { on_leading = function(term)
  local late, woken, counting = {}, {}, false
  local empty = weigh()
  for i = 1, timers do
    local due
    term:every(seconds, function()
      if counting then late[#late + 1] = now() - due end
      due = due + seconds
    end)
    spawn(function() due = now() + seconds end) -- begins right behind the other, which counts from its own beginning
    if i % 10 == 0 then sleep(seconds * 10 / timers) end
  end
  local with_timers = weigh()
  local queue = tasks.queue()
  for _ = 1, waiting do spawn(function()
    for sent in queue:each() do woken[#woken + 1] = now() - sent end
  end) end
  sleep(0.1)
  local with_tasks = weigh()
  counting = true
  local ends = now() + seconds
  while now() < ends do queue:put(now()) sleep(0.002) end
  finish { timer_kb = (with_timers - empty) / timers, task_kb = (with_tasks - with_timers) / waiting, late_ms =\
 p99(late), woken_ms = p99(woken),
    ticks = #late, wakes = #woken }
end }
"""


def crowd(directory: str, quick: Any) -> Iterator[Any]:
    seconds, runs = (4, 1) if quick else (10, 5)
    found, floors = [], []
    for i in range(runs):
        found.append(script(directory, CROWD, seconds, name=f"crowd{i}"))
        floor = subprocess.run([FLOOR, "timers", "10000", str(seconds)], capture_output=True, text=True, check=True)
        floors.append([float(x) for x in floor.stdout.split()])
    memory, late = [f[0] for f in floors], [f[1] for f in floors]
    yield "10,000 timers (every) in a script: memory of each", None, [f["timer_kb"] for f in found], "KB", memory
    yield "1,000 tasks waiting in a script: memory of each", None, [f["task_kb"] for f in found], "KB", memory
    yield "10,000 timers: lateness of a wake-up, p99", 5, [f["late_ms"] for f in found], "ms", late
    yield "  with them 1,000 tasks at a queue: put to woken, p99", 5, [f["woken_ms"] for f in found], "ms", None


# ---- requests ----


class Nginx(Server):
    def prepare(self) -> None:
        temp = "".join(
            f"{kind}_temp_path {self.dir}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        with open(os.path.join(self.dir, "conf"), "w") as f:
            f.write(
                f"""daemon off; pid {self.dir}/pid; error_log {self.dir}/errors; worker_processes 1; events {{\
 worker_connections 1024; }}
http {{ access_log off; keepalive_requests 1000000; {temp}
  server {{ listen 127.0.0.1:{self.port}; location / {{ return 200 "hello\\n"; }} }} }}"""
            )

    def command(self) -> Any:
        return ["nginx", "-c", os.path.join(self.dir, "conf"), "-e", os.path.join(self.dir, "errors")]

    def ready(self) -> Any:
        return "200 OK" in ask(self.port, "GET / HTTP/1.0\r\n\r\n")


# curl's time without its start: the same command for one URL. Ours has made one request before, as a script that runs
# for days has.
REQUESTS = """
local url <const>, config <const>, one <const>, rounds <const> = ...
local function ours()
  local next, right, jobs = 0, 0, {}
  for i = 1, 100 do jobs[i] = function()
    while next < 1000 do
      next = next + 1
      local r = http.get(url .. next)
      if r and r.body == "hello\\n" then right = right + 1 end
    end
  end end
  local began = time.monotonic()
  tasks.wait_all(jobs)
  assert(right == 1000, "requests failed")
  return (time.monotonic() - began) * 1000
end
local function curl(file)
  local r = assert(exec { "curl", "-K", file, stdout = "null", stderr = "null" })
  assert(r.ok, "curl failed")
  return r.times.elapsed * 1000
end
return { on_leading = function()
  local result = { ours = {}, curl = {} }
  assert(http.get(url))
  for i = 1, tonumber(rounds) do
    result.ours[i] = ours()
    result.curl[i] = curl(config) - curl(one)
  end
  finish(result)
end }
"""


def requests(directory: str, quick: Any) -> Iterator[Any]:
    if not (shutil.which("nginx") and shutil.which("curl")):
        return
    with Nginx() as server:
        url = f"http://127.0.0.1:{server.port}/"
        head = "parallel\nparallel-max = 100\nsilent\n"
        lines = [f'url = "{url}{i}"\noutput = /dev/null\n' for i in range(1, 1001)]
        for name, text in (("curl", "".join(lines)), ("one", lines[0])):
            with open(os.path.join(directory, name), "w") as f:
                f.write(head + text)
        found = script(
            directory, REQUESTS, url, directory + "/curl", directory + "/one", 10 if quick else 40, name="requests"
        )
    yield "1,000 HTTP requests, 100 at a time; floor: curl --parallel", None, found["ours"], "ms", found["curl"]
    yield "  times what curl --parallel takes beside it", 1.5, [
        a / b for a, b in zip(found["ours"], found["curl"])
    ], "x", None


# ---- nothing piles up ----

LONG = """
local function switches(n)
  local function half() for _ = 1, n // 2 do sleep(0) end end
  tasks.wait_all { half, half }
end
local value = { name = "a text", list = { 1, 2.5, "three", json.null }, nested = { deep = { yes = true, n =\
 9007199254740993 } }, none = json.array {} }
local function round_trips(n)
  for _ = 1, n do value = json.decode(json.encode(value)) end
end
local function timed(f, n)
  local began = time.monotonic()
  f(n)
  return (time.monotonic() - began) / n * 1e6
end
return { on_leading = function()
  switches(100000) round_trips(10000)
  local before = weigh()
  local switch, trip = timed(switches, 1000000), timed(round_trips, 100000)
  finish { grown = weigh() - before, switch = switch, trip = trip, before = before }
end }
"""


def piling(directory: str, quick: Any) -> Iterator[Any]:
    found = [script(directory, LONG, name=f"long{i}") for i in range(1 if quick else 5)]
    yield "1,000,000 task switches, 100,000 JSON round trips: growth", 64, [f["grown"] for f in found], "KB", None
    yield "  a task switch", None, [f["switch"] for f in found], "us", None
    yield "  a JSON round trip", None, [f["trip"] for f in found], "us", None

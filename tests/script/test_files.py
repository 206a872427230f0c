#!/usr/bin/env -S PYTHONPATH=. python3
"""lunarch.files where it counts: writers killed in the middle, frozen in the middle, and out of space; what is read is
always whole, and never an older leader's text after a newer one's."""

import os
import random
import shutil
import signal
import time

from tests.lib.candidates import Candidate, stop_everyone
from tests.lib.processes import scratch
from tests.lib.tap import at_once, done, ok, same

room = scratch()
BLOCK = "0123456789abcdef" * 4096


def path(name: str) -> str:
    return os.path.join(room, name)


def put(name: str, text: str, mode: int = 0o644) -> str:
    with open(path(name), "w") as f:
        f.write(text)
    os.chmod(path(name), mode)
    return path(name)


def whole(text: str) -> bool:
    """Every block of it begins with the same number."""
    size = len(BLOCK) + 11
    heads = {text[i : i + 11] for i in range(0, len(text), size)}
    return len(text) == 20 * size and len(heads) == 1


WRITER = put(
    "writer.lua",
    """
local files = require "lunarch.files"
local path = ...
local block = ("0123456789abcdef"):rep(4096)
return { on_leading = function(term)
  for i = 1, math.huge do
    local good, err = files.write(path, (("%010d\\n"):format(i) .. block):rep(20), { token = term.token })
    if not good then error(err.message) end
    print("written " .. i)
  end
end }
""",
)


def killed() -> None:
    target, tokens, torn, reads = path("big"), [], 0, 0
    for _ in range(5):
        c = Candidate("--lock", path("killed"), "--identity", "me", WRITER, "--", target)
        ok(c.wait("print", "written", count=2), "a leader writes large texts, again and again")
        end = time.monotonic() + random.random() / 5
        while time.monotonic() < end:
            with open(target) as f:
                torn += not whole(f.read())
            reads += 1
        c.kill(signal.SIGKILL)
        c.leave()
        with open(target) as f:
            torn += not whole(f.read())
        with open(path(".big.token")) as f:
            tokens.append(int(f.read()))
    same(torn, 0, f"whoever reads sees a whole one, also after kill -9 in the middle ({reads} reads)")
    same(tokens, sorted(set(tokens)), "and its guard grows with each leader")


FROZEN = put(
    "frozen.lua",
    """
local files, room = require "lunarch.files", ...
local function there(name) while not files.read(room .. "/" .. name) do sleep(0.01) end end
return { on_leading = function()
  local path = room .. "/shared"
  assert(files.write(path, "first", { token = 3 }))
  -- the next write freezes before it has the guard's lock
  files.write(room .. "/hold-flock", "")
  local old = spawn(function() return files.write(path, "old", { token = 5 }) end)
  there "held-flock"
  os.remove(room .. "/hold-flock")
  print("new " .. tostring(files.write(path, "new", { token = 9 })))
  files.write(room .. "/go-flock", "")
  local good, err = old:wait()
  print("old " .. tostring(good) .. " " .. err.code .. " " .. files.read(path) .. " " .. files.token(path))
  -- this one behind it
  files.write(room .. "/hold-mv", "")
  old = spawn(function() return files.write(path, "ten", { token = 10 }) end)
  there "held-mv"
  os.remove(room .. "/hold-mv")
  good, err = files.write(path, "eleven", { token = 11, timeout = 1 })
  print("waits " .. tostring(good) .. " " .. err.code .. " " .. files.read(path))
  local next_one = spawn(function() return files.write(path, "twelve", { token = 12 }) end)
  files.write(room .. "/go-mv", "")
  print("then " .. tostring(old:wait()) .. " " .. tostring(next_one:wait()) .. " " .. files.read(path) .. " " ..\
 files.token(path))
end }
""",
)


def frozen() -> None:
    """Programs that stand still, once, where the disk or the machine would."""
    tools = path("tools")
    os.mkdir(tools)
    for name in ("flock", "mv"):
        put(
            f"tools/{name}",
            f"""#!/bin/sh
if [ -e {room}/hold-{name} ]; then case "$*" in *hold-*|*go-*) ;; *) : > {room}/held-{name}; while [ ! -e\
 {room}/go-{name} ]; do sleep 0.01; done ;; esac; fi
exec {shutil.which(name)} "$@"
""",
            0o755,
        )
    c = Candidate(
        "--lock",
        path("frozen"),
        "--identity",
        "me",
        FROZEN,
        "--",
        room,
        env={"PATH": tools + ":" + os.environ["PATH"]},
        options=[],
    )
    ok(
        c.wait("print", "new true"),
        "while a write of an older leader stands still before the guard, a newer one's is done",
    )
    ok(c.wait("print", "old nil fenced new 9"), "and when the older one goes on it is refused")
    ok(c.wait("print", "waits nil timeout new"), "one that stands still behind the guard is waited for, for so long")
    if not ok(c.wait("print", "then true true twelve 12"), "and what waits comes after it"):
        c.log()
    c.kill(signal.SIGTERM)
    same(c.leave(), 0, "the end")


FULL = put(
    "full.lua",
    """
local files, path = require "lunarch.files", ...
return { on_leading = function()
  print("small " .. tostring(files.write(path, "small", { token = 1 })))
  local good, err = files.write(path, ("x"):rep(300000), { token = 2 })
  print("large " .. tostring(good) .. " " .. err.code)
  print("after " .. files.read(path))
  print("left: " .. exec("ls -a " .. path:match "^.*/").stdout:gsub("\\n", " "))
end }
""",
)


def full() -> None:
    disk = path("disk")
    os.mkdir(disk)
    small = (
        "unshare",
        "--mount",
        *(() if os.geteuid() == 0 else ("--map-root-user",)),
        "--propagation",
        "private",
        "sh",
        "-c",
        f'mount -t tmpfs -o size=200k none {disk} && exec "$@"',
        "sh",
    )
    c = Candidate("--lock", path("full.lock"), "--identity", "me", FULL, "--", disk + "/file", prefix=small)
    ok(c.wait("print", "small true"), "where there is little space a small file is written")
    if not ok(c.wait("print", "large nil full"), "a large one is an error that says so"):
        c.log()
    if not ok(c.wait("print", "after small"), "and the file is as it was"):
        c.log()
    if not ok(c.wait("print", "left: . .. .file.token file"), "and nothing half written is left"):
        c.log()
    c.kill(signal.SIGTERM)
    same(c.leave(), 0, "the end")


at_once(killed, frozen, full)
stop_everyone()
shutil.rmtree(room, ignore_errors=True)
done()

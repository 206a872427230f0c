#!/usr/bin/env -S PYTHONPATH=. python3
"""examples/follow.lua and lunarch.lock follow another election: on a file, in Redis, and by a lock file."""

import atexit
import json
import os
import signal
from typing import Any

from tests.lib import stores
from tests.lib.candidates import Candidate, stop_everyone
from tests.lib.processes import ROOT, scratch, wait_for
from tests.lib.tap import at_once, done, ok, same

SCRIPT = os.path.join(ROOT, "examples", "follow.lua")
READS = """
local lock = require "lunarch.lock"
local function show(...) io.write(json.encode({...}), "\\n") io.stdout:flush() end
local other, place = assert(lock.open(arg[1], { timeout = 20 })), arg[2]
local now = assert(other:read())
show("state", now.state, now.leader, now.address, now.token == assert(other:history())[1].token)
show("history", #assert(other:history()), other:history()[1].leader, other:history()[1].lasts)
show("list", #assert(lock.list(place)), lock.list(place)[1].leader)
show("option", pcall(lock.open, arg[1], { timout = 1 }))
local none, err = lock.open("nosuch://x")
show("url", none == nil, err.code)
local many = {}
for i = 1, 8 do many[i] = spawn(function() return other:read().leader end) end
for i = 1, 8 do many[i] = many[i]:wait() == now.leader end
show("at once", table.unpack(many))
local watcher = spawn(function() for _ in other:watch() do end end)
sleep(0)
watcher:cancel()
show("cancelled", select(2, watcher:wait()).code)
return { on_new_leader = print }
"""


def elect(lock: str, name: str, env: dict[str, str]) -> Any:
    return Candidate("-e", "sleep(1e6)", "--lock", lock, "--identity", name, "--address", name + ":80", env=env)


def follows(store: Any) -> None:
    s, lock, where = store.name, store.url("app-db"), scratch()
    a = elect(lock, "ann", store.env)
    ok(a.wait("became_leader"), f"{s}: a leader is there")
    script = os.path.join(where, "reads.lua")
    with open(script, "w") as f:
        f.write(READS)
    said = os.path.join(where, "said")
    with open(said, "w") as f:
        reader = Candidate(
            "--lock", os.path.join(where, "own"), script, "--", lock, store.url("app-"), stdout=f, env=store.env
        )
    ok(wait_for(lambda: '["cancelled"' in open(said).read()), f"{s}: all answers come")
    got = {values[0]: values[1:] for values in map(json.loads, open(said))}
    same(got.get("state"), ["leading", "ann", "ann:80", True], f"{s}: a script reads who leads, with the token")
    same(got.get("history"), [1, "ann", True], f"{s}: the terms of the lock")
    same(got.get("list"), [1, "ann"], f"{s}: the elections of a place")
    ok(
        got["option"][0] is False and "timeout" in got["option"][1],
        f"{s}: an unknown option is an error that names the right one",
    )
    same(got.get("url"), [True, "invalid"], f"{s}: a wrong URL is nil, err")
    same(got.get("at once"), [True] * 8, f"{s}: several tasks read one lock at once")
    same(got.get("cancelled"), ["cancelled"], f"{s}: a watch ends with its task")
    reader.stop()
    place = os.path.join(where, "leader")
    env = {**store.env, "OTHER_LOCK": lock, "LEADER_FILE": place}
    follower = Candidate("--lock", os.path.join(where, "follower"), SCRIPT, env=env)

    def says() -> str:
        return open(place).read() if os.path.exists(place) else ""

    ok(wait_for(lambda: says() == "ann:80\n", 60), f"{s}: the file has the leader's address")
    b = elect(lock, "bob", store.env)
    ok(b.wait("new_leader"), f"{s}: another one stands by")
    a.kill(signal.SIGKILL)
    ok(wait_for(lambda: says() == "bob:80\n", 60), f"{s}: the leader dies, and the file follows to the next one")
    b.kill(signal.SIGKILL)
    ok(wait_for(lambda: says() == "\n", 60), f"{s}: nobody renews, and the file says that nobody leads")
    follower.stop()
    store.end()


atexit.register(stop_everyone)
at_once(*[(lambda kind=kind: follows(kind())) for kind in (stores.File, stores.Redis, stores.Box)])
done()

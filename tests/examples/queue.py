#!/usr/bin/env -S PYTHONPATH=. python3
"""examples/queue.lua, and lunarch.redis: every job has one result, in order, through a crash in the middle of one and a
leader that has been replaced; and what the module says about a server's errors, users and replicas."""

import json
import os
import signal
from typing import Any

from tests.lib.candidates import STEADY, Candidate, stop_everyone
from tests.lib.processes import PATIENCE, ROOT, scratch, wait_for
from tests.lib.servers import Redis, free_port
from tests.lib.tap import at_once, done, ok, same

SCRIPT = os.path.join(ROOT, "examples", "queue.lua")


def queue() -> None:
    room = scratch()
    gate = os.path.join(room, "gate")
    # A job that is called "slow" waits for the gate; each says who has begun it.
    work = (
        f'read job; echo "$job" >>{room}/begun; while [ "$job" = slow ] && [ ! -e {gate} ]; do sleep 0.05; done; '
        'printf "%s done" "$job"'
    )
    with Redis() as server:

        def join(name: str) -> Any:
            return Candidate(
                "--lock", server.url("{q}:leader"), "--identity", name, SCRIPT, "--", "{q}", work, "0.1", options=STEADY
            )

        def begun(job: str) -> int:
            return os.path.exists(f"{room}/begun") and open(f"{room}/begun").read().split().count(job)

        def results() -> list[str]:
            return server.cli("LRANGE", "{q}:done", "0", "-1").splitlines()

        server.cli("RPUSH", "{q}", "one", "two", "slow", "four")
        a = join("a")
        ok(wait_for(lambda: begun("slow") == 1), "the leader has begun the third job")
        same(results(), ["one done", "two done"], "the first two have their results")
        b = join("b")
        b.wait("new_leader")
        for pid in (a.pid, a.guard()):
            a.kill(signal.SIGSTOP, pid)
        for pid in (a.guard(), a.pid):
            a.kill(signal.SIGKILL, pid)
        a.leave()
        ok(
            b.wait("became_leader") and wait_for(lambda: begun("slow") == 2),
            "after a crash the next one begins it again",
        )
        same(begun("two"), 1, "and nothing that has its result")
        open(gate, "w").close()
        ok(
            wait_for(lambda: results() == ["one done", "two done", "slow done", "four done"]),
            "each job has one result, in order",
        )
        os.unlink(gate)
        server.cli("RPUSH", "{q}", "slow", "next")
        ok(wait_for(lambda: begun("slow") == 3), "another job is begun")
        c = join("c")
        c.wait("new_leader")
        b.ask_to_stop()
        ok(b.wait("draining"), "its leader is asked to stop in the middle of it")
        same((begun("next"), c.all("became_leader")), (0, []), "it begins no other job, and nobody else leads yet")
        open(gate, "w").close()
        same(b.leave(), 0, "it leaves")
        ok(
            c.wait("became_leader") and wait_for(lambda: results()[4:] == ["slow done", "next done"]),
            "when the job has its result, and the next leader does the others",
        )
        same(begun("slow"), 3, "the job was not begun again")
        b = c
        terms = len(b.all("became_leader"))
        server.cli("HSET", "{q}:leader:lunarch", "token", str(2**52))
        server.cli("RPUSH", "{q}", "five")
        ok(
            b.wait("stopped_leading") and "FENCED" in " ".join(e.get("message", "") for e in b.events),
            "who is not the newest leader is refused by the server",
        )
        ok(
            b.wait("became_leader", count=terms + 1) and wait_for(lambda: results()[6:] == ["five done"]),
            "who is does the job",
        )
        same((server.cli("LLEN", "{q}"), server.cli("LLEN", "{q}:busy")), ("0", "0"), "nothing is left over")


MODULE = r"""
local redis = require "lunarch.redis"
local ports, lock = { ... }, nil
local function url(port, login, db) return ("redis://%s127.0.0.1:%s/%s"):format(login or "", port, db or "") end
local function err(what, ...) local _, e = ... print(what, e.code, e) end
return { on_leading = function(term)
  local store = redis.connect(url(ports[1], "u:pass%20word@", "3"))
  local odd = 'a "b"\n\\x00 \0 \1 \255'
  print("set", store:call("SET", "k", "Gr\u{fc}\u{df}e 'x' \"y\" \\n \n\t$(id)"),
    store:call("GET", "k") == "Gr\u{fc}\u{df}e 'x' \"y\" \\n \n\t$(id)")
  store:call("SET", "odd", odd)
  print("length", store:call("STRLEN", "odd") == #odd)
  print("nothing", store:call("GET", "none") == json.null)
  print("kinds", math.type(store:call("INCR", "n")), store:call("LRANGE", "none", 0, -1)[1],
    store:call("HSET", "h", "f", 1), store:call("HGETALL", "h").f)
  err("wrong", store:call("INCR", "k"))
  err("password", redis.connect(url(ports[1], "u:no@")):call("PING"))
  err("nobody", redis.connect(url(ports[1])):call("PING"))
  err("gone", redis.connect(url(ports[3])):call("PING"))
  local pair = redis.connect(("redis://127.0.0.1:%s,127.0.0.1:%s,127.0.0.1:%s"):format(ports[3], ports[2], ports[1]),
    { user = "u", password = "pass word" })
  print("replica", pair:call("SET", "r", 1))
  local small, large = { token = 99 }, { token = 100 }
  print("first", store:fenced(small, "SET", "f", "small"), store:fenced(large, "SET", "f", "large"))
  err("older", store:fenced(small, "SET", "f", "small again"))
  err("older script", store:fenced_eval(small, "return redis.call('SET', KEYS[1], ARGV[1])", { "f" }, "small again"))
  print("kept", store:call("GET", "f"))
  print("again", store:fenced(large, "SET", "f", "larger"))
  print("script",
    table.concat(store:fenced_eval(large, "return { KEYS[1], ARGV[1], #KEYS, #ARGV }", { "a", "b" }, "x", "y", "z"),
      " "))
  print("exact", store:fenced({ token = (1 << 53) + 1 }, "SET", "e", 1),
    (store:fenced({ token = 1 << 53 }, "SET", "e", 2)))
  err("script error", store:fenced_eval({ token = math.maxinteger }, "\nnonsense(1)", {}))
  for _, f in ipairs { function() redis.connect "http://x" end,
    function() redis.connect(url(ports[1]), { timout = 1 }) end,
    function() store:call({}) end, function() store:fenced("SET", "a", 1) end, function() redis.beside(term) end } do
    print("misuse", select(2, pcall(f)))
  end
  lunarch.exit(0)
end }
"""


def module() -> None:
    script = os.path.join(scratch(), "module.lua")
    with open(script, "w") as f:
        f.write(MODULE)
    with Redis() as server, Redis(replica_of=server) as replica:
        server.cli("ACL", "SETUSER", "u", "on", ">pass word", "allkeys", "allcommands")
        server.cli("ACL", "SETUSER", "default", "off")
        replica.cli("ACL", "SETUSER", "u", "on", ">pass word", "allkeys", "allcommands")
        c = Candidate(
            "--lock", script + ".lock", script, "--", str(server.port), str(replica.port), str(free_port()), options=()
        )
        same(c.leave(3 * PATIENCE), 0, "lunarch.redis does what it says to the end")
    said = [e["message"] for e in c.all("print")]

    def has(*words: str) -> bool:
        return any(m.startswith(words[0]) and all(w in m for w in words) for m in said)

    ok(has("set\tOK\ttrue") and has("length\ttrue"), "texts come through as they are, bytes of all kinds too")
    ok(has("nothing\ttrue") and has("kinds\tinteger\tnil\t1\t1"), "answers are values")
    ok(has("wrong\tfailed", "not an integer"), "what the server refuses is an error with its words")
    ok(has("password\tdenied") and has("nobody\tdenied"), "so is a wrong password, or none")
    ok(has("gone\tunreachable", "refused"), "so is a server that is not there")
    ok(has("replica\tOK"), "of several hosts the one is asked that is there and no replica")
    ok(has("first\tOK\tOK"), "a fenced command is done for a larger token")
    ok(
        has("older\tfenced", "FENCED") and has("older script\tfenced") and has("kept\tlarge"),
        "and refused to a smaller one: nothing is done",
    )
    ok(
        has("again\tOK") and has("script\ta x 2 3"),
        "the same token may go on; a script sees its own keys and arguments",
    )
    ok(has("exact\tOK\tnil"), "tokens beyond 2^53 are compared exactly")
    ok(
        has("script error\tfailed", "line: 2") or has("script error\tfailed", ":2:"),
        "an error in a script has its line",
    )
    same(len([m for m in said if m.startswith("misuse")]), 5, "misuse raises")
    for word in ("redis://HOST", "did you mean 'timeout'", "found a table", "expected the term", "in no Redis server"):
        ok(has("misuse", word), f"with the reason: {word}")
    ok(not any("pass word" in json.dumps(e) for e in c.events), "the password is in no log")


at_once(queue, module)
stop_everyone()
done()

#!/usr/bin/env -S PYTHONPATH=. python3
"""lunarch.shards on Redis while candidates join, leave, are killed and are cut off: never two at one shard, and at rest
all shards are shared out within one. On the same machines three slots: never two in one, and at rest as many are taken
as machines allow, each by another. Beside that three sets of shards that cannot be shared out as computed: nobody can
take a slot, a slot is held by a dead candidate whose lease runs for an hour, a candidate takes none of its share.

`make test-shards` runs it for ten minutes (MINUTES), and then it also must hold that at most twice as many shards move
as must, and that no shard is without a leader for longer than three leases. A busy machine can break these two: the
short run only tells them. SEED: for faults that were drawn before."""

import atexit
import json
import os
import random
import signal
import threading
import time
from collections import Counter

from tests.lib.candidates import Candidate, stop_everyone
from tests.lib.processes import PATIENCE, wait_for
from tests.lib.proxy import Proxy
from tests.lib.servers import Redis
from tests.lib.shard_work import Work, least_moves, shares
from tests.lib.tap import done, note, ok, same

MINUTES = float(os.environ.get("MINUTES") or 0)
SEED = int(os.environ.get("SEED") or random.randrange(10**6))
SHARDS, NAMES, LEASE = 64, "abcde", 6
TIMES = ["--lease-duration", f"{LEASE}s"]
SHORT = ("join", "cut", "kill", "heal")
SCRIPT = f"""local shards = require "lunarch.shards"
local count, program, idle = ...
return shards.elections {{
  count = tonumber(count), patience = {LEASE},
  may_lead = idle and function() return false, "it is idle" end,
  on_leading = function(_, shard)
    while assert(exec {{ program, tostring(shard) }}) do sleep(1) end
  end,
}}
"""
SLOTS, OF_SLOTS = (
    3,
    """local count, program = ...
return {
  slots = tonumber(count),
  on_leading = function(term)
    while assert(exec { program, tostring(term.slot) }) do sleep(1) end
  end,
}
""",
)
server = Redis()
atexit.register(stop_everyone)


class Scene:
    """A set of shards, or of slots, with a place of its own in the store."""

    def __init__(self, place: str, count: int, script: str = SCRIPT) -> None:
        self.place, self.work, self.script = place, Work(count), os.path.join(server.dir, place + ".lua")
        with open(self.script, "w") as f:
            f.write(script)
        self.everyone: dict[str, Candidate] = {}
        self.proxies: dict[str, Proxy] = {}
        self.since: dict[int, float] = {}  # a shard that nobody works on -> since when
        self.longest, self.seen = 0.0, False

    def begin(self, name: str, *more: str) -> Candidate:
        if name not in self.proxies:
            self.proxies[name] = Proxy(server.port)
        lock = f"redis://127.0.0.1:{self.proxies[name].port}/{self.place}/{{name}}"
        words = ["--lock", lock, "--identity", name, self.script, "--", str(self.work.shards), self.work.program, *more]
        self.everyone[name] = Candidate(*words, options=TIMES, name=name)
        return self.everyone[name]

    def holders(self) -> dict[int, str]:
        """Shard -> whose lock it is; a lock that was never taken is nobody's."""
        keys = [f"{self.place}/shard-{n}" for n in range(1, self.work.shards + 1)]
        records = json.loads(server.cli("--json", "MGET", *keys))
        return {n: json.loads(record or "{}").get("holderIdentity", "") for n, record in enumerate(records, 1)}

    def look(self) -> None:
        """For how long a shard has been without a leader that could have one: on a server that has just started nobody
        can lead for a lease after the first try of its lock. That is a lease after the start at most."""
        now, led = time.monotonic(), self.work.now()
        for n in range(1, self.work.shards + 1):
            if n in led:
                self.since.pop(n, None)
            else:
                since = self.since.setdefault(n, now if self.seen else now + 2 * LEASE)
                self.longest = max(self.longest, now - since)
        self.seen = True

    def whole(self) -> bool:
        return len(self.work.now()) == self.work.shards

    def judge(self, what: str) -> None:
        same(self.work.overlaps(), "", f"{what}: two never worked on the same at once")
        ok(self.work.tokens_grow(), f"{what}: every leader had a larger token than the one before it")
        if what == "slots":
            return
        text = f"{what}: no shard was without a leader for longer than three leases"
        told = f"{self.longest:.1f} s was the longest; {len(self.work.begun())} terms"
        note(f"{what}: {told}")
        if MINUTES:
            ok(self.longest <= 3 * LEASE, text, told)


class Storm(Scene):
    def __init__(self) -> None:
        super().__init__("storm", SHARDS)
        self.slots = Scene("slots", SLOTS, OF_SLOTS)
        self.slots.proxies = self.proxies
        self.up: set[str] = set()
        self.cut: set[str] = set()
        self.begun_ever: list[Candidate] = []
        self.moves = self.least = self.faults = 0

    def rests(self) -> bool:
        """All are worked on by who holds their locks, and shared out within one among who can reach the store; in so
        many slots as these can take, each in one."""
        led, able = self.work.now(), self.up - self.cut
        counts, in_slots = shares(led), list(self.slots.work.now().values())
        return (
            len(led) == SHARDS
            and set(counts) == able
            and len(in_slots) == len(able & set(in_slots)) == min(SLOTS, len(able))
            and max(counts.values()) - min(counts.values()) <= 1
            and led == self.holders()
        )

    def act(self, fault: str, name: str) -> None:
        if fault == "join":
            self.begun_ever.append(self.begin(name))
            self.slots.begin(name)
            self.up.add(name)
        elif fault == "leave":
            self.up.remove(name)
            self.slots.everyone[name].ask_to_stop()
            self.everyone[name].stop(patience=PATIENCE)
            self.slots.everyone[name].stop(patience=PATIENCE)
        elif fault == "kill":
            self.up.remove(name)
            self.everyone[name].kill(signal.SIGKILL)
            self.slots.everyone[name].kill(signal.SIGKILL)
        elif fault == "cut":
            self.cut.add(name)
            self.proxies[name].freeze()
        else:
            self.cut.remove(name)
            self.proxies[name].thaw()

    def whom(self, fault: str) -> str:
        """Of whom that can be; \"\": of nobody. One can always reach the store."""
        free = self.up - self.cut
        can = {"join": set(NAMES) - self.up - self.cut, "heal": self.cut & self.up}.get(fault, free)
        least = 0 if fault in ("join", "heal") else 1
        return draw.choice(sorted(can)) if len(can) > least else ""

    def ends(self) -> Counter[str]:
        """Why terms have ended, and how many."""
        return Counter(e["message"] for c in self.begun_ever for e in c.all("stopped_leading"))

    def step(self, fault: str) -> bool:
        name, before, begun, ends = self.whom(fault), self.work.now(), len(self.work.begun()), self.ends()
        if not name:
            return True
        self.act(fault, name)
        self.faults += 1
        good = wait_for(self.rests, 2 * PATIENCE)
        moves, least = len(self.work.begun()) - begun, least_moves(before, self.up - self.cut, SHARDS)
        self.moves, self.least = self.moves + moves, self.least + least
        why = ", ".join(f"{n} {text.split()[0]}" for text, n in (self.ends() - ends).items())
        note(f"{fault} {name}: {shares(self.work.now())}, {moves} moved, {least} had to; ended: {why or 'none'}")
        if "worker" in why:  # has died: nothing here does that
            for c in self.begun_ever:
                for e in c.events:
                    if "worker" in e.get("event", "") or "worker (" in e.get("message", ""):
                        note(f"{c.name} {c.pid}: {e.get('event')} {e.get('message')}")
        if not good:
            note(f"seed {SEED}: {sorted(self.up)} run, {sorted(self.cut)} are cut off; locks {shares(self.holders())}")
            note(f"slots: {self.slots.work.now()}")
            for c in (*self.everyone.values(), *self.slots.everyone.values()):
                c.log()
        return good


def without_slots() -> Scene:
    """What is no record is never overwritten: so nobody is a candidate of whom others know."""
    scene = Scene("none", 8)
    for n in range(1, 17):
        server.cli("SET", f"none/candidate-{n}", "of somebody else")
    scene.begin("f")
    scene.begin("g")
    return scene


def with_a_dead_one() -> Scene:
    """It has a state directory of its own, so nobody can prove that it is dead."""
    scene, key = Scene("dead", 8), "dead/candidate-1"
    words = ["--lock", server.url(key), "--identity", "ghost", "--state-dir", server.dir]
    ghost = Candidate(*words, "--", "sleep", "1000", command="exec", options=TIMES)
    ghost.event("became_leader")
    ghost.kill(signal.SIGKILL)
    ghost.leave()
    # Only now: on a server that has just started nobody is elected for a lease.
    record = json.loads(server.cli("GET", key)) | {"leaseDurationSeconds": 3600}
    server.cli("SET", key, json.dumps(record))
    scene.begin("h")
    scene.begin("i")
    return scene


def with_an_idle_one() -> Scene:
    scene = Scene("idle", 8)
    scene.begin("j", "idle")
    scene.begin("k")
    return scene


draw = random.Random(SEED)
note(f"seed {SEED}")
storm = Storm()
others = {
    "no slot to be had": without_slots(),
    "a dead candidate's slot": with_a_dead_one(),
    "one that takes nothing": with_an_idle_one(),
}
over = threading.Event()


def look() -> None:
    while not over.wait(0.25):
        for scene in (storm, *others.values()):
            scene.look()


watcher = threading.Thread(target=look, daemon=True)
watcher.start()
storm.act("join", storm.whom("join"))
ok(storm.step("join"), "the first two candidates share them out")
if MINUTES:
    end, good = time.monotonic() + 60 * MINUTES, True
    while good and time.monotonic() < end:
        good = storm.step(draw.choice(["join", "join", "leave", "kill", "cut", "heal"]))
    ok(good, f"after each of {storm.faults} faults all shards are shared out within one among who is there")
    ok(storm.moves <= 2 * storm.least, "at most twice as many shards have moved as had to")
else:
    for fault in SHORT:
        ok(storm.step(fault), f"{fault}: all shards are shared out within one among who is there")
for name, scene in others.items():
    ok(wait_for(scene.whole), f"{name}: every shard is led")
over.set()
watcher.join()
note(f"{storm.faults} faults, {storm.moves} moved, {storm.least} had to")
storm.judge("storm")
storm.slots.judge("slots")
for name, scene in others.items():
    scene.judge(name)
stop_everyone()
server.close()
wait_for(lambda: not any(p.pairs for scene in (storm, *others.values()) for p in scene.proxies.values()))
done()

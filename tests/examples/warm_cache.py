#!/usr/bin/env -S PYTHONPATH=. python3
"""examples/warm_cache.lua on a real Redis: the first answer after a hand-over, from a cache that came with on_next, and
from one that is loaded when the term begins."""

import os
import signal
import time
from typing import Any

from tests.lib.candidates import WATCHED, Candidate, stop_everyone
from tests.lib.next_arena import LATER, NextArena
from tests.lib.processes import ROOT, wait_for
from tests.lib.stores import Redis
from tests.lib.tap import done, note, ok, same

LOAD_S = 3
SCRIPT = os.path.join(ROOT, "examples", "warm_cache.lua")
store = Redis()


def play(what: str, script: str) -> None:
    """a leads, b comes next; a is stopped, and a client asks until it has an answer."""
    f = NextArena(store, what)
    asked, answered = os.path.join(f.dir, "moon.ask"), os.path.join(f.dir, "moon.answer")

    def join(name: str) -> Any:
        source = ["sh", "-c", f"sleep {LOAD_S}; echo 'moon 384400 km'"]
        return Candidate("--lock", f.lock, "--identity", name, script, "--", f.dir, *source, options=WATCHED, name=name)

    def ask() -> str:
        open(asked, "w").close()
        if not wait_for(lambda: os.path.exists(answered), LATER):
            return ""
        with open(answered) as file:
            text = file.read()
        os.unlink(answered)
        return text

    a = join("a")
    ok(a.wait("became_leader", patience=LATER), f"{what}: a leads")
    same(ask(), "384400 km\n", f"{what}: and answers")
    b = join("b")
    warm = script == SCRIPT
    ok(f.agreed("b") and (not warm or b.wait("cache_loaded", patience=LATER)), f"{what}: b comes next")
    loaded = len(b.all("cache_loaded"))
    same(loaded, int(warm), f"{what}: the caches that it has loaded before it leads: {int(warm)}")
    since = time.monotonic()
    a.kill(signal.SIGTERM)
    a.leave()
    same(ask(), "384400 km\n", f"{what}: b answers when a has stopped")
    note(f"{what}: the first answer came {time.monotonic() - since:.3f} s after a was told to stop")
    ok(b.wait("cache_loaded"), f"{what}: from a cache that it has")
    b.stop()
    f.end()


play("warm", SCRIPT)
cold = os.path.join(NextArena(store, "cold").dir, "cold.lua")
with open(cold, "w") as file:
    file.write(f"local t = assert(loadfile [[{SCRIPT}]])(...)\nt.on_next = nil\nreturn t\n")
play("cold", cold)
stop_everyone()
store.end()
done()

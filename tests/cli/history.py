#!/usr/bin/env -S PYTHONPATH=. python3
"""history: the last terms of a lock, on real stores: who led, with which token, and why each term ended."""

import atexit
import json
import os
import signal
from typing import Any

from tests.lib import stores
from tests.lib.candidates import Candidate, stop_everyone
from tests.lib.commands import run
from tests.lib.lock_driver import record
from tests.lib.processes import LUNARCH
from tests.lib.tap import at_once, done, note, ok, same


def terms(lock: str) -> Any:
    r = run("history", "--json", "--lock", lock)
    return json.loads(r.stdout)["terms"] if r.stdout else note(r.stderr)


def ends(lock: str) -> list[tuple[str, str]]:
    return [(t["identity"], t["reason"]) for t in terms(lock)]


def enter(lock: str, name: str, script: str = "sleep(1e6)", **kw: Any) -> Candidate:
    return Candidate("-e", script, "--lock", lock, "--identity", name, name=name, **kw)


def every_end(store: Any) -> None:
    s, lock = store.name, store.url("job")
    r = run("history", "--lock", lock)
    same((r.returncode, "there is no record" in r.stderr), (1, True), f"{s}: where nobody has led, history is 1")
    a = enter(lock, "a")
    ok(a.wait("became_leader"), f"{s}: a leads")
    same([(t["identity"], t["lasts"]) for t in terms(lock)], [("a", True)], f"{s}: its term lasts")
    b = enter(lock, "b", options=("--lease-duration", "6s", "--state-dir", os.path.dirname(LUNARCH)))
    ok(b.wait("new_leader"), f"{s}: b stands by")
    a.stop()
    ok(b.wait("became_leader"), f"{s}: a shuts down, and b leads")
    b.kill(signal.SIGHUP)
    ok(b.wait("became_leader", count=2), f"{s}: b is reloaded, and begins another term")
    b.kill(signal.SIGKILL)
    b.leave()
    c = enter(lock, "c", "term:resign()", options=("--lease-duration", "6s", "--once"))
    c.leave()
    got = terms(lock)
    same(
        ends(lock)[:2] + [e for e in ends(lock)[3:]],
        [("a", "shutdown"), ("b", "reload"), ("c", "resigned")],
        f"{s}: each term is there, with the reason that its leader gave",
    )
    ok(got[2]["reason"] in ("unknown", "died"), f"{s}: of who was killed, nobody knows more than that it is gone")
    same([t["token"] for t in got], sorted({t["token"] for t in got}), f"{s}: the tokens rise")
    ok(all(t["lastedMs"] >= 0 for t in got), f"{s}: how long each lasted is there")
    same([t["gapMs"] is None for t in got], [True, False, False, False], f"{s}: and the time without a leader between")
    same(got[2]["gapMs"], 0, f"{s}: which a reload has not")
    r = run("history", "--lock", lock)
    lines = [line.split() for line in r.stdout.splitlines()]
    same((r.returncode, lines[0]), (0, "LEADER TOKEN FROM TO LASTED ENDED GAP".split()), f"{s}: a table has titles")
    same([line[0] for line in lines[1:]], [t["identity"] for t in got], f"{s}: and the same terms, the oldest first")
    store.end()


def eight() -> None:
    store = stores.File()
    lock = store.url("job")
    for i in range(11):
        run("exec", "--lock", lock, "--identity", f"n{i}", "--", "true")
    same(ends(lock), [(f"n{i}", "done") for i in range(3, 11)], "eight terms are kept, the last ones")
    store.end()


def by_force() -> None:
    store = stores.File()
    lock = store.url("job")
    a = enter(lock, "a")
    a.wait("became_leader")
    token = str(terms(lock)[0]["token"])
    a.kill()
    a.leave()
    r = run("release", "--force", "--lock", lock, "--reason", "it is dead", "--token", token)
    same((r.returncode, ends(lock)), (0, [("a", "forced")]), "a term that was released by force is said to be")
    run("exec", "--lock", lock, "--identity", "b", "--", "true")
    same(ends(lock), [("a", "forced"), ("b", "done")], "and is noted once")
    store.end()


def hostile() -> None:
    store = stores.File()
    for i, past in enumerate(("x", [{}] * 5000, [{"identity": "m", "token": 1 << 62, "from": -1}], {"a": [7]})):
        key = f"job{i}"
        store.put(key, json.dumps(record("gone", pastTerms=past, leaseDurationMs=1000)).encode())
        r = run("exec", "--lock", store.url(key), "--lease-duration", "1s", "--identity", "b", "--", "true")
        same(r.returncode, 0, f"a record with past terms like {str(past)[:30]} is taken over as any other")
        same(ends(store.url(key)), [("gone", "unknown"), ("b", "done")], "and its past terms are replaced by true ones")
    store.end()


def usage() -> None:
    r = run("history")
    same(r.returncode, 2, "without a lock it is a usage error")
    r = run("history", "--lock", "file:/nonexistent/x/y")
    same(r.returncode, 69, "a lock that cannot be reached is 69")


def main() -> None:
    atexit.register(stop_everyone)
    cases = [lambda c=c: every_end(c()) for c in (stores.File, stores.Etcd, stores.Redis, stores.ZooKeeper)]
    at_once(eight, by_force, hostile, usage, *cases)


main()
done()

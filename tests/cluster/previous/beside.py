#!/usr/bin/env -S PYTHONPATH=. python3
"""The version before this one, built from its commit, beside this one on one lock: each leads after the other, by every
way in which a term can end, and what either saved the other loads; and beside two of this one, of which one comes next.
PREVIOUS: the directory that has its program."""

import os
import signal
import subprocess
from typing import Any

from tests.lib import servers
from tests.lib import stores
from tests.lib.candidates import WATCHED
from tests.lib.field import Field
from tests.lib.next_arena import NextArena
from tests.lib.processes import LUNARCH, PATIENCE, wait_for
from tests.lib.tap import at_once, done, ok, same

OLD, NEW = os.path.join(os.environ["PREVIOUS"], "lunarch"), LUNARCH
# Whether the one before knows who comes next: then it may be it itself.
KNOWS = "--priority" in subprocess.run([OLD, "run", "--help"], capture_output=True, text=True, timeout=PATIENCE).stdout


def join(f: Any, name: str, program: Any, lock: str) -> Any:
    return f.join(name, program=program, lock=lock)


def turns(store: Any, lock: str | None = None) -> None:
    f = Field(f"previous-{store}")
    lock = lock or f.lock
    play = {"old": OLD, "new": NEW}
    c = {"old": join(f, "old", OLD, lock)}
    f.acts(1, "old")
    c["new"] = join(f, "new", NEW, lock)
    ok(c["new"].wait("new_leader", "old leads"), f"{store}: this version reads what the one before it wrote")
    led = {"old": 1, "new": 0}
    for how, sig in (("resigns", signal.SIGUSR1), ("is killed", signal.SIGKILL), ("is stopped", signal.SIGTERM)):
        for one, other in (("old", "new"), ("new", "old")):
            wait_for(lambda: len(c[one].said("saved ")) > 2)
            c[one].kill(sig)
            led[other] += 1
            ok(f.acts(led[other], other), f"{store}: {one} {how}, {other} leads")
            if sig != signal.SIGUSR1:
                c[one].leave()
                c[one] = join(f, one, play[one], lock)
            wait_for(lambda: c[one].all("new_leader", f"{other} leads"))
    f.verdict(store)
    f.end()


def on_file() -> None:
    turns("file")


def on_etcd() -> None:
    with servers.Etcd() as server:
        turns("etcd", server.url("job"))


def on_redis() -> None:
    """With its name in braces: each version has fields of its own for the doubt, and who finds none waits a lease,
    once."""
    with servers.Redis("--appendonly", "yes", "--appendfsync", "always") as server:
        lock = server.url("%7Bjob%7D")
        r = subprocess.run(
            [NEW, "exec", *WATCHED, "--lock", lock, "--", "true"], capture_output=True, text=True, timeout=PATIENCE
        )
        same((r.returncode, server.cli("HGET", "{job}:lunarch", "doubt{}")), (0, ""), "redis: this version leads first")
        turns("redis", lock)


def three(store: Any) -> None:
    """Two of this version and one of the one before. One that knows nothing of who comes next competes at once after a
    release that is for another, and keeps in its own records what it does not know."""
    f = NextArena(store, "three")
    also = ["old"] if KNOWS else []
    c: dict[str, Any] = {}
    play = {"old": OLD, "new": NEW, "newer": NEW}

    def enter(name: str) -> None:
        c[name] = f.join(name, program=play[name])

    def stop(*names: str) -> Any:
        """One after the other; who leads then, among those that are left."""
        for name in names:
            c[name].stop()
        left = set(play) - set(names)
        return wait_for(lambda: (f.terms()[-1:] or [("", "")])[0][1] in left and f.terms()[-1][1])

    for name in ("new", "newer", "old"):
        enter(name)
        ok(f.acts(1, "new") if name == "new" else c[name].wait("new_leader"), f"{f.name}: {name} is there")
    ok(f.agreed("newer", *also), f"{f.name}: {' or '.join(['newer', *also])} comes next")
    ok(stop("new") in ("newer", "old"), f"{f.name}: after a release that is for newer, newer or old leads")
    enter("new")
    ok(c["new"].wait("new_leader"), f"{f.name}: new is back")
    ok(stop("new", "newer") == "old", f"{f.name}: without the two, old leads")
    for name in ("new", "newer"):
        enter(name)
        ok(c[name].wait("new_leader", "old leads"), f"{f.name}: {name} follows old")
    ok(KNOWS or not f.published(), f"{f.name}: old says nothing of who comes next, or knows it")
    ok(stop("old") in ("new", "newer"), f"{f.name}: it stops, and another leads")
    enter("old")
    ok(f.agreed("new", "newer", *also), f"{f.name}: and somebody comes next again")
    f.close()
    store.end()


def three_on_file() -> None:
    three(stores.File())


def three_on_etcd() -> None:
    three(stores.Etcd())


at_once(on_file, on_etcd, on_redis, three_on_file, three_on_etcd)
done()

#!/usr/bin/env -S PYTHONPATH=. python3
"""Sentinels and servers of Redis that die, hang, and lose each other, while candidates want the lock that the Sentinels
name: nobody leads beside another, nobody leads without a majority, and somebody leads again afterwards.

Each fault once; ROUNDS=n: n that are drawn, SEED=s for those of before."""

import json
import os
import random
import signal
import time
from collections.abc import Callable
from typing import Any

from tests.lib.candidates import WATCHED, Candidate, stop_everyone
from tests.lib.field import FAULTS, Field
from tests.lib.processes import wait_for
from tests.lib.sentinel_site import REPLICAS, SENTINELS, Site
from tests.lib.tap import done, failures, note, ok

ROUNDS = int(os.environ.get("ROUNDS", "0"))
SEED = int(os.environ.get("SEED", str(random.randrange(10**6))))


class Watched(Field):
    def __init__(self) -> None:
        super().__init__("sentinel")
        self.site = Site(3)
        self.names = iter(f"{letter}{n}" for n in range(10**6) for letter in "abc")
        for _ in range(3):
            self.enter()

    def enter(self) -> None:
        name = next(self.names)
        self.join(name, lock=self.site.url(), times=WATCHED, script=os.path.join(FAULTS, "still.lua"))

    def checkpoints(self, kept: bool = False) -> list[Any]:
        return []  # a lost term's are lost with it

    def record(self) -> dict[str, Any]:
        primary = self.site.primary()
        try:
            return json.loads(primary.cli("GET", "x") if primary else "{}") or {}
        except ValueError:
            return {}

    def renewed(self) -> bool:
        """Somebody leads, and renews from now on."""
        before = self.record().get("write")

        def again() -> bool:
            r = self.record()
            return r.get("state") == "leading" and r.get("write") != before

        return bool(wait_for(again)) and bool(self.leader())

    def leader(self) -> Candidate | None:
        """By the record."""
        who = self.record().get("holderIdentity")
        return next((c for c in self.candidates if c.name == who), None)


def primary_killed(f: Watched) -> None:
    old = f.site.primary()
    old.kill()
    f.site.promoted(old)
    ok(f.renewed(), "on the promoted one somebody leads")
    old.start()


def primary_stopped(f: Watched) -> None:
    old = f.site.primary()
    old.pause()
    f.site.promoted(old)
    ok(f.renewed(), "on the promoted one somebody leads")
    old.resume()


def primary_cut_off(f: Watched) -> None:
    """From Sentinels and replicas alone: the candidates reach it, and what they wrote there last is lost."""
    old = f.site.primary()
    f.site.ways[old].refuse(SENTINELS, REPLICAS)
    new = f.site.promoted(old)
    ok(f.renewed(), "on the promoted one somebody leads")
    shown = old.cli("GET", "x")
    ok(old.cli("ROLE").startswith("master") and f.renewed(), "the old one still calls itself the primary")
    ok(old.cli("GET", "x") == shown != new.cli("GET", "x"), "and nobody renews there any more")
    f.site.ways[old].refuse()


def primary_cut_off_leader_dies(f: Watched) -> None:
    """The same, and the term that the old primary knows is let go there, and followed by another one."""
    old = f.site.primary()
    f.site.ways[old].refuse(REPLICAS)
    leader = f.leader()
    assert leader
    leader.kill(signal.SIGTERM)
    leader.leave()
    f.enter()
    ok(f.renewed(), "another leads, and no replica knows of it")
    f.site.ways[old].refuse(SENTINELS, REPLICAS)
    f.site.promoted(old)
    ok(f.renewed(), "on the promoted one somebody leads")
    f.site.ways[old].refuse()


def one_sentinel_killed(f: Watched) -> None:
    one = random.choice(f.site.group)
    one.kill()
    ok(f.renewed(), "with two Sentinels somebody leads")
    one.start()


def without_majority(f: Watched, hurt: Callable[[Any], None], heal: Callable[[Any], None]) -> None:
    two = random.sample(f.site.group, 2)
    stopped = {c: len(c.all("stopped_leading")) for c in f.candidates}
    leader = f.leader()
    assert leader
    for s in two:
        hurt(s)
    over = leader.wait("stopped_leading", count=stopped[leader] + 1)
    ok(over, "without a majority of the Sentinels the term ends")
    terms = len(f.terms())
    time.sleep(9)  # longer than a lease
    ok(len(f.terms()) == terms, "and nobody leads")
    for s in two:
        heal(s)


def two_sentinels_killed(f: Watched) -> None:
    without_majority(f, lambda s: s.kill(), lambda s: s.start())


def two_sentinels_stopped(f: Watched) -> None:
    without_majority(f, lambda s: s.pause(), lambda s: s.resume())


def leader_killed(f: Watched) -> None:
    leader = f.leader()
    assert leader
    leader.kill(signal.SIGKILL)
    f.enter()


ALL = [
    primary_killed,
    primary_stopped,
    primary_cut_off,
    primary_cut_off_leader_dies,
    one_sentinel_killed,
    two_sentinels_killed,
    two_sentinels_stopped,
    leader_killed,
]
random.seed(SEED)
note(f"SEED={SEED}")
field = Watched()
for count, fault in enumerate(random.choices(ALL, k=ROUNDS) if ROUNDS else ALL):
    ok(field.renewed(), f"{fault.__name__}: before it somebody leads")
    began = time.monotonic()
    fault(field)
    ok(wait_for(field.site.whole), f"{fault.__name__}: the servers are whole again")
    ok(field.renewed(), f"{fault.__name__}: somebody leads again")
    note(f"{count + 1}: {fault.__name__} took {time.monotonic() - began:.1f} s, {len(field.terms())} terms so far")
if not field.verdict(field.name) or failures():
    field.logs()
field.end()
field.site.close()
stop_everyone()
done()

#!/usr/bin/env -S PYTHONPATH=. python3
"""The election at the level of commands: one candidate, two, a third that joins, other settings rolled out; and every
term holds what only one living process can hold."""

import signal
import time

from tests.lib.field import Field, freeze
from tests.lib.tap import at_once, done, ok, same


def alone() -> None:
    f = Field("alone")
    a = f.join("a")
    ok(f.acts(1, "a") and a.wait("became_leader"), "alone: one candidate elects itself")
    same(a.stop(), 0, "alone: it leaves with 0")
    same(f.record()["holderIdentity"], "", "alone: having released what it held")
    same([len(a.said(w)) for w in ("started", "leading", "stopped")], [1, 1, 1], "alone: each hook ran once")
    f.end()


def either_survives() -> None:
    """Two candidates; whichever leads is stopped, or killed, and the other one leads; then the same the other way
    round."""
    f = Field("two")
    a, b = f.join("a"), f.join("b")
    ok(f.acts(1), "two: one of them leads")
    first = f.terms()[0][1]
    one, other = (a, b) if first == "a" else (b, a)
    other.wait("new_leader")
    same(len(f.terms()), 1, "two: and only one")
    one.stop()
    ok(f.acts(1, other.name), "two: the leader is stopped, and the other leads")
    one = f.join(one.name)
    one.wait("new_leader")
    other.kill(signal.SIGKILL)
    ok(f.acts(2, one.name), "two: that one is killed, and the first, started again, leads")
    f.verdict("two")
    f.end()


def a_third_joins() -> None:
    f = Field("three")
    a = f.join("a")
    f.acts(1, "a")
    b, c = f.join("b"), f.join("c")
    ok(
        b.wait("new_leader", "a leads") and c.wait("new_leader", "a leads"),
        "a third: others join with nothing but the lock's name, and see who leads",
    )
    a.stop()
    ok(f.acts(2), "a third: one of them takes over")
    second = f.terms()[1][1]
    one, other = (b, c) if second == "b" else (c, b)
    ok(other.wait("new_leader", f"{second} leads"), "a third: the other sees it")
    one.stop()
    ok(f.acts(1, other.name), "a third: and is the next when that one stops")
    f.verdict("a third")
    f.end()


def rolling() -> None:
    """3 s, 9 s, 3 s: the candidates are replaced one after the other, each leader once cleanly and once by being
    frozen, so that others must wait by what the record says and not by their own settings."""
    f = Field("rolling")
    short, long = ["--lease-duration", "3s"], ["--lease-duration", "9s"]
    a = f.join("a", times=short)
    f.acts(1, "a")
    b = f.join("b", times=long)
    b.wait("new_leader", "a leads")
    same(f.record()["leaseDurationMs"], 3000, "rolling out 9 s: a follower changes nothing in the record")
    freeze(a, f.lock)
    ok(f.acts(1, "b"), "rolling out 9 s: a leader that is frozen is waited out by its own lease")
    same(f.record()["leaseDurationMs"], 9000, "rolling out 9 s: the new leader publishes its own")
    a.stop()
    c = f.join("c", times=short)
    c.wait("new_leader", "lease 9s")
    freeze(b, f.lock)
    before = time.monotonic()
    ok(f.acts(1, "c"), "back to 3 s: one with 3 s takes over from one with 9 s")
    ok(time.monotonic() - before > 4, "back to 3 s: but not after 3 s, though its own lease is that short")
    same(f.record()["leaseDurationMs"], 3000, "back to 3 s: and the record says 3 s again")
    b.stop()
    d = f.join("d", times=short)
    d.wait("new_leader", "c leads")
    c.stop()
    ok(f.acts(1, "d"), "back to 3 s: and a clean stop hands over at once")
    f.verdict("other settings")
    f.end()


at_once(alone, either_survives, a_third_joins, rolling)
done()

"""Pokes (--poke) on a store without notices: a release, a request and a proved death are told to the candidate that
comes next by one datagram, and datagrams that are forged, repeated, late or lost do nothing. What is shown is the
order of events. Used by tests/cluster/faults/poke_mysql.py and poke_s3.py."""

import json
import os
import re
import signal
import socket
from collections.abc import Sequence
from typing import Any

from tests.lib.arena import whole
from tests.lib.asked import LONG, Asked, until
from tests.lib.candidates import timing
from tests.lib.tap import note, ok, same

# A poll comes each 4 to 8.8 s, so that it seldom comes in the milliseconds that a poke takes.
SLOW = timing("9s", renew="7s", retry="4s", stop_grace="500ms", kill="500ms", drift="500ms")
IDLE = "sleep(1e6)"
WORD = b"lunarch-poke:"


class Election:
    def __init__(self, store: Any, key: str) -> None:
        self.store, self.key, self.url = store, key, store.url(key)

    def join(self, name: str, poke: str | None = "auto", url: str = "", prefix: Sequence[str] = ()) -> Asked:
        return Asked(
            *("--lock", url or self.url, "--identity", name, "--log-level", "debug", "-e", IDLE),
            *(("--poke", poke) if poke else ()),
            options=SLOW,
            name=name,
            prefix=prefix,
        )

    def read(self, key: str) -> Any:
        return json.loads(self.store.get(key) or b"{}")

    def published(self) -> Any:
        """Who comes next, as the leader says."""
        record = self.read(self.key)
        said = record.get("next") or {}
        return said if record.get("holderIdentity") and said.get("term") == record.get("term") else {}

    def agreed(self, name: str) -> Any:
        """Waits until the record of the next and the leader name this one, with one and the same key."""

        def look() -> Any:
            mine = self.read(self.store.next_key(self.key))
            said, nomination = self.published(), mine.get("nomination", {})
            same_key = said.get("pokeKey") == nomination.get("pokeKey")
            return said.get("identity") == name == mine.get("holderIdentity") and same_key and said

        return until(look)


def heard(c: Asked) -> float:
    return c.metric("lunarch_pokes_total", 'what="heard"')


def sent(c: Asked) -> float:
    return c.metric("lunarch_pokes_total", 'what="sent"')


def before(c: Asked, first: str, then: str, count: int = 1) -> bool:
    """The last `first` came before the so-many-th `then`."""
    c.wait(then, count=count, patience=LONG)
    names = [e.get("event") for e in list(c.events)]
    at = [i for i, name in enumerate(names) if name == then]
    return len(at) >= count and first in names[: at[count - 1]]


def send(address: str, *datagrams: bytes) -> None:
    host, port = address.rsplit(":", 1)
    with socket.socket(socket.AF_INET6 if "[" in host else socket.AF_INET, socket.SOCK_DGRAM) as s:
        for d in datagrams:
            s.sendto(d, (host.strip("[]"), int(port)))


def hostile(f: Election, name: str, b: Asked, c: Asked) -> tuple[str, bytes]:
    """Datagrams at the port of the one that comes next. What is sent first is read first, so the last one, which has
    the key, shows that those before it have been."""
    said = f.agreed("b")
    address, key = said["poke"], said["pokeKey"].encode()
    ok(
        re.fullmatch(r"127\.0\.0\.1:\d+", address) and re.fullmatch(rb"[0-9a-f]{32}", key),
        f"{name}: where it hears one",
    )
    same(c.status()["next"]["self"], False, f"{name}: another candidate does not come next")
    forged = [b"", b"x", WORD, WORD + key[:-1], WORD + key + b"0", key, WORD + key.upper() + b" ", b"\0" * 45]
    forged += [WORD + os.urandom(16).hex().encode() for _ in range(100)]
    send(address, *forged, *([WORD + key] * 5))
    ok(b.wait("poked", patience=LONG), f"{name}: a datagram with the key leads to a look")
    ok("a leader says that the record has changed" in b.ctl("why")[1], f"{name}: which `ctl why` tells")
    same((heard(b), len(b.all("poked"))), (1, 1), f"{name}: one, though it comes five times, after 108 that are forged")
    ok(not b.all("became_leader"), f"{name}: and nobody leads by it")
    ok(until(lambda: f.agreed("b")["pokeKey"].encode() != key), f"{name}: a key that is spent is replaced")
    return address, key


def hand_overs(f: Election, name: str, a: Asked, b: Asked, c: Asked, old: tuple[str, bytes]) -> None:
    said = f.agreed("b")
    a.ask_to_stop()
    ok(before(b, "poked", "became_leader"), f"{name}: who comes next is told, and leads")
    same((heard(b), a.leave()), (2, 0), f"{name}: by one datagram")
    same(len(a.all("pokes")), 1, f"{name}: the leader says that it told, once")
    for address, key in (old, (said["poke"], said["pokeKey"].encode())):
        send(address, WORD + key)
    same((heard(b), b.status()["leading"]), (2, True), f"{name}: what comes late, to a leader, does nothing")
    ok(f.agreed("c"), f"{name}: then c comes next")
    same(b.ctl("handover", patience=LONG)[0], 0, f"{name}: ctl handover succeeds")
    ok(before(c, "poked", "became_leader"), f"{name}: the one that is to lead was told of the request")
    ok(sent(b) >= 1 and heard(c) >= 1, f"{name}: and it is counted", (sent(b), heard(c)))


def proved(f: Election, name: str, b: Asked, c: Asked) -> None:
    """The holder is killed, the one that comes next is stopped, and a third proves the death."""
    ok(f.agreed("b"), f"{name}: b comes next")
    d = f.join("d")
    d.event("new_leader")
    was = heard(b)
    b.kill(signal.SIGSTOP)
    for pid in whole(c):
        c.kill(signal.SIGKILL, pid)
    c.leave()
    ok(before(d, "holder_dead", "became_leader"), f"{name}: who proves the death leads")
    ok(d.wait("pokes"), f"{name}: and tells the one that came next")
    b.kill(signal.SIGCONT)
    ok(until(lambda: heard(b) == was + 1) and b.wait("new_leader", "d leads"), f"{name}: which sees who leads")


def play(store: Any) -> None:
    name, f = store.name, Election(store, "poke")
    a = f.join("a")
    a.event("became_leader")
    b = f.join("b")
    ok(f.agreed("b"), f"{name}: b comes next")
    c = f.join("c")
    c.event("new_leader")
    old = hostile(f, name, b, c)
    hand_overs(f, name, a, b, c, old)
    proved(f, name, b, c)
    for one in (b, c):
        note(f"{one.name}: {[e['event'] for e in one.events if e['event'] in ('poked', 'pokes', 'became_leader')]}")


def without(store: Any) -> None:
    """A candidate that has no --poke says nothing, and sends nothing."""
    name, f = store.name, Election(store, "plain")
    a = f.join("a", poke=None)
    a.event("became_leader")
    b = f.join("b")
    said = f.agreed("b")
    ok(said and said["poke"], f"{name}: a leader without --poke passes on where the next hears one")
    a.stop()
    ok(b.wait("became_leader", patience=LONG), f"{name}: and its next leads by polling")
    same((sent(a) if a.process.poll() is None else len(a.all("pokes")), heard(b)), (0, 0), f"{name}: untold")
    a = f.join("a", poke=None)
    ok(until(lambda: f.published().get("identity") == "a"), f"{name}: who has no --poke comes next, too")
    same("poke" in f.published(), False, f"{name}: and publishes no address")
    b.stop()
    ok(a.wait("became_leader", patience=LONG), f"{name}: it leads by polling")
    same(len(b.all("pokes")), 0, f"{name}: and nothing was sent")

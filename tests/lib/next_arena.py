"""Elections in which the one that comes next is hurt around a hand-over, or the record N that names it. What is shown:
there are never two leaders, and what N says costs time at most, the hold-back and no lease."""

import json
import os
import signal
import time
import uuid
from typing import Any

from tests.lib.arena import Arena, whole
from tests.lib.candidates import WATCHED, timing
from tests.lib.field import FAULTS
from tests.lib.processes import PATIENCE, moment, wait_for
from tests.lib.tap import at_once, done, failures, note, ok, same

FULL = bool(os.environ.get("FULL"))
RUNS = 5 if FULL else 1
# The leader looks at N once a lease; the hold-back is half a second; before N is taken there are 4 s of random pause at
# most.
FAR_S = 20
FAR = timing(f"{FAR_S}s", renew="8s", retry="300ms", stop_grace="500ms", kill="750ms", drift="750ms")
LATER = 3 * PATIENCE  # for what may wait for several leases
NAMES = {"etcd": "{}.next", "file": ".{}.next", "postgres": "{}.next", "redis": "{{{}}}:next", "zookeeper": "{}.next"}
FOREIGN = b"the configuration of another program"


class NextArena(Arena):
    def __init__(self, store: Any, what: str) -> None:
        super().__init__(store, what)
        self.rename(self.key)

    def rename(self, key: str) -> None:
        self.key, self.lock = key, self.store.url(key)
        self.next_key = NAMES[self.store.name].format(key)

    def published(self) -> str | None:
        """Whom the leader says to come next; None: nobody, or nobody leads."""
        found = self.store.get(self.key)
        record = json.loads(found) if found else {}
        said = record.get("next") or {}
        return said.get("identity") if said.get("term") == record.get("term") else None

    def nomination(self) -> dict[str, Any] | None:
        """N; None: it is absent, or is none."""
        try:
            found = json.loads(self.store.get(self.next_key) or b"null")
        except ValueError:
            return None
        return found if isinstance(found, dict) and "nomination" in found else None

    def nominated(self) -> str | None:
        return (self.nomination() or {}).get("holderIdentity")

    def agreed(self, *names: str) -> Any:
        """Waits until N names one of these, and the leader publishes that one."""
        return wait_for(
            lambda: self.nominated() in names and self.published() == self.nominated() and self.published(), LATER
        )

    def cast(self, through: Any = None, times: Any = FAR, **kw: Any) -> Any:
        """a leads, b comes next (through a proxy, if there is one), c waits."""
        joined = []
        for name in "abc":
            lock = self.store.url(self.key, through) if through and name == "b" else self.lock
            joined.append(self.join(name, "--address", f"{name}:1", lock=lock, times=times, **kw))
            if name == "a":
                ok(self.acts(1, "a"), f"{self.name}: a leads")
            elif name == "b":
                ok(self.agreed("b"), f"{self.name}: b comes next, as the leader says")
            else:
                joined[-1].wait("new_leader")
        return joined

    def close(self) -> None:
        self.verdict(self.name)
        if failures():
            self.logs()
        self.end()
        self.store.delete(self.key)
        self.store.delete(self.next_key)


def end(c: Any) -> None:
    """Elector, guard and worker, in one moment."""
    for pid in whole(c):
        c.kill(signal.SIGKILL, pid)
    c.leave()


def hands_over(f: NextArena, leader: Any, count: int, *names: str, when: Any = None) -> None:
    """The leader ends its term; the next one is one of theirs, and began sooner than a lease later. when: what lets the
    term end, if it is not SIGTERM."""
    since, wall = time.monotonic(), time.time()
    when() if when else leader.kill(signal.SIGTERM)
    ok(f.next(count, since) in names, f"{f.name}: {' or '.join(names)} leads")
    took = moment(f.record()["acquireTime"]) - wall
    ok(took < FAR_S, f"{f.name}: and has not waited for a lease ({took:.3f} s)")


def next_killed(f: NextArena) -> None:
    a, b, c = f.cast()
    end(b)
    hands_over(f, a, 2, "c")
    same(a.leave(), 0, f"{f.name}: a left in peace")


def next_frozen(f: NextArena) -> None:
    a, b, c = f.cast()
    b.kill(signal.SIGSTOP)
    hands_over(f, a, 2, "c")
    b.kill(signal.SIGCONT)
    ok(b.wait("new_leader", "c leads"), f"{f.name}: b, continued, follows c")
    same(len(f.terms()), 2, f"{f.name}: and does not lead itself")


def next_cut_off(f: NextArena) -> None:
    """b hears nothing, and nobody hears it; what it sent before goes on when c leads."""
    proxy = f.store.proxy()
    a, b, c = f.cast(through=proxy)
    proxy.freeze()
    hands_over(f, a, 2, "c")
    proxy.thaw()
    ok(b.wait("new_leader", "c leads"), f"{f.name}: b follows c when it hears of it")
    same(len(f.terms()), 2, f"{f.name}: and does not lead itself")
    proxy.close()


def next_restarted(f: NextArena) -> None:
    """Its next life has its identity, and is another candidate: the release is not for it."""
    a, b, c = f.cast()
    end(b)
    again = f.join("b", "--address", "b:1", times=FAR)
    ok(again.wait("new_leader", "a leads"), f"{f.name}: b is back before a stops")
    hands_over(f, a, 2, "b", "c")


def next_killed_while_draining(f: NextArena) -> None:
    """Between the leader's decision to end its term and its release."""
    a, b, c = f.cast(script=os.path.join(FAULTS, "drain.lua"))
    a.kill(signal.SIGTERM)
    ok(a.wait("print", "drains"), f"{f.name}: a drains")
    end(b)
    hands_over(f, a, 2, "c", when=lambda: open(f.witness + ".drained", "w").close())


def next_answer_lost(f: NextArena) -> None:
    """b's acquisition is written, and the answer to it is lost with the connection."""
    proxy = f.store.proxy()
    a, b, c = f.cast(through=proxy)
    proxy.lose_answer_to(b'"leading"')
    hands_over(f, a, 2, "b", "c")
    proxy.close()


def next_killed_as_it_leads(f: NextArena) -> None:
    """Just after the hand-over: a crash like any other, which costs a lease."""
    a, b, c = f.cast(times=WATCHED)
    since = time.monotonic()
    a.kill(signal.SIGTERM)
    first = wait_for(lambda: next((x for x in (b, c) if x.all("became_leader")), None))
    other = b if first is c else c
    if ok(first, f"{f.name}: one of the others leads"):
        end(first)
        ok(f.acts(1, other.name, LATER), f"{f.name}: it is killed at once, and the last one leads")
        note(f"{f.name}: that took {time.monotonic() - since:.3f} s")


def nobody_there(f: Any) -> None:
    """N names somebody who does not exist, with the largest priority: it is released for that one."""
    a, b, c = f.cast()
    ghost = f.nomination()
    ghost.update(holderIdentity="ghost", incarnation=str(uuid.uuid4()), write="e" * 32)
    ghost["nomination"]["priority"] = 1000000000
    f.store.put(f.next_key, json.dumps(ghost).encode())
    ok(wait_for(lambda: f.published() == "ghost", LATER), f"{f.name}: the leader says that a ghost comes next")
    hands_over(f, a, 2, "b", "c")


def altered(f: Any) -> None:
    """N deleted, and overwritten by what is none: a lock's record, another program's."""
    a, b, c = f.cast(times=WATCHED)
    first = f.nomination()["incarnation"], f.nomination()["write"]
    f.store.delete(f.next_key)
    ok(
        wait_for(lambda: f.nomination() and (f.nomination()["incarnation"], f.nomination()["write"]) != first, LATER)
        and f.agreed("b", "c"),
        f"{f.name}: N is deleted, and somebody comes next again",
    )
    for what, content in (("a lock's record", f.store.get(f.key)), ("another program's", FOREIGN)):
        f.store.put(f.next_key, content)
        ok(wait_for(lambda: not f.published(), LATER), f"{f.name}: N becomes {what}, and nobody comes next")
        same(f.store.get(f.next_key), content, f"{f.name}: which is left alone")
    same((len(f.terms()), a.all("stopped_leading")), (1, []), f"{f.name}: a leads on meanwhile")
    since = time.monotonic()
    a.kill(signal.SIGTERM)
    ok(f.next(2, since) in ("b", "c"), f"{f.name}: without N another leads after a")
    same(f.store.get(f.next_key), FOREIGN, f"{f.name}: and N is still the other program's")
    f.store.delete(f.next_key)
    f.join("d", times=WATCHED)
    ok(f.agreed("b", "c", "d"), f"{f.name}: when that is gone somebody comes next again")


ALL = [
    next_killed,
    next_cut_off,
    altered,
    next_frozen,
    next_restarted,
    next_killed_while_draining,
    next_answer_lost,
    next_killed_as_it_leads,
    nobody_there,
]
SOME = [next_killed, next_cut_off, altered]  # on a second and third store: what rests on notices, and on N's own write


def forbidden(f: NextArena) -> None:
    """The store's account may write the lock's record, and not N: f.lock is its URL."""
    a = f.join("a", times=FAR)
    ok(f.acts(1, "a"), f"{f.name}: a leads")
    b = f.join("b", times=FAR)
    ok(b.wait("new_leader"), f"{f.name}: b follows")
    said = b.wait("next_refused")
    ok(said, f"{f.name}: b says that it may not write N")
    note(said and said["message"])
    hands_over(f, a, 2, "b")
    a = f.join("a", times=FAR)
    ok(a.wait("new_leader", "b leads"), f"{f.name}: a is back")
    hands_over(f, b, 3, "a")
    same(len(b.all("next_refused")), 1, f"{f.name}: b has said so once")


def job(store: Any, case: Any, run: int) -> Any:
    def play() -> None:
        f = NextArena(store, case.__name__.replace("_", " ") + (f" {run + 1}" if RUNS > 1 else ""))
        if case is forbidden:
            f.lock = store.restricted(f)
        try:
            case(f)
        finally:
            f.close()

    play.__name__ = f"{store.name} {case.__name__}"
    return play


def contest(*plans: tuple[Any, Any]) -> None:
    """plans: a store, and the cases on it, of which five are played at a time. FULL=1: all cases, some times. RUN:
    names of cases, for these alone."""
    named = os.environ.get("RUN", "").split()
    for store, cases in plans:
        cases = ALL if FULL and forbidden not in cases else cases
        cases = [c for c in cases if not named or c.__name__ in named]
        for run in range(RUNS):
            for i in range(0, len(cases), 5):
                at_once(*[job(store, c, run) for c in cases[i : i + 5]])
        store.end()
    done()

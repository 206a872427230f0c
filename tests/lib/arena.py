"""Elections of real candidates on a networked store, hurt in the ways in which other electors show two leaders. The
witness of field.py says whether a process of one term was still alive when the next term's acted."""

import json
import os
import random
import signal
import struct
import subprocess
import time
import urllib.error
import urllib.request
import uuid
from typing import Any

from tests.lib.candidates import timing
from tests.lib.field import Field, build
from tests.lib.processes import LUNARCH, PATIENCE, moment, wait_for
from tests.lib.proxy import Proxy
from tests.lib.tap import at_once, done, failures, note, ok, same

RUNS = 30 if os.environ.get("FULL") else 1
LEASE_S = 7  # WATCHED's


class Arena(Field):
    def __init__(self, store: Any, what: str) -> None:
        super().__init__(f"{store.name}: {what}")
        self.store, self.key = store, f"arena-{uuid.uuid4().hex[:8]}"
        self.lock = store.url(self.key)

    def enter(self, *names: Any, through: Any = None, **kw: Any) -> Any:
        """Candidates, the first of which leads before the others come."""
        joined: list[Any] = []
        for name in names:
            own = self.store.url(self.key, through) if through and not joined else self.lock
            joined.append(self.join(name, "--address", f"{name}:1", lock=own, **kw))
            if len(joined) == 1:
                ok(self.acts(1, name), f"{self.name}: {name} leads")
            else:
                joined[-1].wait("new_leader")
        return joined

    def record(self) -> dict[str, Any]:
        return json.loads(self.store.get(self.key))

    def next(self, count: int, since: Any = None, name: str | None = None) -> Any:
        """Waits for the so-many-th term; notes how long that took."""
        found = self.acts(count) and self.terms()[count - 1]
        if since and found:
            note(f"{self.name}: {found[1]} acts {time.monotonic() - since:.3f} s after")
        return found and found[1] if name is None else found and found[1] == name

    def close(self) -> None:
        good = self.verdict(self.name)
        if not good or failures():
            self.logs()
        self.end()
        self.store.delete(self.key)


def whole(c: Any) -> list[Any]:
    """Elector, guard and worker."""
    return [c.pid, c.guard(), c.worker()]


def stopped(f: Arena) -> None:
    a, b = f.enter("a", "b")
    a.kill(signal.SIGTERM)
    ok(f.acts(1, "b"), f"{f.name}: b leads")
    same(a.leave(), 0, f"{f.name}: a left in peace")


def killed(f: Arena) -> None:
    a, b = f.enter("a", "b")
    pids = whole(a)
    for pid in pids:
        a.kill(signal.SIGKILL, pid)
    ok(f.acts(1, "b"), f"{f.name}: b leads")


def cut_off(f: Arena) -> None:
    """The leader's connections hang; what it sent goes on when another leads already."""
    proxy = f.store.proxy()
    a, b, c = f.enter("a", "b", "c", through=proxy)
    since = time.monotonic()
    proxy.freeze()
    ok(f.next(2, since) in ("b", "c"), f"{f.name}: another leads")
    same(len(a.said("stopped")), 1, f"{f.name}: when a has stopped")
    proxy.thaw()
    ok(a.wait("new_leader"), f"{f.name}: and a follows when its connection is back")
    same(len(f.terms()), 2, f"{f.name}: what it had sent before changes nothing")
    proxy.close()


def elector_frozen(f: Arena) -> None:
    a, b, c = f.enter("a", "b", "c")
    since = time.monotonic()
    a.kill(signal.SIGSTOP)
    ok(f.next(2, since) in ("b", "c"), f"{f.name}: another leads")
    a.kill(signal.SIGCONT)
    ok(a.wait("stopped_leading"), f"{f.name}: and a, continued, knows that it is over")
    time.sleep(LEASE_S / 2)
    same(len(f.terms()), 2, f"{f.name}: without a word to the store")


def standby_frozen(f: Arena) -> None:
    """A standby that slept through what it would have waited for may not take for silence what it did not hear."""
    a, b, c = f.enter("a", "b", "c")
    b.kill(signal.SIGSTOP)
    time.sleep(LEASE_S * 1.2)
    since = time.monotonic()
    a.kill(signal.SIGUSR1)
    b.kill(signal.SIGCONT)
    ok(f.next(2, since) in ("b", "c"), f"{f.name}: one of the others leads")
    time.sleep(1)
    same(len(f.terms()), 2, f"{f.name}: and one only")


def by_hand(f: Arena) -> None:
    """Deleted or stolen, which ends the term, and somebody leads again with a larger token; or edited."""
    a, b = f.enter("a", "b")
    since = time.monotonic()
    f.store.delete(f.key)
    ok(f.next(2, since), f"{f.name}: the record is deleted, and after a lease somebody leads again")
    edited = f.record()
    edited.pop("checkpoint", None)
    edited.pop("writes", None)  # with that, another write's name under the leader's incarnation is a clone's
    edited.update(write="e" * 32, leaseDurationMs=60000, leaseDurationSeconds=60)
    f.store.put(f.key, json.dumps(edited).encode())
    ok(
        wait_for(lambda: f.record()["leaseDurationMs"] == LEASE_S * 1000),
        f"{f.name}: other settings under the leader's name are put right by it",
    )
    same(len(f.terms()), 2, f"{f.name}: and its term goes on")
    record = f.record()
    record.update(
        holderIdentity="thief", write="f" * 32, leaseDurationMs=1500, leaseDurationSeconds=2, pid=0, tree="", bootId=""
    )
    record.pop("checkpoint", None)  # an older one than the leader's would be the thief's doing
    record.pop("writes", None)  # with that it would be a write of before, which has landed again: waited out for longer
    since = time.monotonic()
    f.store.put(f.key, json.dumps(record).encode())
    ok(
        f.next(3, since),
        f"{f.name}: the record is stolen, and when the thief has been silent for its lease somebody leads",
    )
    same(len(a.said("stopped")) + len(b.said("stopped")), 2, f"{f.name}: each of the terms ended with on_stopped")


def addressed(f: Arena) -> None:
    """What a client does: it asks for the address, keeps it, and asks again when what it finds there says that it does
    not lead."""
    a, b = f.enter("a", "b")

    def leader(*more: Any) -> str:
        r = subprocess.run([LUNARCH, "leader", "--lock", f.lock, *more], capture_output=True, text=True, timeout=120)
        return r.stdout.strip()

    same(leader(), "a:1", f"{f.name}: the client is told a's address")
    watch = subprocess.Popen(
        [LUNARCH, "status", "--watch", "--json", "--lock", f.lock], stdout=subprocess.PIPE, text=True
    )
    assert watch.stdout
    first = json.loads(watch.stdout.readline())
    a.kill(signal.SIGTERM)
    ok(f.acts(1, "b"), f"{f.name}: b leads")
    ok(wait_for(lambda: leader() == "b:1"), f"{f.name}: asked again, it is told b's")
    for line in watch.stdout:
        seen = json.loads(line)
        if seen.get("leader") and seen["leader"] == "b":
            break
    watch.kill()
    watch.wait()
    ok(first["leader"] == "a" and seen["leader"] == "b", f"{f.name}: status --watch has seen the change")
    r = subprocess.run([LUNARCH, "status", "--verify", "--lock", f.lock], capture_output=True, text=True, timeout=120)
    ok(r.returncode == 0 and "renew" in r.stdout, f"{f.name}: status --verify sees it renew")


def restart(f: Any, old: Any, **kw: Any) -> Any:
    """The same candidate with other settings."""
    old.stop()
    return f.join(old.name, "--address", f"{old.name}:1", **kw)


def waited_out(f: Arena, leader: Any, count: int, ahead: int = 0) -> float:
    """The leader is frozen; the so-many-th term is another's. Seconds between the frozen one's last write and that
    term's first, by the times that the records say. ahead: how much the other's clock differs."""
    leader.kill(signal.SIGSTOP)
    last = f.record()
    ok(f.next(count) not in (None, False), f"{f.name}: {leader.name} is frozen, and another leads")
    return moment(f.record()["acquireTime"]) - moment(last["renewTime"]) - ahead


def rolling(f: Any) -> None:
    """3 s, 9 s, 3 s, one of three after the other: who waits goes by what the record says, and says so."""
    short, long = {"times": ["--lease-duration", "3s"]}, {"times": ["--lease-duration", "9s"]}
    nodes = f.enter("a", "b", "c", **short)
    terms = 1
    for old, to, at_least in ((3, long, 3), (9, short, 9)):
        leader = next(c for c in nodes if c.name == f.terms()[-1][1])
        others = [restart(f, c, **to) for c in nodes if c is not leader]
        ok(
            all([c.wait("new_leader", f"{leader.name} leads; its settings are obeyed: lease {old}s") for c in others]),
            f"{f.name}: {' and '.join(c.name for c in others)}, restarted with other settings, say that they obey "
            f"{old} s",
        )
        same((f.record()["leaseDurationMs"], len(f.terms())), (old * 1000, terms), f"{f.name}: and change nothing")
        terms += 1
        took = waited_out(f, leader, terms)
        ok(took > at_least - 0.2, f"{f.name}: not before {old} s ({took:.3f})")
        same(f.record()["leaseDurationMs"], 12000 - old * 1000, f"{f.name}: and publishes its own")
        nodes = others + [restart(f, leader, **to)]
        ok(
            nodes[-1].wait("new_leader", f"lease {12 - old}s"),
            f"{f.name}: {leader.name} is restarted as the last of them",
        )


def clocks(f: Arena) -> None:
    """A leader whose clock is behind by one or two hours, which a standby that believed times would take for dead; and
    one that is ahead, which it would wait for. The shim is proved by the record."""
    shim, names = build("shim.c", "-shared", "-fPIC"), ("a", "b")
    joined = []
    for name, seconds in zip(names, f.store.clocks):
        with open(os.path.join(f.dir, f"clock-{name}"), "wb") as file:
            file.write(struct.pack("q", seconds * 10**9))
        joined.append(f.join(name, env={"LD_PRELOAD": shim, "SHIM_CLOCK": file.name}))
        ok(
            f.acts(1, "a") and (name == "a" or joined[-1].wait("new_leader")),
            f"{f.name}: {name}'s clock is off by {seconds} s",
        )
    a, b = joined
    ahead = f.store.clocks[1] - f.store.clocks[0]
    since = moment(f.record()["renewTime"])
    ok(
        wait_for(lambda: moment(f.record()["renewTime"]) > since + 1.5 * LEASE_S),
        f"{f.name}: a renews for longer than a lease",
    )
    same(len(f.terms()), 1, f"{f.name}: and is not taken for dead")
    took = waited_out(f, a, 2, ahead)
    ok(LEASE_S - 0.2 < took < 1800, f"{f.name}: b waits for a lease, by no clock of the day ({took:.3f} s)")
    a.kill(signal.SIGCONT)
    ok(a.wait("new_leader", "b leads"), f"{f.name}: a follows b")
    took = waited_out(f, b, 3, -ahead)
    ok(
        LEASE_S - 0.2 < took < 1800,
        f"{f.name}: a waits for a lease, though b's clock is {ahead} s ahead ({took:.3f} s)",
    )


def twins(f: Arena) -> None:
    """The same identity and address twice, which is a mistake: they are two candidates all the same."""
    a = f.join("twin", "--address", "twin:1")
    ok(f.acts(1), f"{f.name}: the first leads")
    b = f.join("twin", "--address", "twin:1")
    ok(b.wait("new_leader", "twin leads"), f"{f.name}: the second follows")
    since = moment(f.record()["renewTime"])
    ok(
        wait_for(lambda: moment(f.record()["renewTime"]) > since + LEASE_S),
        f"{f.name}: the first renews for longer than a lease",
    )
    same(
        (len(f.terms()), len(b.all("became_leader"))),
        (1, 0),
        f"{f.name}: and the second does not take its name for its own",
    )
    took = waited_out(f, a, 2)
    ok(took > LEASE_S - 0.2, f"{f.name}: frozen, it is waited out ({took:.3f} s)")
    a.kill(signal.SIGCONT)
    ok(a.wait("stopped_leading"), f"{f.name}: continued, it does not take the other's record for its own")
    time.sleep(LEASE_S / 2)
    same((len(f.terms()), len(b.all("stopped_leading"))), (2, 0), f"{f.name}: and the second leads on")


def ambiguous(f: Arena) -> None:
    """Writes that are applied, but whose answers are lost with their connections: a leader looks, and leads on. No
    server or machine that is slow costs it the lease."""
    proxy = f.store.proxy()
    a, _ = f.enter("a", "b", through=proxy, times=timing("30s", retry="1200ms"))
    lost = 0
    for _ in range(40):  # it may be a notice that is lost, or an answer to a look
        time.sleep(random.uniform(0.2, 0.6))  # what a new connection begins with is answered
        before, failed = f.record()["write"], len(a.all("renew_failed"))
        proxy.cut_after(0)
        wait_for(lambda: proxy.down.cut_after is None)
        applied = f.record()["write"]
        wait_for(lambda: f.record()["write"] != applied)
        lost += applied != before and (f.store.settles or len(a.all("renew_failed")) > failed)
        if lost == 3:
            break
    same(lost, 3, f"{f.name}: three writes were applied and their answers lost")
    same(
        (len(f.terms()), len(a.all("became_leader")), len(a.all("stopped_leading"))),
        (1, 1, 0),
        f"{f.name}: and nobody stopped or began",
    )
    a.stop()
    proxy.close()


def idle_stop(f: Arena) -> None:
    a, *others = f.enter("a", "b", "c", "d", times=timing("30s", retry="10s"))
    took = []
    for c in others:
        since = time.monotonic()
        c.kill(signal.SIGTERM)
        same(c.leave(), 0, f"{f.name}: {c.name} leaves in peace")
        took.append(time.monotonic() - since)
    note(f"{f.name}: standbys end {', '.join(f'{t * 1000:.0f}' for t in took)} ms after SIGTERM")
    ok(min(took) < 8, f"{f.name}: at once, and not with their next look after 10 s and more")
    same(len(f.terms()), 1, f"{f.name}: and the leader leads on")


class Client:
    """It keeps the address that it was told, and asks for another when what is there refuses it."""

    def __init__(self, lock: str) -> None:
        self.lock = lock
        self.address: str | None = None
        self.did: list[Any] = []

    def look_up(self) -> None:
        r = subprocess.run([LUNARCH, "leader", "--lock", self.lock], capture_output=True, text=True, timeout=120)
        self.address = r.stdout.strip() or None
        self.did.append("looked up" if self.address else "found nobody")

    def call(self) -> bool:
        """True: who leads has answered."""
        if not self.address:
            self.look_up()
            return False
        try:
            with urllib.request.urlopen(f"http://{self.address}/leader", timeout=PATIENCE) as answer:
                self.did.append("served" if answer.status == 200 else answer.status)
                return True
        except urllib.error.HTTPError as e:
            self.did.append(e.code)
        except OSError:
            self.did.append("refused")
        self.address = None
        return False


def cached(f: Any) -> None:
    """What the guide tells clients to do, through a handover to one that lives on, and one from a process that has
    ended."""
    doors, joined = {}, {}
    for name in ("a", "b"):
        doors[name] = Proxy(1)  # the address is known before the port is
        joined[name] = f.join(name, "--address", f"127.0.0.1:{doors[name].port}", "--listen", "127.0.0.1:0")
        doors[name].target = ("127.0.0.1", int(joined[name].wait("listening")["message"].rstrip("/").rsplit(":", 1)[1]))
        ok(f.acts(1, "a") and (name == "a" or joined[name].wait("new_leader")), f"{f.name}: {name} is there")
    client = Client(f.lock)
    for leads, follows, how, refusal in (("a", "b", signal.SIGUSR1, 503), ("b", "a", signal.SIGTERM, "refused")):
        ok(
            wait_for(lambda: client.call() and client.address == f"127.0.0.1:{doors[leads].port}"),
            f"{f.name}: the client is served by {leads}",
        )
        client.did.clear()
        ok(all([client.call() for _ in range(20)]), f"{f.name}: twenty times")
        same(client.did, ["served"] * 20, f"{f.name}: without asking again where it is")
        terms = len(f.terms())
        joined[leads].kill(how)
        ok(f.next(terms + 1) == follows, f"{f.name}: {follows} leads")
        if how == signal.SIGTERM:
            joined[leads].leave()
        ok(
            wait_for(lambda: client.call() and client.address == f"127.0.0.1:{doors[follows].port}"),
            f"{f.name}: the client finds it",
        )
        first = next((x for x in client.did if x != "served"), None)
        same(first, refusal, f"{f.name}: being refused by {leads} first")
        ok(first and "looked up" in client.did[client.did.index(first) :], f"{f.name}: and asking again then")
    for d in doors.values():
        d.close()


def server_frozen(f: Arena) -> None:
    a, b, c = f.enter("a", "b", "c")
    f.store.pause()
    ok(a.wait("stopped_leading"), f"{f.name}: the leader stops in time, though nobody answers")
    time.sleep(LEASE_S)
    since = time.monotonic()
    f.store.resume()
    ok(f.next(2, since), f"{f.name}: and when the server is back somebody leads")


def server_killed(f: Arena) -> None:
    """Some servers are back within the lease, and a leads on; with others it has lost its term by then."""
    joined = f.enter("a", "b", "c")
    f.store.kill()
    time.sleep(0.5)
    f.store.restart()
    leads = wait_for(
        lambda: next((c for c in joined if len(c.all("became_leader")) > len(c.all("stopped_leading"))), None)
    )
    assert leads
    f.acts(sum(len(c.all("became_leader")) for c in joined))
    since, led = time.monotonic(), len(f.terms())
    leads.kill(signal.SIGTERM)
    ok(
        f.next(led + 1, since) not in (None, False, leads.name),
        f"{f.name}: the server is killed and started again, and the next leader's token is larger",
    )


# What a store does with its connections, records and clocks.
TOGETHER = [clocks, by_hand, cut_off, ambiguous, stopped, killed, addressed]
# What an elector decides, on any store: on one that tells of changes (Redis), and on one that is polled (MariaDB).
ELECTORS = [rolling, twins, elector_frozen, standby_frozen, cached, idle_stop]
ALONE = [server_frozen, server_killed]  # they hurt the server for everybody


def job(store: Any, case: Any, run: int) -> Any:
    def play() -> None:
        f = Arena(store, case.__name__.replace("_", " ") + (f" {run + 1}" if RUNS > 1 else ""))
        try:
            case(f)
        finally:
            f.close()

    play.__name__ = f"{store.name} {case.__name__}"
    return play


def contest(store: Any, more: Any = ()) -> None:
    """Some cases at a time: with all at once two slow cores would be the fault. more: ELECTORS. RUN: names of cases,
    for these alone."""
    together, alone = (
        [c for c in cases if c.__name__ in os.environ.get("RUN", c.__name__).split()]
        for cases in ([*more, *TOGETHER], ALONE)
    )
    for run in range(RUNS):
        for third in range(3):
            at_once(*[job(store, c, run) for c in together[third::3]])
        for c in alone:
            at_once(job(store, c, run))
    store.end()
    done()

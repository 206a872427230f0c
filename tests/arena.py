"""Elections of real candidates on a networked store, hurt in the ways in which other electors show two leaders. The witness of
field.py says whether a process of one term was still alive when the next term's acted."""
import os, shutil, uuid
import harness
from field import *

RUNS = 30 if os.environ.get("FULL") else 1
LEASE_S = 4  # STEADY's


class Arena(Field):
    def __init__(self, store, what):
        super().__init__(f"{store.name}: {what}")
        self.store, self.key = store, f"arena-{uuid.uuid4().hex[:8]}"
        self.lock = store.url(self.key)

    def enter(self, *names, through=None, **kw):
        """Candidates, the first of which leads before the others come."""
        joined = []
        for name in names:
            own = self.store.url(self.key, through) if through and not joined else self.lock
            joined.append(self.join(name, "--address", f"{name}:1", lock=own, **kw))
            if len(joined) == 1:
                ok(self.acts(1, name), f"{self.name}: {name} leads")
            else:
                joined[-1].wait("new_leader")
        return joined

    def record(self):
        return json.loads(self.store.get(self.key))

    def next(self, count, since=None, name=None):
        """Waits for the so-many-th term; notes how long that took."""
        found = self.acts(count) and self.terms()[count - 1]
        if since and found:
            note(f"{self.name}: {found[1]} acts {time.monotonic() - since:.3f} s after")
        return found and found[1] if name is None else found and found[1] == name

    def close(self):
        good = self.verdict(self.name)
        if not good or harness._failed:
            self.logs()
        self.end()
        self.store.delete(self.key)


def whole(c):
    """Elector, guard and worker."""
    return [c.pid, c.guard(), c.worker()]


def stopped(f):
    a, b = f.enter("a", "b")
    since = time.monotonic()
    a.kill(signal.SIGTERM)
    ok(f.next(2, since) == "b", f"{f.name}: b leads")
    same(a.leave(), 0, f"{f.name}: a left in peace")


def killed(f):
    a, b = f.enter("a", "b")
    pids = whole(a)
    since = time.monotonic()
    for pid in pids:
        a.kill(signal.SIGKILL, pid)
    ok(f.next(2, since) == "b", f"{f.name}: b leads")


def cut_off(f):
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


def elector_frozen(f):
    a, b, c = f.enter("a", "b", "c")
    since = time.monotonic()
    a.kill(signal.SIGSTOP)
    ok(f.next(2, since) in ("b", "c"), f"{f.name}: another leads")
    a.kill(signal.SIGCONT)
    ok(a.wait("stopped_leading"), f"{f.name}: and a, continued, knows that it is over")
    time.sleep(LEASE_S / 2)
    same(len(f.terms()), 2, f"{f.name}: without a word to the store")


def standby_frozen(f):
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


def by_hand(f):
    """Deleted or stolen, which ends the term, and somebody leads again with a larger token; or edited."""
    a, b = f.enter("a", "b")
    since = time.monotonic()
    f.store.delete(f.key)
    ok(f.next(2, since), f"{f.name}: the record is deleted, and after a lease somebody leads again")
    edited = f.record()
    edited.pop("checkpoint", None)
    edited.update(write="e" * 32, leaseDurationMs=60000, leaseDurationSeconds=60)
    f.store.put(f.key, json.dumps(edited).encode())
    ok(wait_for(lambda: f.record()["leaseDurationMs"] == LEASE_S * 1000), f"{f.name}: other settings under the leader's name are put right by it")
    same(len(f.terms()), 2, f"{f.name}: and its term goes on")
    record = f.record()
    record.update(holderIdentity="thief", write="f" * 32, leaseDurationMs=1500, leaseDurationSeconds=2, pid=0, tree="", bootId="")
    record.pop("checkpoint", None)  # an older one than the leader's would be the thief's doing
    since = time.monotonic()
    f.store.put(f.key, json.dumps(record).encode())
    ok(f.next(3, since), f"{f.name}: the record is stolen, and when the thief has been silent for its lease somebody leads")
    same(len(a.said("stopped")) + len(b.said("stopped")), 2, f"{f.name}: each of the terms ended with on_stopped")


def addressed(f):
    """What a client does: it asks for the address, keeps it, and asks again when what it finds there says that it does not lead."""
    a, b = f.enter("a", "b")

    def leader(*more):
        r = subprocess.run([LUNARCH, "leader", "--lock", f.lock, *more], capture_output=True, text=True, timeout=120)
        return r.stdout.strip()
    same(leader(), "a:1", f"{f.name}: the client is told a's address")
    watch = subprocess.Popen([LUNARCH, "status", "--watch", "--json", "--lock", f.lock], stdout=subprocess.PIPE, text=True)
    first = json.loads(watch.stdout.readline())
    a.kill(signal.SIGTERM)
    ok(f.next(2) == "b", f"{f.name}: b leads")
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


def rolling(f):
    """3 s, 9 s, 3 s: who waits goes by what the record says, and says so."""
    short, long = ["--lease-duration", "3s"], ["--lease-duration", "9s"]
    [a] = f.enter("a", times=short)
    b = f.join("b", times=long)
    ok(b.wait("new_leader", "lease 3s"), f"{f.name}: a standby of 9 s says that it obeys 3 s")
    a.kill(signal.SIGSTOP)
    ok(f.next(2) == "b", f"{f.name}: and takes over after those")
    leave(a)
    c = f.join("c", times=short)
    ok(c.wait("new_leader", "lease 9s"), f"{f.name}: a standby of 3 s says that it obeys 9 s")
    leave(b)
    ok(f.next(3) == "c", f"{f.name}: and leads when that one leaves")
    same(f.record()["leaseDurationMs"], 3000, f"{f.name}: by its own settings")


def server_frozen(f):
    a, b, c = f.enter("a", "b", "c")
    f.store.pause()
    ok(a.wait("stopped_leading"), f"{f.name}: the leader stops in time, though nobody answers")
    time.sleep(LEASE_S)
    since = time.monotonic()
    f.store.resume()
    ok(f.next(2, since), f"{f.name}: and when the server is back somebody leads")


def server_killed(f):
    """Some servers are back within the lease, and a leads on; with others it has lost its term by then."""
    joined = f.enter("a", "b", "c")
    f.store.kill()
    time.sleep(0.5)
    f.store.restart()
    leads = wait_for(lambda: next((c for c in joined if len(c.all("became_leader")) > len(c.all("stopped_leading"))), None))
    f.acts(sum(len(c.all("became_leader")) for c in joined))
    since, led = time.monotonic(), len(f.terms())
    leads.kill(signal.SIGTERM)
    ok(f.next(led + 1, since) not in (None, False, leads.name), f"{f.name}: the server is killed and started again, and the next leader's token is larger")


TOGETHER = [stopped, killed, cut_off, elector_frozen, standby_frozen, by_hand, addressed, rolling]
ALONE = [server_frozen, server_killed]  # they hurt the server for everybody


def job(store, case, run):
    def play():
        f = Arena(store, case.__name__.replace("_", " ") + (f" {run + 1}" if RUNS > 1 else ""))
        try:
            case(f)
        finally:
            f.close()
    play.__name__ = f"{store.name} {case.__name__}"
    return play


def contest(store):
    """Half of the cases at a time: with all at once two slow cores would be the fault."""
    for run in range(RUNS):
        at_once(*[job(store, c, run) for c in TOGETHER[0::2]])
        at_once(*[job(store, c, run) for c in TOGETHER[1::2]])
        for c in ALONE:
            at_once(job(store, c, run))
    store.end()
    done()

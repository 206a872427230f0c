#!/usr/bin/env -S PYTHONPATH=. python3
"""A ZooKeeper is restored from an older copy of its data while its candidates run: its zxids, which are the tokens,
begin again below those that were handed out. The term whose record is gone ends before anybody else acts; who has seen
a larger token does not lead, and says so, until the server counts higher. And an ensemble loses a term, whose elector
stands still: who has seen the term does not lead before it is over, though the lock is free and zxids have grown."""

import os
import shutil
import signal
import struct
from typing import Any

from tests.lib.arena import Arena
from tests.lib import servers
from tests.lib.processes import wait_for
from tests.lib.stores import ZooKeeper, Zk
from tests.lib.tap import done, failures, note, ok, same

# Nothing is saved: a checkpoint that the copy lacks is gone, as it should be.
SCRIPT = """
return { on_leading = function(term)
  print("token " .. term.token)
  exec { arg[1], arg[2], arg[3] }
end }
"""


def touch(store: ZooKeeper, count: int) -> None:
    """So many zxids more."""
    with Zk(store.port) as z:
        z.ask(1, z.text("/other") + z.data(b"") + z.acl(z.ALL) + struct.pack(">i", 0))
        for i in range(count):
            z.ask(5, z.text("/other") + z.data(str(i).encode()) + struct.pack(">i", -1))


def restored(store: ZooKeeper) -> None:
    f = Arena(store, "restored")
    data, kept = os.path.join(store.server.dir, "data"), os.path.join(f.dir, "copy")
    script = os.path.join(f.dir, "script.lua")
    with open(script, "w") as s:
        s.write(SCRIPT)
    a, b = f.enter("a", "b", script=script)
    # Everything stands still while it is copied; the leader's term goes on.
    store.server.stop()
    shutil.copytree(data, kept)
    store.server.start()
    touch(store, 100)
    a.kill(signal.SIGUSR1)
    ok(f.acts(1, "b"), f"{f.name}: another leads, with a token that the copy does not know")
    a.wait("new_leader", "b leads")
    terms = len(f.terms())
    first, top = f.terms()[0][0], f.terms()[-1][0]
    store.server.kill()
    shutil.rmtree(data)
    shutil.copytree(kept, data)
    store.server.start()
    ok(wait_for(lambda: b.all("stopped_leading")), f"{f.name}: the term whose record is gone ends")
    low = next(iter(wait_for(lambda: a.all("token_low") + b.all("token_low"))), None)
    ok(
        low and str(top) in low["message"],
        f"{f.name}: a term whose token is not above the largest that was seen is said",
    )
    note(low and low["message"])
    same(len(f.terms()), terms, f"{f.name}: and nobody acts by it")
    touch(store, 200)
    ok(f.acts(terms + 1), f"{f.name}: when the server has counted past it, somebody acts again")
    ok(f.terms()[-1][0] > top, f"{f.name}: by a token above all before it")
    same([t for t, _ in f.terms() if first < t < top], [], f"{f.name}: and nobody acted by one in between")
    same(f.lines("overlaps"), [], f"{f.name}: no process of a term lived when the next term's began")
    if failures():
        f.logs()
    f.end()


class Ensemble(ZooKeeper):
    def __init__(self) -> None:
        self.members = servers.ZooKeeper.cluster(3)
        self.server = self.members[0]
        self.port = self.server.port

    def url(self, key: str, through: Any = None) -> str:
        return f"zookeeper://{','.join(f'127.0.0.1:{m.port}' for m in self.members)}/{key}"

    def end(self) -> None:
        for m in self.members:
            m.close()


def lost(store: Ensemble) -> None:
    f = Arena(store, "a term is lost")
    script = os.path.join(f.dir, "script.lua")
    with open(script, "w") as s:
        s.write(SCRIPT)
    (a,) = f.enter("a", script=script)
    same(a.stop(), 0, f"{f.name}: a has led and stopped, and the lock is free")
    servers.ZooKeeper.keep(store.members)
    b = f.join("b", script=script)
    ok(f.acts(1, "b"), f"{f.name}: b leads")
    c = f.join("c", script=script)
    c.wait("new_leader", "b leads")
    b.kill(signal.SIGSTOP)
    servers.ZooKeeper.fall_back(store.members)
    ok(c.wait("went_back"), f"{f.name}: c says that the servers have lost what they had shown")
    ok(f.acts(1, "c"), f"{f.name}: c leads")
    b.kill(signal.SIGCONT)
    ok(b.wait("stopped_leading"), f"{f.name}: b, which goes on, knows that its term is over")
    tokens = [t for t, _ in f.terms()]
    same(tokens, sorted(set(tokens)), f"{f.name}: every token is larger than those before it")
    same(f.lines("overlaps"), [], f"{f.name}: and b's process was dead when c's began")
    if failures():
        f.logs()
    f.end()


for kind, job in ((ZooKeeper, restored), (Ensemble, lost)):
    store: Any = kind()
    job(store)
    store.end()
done()

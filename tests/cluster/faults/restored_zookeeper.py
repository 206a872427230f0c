#!/usr/bin/env python3
"""A ZooKeeper is restored from an older copy of its data while its candidates run: its zxids, which are the tokens,
begin again below those that were handed out. The term whose record is gone ends before anybody else acts; who has seen
a larger token does not lead, and says so, until the server counts higher."""

import os
import shutil
import signal
import struct
import sys
from typing import Any

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from arena import Arena
from processes import wait_for
from stores import ZooKeeper, Zk
from tap import done, failures, note, ok, same

# Nothing is saved: a checkpoint that the copy lacks is gone, as it should be.
SCRIPT = """
return { on_leading = function(term)
  print("token " .. term.token)
  exec { arg[1], arg[2], arg[3] }
end }
"""


def touch(store: Any, count: int) -> None:
    """So many zxids more."""
    with Zk(store.port) as z:
        z.ask(1, z.text("/other") + z.data(b"") + z.acl(z.ALL) + struct.pack(">i", 0))
        for i in range(count):
            z.ask(5, z.text("/other") + z.data(str(i).encode()) + struct.pack(">i", -1))


def restored(store: Any) -> None:
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


store = ZooKeeper()
restored(store)
store.end()
done()

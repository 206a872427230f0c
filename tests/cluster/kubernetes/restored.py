#!/usr/bin/env -S PYTHONPATH=. python3
"""The etcd behind the API server is restored from a backup: versions, which are the tokens, go back. Who has seen a
larger one does not lead by a smaller one, and says so; when the store has counted on, it leads."""

import os
import shutil
import signal
import time
from typing import Any

from tests.lib.kube_rig import Cluster
from tests.lib.kube_scene import RARE, Scene, tokens
from tests.lib.processes import PATIENCE, scratch, wait_for
from tests.lib.tap import done, note, ok, same


def backup(c: Any, path: str) -> None:
    """Everything stands still meanwhile."""
    c.api.stop()
    c.etcd.stop()
    shutil.copytree(os.path.join(c.etcd.dir, "data"), path)
    c.etcd.start()
    c.api.start()


def restore(c: Any, path: str) -> None:
    c.api.kill()
    c.etcd.kill()
    shutil.rmtree(os.path.join(c.etcd.dir, "data"))
    shutil.copytree(path, os.path.join(c.etcd.dir, "data"))
    c.etcd.start()
    c.api.start()


def touch(s: Any, count: int) -> None:
    """So many versions more."""
    meta = {"name": "counter", "namespace": s.ns}
    path = f"/api/v1/namespaces/{s.ns}/configmaps"
    s.c.call("POST", path, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta})
    for i in range(count):
        s.c.must(
            "PATCH", f"{path}/counter", {"data": {"n": f"{time.monotonic()}-{i}"}}, kind="application/merge-patch+json"
        )


with Cluster() as cluster:
    s = Scene(cluster, "restored")
    before = s.leader("--identity", "before")
    before.kill(signal.SIGTERM)
    before.process.wait(PATIENCE)
    kept = os.path.join(scratch(), "backup")
    backup(cluster, kept)
    touch(s, 1500)
    a = s.leader(
        "--identity", "a", times=RARE
    )  # others see only the term's first write, which cannot have its own version in it
    b = s.candidate("--identity", "b")
    b.wait("new_leader")
    largest = tokens(a)[-1]
    restore(cluster, kept)
    ok(wait_for(lambda: a.all("stopped_leading")), "restored: the term whose record is gone ends")
    ok(
        wait_for(lambda: a.all("token_low") or b.all("token_low")),
        "restored: who gets a smaller token than it has seen says so",
    )
    found = (a.all("token_low") + b.all("token_low"))[0]["message"]
    ok(str(largest) in found and "restored from an older copy" in found, "with both numbers and what may have happened")
    note(found)
    same([t for t in tokens(a, b) if t != largest], [], "and does not lead by it")
    wait_for(lambda: len(a.all("token_low") + b.all("token_low")) >= 2, 5)
    same([t for t in tokens(a, b) if t != largest], [], "nor does the other, which knows it too")
    touch(s, 1600)
    ok(wait_for(lambda: len(tokens(a, b)) > 1, 3 * PATIENCE), "when the store has counted past it, one of them leads")
    t = tokens(a, b)
    same(t, sorted(set(t)), "and every token was larger than all before it")
    s.end()

    s = Scene(cluster, "deleted")
    a = s.leader("--identity", "a")
    s.c.delete_lease(s.ns, "lock")
    ok(a.wait("became_leader", count=2), "a Lease is deleted, and made anew by the next term")
    t = tokens(a)
    same(
        (s.lease()["spec"]["leaseTransitions"], t),
        (0, sorted(set(t))),
        "its transitions begin at 0 again, and tokens grow",
    )
    same(a.all("token_low"), [], "since they count the whole store")
    s.end()
done()

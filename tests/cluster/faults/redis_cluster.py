#!/usr/bin/env -S PYTHONPATH=. python3
"""A Redis Cluster whose primary is frozen, and whose replica is promoted without what the primary had acknowledged: the
old leader's term is over before anybody else leads. A server that has not the key's slot says who has; doctor names a
cluster. And a slot that is moved to another server, and left half moved."""

import atexit
import re
import subprocess

from tests.lib.candidates import FAST, Candidate, stop_everyone
from tests.lib.processes import LUNARCH, PATIENCE, wait_for
from tests.lib.servers import Redis, free_port
from tests.lib.tap import ok, run, same

atexit.register(stop_everyone)
LEAD = "return { on_leading = function(term) sleep(1e6) end }"


def member() -> Redis:
    return Redis("--cluster-enabled", "yes", "--cluster-port", str(free_port()), "--cluster-node-timeout", "2000")


def bus(server: Redis) -> str:
    return server.options[server.options.index("--cluster-port") + 1]


def lunarch(*args: str) -> str:
    r = subprocess.run([LUNARCH, *args], capture_output=True, text=True, timeout=PATIENCE)
    return r.stdout + r.stderr


def test_failover() -> None:
    """A promotion that loses an acknowledged term"""
    with member() as a, member() as b:
        a.cli("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
        b.cli("CLUSTER", "MEET", "127.0.0.1", str(a.port), bus(a))
        first = a.cli("CLUSTER", "MYID")
        wait_for(lambda: b.cli("CLUSTER", "REPLICATE", first) == "OK")
        whole = wait_for(
            lambda: "cluster_state:ok" in a.cli("CLUSTER", "INFO")
            and "master_link_status:up" in b.cli("INFO", "replication")
        )
        ok(whole, "a cluster of a primary and its replica")
        url = f"redis://127.0.0.1:{a.port},127.0.0.1:{b.port}/x"
        said = lunarch("doctor", "--lock", url)
        ok(
            "cluster" in said and "?replicas=N" in said,
            "doctor names the cluster, and what its failover may lose",
            said,
        )
        old = Candidate("--lock", url, "-e", LEAD, options=FAST)
        old.event("became_leader")
        before = wait_for(lambda: a.cli("HGETALL", "x") or a.cli("GET", "x"))
        ok(before, "the primary has acknowledged a term")
        with member() as other:  # a primary without slots
            other.cli("CLUSTER", "MEET", "127.0.0.1", str(a.port), bus(a))
            wait_for(lambda: "cluster_state:ok" in other.cli("CLUSTER", "INFO"))
            said = lunarch("status", "--lock", f"redis://127.0.0.1:{other.port}/x")
        shown = re.search(r"^leader +(?!nobody)\S", said, re.M)
        ok(shown, "who has not the key's slot is not believed: who has it is asked", said)
        b.kill()
        a.pause()
        b.start()  # it has nothing on disk, and its primary does not answer
        promoted = wait_for(
            lambda: b.cli("CLUSTER", "FAILOVER", "TAKEOVER") and "role:master" in b.cli("INFO", "replication")
        )
        ok(promoted and b.cli("EXISTS", "x") == "0", "the replica is promoted, and has lost it")
        new = Candidate("--lock", url, "-e", LEAD, options=FAST)
        led = new.wait("became_leader")
        over = old.wait("stopped_leading")
        went_on = not over and not led
        ok(
            went_on or (over and (not led or over["seen"] <= led["seen"])),
            "nobody else leads before the old leader has stopped",
            [(e["event"], round(e["seen"], 2)) for c in (old, new) for e in c.events],
        )
        same(len(new.all("became_leader")) + (0 if over else 1), 1, "somebody leads afterwards")
        new.stop()
        old.stop()
        a.resume()


def test_half_moved() -> None:
    """A slot whose keys are at their new server, and which nobody has assigned to it yet"""
    with member() as a, member() as b:
        a.cli("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
        b.cli("CLUSTER", "MEET", "127.0.0.1", str(a.port), bus(a))
        whole = wait_for(lambda: all("cluster_known_nodes:2" in s.cli("CLUSTER", "INFO") for s in (a, b)))
        wait_for(lambda: all("cluster_state:ok" in s.cli("CLUSTER", "INFO") for s in (a, b)))
        ok(whole, "a cluster of two primaries, of which one has all slots")
        url, slot = f"redis://127.0.0.1:{a.port}/x", a.cli("CLUSTER", "KEYSLOT", "x")
        ids = {s: s.cli("CLUSTER", "MYID") for s in (a, b)}
        both = [Candidate("--lock", url, "-e", LEAD, options=FAST) for _ in range(2)]
        wait_for(lambda: any(c.all("became_leader") for c in both))
        b.cli("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[a])
        a.cli("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[b])
        while keys := a.cli("CLUSTER", "GETKEYSINSLOT", slot, "9").split():
            a.cli("MIGRATE", "127.0.0.1", str(b.port), "", "0", "9000", "KEYS", *keys)
        again = wait_for(lambda: sum(len(c.all("became_leader")) for c in both) == 2)
        ok(again, "somebody leads again while the slot is half moved", [c.complaints()[-1:] for c in both])
        terms = [e for c in both for e in c.events if e["event"] in ("became_leader", "stopped_leading")]
        told = [e["event"] for e in sorted(terms, key=lambda e: e["seen"])]
        same(told, ["became_leader", "stopped_leading", "became_leader"], "when the term of before is over")
        shown = lunarch("status", "--lock", url)
        ok(re.search(r"^leader +(?!nobody)\S", shown, re.M), "and status shows it", shown)
        for s in b, a:
            s.cli("CLUSTER", "SETSLOT", slot, "NODE", ids[b])
        last = max(both, key=lambda c: c.all("became_leader")[-1]["seen"] if c.all("became_leader") else 0)
        last.stop()
        other = both[last is both[0]]
        count = len(other.all("became_leader")) + 1
        ok(other.wait("became_leader", count=count), "and when it is moved whole, a stop hands over there")
        other.stop()


run([test_failover, test_half_moved])

#!/usr/bin/env -S PYTHONPATH=. python3
"""A Redis Cluster whose primary is frozen, and whose replica is promoted without what the primary had acknowledged: the
old leader's term is over before anybody else leads. A server that has not the key's slot says who has; doctor names a
cluster."""

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


run([test_failover])

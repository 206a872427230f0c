#!/usr/bin/env -S PYTHONPATH=. python3
"""The Redis lock passes the conformance suite over TLS, on a server that speaks nothing else; and so do the connections
that its URL does not name: for notices, to a promoted server, to other servers of a cluster.

Which certificates are refused, and that nothing is said then: tests/locks/tls.py and tls_servers.py."""

import os
import sys
import tempfile
from typing import Any

from tests.lib.candidates import STEADY, Candidate, stop_everyone
from tests.lib.lock_cases import BASIC, NETWORK, SERVER, read_only, run
from tests.lib.lock_driver import Driver, hears, opened, record, tried
from tests.lib.pki import Pki
from tests.lib.processes import wait_for
from tests.lib.servers import TlsRedis, free_port
from tests.lib.stores import RedisTls as Store
from tests.lib.tap import at_once, done, ok, same

SHORT = 3000  # ms; for operations that are to fail soon


def term(holder: str = "a") -> dict[str, Any]:
    return record(holder, token=0, leaseDurationMs=1000)


def leads(d: Driver, what: str) -> None:
    """A server that is new to the lock elects nobody for a lease: until then."""
    w = tried(lambda: d.write(term(), d.read(within=SHORT).get("version", ""), within=SHORT), "ok")
    ok(w["outcome"] == "ok", what, w)


def each_alone(*servers: TlsRedis) -> None:
    for s in servers:
        plain = os.popen(f"redis-cli -p {s.port} PING 2>&1").read()
        ok("PONG" not in plain, "every server speaks TLS alone", plain)


def login() -> None:
    """A user's password goes through TLS, in a database of its own, to a server that knows the client's certificate."""
    with tempfile.TemporaryDirectory() as where:
        pki = Pki(where)
        cert, key = pki.sign("client", "/CN=luna")
        with TlsRedis("--requirepass", "pa/ss", "--tls-auth-clients", "yes", pki=pki, start=False) as server:
            server.ready = lambda: bool(server.process.poll() is None and lives(server.port))
            server.start()
            at = f"127.0.0.1:{server.port}/3/x?ca={pki.ca}"
            d = opened(f"rediss://:pa%2Fss@{at}&cert={cert}&key={key}")
            d.do("watch")
            leads(d, "login: with certificate and password it leads")
            e = opened(f"rediss://:pa%2Fss@{at}&cert={cert}&key={key}")
            hears(d, e, "login: and is told of changes")
            for url, said in (
                (f"rediss://:wr0ng@{at}&cert={cert}&key={key}", "refuses the user or the password"),
                (f"rediss://:pa%2Fss@{at}", "TLS"),
                (f"rediss://:pa%2Fss@{at}&cert={where}/none.crt&key={key}", "none.crt"),
            ):
                f = opened(url)
                r = f.read(within=SHORT)
                good = r["outcome"] in ("failed", "refused") and said in r["err"]["text"]
                ok(good and f"127.0.0.1:{server.port}" in r["err"]["text"], f"login: without is told: {said}", r)
                f.end()
            same([d.end(), e.end()], [0, 0], "login: and all close in peace")


def lives(port: int) -> bool:
    return "verify return" in os.popen(f"openssl s_client -connect 127.0.0.1:{port} </dev/null 2>&1").read()


def names() -> None:
    """The certificate is for the host that the URL names, or for ?server_name=."""
    with tempfile.TemporaryDirectory() as where:
        pki = Pki(where)
        shown = pki.sign("named", "/CN=named", "DNS:localhost,DNS:redis.test")
        with TlsRedis(pki=pki, start=False) as server:
            server.options += ["--tls-cert-file", shown[0], "--tls-key-file", shown[1]]
            server.cli = lambda *a, **_: TlsRedis.cli(server, "--insecure", *a)
            server.start()
            for host, more, good in (
                ("localhost", "", True),
                ("127.0.0.1", "", False),
                ("127.0.0.1", "&server_name=redis.test", True),
                ("127.0.0.1", "&server_name=other.test", False),
            ):
                d = opened(f"rediss://{host}:{server.port}/x?ca={pki.ca}{more}")
                r = d.read(within=SHORT)
                said = good or "is for localhost, redis.test, not for" in r["err"]["text"]
                ok(
                    (r["outcome"] == "absent") == good and said,
                    f"names: {host}{more}: {'' if good else 'not '}taken",
                    r,
                )
                d.end()
            # Two locks of one process that ask for different names have connections of their own.
            d = Driver()
            for lock, name in ("a", "redis.test"), ("b", "other.test"):
                d.open(f"rediss://127.0.0.1:{server.port}/x?ca={pki.ca}&server_name={name}", lock)
            same(
                [d.read(x, within=SHORT)["outcome"] for x in "ab"], ["absent", "failed"], "names: each lock has its own"
            )
            d.end()


def failover() -> None:
    """Two servers are named, and the replica is promoted."""
    with tempfile.TemporaryDirectory() as where:
        pki = Pki(where)
        first = TlsRedis(pki=pki)
        second = TlsRedis(pki=pki, replica_of=first)
        with first, second:
            each_alone(first, second)
            wait_for(lambda: "master_link_status:up" in second.cli("INFO", "replication"))
            both = f"rediss://127.0.0.1:{second.port},127.0.0.1:{first.port}/f?ca={pki.ca}"
            d, e = opened(both), opened(both)
            d.do("watch")
            leads(e, "failover: a term on the primary")
            hears(d, e, "failover: another is told of its renewals")
            wait_for(lambda: second.cli("EXISTS", "f") == "1")
            first.kill()
            second.cli("REPLICAOF", "NO", "ONE")
            leads(e, "failover: and one on the server that was promoted")
            hears(d, e, "failover: of which another is told, too")
            same([d.end(), e.end()], [0, 0], "failover: both close in peace")


def cluster() -> None:
    """A cluster says where the key is, at a server that the URL does not name: it is spoken to by TLS, and verified by
    the name that the cluster gives it."""
    with tempfile.TemporaryDirectory() as where:
        pki = Pki(where)
        nodes = []
        for _ in range(2):
            bus = str(free_port())
            nodes.append(TlsRedis("--cluster-enabled", "yes", "--cluster-port", bus, pki=pki))
        for n, s in enumerate(nodes):
            s.cli("CLUSTER", "ADDSLOTSRANGE", str(8192 * n), str(8192 * n + 8191))
            s.cli("CLUSTER", "SET-CONFIG-EPOCH", str(n + 1))
        bus = nodes[0].options[nodes[0].options.index("--cluster-port") + 1]
        nodes[1].cli("CLUSTER", "MEET", "127.0.0.1", str(nodes[0].port), bus)
        whole = wait_for(lambda: all("cluster_state:ok" in s.cli("CLUSTER", "INFO") for s in nodes))
        ok(whole, "cluster: it is whole")
        each_alone(*nodes)
        key = next(k for k in map(str, range(99)) if int(nodes[0].cli("CLUSTER", "KEYSLOT", k)) > 8191)
        url = f"rediss://127.0.0.1:{nodes[0].port}/0/{key}?ca={pki.ca}"
        d, e = opened(url), opened(url)
        d.do("watch")
        leads(e, "cluster: a term begins where the key is")
        same(nodes[1].cli("EXISTS", key), "1", "cluster: at the server that is not named")
        hears(d, e, "cluster: and its renewals are told")
        same([d.end(), e.end()], [0, 0], "cluster: both close in peace")
        for s in nodes:
            s.close()


def fenced() -> None:
    """A script reaches its lock's server by what the lock's URL says."""
    with tempfile.TemporaryDirectory() as where:
        pki = Pki(where)
        cert, key = pki.sign("client", "/CN=luna")
        with TlsRedis("--tls-auth-clients", "optional", pki=pki) as server:
            text = """
                local redis = require "lunarch.redis"
                return { on_leading = function(term)
                    print(assert(redis.beside(term):fenced(term, "SET", "done", "yes")))
                    os.exit(0)
                end }"""
            url = f"{server.url('x')}&cert={cert}&key={key}"
            c = Candidate("--lock", url, "-e", text, options=STEADY)
            ok(
                c.leave() == 0 and server.cli("GET", "done") == "yes",
                "fenced: redis.beside speaks TLS as the lock does",
            )


only = [globals()[n] for n in sys.argv[1:]]
if only:
    at_once(*only)
    done()
store = Store()
run(store, BASIC + NETWORK + SERVER + [read_only])
store.end()
at_once(login, names, failover, cluster, fenced)
stop_everyone()
done()

#!/usr/bin/env -S PYTHONPATH=. python3
"""examples/haproxy.lua: Debian's HAProxy sends clients to the leader, to the next one after a failover, and to nobody
while nobody leads, without ever being reloaded."""

import http.client
import json
import os
import re
import signal
import urllib.request
from collections.abc import Sequence
from typing import Any

from tests.lib.balancer import follow, get
from tests.lib.candidates import STEADY, Candidate, stop_everyone
from tests.lib.processes import PATIENCE, scratch, wait_for
from tests.lib.servers import Server
from tests.lib.tap import done, ok


class Haproxy(Server):
    script, settings = "haproxy.lua", lambda self: [self.path("leader.map"), self.path("socket")]

    def path(self, name: str) -> str:
        return os.path.join(self.dir, name)

    def prepare(self) -> None:
        with open(self.path("leader.map"), "w") as f:
            f.write("leader 127.0.0.1:1\n")
        with open(self.path("cfg"), "w") as f:
            f.write(
                f"""global
  stats socket {self.path("socket")} mode 600 level admin
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
  retries 0
listen front
  bind 127.0.0.1:{self.port}
  http-request set-var(txn.to) str(leader),map_str({self.path("leader.map")})
  http-request deny deny_status 503 unless {{ var(txn.to) -m found }}
  http-request set-dst var(txn.to),field(1,:)
  http-request set-dst-port var(txn.to),field(2,:)
  server leader 0.0.0.0:0
"""
            )

    def command(self) -> Any:
        return ["haproxy", "-db", "-f", self.path("cfg")]

    def ready(self) -> Any:
        return get(self.port)[0] is not None


class Checking(Server):
    """With health checks as HAProxy makes them of its own: `option httpchk` alone asks OPTIONS /, by HTTP/1.0."""

    def __init__(self, backends: Sequence[str]) -> None:
        self.backends = backends
        super().__init__()

    def prepare(self) -> None:
        servers = "".join(
            f"  server s{i} {address} check inter 200ms rise 1 fall 1\n" for i, address in enumerate(self.backends)
        )
        with open(self.dir + "/cfg", "w") as f:
            f.write(
                f"""defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
listen front
  bind 127.0.0.1:{self.port}
  option httpchk
{servers}"""
            )

    def command(self) -> Any:
        return ["haproxy", "-db", "-f", self.dir + "/cfg"]

    def ready(self) -> Any:
        return get(self.port)[0] is not None


def checks() -> None:
    lock = os.path.join(scratch(), "checked")
    pair = [Candidate("--lock", lock, "--listen", "127.0.0.1:0", "-e", "sleep(1e6)", options=STEADY) for _ in "ab"]
    places = [re.findall(r"http://(\S+:\d+)", c.event("listening")["message"])[0] for c in pair]
    wait_for(lambda: any(c.all("became_leader") for c in pair))
    first = 0 if pair[0].all("became_leader") else 1
    with Checking(places) as server:

        def told() -> Any:
            """Who answers; None: the one that Haproxy still takes for the leader has just gone."""
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/status", timeout=PATIENCE) as r:
                    return json.load(r)["pid"]
            except (OSError, http.client.HTTPException):
                return None

        ok(wait_for(lambda: get(server.port)[0] == 200), "a bare `option httpchk` finds the leader up")
        ok(wait_for(lambda: {told() for _ in range(10)} == {pair[first].pid}), "and every standby down")
        pair[first].kill(signal.SIGTERM)
        ok(wait_for(lambda: get(server.port)[0] == 200 and told() == pair[1 - first].pid), "and the next leader up")


follow(Haproxy, "map")
checks()
stop_everyone()
done()

#!/usr/bin/env python3
"""examples/haproxy.lua: Debian's HAProxy sends clients to the leader, to the next one after a failover, and to nobody
while nobody leads, without ever being reloaded."""

import os
import sys
from typing import Any

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from balancer import follow, get
from candidates import stop_everyone
from servers import Server
from tap import done


class Haproxy(Server):
    script, settings = "haproxy.lua", lambda self: [self.path("leader.map"), self.path("socket")]

    def path(self, name: str) -> Any:
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


follow(Haproxy, "map")
stop_everyone()
done()

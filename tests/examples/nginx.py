#!/usr/bin/env -S PYTHONPATH=. python3
"""examples/nginx.lua: Debian's nginx sends clients to the leader, to the next one after a failover, and to nobody while
nobody leads."""

import os

from tests.lib.balancer import follow, get
from tests.lib.candidates import stop_everyone
from tests.lib.processes import alive, children, wait_for
from tests.lib.servers import Server
from tests.lib.tap import done, ok


class Nginx(Server):
    script, settings = "nginx.lua", lambda self: [
        self.path("leader.conf"),
        f"nginx -c {self.path('conf')} -e {self.log} -s reload",
    ]

    def path(self, name: str) -> str:
        return os.path.join(self.dir, name)

    def prepare(self) -> None:
        user = "user root;" if os.geteuid() == 0 else ""
        temporary = "".join(
            f"{kind}_temp_path {self.dir}/{kind}; " for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        with open(self.path("leader.conf"), "w") as f:
            f.write("upstream leader { server 127.0.0.1:1; }\n")
        with open(self.path("conf"), "w") as f:
            f.write(
                f"daemon off; {user} worker_processes 1; pid {self.dir}/pid; error_log {self.log};\nevents {{ "
                f"worker_connections 64; }}\n"
                f"http {{ access_log off; {temporary}\n  include {self.path('leader.conf')};\n"
                f"  server {{ listen 127.0.0.1:{self.port}; location / {{ proxy_pass http://leader; }} }}\n}}\n"
            )

    def command(self) -> list[str]:
        return ["nginx", "-c", self.path("conf"), "-e", self.log]

    def ready(self) -> bool:
        return get(self.port)[0] is not None

    def close(self) -> None:
        workers = children(self.process.pid) if self.process else []
        super().close()
        if workers:
            ok(wait_for(lambda: not any(map(alive, workers))), "no worker of nginx outlives the test")


follow(Nginx, "upstream")
stop_everyone()
done()

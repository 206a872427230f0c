#!/usr/bin/env -S PYTHONPATH=. python3
"""examples/canary.lua: real web servers get a new version one by one, the canary first, across the death of a leader; a
bad version goes back."""

import json
import os
import shutil
import signal
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.lib.candidates import Candidate, stop_everyone
from tests.lib.processes import ROOT, scratch, wait_for
from tests.lib.tap import done, ok, same

SCRIPT = os.path.join(ROOT, "examples", "canary.lua")
where = scratch()
DEPLOY, LOG = os.path.join(where, "deploy"), os.path.join(where, "deployed")


class Host(ThreadingHTTPServer):
    """Runs the version that is in its file. A version with "bad" in it falls ill once it has been asked a few times."""

    daemon_threads = True

    def __init__(self, version: str) -> None:
        super().__init__(("127.0.0.1", 0), Health)
        self.name = f"127.0.0.1:{self.server_address[1]}"
        self.asked: dict[str, int] = {}
        with open(os.path.join(where, self.name), "w") as f:
            f.write(version)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def version(self) -> str:
        with open(os.path.join(where, self.name)) as f:
            return f.read().strip()

    def handle_error(self, *_: object) -> None:
        pass


class Health(BaseHTTPRequestHandler):
    server: "Host"

    def do_GET(self) -> None:
        version = self.server.version()
        times = self.server.asked[version] = self.server.asked.get(version, 0) + 1
        body = json.dumps({"version": version}).encode()
        self.send_response(500 if "bad" in version and times > 3 else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


with open(DEPLOY, "w") as f:  # in the way of rename: a host has one version or the other
    f.write(f'#!/bin/sh\nset -e\necho "$1 $2" >> {LOG}\necho "$2" > {where}/.$$\nmv {where}/.$$ "{where}/$1"\n')
os.chmod(DEPLOY, 0o755)
hosts = [Host("1") for _ in range(4)]
names = [h.name for h in hosts]


def versions() -> list[str]:
    return [h.version() for h in hosts]


def join(name: str, version: Any, seconds: Any) -> Any:
    return Candidate(
        "--lock", os.path.join(where, "lock"), "--identity", name, SCRIPT, "--", version, seconds, DEPLOY, *names
    )


def deployed() -> Any:
    try:
        with open(LOG) as f:
            return [tuple(line.split()) for line in f if line.endswith("\n")]
    except FileNotFoundError:
        return []


a = join("a", "2", "100000")
ok(
    wait_for(lambda: versions()[0] == "2" and hosts[0].asked.get("2")),
    "the canary gets the new version, and is watched",
)
same((versions()[1:], deployed()), (["1"] * 3, [(names[0], "2")]), "the others do not, as long as that lasts")
b = join("b", "2", "1")
ok(b.wait("new_leader"), "another waits")
a.kill(signal.SIGKILL)
same(b.leave(), 0, "when the leader is killed over it the other goes on, to its end")
same(versions(), ["2"] * 4, "all have the new version")
ok(
    [d for d in deployed() if d[0] != names[0]] == [(n, "2") for n in names[1:]],
    "each of the others once, one after the other",
    deployed(),
)
watched = hosts[0].asked["2"]
ok(watched >= 12, "after the canary was watched again", watched)
before = len(deployed())
c = join("c", "2", "1")
same((c.leave(), len(deployed())), (0, before), "who comes late finds it done, and leaves")
d, e = join("d", "3bad", "2"), join("e", "3bad", "2")
ok(
    wait_for(lambda: d.leave(0.01) is not None and e.leave(0.01) is not None),
    "a version that falls ill on the canary ends the rollout",
)
same((d.leave(), e.leave()), (1, 1), "with a status that says so, on all machines")
same(versions(), ["2"] * 4, "the canary has what it had before")
same([x for x in deployed()[before:] if x[0] != names[0]], [], "and the others never had the bad one")
said = " ".join(x.get("message", "") for c in (d, e) for x in c.events)
ok(
    "says 500" in said and "rolled_back" in [x.get("event") for c in (d, e) for x in c.events],
    "the log says why, and that it was rolled back",
    said,
)
stop_everyone()
shutil.rmtree(where)
done()

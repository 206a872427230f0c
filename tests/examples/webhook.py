#!/usr/bin/env -S PYTHONPATH=. python3
"""examples/webhook.lua: a real web server hears of each leader, in order, also of those that came while it was down."""

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

SCRIPT = os.path.join(ROOT, "examples", "webhook.lua")
where = scratch()
LOCK = os.path.join(where, "lock")


class Hook(BaseHTTPRequestHandler):
    heard: list[dict[str, Any]] = []
    refused, status = 0, 200

    def do_POST(self) -> None:
        event = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status = Hook.status
        if status == 200:
            Hook.heard.append(event)
        else:
            Hook.refused += 1
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Hook)
threading.Thread(target=server.serve_forever, daemon=True).start()


def lead(name: str) -> tuple[Any, int]:
    c = Candidate("--lock", LOCK, "--identity", name, "--address", f"{name}:80", "-e", "print(term.token)")
    return c, c.event("became_leader")["token"]


def heard(n: Any) -> Any:
    return wait_for(lambda: len(Hook.heard) >= n) and Hook.heard[n - 1]


watcher = Candidate("--lock", LOCK, SCRIPT, "--", f"http://127.0.0.1:{server.server_address[1]}/s3cret")
a, token_a = lead("a")
first = heard(1) or {}
same(
    {k: first.get(k) for k in ("event", "leader", "address", "token")},
    {"event": "leader", "leader": "a", "address": "a:80", "token": token_a},
    "the first leader is told, with address and token",
)
ok(first.get("lock", "").endswith(LOCK) and first.get("at", "").endswith("Z"), "and where and when")
Hook.status = 503
a.kill(signal.SIGTERM)
same(a.leave(), 0, "it stops")
ok(wait_for(lambda: Hook.refused >= 2), "a hook that is down is told again")
b, token_b = lead("b")
ok(watcher.wait("new_leader", count=2), "meanwhile there is another leader")
Hook.status = 200
ok(heard(3), "when it is up it hears everything")
same(
    [(e["event"], e.get("leader", e.get("previous"))) for e in Hook.heard],
    [("leader", "a"), ("nobody", "a"), ("leader", "b")],
    "in the order in which it happened",
)
ok(Hook.heard[2]["token"] == token_b > token_a, "with a larger token")
Hook.status = 404
b.kill(signal.SIGTERM)
failed = watcher.wait("webhook_failed")
ok(
    failed and "404" in failed["message"],
    "a hook that is gone is told in the log, and not asked for ten minutes",
    failed,
)
ok(not any("s3cret" in str(e) for e in watcher.events if e.get("event") == "webhook_failed"), "without its secret")
Hook.status = 200
c, token_c = lead("c")
ok(wait_for(lambda: Hook.heard[-1].get("leader") == "c"), "the next change is told again")
ok(not watcher.all("became_leader"), "who watches never led")
watcher.kill(signal.SIGTERM)
same(watcher.leave(), 0, "and can be told to leave")
stop_everyone()
shutil.rmtree(where)
done()

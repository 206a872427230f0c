#!/usr/bin/env -S PYTHONPATH=. python3
"""examples/watchdog.lua: who is not well gives up the lead, and stays out until it is well again. Health is what real
HTTP servers say."""

import os
import shutil
import signal
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.lib.candidates import Candidate, stop_everyone
from tests.lib.processes import PATIENCE, ROOT, alive, scratch, wait_for
from tests.lib.tap import done, ok, same

SCRIPT = os.path.join(ROOT, "examples", "watchdog.lua")
where = scratch()
HANG = 0  # among the statuses that a server says: it says none
RUNNING = os.path.join(where, "running")


class Health(ThreadingHTTPServer):
    """Says what `state` is: a status, or HANG."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.state, self.asked, self.healed = 200, 0, threading.Event()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def url(self) -> Any:
        return f"http://127.0.0.1:{self.server_address[1]}/health"

    def handle_error(self, *_: object) -> None:
        pass  # a client that has gone


class Answer(BaseHTTPRequestHandler):
    server: "Health"

    def do_GET(self) -> None:
        self.server.asked += 1
        state = self.server.state
        if state == HANG:
            self.server.healed.wait(PATIENCE)
            state = 503
        self.send_response(state)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def running() -> str | None:
    """On whose behalf the program runs now; None: nobody's."""
    try:
        with open(RUNNING) as f:
            pid, who = f.read().split()
    except (FileNotFoundError, ValueError):
        return None
    return who if alive(int(pid)) else None


def join(name: str, health: Any) -> Any:
    work = f'echo "$$ $LUNARCH_TERM_IDENTITY" > {where}/{name} && mv {where}/{name} {RUNNING}; exec sleep 100000'
    return Candidate(
        "--lock",
        os.path.join(where, "lock"),
        "--identity",
        name,
        SCRIPT,
        "--",
        health.url(),
        "0.1",
        "sh",
        "-c",
        work,
        options=["--lease-duration", "6s", "--log-level", "debug"],
    )


health_a, health_b = Health(), Health()
a = join("a", health_a)
ok(a.wait("became_leader") and wait_for(lambda: running() == "a"), "who is well leads, and its program runs")
b = join("b", health_b)
ok(b.wait("new_leader"), "another waits")
before = health_a.asked
ok(wait_for(lambda: health_a.asked >= before + 10), "the leader goes on asking for its health")
health_a.state = 503
ok(a.wait("stopped_leading", "resigned"), "when its health check says 503 it resigns")
said = a.wait("unhealthy")
ok(
    said and "failures=3" in said["message"] and "says 503" in said["message"],
    "and says why, after three failures",
    said,
)
ok(b.wait("became_leader") and wait_for(lambda: running() == "b"), "the other leads, and the program runs there")
health_b.state = HANG
ok(b.wait("stopped_leading", "resigned"), "when its health check hangs it resigns too")
ok(wait_for(lambda: running() is None), "and its program is stopped")
before = health_a.asked
ok(wait_for(lambda: health_a.asked >= before + 4), "who is not well is asked again and again while nobody leads")
ok(
    not any(e["seen"] > said["seen"] for e in a.all("became_leader")) and len(b.all("became_leader")) == 1,
    "and sits out: nobody leads",
)
ok(a.wait("may_not_lead", "says 503"), "its log says why it may not")
health_a.state = 204
ok(a.wait("became_leader", count=2) and wait_for(lambda: running() == "a"), "well again, it leads again")
health_b.healed.set()
b.kill(signal.SIGTERM)
same(b.leave(), 0, "who waits, unwell, can be told to leave")
a.kill(signal.SIGTERM)
same(a.leave(), 0, "and so can the leader")
ok(running() is None, "whose program has ended with it")
stop_everyone()
shutil.rmtree(where)
done()

#!/usr/bin/env -S PYTHONPATH=. python3
"""examples/heartbeat.lua: a file that says who leads, never an older leader's after a newer one's; a real web server
hears the pings."""

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

SCRIPT = os.path.join(ROOT, "examples", "heartbeat.lua")
where = scratch()
FILE = os.path.join(where, "alive.json")
GUARD = os.path.join(where, ".alive.json.token")


class Switch(BaseHTTPRequestHandler):
    heard = failing = 0

    def do_GET(self) -> None:
        Switch.heard += 1
        self.send_response(503 if Switch.failing else 200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


switch = ThreadingHTTPServer(("127.0.0.1", 0), Switch)
threading.Thread(target=switch.serve_forever, daemon=True).start()


def sign() -> dict[str, Any]:
    try:
        with open(FILE) as f:
            return json.load(f)  # a sign that is half written would raise
    except FileNotFoundError:
        return {}


def join(name: str) -> Any:
    return Candidate(
        "--lock",
        os.path.join(where, "lock"),
        "--identity",
        name,
        SCRIPT,
        "--",
        FILE,
        "0.2",
        f"http://127.0.0.1:{switch.server_address[1]}/",
    )


seen: list[dict[str, Any]] = []
stop = threading.Event()


def watch() -> None:
    while not stop.wait(0.005):
        s = sign()
        if s and (not seen or seen[-1] != s):
            seen.append(s)


watcher = threading.Thread(target=watch)
watcher.start()
a = join("a")
ok(wait_for(lambda: sign().get("leader") == "a"), "the leader writes its sign of life")
first = sign()
same(first["token"], a.wait("became_leader")["token"], "with its token")
ok(wait_for(lambda: sign()["at"] > first["at"] and sign()["since"] == first["since"]), "and writes it again and again")
before = Switch.heard
ok(wait_for(lambda: Switch.heard >= before + 3), "the dead man's switch hears it")
Switch.failing = 1
ok(a.wait("ping_failed", "status 503"), "a switch that does not answer well is told in the log, after some tries")
Switch.failing = 0
ok(wait_for(lambda: sign()["at"] > first["at"]) and not a.all("stopped_leading"), "and the leader leads on")
b = join("b")
ok(b.wait("new_leader"), "another waits")
a.kill(signal.SIGKILL)
ok(wait_for(lambda: sign().get("leader") == "b"), "when the leader is killed the other one's sign is there")
ok(sign()["token"] > first["token"], "with a larger token")
with open(GUARD, "w") as f:  # as if a newer leader had written, elsewhere
    f.write(str(2**62))
ok(b.wait("stopped_leading", "error"), "who has been replaced ends its term")
left = sign()
ok(any("this leader has been replaced" in e.get("message", "") for e in b.events), "and says why")
os.unlink(GUARD)
ok(wait_for(lambda: sign()["at"] > left["at"] and sign()["token"] > left["token"]), "and leads again when it may")
b.kill(signal.SIGTERM)
same(b.leave(), 0, "it can be told to leave")
stop.set()
watcher.join()
tokens = [s["token"] for s in [*seen, sign()]]
ok(tokens == sorted(tokens) and tokens[-1] > tokens[0], "the file never went back to an older leader")
same(sorted(n for n in os.listdir(where) if n.endswith(".new")), [], "no temporary file is left")
stop_everyone()
shutil.rmtree(where)
done()

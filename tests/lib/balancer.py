"""Following the leader, as a balancer does: what stands behind it, and the course of a failover as its clients see
it."""

import http.server
import os
import signal
import threading
import urllib.error
import urllib.request
from typing import Any

from tests.lib.candidates import STEADY, Candidate
from tests.lib.processes import PATIENCE, ROOT, scratch, wait_for
from tests.lib.tap import ok, same

NOBODY = (502, 503)
LEADER = 'return { on_leading = function() print "serving" end }'


class Service:
    """What answers behind the balancer, with its name."""

    def __init__(self, name: str) -> None:
        self.asked = 0

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(handler) -> None:
                self.asked += 1
                handler.reply()

            def reply(self) -> None:
                self.send_response(200)
                self.send_header("Content-Length", str(len(name)))
                self.end_headers()
                self.wfile.write(name.encode())

            def log_message(self, *_: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()


def get(port: int) -> Any:
    """(status, text); (None, "") if nobody answers."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=PATIENCE) as r:
            return r.status, r.read().decode()
    except urllib.error.HTTPError as e:
        return e.code, e.read().decode()
    except OSError:
        return None, ""


def follow(kind: Any, event: Any) -> None:
    """kind: a Server with the script that watches, and its settings; event: what that logs when it has told the
    balancer something."""
    what = kind.__name__
    with kind() as server:
        lock = os.path.join(scratch(), "lock")
        a, b = Service("a"), Service("b")

        def join(service: Any, name: str) -> Any:
            return Candidate(
                "--lock", lock, "--identity", name, "--address", service.address, "-e", LEADER, options=STEADY
            )

        watcher = Candidate(
            "--lock", lock, os.path.join(ROOT, "examples", server.script), "--", *server.settings(), options=STEADY
        )

        def told(n: Any) -> Any:
            return watcher.wait(event, count=n)

        ok(
            told(1) and wait_for(lambda: get(server.port)[0] in NOBODY),
            f"{what}: while nobody leads clients are told so",
        )
        first = join(a, "a")
        if not ok(wait_for(lambda: get(server.port) == (200, "a")), f"{what}: clients get to the leader"):
            watcher.log()
        second = join(b, "b")
        second.wait("new_leader")
        same(b.asked, 0, f"{what}: and to no other")
        first.kill(signal.SIGKILL)
        ok(wait_for(lambda: get(server.port) == (200, "b")), f"{what}: after a crash they get to the next")
        second.kill(signal.SIGTERM)
        second.leave()
        ok(wait_for(lambda: get(server.port)[0] in NOBODY), f"{what}: when nobody leads any more to none")
        third = Candidate(
            "--lock", lock, "--identity", "c", "--address", "127.0.0.1:1; } evil {", "-e", LEADER, options=STEADY
        )
        ok(third.wait("became_leader") and watcher.wait("no_address"), f"{what}: an address that is none is said")
        ok(
            "evil" not in open(server.settings()[0]).read() and wait_for(lambda: get(server.port)[0] in NOBODY),
            f"{what}: and written nowhere",
        )
        same(len(watcher.all("became_leader")), 0, f"{what}: who watches never leads")
        third.kill(signal.SIGTERM)
        watcher.kill(signal.SIGTERM)
        same((third.leave(), watcher.leave()), (0, 0), f"{what}: all end in peace")

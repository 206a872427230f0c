#!/usr/bin/env -S PYTHONPATH=. python3
"""lunarch exec --warm: the command of the candidate that comes next is started before it leads. The command is a real
HTTP server that loads a cache first."""

import json
import os
import sys
import urllib.request
from typing import Any

from tests.lib import stores
from tests.lib.candidates import STEADY, Candidate, stop_everyone
from tests.lib.commands import run
from tests.lib.processes import PATIENCE, alive, scratch, wait_for
from tests.lib.tap import done, ok, same

directory = scratch()

# It notes in a file of its directory what it is and does. Its first argument is how it behaves before it leads.
PROGRAM = r"""
import hashlib, http.server, json, os, signal, subprocess, sys

notes, how = sys.argv[1:]
def note(**what):
    with open(notes, "a") as f:
        f.write(json.dumps({"pid": os.getpid(), **what}) + "\n")

fd, token = os.environ.get("LUNARCH_WARM_FD"), os.environ.get("LUNARCH_TOKEN")
cache = {str(n): hashlib.sha256(str(n).encode()).hexdigest() for n in range(10000)}
if fd:
    if how == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
        note(did="left", child=child.pid)
    marks = {name: os.environ.get(name) for name in ("LUNARCH_TERM", "LUNARCH_NEXT", "LUNARCH_TOKEN")}
    note(did="warm", marks=marks)
    if how == "ends":
        sys.exit(3)
    with os.fdopen(int(fd), "r+b", buffering=0) as lunarch:
        if how != "silent":
            lunarch.write(b"ready\n")
        line = lunarch.readline().decode()
    if not line:
        sys.exit(9)
    note(did="told", line=line)
    token = line.split()[1]

class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps({"pid": os.getpid(), "token": token, "value": cache[self.path[1:]]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass

server = http.server.HTTPServer(("127.0.0.1", 0), Page)
note(did="serves", port=server.server_address[1], warm=bool(fd))
server.serve_forever()
"""


class Server:
    """A candidate with such a command."""

    number = 0

    def __init__(self, lock: str, how: str = "serves", *options: str) -> None:
        Server.number += 1
        self.notes = f"{directory}/notes{Server.number}"
        self.socket = f"{directory}/{Server.number}.sock"
        args = ["--warm", "--lock", lock, "--control", self.socket, *options]
        self.candidate = Candidate(
            *args, "--", sys.executable, "-c", PROGRAM, self.notes, how, command="exec", options=STEADY
        )

    def noted(self, did: str) -> list[Any]:
        if not os.path.exists(self.notes):
            return []
        with open(self.notes) as f:
            lines = [json.loads(line) for line in f.read().split("\n")[:-1]]
        return [line for line in lines if line["did"] == did]

    def wait(self, did: str, count: int = 1) -> Any:
        """The so-many-th note of it; {} if it does not come."""
        if not wait_for(lambda: len(self.noted(did)) >= count):
            self.candidate.log()
            return {}
        return self.noted(did)[count - 1]

    def page(self, name: str) -> dict[str, Any]:
        """Of the server that serves; it has said so."""
        port = self.noted("serves")[-1]["port"]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{name}", timeout=PATIENCE) as answer:
            return json.load(answer)

    def status(self) -> str:
        r = run("ctl", "--control", self.socket, "status")
        return r.stdout


def leader(lock: str) -> Server:
    a = Server(lock, "serves", "--restart", "always")
    a.wait("serves")
    return a


def end(*servers: Server) -> None:
    for s in servers:
        s.candidate.ask_to_stop()
    for s in servers:
        s.candidate.stop()


def taken_over(lock: str, name: str) -> None:
    """A leader that is stopped is followed by a command that runs already."""
    a = leader(lock)
    same(a.noted("serves")[0]["warm"], False, f"{name}: where nobody leads, the command is started as usual")
    b = Server(lock)
    warm = b.wait("warm")
    same(
        warm.get("marks"),
        {"LUNARCH_TERM": "-", "LUNARCH_NEXT": "0.1", "LUNARCH_TOKEN": None},
        f"{name}: the next's command is started without a term or token",
    )
    ok(b.candidate.wait("warm_ready"), f"{name}: it says that it is ready, and the log does")
    ok(wait_for(lambda: "its command is ready to lead" in b.status()), f"{name}: so does ctl status")
    same(len(b.noted("serves")), 0, f"{name}: it serves nobody yet")
    same(a.candidate.stop(), 143, f"{name}: the leader is told to stop")
    b.wait("serves")
    token = b.candidate.event("became_leader")["token"]
    same(b.wait("told").get("line"), f"lead {token}\n", f"{name}: the command is told to lead, with the token")
    page = b.page("17")
    same((page["pid"], page["token"]), (warm.get("pid"), str(token)), f"{name}: and serves, as the same process")
    same(len(page["value"]), 64, f"{name}: what it loaded before")
    b.candidate.kill()
    ok(wait_for(lambda: not alive(page["pid"])), f"{name}: it dies with its elector, as any leader's command")


def silent(lock: str) -> None:
    a, b = leader(lock), Server(lock, "silent")
    pid = b.wait("warm").get("pid", 0)
    ok(
        wait_for(lambda: "its command is cold" in b.status()),
        "one that never says that it is ready: status has it cold",
    )
    end(a)
    ok(b.candidate.wait("warm_cold"), "... when it leads the log says that it was not ready")
    same(b.wait("serves").get("warm"), False, "... and it is started as usual")
    ok(not alive(pid), "... after the other has ended")
    same(len(b.noted("told")), 0, "... which was never told to lead")
    end(b)


def ends(lock: str) -> None:
    a, b = leader(lock), Server(lock, "ends")
    ok(b.candidate.wait("warm_ended", "status 3"), "one that ends by itself: its status is said")
    ok(wait_for(lambda: "its command is cold" in b.status()), "... status has it cold")
    same(len(b.noted("warm")), 1, "... it is not started again")
    end(a)
    same(b.wait("serves").get("warm"), False, "... until it leads, as usual")
    same(len(b.candidate.all("warm_ended")), 1, "... and it is said once")
    end(b)


def next_no_more(lock: str) -> None:
    a, b = leader(lock), Server(lock, "stubborn")
    b.wait("warm")
    mine = [n[key] for n, key in ((b.wait("warm"), "pid"), (b.wait("left"), "child"))]
    c = Server(lock, "serves", "--priority", "5")
    c.wait("warm")
    ok(wait_for(lambda: not any(map(alive, mine))), "who comes next no more: its command is ended, with its children")
    ok("its command" not in b.status(), "... and status says nothing of it")
    same(len(b.candidate.all("warm_ended")), 0, "... nor does the log: it was told to end")
    end(c)
    ok(b.wait("warm", 2), "it is started again when its candidate comes next again")
    pid = b.noted("warm")[-1]["pid"]
    same(b.candidate.stop(), 143, "a candidate that is stopped before it leads leaves with 143")
    ok(not alive(pid), "... and its command has ended")
    end(a)


def lost(lock: str) -> None:
    a, b = leader(lock), Server(lock, "stubborn")
    b.candidate.wait("warm_ready")
    end(a)
    b.wait("serves")
    mine = [b.noted("warm")[0]["pid"], b.noted("left")[0]["child"]]
    ok(all(map(alive, mine)), "what it started before it led goes on")
    os.unlink(lock)
    same(b.candidate.leave(), 76, "and when the lease is lost, the candidate leaves with 76")
    ok(not any(map(alive, mine)), "... after all of it was killed")


def main() -> None:
    os.environ.pop("LUNARCH_WARM_FD", None)
    taken_over(directory + "/file", "file")
    etcd = stores.Etcd()
    try:
        taken_over(etcd.url("warm"), "etcd")
    finally:
        stop_everyone()
        etcd.end()
    silent(directory + "/silent")
    ends(directory + "/ends")
    next_no_more(directory + "/no-more")
    lost(directory + "/lost")


try:
    main()
finally:
    stop_everyone()
done()

#!/usr/bin/env -S PYTHONPATH=. /usr/bin/python3
"""The admin endpoint: what a load balancer, a probe and Prometheus see of a leader, a standby, and of a term that
changes hands."""

import atexit
import http.client
import json
import os
import re
import shutil
import signal
import socket
import stat
import sys

from prometheus_client.parser import text_string_to_metric_families
from typing import Any

from tests.lib.asked import Asked
from tests.lib.candidates import Candidate, stop_everyone
from tests.lib.processes import PATIENCE, ROOT, scratch, wait_for
from tests.lib.tap import done, note, ok, same

TMP = scratch()
atexit.register(shutil.rmtree, TMP, True)
atexit.register(stop_everyone)


def start(*args: Any, listen: str = "127.0.0.1:0", command: str = "run") -> Asked:
    return Asked("--listen", listen, *args, command=command)


def families(c: Any) -> Any:
    return list(text_string_to_metric_families(c.get("/metrics")[1]))


def metric(c: Any, which: Any, **labels: Any) -> Any:
    for family in families(c):
        for s in family.samples:
            if s.name == which and all(s.labels.get(k) == v for k, v in labels.items()):
                return s.value
    return None


class Events:
    """Follows /events at a Unix socket."""

    def __init__(self, path: str) -> None:
        self.s = socket.socket(socket.AF_UNIX)
        self.s.settimeout(PATIENCE)
        self.s.connect(path)
        self.s.sendall(b"GET /events HTTP/1.1\r\nHost: lunarch\r\n\r\n")
        self.f = self.s.makefile("rb")
        self.status = int(self.f.readline().split()[1])
        while self.f.readline() not in (b"\r\n", b""):
            pass

    def lines(self) -> str:
        """The next message or comment."""
        got = ""
        while (line := self.f.readline().decode()) not in ("\n", ""):
            got += line
        return got

    def next(self) -> Any:
        while not (found := re.match(r"id: (\d+)\ndata: (.*)\n$", self.lines())):
            pass
        return {"id": found[1], **json.loads(found[2])}

    def until(self, what: Any) -> Any:
        while not what(e := self.next()):
            pass
        return e


def unix_get(path: str, target: str) -> tuple[int, str]:
    c = http.client.HTTPConnection("lunarch")
    c.sock = socket.socket(socket.AF_UNIX)
    c.sock.settimeout(PATIENCE)
    c.sock.connect(path)
    c.request("GET", target)
    r = c.getresponse()
    return r.status, r.read().decode()


def refused(address: Any, *words: Any) -> None:
    c = Candidate("--listen", address, "--lock", os.path.join(TMP, "never"), "-e", "sleep(1)")
    status = c.leave()
    wait_for(lambda: c.closed)
    text = " ".join(e.get("message", "") for e in c.events)
    ok(status not in (0, None) and all(w in text for w in words), f"--listen {address} is refused, and says why")
    if not all(w in text for w in words):
        note(text)


lock = os.path.join(TMP, "one")
a = start("--lock", lock, "-e", "sleep(1000)")
a.wait("became_leader")
same(a.get("/leader")[0], 200, "the leader answers 200 to a load balancer")
b = start("--lock", lock, "-e", "sleep(1000)")
b.wait("new_leader")
code, text = b.get("/leader")
ok(code == 503 and "the leader is" in text, "a standby answers 503, and names the leader")
same([c.get("/healthz")[0] for c in (a, b)], [200, 200], "both are healthy")
same([metric(c, "leader_election_master_status") for c in (a, b)], [1, 0], "client-go's metric says who is master")
ok(wait_for(lambda: metric(a, "lunarch_renewals_total", result="ok")), "renewals are counted")
count = metric(a, "lunarch_renew_seconds_count")
ok(count and metric(a, "lunarch_renew_seconds_bucket", le="+Inf") >= count, "and timed")
token = metric(a, "lunarch_token")
ok(token and 0 < metric(a, "lunarch_remaining_seconds") <= 5, "token and what is left of the term are there")
status = json.loads(a.get("/status")[1])
same(
    (status["pid"], [e["leading"] for e in status["elections"]]), (a.pid, [True]), "/status is JSON about this process"
)
same(
    [a.get("/leader", "POST")[0], a.get("/leader", "HEAD")[0], a.get("/nothing")[0]],
    [405, 200, 404],
    "only GET and HEAD, only what there is",
)

for path, alias in ("/leader", "/primary"), ("/healthz", "/liveness"), ("/readyz", "/readiness"):
    same([c.get(alias) for c in (a, b)], [c.get(path) for c in (a, b)], f"{alias} is {path}")
same(
    [[c.get("/leader", method)[0] for c in (a, b)] for method in ("HEAD", "OPTIONS")],
    [[200, 503], [200, 503]],
    "OPTIONS is answered like HEAD",
)
same(
    [c.get("/", "OPTIONS")[0] for c in (a, b)],
    [200, 503],
    "OPTIONS /, which HAProxy asks unless told a path, is /leader",
)
same(
    [json.loads(c.get("/")[1]) for c in (a, b)],
    [{"name": a.event("became_leader")["identity"]}] * 2,
    "/ names the leader to programs, as the sidecar of Kubernetes did",
)
same([c.get("/standby")[0] for c in (a, b)], [503, 200], "/standby is 200 on the standby")
ok("became_leader" in a.get("/why")[1] and " leads (term" in b.get("/why")[1], "/why has what `ctl why` says")

a.kill(signal.SIGTERM)
ok(wait_for(lambda: b.get("/leader")[0] == 200), "after the handover the other answers 200")
ok(metric(b, "lunarch_token") > token, "with a larger token")
same(metric(b, "lunarch_transitions_total"), 1, "the term that it began is counted")
a.leave()

script = os.path.join(TMP, "two.lua")
with open(script, "w") as f:
    f.write(
        'return { { name = "plain", lock = "%s/p", on_leading = function() error("x") end },\n'
        '{ name = "other", lock = "%s/q", on_leading = function() sleep(1000) end } }' % (TMP, TMP)
    )
c = start(script)
ok(
    wait_for(lambda: c.get("/leader/plain")[0] == 503 and metric(c, "lunarch_hook_errors_total", name="plain")),
    "an election that fails is not leading, and its hook's errors are counted",
)
ok(wait_for(lambda: c.get("/leader/other")[0] == 200), "the other one leads")
code, text = c.get("/leader")
ok(code == 503 and "/leader/NAME" in text, "with several elections /leader says no, and how to ask")
same(c.get("/leader/nobody")[0], 404, "an election that is not there is 404")
same(
    [c.get(path)[0] for path in ("/primary/other", "/standby/other", "/standby", "/leaderboard", "/readyz/other")],
    [200, 503, 503, 404, 404],
    "/primary and /standby take a name, too; no other path does",
)

odd = os.path.join(TMP, 'odd "name"\\\n')
d = start("--lock", odd, "-e", "sleep(1000)")
ok(
    wait_for(lambda: metric(d, "leader_election_master_status", name="file:" + odd) == 1),
    "a lock with quotes, backslashes and newlines is a valid label",
)
x = start("--lock", os.path.join(TMP, "exec"), "--", "sleep", "1000", command="exec")
ok(wait_for(lambda: x.get("/leader")[0] == 200), "exec has the endpoint too")

script = os.path.join(TMP, "own.lua")
with open(script, "w") as f:
    f.write(
        """local metrics = require "lunarch.metrics"
return { name = "own", lock = "%s/own",
  on_start = function() metrics.gauge("started", 1) end,
  on_leading = function(term)
    for i = 1, 1000 do metrics.counter("jobs_total", 2) end
    for i = 1, 2 do metrics.counter("large_total", 1e308) end
    metrics.gauge("queue", 5) metrics.gauge("queue", 7.5) metrics.gauge("queue", 3, { shard = 'a "b"', zone = 1 })
    for _, try in ipairs { { "0x", 1 }, { "lunarch_x", 1 }, { "x_total", 1 }, { "x", 0/0 },
      { "x", 1, { name = "y" } } } do
      print(pcall(metrics.gauge, table.unpack(try)))
    end
    print(pcall(metrics.counter, "jobs")) print(pcall(metrics.counter, "jobs_total", -1))
    sleep(1e6)
  end, on_stopped = function() metrics.counter("ends_total") end }"""
        % TMP
    )
m = start(script)
ok(wait_for(lambda: metric(m, "queue", shard='a "b"', zone="1", name="own") == 3), "a script's gauge, with its labels")
same(
    [sorted(s.value for s in f.samples) for f in families(m) if f.name == "queue"],
    [[3, 7.5]],
    "its last value, once for each set of labels, all together",
)
same([metric(m, "jobs_total"), metric(m, "started")], [2000, 1], "its counter, and a gauge set outside any term")
same(
    len([e for e in m.all("print") if "false" in e["message"]]),
    7,
    "names, labels and numbers that are none are refused",
)
same(metric(m, "large_total"), sys.float_info.max, "a counter that can grow no more stays as it is")
m.kill(signal.SIGUSR1)
ok(wait_for(lambda: metric(m, "ends_total") == 1 and metric(m, "queue") is None), "a gauge ends with its term")
m.wait("became_leader", count=2)
ok(wait_for(lambda: metric(m, "jobs_total") == 4000), "a counter goes on in the next")
everyone = start("--lock", os.path.join(TMP, "any"), "-e", "sleep(1000)", listen=":0")
everyone.url = "http://127.0.0.1:" + everyone.url.rsplit(":", 1)[1]
ok(wait_for(lambda: everyone.get("/leader")[0] == 200), "`:PORT` is every address of the machine")

with socket.create_connection(("127.0.0.1", int(b.url.rsplit(":", 1)[1]))) as slow:
    slow.send(b"GET /lea")
    same(b.get("/leader")[0], 200, "a client that sends half a request keeps nobody waiting")


def status_line(port: int, request: bytes) -> str:
    """What is answered to these bytes, by its first line."""
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as s:
        s.sendall(request)
        return s.makefile("rb").readline().decode().strip()


port = int(b.url.rsplit(":", 1)[1])
ASK = b"GET /healthz HTTP/1.1\r\nHost: %s\r\n\r\n"
same(
    [
        status_line(port, ASK % h)[9:12]
        for h in (b"localhost:1", b"127.0.0.1", b"[::1]:80", b"a.localhost", b"evil.example")
    ],
    ["200"] * 4 + ["421"],
    "a loopback address answers to names of this machine alone: no other site's page can read it (DNS rebinding)",
)
crowd = [socket.create_connection(("127.0.0.1", port), PATIENCE) for _ in range(100)]
for s in crowd[::2]:
    s.sendall(b"GET /status HTTP/1.1\r\nHost: localhost\r\n")
same(b.get("/healthz")[0], 200, "a hundred clients that never end their requests keep nobody out")
for s in crowd:
    s.close()


def answers_to(request: bytes, last: bytes) -> bytes:
    """What comes until this, or until the end."""
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as s:
        s.sendall(request)
        got = b""
        while last not in got and (piece := s.recv(4096)):
            got += piece
        return got


said = answers_to(b"GET /healthz HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", b"\r\n\r\n")
ok(b"\r\nConnection: keep-alive\r\n" in said, "a client of HTTP/1.0 that asks for it is told that the connection stays")
said = answers_to(ASK.replace(b"GET", b"HEAD") % b"localhost" + b"nonsense\r\n\r\n", b"HTTP/1.1\n")
ok(said.endswith(b"speaks HTTP/1.1\n"), "what is no request has an answer with its text, also after HEAD", said)

# A Unix socket, and what changes, as a stream.
place = os.path.join(TMP, "admin.sock")
left = socket.socket(socket.AF_UNIX)  # as a killed process leaves it
left.bind(place)
left.close()
os.umask(0o077)  # which does not count
u = Candidate("--listen", f"unix:{place}?mode=0660", "--lock", os.path.join(TMP, "unix"), "-e", "sleep(1000)")
u.event("became_leader")
same(
    stat.S_IMODE(os.stat(place).st_mode),
    0o660,
    "unix:PATH replaces what the dead left; the mode is the one that is given",
)
same(unix_get(place, "/leader")[0], 200, "and answers there")
v = Candidate("--listen", f"unix:{place}", "--lock", os.path.join(TMP, "unix"), "-e", "sleep(1000)")
ok(
    v.leave() not in (0, None) and unix_get(place, "/leader")[0] == 200,
    "a socket at which somebody listens is not taken",
)
v = Candidate("--listen", f"unix:{place}.2", "--lock", os.path.join(TMP, "unix"), "-e", "sleep(1000)")
v.event("comes_next")
same(stat.S_IMODE(os.stat(place + ".2").st_mode), 0o600, "unless a mode is given, it is for its user alone")
follows = Events(place + ".2")
got = follows.next()
same((got["leading"], got["leader"]), (False, u.event("became_leader")["identity"]), "/events: first what is")
u.kill(signal.SIGUSR1)
changed = follows.until(lambda e: e["leading"])
ok(
    changed["token"] > got["token"] and int(changed["id"]) > int(got["id"]),
    "then each change, with a number that grows",
)
u.stop()
ok(not os.path.exists(place), "the socket is removed with its process")
many = [Events(place + ".2") for _ in range(40)]
same([e.status for e in many].count(200), 31, "32 clients follow; one more is told that these are too many")
for e in many[:31]:
    e.s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
same(unix_get(place + ".2", "/leader")[0], 200, "and nobody else waits for them")
ok(wait_for(lambda: ":" in follows.lines(), 60), "a stream on which nothing happens has a heartbeat")
os.unlink(place + ".2")
w = Candidate("--listen", f"unix:{place}.2", "--lock", os.path.join(TMP, "unix"), "-e", "sleep(1000)")
w.event("listening")
v.stop()
same(
    unix_get(place + ".2", "/healthz")[0], 200, "a process that ends leaves the socket that another one has made there"
)
w.stop()
refused("unix:" + "x" * 200, "too long")
refused(f"unix:{place}?mode=9", "octal")
refused("nonsense", "expected HOST:PORT")
refused("127.0.0.1:99999", "expected HOST:PORT")
refused("::1:80", "expected HOST:PORT")
refused("192.0.2.1:80", "cannot listen")
refused(b.url[len("http://") :], "Address already in use")

names = {s.name for f in text_string_to_metric_families(b.get("/metrics")[1]) for s in f.samples}
with open(os.path.join(ROOT, "examples", "prometheus-alerts.yml")) as f:
    rules = f.read()
# Those of cron are looked for in cron_asked.py, those of --service in tests/cluster/kubernetes/service.py.
used = set(re.findall(r"\b(?:lunarch_(?!cron_|service_)|leader_election_)[a-z_]+", rules))
ok(used and used <= names, "the example's alert rules use metrics that there are")
if not used <= names:
    note(used - names)
done()

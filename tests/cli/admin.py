#!/usr/bin/python3
"""The admin endpoint: what a load balancer, a probe and Prometheus see of a leader, a standby, and of a term that
changes hands."""

import atexit
import json
import os
import re
import shutil
import signal
import socket
import sys
import urllib.error
import urllib.request

from prometheus_client.parser import text_string_to_metric_families
from typing import Any

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from candidates import Candidate, stop_everyone
from processes import ROOT, scratch, wait_for
from tap import done, note, ok, same

TMP = scratch()
atexit.register(shutil.rmtree, TMP, True)
atexit.register(stop_everyone)


class Admin(Candidate):
    """One with an admin endpoint, which says where that is."""

    def __init__(self, *args: Any, **kw: Any) -> None:
        super().__init__(*args, **kw)
        self.url = re.findall(r"http://\S+:\d+", self.event("listening")["message"])[0]


def start(*args: Any, listen: str = "127.0.0.1:0", command: str = "run") -> Admin:
    return Admin("--listen", listen, *args, command=command)


def get(c: Any, path: str, method: str = "GET") -> Any:
    try:
        with urllib.request.urlopen(urllib.request.Request(c.url + path, method=method), timeout=60) as r:
            return r.status, r.read().decode()
    except urllib.error.HTTPError as e:
        return e.code, e.read().decode()


def families(c: Any) -> Any:
    return list(text_string_to_metric_families(get(c, "/metrics")[1]))


def metric(c: Any, which: Any, **labels: Any) -> Any:
    for family in families(c):
        for s in family.samples:
            if s.name == which and all(s.labels.get(k) == v for k, v in labels.items()):
                return s.value
    return None


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
same(get(a, "/leader")[0], 200, "the leader answers 200 to a load balancer")
b = start("--lock", lock, "-e", "sleep(1000)")
b.wait("new_leader")
code, text = get(b, "/leader")
ok(code == 503 and "the leader is" in text, "a standby answers 503, and names the leader")
same([get(c, "/healthz")[0] for c in (a, b)], [200, 200], "both are healthy")
same([metric(c, "leader_election_master_status") for c in (a, b)], [1, 0], "client-go's metric says who is master")
ok(wait_for(lambda: metric(a, "lunarch_renewals_total", result="ok")), "renewals are counted")
count = metric(a, "lunarch_renew_seconds_count")
ok(count and metric(a, "lunarch_renew_seconds_bucket", le="+Inf") >= count, "and timed")
token = metric(a, "lunarch_token")
ok(token and 0 < metric(a, "lunarch_remaining_seconds") <= 5, "token and what is left of the term are there")
status = json.loads(get(a, "/status")[1])
same(
    (status["pid"], [e["leading"] for e in status["elections"]]), (a.pid, [True]), "/status is JSON about this process"
)
same(
    [get(a, "/leader", "POST")[0], get(a, "/leader", "HEAD")[0], get(a, "/nothing")[0]],
    [405, 200, 404],
    "only GET and HEAD, only what there is",
)

for path, alias in ("/leader", "/primary"), ("/leader", "/"), ("/healthz", "/liveness"), ("/readyz", "/readiness"):
    same([get(c, alias) for c in (a, b)], [get(c, path) for c in (a, b)], f"{alias} is {path}")
same(
    [[get(c, "/leader", method)[0] for c in (a, b)] for method in ("HEAD", "OPTIONS")],
    [[200, 503], [200, 503]],
    "OPTIONS is answered like HEAD",
)
same([get(c, "/standby")[0] for c in (a, b)], [503, 200], "/standby is 200 on the standby")

a.kill(signal.SIGTERM)
ok(wait_for(lambda: get(b, "/leader")[0] == 200), "after the handover the other answers 200")
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
    wait_for(lambda: get(c, "/leader/plain")[0] == 503 and metric(c, "lunarch_hook_errors_total", name="plain")),
    "an election that fails is not leading, and its hook's errors are counted",
)
ok(wait_for(lambda: get(c, "/leader/other")[0] == 200), "the other one leads")
code, text = get(c, "/leader")
ok(code == 503 and "/leader/NAME" in text, "with several elections /leader says no, and how to ask")
same(get(c, "/leader/nobody")[0], 404, "an election that is not there is 404")
same(
    [get(c, path)[0] for path in ("/primary/other", "/standby/other", "/standby", "/leaderboard", "/readyz/other")],
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
ok(wait_for(lambda: get(x, "/leader")[0] == 200), "exec has the endpoint too")

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
ok(wait_for(lambda: get(everyone, "/leader")[0] == 200), "`:PORT` is every address of the machine")

with socket.create_connection(("127.0.0.1", int(b.url.rsplit(":", 1)[1]))) as slow:
    slow.send(b"GET /lea")
    same(get(b, "/leader")[0], 200, "a client that sends half a request keeps nobody waiting")

refused("nonsense", "expected HOST:PORT")
refused("127.0.0.1:99999", "expected HOST:PORT")
refused("::1:80", "expected HOST:PORT")
refused("192.0.2.1:80", "cannot listen")
refused(b.url[len("http://") :], "Address already in use")

names = {s.name for f in text_string_to_metric_families(get(b, "/metrics")[1]) for s in f.samples}
with open(os.path.join(ROOT, "examples", "prometheus-alerts.yml")) as f:
    rules = f.read()
used = set(re.findall(r"\b(?:lunarch|leader_election)_[a-z_]+", rules))
ok(used and used <= names, "the example's alert rules use metrics that there are")
if not used <= names:
    note(used - names)
done()

#!/usr/bin/env -S PYTHONPATH=. python3
"""--service on a real Kubernetes API server: the EndpointSlice of a Service without a selector follows the leader of
`run` and of `exec`, is empty while nobody is to be led anywhere, and is never written by an older token, or over
somebody else's data. Scenarios run side by side, each in a namespace of its own.

Arguments: names of scenarios."""

import concurrent.futures
import http.client
import http.server
import json
import os
import signal
import ssl
import subprocess
import sys
import threading
import traceback
import urllib.request
from typing import Any
from urllib.parse import quote

from tests.lib.candidates import FAST, STEADY, Candidate, stop_everyone
from tests.lib.kube_rig import MINIMAL, Cluster
from tests.lib.processes import LUNARCH, PATIENCE, scratch, wait_for
from tests.lib.servers import free_port
from tests.lib.tap import done, note, ok, same

SERVICES = "/api/v1/namespaces/{}/services"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices"
LOOK = {"apiGroups": [""], "resources": ["services"], "verbs": ["get"]}
WRITE = {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["get", "create", "patch"]}
WORK = "while true do sleep(1) end"
# Stops when it is told to by a file, so that what holds meanwhile can be looked at.
HOOKS = """
return {{
  on_leading = function() print "leading" while true do sleep(1) end end,
  on_stopping = function() print "drains" while not io.open("{0}") do sleep(0.02) end print "let go" end,
  on_stopped = function() print "stopped" end,
}}
"""
COMMAND = """trap 'echo told; while ! [ -e {0} ]; do sleep 0.02; done; echo gone; exit 0' TERM
echo on
while :; do sleep 0.02; done"""


class Scene:
    """A namespace with a Service, and an account with the rights that --service takes."""

    def __init__(self, cluster: Any, ns: str, rules: Any = None) -> None:
        self.c, self.ns, self.dir = cluster, cluster.namespace(ns), scratch()
        self.token = cluster.account(ns, rules=rules or [LOOK, WRITE, *MINIMAL])
        self.config = cluster.kubeconfig(ns, self.token)
        self.lock = os.path.join(self.dir, "lock")
        self.many: list[Candidate] = []

    def service(self, name: str = "web", **spec: Any) -> Any:
        ports = [{"name": "http", "port": 80, "targetPort": 8080}, {"name": "metrics", "port": 9090}]
        return self.c.must(
            "POST",
            SERVICES.format(self.ns),
            {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {"ports": ports, **spec}},
        )

    def candidate(self, ip: str, *args: str, config: Any = None, service: str = "web", **kw: Any) -> Candidate:
        more = ("--lock", self.lock, "--service", service, "--address", ip + ":1")
        env = {"KUBECONFIG": config or self.config, "KUBERNETES_SERVICE_HOST": ""}
        c = Candidate(*more, *args, env=env, name=ip, options=kw.pop("options", STEADY), **kw)
        self.many.append(c)
        return c

    def slice(self, name: str = "web") -> Any:
        status, found = self.c.call("GET", f"{SLICES.format(self.ns)}/{name}-lunarch")
        return found if status == 200 else None

    def addresses(self, name: str = "web") -> Any:
        found = self.slice(name)
        return [a for e in found.get("endpoints") or [] for a in e["addresses"]] if found else None

    def leads_to(self, *ips: str) -> bool:
        return bool(wait_for(lambda: self.addresses() == list(ips)))

    def written_by(self) -> int:
        return int(self.slice()["metadata"]["annotations"]["lunarch.dev/token"])

    def run(self, *args: str, config: str | None = None) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "KUBECONFIG": config or self.config, "KUBERNETES_SERVICE_HOST": ""}
        return subprocess.run([LUNARCH, *args], capture_output=True, text=True, timeout=PATIENCE, env=env)

    def check(self, service: str, config: str | None = None, address: str = "10.0.0.9") -> tuple[int, str]:
        options = ("--service", service, *(("--address", address) if address else ()))
        r = self.run("check", "-e", WORK, "--lock", self.lock, *options, config=config)
        return r.returncode, r.stdout + r.stderr


class Gate:
    """Stands before the API server, and holds back requests of some methods on their way to it, while it is shut."""

    def __init__(self, c: Any) -> None:
        self.open, self.held = threading.Event(), threading.Event()
        self.answers: list[tuple[str, int]] = []
        self.methods: tuple[str, ...] = ("PATCH",)
        self.open.set()
        gate = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                pass

            def handle_one_request(self) -> None:
                try:
                    super().handle_one_request()
                except OSError:  # the client has gone
                    self.close_connection = True

            def pass_on(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                if self.command in gate.methods and not gate.open.is_set():
                    gate.held.set()
                    gate.open.wait(PATIENCE)
                far = http.client.HTTPSConnection("127.0.0.1", c.port, context=c.api.context, timeout=PATIENCE)
                headers = {k: v for k, v in self.headers.items() if k.lower() not in ("host", "connection")}
                far.request(self.command, self.path, body or None, headers)
                answer = far.getresponse()
                text = answer.read()
                gate.answers.append((self.command, answer.status))
                self.send_response(answer.status)
                self.send_header("Content-Type", answer.getheader("Content-Type") or "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)
                far.close()

            do_GET = do_POST = do_PATCH = pass_on

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(c.api.pki.path("server.crt"), c.api.pki.path("server.key"))
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True, do_handshake_on_connect=False)
        self.url = f"https://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def shut(self, *methods: str) -> None:
        self.methods = methods or ("PATCH",)
        self.held.clear()
        self.open.clear()


def order(c: Candidate, *wanted: str) -> list[str]:
    """Of these events (an event, or what was printed) those that came, in the order in which the log has them: of one
    that has ended, all that it said."""
    if c.process.poll() is not None:
        wait_for(lambda: c.closed)
    said = [e["message"] if e["event"] == "print" else e["event"] for e in c.events]
    return [s for s in said if s in wanted]


def follows(s: Scene) -> None:
    """run: an election with hooks, whose lock is a file: it need not be in Kubernetes."""
    gate = os.path.join(s.dir, "gate")
    script = os.path.join(s.dir, "hooks.lua")
    with open(script, "w") as f:
        f.write(HOOKS.format(gate))
    service = s.service()
    a = s.candidate("10.0.0.1", script, "--listen", f"127.0.0.1:{(port := free_port())}")
    ok(s.leads_to("10.0.0.1"), "run: the Service leads to the leader")
    made = s.slice()
    labels = made["metadata"]["labels"]
    same(
        (labels["kubernetes.io/service-name"], labels["endpointslice.kubernetes.io/managed-by"], made["addressType"]),
        ("web", "lunarch.dev", "IPv4"),
        "run: by a slice that says whose it is",
    )
    same(
        [(p["name"], p["port"], p["protocol"]) for p in made["ports"]],
        [("http", 8080, "TCP"), ("metrics", 9090, "TCP")],
        "run: its ports have the names of the Service's, and the numbers of their targetPort",
    )
    (owner,) = made["metadata"]["ownerReferences"]
    same((owner["kind"], owner["uid"]), ("Service", service["metadata"]["uid"]), "run: the Service owns it")
    same(made["endpoints"][0]["conditions"].get("ready"), True, "run: its address is ready")
    token = a.event("became_leader")["token"]
    same(s.written_by(), token, "run: it has the term's token")
    a.event("service_published")
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/status", timeout=PATIENCE) as r:
        shown = json.load(r)["elections"][0]["service"]
    same(
        (shown["name"], shown["published"], shown["address"], shown["trouble"]),
        (s.ns + "/web", True, "10.0.0.1", ""),
        "run: /status shows it",
    )
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE) as r:
        text = r.read().decode()
    ok(
        any(x.startswith("lunarch_service_published{") and x.endswith(" 1") for x in text.splitlines()),
        "run: and a metric",
    )

    b = s.candidate("10.0.0.2", script)
    b.event("new_leader")
    a.kill(signal.SIGTERM)
    a.event("print", "drains")
    same(s.addresses(), [], "run: when on_stopping begins, the Service leads to nobody already")
    same(b.all("became_leader"), [], "run: and the lock is held still")
    open(gate, "w").close()
    same(a.leave(), 0, "run: it stops")
    same(
        order(a, "service_withdrawn", "drains", "let go", "stopped", "no_leader"),
        ["service_withdrawn", "drains", "let go", "stopped", "no_leader"],
        "run: withdrawn, on_stopping, on_stopped, and the lock is released",
    )
    ok(s.leads_to("10.0.0.2"), "run: then it leads to the next leader")
    newer = s.written_by()
    ok(newer > token, "run: by a larger token")
    third = s.candidate("10.0.0.3", script)
    third.event("new_leader")
    third.kill(signal.SIGSTOP)  # it would lead at once, as the death of a process of this machine is proved
    b.kill()
    same(s.addresses(), ["10.0.0.2"], "run: a leader that was killed stays there")
    third.kill(signal.SIGCONT)
    ok(s.leads_to("10.0.0.3"), "run: until the next one takes its place")
    ok(s.written_by() > newer, "run: by a larger token again")
    s.c.must("DELETE", f"{SLICES.format(s.ns)}/web-lunarch")
    ok(s.leads_to("10.0.0.3"), "run: a slice that somebody deletes is made again")
    ok(third.wait("service_repaired"), "run: which is logged")
    same(third.stop(), 0, "run: the last one stops")
    same(s.addresses(), [], "run: and the Service leads to nobody")


def executed(s: Scene) -> None:
    """exec, with a lock in Kubernetes, whose URL says where the API server is, and a Service with one port."""
    gate, lock = os.path.join(s.dir, "gate"), f"kube://{s.ns}/web?kubeconfig={quote(s.config)}"
    s.service(ports=[{"port": 80}])
    outs = [os.path.join(s.dir, f"out{i}") for i in range(3)]

    def start(i: int) -> Candidate:
        command = f"exec >{outs[i]}; " + COMMAND.format(gate)
        return Candidate(
            *("--lock", lock, "--service", "web:8000", "--address", f"10.0.1.{i}:8000", "-c", command),
            *("--control", f"{s.dir}/{i}.sock"),
            command="exec",
            options=STEADY,
            env={"KUBECONFIG": "/nowhere", "KUBERNETES_SERVICE_HOST": ""},
        )

    def said(i: int) -> str:
        with open(outs[i]) as f:
            return f.read()

    a = start(0)
    ok(s.leads_to("10.0.1.0"), "exec: the Service leads to the leader")
    same([(p["name"], p["port"]) for p in s.slice()["ports"]], [("", 8000)], "exec: at the port that NAME:PORT says")
    b = start(1)
    b.event("new_leader")
    wait_for(lambda: os.path.exists(outs[0]) and "on" in said(0))
    a.kill(signal.SIGTERM)
    ok(wait_for(lambda: "told" in said(0)), "exec: the command of the leader is told to stop")
    same(s.addresses(), [], "exec: when it hears that, the Service leads to nobody already")
    same((b.all("became_leader"), a.process.poll()), ([], None), "exec: and the lock is held still")
    open(gate, "w").close()
    same(a.leave(), 0, "exec: it ends with the command's status")
    ok(s.leads_to("10.0.1.1"), "exec: then it leads to the next leader")
    token = s.written_by()
    c = start(2)
    c.event("new_leader")
    b.kill()
    ok(s.leads_to("10.0.1.2"), "exec: what a killed leader left is replaced by the next")
    ok(s.written_by() > token, "exec: by a larger token")
    wait_for(lambda: os.path.exists(outs[2]) and "on" in said(2))
    r = s.run("ctl", "--control", s.dir + "/2.sock", "why")
    ok(
        f"the Service {s.ns}/web leads to 10.0.1.2" in r.stdout,
        "exec: ctl why says where it leads",
        r.stdout + r.stderr,
    )
    r = s.run("ctl", "--control", s.dir + "/2.sock", "resign")
    ok(c.wait("no_leader", count=2), "exec: it resigns", r.stdout + r.stderr)
    same(order(c, "service_withdrawn", "no_leader")[1:], ["service_withdrawn", "no_leader"], "exec: after it withdrew")
    same(s.addresses(), [], "exec: the Service leads to nobody")
    c.stop()


def late(s: Scene) -> None:
    """A write that is on its way for too long comes to the server when another leads."""
    gate = Gate(s.c)
    s.service()
    first = s.candidate("10.0.2.1", "-e", WORK)
    ok(s.leads_to("10.0.2.1"), "late: a leader")
    first.stop()
    gate.shut()
    slow = s.candidate("10.0.2.2", "-e", WORK, config=s.c.kubeconfig(s.ns, s.token, server=gate.url), options=FAST)
    ok(gate.held.wait(PATIENCE), "late: the next one's write is on its way")
    slow.kill(signal.SIGSTOP)
    third = s.candidate("10.0.2.3", "-e", WORK, options=FAST)
    ok(s.leads_to("10.0.2.3"), "late: and another takes over before it arrives")
    before, count = s.slice(), len(gate.answers)
    gate.open.set()
    ok(wait_for(lambda: ("PATCH", 409) in gate.answers[count:]), "late: then it arrives, and is refused", gate.answers)
    slow.kill(signal.SIGCONT)
    slow.event("stopped_leading", "expired")
    same(slow.stop(), 0, "late: the deposed leader goes on, and stops")
    same(s.slice(), before, "late: nothing it did has changed the slice")
    third.stop()
    s.c.must(
        "PATCH",
        f"{SLICES.format(s.ns)}/web-lunarch",
        {"metadata": {"annotations": {"lunarch.dev/token": "4000000000000000000"}}},
        kind="application/merge-patch+json",
    )
    fenced = s.candidate("10.0.2.4", "-e", WORK)
    told = fenced.event("service_fenced")["message"]
    ok("4000000000000000000" in told and "delete the EndpointSlice" in told, "late: a larger token is named", told)
    same((fenced.stop(), s.addresses()), (0, []), "late: and never overwritten")


def silent(s: Scene) -> None:
    """The API server cannot be reached from the leader when it is to stop: the term ends all the same."""
    gate = Gate(s.c)
    s.service()
    a = s.candidate("10.0.3.1", "-e", WORK, config=s.c.kubeconfig(s.ns, s.token, server=gate.url))
    ok(s.leads_to("10.0.3.1"), "silent: a leader")
    a.event("service_published")
    before = len(gate.answers)
    ok(wait_for(lambda: len(gate.answers) >= before + 2), "silent: it looks again, after a while")
    same([method for method, _ in gate.answers[before:]], ["GET", "GET"], "silent: and writes nothing where it is so")
    gate.shut("GET", "PATCH", "POST")
    b = s.candidate("10.0.3.2", "-e", WORK)
    b.event("new_leader")
    same(a.stop(), 0, "silent: it stops although its Service cannot be withdrawn")
    ok(a.all("service_late"), "silent: which is logged")
    same(order(a, "service_late", "no_leader"), ["service_late", "no_leader"], "silent: and then the lock is released")
    ok(s.leads_to("10.0.3.2"), "silent: the next leader's address takes its place")
    gate.open.set()
    b.stop()


def refused(s: Scene) -> None:
    """What must not be written is named, before anything leads and by whoever leads; and stays as it is."""
    s.service("chosen", selector={"app": "web"})
    s.service("named", ports=[{"port": 80, "targetPort": "http"}])
    s.service("alias", type="ExternalName", externalName="example.org", ports=[])
    s.service("six", ipFamilies=["IPv4"], ipFamilyPolicy="SingleStack")
    s.service("theirs")
    s.service("good")
    theirs = s.c.must(
        "POST",
        SLICES.format(s.ns),
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "addressType": "IPv4",
            "metadata": {"name": "theirs-lunarch", "labels": {"kubernetes.io/service-name": "theirs"}},
            "endpoints": [{"addresses": ["10.1.1.1"]}],
            "ports": [],
        },
    )
    for name, why in (
        ("chosen", 'has the selector {"app":"web"}'),
        ("named", 'targetPort "http"'),
        ("alias", "ExternalName"),
        ("theirs", "managed-by"),
        ("nothing", "there is no such Service"),
        ("good:81", "it has 2 ports"),
        ("Good", "is no Service"),
        ("good:0", "is no Service"),
    ):
        status, text = s.check(name)
        ok(status == 1 and why in text, f"refused: check says of {name}: {why}", (status, text))
    status, text = s.check("good")
    ok(status == 0 and f"{s.ns}/good can be kept" in text, "refused: and nothing of a good one", text)
    same(s.slice("good"), None, "refused: which it has not touched")
    for name, status, why in (("good", 0, "the Service good can be kept"), ("chosen", 1, "has the selector")):
        r = s.run("doctor", "--lock", s.lock, "--service", name)
        ok(r.returncode == status and why in r.stdout, f"refused: doctor says of {name}: {why}", r.stdout + r.stderr)
    r = s.run("exec", "--leader-elect=no", "--service", "good", "--address", "10.0.0.9", "--", "true")
    ok(r.returncode == 2 and "every replica leads" in r.stderr, "refused: without an election", r.stderr)
    status, text = s.check("good", address="web.example.org:80")
    ok(status == 1 and "IP addresses" in text, "refused: a name is no address", text)
    r = s.run("exec", "--lock", s.lock, "--service", "good", "--address", "web:80", "--", "true")
    ok(
        r.returncode == 2 and "IP addresses" in r.stderr,
        "refused: exec does not begin with one",
        (r.returncode, r.stderr),
    )
    r = s.run("exec", "--lock", s.lock, "--service", "good", "--", "true")
    ok(r.returncode == 2 and "POD_IP" in r.stderr, "refused: nor without one", (r.returncode, r.stderr))

    for name, ip, why in (
        ("chosen", "10.0.4.1", "selector"),
        ("theirs", "10.0.4.2", "managed-by"),
        ("six", "fd00::7", "ipFamilies"),
        ("later", "10.0.4.3", "no such Service"),
    ):
        c = s.candidate(ip, "-e", WORK, service=name, config=s.config)
        told = c.event("service_refused")["message"]
        ok(
            why in told and c.wait("became_leader"),
            f"refused: a candidate says so of {name}, and leads all the same",
            told,
        )
        if name == "later":
            s.service("later")
            ok(
                wait_for(lambda: s.addresses("later") == ["10.0.4.3"]),
                "refused: a Service that is made later is kept then",
            )
        same(c.stop(), 0, f"refused: {name}: it stops")
    found = [x["metadata"]["name"] for x in s.c.must("GET", SLICES.format(s.ns))["items"]]
    same(sorted(found), ["later-lunarch", "theirs-lunarch"], "refused: no slice was made for the others")
    same(
        s.c.must("GET", f"{SLICES.format(s.ns)}/theirs-lunarch"), theirs, "refused: somebody else's slice is as it was"
    )


def rights(s: Scene) -> None:
    """An account that may look at Services and do no more."""
    s.service()
    status, text = s.check("web")
    ok(
        status == 1 and "cannot get resource" in text and '"create", "patch" of endpointslices' in text,
        "rights: check names the right that is missing, and those that it takes",
        text,
    )
    may_get = s.c.kubeconfig(s.ns, s.c.account(s.ns, "reader", [LOOK, {**WRITE, "verbs": ["get"]}]))
    wait_for(lambda: s.c.allowed(s.ns, "reader", {**WRITE, "verbs": ["get"]}))
    status, text = s.check("web", config=may_get)
    ok(
        status == 1 and "cannot create resource" in text,
        "rights: also that to write, although nothing is written",
        text,
    )
    c = s.candidate("10.0.5.1", "-e", WORK, "--control", s.dir + "/sock")
    told = c.event("service_refused")["message"]
    ok("403" in told and "endpointslices" in told, "rights: so does a candidate", told)
    ok(c.wait("became_leader"), "rights: which leads all the same")
    r = s.run("ctl", "--control", s.dir + "/sock", "why")
    ok("does not lead here: 403" in r.stdout, "rights: ctl why says it, too", r.stdout)
    same(c.stop(), 0, "rights: it stops")


SCENES = {
    "follows": (follows, None),
    "executed": (executed, None),
    "late": (late, None),
    "silent": (silent, None),
    "refused": (refused, None),
    "rights": (rights, [LOOK, *MINIMAL]),
}


def play(c: Cluster, name: str) -> None:
    scene, rules = SCENES[name]
    try:
        s = Scene(c, name, rules)
        scene(s)
    except Exception:
        ok(False, f"{name}: the scenario came to its end", traceback.format_exc())
        for one in s.many:
            note(f"{one.name}: {one.events[-8:]}")


try:
    with Cluster() as cluster:
        with concurrent.futures.ThreadPoolExecutor(len(SCENES)) as pool:
            for future in [pool.submit(play, cluster, name) for name in sys.argv[1:] or SCENES]:
                future.result()
        stop_everyone()
finally:
    stop_everyone()
done()

#!/usr/bin/env -S PYTHONPATH=. python3
"""Credentials of the Kubernetes lock, over TLS, against an API server that is a script and looks at who asks: tokens
that are rotated, plugins whose credentials expire, and every key of a kubeconfig as it shows on the wire. Cases run
side by side, each with a server of its own. Arguments: names of cases.

The numbers T.. are those of the cases in tests/cluster/kubernetes/README.md."""

import base64
import http.server
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any

from tests.lib.candidates import Candidate, stop_everyone, timing
from tests.lib.kubeapi import Api, status
from tests.lib.pki import Pki
from tests.lib.processes import LUNARCH, PATIENCE, scratch, wait_for
from tests.lib.tap import at_once, done, note, ok, same

# Nothing here is about a term's end: it survives a machine that is late by a minute.
LONG = timing("200s", renew="120s", retry="500ms")
home = scratch()
pki = Pki(home)
pki.server()


def path(name: str, text: str | None = None, mode: int = 0o600) -> str:
    """A file of this test; with text: made in one step, as the kubelet does it."""
    p = os.path.join(home, name)
    if text is not None:
        with open(p + ".new", "w") as f:
            f.write(text)
        os.chmod(p + ".new", mode)
        os.rename(p + ".new", p)
    return p


def base64_of(name: str) -> str:
    with open(name, "rb") as f:
        return base64.b64encode(f.read()).decode()


class Door:
    """An API server that lets in who shows one of these tokens, or a certificate of one of these names (tokens None:
    anybody), and the leader that asks it. asked: (method, token or name, let in, is it a watch) of each request."""

    def __init__(self, name: str, tokens: Any = None, names: Any = ()) -> None:
        self.name, self.tokens, self.names = name, tokens, names
        self.asked: list[tuple[str, str, bool, bool]] = []
        self.leader: Any = None  # a Candidate, from lead on
        self.api = Api(pki=pki)
        self.api.rule = self.rule

    def rule(self, h: Any) -> Any:
        token = (h.headers.get("Authorization") or "").removeprefix("Bearer ")
        good = self.tokens is None or token in self.tokens or h.who in self.names
        self.asked.append((h.command, token or h.who, good, "watch=1" in h.path))
        if not good:
            h.answer(401, status(401, "Unauthorized", "Unauthorized"))
        return not good

    def lead(self, **user: Any) -> Candidate:
        self.leader = Candidate(
            "--lock", self.api.url(home, self.name, **user), "-e", "on_leading = function() end", options=LONG
        )
        if not self.leader.wait("became_leader"):
            raise RuntimeError(f"{self.name}: nobody became leader: {self.leader.events}")
        return self.leader

    def refused(self, since: int = 0) -> list[tuple[str, str, bool, bool]]:
        return [a for a in self.asked[since:] if not a[2]]

    def renewed_as(self, who: str, count: int = 2) -> bool:
        return wait_for(lambda: len([a for a in self.asked if a[:3] == ("PUT", who, True)]) >= count, 2 * PATIENCE)

    def came_as(self, who: str) -> bool:
        """What expires soon may be good for one request, on a slow machine."""
        return wait_for(lambda: any(a[1:3] == (who, True) for a in self.asked), 2 * PATIENCE)

    def leads_on(self, what: str) -> None:
        n = len(self.api.applied)
        ok(wait_for(lambda: len(self.api.applied) >= n + 2) and not self.leader.all("stopped_leading"), what)

    def troubles(self) -> int:
        """How often it was said that something does not work; once a minute would be right."""
        return len(self.leader.complaints())

    def silent_about(self, *secrets: str) -> None:
        said = json.dumps(self.leader.events)
        same([s for s in secrets if s in said], [], f"{self.name}: no secret in any log line")

    def end(self) -> None:
        if self.leader:
            self.leader.stop()
        self.api.refuse()


# ---- a token's file ----


def refused_token(d: Door) -> None:
    """The old token is refused before the new one is there: the file is empty, and then missing."""
    d.tokens = {"first-t0ken"}
    token = path("refused", "first-t0ken")
    d.lead(tokenFile=token)
    start = time.monotonic()
    for how, new in (("empty", "second-t0ken"), ("missing", "third-t0ken")):
        if how == "empty":
            path("refused", "")
        else:
            os.unlink(token)
        before, began = len(d.asked), time.monotonic()
        d.tokens = {new}
        ok(
            wait_for(lambda: len(d.refused(before)) >= 12),
            f"T31 while the token's file is {how} the one that was good is shown, and refused",
        )
        took = time.monotonic() - began
        n = len(d.refused(before))
        ok(
            n <= 20 + 8 * took,
            f"T32 a 401 is answered with another try at most, at the pace of renewals ({n} in {took:.1f} s)",
        )
        path("refused", f"\n {new}\n")
        ok(
            d.renewed_as(new),
            f"T31 when the file is there again after it was {how}, it is read again and renewals go on",
        )
        d.leads_on(f"T31 T32 the term has outlived a token's file that was {how}")
    ok(
        2 <= d.troubles() <= 4 + (time.monotonic() - start) / 30,
        f"T31 each of the two troubles was said, not at every 401 ({d.troubles()} times)",
    )
    d.silent_about("first-t0ken", "second-t0ken", "third-t0ken")


def wrong_token(d: Door) -> None:
    """What is in the file is refused too: nothing is gained by asking again at once."""
    d.tokens = {"good-t0ken"}
    path("wrong", "good-t0ken")
    d.lead(tokenFile=path("wrong"))
    before, began = len(d.asked), time.monotonic()
    d.tokens = set()
    path("wrong", "bad-t0ken")
    wait_for(lambda: len([a for a in d.refused(before) if a[1] == "bad-t0ken"]) >= 3)
    time.sleep(10)
    n, took = len(d.refused(before)), time.monotonic() - began
    ok(
        n <= 20 + 8 * took,
        f"T32 401 for the token that was read after a 401: no busy loop ({n} requests in {took:.1f} s)",
    )
    ok(1 <= d.troubles() <= 2 + took / 30, f"401 for many seconds is said, not at every try ({d.troubles()} times)")
    ok(
        all(
            "401: the API server does not accept the credentials of the context c of " + home in m
            for m in d.leader.complaints()
        ),
        "and whose credentials they are",
    )
    d.tokens = {"bad-t0ken"}
    d.leads_on("T32 when it is accepted the term goes on")
    d.silent_about("good-t0ken", "bad-t0ken")


def rotated_token(d: Door) -> None:
    """The old one stays good: only a look at the file now and then finds the new one."""
    d.tokens = {"old", "new"}
    path("rotated", "old")
    d.lead(tokenFile=path("rotated"))
    path("rotated", "new\n")
    began = time.monotonic()
    ok(d.renewed_as("new"), "T31 a token that is rotated while the old one is good is read within a minute or so")
    note(f"after {time.monotonic() - began:.0f} s")
    same(d.refused(), [], "T31 without any request that was refused")
    d.leads_on("T31 and the term goes on")


# ---- files of certificates ----


def rotated_authority(d: Door) -> None:
    """The server comes back with a certificate of another authority, whose file was replaced before."""
    new = Pki(tempfile.mkdtemp(dir=home))
    with open(pki.ca) as old, open(new.ca) as now:
        authority = path("authority", old.read())
        d.lead(cluster=d.api.cluster(**{"certificate-authority": authority}))
        path("authority", now.read())
    d.api.use(*new.server())
    d.api.hang_up()
    d.leads_on("an authority's file that was replaced counts for the next connection")


def certificate(name: str) -> tuple[str, str]:
    """The leader's files now hold that one."""
    crt, key = pki.sign(name, "/CN=" + name)
    with open(crt) as c, open(key) as k:
        return path(name.split("-")[0] + ".pem", c.read()), path(name.split("-")[0] + "-key.pem", k.read())


def refused_certificate(d: Door) -> None:
    d.tokens, d.names = set(), {"refused-old"}
    crt, key = certificate("refused-old")
    d.lead(**{"client-certificate": crt, "client-key": key})
    ok(d.renewed_as("refused-old"), "a certificate's file is shown")
    certificate("refused-new")
    d.names = {"refused-new"}
    ok(
        d.renewed_as("refused-new"),
        "after a 401 its files are looked at, and what is new in them shown on a new connection",
    )
    d.leads_on("the term goes on")
    same(d.leader.all("renew_failed"), [], "and nobody has noticed")


def rotated_certificate(d: Door) -> None:
    d.tokens, d.names = set(), {"rotated-old", "rotated-new"}
    crt, key = certificate("rotated-old")
    d.lead(**{"client-certificate": crt, "client-key": key})
    certificate("rotated-new")
    ok(
        d.renewed_as("rotated-new"),
        "a certificate that is replaced while the old one is good is shown within a minute or so",
    )
    same((d.refused(), d.troubles()), ([], 0), "and nothing was refused for that")


# ---- plugins ----

PLUGIN = """#!/bin/sh
echo run >> "$0.runs"
n=$(wc -l < "$0.runs")
printf %s "$KUBERNETES_EXEC_INFO" > "$0.info.new" && mv "$0.info.new" "$0.info"
until=$UNTIL
[ -n "$SECONDS_LEFT" ] && until=$(date -u -d "+$SECONDS_LEFT seconds" +%Y-%m-%dT%H:%M:%SZ)
if [ -n "$PAIRS" ]; then what=$(cat "$PAIRS-$n"); else what="\\"token\\":\\"run-$n\\""; fi
printf '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{%s%s}}' "$what"\
 "${until:+,\\"expirationTimestamp\\":\\"$until\\"}"
"""


class Plugin:
    def __init__(self, name: str, **env: Any) -> None:
        self.path = path(name, PLUGIN, 0o755)
        self.user: dict[str, Any] = {
            "exec": {
                "apiVersion": "client.authentication.k8s.io/v1",
                "command": self.path,
                "interactiveMode": "Never",
                "env": [{"name": k, "value": v} for k, v in env.items()],
            }
        }

    def runs(self) -> int:
        with open(self.path + ".runs") as f:
            return len(f.readlines())


def expiring_plugin(d: Door) -> None:
    p = Plugin("expiring", SECONDS_LEFT="20")
    began = time.monotonic()
    d.lead(**p.user)
    ok(d.came_as("run-1"), "T78 a plugin's token is shown")
    ok(d.came_as("run-2") and d.came_as("run-3"), "T78 before it expires the plugin is run again, each time it would")
    n, took = p.runs(), time.monotonic() - began
    ok(took > 8 * (n - 1), f"T78 and what it printed is kept until then ({n} runs, {took:.0f} s)")
    d.leads_on("T78 the term goes on")


def expired_plugin(d: Door) -> None:
    """Its clock is wrong, or ours: what it prints has always expired."""
    p = Plugin("expired", UNTIL="2001-01-01T00:00:00Z")
    began = time.monotonic()
    d.lead(**p.user)
    ok(
        d.came_as("run-1") and d.came_as("run-3"),
        "T78 a credential that is old when it comes is used nevertheless, for a little",
    )
    n, took = p.runs(), time.monotonic() - began
    ok(n <= 2 + took / 5, f"T78 and the plugin is not run at every request ({n} runs, {took:.0f} s)")
    d.leads_on("T78 the term goes on")


def refused_plugin(d: Door) -> None:
    d.tokens = {"run-1"}
    p = Plugin("refused-plugin")
    d.lead(**p.user)
    ok(d.renewed_as("run-1", 4), "T78 without an expiry what a plugin printed is used")
    same(p.runs(), 1, "T78 for all requests")
    d.tokens = {"run-2"}
    ok(d.renewed_as("run-2"), "T78 after a 401 the plugin is run again")
    d.leads_on("T78 the term goes on")
    same((p.runs(), d.leader.all("renew_failed")), (2, []), "T78 once, and nobody has noticed")
    d.silent_about("run-1", "run-2")


def plugin_certificates(d: Door) -> None:
    """It prints a certificate with its key, and another one when that expires."""
    d.tokens, d.names = set(), {"plugged-1", "plugged-2"}
    for n in (1, 2):
        crt, key = pki.sign(f"plugged-{n}", f"/CN=plugged-{n}")
        with open(crt) as c, open(key) as k:
            path(f"pairs-{n}", json.dumps({"clientCertificateData": c.read(), "clientKeyData": k.read()})[1:-1])
    for n in range(3, 100):
        os.symlink(path("pairs-2"), path(f"pairs-{n}"))
    d.lead(**Plugin("certificates", PAIRS=path("pairs"), SECONDS_LEFT="20").user)
    ok(d.came_as("plugged-1"), "T78 a plugin's certificate is shown")
    ok(d.came_as("plugged-2"), "T78 and its next one, on a connection of its own")
    d.leads_on("T78 the term goes on")
    d.silent_about("PRIVATE KEY")


PATIENT = """#!/bin/sh
echo run >> "$0.runs"
n=$(wc -l < "$0.runs")
while [ ! -e "$UNTIL_THERE" ]; do sleep 0.05; done
[ -z "$LEAVES" ] || (sleep 0.1 &)
printf '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"%s-%s"}}' "$NAME"\
 "$n"
"""


def two_plugins(d: Door) -> None:
    """Of two contexts, in one process: one plugin ends while the other runs, and so does what it has left behind."""
    go, other = path("patient.go"), Api(pki=pki)
    slow = Plugin("slow", NAME="slow", UNTIL_THERE=go)
    quick = Plugin("quick", NAME="quick", UNTIL_THERE=slow.path + ".runs", LEAVES="yes")
    for p in (slow, quick):
        path(os.path.basename(p.path), PATIENT, 0o755)
    one, two = d.api.url(home, "slow", **slow.user), other.url(home, "quick", **quick.user)
    text = (
        "return { { name = '%s', lock = '%s', on_leading = function() end }, { name = '%s', lock = '%s', on_leading = "
        "function() end } }"
    )
    d.leader = Candidate("-e", text % ("slow", one, "quick", two), options=LONG)
    ok(wait_for(lambda: other.applied, 2 * PATIENCE), "while a plugin runs, another one ends and its term begins")
    same((slow.runs(), quick.runs()), (1, 1), "each was run once")
    time.sleep(0.5)  # what is left behind ends by then
    path("patient.go", "")
    ok(d.came_as("slow-1"), "what the first one prints in the end is used")
    same((slow.runs(), d.troubles()), (1, 0), "it had not to be run again")
    other.refuse()


CHATTY = """#!/bin/sh
yes "all that it does is told at length" | head -n 10000 >&2
[ -z "$FAILS" ] || { echo "there is no bread today" >&2; exit 3; }
printf '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"bread"}}'
"""


def chatty_plugin(d: Door) -> None:
    d.lead(**chatty("chatty").user)
    ok(d.renewed_as("bread"), "a plugin that complains of more than a pipe holds is not held up")
    asked = subprocess.run(
        [LUNARCH, "leader", "--lock", d.api.url(home, "chatty-failing", **chatty("failing", FAILS="yes").user)],
        capture_output=True,
        text=True,
    )
    ok(
        asked.returncode == 69 and "said: there is no bread today" in asked.stderr,
        "and when it fails, its last words are told",
    )
    note(asked.stderr)


def chatty(name: str, **env: str) -> Plugin:
    p = Plugin(name, **env)
    path(name, CHATTY, 0o755)
    return p


# ---- a kubeconfig's keys ----


class Tunnels(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Tunnel)
        self.asked: list[tuple[str, str | None]] = []
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()


class Tunnel(http.server.BaseHTTPRequestHandler):
    """An HTTP proxy that knows only CONNECT."""

    server: Tunnels

    def log_message(self, *_: object) -> None:
        pass

    def do_CONNECT(self) -> None:
        self.server.asked.append((self.path, self.headers.get("Proxy-Authorization")))
        host, port = self.path.rsplit(":", 1)
        with socket.create_connection((host, int(port))) as far:
            self.send_response(200)
            self.end_headers()
            back = threading.Thread(target=self.pass_on, args=(far, self.connection), daemon=True)
            back.start()
            self.pass_on(self.connection, far)
            back.join()

    def pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass


def a_proxy() -> tuple[Any, str]:
    server = Tunnels()
    return server, f"127.0.0.1:{server.server_address[1]}"


class Look:
    """`lunarch status` by a kubeconfig: its exit status and words, and the request as the server saw it (None: there
    was none)."""

    def __init__(self, api: Any, url: str, **env: Any) -> None:
        with_ = {**os.environ, "KUBECONFIG": "", "KUBERNETES_SERVICE_HOST": "", **env}
        before = len(api.seen)
        out = subprocess.run(
            [LUNARCH, "status", "--lock", url], capture_output=True, text=True, timeout=2 * PATIENCE, env=with_, cwd="/"
        )
        self.status, self.said = out.returncode, out.stderr
        self.seen = [s[6] for s in api.seen[before:]][:1]
        self.h = self.seen[0] if self.seen else None
        self.token = self.h and self.h.headers.get("Authorization")


def serving(certificate: tuple[str, str] | None = None) -> Api:
    a = Api(pki=pki, certificate=certificate)
    a.edit("lock", holderIdentity="x", leaseDurationSeconds=600, renewTime="2099-01-01T00:00:00.000000Z")
    return a


def kubeconfig(name: str, **parts: Any) -> Any:
    """parts: what the file has. The path."""
    return path(name, json.dumps(parts))


def named(kind: str, name: str, **value: Any) -> list[dict[str, Any]]:
    return [{"name": name, kind: value}]


def tls_keys() -> None:
    os.mkdir(path("stranger"))
    other = Pki(path("stranger"))
    inner = pki.sign("inner", "/CN=inner", "DNS:inner.example")
    api = serving(certificate=inner)
    look = Look(api, api.url(home, "lock", token="t"))
    ok(
        look.status == 69 and not look.seen and "127.0.0.1" in look.said,
        "T78 a server whose certificate has another name is not spoken to",
    )
    look = Look(api, api.url(home, "lock", api.cluster(**{"tls-server-name": "inner.example"}), token="t"))
    same(
        (look.status, look.h and look.h.sni, look.h and look.h.headers["Host"], look.token),
        (0, "inner.example", f"127.0.0.1:{api.port}", "Bearer t"),
        "T78 tls-server-name: that name is asked for and checked, the server's address stays what it was",
    )
    strange = serving(certificate=other.server())
    look = Look(strange, strange.url(home, "lock", token="t"))
    ok(
        look.status == 69 and not look.seen and "certificate" in look.said,
        "a server of another authority is not spoken to",
    )
    look = Look(
        strange,
        strange.url(
            home,
            "lock",
            strange.cluster(**{"certificate-authority": None, "insecure-skip-tls-verify": True}),
            token="t",
        ),
    )
    same((look.status, look.token), (0, "Bearer t"), "T78 insecure-skip-tls-verify: it is")
    look = Look(strange, strange.url(home, "lock", strange.cluster(**{"certificate-authority": other.ca}), token="t"))
    same((look.status, look.token), (0, "Bearer t"), "T78 certificate-authority: so it is by its own authority")
    for server in (api, strange):
        server.refuse()


def data_keys() -> None:
    api = serving()
    crt, key = pki.sign("inline", "/O=team/CN=inline")
    user = {"client-certificate-data": base64_of(crt), "client-key-data": base64_of(key)}
    cluster = api.cluster(**{"certificate-authority": None, "certificate-authority-data": base64_of(pki.ca)})
    look = Look(api, api.url(home, "lock", cluster, **user))
    same(
        (look.status, look.h and look.h.who, look.token),
        (0, "inline", None),
        "T78 authority, certificate and key as data in the file",
    )
    look = Look(
        api,
        api.url(
            home,
            "lock",
            cluster | {"certificate-authority": "/nowhere"},
            **user,
            **{"client-certificate": "/nowhere", "client-key": "/nowhere"},
        ),
    )
    same((look.status, look.h and look.h.who), (0, "inline"), "T78 which beat the files")
    look = Look(api, api.url(home, "lock", **{"client-certificate": crt, "client-key": key}))
    same((look.status, look.h and look.h.who), (0, "inline"), "T78 certificate and key as files")
    look = Look(api, api.url(home, "lock", username="me", password="p:w"))
    same((look.status, look.token), (0, "Basic " + base64.b64encode(b"me:p:w").decode()), "T78 a name and a password")
    plain = Api()
    plain.edit("lock", holderIdentity="x", leaseDurationSeconds=600)
    look = Look(plain, plain.url(home, "lock", token="s3cret"))
    same((look.status, look.token), (0, None), "T78 over http:// no token is sent")
    wanting = Api()
    wanting.rule = lambda h: h.answer(401, {"kind": "Status", "message": "Unauthorized"}) or True
    look = Look(wanting, wanting.url(home, "lock", token="s3cret"))
    ok(
        "not sent" in look.said and "https://" in look.said and "s3cret" not in look.said,
        f"T78 which a 401 says: {look.said}",
    )
    wanting.refuse()
    for server in (api, plain):
        server.refuse()


def proxies() -> None:
    api = serving()
    proxy, where = a_proxy()
    look = Look(api, api.url(home, "lock", api.cluster(**{"proxy-url": f"http://{where}"}), token="t"))
    same(
        (look.status, look.token, proxy.asked),
        (0, "Bearer t", [(f"127.0.0.1:{api.port}", None)]),
        "T78 proxy-url: a tunnel is asked for, and nothing shown to the proxy",
    )
    proxy.asked.clear()
    look = Look(api, api.url(home, "lock", api.cluster(**{"proxy-url": f"http://me:geheim@{where}"}), token="t"))
    same(
        (look.status, proxy.asked[:1]),
        (0, [(f"127.0.0.1:{api.port}", "Basic " + base64.b64encode(b"me:geheim").decode())]),
        "T78 with a name for the proxy itself",
    )
    proxy.asked.clear()
    passed = {"NO_PROXY": "127.0.0.0/8", "no_proxy": "127.0.0.1"}
    look = Look(api, api.url(home, "lock", api.cluster(**{"proxy-url": f"http://{where}"}), token="t"), **passed)
    same(
        (look.status, len(proxy.asked) > 0),
        (0, True),
        "T78 proxy-url is asked whatever NO_PROXY says, as client-go does",
    )
    proxy.asked.clear()
    look = Look(api, api.url(home, "lock", token="t"), https_proxy=f"http://{where}", NO_PROXY="elsewhere", no_proxy="")
    same((look.status, proxy.asked), (0, []), "T78 https_proxy is not asked for what is on this machine")
    proxy.shutdown()
    proxy.server_close()
    nobody = socket.socket()
    nobody.bind(("127.0.0.1", 0))  # and does not listen
    look = Look(
        api,
        api.url(
            home,
            "lock",
            api.cluster(**{"proxy-url": f"http://me:geheim@127.0.0.1:{nobody.getsockname()[1]}"}),
            token="t0ken",
        ),
    )
    same(
        (look.status, look.seen, "geheim" in look.said, "t0ken" in look.said),
        (69, [], False, False),
        "T78 a proxy that is down: an error without its password, and no way round it",
    )
    api.refuse()


def several_files() -> None:
    api = serving()
    os.makedirs(path("sub/secrets"))
    path("sub/secrets/token", "of-the-file\n")
    shutil.copy(pki.ca, path("sub/ca.crt"))
    first = kubeconfig(
        "first",
        contexts=named("context", "a", cluster="c", user="u", namespace="n")
        + named("context", "b", cluster="c", user="v", namespace="n"),
        **{"current-context": "a"},
    )
    second = kubeconfig(
        "sub/second",
        clusters=named("cluster", "c", **api.cluster(**{"certificate-authority": "ca.crt"})),
        users=named("user", "u", tokenFile="secrets/token") + named("user", "v", token="of-v"),
        **{"current-context": "b"},
    )
    third = kubeconfig("third", users=named("user", "u", token="of-the-third"))
    files = ":".join((first, path("missing"), second, third))
    look = Look(api, "kube:///lock", KUBECONFIG=files)
    same(
        (look.status, look.token),
        (0, "Bearer of-the-file"),
        "T78 $KUBECONFIG names several files, the first that says something counts; relative paths are of their own "
        "file",
    )
    look = Look(api, "kube:///lock?context=b", KUBECONFIG=files)
    same((look.status, look.token), (0, "Bearer of-v"), "T78 and another context")
    look = Look(api, "kube:///lock", KUBECONFIG=third)
    ok(
        look.status == 2 and "current-context" in look.said and "of-the-third" not in look.said,
        "T78 a file without a context is an error that shows no secret",
    )
    api.refuse()


def behind_a_path() -> None:
    """As fleets' gateways have it; another namespace, and who one acts as."""
    api = serving()
    lease, asked = json.loads(json.dumps(api.leases["lock"])), []

    def rule(h: Any) -> Any:
        asked.append((h.path.split("?")[0], h.headers))
        h.answer(200, lease)
        return True

    api.rule = rule
    user = {
        "token": "t",
        "as": "jane@example.com",
        "as-uid": "42",
        "as-groups": ["developers", "admins"],
        "as-user-extra": {"example.com/scopes": ["view", "more"]},
    }
    file = kubeconfig(
        "gateway",
        clusters=named("cluster", "c", **api.cluster(server=f"https://127.0.0.1:{api.port}/k8s/clusters/one/")),
        users=named("user", "u", **user),
        contexts=named("context", "a", cluster="c", user="u", namespace="elsewhere"),
        **{"current-context": "a"},
    )
    look = Look(api, f"kube:///lock?kubeconfig={file}")
    where, headers = asked[0] if asked else (None, {})
    same(
        (look.status, where),
        (0, "/k8s/clusters/one/apis/coordination.k8s.io/v1/namespaces/elsewhere/leases/lock"),
        "T78 a server with a path, the context's namespace",
    )
    got = {
        k: headers.get_all(k)
        for k in (
            "Impersonate-User",
            "Impersonate-Uid",
            "Impersonate-Group",
            "Impersonate-Extra-example.com%2Fscopes",
            "Authorization",
        )
    }
    same(
        list(got.values()),
        [["jane@example.com"], ["42"], ["developers", "admins"], ["view", "more"], ["Bearer t"]],
        "T78 impersonation: user, uid, groups, extra values",
    )
    api.refuse()


def plugin_keys() -> None:
    """What a plugin is told, and where it is looked for."""
    api = serving()
    p = Plugin("told", EXTRA="1")
    p.user["exec"] |= {"command": "./told", "provideClusterInfo": True}
    about = {"extensions": [{"name": "client.authentication.k8s.io/exec", "extension": {"audience": "us"}}]}
    look = Look(api, api.url(home, "lock", api.cluster(**about), **p.user))
    same((look.status, look.token), (0, "Bearer run-1"), "T78 a plugin with a path is looked for beside its kubeconfig")
    with open(p.path + ".info") as f:
        spec = json.load(f)["spec"]
    want = {
        "server": f"https://127.0.0.1:{api.port}",
        "certificate-authority-data": base64_of(pki.ca),
        "config": {"audience": "us"},
    }
    same(
        (spec["interactive"], spec.get("cluster")),
        (False, want),
        "T78 provideClusterInfo: it is told of the cluster, its authority's certificate and what is configured for it",
    )
    look = Look(api, api.url(home, "lock", token="mine", **p.user))
    same((look.status, look.token, p.runs()), (0, "Bearer mine", 1), "T78 where there is a token no plugin is run")
    api.refuse()


LEADING = {
    "refused-token": refused_token,
    "wrong-token": wrong_token,
    "rotated-token": rotated_token,
    "rotated-authority": rotated_authority,
    "refused-certificate": refused_certificate,
    "rotated-certificate": rotated_certificate,
    "chatty-plugin": chatty_plugin,
    "two-plugins": two_plugins,
    "expiring-plugin": expiring_plugin,
    "expired-plugin": expired_plugin,
    "refused-plugin": refused_plugin,
    "plugin-certificates": plugin_certificates,
}
LOOKING = {
    f.__name__.replace("_", "-"): f for f in (tls_keys, data_keys, proxies, several_files, behind_a_path, plugin_keys)
}


def job(name: str) -> Any:
    def play() -> None:
        d = Door(name)
        began = time.monotonic()
        try:
            LEADING[name](d)
        finally:
            d.end()
        note(f"{name} took {time.monotonic() - began:.1f} s")

    play.__name__ = name
    return play


chosen = sys.argv[1:] or [*LEADING, *LOOKING]
looking = [LOOKING[n] for n in chosen if n in LOOKING]


def look() -> None:
    for each in looking:  # one after the other: they take no time
        each()


at_once(*[job(n) for n in chosen if n in LEADING], look)
stop_everyone()
shutil.rmtree(home)
done()

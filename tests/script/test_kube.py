#!/usr/bin/env -S PYTHONPATH=. python3
"""lunarch.kube against answers that a healthy API server does not give: refusals for a while, pages that run out,
watches that break in every way. The server here is a script of such answers; what a real one answers is
tests/cluster/kubernetes/example.py's."""

import json
import os
import signal
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.lib.candidates import Candidate, stop_everyone
from tests.lib.processes import PATIENCE, ROOT, scratch, wait_for
from tests.lib.tap import done, ok, same

PODS = "/api/v1/namespaces/n/pods"


def status(code: int, message: str) -> dict[str, Any]:
    return {"kind": "Status", "status": "Failure", "code": code, "message": message}


class Api:
    """Pods in memory. `faults`: functions, each called for one request and then gone: they answer it (True). `streams`:
    the watches that are open, as handlers that can be written to."""

    def __init__(self) -> None:
        self.pods: dict[str, Any] = {}
        self.faults: list[Any] = []
        self.streams: list[Any] = []
        self.seen: list[Any] = []
        self.version, self.lock = 100, threading.RLock()
        api = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                pass

            def answer(self, code: int, body: Any, headers: tuple[Any, ...] = ()) -> bool:
                data = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(code)
                for k, v in [("Content-Type", "application/json"), ("Content-Length", str(len(data))), *headers]:
                    self.send_header(k, v)
                self.end_headers()
                self.wfile.write(data)
                return True

            def chunk(self, data: bytes) -> None:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
                self.wfile.flush()

            def serve(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                self.body = json.loads(self.rfile.read(length)) if length else None
                api.serve(self)

            do_GET = do_PATCH = serve

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: object) -> None:
                pass

        self.server = Server(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def serve(self, h: Any) -> Any:
        path, _, query = h.path.partition("?")
        h.query = dict(urllib.parse.parse_qsl(query))
        with self.lock:
            self.seen.append(
                (h.command, path, h.query, h.headers.get("Authorization"), h.headers.get("Content-Type"), h.body)
            )
            fault = self.faults.pop(0) if self.faults else None
        if fault and fault(h):
            return
        if h.query.get("watch"):
            return self.watch(h)
        name = path.removeprefix(PODS).strip("/")
        with self.lock:
            pod = self.pods.get(name)
            if name and not pod:
                return h.answer(404, status(404, f'pods "{name}" not found'))
            if pod and h.command == "PATCH":
                labels = {**pod["metadata"]["labels"], **h.body["metadata"]["labels"]}
                return h.answer(200, self.put(name, {k: v for k, v in labels.items() if v is not None}))
            if name:
                return h.answer(200, pod)
            limit, names = int(h.query.get("limit", 500)), sorted(self.pods)
            start = int(h.query.get("continue") or 0)
            more = str(start + limit) if len(names) > start + limit else ""
            return h.answer(
                200,
                {
                    "metadata": {"resourceVersion": str(self.version), "continue": more},
                    "items": [self.pods[n] for n in names[start : start + limit]],
                },
            )

    def watch(self, h: Any) -> None:
        h.send_response(200)
        h.send_header("Transfer-Encoding", "chunked")
        h.end_headers()
        h.gone = threading.Event()
        with self.lock:
            self.streams.append(h)
        h.gone.wait(3600)
        h.close_connection = True

    def put(self, name: str, labels: dict[str, str] | None = None) -> dict[str, dict[str, Any]]:
        with self.lock:
            self.version += 1
            self.pods[name] = {
                "metadata": {
                    "name": name,
                    "namespace": "n",
                    "resourceVersion": str(self.version),
                    "labels": labels or {},
                }
            }
            return self.pods[name]

    def event(self, kind: str, pod: dict[str, Any]) -> bytes:
        return json.dumps({"type": kind, "object": pod}).encode() + b"\n"

    def stream(self, n: int) -> Any:
        """The n-th watch."""
        wait_for(lambda: len(self.streams) >= n)
        return self.streams[n - 1]

    def cut(self, n: int, politely: bool = False) -> None:
        h = self.stream(n)
        if politely:
            h.wfile.write(b"0\r\n\r\n")
        else:
            h.connection.shutdown(2)
        h.gone.set()


MODULE = r"""
local kube = require "lunarch.kube"
local server, token_file = ...
local api = kube.connect { server = server, token_file = token_file, namespace = "n", timeout = 30 }
local function say(what, value, err) print(what, value ~= nil, err and err.code, err and err.status, err) end
return { on_leading = function(term)
  print("get", api:get("pods", "p1").metadata.name)
  say("missing", api:get("pods", "none"))
  say("denied", api:get("pods", "p1"))
  say("garbage", api:get("pods", "p1"))
  say("busy", api:get("pods", "p1"))
  print("list", #api:list("pods"), #api:list("pods"))
  say("list fails", api:list("pods", { selector = "a=b" }))
  say("no list", api:list("pods"))
  print("label", api:label_self({ role = "leader", old = false }).metadata.labels.role)
  say("patch fails", api:patch("pods", "none", { metadata = { labels = { a = "b" } } }, { type = "strategic" }))
  for _, f in ipairs { function() kube.connect() end, function() kube.connect { server = "ftp://x" } end,
    function() kube.connect { servr = "x" } end,
    function() api:get("pods") end, function() api:get("pods?x", "y") end,
    function() api:patch("pods", "x", {}, { type = "mrge" }) end } do
    print("misuse", select(2, pcall(f)))
  end
  spawn(function()
    for event, pod in api:watch("pods", { selector = { app = "web", tier = "front" } }) do
      local name = pod.metadata.name
      if not name:find "^p%d" or name:find "^p[57]$" or name == "p1201" then
        print("event", event, name, pod.metadata.resourceVersion)
      end
      if pod.metadata.name == "last" then break end
    end
    print "left"
    local good, err = pcall(function() for _ in api:watch("pods") do end end)
    print("refused", good, err)
  end):wait()
  lunarch.exit(0)
end }
"""


def main() -> None:
    api, room = Api(), scratch()
    script, token = os.path.join(room, "module.lua"), os.path.join(room, "token")
    for path, text in ((script, MODULE), (token, "s3cret\n")):
        with open(path, "w") as f:
            f.write(text)
    for i in range(1, 1202):
        api.put(f"p{i}")

    def refuse(code: Any, *headers: Any) -> Any:
        return lambda h: h.answer(code, status(code, "because"), headers)

    def go_on(h: Any) -> bool:
        return False

    api.faults += [
        go_on,
        go_on,
        refuse(403),
        lambda h: h.answer(200, b"<html>"),
        refuse(503),
        refuse(429, ("Retry-After", "0")),
        go_on,
        go_on,
        go_on,
        go_on,
        go_on,
        go_on,
        refuse(410),
        go_on,
        go_on,
        go_on,
        refuse(403),
        lambda h: h.answer(200, {"kind": "Pod"}),
    ]
    c = Candidate(
        "--lock",
        os.path.join(room, "lock"),
        script,
        "--",
        f"http://127.0.0.1:{api.port}",
        token,
        env={"POD_NAME": "p2", "KUBERNETES_SERVICE_HOST": ""},
        options=(),
    )

    def heard(*words: Any) -> Any:
        return c.wait("print", "\t".join(words))

    ok(heard("event", "added", "p1201"), "the watch begins with what is there")
    said = [e["message"] for e in c.all("print")]

    def has(*words: str) -> bool:
        return any(m.startswith(words[0]) and all(w in m for w in words) for m in said)

    ok(has("get\tp1"), "an object is got")
    ok(has("missing\tfalse\tmissing\t404", '"none" not found'), "what is not there is an error with the server's words")
    ok(has("denied\tfalse\tdenied\t403", "because"), "so is a refusal")
    ok(has("garbage\tfalse\tinvalid"), "an answer that is no JSON is one, too")
    ok(has("busy\ttrue"), "a server that is busy for a moment is asked again")
    ok(has("list\t1201\t1201"), "a list has all of its pages, and is begun again when they run out")
    ok(has("list fails\tfalse\tdenied") and has("no list\tfalse\tinvalid"), "a list that fails is no empty list")
    ok(has("label\tleader"), "the pod's labels are set")
    ok(has("patch fails\tfalse\tmissing\t404"), "a patch of what is not there fails")
    patches = [s for s in api.seen if s[0] == "PATCH"]
    same(
        [(s[1], s[4], s[5]) for s in patches],
        [
            (PODS + "/p2", "application/merge-patch+json", {"metadata": {"labels": {"role": "leader", "old": None}}}),
            (PODS + "/none", "application/strategic-merge-patch+json", {"metadata": {"labels": {"a": "b"}}}),
        ],
        "as the patches that they should be",
    )
    same({s[3] for s in api.seen}, {"Bearer s3cret"}, "every request has the account's token")
    same(len([m for m in said if m.startswith("misuse")]), 6, "misuse raises")
    for word in ("KUBERNETES_SERVICE_HOST", "ftp://x", "did you mean 'server'", "found nil", "pods?x", '"merge"'):
        ok(has("misuse", word), f"with the reason: {word}")
    watches(api, c, heard)
    same(c.leave(3 * PATIENCE), 0, "it ends in peace")
    ok(not any("s3cret" in json.dumps(e) for e in c.events), "the token is in no log")


def watches(api: Api, c: Candidate, heard: Any) -> None:
    s = api.stream(1)
    same(
        (s.query["labelSelector"], s.query["resourceVersion"], s.query["allowWatchBookmarks"]),
        ("app=web,tier=front", str(api.version), "true"),
        "watch: it asks for what comes after the list",
    )
    pod = api.put("new")
    s.chunk(api.event("ADDED", pod))
    ok(heard("event", "added", "new"), "watch: one line")
    for byte in api.event("MODIFIED", api.put("new")):
        s.chunk(bytes([byte]))
    ok(heard("event", "modified", "new", str(api.version)), "watch: a byte at a time")
    s.chunk(api.event("DELETED", api.pods.pop("new")) + api.event("ADDED", api.put("two")))
    ok(heard("event", "deleted", "new") and heard("event", "added", "two"), "watch: two in one piece")
    api.version += 50
    s.chunk(api.event("BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": str(api.version)}}))
    time.sleep(0.2)
    api.cut(1, politely=True)
    same(
        api.stream(2).query["resourceVersion"],
        str(api.version),
        "watch: when its time is up it goes on after the last bookmark",
    )
    api.put("two")
    api.put("three")
    api.pods.pop("p7")
    version = api.version
    api.faults += [lambda h: h.answer(410, status(410, "too old"))]
    api.cut(2)
    ok(
        heard("event", "added", "three") and heard("event", "modified", "two") and heard("event", "deleted", "p7"),
        "watch: what happened while it was cut is told",
    )
    same(api.stream(3).query["resourceVersion"], str(version), "watch: and it goes on from there")
    api.put("four")
    api.stream(3).chunk(api.event("ERROR", status(410, "expired")))
    ok(heard("event", "added", "four"), "watch: an expiry in the stream is one, too")
    api.put("five")
    api.stream(4).chunk(b"{nonsense\n")
    ok(heard("event", "added", "five"), "watch: after nonsense everything is listed again")
    api.put("six")
    api.faults += [lambda h: h.answer(500, status(500, "broken")), lambda h: h.answer(502, b"<html>")]
    api.cut(5)
    api.stream(6).chunk(api.event("ADDED", api.pods["six"]))
    ok(
        heard("event", "added", "six") and c.wait("kube_watch", "broken"),
        "watch: a server that fails for a while is asked again, and that is said",
    )
    api.put("seven")
    api.faults += [lambda h: h.answer(403, status(403, "no roles yet"))] * 2
    api.cut(6)
    api.stream(7).chunk(api.event("ADDED", api.pods["seven"]))
    ok(
        heard("event", "added", "seven") and c.wait("kube_watch", "no roles yet"),
        "watch: what was allowed once and is refused for a moment is asked for again",
    )
    same(len(c.all("print", "event\tadded\tp5\t")), 1, "watch: nothing is told twice")
    api.stream(7).chunk(api.event("ADDED", api.put("last")))
    ok(heard("left"), "watch: leaving the loop ends it")
    api.faults += [lambda h: h.answer(403, status(403, "no such right"))]
    ok(
        wait_for(lambda: c.all("print", "refused\tfalse"))
        and "no such right" in c.all("print", "refused")[0]["message"],
        "watch: rights that are missing raise",
    )


EXAMPLE = r"""
local kube = require "lunarch.kube"
local connect, server, script = kube.connect, ...
function kube.connect(options)
  options.server, options.token, options.namespace = server, "secret", "n"
  return connect(options)
end
return dofile(script)
"""


def label_leader() -> None:
    """examples/kubernetes/label-leader.lua, while the server fails at first."""
    api, d = Api(), scratch()
    broken, label = [2, 2], "lunarch.dev/leader"
    for name in ("dead", "me"):
        api.put(name, {label: "true"} if name == "dead" else {})

    def fault(h: Any) -> bool:
        api.faults.append(fault)
        which = 0 if "labelSelector" in h.query else 1 if "/dead" in h.path else None
        if which is None or not broken[which]:
            return False
        broken[which] -= 1
        return h.answer(500, status(500, "broken"))

    api.faults.append(fault)
    with open(os.path.join(d, "label.lua"), "w") as f:
        f.write(EXAMPLE)
    c = Candidate(
        "--lock",
        os.path.join(d, "lock"),
        os.path.join(d, "label.lua"),
        "--",
        f"http://127.0.0.1:{api.port}",
        os.path.join(ROOT, "examples", "kubernetes", "label-leader.lua"),
        env={"POD_NAME": "me"},
        options=["--lease-duration", "60s"],
    )

    def labels() -> list[str]:
        return [n for n, p in api.pods.items() if p["metadata"]["labels"].get(label)]

    if not ok(
        wait_for(lambda: labels() == ["me"]),
        "label-leader: a dead leader's label is taken away, though listing and patching it fail at first",
    ):
        c.log()
    same(broken, [0, 0], "label-leader: they did")
    wait_for(lambda: c.said("leading"))
    c.kill(signal.SIGTERM)
    same((c.leave(), labels()), (0, []), "label-leader: and its own when it stops")


main()
label_leader()
stop_everyone()
done()

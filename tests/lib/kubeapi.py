"""A Kubernetes API server that is a script: Leases in memory, watches, and whatever answers a test wants that a healthy
server does not give. It checks what it is sent. What a real server answers is tests/kube's matter."""

import copy
import http.server
import json
import os
import re
import socket
import ssl
import struct
import threading
import time
from typing import Any
from urllib.parse import parse_qs, urlsplit

PATH = "/apis/coordination.k8s.io/v1/namespaces/n/leases"
SIX_DIGITS = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


def status(code: int, reason: str, message: str = "because", name: str | None = None) -> dict[str, Any]:
    return {
        "kind": "Status",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message,
        "details": {"name": name, "kind": "leases"},
    }


class Handler(http.server.BaseHTTPRequestHandler):
    server: "Server"
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def answer(
        self, code: int, body: dict[str, Any] | None = None, headers: Any = (), text: bytes | None = None
    ) -> None:
        data = text if text is not None else json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        for k, v in headers:
            self.send_header(k, v)
        self.end_headers()
        self.wfile.write(data)

    def chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def begin(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def end(self) -> None:
        self.wfile.write(b"0\r\n\r\n")

    def cut(self) -> None:
        self.close_connection = True
        self.connection.close()

    def reset(self) -> None:
        """As a machine does that knows nothing of the connection."""
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()

    def setup(self) -> None:
        self.who: str | None = None
        self.sni: str | None = None
        if self.server.api.context:
            self.shake_hands(self.server.api.context)
        super().setup()
        self.server.handlers.add(self)

    def shake_hands(self, context: ssl.SSLContext) -> None:
        """Here, where it keeps nobody else waiting. who: whom the client's certificate names; sni: whom it asks for."""
        try:
            self.request = context.wrap_socket(self.request, server_side=True)
        except OSError as e:
            self.server.api.refused.append(str(e))
            raise
        self.sni = self.server.api.asked_for.pop(self.request, None)
        certificate: Any = self.request.getpeercert() or {}
        names = dict(part[0] for part in certificate.get("subject", ()))
        self.who = names.get("commonName")

    def finish(self) -> None:
        self.server.handlers.discard(self)
        super().finish()
        if self.server.api.context:
            self.request.close()

    def serve(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        self.body = json.loads(self.rfile.read(length)) if length else None
        self.server.api.serve(self)

    do_GET = do_POST = do_PUT = serve


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    api: "Api"

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.handlers: set[Handler] = set()

    def handle_error(self, *_: object) -> None:
        pass


class Api:
    """faults: functions, each called for one request and then gone: they answer it (True), or change what comes after.
    watches: what each watch gets: functions that write to it. rule: called for every request. silent: watches are
    opened and show nothing. seen: (method, path, time, authorization, port, body, handler) of each request; applied:
    (time, method, holder, port) of each write; wrong: what no client may send. pki: it speaks TLS, with a certificate
    of that for 127.0.0.1 and localhost (or the one that is given), and asks for the client's; refused: handshakes that
    failed. next_records: False: who comes next is denied to everybody, and such requests are not seen: for tests of
    locks' own records, whose requests have an order."""

    def __init__(
        self, silent: bool = False, pki: Any = None, certificate: Any = None, next_records: bool = True
    ) -> None:
        self.next_records = next_records
        self.leases: dict[Any, Any] = {}
        self.version, self.silent = 100, silent
        self.rule: Any = None
        self.faults: list[Any] = []
        self.watches: list[Any] = []
        self.seen: list[Any] = []
        self.applied: list[Any] = []
        self.wrong: list[Any] = []
        self.log: list[Any] = []
        self.lock = threading.Condition(threading.RLock())
        self.pki = pki
        self.context: ssl.SSLContext | None = None
        self.refused: list[str] = []
        self.asked_for: dict[Any, str] = {}
        if pki:
            self.use(*(certificate or pki.server()))
        self.server = Server()
        self.server.api = self
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def use(self, certificate: str, key: str) -> None:
        """For new connections."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        context.load_verify_locations(self.pki.ca)
        context.verify_mode = ssl.CERT_OPTIONAL
        context.sni_callback = lambda connection, name, _: self.asked_for.update({connection: name})
        self.context = context

    def cluster(self, **more: Any) -> dict[str, Any]:
        """A kubeconfig's cluster. None: not given."""
        way = (
            {"server": f"https://127.0.0.1:{self.port}", "certificate-authority": self.pki.ca}
            if self.pki
            else {"server": f"http://127.0.0.1:{self.port}"}
        )
        return {k: v for k, v in (way | more).items() if v is not None}

    def url(self, home: Any, name: str, cluster: Any = None, **user: Any) -> str:
        """A lock's URL, by a kubeconfig of its own in that directory."""
        path = os.path.join(home, f"config-{self.port}-{name}")
        with open(path, "w") as f:
            json.dump(
                {
                    "current-context": "c",
                    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "n"}}],
                    "clusters": [{"name": "c", "cluster": cluster or self.cluster()}],
                    "users": [{"name": "u", "user": user}],
                },
                f,
            )
        return f"kube:///{name}?kubeconfig={path}"

    def is_of_next(self, h: Handler) -> bool:
        name = urlsplit(h.path).path.rstrip("/").removeprefix(PATH)
        if h.command == "POST" and "/leases" in h.path:
            name = h.body["metadata"]["name"]
        watched = parse_qs(urlsplit(h.path).query).get("fieldSelector", [""])[0]
        return name.endswith("-next") or watched.endswith("-next")

    def serve(self, h: Any) -> None:
        if not self.next_records and self.is_of_next(h):
            h.answer(403, status(403, "Forbidden"))
            return
        with self.lock:
            self.seen.append(
                (h.command, h.path, time.monotonic(), h.headers.get("Authorization"), h.client_address[1], h.body, h)
            )
            watching = "watch=1" in h.path
            fault = (
                self.watches.pop(0)
                if watching and self.watches
                else self.faults.pop(0)
                if not watching and self.faults
                else None
            )
        if (fault and fault(h)) or (self.rule and self.rule(h)):
            return
        if watching:
            self.show(h)
        elif "/events" in h.path:
            h.answer(201, h.body)
        else:
            self.act(h)()

    def act(self, h: Handler) -> Any:
        """Does it; returns what answers it."""
        name = h.path.split("?")[0].removeprefix(PATH).strip("/") or h.body["metadata"]["name"]
        with self.lock:
            there = self.leases.get(name)
            if h.command == "GET":
                return (
                    (lambda: h.answer(200, there))
                    if there
                    else (lambda: h.answer(404, status(404, "NotFound", name=name)))
                )
            self.check(h)
            meta = h.body["metadata"]
            if (h.command == "POST") == bool(there) or (
                there and meta.get("resourceVersion") != there["metadata"]["resourceVersion"]
            ):
                return lambda: h.answer(409, status(409, "Conflict", name=name))
            self.put(name, h.body)
            self.applied.append(
                (time.monotonic(), h.command, h.body["spec"].get("holderIdentity"), h.client_address[1])
            )
        return lambda: h.answer(201 if h.command == "POST" else 200, h.body)

    def check(self, h: Handler) -> None:
        meta, spec = h.body["metadata"], h.body["spec"]
        if h.command == "PUT" and not (meta.get("uid") and meta.get("resourceVersion")):
            self.wrong.append(f"a PUT without uid and version: {h.path}")
        self.wrong += [
            f"{k} is {spec.get(k)}" for k in ("acquireTime", "renewTime") if not SIX_DIGITS.fullmatch(str(spec.get(k)))
        ]
        self.wrong += [
            f"{k} is {spec.get(k)}"
            for k in ("leaseDurationSeconds", "leaseTransitions")
            if not isinstance(spec.get(k), int)
        ]

    def put(self, name: str, lease: dict[str, Any]) -> None:
        with self.lock:
            self.version += 1
            meta = lease.setdefault("metadata", {})
            meta |= {"name": name, "uid": meta.get("uid") or "11111111-2222", "resourceVersion": str(self.version)}
            self.publish("MODIFIED" if name in self.leases else "ADDED", name, lease)
            self.leases[name] = lease

    def publish(self, kind: str, name: str, lease: dict[str, Any]) -> None:
        self.log.append((self.version, kind, name, json.dumps({"type": kind, "object": lease}).encode() + b"\n"))
        self.lock.notify_all()

    def edit(self, name: str, labels: Any = None, **spec: Any) -> None:
        """As kubectl edit does; made if it is not there."""
        with self.lock:
            lease = copy.deepcopy(self.leases.get(name)) or {"kind": "Lease", "spec": {}}
            lease["spec"].update(spec)
            lease.setdefault("metadata", {}).setdefault("labels", {}).update(labels or {})
            self.put(name, lease)

    def delete(self, name: str) -> None:
        with self.lock:
            self.version += 1
            lease = self.leases.pop(name)
            lease["metadata"]["resourceVersion"] = str(self.version)
            self.publish("DELETED", name, lease)

    def show(self, h: Handler) -> None:
        h.begin()
        if self.silent:
            time.sleep(3600)
        asked = parse_qs(urlsplit(h.path).query)
        name, since = asked["fieldSelector"][0].split("=", 1)[1], int(asked["resourceVersion"][0])
        at = 0 if since else len(self.log)
        while True:
            with self.lock:
                if since == 0 and name in self.leases:
                    at, fresh = len(self.log), [
                        (0, "ADDED", name, json.dumps({"type": "ADDED", "object": self.leases[name]}).encode() + b"\n")
                    ]
                else:
                    self.lock.wait_for(lambda: len(self.log) > at, 1)
                    at, fresh = len(self.log), [e for e in self.log[at:] if e[2] == name and e[0] > since]
            for version, _, _, line in fresh:
                h.chunk(line)
                since = version or -1

    def refuse(self) -> None:
        """Nobody listens any more, and what was connected is cut."""
        self.server.shutdown()
        self.server.server_close()
        self.hang_up()

    def hang_up(self) -> None:
        """A close would wait for the handler, which reads."""
        for h in list(self.server.handlers):
            try:
                h.close_connection = True
                socket.socket.shutdown(h.connection, socket.SHUT_RDWR)
            except OSError:
                pass

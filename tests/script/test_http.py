#!/usr/bin/env -S PYTHONPATH=. /usr/bin/python3
"""http in scripts: a server of our own that behaves and misbehaves (TCP, TLS with client certificates, a unix socket,
as a proxy); tests/script/scripts/http_client.lua asks it, three times. Then what the end of a term does to a
request."""

import gzip
import json
import os
import shutil
import socket
import socketserver
import ssl
import subprocess
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler
from typing import Any, cast

from tests.lib.pki import Pki
from tests.lib.player import EXIT, SCRIPTS, STOPPED, Worker
from tests.lib.processes import LUNARCH
from tests.lib.tap import ok, run

counts = {"n": 0, "later": 0, "open": 0, "tunnels": 0}
lock = threading.Lock()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def address_string(self) -> Any:
        return "somebody"

    def text(self, status: int, body: bytes | str, *headers: tuple[str, str]) -> None:
        body = body if isinstance(body, bytes) else body.encode()
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            out = b""
            while True:
                size = int(self.rfile.readline().split(b";")[0], 16)
                out += self.rfile.read(size)
                self.rfile.readline()
                if size == 0:
                    return out
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def raw(self, data: bytes) -> None:
        self.close_connection = True
        self.wfile.write(data)

    def hang(self) -> None:
        with lock:
            counts["open"] += 1
        try:
            self.connection.settimeout(120)
            while self.connection.recv(4096):
                pass
        except OSError:
            pass
        with lock:
            counts["open"] -= 1
        self.close_connection = True

    def dribble(self, part: bytes, pause: float, length: Any = None) -> None:
        self.raw(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (length or 1 << 40))
        while True:
            self.wfile.write(part)
            time.sleep(pause)

    def welcome(self) -> bool:
        """A proxy that lets in everybody but who says a wrong password."""
        if self.headers.get("Proxy-Authorization") in (None, "Basic bWU6cmlnaHQ="):
            return True
        self.close_connection = True
        self.text(407, "who are you?", ("Proxy-Authenticate", "Basic"), ("Connection", "close"))
        return False

    def do_CONNECT(self) -> None:
        if not self.welcome():
            return
        self.close_connection = True
        with lock:
            counts["tunnels"] += 1
        with socket.create_connection(("127.0.0.1", int(self.path.rpartition(":")[2]))) as remote:
            self.wfile.write(b"HTTP/1.1 200 Go on\r\n\r\n")
            threading.Thread(target=self.copy, args=(remote, self.connection), daemon=True).start()
            self.copy(self.connection, remote)

    @staticmethod
    def copy(a: socket.socket, b: socket.socket) -> None:
        try:
            while data := a.recv(65536):
                b.sendall(data)
            b.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except (OSError, ValueError):
            self.close_connection = True

    asked = 0  # so far on this connection

    def answer(self) -> Any:
        self.asked += 1
        body = self.body()
        path = self.path
        if "://" in path:
            if not self.welcome():
                return None
            return self.text(200, "through the proxy: " + path)
        what, _, rest = path[1:].partition("?")[0].partition("/")
        if what == "hello":
            return self.text(
                200,
                "hello\n",
                ("Content-Type", "text/plain"),
                ("X-Twice", "one"),
                ("X-twice", "two"),
                ("Set-Cookie", "a=1, b"),
                ("Set-Cookie", "c=2"),
            )
        if what == "echo":
            return self.text(
                200,
                json.dumps(
                    {
                        "method": self.command,
                        "path": path,
                        "body": body.decode("latin-1"),
                        "headers": {k.lower(): v for k, v in self.headers.items()},
                    }
                ),
            )
        if what == "size":
            return self.text(200, str(len(body)))
        if what == "status":
            return self.text(int(rest), rest)
        if what == "gzip":
            return self.text(200, gzip.compress(b"compressed " * 1000), ("Content-Encoding", "gzip"))
        if what == "redirect":
            n = int(rest)
            return self.text(302, "", ("Location", "/redirect/%d" % (n - 1) if n > 1 else "/hello"))
        if what == "whoami":
            subject = dict(x[0] for x in self.connection.getpeercert()["subject"])
            return self.text(200, subject["commonName"])
        if what == "hang":
            return self.hang()
        if what == "garbage":
            return self.raw(b"this is no HTTP at all\r\n\r\n\x01\x02")
        if what == "short":
            return self.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this")
        if what == "headers":
            self.raw(b"HTTP/1.1 200 OK\r\n")
            while True:
                self.wfile.write(b"X-Endless: 0123456789\r\n" * 100)
        if what == "close":
            return self.raw(b"")
        if what == "drop":  # whatever is not the first on its connection is not answered
            return self.raw(b"") if self.asked > 1 else self.text(200, "answered")
        if what == "big":
            return self.text(200, b"x" * int(rest))
        if what == "drip":
            return self.dribble(b"x", 0.05)
        if what == "endless":
            return self.dribble(b"x" * 65536, 0)
        if what == "stall":
            return self.dribble(b"x", 60)
        if what == "lines":
            return self.text(200, "".join("%d\r\n" % i for i in range(int(rest))))
        if what == "count":
            with lock:
                counts["n"] = 0 if rest == "reset" else counts["n"] + 1
                n = counts["n"]
            return self.text(200 if rest == "reset" or n >= int(rest) else 503, str(n))
        if what == "counted":
            return self.text(200, str(counts["n"]))
        if what == "tunnels":
            return self.text(200, str(counts["tunnels"]))
        if what == "later":
            with lock:
                counts["later"] += 1
                first = counts["later"] % 2 == 1
            return self.text(503, "", ("Retry-After", "1")) if first else self.text(200, "later")
        return self.text(404, "no such path")

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = do_REPORT = answer


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 512
    context: ssl.SSLContext | None = None

    def finish_request(self, request: Any, address: Any) -> None:
        if self.context:
            try:
                request = self.context.wrap_socket(request, server_side=True)
            except (ssl.SSLError, OSError):
                return
        super().finish_request(request, address)

    def handle_error(self, *_: object) -> None:
        pass


class UnixServer(Server):
    address_family = socket.AF_UNIX


def serve(server: Any) -> Any:
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def the_client(mode: Any, args: Any) -> None:
    with Worker(os.path.join(SCRIPTS, "http_client.lua"), mode, *args, env={"http_proxy": "", "no_proxy": ""}) as w:
        w.ready()
        w.lead()
        kind, fields = w.receive(180)
        for line in w.output().splitlines():
            if line.startswith("#"):
                print(line)
            elif " - " in line:
                ok(line.startswith("ok"), "%s: %s" % (mode, line.split(" - ", 1)[1]))
        ok(
            kind == EXIT and fields["code"] == 0,
            mode + ": runs to its end and says that all is well",
            "%d %r\n%s" % (kind, fields, w.log_text()[-3000:]),
        )


def the_end_of_a_term(base: str) -> None:
    text = """kept = false
return { on_leading = function()
  kept = http.get("%s/endless", { stream = true })
  for _ = 1, 5 do spawn(pcall, http.get, "%s/hang", { timeout = 100 }) end
  print "in"
  sleep(100)
end, on_stopped = function()
  print(http.get("%s/hello").body)
  local part, err
  repeat part, err = kept:read() until not part
  print("kept", err.code)
end }""" % (
        base,
        base,
        base,
    )
    with Worker(text=text) as w:
        w.ready()
        w.lead()
        w.wait_print("in")
        w.wait_for(lambda: counts["open"] == 5, "five requests")
        w.stop()
        w.expect(STOPPED)
        ok([p for p in w.printed() if p.startswith("hello")], "on_stopped can ask", w.printed())
        ok(
            "kept\tcancelled" in w.printed(),
            "but a stream of the term has ended with it, though it was kept",
            w.printed(),
        )
        w.wait_for(lambda: counts["open"] == 0, "the end of the requests")
        ok(True, "and so have its requests: the server sees their connections close")


def without() -> None:
    directory = tempfile.mkdtemp(prefix="lunarch-test-")
    shutil.copy(LUNARCH, directory + "/lunarch")
    words = "http.get 'http://127.0.0.1:1/' lunarch.exit()"
    argv = [directory + "/lunarch", "run", "--lock", directory + "/lock", "-e", words, "--once"]
    p = subprocess.run(argv, stderr=subprocess.PIPE, text=True, timeout=60)
    ok(
        "http: this program was built or installed without its module http.so" in p.stderr,
        "without the module: an error that names it",
        p.stderr[-500:],
    )
    shutil.rmtree(directory)


def main() -> None:
    d = tempfile.mkdtemp(prefix="lunarch-test-")
    pki = Pki(d)
    pki.sign("client", "/CN=client")
    plain = serve(Server(("127.0.0.1", 0), Handler))
    secure = Server(("127.0.0.1", 0), Handler)
    secure.context = context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*pki.server())
    context.load_verify_locations(pki.ca)
    context.verify_mode = ssl.CERT_OPTIONAL
    serve(secure)
    serve(UnixServer(cast(Any, d + "/socket"), Handler))
    base = "http://127.0.0.1:%d" % plain.server_address[1]
    args = [base, "https://127.0.0.1:%d" % secure.server_address[1], d + "/socket", base, d]
    tests = [lambda m=mode: the_client(m, args) for mode in ("plain", "gc", "generational")]
    try:
        run([*tests, lambda: the_end_of_a_term(base), without])
    finally:
        shutil.rmtree(d)


main()

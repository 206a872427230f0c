#!/usr/bin/env -S PYTHONPATH=. python3
"""Box: a key-value store of a page, over HTTP, for which there is a lock file (tests/locks/drivers/box.lua).

box.py PORT FILE serves what FILE holds. A change is in it before it is answered, so that a killed server has it again.
A key's value has an ETag, which never comes back. Nothing like it is used anywhere: it stands for the stores of others.

    GET /k/KEY                       200 and the value, or 404; with ?after=ETAG&wait=S not before it has another ETag
                                     (404: an empty one), or so many seconds have passed
    PUT /k/KEY                       200, with If-Match or If-None-Match: * under that condition, else 412
    DELETE /k/KEY                    the same
    GET /list?prefix=P&limit=N       {"names": [...], "more": false}
    POST /mode?is=full               the test's own: "full" and "readonly" refuse changes, "" does not
"""

import base64
import json
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote_to_bytes, urlsplit

LONGEST = 60.0  # seconds that a request may wait


class Box:
    def __init__(self, path: str) -> None:
        self.changed = threading.Condition()
        self.values: dict[bytes, tuple[str, bytes]] = {}
        self.revision = 0
        self.mode = ""
        if os.path.exists(path):
            with open(path) as f:
                for line in f:
                    if line.endswith("\n"):  # else it was killed while it wrote it, and nobody was told
                        self.apply(**json.loads(line))
        self.file = open(path, "a")

    def apply(self, revision: int, key: str, value: str | None) -> None:
        name = base64.b64decode(key)
        self.revision = revision
        if value is None:
            self.values.pop(name, None)
        else:
            self.values[name] = (f'"{revision}"', base64.b64decode(value))

    def etag(self, key: bytes) -> str:
        return self.values[key][0] if key in self.values else ""

    def change(self, key: bytes, value: bytes | None, match: str | None, none_match: str | None) -> tuple[int, str]:
        """The status and the new ETag. None removes it."""
        with self.changed:
            now = self.etag(key)
            if (none_match == "*" and now) or (match is not None and match != now):
                return 412, ""
            if self.mode:
                return (507 if self.mode == "full" else 403), ""
            if value is None and not now:
                return 404, ""
            encoded = None if value is None else base64.b64encode(value).decode()
            line = {"revision": self.revision + 1, "key": base64.b64encode(key).decode(), "value": encoded}
            self.file.write(json.dumps(line) + "\n")
            self.file.flush()
            self.apply(**line)  # type: ignore[arg-type]
            self.changed.notify_all()
            return 200, self.etag(key)

    def get(self, key: bytes, after: str | None, wait: float) -> tuple[str, bytes]:
        """ "" in place of the ETag: it is absent."""
        until = time.monotonic() + min(wait, LONGEST)
        with self.changed:
            while after is not None and self.etag(key) == after:
                left = until - time.monotonic()
                if left <= 0:
                    break
                self.changed.wait(left)
            return self.values.get(key, ("", b""))

    def names(self, prefix: bytes, limit: int) -> dict[str, Any]:
        with self.changed:
            found = sorted(k for k in self.values if k.startswith(prefix))
        return {"names": [k.decode() for k in found[:limit]], "more": len(found) > limit}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "Box/1"
    disable_nagle_algorithm = True
    box: Box

    def log_message(self, *_: object) -> None:
        pass

    def answer(self, status: int, body: bytes = b"", etag: str = "") -> None:
        self.send_response(status)
        if etag:
            self.send_header("ETag", etag)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def asked(self) -> tuple[str, bytes, dict[str, str]]:
        """What stands first in the path, the key behind it, and the query."""
        url = urlsplit(self.path)
        _, what, key = (url.path + "//").split("/", 2)
        query = {k: v[0] for k, v in parse_qs(url.query, keep_blank_values=True, errors="surrogateescape").items()}
        return what, unquote_to_bytes(key[: -2 if key.endswith("//") else None]), query

    def do_GET(self) -> None:
        what, key, query = self.asked()
        if what == "list":
            prefix = query.get("prefix", "").encode("utf-8", "surrogateescape")
            self.answer(200, json.dumps(self.box.names(prefix, int(query.get("limit", "1000")))).encode())
        elif what == "k":
            etag, value = self.box.get(key, query.get("after"), float(query.get("wait", "0")))
            self.answer(200 if etag else 404, value, etag)
        else:
            self.answer(200, b"a box")

    def do_PUT(self) -> None:
        value = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        self.change(value)

    def do_DELETE(self) -> None:
        self.change(None)

    def change(self, value: bytes | None) -> None:
        _, key, _ = self.asked()
        status, etag = self.box.change(key, value, self.headers.get("If-Match"), self.headers.get("If-None-Match"))
        self.answer(status, etag=etag)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", "0")))
        self.box.mode = self.asked()[2].get("is", "")
        self.answer(200)


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024


if __name__ == "__main__":
    Handler.box = Box(sys.argv[2])
    Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()

"""An S3 of the tests' own, in this process: one bucket whose conditional PUTs are one step, signatures checked by the
rules and not by a library, and each way in which look-alikes and networks go wrong. Not a store of the conformance
cases: those run on real servers. Beside it what AWS has for credentials: STS, a container's, an instance's."""

import hashlib
import hmac
import http.server
import re
import ssl
import threading
import time
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

TYPE = {"Content-Type": "application/xml"}


def error(code: str, message: str = "as the test says", **more: str) -> bytes:
    rest = "".join(f"<{k}>{v}</{k}>" for k, v in more.items())
    return f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{message}</Message>{rest}</Error>".encode()


def digest(key: bytes, text: str) -> bytes:
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


class Asked:
    """A request, as the handler of a server sees it."""

    def __init__(self, method: str, target: str, headers: Any, body: bytes) -> None:
        self.method, self.target, self.headers, self.body = method, target, headers, body
        self.path, self.query = urlsplit(target).path, urlsplit(target).query
        found = re.search(r"Credential=([^/]+)/\d+/([^/]+)/", headers.get("Authorization", ""))
        self.key, self.region = found.groups() if found else ("", "")

    def signature(self, secret: str) -> str:
        """That it should have (AWS Signature Version 4)."""
        auth = self.headers["Authorization"]
        scope = re.search(r"Credential=[^/]+/([^,]+)", auth)
        names = re.search(r"SignedHeaders=([^,]+)", auth)
        assert scope and names
        signed = sorted(names[1].split(";"))
        lines = "".join(f"{n}:{' '.join(self.headers[n].split())}\n" for n in signed)
        query = "&".join(sorted(self.query.split("&"))) if self.query else ""
        hashed = self.headers.get("x-amz-content-sha256") or hashlib.sha256(self.body).hexdigest()
        canonical = "\n".join([self.method, self.path, query, lines, ";".join(signed), hashed])
        key = ("AWS4" + secret).encode()
        for part in scope[1].split("/"):
            key = digest(key, part)
        text = "\n".join(
            ["AWS4-HMAC-SHA256", self.headers["x-amz-date"], scope[1], hashlib.sha256(canonical.encode()).hexdigest()]
        )
        return digest(key, text).hex()

    def is_signed_with(self, secret: str) -> bool:
        body = hashlib.sha256(self.body).hexdigest()
        return self.headers["Authorization"].endswith("Signature=" + self.signature(secret)) and (
            self.headers.get("x-amz-content-sha256") in (None, body)
        )


class Web:
    """with Web(answer) as server: answer(asked) is a status, a body, and headers. tls: the files of its certificate and
    its key."""

    def __init__(self, answer: Callable[[Asked], Any], tls: tuple[str, str] | None = None) -> None:
        self.asked: list[Asked] = []

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                pass

            def handle_one(handler) -> None:  # noqa: N805
                body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
                asked = Asked(handler.command, handler.path, handler.headers, body)
                self.asked.append(asked)
                found = answer(asked)
                if found is None:  # the answer is lost with its connection
                    handler.close_connection = True
                    return
                status, content, headers = found
                handler.send_response(status)
                for name, value in headers.items():
                    handler.send_header(name, value)
                if status not in (204, 304):
                    handler.send_header("Content-Length", str(len(content)))
                handler.end_headers()
                if handler.command != "HEAD" and status != 204:
                    handler.wfile.write(content)

            do_GET = do_PUT = do_DELETE = do_POST = do_HEAD = handle_one

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads, request_queue_size = True, 128

            def handle_error(self, *_: object) -> None:
                pass

        self.server = Server(("127.0.0.1", 0), Handler)
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*tls)
            self.server.socket = context.wrap_socket(
                self.server.socket, server_side=True, do_handshake_on_connect=False
            )
        self.port = self.server.server_port
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self.port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()


class FakeS3(Web):
    """users: access key -> (secret, session token or None). instead(asked): another answer than S3's, or NotImplemented
    for S3's."""

    bucket = "bucket"

    def __init__(self, tls: tuple[str, str] | None = None, **users: Any) -> None:
        super().__init__(self.answer, tls)
        self.region = "us-east-1"
        self.users: dict[str, Any] = users or {"AKtest": ("secret/+x", None)}
        self.objects: dict[str, bytes] = {}
        self.ignores: set[str] = set()  # names of headers
        self.compares: Callable[[str], str] = lambda etag: etag  # the form in which If-Match must have an ETag
        self.slow = 0.0  # seconds between comparing and replacing: not one step any more
        self.forbids: set[str] = set()  # methods
        self.instead: Callable[[Asked], Any] = lambda asked: NotImplemented
        self.clock = 0.0  # seconds by which it differs from the client's
        self.step = threading.Lock()

    def puts(self, part: str = "") -> list[Asked]:
        return [a for a in self.asked if a.method == "PUT" and part in a.path]

    def refusal(self, asked: Asked) -> tuple[int, bytes, dict[str, str]] | None:
        if asked.key not in self.users:
            return 403, error("InvalidAccessKeyId"), TYPE
        secret, token = self.users[asked.key]
        if asked.headers.get("x-amz-security-token") != token:
            return 403, error("InvalidToken"), TYPE
        if asked.region != self.region:
            return 400, error("AuthorizationHeaderMalformed", Region=self.region), TYPE
        when = datetime.strptime(asked.headers["x-amz-date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=timezone.utc)
        if abs(when.timestamp() - time.time() - self.clock) > 900:
            return 403, error("RequestTimeTooSkewed"), TYPE
        if not asked.is_signed_with(secret):
            return 403, error("SignatureDoesNotMatch"), TYPE
        if asked.method in self.forbids:
            return 403, error("AccessDenied"), TYPE
        if unquote(asked.path).split("/")[1] != self.bucket:
            return 404, error("NoSuchBucket"), TYPE
        return None

    def answer(self, asked: Asked) -> tuple[Any, ...] | None:
        found = self.instead(asked)
        if found is not NotImplemented:
            return found
        refused = self.refusal(asked)
        if refused:
            return refused
        key = unquote(asked.path).split("/", 2)[2]
        if not key:
            return self.of_the_bucket(asked)
        return {"GET": self.get, "PUT": self.put, "DELETE": self.delete, "HEAD": self.get}[asked.method](asked, key)

    def of_the_bucket(self, asked: Asked) -> tuple[int, bytes, dict[str, str]]:
        query = parse_qs(asked.query, keep_blank_values=True)
        if "replication" in query or "versioning" in query:
            return 404, error("ReplicationConfigurationNotFoundError"), TYPE
        prefix = query.get("prefix", [""])[0]
        rows = "".join(f"<Contents><Key>{k}</Key></Contents>" for k in sorted(self.objects) if k.startswith(prefix))
        body = f"<ListBucketResult><IsTruncated>false</IsTruncated>{rows}</ListBucketResult>"
        return 200, body.encode(), {**TYPE, "Server": "fake"}

    @staticmethod
    def etag(content: bytes) -> str:
        return '"' + hashlib.md5(content).hexdigest() + '"'

    def get(self, asked: Asked, key: str) -> Any:
        content = self.objects.get(key)
        if content is None:
            return 404, error("NoSuchKey"), TYPE
        return 200, content, {"ETag": self.etag(content)}

    def unmet(self, asked: Asked, key: str) -> tuple[int, bytes, dict[str, str]] | None:
        none = "If-None-Match" not in self.ignores and asked.headers.get("If-None-Match")
        match = "If-Match" not in self.ignores and asked.headers.get("If-Match")
        there = self.objects.get(key)
        if match and there is None:
            return 404, error("NoSuchKey"), TYPE
        if (none and there is not None) or (match and there is not None and self.compares(self.etag(there)) != match):
            return 412, error("PreconditionFailed"), TYPE
        return None

    def put(self, asked: Asked, key: str) -> tuple[int, bytes, dict[str, str]]:
        if self.slow:
            found = self.unmet(asked, key)
            time.sleep(self.slow)
            if found:
                return found
            self.objects[key] = asked.body
            return 200, b"", {"ETag": self.etag(asked.body)}
        with self.step:
            found = self.unmet(asked, key)
            if not found:
                self.objects[key] = asked.body
            return found or (200, b"", {"ETag": self.etag(asked.body)})

    def delete(self, asked: Asked, key: str) -> tuple[int, bytes, dict[Any, Any]]:
        with self.step:
            match = asked.headers.get("If-Match")
            if match and key in self.objects and self.compares(self.etag(self.objects[key])) != match:
                return 412, error("PreconditionFailed"), TYPE
            self.objects.pop(key, None)
            return 204, b"", {}

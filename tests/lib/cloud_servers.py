"""Stand-ins of clouds' stores, as servers.py's.

fake-gcs-server for Google Cloud Storage (a Go module; make gcs-server): it compares ifGenerationMatch when it writes,
in one step; it asks nobody for a token, and ignores the condition of a DELETE. In memory all is gone when it ends; on
disk a GET may have the generation of one write and the content of the next.

Azurite for Azure Blob Storage, Microsoft's own (for Node.js; make azurite): it checks keys and SAS, and compares ETags
in one step. What it has it writes down when it is told to stop, and every few seconds: killed, it loses writes."""

import base64
import hashlib
import hmac
import http.client
import json
import os
import ssl
import time
from datetime import datetime, timezone
from email.utils import formatdate
from typing import Any
from urllib.parse import urlencode

from tests.lib.processes import PATIENCE
from tests.lib.servers import Server

BUCKET = "lunarch"


def built(name: str, program: str) -> str:
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(cache, "lunarch-tests", name, program)


class FakeGcs(Server):
    def __init__(self, on_disk: bool = False, start: bool = True) -> None:
        self.on_disk = on_disk
        super().__init__(start)

    def command(self) -> list[str]:
        return [
            built("gcs", "fake-gcs-server"),
            *("-scheme", "http", "-host", "127.0.0.1", "-port", str(self.port), "-log-level", "warn"),
            *(
                "-backend",
                "filesystem" if self.on_disk else "memory",
                "-filesystem-root",
                os.path.join(self.dir, "data"),
            ),
        ]

    def ask(self, method: str, path: str, body: bytes | None = None, patience: float = PATIENCE) -> tuple[int, bytes]:
        """Status and body."""
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=patience)
        try:
            c.request(method, path, body, {"Content-Type": "application/json"} if body else {})
            answer = c.getresponse()
            return answer.status, answer.read()
        finally:
            c.close()

    def ready(self) -> bool:
        """It has the bucket."""
        try:
            return self.ask("POST", "/storage/v1/b", json.dumps({"name": BUCKET}).encode(), 5)[0] in (200, 409)
        except (OSError, http.client.HTTPException):
            return False


ACCOUNT, KEY = "lunarchtests", base64.b64encode(b"the tests' account key, of no account").decode()


class Azurite(Server):
    """tls: the files of its authority, its certificate and its key; then it takes tokens, too, of which it verifies no
    signature."""

    environment = {"AZURITE_ACCOUNTS": f"{ACCOUNT}:{KEY}"}

    def __init__(self, tls: tuple[str, str, str] | None = None, start: bool = True) -> None:
        self.tls = tls
        super().__init__(start)

    def command(self) -> list[str]:
        cert = ["--cert", self.tls[1], "--key", self.tls[2], "--oauth", "basic"] if self.tls else []
        return [
            *("node", built("azurite", "node_modules/azurite/dist/src/blob/main.js")),
            *("--blobHost", "127.0.0.1", "--blobPort", str(self.port), "--location", os.path.join(self.dir, "data")),
            *("--silent", "--disableProductStyleUrl", "--disableTelemetry", *cert),
        ]

    def ask(
        self, method: str, path: str, query: dict[str, str] | None = None, body: bytes = b"", **headers: str
    ) -> tuple[int, Any, bytes]:
        """A request with the account's key; path: behind the account, percent-encoded. Status, headers, body."""
        path = f"/{ACCOUNT}/{path}"
        given = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-12-02"}
        given |= {k.lower().replace("_", "-"): v for k, v in headers.items()}
        extended = "".join(f"{k}:{given[k]}\n" for k in sorted(given) if k.startswith("x-ms-"))
        names = "content-type date if-modified-since if-match if-none-match if-unmodified-since range".split()
        lines = [method, "", "", str(len(body)) if body else "", "", *(given.get(n, "") for n in names)]
        resource = f"/{ACCOUNT}{path}" + "".join(f"\n{k}:{v}" for k, v in sorted((query or {}).items()))
        digest = hmac.new(
            base64.b64decode(KEY), ("\n".join(lines) + "\n" + extended + resource).encode(), hashlib.sha256
        )
        given["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(digest.digest()).decode()}"
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        if self.tls:
            context = ssl.create_default_context(cafile=self.tls[0])
            c = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=PATIENCE, context=context)
        try:
            c.request(method, path + ("?" + urlencode(query) if query else ""), body or None, given)
            answer = c.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            c.close()

    def ready(self) -> Any:
        """It has the container."""
        try:
            return self.ask("PUT", BUCKET, {"restype": "container"})[0] in (201, 409)
        except (OSError, http.client.HTTPException):
            return False

    @staticmethod
    def sas(rights: str) -> str:
        """Of the container, for an hour."""
        ends = datetime.fromtimestamp(time.time() + 3600, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        parts = {"sp": rights, "se": ends, "spr": "https,http", "sv": "2021-12-02", "sr": "c"}
        lines = [parts["sp"], "", ends, f"/blob/{ACCOUNT}/{BUCKET}", "", "", parts["spr"], parts["sv"], "c", *[""] * 7]
        digest = hmac.new(base64.b64decode(KEY), "\n".join(lines).encode(), hashlib.sha256).digest()
        return urlencode({**parts, "sig": base64.b64encode(digest).decode()})

    @staticmethod
    def token() -> str:
        """As Entra's tokens are, but for the signature."""
        now = int(time.time())
        claims: dict[str, Any] = {"aud": "https://storage.azure.com", "iss": "https://sts.windows.net/x/"}
        claims |= {"nbf": now - 60, "iat": now - 60, "exp": now + 3600, "oid": "x", "tid": "x"}
        parts = [json.dumps(p).encode() for p in ({"typ": "JWT", "alg": "RS256"}, claims)]
        return ".".join(base64.urlsafe_b64encode(p).decode().rstrip("=") for p in [*parts, b"signature"])

    def kill(self) -> None:
        """As an operator would stop it: killed, it would lose what it has answered."""
        self.stop()

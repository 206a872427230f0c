"""Stand-ins of clouds' stores, as servers.py's.

fake-gcs-server for Google Cloud Storage (a Go module; make gcs-server): it compares ifGenerationMatch when it writes,
in one step; it asks nobody for a token, and ignores the condition of a DELETE. In memory all is gone when it ends; on
disk a GET may have the generation of one write and the content of the next."""

import http.client
import json
import os
from typing import Any

from tests.lib.processes import PATIENCE
from tests.lib.servers import Server

BUCKET = "lunarch"


def built(name: str, program: str) -> str:
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(cache, "lunarch-tests", name, program)


class FakeGcs(Server):
    """tls: the files of its certificate and its key."""

    def __init__(self, on_disk: bool = False, tls: tuple[str, str] | None = None, start: bool = True) -> None:
        self.on_disk, self.tls = on_disk, tls
        super().__init__(start)

    def command(self) -> list[str]:
        cert = ["-cert-location", self.tls[0], "-private-key-location", self.tls[1]] if self.tls else []
        return [
            built("gcs", "fake-gcs-server"),
            *("-scheme", "https" if self.tls else "http", "-host", "127.0.0.1", "-port", str(self.port)),
            *(
                "-backend",
                "filesystem" if self.on_disk else "memory",
                "-filesystem-root",
                os.path.join(self.dir, "data"),
            ),
            *("-log-level", "warn", *cert),
        ]

    def ask(self, method: str, path: str, body: bytes | None = None, patience: float = PATIENCE) -> tuple[int, bytes]:
        """Status and body. Not over TLS."""
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=patience)
        try:
            c.request(method, path, body, {"Content-Type": "application/json"} if body else {})
            answer = c.getresponse()
            return answer.status, answer.read()
        finally:
            c.close()

    def ready(self) -> Any:
        """It has the bucket."""
        if self.tls:
            return "server started" in self.end_of_log()
        try:
            return self.ask("POST", "/storage/v1/b", json.dumps({"name": BUCKET}).encode(), 5)[0] in (200, 409)
        except (OSError, http.client.HTTPException):
            return False

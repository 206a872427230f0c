"""Real servers that speak S3's protocol, from Python packages (tests/lib/pip_build.sh; make s3-servers): SeaweedFS,
whose wheel has the real program, and moto, a simulation of Amazon's. As servers.py's.

SeaweedFS has an identity, so it refuses what is not signed by it; moto refuses nobody, and forgets all when it ends.
Both honour If-None-Match: * and If-Match on PUT and If-Match on DELETE, also raced (tests/locks/test_s3_servers.py)."""

import http.client
import json
import os
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from tests.lib import sigv4
from tests.lib.processes import PATIENCE
from tests.lib.servers import Server, free_port

KEY, SECRET, REGION, BUCKET = "AKIALUNARCHTESTS", "s3cr3t/of+the/tests", "us-east-1", "lunarch"


def installed(program: str) -> str:
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(cache, "lunarch-tests", "s3", "env", "bin", program)


class S3Server(Server):
    """A subclass says how it is started. It has the bucket BUCKET as soon as it serves."""

    no_change = (200, 409)  # what it answers to the making of a bucket that is there

    def ask(
        self,
        method: str,
        target: str,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        secret: str = SECRET,
        patience: float = PATIENCE,
    ) -> tuple[int, Mapping[str, str], bytes]:
        """A signed request; target: path and query, percent-encoded. Status, headers by lower-case name, body."""
        signed = sigv4.sign(KEY, secret, REGION, method, f"127.0.0.1:{self.port}", target, body, headers or {})
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=patience)
        try:
            c.request(method, target, body, signed)
            answer = c.getresponse()
            return answer.status, {k.lower(): v for k, v in answer.headers.items()}, answer.read()
        finally:
            c.close()

    def ready(self) -> bool:
        """It has the bucket, and an object can be put into it and is there."""
        try:
            made = self.ask("PUT", "/" + BUCKET, patience=5)[0]
            return (
                made in self.no_change
                and self.ask("PUT", f"/{BUCKET}/.ready", b"yes", patience=5)[0] == 200
                and self.ask("GET", f"/{BUCKET}/.ready", patience=5)[2] == b"yes"
                and self.ask("DELETE", f"/{BUCKET}/.ready", patience=5)[0] == 204
            )
        except (OSError, http.client.HTTPException):
            return False


class SeaweedFS(S3Server):
    """Master, volume server, filer and S3's gateway in one process. On its small disk, if it has one, are
    the objects alone."""

    def prepare(self) -> None:
        self.ports = [free_port() for _ in range(7)]
        os.makedirs(os.path.join(self.dir, "data"), exist_ok=True)
        identity = {
            "name": "tests",
            "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        }
        with open(os.path.join(self.dir, "s3.json"), "w") as f:
            json.dump({"identities": [identity]}, f)

    def command(self) -> list[str]:
        master, master_grpc, volume, volume_grpc, filer, filer_grpc, s3_grpc = self.ports
        return [
            os.environ.get("WEED") or installed("weed"),
            "server",
            "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1",
            f"-dir={self.disk.path if self.disk else self.dir + '/data'}",
            f"-master.dir={self.dir}/data",
            f"-master.port={master}",
            f"-master.port.grpc={master_grpc}",
            "-master.volumeSizeLimitMB=64",
            "-master.telemetry=false",
            f"-volume.port={volume}",
            f"-volume.port.grpc={volume_grpc}",
            "-volume.max=20",
            "-filer",
            f"-filer.port={filer}",
            f"-filer.port.grpc={filer_grpc}",
            "-s3",
            f"-s3.port={self.port}",
            f"-s3.port.grpc={s3_grpc}",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            "-s3.iam=false",
            f"-s3.config={self.dir}/s3.json",
        ]


# Moto looks at a condition and then keeps the object, in one thread for each request: of PUTs at the same time it may
# do several. The lock's probe finds that and refuses it; so here it answers one request after the other.
ONE_BY_ONE = """
import moto.server as server
run = server.run_simple
server.run_simple = lambda *place, **options: run(*place, **{**options, "threaded": False})
server.main()
"""


class Moto(S3Server):
    environment = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "MOTO_S3_CUSTOM_ENDPOINTS": ""}

    def command(self) -> Any:
        return [installed("python"), "-c", ONE_BY_ONE, "-H", "127.0.0.1", "-p", str(self.port)]

    def call(self, path: str, body: bytes, **headers: str) -> str:
        asked = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", body, headers)
        with urllib.request.urlopen(asked, timeout=PATIENCE) as answer:
            return str(answer.read().decode())

    def iam(self, action: str, **form: str) -> str:
        """Until rights() nobody is asked for a signature."""
        scope = f"{KEY}/20260101/{REGION}/iam/aws4_request"
        return self.call(
            "/",
            urlencode({"Version": "2010-05-08", "Action": action, **form}).encode(),
            Authorization=f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host, Signature=0",
        )

    def rights(self, **policies: Any) -> dict[str, dict[str, str]]:
        """From now on nobody may do anything but the users of these names, by their policies. What each has in its
        environment."""
        users = {}
        for name, policy in policies.items():
            self.iam("CreateUser", UserName=name)
            made = self.iam("CreateAccessKey", UserName=name)
            self.iam("PutUserPolicy", UserName=name, PolicyName="p", PolicyDocument=json.dumps(policy))
            key, secret = (made.split(f"<{x}>")[1].split("<")[0] for x in ("AccessKeyId", "SecretAccessKey"))
            users[name] = {"AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": secret}
        self.call("/moto-api/reset-auth", b"0", **{"Content-Type": "text/plain"})
        return users

"""Real servers that speak DynamoDB's protocol, as servers.py's: Dynalite, from npm (make dynamodb-servers), and moto,
from PyPI. DynamoDB itself is nowhere to be had, and the licence of Amazon's DynamoDB Local forbids this use.

What both differ in: they check no signature, are never throttled, know neither transactions of others nor replicas.
Dynalite keeps what it has answered through a SIGKILL, and does not send what is there with a failed condition. Moto
does, and judges by IAM's policies, but forgets all when it ends."""

import http.client
import json
import os
from typing import Any

from tests.lib import s3_servers, sigv4
from tests.lib.processes import PATIENCE
from tests.lib.servers import Server

KEY, SECRET, REGION, TABLE = s3_servers.KEY, s3_servers.SECRET, s3_servers.REGION, "lunarch_locks"


class DynamoServer(Server):
    """A subclass says how it is started. It has the table TABLE as soon as it serves."""

    def ask(self, action: str, patience: float = PATIENCE, **request: Any) -> tuple[int, Any]:
        """Status and answer."""
        body = json.dumps(request).encode()
        headers = {"Content-Type": "application/x-amz-json-1.0", "X-Amz-Target": f"DynamoDB_20120810.{action}"}
        host = f"127.0.0.1:{self.port}"
        signed = sigv4.sign(KEY, SECRET, REGION, "POST", host, "/", body, headers, "dynamodb")
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=patience)
        try:
            c.request("POST", "/", body, signed)
            answer = c.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            c.close()

    def make_table(self, name: str = TABLE, partition_key: str = "key", **more: Any) -> tuple[int, Any]:
        asked = {
            "TableName": name,
            "KeySchema": [{"AttributeName": partition_key, "KeyType": "HASH"}],
            "AttributeDefinitions": [{"AttributeName": partition_key, "AttributeType": "S"}],
            "BillingMode": "PAY_PER_REQUEST",
        }
        return self.ask("CreateTable", patience=5, **{**asked, **more})

    def ready(self) -> bool:
        try:
            status, said = self.make_table()
            if status != 200 and "ResourceInUseException" not in said.get("__type", ""):
                return False
            status, said = self.ask("DescribeTable", patience=5, TableName=TABLE)
            return bool(status == 200 and said["Table"]["TableStatus"] == "ACTIVE")
        except (OSError, http.client.HTTPException, ValueError):
            return False


# A connection that is cut within a request is an error that Dynalite throws, and nobody catches.
SERVED = """
process.on("uncaughtException", (e) => { if (e.code !== "ECONNRESET") { console.error(e); process.exit(1) } })
const [program, port, path] = process.argv.slice(1)
require(program)({ path, createTableMs: 0 }).listen(port, "127.0.0.1")
"""


class Dynalite(DynamoServer):
    def command(self) -> list[str]:
        cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        program = os.path.join(cache, "lunarch-tests", "dynamodb", "node_modules", "dynalite")
        return ["node", "-e", SERVED, program, str(self.port), os.path.join(self.dir, "data")]


class Moto(s3_servers.Moto, DynamoServer):
    """One request after the other, as s3_servers.py's."""

    ask = DynamoServer.ask  # type: ignore[assignment]
    ready = DynamoServer.ready

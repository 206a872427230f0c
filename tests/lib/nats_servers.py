"""nats-server (a Go module; make nats-server), as servers.py's: one, or a cluster, with a bucket; and a client of its
protocol."""

import base64
import json
import os
import secrets
import socket
import ssl
from collections.abc import Sequence
from typing import Any

from tests.lib.cloud_servers import built
from tests.lib.processes import PATIENCE, wait_for
from tests.lib.servers import START, Server, free_port

BUCKET = "locks"
STREAM = f"KV_{BUCKET}"


class Client:
    """One request at a time."""

    def __init__(self, at: tuple[str, int], patience: float = PATIENCE, tls: Any = None, **login: str) -> None:
        self.socket = socket.create_connection(at, patience)
        self.lines = self.socket.makefile("rb")
        self.lines.readline()
        if tls:
            self.socket = tls.wrap_socket(self.socket, server_hostname=at[0])
            self.lines = self.socket.makefile("rb")
        self.inbox = f"_INBOX.{secrets.token_hex(8)}"
        options: dict[str, Any] = {"verbose": False, "headers": True, "no_responders": True, "protocol": 1, **login}
        self.send(f"CONNECT {json.dumps(options)}\r\nSUB {self.inbox} 1\r\n")

    def send(self, text: str) -> None:
        self.socket.sendall(text.encode())

    def ask(self, subject: str, body: bytes = b"", headers: str = "") -> Any:
        """The answer as JSON; None: nobody answers."""
        head = f"NATS/1.0\r\n{headers}\r\n".encode() if headers else b""
        if head:
            line = f"HPUB {subject} {self.inbox} {len(head)} {len(head) + len(body)}\r\n"
        else:
            line = f"PUB {subject} {self.inbox} {len(body)}\r\n"
        self.socket.sendall(line.encode() + head + body + b"\r\n")
        while True:
            words = self.lines.readline().split()
            if not words:
                raise OSError("the connection has ended")
            if words[0] == b"PING":
                self.send("PONG\r\n")
            elif words[0] == b"-ERR":
                raise OSError(b" ".join(words).decode())
            elif words[0] in (b"MSG", b"HMSG"):
                found = self.lines.read(int(words[-1]) + 2)[:-2]
                return None if words[0] == b"HMSG" else json.loads(found)

    def close(self) -> None:
        self.lines.close()
        self.socket.close()


class Nats(Server):
    """settings: more of its configuration file. bucket: of the bucket's stream. members: where each is reached by the
    others."""

    whole = True  # false while a cluster is being started one by one

    def __init__(
        self,
        settings: str = "",
        bucket: Any = None,
        members: Any = None,
        number: int = 0,
        start: bool = True,
        login: Any = None,
        tls: Any = None,
        machine: Any = None,
    ) -> None:
        self.settings, self.bucket, self.login, self.tls = settings, bucket, login or {}, tls
        self.members, self.number = members or [], number
        super().__init__(start, machine)

    def prepare(self) -> None:
        routes = ", ".join(f'"nats://{p}"' for n, p in enumerate(self.members) if n != self.number)
        cluster = (
            f'cluster {{ name: lunarch, listen: "{self.members[self.number]}", routes: [{routes}] }}'
            if self.members
            else ""
        )
        with open(os.path.join(self.dir, "nats.conf"), "w") as f:
            f.write(
                f'server_name: n{self.number}\nlisten: "{self.host}:{self.port}"\n'
                f'jetstream {{ store_dir: "{self.dir}/data", sync_interval: always }}\n{cluster}\n{self.settings}\n'
            )

    def command(self) -> list[str]:
        return [built("nats", "nats-server"), "-c", os.path.join(self.dir, "nats.conf")]

    def client(self, patience: float = PATIENCE) -> Client:
        return Client((self.host, self.port), patience, self.tls, **self.login)

    def make_bucket(self, **more: Any) -> Any:
        config = {
            **{"name": STREAM, "subjects": [f"$KV.{BUCKET}.>"], "max_msgs_per_subject": 1, "storage": "file"},
            **{"num_replicas": max(1, len(self.members)), "discard": "new", "allow_direct": True},
            **{"allow_rollup_hdrs": True, "deny_delete": True, **(self.bucket or {}), **more},
        }
        c = self.client(5)
        try:
            return c.ask(f"$JS.API.STREAM.CREATE.{config['name']}", json.dumps(config).encode())
        finally:
            c.close()

    def info(self) -> Any:
        c = self.client(5)
        try:
            return c.ask(f"$JS.API.STREAM.INFO.{STREAM}")
        finally:
            c.close()

    def ready(self) -> bool:
        """It has the bucket, which has a leader."""
        if not self.whole:
            return True
        try:
            found = self.info()
            if found and found.get("error", {}).get("err_code") == 10059:
                self.make_bucket()
                return False
            return bool(found and "config" in found)
        except (OSError, ValueError, ssl.SSLError):
            return False

    @classmethod
    def cluster(cls, count: int, machines: Sequence[Any] = (), **more: Any) -> "list[Nats]":
        places = list(machines) or [None] * count
        routes = [f"{m.address if m else '127.0.0.1'}:{free_port()}" for m in places]
        members = [cls(members=routes, number=n, start=False, machine=m, **more) for n, m in enumerate(places)]
        for m in members:
            m.whole = False
            m.start()
        for m in members:
            m.whole = True
            if not wait_for(m.ready, START):
                raise RuntimeError(f"the NATS cluster did not form: {m.end_of_log()}")
        return members

    def leads(self) -> bool:
        """The bucket, as it says itself."""
        try:
            found = self.info()
        except (OSError, ValueError):
            return False
        return bool(found) and found.get("cluster", {}).get("leader") == f"n{self.number}"

    def get(self, subject: str) -> bytes | None:
        c = self.client()
        try:
            asked = json.dumps({"last_by_subj": subject}).encode()
            found = (c.ask(f"$JS.API.STREAM.MSG.GET.{STREAM}", asked) or {}).get("message")
        finally:
            c.close()
        if not found or b"KV-Operation" in base64.b64decode(found.get("hdrs", "")):
            return None
        return base64.b64decode(found.get("data", ""))

    def put(self, subject: str, content: bytes, headers: str = "") -> None:
        c = self.client()
        try:
            answer = c.ask(subject, content, headers)
        finally:
            c.close()
        if not answer or "error" in answer:
            raise RuntimeError(f"{subject}: {answer}")

"""nats-server (a Go module; make nats-server), as servers.py's: one, or a cluster, with a bucket; and a client of its
protocol."""

import base64
import binascii
import json
import os
import secrets
import socket
import ssl
import struct
import subprocess
import tempfile
import time
from collections.abc import Sequence
from typing import Any

from tests.lib.cloud_servers import built
from tests.lib.processes import PATIENCE, wait_for
from tests.lib.servers import START, Server, free_port

BUCKET = "locks"
STREAM = f"KV_{BUCKET}"


KINDS = {"operator": 14, "account": 0, "user": 20}  # the letters O, A and U


def plain64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def named(content: bytes) -> str:
    """With its CRC-16, in base32."""
    return base64.b32encode(content + struct.pack("<H", binascii.crc_hqx(content, 0))).decode().rstrip("=")


class Nkey:
    """A key of Ed25519, as NATS names it; signed with by openssl. kind: of KINDS."""

    def __init__(self, where: str, kind: str) -> None:
        self.path = os.path.join(where, f"{kind}-{secrets.token_hex(4)}.der")
        key, kept = secrets.token_bytes(32), KINDS[kind] << 3
        with open(self.path, "wb") as f:
            f.write(bytes.fromhex("302e020100300506032b657004220420") + key)  # PKCS #8 (RFC 8410)
        self.seed = named(bytes([18 << 3 | kept >> 5, (kept & 31) << 3]) + key)
        public = self._openssl("pkey", "-inform", "DER", "-in", self.path, "-pubout", "-outform", "DER")[-32:]
        self.public = named(bytes([kept]) + public)

    @staticmethod
    def _openssl(*args: str) -> bytes:
        return subprocess.run(["openssl", *args], check=True, capture_output=True).stdout

    def sign(self, content: bytes) -> bytes:
        with tempfile.NamedTemporaryFile(dir=os.path.dirname(self.path)) as f:
            f.write(content)
            f.flush()
            how = ("-sign", "-rawin", "-keyform", "DER", "-inkey", self.path, "-in", f.name)
            return self._openssl("pkeyutl", *how)

    def token(self, of: "Nkey", name: str, nats: dict[str, Any], seconds: float = 0) -> str:
        """A JWT by which this key vouches for another one. seconds: how long it is valid; 0: for ever."""
        now = time.time()
        claims: dict[str, Any] = {
            **{"jti": secrets.token_hex(16), "iat": int(now), "iss": self.public, "sub": of.public, "name": name},
            **({"exp": int(now + seconds)} if seconds else {}),
            "nats": {"version": 2, **nats},
        }
        parts = {"typ": "JWT", "alg": "ed25519-nkey"}, claims
        text = ".".join(plain64(json.dumps(part).encode()) for part in parts)
        return f"{text}.{plain64(self.sign(text.encode()))}"


class Operator:
    """An operator, its system account, and an account that has all of JetStream, with users."""

    def __init__(self, where: str) -> None:
        self.dir, operator = where, Nkey(where, "operator")
        self.account, system = Nkey(where, "account"), Nkey(where, "account")
        every = ("subs", "data", "payload", "imports", "exports", "conn", "leaf")
        own: dict[str, Any] = {**{limit: -1 for limit in every}, "wildcards": True}
        limits = {**own, **{limit: -1 for limit in ("mem_storage", "disk_storage", "streams", "consumer")}}
        accounts = ((self.account, limits), (system, own))
        preloaded = ", ".join(
            f"{key.public}: {operator.token(key, 'account', {'type': 'account', 'limits': given})}"
            for key, given in accounts
        )
        self.settings = (
            f"operator: {operator.token(operator, 'lunarch', {'type': 'operator'})}\nsystem_account: {system.public}\n"
            f"resolver: MEMORY\nresolver_preload: {{ {preloaded} }}\n"
        )

    def user(self, name: str, seconds: float = 0) -> tuple[Nkey, str]:
        """A new one's key and token."""
        key = Nkey(self.dir, "user")
        return key, self.account.token(key, name, {"type": "user", "subs": -1, "data": -1, "payload": -1}, seconds)

    def creds(self, name: str, seconds: float = 0) -> str:
        """The file of a new user's credentials, as nsc writes it."""
        key, token = self.user(name, seconds)
        path = os.path.join(self.dir, f"{name}.creds")
        with open(path + ".new", "w") as f:
            f.write(
                f"-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n"
                "************************* IMPORTANT *************************\n"
                f"-----BEGIN USER NKEY SEED-----\n{key.seed}\n------END USER NKEY SEED------\n"
            )
        os.rename(path + ".new", path)
        return path


class Client:
    """One request at a time. key: it signs what the server gives. tls_first: before the server says anything."""

    def __init__(
        self,
        at: tuple[str, int],
        patience: float = PATIENCE,
        tls: Any = None,
        key: Nkey | None = None,
        tls_first: bool = False,
        **login: str,
    ) -> None:
        self.socket = socket.create_connection(at, patience)
        if tls and tls_first:
            self.socket = tls.wrap_socket(self.socket, server_hostname=at[0])
        self.lines = self.socket.makefile("rb")
        info = json.loads(self.lines.readline().split(None, 1)[1])
        if tls and not tls_first:
            self.socket = tls.wrap_socket(self.socket, server_hostname=at[0])
            self.lines = self.socket.makefile("rb")
        self.inbox = f"_INBOX.{secrets.token_hex(8)}"
        options: dict[str, Any] = {"verbose": False, "headers": True, "no_responders": True, "protocol": 1, **login}
        if key:
            options |= {"nkey": key.public, "sig": plain64(key.sign(info["nonce"].encode()))}
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

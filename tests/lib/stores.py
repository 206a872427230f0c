"""Stores as the conformance cases need them: started, reached into behind the runtime's back, hurt. One class each."""

import base64
import glob
import http.client
import json
import os
import secrets
import shutil
import socket
import ssl
import struct
import urllib.error
import urllib.request
import uuid
from typing import Any
from urllib.parse import quote

from tests.lib import cloud_servers
from tests.lib import dynamodb_servers, nats_servers, s3_servers, servers
from tests.lib.processes import PATIENCE, ROOT, scratch, wait_for
from tests.lib.proxy import Proxy
from tests.lib.sentinel_site import SENTINELS, Way


class Store:
    name = "?"
    rounds = 1000  # of the race, at most (lock_cases.py, RACE)
    revisions = True  # a version never comes back, whatever is done to the key
    watches = True
    notices_by_hand = True  # also of what is done to the record without the runtime
    repeats: tuple[str, ...] = ("at once", "late")  # answers that come twice, and harm nothing
    settles = False  # the lock asks again itself when an answer is lost with its connection
    examined = False  # by its lock, before the first write of a process
    clocks = (-3600, 3600)  # seconds by which two candidates' clocks may be off
    notes: tuple[str, ...] = ()  # the cases of `doctor --full` that it has only a note for
    in_lua = False  # its lock is
    any_name = True  # may be a lock's
    names: tuple[str, ...] = ()  # such as no URL has that doctor makes, each a lock's of its own
    env: dict[str, str] = {}
    port: int
    server: Any  # of servers.py

    def holds(self, content: bytes) -> bool:
        return True

    def proxy(self) -> Proxy:
        return Proxy(self.port)

    def url(self, key: str, through: Any = None) -> str:
        raise NotImplementedError

    def next_key(self, key: str) -> str:
        """Of the next record of that key's lock."""
        return key + ".next"

    def put(self, key: str, content: bytes) -> None:
        raise NotImplementedError

    def delete(self, key: str) -> None:
        raise NotImplementedError

    def put_many(self, keys: list[str], content: bytes) -> None:
        for k in keys:
            self.put(k, content)

    def delete_many(self, keys: list[str]) -> None:
        for k in keys:
            self.delete(k)

    # The server, for a store that has one.

    def pause(self) -> None:
        self.server.pause()

    def resume(self) -> None:
        self.server.resume()

    def kill(self) -> None:
        self.server.kill()

    def restart(self) -> None:
        self.server.start()

    def repair(self) -> None:
        """After a case that was left in the middle."""
        self.server.resume()
        if not self.server.process:
            self.server.start()

    def end(self) -> None:
        self.server.close()


class File(Store):
    name = "file"
    names = ("with space", "k\u00e4se \u540d")

    def __init__(self) -> None:
        self.dir = scratch(on_disk="ON_DISK" in os.environ)

    def path(self, key: str) -> Any:
        return os.path.join(self.dir, key)

    def next_key(self, key: str) -> str:
        return f".{key}.next"

    def url(self, key: str, through: Any = None) -> str:
        return "file:" + self.path(key)

    def put(self, key: str, content: bytes) -> None:
        with open(self.path(key) + ".by-hand", "wb") as f:
            f.write(content)
        os.rename(f.name, self.path(key))

    def get(self, key: str) -> bytes | None:
        try:
            with open(self.path(key), "rb") as f:
                return f.read()
        except FileNotFoundError:
            return None

    def delete(self, key: str) -> None:
        try:
            os.unlink(self.path(key))
        except FileNotFoundError:
            pass

    def repair(self) -> None:
        pass

    def end(self) -> None:
        shutil.rmtree(self.dir)


class SharedFile(File):
    """With ?shared=link: a directory of numbered versions, as on a network file system, on a disk of this machine."""

    name = "file, shared=link"
    notes = ("watch",)
    revisions = (
        False  # a version is its number and its content's digest: what was put back byte for byte is what was there
    )
    watches = False

    def __init__(self, directory: str | None = None) -> None:
        self.dir = directory or scratch()

    def url(self, key: str, through: Any = None) -> str:
        return super().url(key) + "?shared=link"

    def versions(self, key: str) -> list[str]:
        try:
            return sorted(n for n in os.listdir(self.path(key)) if not n.startswith("."))
        except FileNotFoundError:
            return []

    def put(self, key: str, content: bytes) -> None:
        os.makedirs(self.path(key), exist_ok=True)
        newest = int(([*self.versions(key)] or ["0"])[-1])
        with open(os.path.join(self.path(key), ".by-hand"), "wb") as f:
            f.write(content)
        os.rename(f.name, os.path.join(self.path(key), f"{newest + 1:016}"))

    def get(self, key: str) -> bytes | None:
        found = self.versions(key)
        if not found:
            return None
        with open(os.path.join(self.path(key), found[-1]), "rb") as f:
            return f.read()

    def delete(self, key: str) -> None:
        shutil.rmtree(self.path(key), ignore_errors=True)


def lock_files() -> str:
    """A directory with copies of the tests' lock files that nobody else can write, whoever has checked them out."""
    made = scratch()
    for name in sorted(glob.glob(os.path.join(ROOT, "tests", "locks", "drivers", "*.lua"))):
        shutil.copyfile(name, os.path.join(made, os.path.basename(name)))
        os.chmod(os.path.join(made, os.path.basename(name)), 0o644)
    return made


class Box(Store):
    """A store that the runtime does not know: by its lock file, which LUNARCH_LOCKS_DIR or, with named=False, the URL
    names."""

    name = "box"
    in_lua = True
    rounds = 200  # its server is in Python
    settles = True  # libcurl does
    repeats = ()  # answers of HTTP/1.1 have no numbers: only TLS keeps a middlebox from repeating one

    def __init__(self, named: bool = True) -> None:
        self.server = servers.Box()
        self.port = self.server.port
        self.directory = lock_files()
        self.named = named
        self.env = {"LUNARCH_LOCKS_DIR": self.directory} if named else {}

    def url(self, key: str, through: Any = None) -> str:
        port = (through or self).port
        if self.named:
            return f"box://127.0.0.1:{port}/{quote(key)}"
        return f"lua:{self.directory}/box.lua?host=127.0.0.1:{port}#{quote(key)}"

    def ask(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            c.request(method, path, body)
            answer = c.getresponse()
            return answer.status, answer.read()
        finally:
            c.close()

    def put(self, key: str, content: bytes) -> None:
        self.ask("PUT", "/k/" + quote(key, safe=""), content)

    def get(self, key: str) -> bytes | None:
        status, content = self.ask("GET", "/k/" + quote(key, safe=""))
        return content if status == 200 else None

    def delete(self, key: str) -> None:
        self.ask("DELETE", "/k/" + quote(key, safe=""))

    def mode(self, which: str) -> Any:
        self.ask("POST", "/mode?is=" + which)
        return lambda: self.ask("POST", "/mode?is=")

    def make_read_only(self) -> Any:
        return self.mode("readonly")

    def fill(self) -> Any:
        return self.mode("full")


class Etcd(Store):
    """options: etcd's. user: "name:password" that the URLs have, once auth() has made it."""

    name = "etcd"
    names = ("a/b", "/a/b")

    def __init__(self, *options: Any) -> None:
        self.server = servers.Etcd(options=options)
        self.port = self.server.port
        self.user: str | None = None
        self.root: str | None = None

    def url(self, key: str, through: Any = None) -> str:
        return f"etcd://{self.user + '@' if self.user else ''}127.0.0.1:{(through or self).port}/{quote(key, safe='/')}"

    def call(self, path: str, **body: Any) -> Any:
        """The gateway's answer; raises with its error."""
        asked = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/v3/{path}", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        if self.root:
            asked.add_header("Authorization", self.token())
        try:
            with urllib.request.urlopen(asked, timeout=30) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as e:
            raise RuntimeError(e.read().decode()) from e

    def token(self) -> str:
        asked = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/v3/auth/authenticate",
            json.dumps({"name": "root", "password": self.root}).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(asked, timeout=30) as answer:
            return json.load(answer)["token"]

    def auth(self, user: str, password: str) -> None:
        """Turns users and passwords on: root, and one who may read and write what begins with "mine"."""
        self.call("auth/user/add", name="root", password="root's")
        self.call("auth/role/add", name="root")
        self.call("auth/user/grant", user="root", role="root")
        self.call("auth/user/add", name=user, password=password)
        self.call("auth/role/add", name="some")
        self.call("auth/user/grant", user=user, role="some")
        self.permit("READWRITE")
        self.call("auth/enable")
        self.root = "root's"
        self.user = f"{quote(user, safe='')}:{quote(password, safe='')}"

    def permit(self, what: str) -> None:
        self.call(
            "auth/role/grant", name="some", perm={"permType": what, "key": b64(b"mine"), "range_end": b64(b"minf")}
        )

    def put(self, key: str, content: bytes) -> None:
        self.call("kv/put", key=b64(key.encode()), value=b64(content))

    def get(self, key: str) -> bytes | None:
        found = self.call("kv/range", key=b64(key.encode())).get("kvs")
        return base64.b64decode(found[0].get("value", "")) if found else None

    def delete(self, key: str) -> None:
        self.call("kv/deleterange", key=b64(key.encode()))

    def make_read_only(self) -> Any:
        """For the user of the URLs; needs auth()."""
        self.permit("READ")
        return lambda: self.permit("READWRITE")

    def fill(self) -> Any:
        """Needs a small --quota-backend-bytes."""
        try:
            for i in range(10_000):
                self.put(f"junk{i}", b"x" * 65536)
        except RuntimeError as e:
            if "space exceeded" not in str(e):
                raise
        return self.empty

    def empty(self) -> None:
        last = self.call("kv/deleterange", key=b64(b"junk"), range_end=b64(b"junl"))["header"]
        self.call("kv/compaction", revision=last["revision"], physical=True)
        self.call("maintenance/defragment")
        self.call("maintenance/alarm", action="DEACTIVATE", memberID=last["member_id"], alarm="NOSPACE")


def b64(content: bytes) -> str:
    return base64.b64encode(content).decode()


class Consul(Store):
    """settings: of the server's configuration. token: what is asked with, by the tests and by the URLs."""

    name = "consul"
    names = ("a/c/d", "a/c/d/", "a.b/...")
    in_lua = True

    def __init__(self, settings: Any = None, **more: Any) -> None:
        self.server = servers.Consul(settings, **more)
        self.port = self.server.port
        self.token: str | None = None  # the tests'
        self.user: str | None = None  # the URLs'

    def url(self, key: str, through: Any = None) -> str:
        secret = f":{self.user}@" if self.user else ""
        return f"consul://{secret}127.0.0.1:{(through or self).port}/{quote(key, safe='/')}"

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """What it answers, if that is JSON; raises with its error."""
        content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        status, answer = self.server.http(method, path, content, self.token)
        if status == 404:
            return None
        if status != 200:
            raise RuntimeError(f"{status} {answer.decode()}")
        return json.loads(answer)

    @staticmethod
    def path(key: str) -> str:
        return "/v1/kv/" + quote(key, safe="/")

    def put(self, key: str, content: bytes) -> None:
        self.call("PUT", self.path(key), content)

    def get(self, key: str) -> bytes | None:
        found = self.call("GET", self.path(key) + "?consistent")
        return base64.b64decode(found[0]["Value"] or "") if found else None

    def delete(self, key: str) -> None:
        self.call("DELETE", self.path(key))

    def put_many(self, keys: list[str], content: bytes) -> None:
        for ops in self.transactions(keys, {"Verb": "set", "Value": b64(content)}):
            self.call("PUT", "/v1/txn", ops)

    def delete_many(self, keys: list[str]) -> None:
        for ops in self.transactions(keys, {"Verb": "delete"}):
            self.call("PUT", "/v1/txn", ops)

    @staticmethod
    def transactions(keys: list[str], what: dict[str, str]) -> Any:
        for i in range(0, len(keys), 60):  # Consul takes 64 operations at once
            yield [{"KV": {**what, "Key": k}} for k in keys[i : i + 60]]

    def permit(self, what: str) -> None:
        """The URLs' token may do this to what begins with "readonly" or "mine"."""
        rules = "\n".join(f'key_prefix "{p}" {{ policy = "{what}" }}' for p in ("readonly", "mine"))
        policy = {"Name": "some", "Rules": rules}
        known = [p for p in self.call("GET", "/v1/acl/policies") if p["Name"] == "some"]
        self.call("PUT", "/v1/acl/policy" + (f"/{known[0]['ID']}" if known else ""), policy)

    def make_read_only(self) -> Any:
        """For the URLs' token; needs ACLs."""
        self.permit("read")
        return lambda: self.permit("write")


class ConsulWithRights(Consul):
    """Nobody may do anything without a token; the URLs have one, for what begins with "readonly" or "mine"."""

    def __init__(self) -> None:
        root = str(uuid.uuid4())
        super().__init__({"acl": {"enabled": True, "default_policy": "deny", "tokens": {"initial_management": root}}})
        self.token = root
        self.permit("write")
        made = self.call("PUT", "/v1/acl/token", {"Policies": [{"Name": "some"}]})
        self.user = made["SecretID"]


class FullConsul(Consul):
    """All that it keeps is on a small disk, of which its log takes segments of 1 MB ahead."""

    def __init__(self) -> None:
        super().__init__({"raft_logstore": {"wal": {"segment_size_mb": 1}}}, start=False)
        self.server.disk = servers.SmallDisk(os.path.join(self.server.dir, "data"), "16m")
        self.server.start()

    def fill(self) -> Any:
        """The log goes on in what it has taken."""
        self.server.disk.fill()
        try:
            for _ in range(1000):
                self.put("junk", secrets.token_bytes(4096))
        except (RuntimeError, OSError, http.client.HTTPException, ValueError):
            pass

        def undo() -> None:
            if self.server.process.poll() is not None:
                self.server.stop()
            self.server.disk.empty()
            if not self.server.process:
                self.server.start()
            elif not wait_for(self.server.ready):
                raise RuntimeError("Consul does not go on, though it has room again")

        return undo


class Redis(Store):
    name = "redis"
    names: tuple[str, ...] = ("a/b", "7/a")
    revisions = False  # a version is the content's digest: what was put back byte for byte is what was there
    notices_by_hand = False  # only what the script does is published

    def __init__(self, *options: Any) -> None:
        self.server = servers.Redis("--appendonly", "yes", "--appendfsync", "always", *options)
        self.port = self.server.port

    def url(self, key: str, through: Any = None) -> str:
        return f"redis://127.0.0.1:{through.port if through else self.port}/{quote(key)}"

    def next_key(self, key: str) -> str:
        return "{" + key + "}:next"

    def connection(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), PATIENCE)

    def talk(self, *words: Any) -> bytes | None:
        """One command, its answer as bytes, None, or an exception."""
        with self.connection() as s:
            s.sendall(
                b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in map(self.as_bytes, words))
            )
            f = s.makefile("rb")
            line = f.readline().rstrip(b"\r\n")
            if line[:1] == b"-":
                raise RuntimeError(line.decode())
            if line[:1] != b"$":
                return line[1:]
            return None if line == b"$-1" else f.read(int(line[1:]))

    @staticmethod
    def as_bytes(word: Any) -> bytes:
        return word if isinstance(word, bytes) else str(word).encode()

    def put(self, key: str, content: bytes) -> None:
        self.talk("SET", key, content)

    def get(self, key: str) -> bytes | None:
        return self.talk("GET", key)

    def delete(self, key: str) -> None:
        self.talk("DEL", key)

    def make_read_only(self) -> Any:
        self.talk("CONFIG", "SET", "min-replicas-to-write", 1)
        return lambda: self.talk("CONFIG", "SET", "min-replicas-to-write", 0)

    def fill(self) -> Any:
        self.talk("CONFIG", "SET", "maxmemory", 1)
        return lambda: self.talk("CONFIG", "SET", "maxmemory", 0)

    def repair(self) -> None:
        super().repair()
        self.talk("CONFIG", "SET", "maxmemory", 0)
        self.talk("CONFIG", "SET", "min-replicas-to-write", 0)


class RedisTls(Redis):
    name = "rediss"

    def __init__(self, *options: Any) -> None:
        self.server = servers.TlsRedis("--appendonly", "yes", "--appendfsync", "always", *options)
        self.port = self.server.port

    def url(self, key: str, through: Any = None) -> str:
        return super().url(key, through).replace("redis:", "rediss:") + f"?ca={self.server.pki.ca}"

    def connection(self) -> socket.socket:
        context = ssl.create_default_context(cafile=self.server.pki.ca)
        return context.wrap_socket(super().connection(), server_hostname="127.0.0.1")


class RedisSentinel(Redis):
    """Three Sentinels, and a primary without a replica: it dies and comes back."""

    name = "redis+sentinel"
    names = ("a/b", "7/a", "with space", "a#b")

    def __init__(self) -> None:
        super().__init__()
        self.watch()

    def watch(self, **more: Any) -> None:
        self.sentinels = servers.Sentinel.group(self.server, 0, **more)

    def proxy(self) -> Proxy:
        """The Sentinels know it as a primary of its own."""
        proxy = Way(self.port)
        proxy.refuse(SENTINELS)  # what passes is the lock's alone
        for s in self.sentinels:
            s.cli("SENTINEL", "MONITOR", f"by-{proxy.port}", "127.0.0.1", str(proxy.port), "2")
        return proxy

    def url(self, key: str, through: Any = None) -> str:
        at = ",".join(f"127.0.0.1:{s.port}" for s in self.sentinels)
        master = f"by-{through.port}" if through else servers.Sentinel.MASTER
        return f"redis+sentinel://{at}/{master}#{quote(key)}"

    def end(self) -> None:
        for s in self.sentinels:
            s.close()
        super().end()


class RedisSentinelTls(RedisTls, RedisSentinel):
    name = "rediss+sentinel"

    def __init__(self) -> None:
        RedisTls.__init__(self)
        self.watch(pki=self.server.pki)

    def url(self, key: str, through: Any = None) -> str:
        url, fragment = RedisSentinel.url(self, key, through).split("#")
        return f"rediss{url[5:]}?ca={self.server.pki.ca}#{fragment}"


class FullRedis(Redis):
    """All that it keeps is on a small disk; with appendfsync always, a server that cannot append ends."""

    def __init__(self) -> None:
        self.server = servers.Redis("--appendonly", "yes", "--appendfsync", "always", start=False)
        self.port = self.server.port
        self.server.disk = servers.SmallDisk(os.path.join(self.server.dir, "small"), "1m")
        self.server.options += ["--dir", self.server.disk.path]
        self.server.start()

    def fill(self) -> Any:
        self.server.disk.fill()
        return lambda: with_room(self.server)


class FullEtcd(Etcd):
    """All that it keeps is on a small disk, of which etcd takes twice 64 MB for its log at once."""

    def __init__(self) -> None:
        self.server = servers.Etcd(start=False)
        self.port = self.server.port
        self.user: str | None = None
        self.root: str | None = None
        self.server.disk = servers.SmallDisk(os.path.join(self.server.dir, "data"), "136m")
        self.server.start()

    def fill(self) -> Any:
        """The log has room, and what is answered is in it: etcd ends a little later, when the database must grow."""
        self.server.disk.fill()
        try:
            for i in range(200):
                self.put("junk", b"x" * 65536)
        except (RuntimeError, OSError, http.client.HTTPException, ValueError):  # it may end in the middle of an answer
            pass
        return lambda: with_room(self.server)


def with_room(server: Any) -> None:
    """After its end."""
    if not wait_for(lambda: server.process.poll() is not None):
        raise RuntimeError("the server goes on without room")
    server.stop()
    server.disk.empty()
    server.start()


class Postgres(Store):
    name = "postgres"

    def __init__(self, *options: Any, **more: Any) -> None:
        self.server = servers.Postgres("-c", "max_connections=150", *options, **more)
        self.port = self.server.port

    def url(self, key: str, through: Any = None) -> str:
        return f"postgres://{servers.Postgres.superuser}@127.0.0.1:{(through or self).port}/postgres#{quote(key)}"

    def holds(self, content: bytes) -> bool:
        try:
            return "\0" not in content.decode()
        except UnicodeDecodeError:
            return False

    @staticmethod
    def text(content: bytes) -> str:
        """As an SQL expression."""
        return f"convert_from(decode('{content.hex()}', 'hex'), 'UTF8')"

    def put(self, key: str, content: bytes) -> None:
        name = self.text(key.encode())
        self.server.sql(
            f"INSERT INTO lunarch_locks VALUES ({name}, 1, {self.text(content)}, now(), '') "
            f"ON CONFLICT (name) DO UPDATE SET record = excluded.record"
        )

    def get(self, key: str) -> bytes | None:
        found = self.server.sql(
            "SELECT 'x' || encode(convert_to(record, 'UTF8'), 'hex') FROM lunarch_locks WHERE name = "
            f"{self.text(key.encode())}"
        )
        return bytes.fromhex(found[1:]) if found else None

    def delete(self, key: str) -> None:
        self.server.sql(f"DELETE FROM lunarch_locks WHERE name = {self.text(key.encode())}")

    def put_many(self, keys: list[str], content: bytes) -> None:
        names = ", ".join(self.text(k.encode()) for k in keys)
        self.server.sql(
            f"INSERT INTO lunarch_locks SELECT name, 1, {self.text(content)}, now(), '' "
            f"FROM unnest(ARRAY[{names}]) AS name"
        )

    def delete_many(self, keys: list[str]) -> None:
        names = ", ".join(self.text(k.encode()) for k in keys)
        self.server.sql(f"DELETE FROM lunarch_locks WHERE name IN ({names})")

    notices_by_hand = False

    def make_read_only(self) -> Any:
        self.server.sql("ALTER SYSTEM SET default_transaction_read_only = on")
        self.server.sql("SELECT pg_reload_conf()")

        def undo() -> None:
            self.server.sql("ALTER SYSTEM RESET default_transaction_read_only")
            self.server.sql("SELECT pg_reload_conf()")

        return undo


class FullPostgresLog(Postgres):
    """Its write-ahead log is on a disk of 32 MB, in segments of one; a server whose log has no room ends."""

    def __init__(self) -> None:
        super().__init__("-c", "wal_recycle=off", initdb=["--wal-segsize=1"])
        self.server.stop()
        log = os.path.join(self.server.dir, "data", "pg_wal")
        self.server.disk = servers.SmallDisk(os.path.join(self.server.dir, "small"), "32m", self.server.run_as())
        shutil.copytree(log, self.server.disk.seen, dirs_exist_ok=True)
        shutil.rmtree(log)
        os.symlink(self.server.disk.path, log)
        self.server.own(self.server.disk.seen)
        self.server.start()

    def fill(self) -> Any:
        self.server.disk.fill()
        for _ in range(40):
            try:
                self.server.sql("SELECT pg_switch_wal()")
                self.server.sql("CREATE TABLE junk AS SELECT 1; DROP TABLE junk")
            except RuntimeError:
                break

        return lambda: with_room(self.server)


class FullPostgres(Postgres):
    """Its table is on a disk of 1 MB, its log is not."""

    def __init__(self) -> None:
        super().__init__("-c", "default_tablespace=small")
        self.server.stop()
        self.server.disk = servers.SmallDisk(os.path.join(self.server.dir, "small"), "1m", self.server.run_as())
        self.server.start()
        self.server.sql(f"CREATE TABLESPACE small LOCATION '{self.server.disk.path}'")

    def fill(self) -> Any:
        self.server.disk.fill()
        return self.server.disk.empty


class S3(Store):
    """SeaweedFS, or another server of s3_servers.py. Its keys are found in the environment."""

    name = "s3"
    in_lua = True
    # It refuses a text without a write's name, and SeaweedFS makes a slash of a backslash.
    notes: tuple[str, ...] = ("foreign", "watch", "list")
    rounds = 3  # SeaweedFS takes a second and more for a PUT that meets others on its key
    revisions = False  # a version is the ETag: what was put back byte for byte is what was there
    watches = False
    repeats = ("at once",)  # plain HTTP has no number by which an answer that comes late is told from the next one
    examined = True
    settles = True
    clocks = (-600, 600)  # a signature counts for 15 minutes around the server's time
    kind: Any = s3_servers.SeaweedFS
    env = {
        "AWS_ACCESS_KEY_ID": s3_servers.KEY,
        "AWS_SECRET_ACCESS_KEY": s3_servers.SECRET,
        "AWS_EC2_METADATA_DISABLED": "true",
    }

    def __init__(self, **more: Any) -> None:
        self.server = self.kind(**more)
        self.port = self.server.port

    def url(self, key: str, through: Any = None) -> str:
        endpoint = f"http://127.0.0.1:{(through or self).port}"
        return f"s3://{s3_servers.BUCKET}/{quote(key)}?region={s3_servers.REGION}&endpoint={quote(endpoint, safe='')}"

    def ask(self, method: str, key: str, body: bytes = b"") -> tuple[int, Any, bytes]:
        status, headers, answer = self.server.ask(method, f"/{s3_servers.BUCKET}/{quote(key)}", body)
        if status >= 300 and status != 404:
            raise RuntimeError(f"{method} {key}: {status} {answer.decode()}")
        return status, headers, answer

    def put(self, key: str, content: bytes) -> None:
        self.ask("PUT", key, content)

    def get(self, key: str) -> bytes | None:
        status, _, body = self.ask("GET", key)
        return body if status == 200 else None

    def delete(self, key: str) -> None:
        self.ask("DELETE", key)


class FullS3(S3):
    """Its objects are on a disk of 16 MB. A PUT that fits into a volume's last page is done all the same."""

    def __init__(self) -> None:
        super().__init__(start=False)
        self.server.disk = servers.SmallDisk(os.path.join(self.server.dir, "small"), "16m")
        self.server.start()

    def fill(self) -> Any:
        self.server.disk.fill()
        return self.server.disk.empty


class MotoS3(S3):
    """All is gone when it ends."""

    name = "s3, moto"
    notes = ("foreign", "watch")
    rounds = 10
    kind = s3_servers.Moto


class Gcs(Store):
    """Google Cloud Storage: fake-gcs-server, which wants no credentials."""

    name = "gs"
    names = ("a/b", "with space", "k\u00e4se \u540d", "a//b/../c")
    in_lua = True
    notes = ("watch",)
    rounds = 200
    watches = False
    settles = True  # libcurl does
    on_disk = False

    def __init__(self, **more: Any) -> None:
        self.server = cloud_servers.FakeGcs(on_disk=self.on_disk, **more)
        self.port = self.server.port

    def url(self, key: str, through: Any = None) -> str:
        endpoint = f"http://127.0.0.1:{(through or self).port}"
        return f"gs://{cloud_servers.BUCKET}/{quote(key, safe='')}?endpoint={quote(endpoint, safe='')}"

    def ask(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        status, answer = self.server.ask(method, path.format(b=cloud_servers.BUCKET), body)
        if status >= 300 and status != 404:
            raise RuntimeError(f"{method} {path}: {status} {answer.decode()}")
        return status, answer

    def put(self, key: str, content: bytes) -> None:
        self.ask("POST", f"/upload/storage/v1/b/{{b}}/o?uploadType=media&name={quote(key, safe='')}", content)

    def get(self, key: str) -> bytes | None:
        status, body = self.ask("GET", f"/storage/v1/b/{{b}}/o/{quote(key, safe='')}?alt=media")
        return body if status == 200 else None

    def delete(self, key: str) -> None:
        self.ask("DELETE", f"/storage/v1/b/{{b}}/o/{quote(key, safe='')}")


class GcsOnDisk(Gcs):
    """What it has is there when it is started again."""

    on_disk = True


class AzureBlob(Store):
    """Azurite. The account's key is found in the environment."""

    name = "azblob"
    names = ("a/b", "with space", "k\u00e4se \u540d")
    in_lua = True
    notes = ("watch", "list")  # Azurite makes a slash of a backslash
    rounds = 100
    watches = False
    settles = True  # libcurl does
    any_name = False  # Azure takes no part that ends with "."
    env = {"AZURE_STORAGE_KEY": cloud_servers.KEY}

    def __init__(self, **more: Any) -> None:
        self.server = cloud_servers.Azurite(**more)
        self.port = self.server.port

    def url(self, key: str, through: Any = None) -> str:
        endpoint = f"http://127.0.0.1:{(through or self).port}/{cloud_servers.ACCOUNT}"
        place = f"{cloud_servers.ACCOUNT}/{cloud_servers.BUCKET}/{quote(key, safe='/')}"
        return f"azblob://{place}?endpoint={quote(endpoint, safe='')}"

    def ask(self, method: str, key: str, body: bytes = b"", **headers: str) -> tuple[int, bytes]:
        status, _, answer = self.server.ask(method, f"{cloud_servers.BUCKET}/{quote(key)}", body=body, **headers)
        if status >= 300 and status != 404:
            raise RuntimeError(f"{method} {key}: {status} {answer.decode()}")
        return status, answer

    def put(self, key: str, content: bytes) -> None:
        self.ask("PUT", key, content, x_ms_blob_type="BlockBlob", content_type="application/json")

    def get(self, key: str) -> bytes | None:
        status, body = self.ask("GET", key)
        return body if status == 200 else None

    def delete(self, key: str) -> None:
        self.ask("DELETE", key)


class DynamoDB(Store):
    """Dynalite, or another server of dynamodb_servers.py. Its keys are found in the environment."""

    name = "dynamodb, dynalite"
    in_lua = True
    notes: tuple[str, ...] = ("watch",)
    rounds = 20
    watches = False
    repeats = ("at once",)  # as of S3
    settles = True
    clocks = (-240, 240)  # a signature counts for some minutes around the server's time
    kind: Any = dynamodb_servers.Dynalite
    env = S3.env

    def __init__(self, **more: Any) -> None:
        self.server = self.kind(**more)
        self.port = self.server.port

    def url(self, key: str, through: Any = None) -> str:
        endpoint = quote(f"http://127.0.0.1:{(through or self).port}", safe="")
        return f"dynamodb://{dynamodb_servers.TABLE}/{quote(key)}?region={dynamodb_servers.REGION}&endpoint={endpoint}"

    def ask(self, action: str, **request: Any) -> Any:
        status, answer = self.server.ask(action, TableName=dynamodb_servers.TABLE, **request)
        if status != 200:
            raise RuntimeError(f"{action}: {status} {answer}")
        return answer

    def put(self, key: str, content: bytes) -> None:
        record = {"B": base64.b64encode(content).decode()}
        self.ask("PutItem", Item={"key": {"S": key}, "record": record, "version": {"S": str(uuid.uuid4())}})

    def get(self, key: str) -> bytes | None:
        item = self.ask("GetItem", Key={"key": {"S": key}}, ConsistentRead=True).get("Item")
        if item is None:
            return None
        record = item["record"]
        return base64.b64decode(record["B"]) if "B" in record else str(record["S"]).encode()

    def delete(self, key: str) -> None:
        self.ask("DeleteItem", Key={"key": {"S": key}})


class MotoDynamoDB(DynamoDB):
    """All is gone when it ends."""

    name = "dynamodb, moto"
    kind = dynamodb_servers.Moto


class Nats(Store):
    """A bucket of one server, which writes to the disk before it acknowledges."""

    name = "nats"
    names = ("a/b", "with space", "k\u00e4se \u540d", "..a..b.", "a=b")
    in_lua = True
    revisions = True

    def __init__(self, **more: Any) -> None:
        self.server = nats_servers.Nats(**more)
        self.port = self.server.port

    def url(self, key: str, through: Any = None) -> str:
        return f"nats://127.0.0.1:{(through or self).port}/{nats_servers.BUCKET}#{quote(key)}"

    @staticmethod
    def subject(key: str) -> str:
        """As the lock names it."""
        text = "".join(
            c if c.isascii() and (c.isalnum() or c in "-_/.") else "".join(f"={b:02X}" for b in c.encode()) for c in key
        )
        text = "=2E" + text[1:] if text.startswith(".") else text
        text = text[:-1] + "=2E" if text.endswith(".") else text
        while ".." in text:
            text = text.replace("..", ".=2E")
        return f"$KV.{nats_servers.BUCKET}.{text}"

    def put(self, key: str, content: bytes) -> None:
        self.server.put(self.subject(key), content)

    def get(self, key: str) -> bytes | None:
        found: bytes | None = self.server.get(self.subject(key))
        return found

    def delete(self, key: str) -> None:
        self.server.put(self.subject(key), b"", "KV-Operation: DEL\r\n")


class MariaDB(Store):
    """Or MySQL itself, where MYSQLD says so."""

    name = "mysql" if os.environ.get("MYSQLD") else "mariadb"
    notes, in_lua = ("watch",), True
    rounds = 100  # each racer's first write logs in
    watches = False
    notices_by_hand = False
    user = "luna"  # without a password: the URL that a lock shows has none

    def __init__(self, *options: str, **more: Any) -> None:
        self.server = servers.mysql_server(
            "--innodb-flush-log-at-trx-commit=1", "--max-connections=400", *options, **more
        )
        self.port = self.server.port
        self.server.sql(f"CREATE USER {self.user}; GRANT ALL ON test.* TO {self.user}")
        self.server.trust()

    def url(self, key: str, through: Any = None) -> str:
        return f"mysql://{self.user}@127.0.0.1:{(through or self).port}/test#{quote(key)}"

    def put(self, key: str, content: bytes) -> None:
        self.put_many([key], content)

    def get(self, key: str) -> bytes | None:
        found = self.server.sql(
            f"SELECT CONCAT('x', HEX(record)) FROM lunarch_locks WHERE name = x'{key.encode().hex()}'"
        )
        return bytes.fromhex(found[1:]) if found else None

    def delete(self, key: str) -> None:
        self.delete_many([key])

    def put_many(self, keys: list[str], content: bytes) -> None:
        rows = ", ".join(f"(x'{k.encode().hex()}', 1, x'{content.hex()}', UUID(), NOW(6), '')" for k in keys)
        self.server.sql(
            f"INSERT INTO lunarch_locks (name, token, record, version, changed, server) VALUES {rows} "
            "ON DUPLICATE KEY UPDATE record = VALUES(record), version = VALUES(version)"
        )

    def delete_many(self, keys: list[str]) -> None:
        names = ", ".join(f"x'{k.encode().hex()}'" for k in keys)
        self.server.sql(f"DELETE FROM lunarch_locks WHERE name IN ({names})")

    def make_read_only(self) -> Any:
        self.server.sql("SET GLOBAL read_only = ON")
        return lambda: self.server.sql("SET GLOBAL read_only = OFF")


class FullMariaDB(MariaDB):
    """Its files are on a disk of 64 MB. A server that finds no room for its own tables may end."""

    def __init__(self) -> None:
        super().__init__()
        self.server.on_small_disk()

    def fill(self) -> Any:
        """The disk, and then what the table's file has still free."""
        self.server.disk.fill()
        for size in (200_000, 10_000, 1_000, 100):
            for n in range(1000):
                try:
                    self.put_many([f"junk{size}-{n}-{i}" for i in range(10)], b"x" * size)
                except RuntimeError:
                    break
        return self.with_room

    def with_room(self) -> None:
        if self.server.process.poll() is None:
            self.server.disk.empty()
            if wait_for(lambda: self.server.ready() or self.server.process.poll() is not None) and self.server.ready():
                return
            self.server.disk.fill()
        with_room(self.server)


class Galera(MariaDB):
    """Two nodes, both in each URL, and an arbitrator. What is done by hand is done on the first."""

    name = "galera"
    rounds = 60

    def __init__(self, *options: str) -> None:
        self.cluster = servers.Galera("--max-connections=400", *options)
        self.nodes = self.cluster.nodes
        self.server, self.port = self.nodes[0], self.nodes[0].port
        self.server.sql(f"CREATE USER {self.user}; GRANT ALL ON test.* TO {self.user}")

    def url(self, key: str, through: Any = None) -> str:
        ports = [through.port] if through else [n.port for n in self.nodes]
        return f"mysql://{self.user}@{','.join(f'127.0.0.1:{p}' for p in ports)}/test#{quote(key)}"

    def get(self, key: str) -> bytes | None:
        """Of whichever node answers."""
        for n in self.nodes:
            try:
                found = n.sql(
                    f"SELECT CONCAT('x', HEX(record)) FROM lunarch_locks WHERE name = x'{key.encode().hex()}'"
                )
                return bytes.fromhex(found[1:]) if found else None
            except RuntimeError:
                pass
        return None

    def repair(self) -> None:
        pass

    def end(self) -> None:
        self.cluster.close()


class ZooKeeper(Store):
    name = "zookeeper"
    repeats = ()  # its library ends the program, by an assertion

    def __init__(self, *settings: Any) -> None:
        self.server = servers.ZooKeeper(settings)
        self.port = self.server.port

    def url(self, key: str, through: Any = None) -> str:
        return f"zookeeper://127.0.0.1:{(through or self).port}/{quote(key)}"

    def put(self, key: str, content: bytes) -> None:
        with Zk(self.port) as z:
            z.make_parents("/" + key)
            if z.ask(1, z.text("/" + key) + z.data(content) + z.acl(z.ALL) + struct.pack(">i", 0))[0] == -110:
                z.ask(5, z.text("/" + key) + z.data(content) + struct.pack(">i", -1))

    def get(self, key: str) -> bytes | None:
        with Zk(self.port) as z:
            error, body = z.ask(4, z.text("/" + key) + b"\0")
            return None if error else body[4 : 4 + max(0, struct.unpack(">i", body[:4])[0])]

    def delete(self, key: str) -> None:
        with Zk(self.port) as z:
            z.delete("/" + key)

    def put_many(self, keys: list[str], content: bytes) -> None:
        with Zk(self.port) as z:
            for k in keys:
                z.ask(1, z.text("/" + k) + z.data(content) + z.acl(z.ALL) + struct.pack(">i", 0))

    def delete_many(self, keys: list[str]) -> None:
        with Zk(self.port) as z:
            for k in keys:
                z.delete("/" + k)

    def make_read_only(self) -> Any:
        """For everybody: by the ACL of each record."""
        with Zk(self.port) as z:
            nodes = ["/" + c for c in z.children("/") if c != "zookeeper"]
            for n in nodes:
                z.protect(n, z.READ)

        def undo() -> None:
            with Zk(self.port) as z:
                for n in nodes:
                    z.protect(n, z.ALL)

        return undo


class FullZooKeeper(ZooKeeper):
    """All that it keeps is on a disk of 1 MB; a server whose disk is full ends."""

    def __init__(self) -> None:
        self.server = servers.ZooKeeper(flags=["-Dzookeeper.preAllocSize=64"], start=False)
        self.port = self.server.port
        self.server.disk = servers.SmallDisk(os.path.join(self.server.dir, "data"), "1m")
        self.server.start()

    def fill(self) -> Any:
        self.server.disk.fill()

        return lambda: with_room(self.server)


class Zk:
    """ZooKeeper's protocol, as far as a test reaches into a server with it."""

    ALL, READ = 31, 17  # who may only read may still change the ACL back

    def __init__(self, port: int, auth: Any = None) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE)
        self.send(struct.pack(">iqiq", 0, 0, 10000, 0) + self.data(b"\0" * 16))
        self.receive()
        self.number = 0
        if auth:
            self.number = -5
            self.ask(100, struct.pack(">i", 0) + self.text("digest") + self.data(auth.encode()))
            self.number = 0

    @staticmethod
    def data(b: bytes) -> bytes:
        return struct.pack(">i", len(b)) + b

    @classmethod
    def text(cls, s: Any) -> Any:
        return cls.data(s.encode())

    def send(self, body: Any) -> None:
        self.socket.sendall(self.data(body))

    def receive(self) -> Any:
        def exactly(n: int) -> bytes:
            got = b""
            while len(got) < n:
                piece = self.socket.recv(n - len(got))
                if not piece:
                    raise RuntimeError("ZooKeeper closed the connection")
                got += piece
            return got

        return exactly(struct.unpack(">i", exactly(4))[0])

    def ask(self, kind: Any, body: Any) -> Any:
        """The error, and what follows it."""
        self.number += 1
        self.send(struct.pack(">ii", self.number, kind) + body)
        answer = self.receive()
        return struct.unpack(">i", answer[12:16])[0], answer[16:]

    def make_parents(self, path: str) -> None:
        for i, c in enumerate(path):
            if c == "/" and i:
                self.ask(1, self.text(path[:i]) + self.data(b"") + self.acl(self.ALL) + struct.pack(">i", 0))

    def children(self, path: str) -> list[str]:
        error, body = self.ask(8, self.text(path) + b"\0")
        names, at = [], 4
        for _ in range(0 if error else struct.unpack(">i", body[:4])[0]):
            n = struct.unpack(">i", body[at : at + 4])[0]
            names.append(body[at + 4 : at + 4 + n].decode())
            at += 4 + n
        return names

    @classmethod
    def acl(cls, rights: int, scheme: str = "world", who: str = "anyone") -> bytes:
        return struct.pack(">ii", 1, rights) + cls.text(scheme) + cls.text(who)

    def protect(self, path: str, rights: int) -> None:
        """From everybody; raises if that is not done."""
        error, _ = self.ask(7, self.text(path) + self.acl(rights) + struct.pack(">i", -1))
        if error:
            raise RuntimeError(f"the ACL of {path}: error {error}")

    def created(self, path: str) -> int:
        """The zxid by which it was made."""
        return struct.unpack(">q", self.ask(3, self.text(path) + b"\0")[1][:8])[0]

    def delete(self, path: str) -> None:
        for c in self.children(path):
            self.delete(f"{path}/{c}")
        self.ask(2, self.text(path) + struct.pack(">i", -1))

    def __enter__(self) -> "Zk":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

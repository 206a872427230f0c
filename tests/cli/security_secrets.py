#!/usr/bin/env -S PYTHONPATH=. python3
"""A store's password, or its token, is in no command line, log, answer, metric, error or environment that others get.

Each lock that takes one is given it in each way there is, with a store that hangs up on everybody, and Redis also
with a leader: what is searched is everything that can be read of every process, and all that they print."""

import atexit
import json
import os
import resource
import socket
import subprocess
import threading
import urllib.error
import urllib.request

from tests.lib.candidates import Candidate, stop_everyone
from tests.lib.hostile import CLEAN
from tests.lib.processes import LUNARCH, PATIENCE, children, runs_lock_file, scratch, wait_for
from tests.lib.servers import Redis
from tests.lib.tap import at_once, ok, run, same

TMP = scratch()
atexit.register(stop_everyone)
SECRET = "s3cret" + os.urandom(6).hex()
IDLE = "return { on_leading = function() exec { 'sleep', '1000' } end }"


class HangsUp:
    """A server that reads what comes, and closes."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.heard = b""
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            s, _ = self.listener.accept()
            s.settimeout(0.2)
            try:
                self.heard += s.recv(65536)
            except OSError:
                pass
            s.close()


def write(name: str, text: str) -> str:
    path = os.path.join(TMP, name)
    with open(path, "w") as f:
        f.write(text)
    os.chmod(path, 0o600)
    return path


SERVER = HangsUp()
AT = f"127.0.0.1:{SERVER.port}"
KUBECONFIG = write(
    "kubeconfig",
    json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": f"http://{AT}"}}],
            "users": [{"name": "u", "user": {"token": SECRET}}],
        }
    ),
)
FILE = write("password", SECRET + "\n")
HANDED = {"LUNARCH_LOCK_PASSWORD": SECRET}
# What, the lock, the environment, and which of its variables scripts get, too, as docs/security.md says.
WAYS: list[tuple[str, str, dict[str, str], tuple[str, ...]]] = [
    ("redis, in the URL", f"redis://:{SECRET}@{AT}/x", {}, ()),
    ("redis, user and password", f"redis://zoe:{SECRET}@{AT}/x", {}, ()),
    ("redis, in a file", f"redis://{AT}/x?password_file={FILE}", {}, ()),
    ("redis, in our variable", f"redis://{AT}/x", HANDED, ()),
    ("etcd, in the URL", f"etcd://zoe:{SECRET}@{AT}/x", {}, ()),
    ("etcd, in our variable", f"etcd://zoe@{AT}/x", HANDED, ()),
    ("postgres, in the URL", f"postgres://zoe:{SECRET}@{AT}/d#x", {}, ()),
    ("postgres, as an option", f"postgres://zoe@{AT}/d?password={SECRET}#x", {}, ()),
    ("postgres, its key's", f"postgres://zoe@{AT}/d?sslpassword={SECRET}#x", {}, ()),
    ("postgres, in our variable", f"postgres://zoe@{AT}/d#x", HANDED, ()),
    ("postgres, in libpq's variable", f"postgres://zoe@{AT}/d#x", {"PGPASSWORD": SECRET}, ("PGPASSWORD",)),
    ("mysql, in the URL", f"mysql://zoe:{SECRET}@{AT}/d#x", {}, ()),
    ("mysql, in our variable", f"mysql://zoe@{AT}/d#x", HANDED, ()),
    ("nats, in the URL", f"nats://zoe:{SECRET}@{AT}/b#x", {}, ()),
    ("nats, a token", f"nats://:{SECRET}@{AT}/b#x", {}, ()),
    ("nats, in our variable", f"nats://zoe@{AT}/b#x", HANDED, ()),
    ("zookeeper, in the URL", f"zookeeper://zoe:{SECRET}@{AT}/x", {}, ()),
    ("consul, in the URL", f"consul://:{SECRET}@{AT}/x", {}, ()),
    ("consul, in a file", f"consul://{AT}/x?token_file={FILE}", {}, ()),
    ("consul, in its variable", f"consul://{AT}/x", {"CONSUL_HTTP_TOKEN": SECRET}, ("CONSUL_HTTP_TOKEN",)),
    (
        "s3, in Amazon's variables",
        f"s3://bucket/x?endpoint=http://{AT}&region=us-east-1",
        {"AWS_ACCESS_KEY_ID": "AKID", "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_SESSION_TOKEN": SECRET},
        ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"),
    ),
    (
        "azblob, the account's key",
        f"azblob://account/c/x?endpoint=http://{AT}/account",
        {"AZURE_STORAGE_KEY": SECRET + "aa"},
        ("AZURE_STORAGE_KEY",),
    ),
    (
        "azblob, a SAS",
        f"azblob://account/c/x?endpoint=http://{AT}/account",
        {"AZURE_STORAGE_SAS_TOKEN": f"sv=1&sig={SECRET}"},
        ("AZURE_STORAGE_SAS_TOKEN",),
    ),
    (
        "dynamodb, in Amazon's variables",
        f"dynamodb://table/x?endpoint=http://{AT}&region=us-east-1",
        {"AWS_ACCESS_KEY_ID": "AKID", "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_SESSION_TOKEN": SECRET},
        ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"),
    ),
    ("kube, a token in the kubeconfig", "kube://n/x", {"KUBECONFIG": KUBECONFIG}, ()),
]


def family(pid: int) -> list[int]:
    return [pid] + [p for child in children(pid) for p in family(child)]


def shown(pid: int, what: str) -> str:
    try:
        with open(f"/proc/{pid}/{what}", "rb") as f:
            return f.read().decode(errors="replace")
    except OSError:
        return ""


def remembers(pid: int, elector: int) -> bool:
    """Whether the secret is in memory of this process that it can write, and so may have changed. Guard and worker may
    be forks of the elector. (A sanitizer's own memory, which is huge, is left out.)

    AddressSanitizer reads /proc/self/environ when a process begins, and keeps that text in a mapping of its own: the
    only pointer to it is in the .bss of libasan (GCC 12). No fork of ours can wipe that. So that text, whole and
    unchanged, is taken out of anonymous memory; the stack, where ours is, is searched with it."""
    begun = None
    if "libasan" in shown(pid, "maps"):
        with open(f"/proc/{elector}/environ", "rb") as f:
            begun = f.read()
    with open(f"/proc/{pid}/mem", "rb", 0) as memory:
        for line in shown(pid, "maps").splitlines():
            span, rights, _, _, _, *name = line.split()
            begin, end = (int(x, 16) for x in span.split("-"))
            if not rights.startswith("rw") or end - begin > 64 << 20:
                continue
            try:
                memory.seek(begin)
                data = memory.read(end - begin)
            except OSError:
                continue
            if begun and not name:
                data = data.replace(begun, b"")
            if SECRET.encode() in data:
                return True
    return False


def ask(*args: str, env: dict[str, str]) -> str:
    r = subprocess.run(
        [LUNARCH, *args], capture_output=True, text=True, errors="replace", timeout=PATIENCE, env={**CLEAN, **env}
    )
    return r.stdout + r.stderr


def fetched(address: str, path: str) -> str:
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=PATIENCE) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as e:
        return str(e.read().decode())


def leaks(c: Candidate, control: str, env: dict[str, str], passed: tuple[str, ...]) -> list[str]:
    """Where the secret can be read, though it should not."""
    found = []
    for pid in family(c.pid):
        kind = "the elector's" if pid == c.pid else f"{shown(pid, 'comm').strip()}'s"
        for what in ("cmdline", "comm", "status"):
            if SECRET in shown(pid, what):
                found.append(f"{kind} {what}")
        if pid != c.pid and not (passed and runs_lock_file(pid)):
            for entry in shown(pid, "environ").split("\0"):
                if SECRET in entry and entry.partition("=")[0] not in passed:
                    found.append(f"{kind} environment: {entry.partition('=')[0]}")
        if pid != c.pid and not passed and not runs_lock_file(pid) and remembers(pid, c.pid):
            found.append(f"{kind} memory")
    told = {
        "log": "\n".join(map(str, c.events)),
        "ctl status": ask("ctl", "--control", control, "status", env=env),
        "ctl status --json": ask("ctl", "--control", control, "status", "--json", env=env),
        "ctl why": ask("ctl", "--control", control, "why", env=env),
    }
    address = c.event("listening")["message"].split("http://")[1].split()[0].rstrip(",;/")
    for path in ("/metrics", "/status", "/readyz", "/leader"):
        told[path] = fetched(address, path)
    return found + [name for name, text in told.items() if SECRET in text]


def candidate(name: str, lock: str, env: dict[str, str], *more: str) -> tuple[Candidate, str]:
    control = f"{TMP}/{name}.sock"
    options = ["--log-level", "debug", "--listen", "127.0.0.1:0", "--control", control, "--state-dir", f"{TMP}/{name}"]
    return Candidate(*options, "--lock", lock, *more, "-e", IDLE, env=env), control


def one_way(number: int) -> None:
    what, lock, env, passed = WAYS[number]
    c, control = candidate(str(number), lock, env)
    wait_for(lambda: c.complaints() or c.closed)
    ok(c.complaints(), f"{what}: the store is asked, and does not answer", c.events[-3:])
    same(leaks(c, control, env, passed), [], f"{what}: in nothing that others can read")
    c.stop()
    said = "".join(ask(command, "--lock", lock, env=env) for command in ("status", "leader", "check", "doctor"))
    ok(SECRET not in said, f"{what}: status, leader, check and doctor do not print it", said)


def test_ways() -> None:
    """Every lock that takes a secret"""
    for first in range(0, len(WAYS), 5):
        at_once(*(lambda n=n: one_way(n) for n in range(first, min(first + 5, len(WAYS)))))


def test_malformed() -> None:
    """A URL that cannot be read is not repeated with what is in it. An unescaped / or # in a password looks like a
    host's port, and what follows like a path."""
    kinds = (
        "redis",
        "postgres",
        "etcd",
        "etcds",
        "zookeeper",
        "mysql",
        "nats",
        "consul",
        "consuls",
        "kube",
        "s3",
        "gs",
        "azblob",
        "dynamodb",
    )
    cut = [f"{k}://zoe:5{c}{SECRET}@{AT}/x#x" for k in kinds for c in "/#?"]
    for lock in (
        *cut,
        f"s3://b/x?region=a&endpoint=http://zoe:{SECRET}@{AT}",
        f"s3://b/x?region=a&endpoint=http://zoe:5/{SECRET}@{AT}",
        f"redis://:{SECRET}@:/x",
        f"redis://:{SECRET}@host:port/x",
        f"redis://:{SECRET}@{AT}/x?nonsense=1",
        f"postgres://zoe:{SECRET}@[::1/d#x",
        f"etcd://zoe:{SECRET}@/",
        f"rediss://:{SECRET}@{AT}/x",  # which hiredis may not know
        f"mysql://zoe:{SECRET}@{AT}/d/e/f",
        f"consul://:{SECRET}@{AT}",
        f"nats://:{SECRET}@{AT}/b/c#x",
        f"nostore://zoe:{SECRET}@{AT}/x",
        f"nostore:?token={SECRET}",
        f"s3://bucket/x?secret_access_key={SECRET}",
        f"lua:{TMP}/none.lua?api_key={SECRET}#x",
        f"lua:{TMP}/none.lua?passphrase={SECRET}#x",
    ):
        said = ask("exec", "-n", "--lock", lock, "true", env={})
        ok(said and SECRET not in said, f"exec says what is wrong with {lock.replace(SECRET, '***')}", said)
        said = ask("exec", "-n", "true", env={"LUNARCH_LOCK": lock})
        ok(said and SECRET not in said, "... also where it is in LUNARCH_LOCK", said)


def test_leader() -> None:
    """Of a leader, with programs that its hooks started"""
    with Redis("--requirepass", SECRET) as server:
        at = f"127.0.0.1:{server.port}"
        cases: list[tuple[str, str, dict[str, str]]] = [
            ("url", f"redis://:{SECRET}@{at}/url", {}),
            ("variable", f"redis://{at}/variable", HANDED),
            ("both", f"redis://{at}/both", {"LUNARCH_LOCK": f"redis://:{SECRET}@{at}/both", **HANDED}),
        ]
        for name, lock, env in cases:
            c, control = candidate(f"leads-{name}", lock, env)
            c.event("became_leader")
            wait_for(lambda: len(family(c.pid)) == 4)
            same(len(family(c.pid)), 4, f"{name}: elector, guard, worker, and what its hook started")
            if name != "url":
                ok(
                    SECRET in shown(c.pid, "environ"),
                    f"{name}: the search finds what its own user may read: the elector's",
                )
            ok(remembers(c.pid, c.pid), f"{name}: it finds what the elector has in its memory")
            same(leaks(c, control, env, ()), [], f"{name}: none of it has the password, nor does anybody print it")
            c.stop()
        command = f'env >"{TMP}/env"; tr "\\0" "\\n" </proc/$PPID/environ >>"{TMP}/env"; echo "$LUNARCH_TERM_LOCK"'
        r = ask("exec", "--lock", f"redis://{at}/e", "-c", command, env={"LUNARCH_LOCK": "x", **HANDED})
        with open(f"{TMP}/env") as f:
            text = f.read()
        ok("LUNARCH_TERM_LOCK" in text and SECRET not in text + r, "exec: the command's environment has none either", r)


def test_cores() -> None:
    """Core dumps are as whoever started it wants them; a lock file's process never makes one."""
    limit = resource.getrlimit(resource.RLIMIT_CORE)[1]
    soft = 4096 if limit == resource.RLIM_INFINITY or limit >= 4096 else limit

    def limits(pid: int) -> list[str]:
        line = next(each for each in shown(pid, "limits").splitlines() if each.startswith("Max core file size"))
        return line.split()[4:6]

    def with_limit() -> None:
        resource.setrlimit(resource.RLIMIT_CORE, (soft, limit))

    # Of AddressSanitizer, which else sets it to 0.
    env = {"ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":disable_coredump=0"}
    c = Candidate(
        "--lock", f"consul://{AT}/x", "--state-dir", f"{TMP}/core", "-e", IDLE, preexec_fn=with_limit, env=env
    )
    c.wait("read_failed")
    drivers = [p for p in family(c.pid) if runs_lock_file(p)]
    same([limits(p) for p in drivers], [["0", "0"]], "a lock file's process, which was given the token, leaves no core")
    same(
        limits(c.pid)[0], str(soft), "the elector's limit is as it was: LimitCORE=0 is the unit's to say (security.md)"
    )
    c.stop()


run([test_ways, test_malformed, test_leader, test_cores])

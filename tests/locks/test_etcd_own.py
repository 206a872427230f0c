#!/usr/bin/env -S PYTHONPATH=. python3
"""What only etcd has: users, tokens that run out, TLS, several endpoints, a cluster that loses its leader, one stream
of notices for many locks; and what is not etcd at all."""

import base64
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
import uuid
from typing import Any

from tests.lib import lock_cases
from tests.lib import servers
from tests.lib.candidates import FAST, Candidate, stop_everyone
from tests.lib.lock_cases import SHORT, run
from tests.lib.lock_driver import NOMINATION, Driver, record, tried
from tests.lib.processes import LUNARCH, PATIENCE, piped, scratch, wait_for
from tests.lib.proxy import Proxy
from tests.lib.stores import Etcd, FullEtcd, b64
from tests.lib.tap import at_once, done, note, ok, same, skip

SECRET = "ge/he:im @1"
where = scratch()


def trial(url: str, within: int = 8000) -> tuple[str, str, str]:
    """One read by a process of its own: its result and its lock's name; or why it cannot be opened."""
    d = Driver()
    opened = d.open(url)
    result = d.read(within=within) if opened["ok"] else {"outcome": "not opened", "err": {"text": opened["err"]}}
    text = result.get("err", {}).get("text", "")
    status = d.end()
    if status != 0:
        ok(False, f"{url}: the program ends with {status}")
    return result["outcome"], text, opened.get("url", "")


def refused(url: str, outcomes: list[str], pattern: str, what: str, within: int = 8000) -> None:
    outcome, text, shown = trial(url, within)
    good = (
        outcome in outcomes
        and re.search(pattern, text)
        and text.isprintable()
        and SECRET not in text + shown
        and "geheim" not in text + shown
    )
    ok(good, f"{what}: {text[:250]}", f"{outcome}: {text}")


# ---- users and passwords ----


def certificates() -> None:
    """An authority, a server's certificate for 127.0.0.1 and etcd.test, a client's, another authority's, a key for
    tokens."""

    def openssl(*args: str) -> None:
        subprocess.run(["openssl", *args], cwd=where, check=True, capture_output=True)

    openssl("genrsa", "-out", "jwt.key", "2048")
    openssl("rsa", "-in", "jwt.key", "-pubout", "-out", "jwt.pub")
    for ca in ("ca", "other"):
        openssl(
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-keyout",
            f"{ca}.key",
            "-out",
            f"{ca}.pem",
            "-subj",
            f"/CN={ca} authority",
            "-days",
            "2",
        )
    for name, more in (
        ("server", "subjectAltName=IP:127.0.0.1,DNS:etcd.test\nextendedKeyUsage=serverAuth,clientAuth"),
        ("client", "extendedKeyUsage=clientAuth"),
        ("root", "extendedKeyUsage=clientAuth"),
    ):
        with open(os.path.join(where, f"{name}.ext"), "w") as f:
            f.write(more)
        openssl(
            "req",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-keyout",
            f"{name}.key",
            "-out",
            f"{name}.csr",
            "-subj",
            f"/CN={name}",
        )
        openssl(
            "x509",
            "-req",
            "-in",
            f"{name}.csr",
            "-CA",
            "ca.pem",
            "-CAkey",
            "ca.key",
            "-CAcreateserial",
            "-out",
            f"{name}.pem",
            "-days",
            "2",
            "-extfile",
            f"{name}.ext",
        )


def file(name: str) -> str:
    return os.path.join(where, name)


def users() -> None:
    store = Etcd()
    same(
        trial(f"etcd://u:geheim@127.0.0.1:{store.port}/x")[0],
        "absent",
        "users: a user is no harm where etcd wants none",
    )
    store.auth("me", SECRET)
    mine = store.url("mine/a")
    d = Driver()
    same(
        d.open(mine)["url"],
        f"etcd://me@127.0.0.1:{store.port}/mine/a",
        "users: people see the URL without the password",
    )
    d.do("watch")
    w = d.write(record("a"), "")
    same(w["outcome"], "ok", "users: with user and password one may write")
    at, port = mine.index("@"), store.port
    refused(f"etcd://127.0.0.1:{port}/mine/a", ["refused"], "user", "users: without, one is told so")
    refused(
        f"etcd://me:geheim@127.0.0.1:{port}/mine/a",
        ["refused"],
        "logging in as me.*authentication failed",
        "users: a wrong password is named as such",
    )
    refused(
        f"etcd://nobody:geheim@127.0.0.1:{port}/mine/a",
        ["refused"],
        "logging in as nobody",
        "users: an unknown user too",
    )
    refused(mine[:at] + f"@127.0.0.1:{port}/other", ["refused"], "me has no right", "users: a key without rights")
    d.read()
    before = d.count()
    store.server.restart()  # etcd's simple tokens do not survive this
    w = d.write(record("a"), w["version"])
    same(w["outcome"], "ok", "tokens: one that etcd has forgotten is asked for anew, inside the operation")

    def noticed() -> Any:
        store.put("mine/a", store.get("mine/a") or b"")
        return d.noticed(before, patience=0.1)

    ok(wait_for(noticed), "tokens: notices go on too")
    store.permit("READWRITE")  # a change of rights makes tokens old
    r = d.read()
    same(d.write(record("a"), r["version"])["outcome"], "ok", "tokens: so is one that is older than the rights")
    d.open(store.url("mine/"), "mine", prefix=True)
    same(d.names("mine").get("names"), ["a"], "users: who may read all that begins with a prefix may list it")
    d.open(store.url("m"), "more", prefix=True)
    r = d.names("more")
    ok(
        r["outcome"] == "refused" and "me has no right" in r["err"]["text"],
        "users: and who may read a part of it is told so",
    )
    d.end()
    run(store, [mine_of(lock_cases.read_only)])
    store.end()


def listing() -> None:
    """Keys that are no text, and the prefixes behind which no key follows."""
    store = Etcd()
    for key in b"\xff\xff", b"\xff\xffa", b"\xffz", b"plain", b"with\0zero":
        store.call("kv/put", key=b64(key), value=b64(b"x"))
    d = Driver()
    for prefix, names in (
        ("%FF%FF", ["", "a"]),
        ("%FF", ["%FF", "%FFa", "z"]),
        ("", ["%FF%FF", "%FF%FFa", "%FFz", "plain"]),
        ("with", []),
    ):
        d.open(f"etcd://127.0.0.1:{store.port}/{prefix}", prefix, prefix=True)
        same(d.names(prefix).get("names"), names, f"list: etcd's keys that begin with '{prefix}'")
    d.open(f"etcd://127.0.0.1:{store.port}", "bare", prefix=True)
    same(len(d.names("bare").get("names", [])), 4, "list: a URL that ends before its key is every key")
    d.end()
    store.end()


def mine_of(case: Any) -> Any:
    """A conformance case on keys that the user may use."""

    def wrapped(store: Any) -> None:
        plain = store.url
        store.url = lambda key, through=None: plain(key if key.startswith("mine/") else "mine/" + key, through)
        case(store)
        store.url = plain

    wrapped.__name__ = case.__name__
    return wrapped


def next_rights() -> None:
    """Who has no right to the next record beside a lock works without, and hears the lock's notices: also if the right
    is taken away while it is watched."""
    store = Etcd()
    store.auth("me", SECRET)

    def grant(key: bytes) -> None:
        store.call("auth/role/grant", name="one", perm={"permType": "READWRITE", "key": b64(key)})

    store.call("auth/role/add", name="one")
    grant(b"job")
    store.call("auth/user/add", name="ann", password="pw")
    store.call("auth/user/grant", user="ann", role="one")
    url = f"etcd://ann:pw@127.0.0.1:{store.port}/job"
    d, other = Driver(), Driver()
    other.open(url)
    d.open(url)
    d.open_next(url)
    version = other.write(record("a"), "")["version"]
    d.do("watch")
    d.read()

    def told() -> bool:
        nonlocal version
        before = d.count()
        version = other.write(record("a"), other.read()["version"])["version"]
        heard = d.noticed(before)
        return heard and bool(d.read()["version"] == version)

    for _ in range(3):
        r = d.read("n")
        w = d.write(record("n", **NOMINATION), "", "n")
        same(
            (r["outcome"], w["outcome"], d.do("watch", "n")["watching"]),
            ("refused", "refused", False),
            "rights: without one to the next record it is neither read, nor written, nor watched",
        )
    ok("job.next" in r["err"]["text"], "rights: and it is said which key that is", r["err"]["text"])
    ok(told(), "rights: its lock's notices come")
    grant(b"job.next")
    made = tried(lambda: d.write(record("n", **NOMINATION), "", "n"), "ok")
    same((made["outcome"], d.read("n")["outcome"]), ("ok", "ok"), "rights: granted, it is written and read")
    same(d.do("watch", "n")["watching"], True, "rights: and can be watched")
    before = d.count("n")
    store.put("job.next", b"hello")
    ok(d.noticed(before, "n"), "rights: what is done to it is told")
    store.call("auth/role/revoke", role="one", key=b64(b"job.next"))
    ok(tried(lambda: d.read("n"), "refused")["outcome"] == "refused", "rights: revoked, it is refused")
    d.read()
    ok(all(told() for _ in range(3)), "rights: and its lock's notices come")
    same(d.do("watch", "n")["watching"], False, "rights: it can be watched no more")
    same((d.end(), other.end()), (0, 0), "rights: all close in peace")
    store.end()


def expiry() -> None:
    store = Etcd("--auth-token", f"jwt,pub-key={file('jwt.pub')},priv-key={file('jwt.key')},sign-method=RS256,ttl=2s")
    store.auth("me", SECRET)
    d = Driver()
    d.open(store.url("mine/t"))
    version, outcomes, began = "", [], time.monotonic()
    while time.monotonic() - began < 7:
        w = d.write(record("a"), version)
        outcomes.append(w["outcome"])
        version = w["version"] or version
        time.sleep(0.2)
    same(set(outcomes), {"ok"}, f"tokens: {len(outcomes)} writes over 7 s with tokens that live 2 s")
    d.end()
    store.end()


# ---- TLS ----


class TlsEtcd(servers.Etcd):
    def __init__(self, *options: Any) -> None:
        self.metrics = servers.free_port()
        super().__init__(options=options)

    def command(self) -> list[str]:
        line = [a.replace(f"http://127.0.0.1:{self.port}", f"https://127.0.0.1:{self.port}") for a in super().command()]
        return [
            *line,
            "--cert-file",
            file("server.pem"),
            "--key-file",
            file("server.key"),
            "--listen-metrics-urls",
            f"http://127.0.0.1:{self.metrics}",
        ]

    def ready(self) -> bool:
        return '"health":"true"' in servers.ask(self.metrics, "GET /health HTTP/1.0\r\n\r\n")


def loads(driver: Driver, library: str) -> bool:
    with open(f"/proc/{driver.process.pid}/maps") as f:
        return library in f.read()


def tls() -> None:
    plain, strict = TlsEtcd(), TlsEtcd("--client-cert-auth", "--trusted-ca-file", file("ca.pem"))
    host, ca = f"127.0.0.1:{plain.port}", f"ca={file('ca.pem')}"
    d = Driver()
    same(d.open(f"etcds://{host}/x?{ca}")["ok"], True, "TLS: an authority of one's own")
    d.do("watch")
    w = d.write(record("a"), "")
    before = d.count()
    e = Driver()
    e.open(f"etcds://{host}/x?{ca}&server_name=etcd.test")
    same(
        (w["outcome"], e.write(record("b"), w["version"])["outcome"]),
        ("ok", "ok"),
        "TLS: writes, by address and by the certificate's other name",
    )
    ok(d.noticed(before), "TLS: and notices")
    p = Driver()
    with servers.Etcd() as unencrypted:
        p.open(f"etcd://127.0.0.1:{unencrypted.port}/plain")
        same(p.read()["outcome"], "absent", "without TLS, a key that is not there")
        refused(
            f"etcds://127.0.0.1:{unencrypted.port}/x",
            ["failed"],
            "TLS.*etcd://",
            "TLS: a port that speaks none is said to, with the URL to write",
        )
    same((loads(d, "libssl"), loads(p, "libssl")), (True, False), "OpenSSL is loaded for TLS, and only for it")
    for one in (d, e, p):
        one.end()
    refused(f"etcds://{host}/x", ["failed"], "certificate", "TLS: an authority that the system does not know")
    refused(f"etcds://{host}/x?ca={file('other.pem')}", ["failed"], "certificate", "TLS: another authority")
    refused(f"etcds://{host}/x?ca={file('none.pem')}", ["failed"], "none.pem", "TLS: a file that is missing is named")
    refused(
        f"etcds://{host}/x?{ca}&server_name=wrong.test",
        ["failed"],
        "wrong.test",
        "TLS: another name than the certificate's",
    )
    refused(f"etcd://{host}/x", ["failed"], f"{host}.*TLS.*etcds://", "TLS: not spoken to a port that wants it")
    shutil.copy(file("other.pem"), file("replaced.pem"))
    r = Driver()
    r.open(f"etcds://{host}/x?ca={file('replaced.pem')}")
    before = r.read()["outcome"]
    shutil.copy(file("ca.pem"), file("replaced.pem"))
    same(
        (before, r.read()["outcome"]), ("failed", "ok"), "TLS: a file that is replaced is read for the next connection"
    )
    r.end()
    host = f"127.0.0.1:{strict.port}"
    refused(f"etcds://{host}/x?{ca}", ["failed"], "certificate", "client certificate: wanted and missing")
    good = f"etcds://{host}/x?{ca}&cert={file('client.pem')}&key={file('client.key')}"
    same(trial(good)[0], "absent", "client certificate: shown")
    refused(
        f"etcds://{host}/x?{ca}&cert={file('client.pem')}&key={file('server.key')}",
        ["failed"],
        "key",
        "client certificate: with a key that is another's",
    )
    refused(
        f"etcds://{host}/x?{ca}&key={file('client.key')}",
        ["not opened"],
        "without cert",
        "client certificate: a key alone",
    )
    refused(f"etcd://{host}/x?{ca}", ["not opened"], "etcds", "TLS options are for etcds")
    for server in (plain, strict):
        server.close()


def certificate_users() -> None:
    """With --client-cert-auth and users on, the certificate's common name is the user."""
    server = TlsEtcd("--client-cert-auth", "--trusted-ca-file", file("ca.pem"))
    host, ca = f"127.0.0.1:{server.port}", f"ca={file('ca.pem')}"
    mine = f"{ca}&cert={file('client.pem')}&key={file('client.key')}"

    def ctl(*args: str) -> None:
        subprocess.run(
            ["etcdctl", "--endpoints", f"https://{host}", "--cacert", file("ca.pem"), "--cert",
             file("root.pem"), "--key", file("root.key"), *args],
            env={**os.environ, "ETCDCTL_API": "3"}, check=True, capture_output=True, timeout=60,
        )  # fmt: skip

    ctl("user", "add", "root", "--no-password")
    ctl("user", "grant-role", "root", "root")
    ctl("user", "add", "client", "--no-password")
    ctl("role", "add", "some")
    ctl("role", "grant-permission", "some", "readwrite", "mine/", "--prefix")
    ctl("user", "grant-role", "client", "some")
    ctl("auth", "enable")
    d, e = Driver(), Driver()
    d.open(f"etcds://{host}/mine/c?{mine}")
    e.open(f"etcds://{host}/mine/c?{mine}&server_name=etcd.test")
    d.do("watch")
    w = d.write(record("a"), "")
    same(w["outcome"], "ok", "certificate users: who is one by certificate may write")
    before = d.count()
    same(e.write(record("b"), w["version"])["outcome"], "ok", "certificate users: on each connection")
    ok(d.noticed(before), "certificate users: and is told of changes")
    refused(f"etcds://{host}/other?{mine}", ["refused"], "permission denied", "certificate users: a key without rights")
    refused(
        f"etcds://{host}/mine/c?{ca}&cert={file('server.pem')}&key={file('server.key')}",
        ["refused"],
        "permission denied|user",
        "certificate users: a certificate whose name is no user's",
    )
    for one in (d, e):
        one.end()
    server.close()


# ---- several endpoints ----


def endpoints() -> None:
    members = servers.Etcd.cluster(3)
    dead = servers.free_port()
    key = f"key-{uuid.uuid4().hex[:8]}"
    url = "etcd://" + ",".join(f"127.0.0.1:{p}" for p in [dead, *(m.port for m in members)]) + "/" + key
    d = Driver()
    d.open(url)
    d.do("watch")
    w = d.write(record("a"), "")
    same(w["outcome"], "ok", "endpoints: where nobody listens the next one is asked")
    members[0].pause()
    w = d.write(record("a"), w["version"], within=9000)
    ok(
        w["outcome"] == "ok" and w["took_ms"] < 9000,
        f"endpoints: one that is frozen costs its share of the deadline ({w['took_ms']:.0f} of 9000 ms)",
        w,
    )
    times = []
    for _ in range(5):
        w = d.write(record("a"), w["version"], within=9000)
        times.append(w["took_ms"])
    ok(min(times) < 9000 / 4, f"endpoints: and is avoided afterwards ({', '.join(f'{t:.0f}' for t in times)} ms)")
    e = Driver()
    e.open(f"etcd://127.0.0.1:{members[1].port},127.0.0.1:{members[2].port}/{key}")
    d.read()
    before = d.count()
    w = e.write(record("b"), w["version"])
    ok(d.noticed(before), "endpoints: notices have moved too")
    members[0].resume()
    leader_loss(members, key, d, w)
    refused(
        "etcd://127.0.0.1:%d,127.0.0.1:%d/x" % (dead, servers.free_port()),
        ["failed"],
        "cannot connect|refused",
        "endpoints: when there is none one is told",
    )
    minority(members, d)
    for one in (d, e):
        one.end()
    for m in members:
        m.close()


def leads(member: Any) -> Any:
    """Does this member lead its cluster?"""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{member.port}/metrics", timeout=5) as answer:
            return "\netcd_server_is_leader 1" in answer.read().decode()
    except OSError:
        return False


def leader_loss(members: list[Any], key: str, d: Driver, w: dict[str, Any]) -> None:
    leader = wait_for(lambda: [m for m in members if leads(m)])[0]
    version, wrong, killed = w["version"], 0, time.monotonic()
    leader.kill()
    told, again = [], None
    while not again:
        rec = record("a")
        w = d.write(rec, version, within=2500)
        told.append(w["outcome"])
        if w["outcome"] == "ok":
            again = time.monotonic() - killed
        else:
            r = tried(lambda: d.read(within=2500), "ok")
            there = r["record"]["write"] == rec["write"]
            wrong += there and w["outcome"] in ("failed", "conflict")
            version = r["version"]
    same(
        wrong, 0, f"leader loss: what is said of a write is true ({', '.join(told)}); written again after {again:.1f} s"
    )
    e = Driver()
    e.open("etcd://" + ",".join(f"127.0.0.1:{m.port}" for m in members if m is not leader) + "/" + key)
    before = d.count()
    same(e.write(record("b"), w["version"])["outcome"], "ok", "leader loss: others see the same version")
    ok(d.noticed(before), "leader loss: notices go on")
    e.end()
    leader.start()


def minority(members: list[Any], d: Driver) -> None:
    """Two of three gone: nothing can be read or written, and nothing pretends to."""
    for m in members[1:]:
        m.pause()
    r = d.read(within=SHORT)
    rec = record("a")
    w = d.write(rec, r["version"] or "1", within=SHORT)
    ok(
        r["outcome"] == "failed" and w["outcome"] in ("unknown", "failed", "conflict"),
        f"minority: a member alone answers nothing ({r['outcome']}, {w['outcome']})",
    )
    for m in members[1:]:
        m.resume()
    ok(wait_for(lambda: d.read()["outcome"] == "ok"), "minority: with the others back it goes on")


# ---- what it costs etcd ----


def metric(server: Any, name: str) -> Any:
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=30) as answer:
        found = re.findall(r"^" + name + r"\S* (\S+)$", answer.read().decode(), re.M)
    return sum(map(float, found))


def handled(server: Etcd, method: str) -> float:
    return metric(server, r'grpc_server_handled_total\{grpc_code="OK",grpc_method="' + method + '"')


def costs() -> None:
    with servers.Etcd() as server:
        d = Driver()
        for i in range(50):
            d.open(server.url(f"many/{i}"), lock=f"l{i}")
            d.do("watch", lock=f"l{i}")
            if i % 10 == 0:  # some are added while the stream runs
                wait_for(lambda: metric(server, "etcd_debugging_mvcc_watcher_total") == i + 1)
        wait_for(lambda: metric(server, "etcd_debugging_mvcc_watcher_total") == 50)
        for i in range(50):
            d.write(record("a"), "", lock=f"l{i}")
        e = Driver()
        e.open(server.url("many/33"))
        before = d.count("l33"), d.count("l34")
        e.write(record("b"), e.read()["version"])
        ok(d.noticed(before[0], "l33"), "one stream: a change reaches the lock it belongs to")
        same(
            (
                metric(server, "etcd_debugging_mvcc_watch_stream_total"),
                metric(server, "etcd_debugging_mvcc_watcher_total"),
            ),
            (1, 50),
            "one stream: 50 locks of a process have one watch stream",
        )
        same(d.count("l34"), before[1], "one stream: and no other")
        for i in range(40):
            d.do("close", lock=f"l{i}")
        ok(
            wait_for(lambda: metric(server, "etcd_debugging_mvcc_watcher_total") == 10),
            "one stream: closed locks are watched no more",
        )
        seen = d.count("l44")
        e.open(server.url("many/44"), lock="b")
        e.write(record("b"), e.read(lock="b")["version"], lock="b")
        ok(d.noticed(seen, "l44"), "one stream: the others are")
        d.end()
        e.end()
        c = Candidate("--lock", server.url("renewals"), "-e", "return { on_leading = function() end }", options=FAST)
        led = c.wait("became_leader")
        time.sleep(1)

        def count() -> tuple[float, float]:
            """Writes; questions that were none."""
            puts = metric(server, "etcd_mvcc_put_total")
            return puts, handled(server, "Txn") + handled(server, "Range") - puts

        puts, reads = count()
        renewed = wait_for(lambda: count()[0] >= puts + 10)
        later = count()
        ok(
            led and renewed and later[1] - reads <= 1,
            f"renewals: {later[0] - puts:.0f} of them were as many transactions, and {later[1] - reads:.0f} reads",
        )
        b = Candidate("--lock", server.url("renewals"), "-e", "return { on_leading = function() end }", options=FAST)
        led = b.wait("new_leader")
        time.sleep(1)
        puts, reads = count()
        renewed = wait_for(lambda: count()[0] >= puts + 10)
        later = count()
        ok(
            led and renewed and (later[1] - reads) * 2 <= later[0] - puts,
            f"renewals: a standby reads them from its watch: {later[0] - puts:.0f} of them cost "
            f"{later[1] - reads:.0f} reads",
        )
        c.kill(signal.SIGTERM)
        ok(b.wait("became_leader"), "renewals: and the release, on which it leads")
        stop_everyone()


# ---- elections ----

LEAD = """return { on_leading = function(t) print('lead', t.token) end, on_stopped = function(t, why) print('stopped',\
 why) end,
  on_new_leader = function(l) print('leader', l.identity, l.token) end }"""


def elections() -> None:
    with servers.Etcd() as server:
        url = server.url("election")
        a = Candidate("--lock", url, "--identity", "a", "--address", "10.0.0.1:1", "-e", LEAD)
        a.wait("became_leader")
        b = Candidate("--lock", url, "--identity", "b", "--address", "10.0.0.2:1", "-e", LEAD)
        b.wait("new_leader")

        def out(*args: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run([LUNARCH, *args, "--lock", url], capture_output=True, text=True, timeout=60)

        same(out("leader").stdout.strip(), "10.0.0.1:1", "elections: `lunarch leader` prints the address")
        ok("leader      a\n" in out("status").stdout, "elections: `lunarch status` who leads")
        watching = subprocess.Popen([LUNARCH, "status", "--watch", "--lock", url], stdout=subprocess.PIPE, text=True)
        ok("a leads" in piped(watching.stdout).readline(), "elections: `lunarch status --watch` too")
        a.kill(signal.SIGTERM)
        ok(b.wait("became_leader"), "elections: a leader that stops hands over")
        ok(any("b leads" in piped(watching.stdout).readline() for _ in range(5)), "elections: which --watch shows")
        watching.kill()
        watching.communicate()
        same(out("leader").stdout.strip(), "10.0.0.2:1", "elections: and `lunarch leader` prints the new address")
        tokens = [int(c.event("print", "lead\t")["message"].split()[-1]) for c in (a, b)]
        same(
            b.event("print", "leader\ta")["message"],
            f"leader\ta\t{tokens[0]}",
            "elections: a standby knows the token of a term that was never renewed",
        )
        ok(0 < tokens[0] < tokens[1], f"elections: tokens grow: {tokens}")
        server.pause()
        ok(b.wait("stopped_leading"), "elections: a leader whose etcd is frozen stops in time")
        server.resume()
        ok(b.wait("became_leader", count=2), "elections: and leads again when it goes on")
        tokens.append(int(b.event("print", "lead\t", count=2)["message"].split()[-1]))
        ok(tokens[1] < tokens[2], f"elections: with a larger token: {tokens}")
        for c in (a, b):
            if not b.all("became_leader"):
                c.log()
        stop_everyone()


def begun_anew() -> None:
    """Its data are lost, and its revisions begin anew: what was known of them must not keep everybody out."""
    with servers.Etcd() as server:
        a = Candidate("--lock", server.url("anew"), "-e", LEAD, options=FAST)
        led = a.wait("became_leader")
        for _ in range(300):
            urllib.request.urlopen(f"http://127.0.0.1:{server.port}/v3/kv/put", b'{"key":"eA=="}', timeout=30).close()
        renewals = metric(server, "etcd_mvcc_put_total")
        wait_for(lambda: metric(server, "etcd_mvcc_put_total") > renewals + 2)
        server.kill()
        shutil.rmtree(os.path.join(server.dir, "data"))
        server.start()
        ok(
            led and a.wait("became_leader", count=2),
            "an etcd that begins anew: the candidate leads again, as soon as that is safe",
        )
        renewals = metric(server, "etcd_mvcc_put_total")
        ok(
            wait_for(lambda: metric(server, "etcd_mvcc_put_total") > renewals + 5),
            "an etcd that begins anew: and renews",
        )
        same(
            [m for m in a.complaints("not what was asked for") if m.startswith("writing")][1:],
            [],
            "an etcd that begins anew: of which one answer at most was not believed",
        )
        stop_everyone()


def status_of(server: Any) -> Any:
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/v3/maintenance/status", b"{}", timeout=30) as answer:
        return json.load(answer)["header"]


def id_of(server: Any) -> str:
    return f"{int(status_of(server)['cluster_id']):x}"


def held(member: Any, key: str = "election") -> Any:
    asked = json.dumps({"key": b64(key.encode())}).encode()
    with urllib.request.urlopen(f"http://127.0.0.1:{member.port}/v3/kv/range", asked, timeout=30) as answer:
        found = json.load(answer).get("kvs")
    return json.loads(base64.b64decode(found[0]["value"])) if found else None


def on_its_own(member: Any) -> None:
    """Loses its data, and is started anew, as a cluster that consists of it."""
    member.kill()
    shutil.rmtree(os.path.join(member.dir, "data"))
    member.peers = {member.name: member.peers[member.name]}
    member.start()


def another_cluster() -> None:
    """A member was started anew as a cluster of its own: it is not written to, and nobody leads on it until somebody
    says so."""
    members = servers.Etcd.cluster(3)
    proxy = Proxy(members[0].port)
    key = "election"

    def url(*ports: int) -> str:
        return "etcd://" + ",".join(f"127.0.0.1:{p}" for p in ports) + "/" + key

    ours = id_of(members[0])
    script = file("another.lua")
    with open(script, "w") as f:
        f.write(LEAD)
    a = Candidate(script, "--lock", url(members[0].port, members[1].port), "--identity", "a")
    a.event("became_leader")
    sock = file("another.sock")
    b = Candidate(script, "--lock", url(proxy.port, members[2].port), "--identity", "b", "--control", sock)
    b.event("new_leader")
    d = Driver()
    d.open(url(proxy.port, members[2].port).replace(key, "driven"))
    same(d.read()["outcome"], "absent", "another cluster: a lock that has heard of one cluster")
    on_its_own(members[2])
    other = id_of(members[2])
    proxy.close()
    w = d.write(record("d"), "")
    text = w.get("err", {}).get("text", "")
    ok(
        w["outcome"] == "failed" and ours in text and other in text,
        f"another cluster: writes nothing to another one: {text}",
        w,
    )
    same(int(status_of(members[2])["revision"]), 1, "another cluster: which has taken no write")

    def ctl(what: str) -> str:
        asked = [LUNARCH, "ctl", what, "--control", sock]
        return subprocess.run(asked, capture_output=True, text=True, timeout=60, check=False).stdout

    ok(
        wait_for(lambda: b.complaints(other) or b.all("became_leader")) and not b.all("became_leader"),
        "another cluster: a standby that reaches nothing else does not lead on it",
    )
    why = ctl("why")
    ok(
        ours in why and other in why and "ctl reload" in why,
        "another cluster: `ctl why` names both, and how the new one is accepted",
        why,
    )
    puts = metric(members[0], "etcd_mvcc_put_total")
    wait_for(lambda: metric(members[0], "etcd_mvcc_put_total") > puts + 20)  # more than a lease
    ok(not b.all("became_leader") and not held(members[2]), "another cluster: nor after a lease of the leader's")
    same(held(members[1])["storeId"], ours, "another cluster: the record says in which it was written")
    out = subprocess.run(
        [LUNARCH, "doctor", "--lock", url(*(m.port for m in members))], capture_output=True, text=True, timeout=300
    ).stdout
    ok(
        re.search(rf"UNFIT +endpoints .*{ours}.*{other}", out) and "NOT fit" in out,
        "another cluster: doctor asks each endpoint, and says which is none of the others'",
        out,
    )
    fresh = Candidate(script, "--lock", url(members[2].port, members[0].port, members[1].port), "--identity", "fresh")
    ok(
        fresh.wait("acquire_failed", "two clusters") and not fresh.all("became_leader") and not held(members[2]),
        "another cluster: who has just begun, and meets it first, asks the other endpoints, and makes no key there",
        fresh.events,
    )
    fresh.stop()
    ctl("reload")
    ok(b.wait("became_leader"), "another cluster: a reload accepts it")
    same((held(members[2]) or {}).get("storeId"), other, "another cluster: and the record there says so")
    stop_everyone()
    d.end()

    # Released, by a copy of the data that is older than what another candidate may hold in the cluster it came from.
    gone = held(members[2])
    kept = json.dumps({**gone, "storeId": ours, "leaseDurationMs": 2000, "leaseDurationSeconds": 2}).encode()
    asked = json.dumps({"key": b64(key.encode()), "value": b64(kept)}).encode()
    urllib.request.urlopen(f"http://127.0.0.1:{members[2].port}/v3/kv/put", asked, timeout=30).close()
    c = Candidate(script, "--lock", url(members[2].port), "--identity", "c")
    moved = c.wait("other_store", ours)
    led = c.event("became_leader")
    ok(
        moved and other in moved["message"] and led["seen"] - c.events[0]["seen"] >= 5.5,
        "another cluster: a released record that was written in another one is waited out for a whole lease of 6 s",
        c.events,
    )
    stop_everyone()
    for m in members:
        m.close()


def riding_out() -> None:
    """A cluster that loses its leader costs its leader's election, not ours: 15/10/2 rides it out."""
    members = servers.Etcd.cluster(3)
    url = "etcd://" + ",".join(f"127.0.0.1:{m.port}" for m in members) + "/ride"
    a = Candidate("--lock", url, "-e", LEAD, options=[])
    led = a.wait("became_leader")
    b = Candidate("--lock", url, "-e", LEAD, options=[])
    led = b.wait("new_leader") and led
    leader = wait_for(lambda: [m for m in members if leads(m)])[0]
    leader.kill()
    survivors = [m for m in members if m is not leader]

    def written() -> Any:
        return metric(survivors[0], "etcd_mvcc_put_total")  # every member applies them

    before = written()
    ok(wait_for(lambda: written() >= before + 4), "leader loss: renewals go on with the others")
    if not ok(
        led and not a.all("stopped_leading") and not b.all("became_leader"),
        "leader loss: at 15/10/2 the term goes on, and nobody else leads",
    ):
        a.log()
        b.log()
    stop_everyone()
    for m in members:
        m.close()


def nothing_is_taken_over() -> None:
    store = Etcd()
    store.put("taken", b"config of another program")
    c = Candidate("--lock", store.url("taken"), "-e", LEAD)
    ok(c.wait("foreign_record"), "foreign: a candidate says that the key has another program's value")
    time.sleep(2)
    same(
        (store.get("taken"), len(c.all("became_leader"))),
        (b"config of another program", 0),
        "foreign: does not lead, and does not touch it",
    )
    same(len(c.all("foreign_record")), 1, "foreign: and says it once")
    store.auth("me", SECRET)
    d = Candidate("--lock", f"etcd://me:geheim@127.0.0.1:{store.port}/mine/x", "-e", LEAD)
    told = d.wait("read_failed")
    ok(told and "geheim" not in str(told), "wrong password: a candidate says so, without it")
    time.sleep(2)
    same(
        (len(d.all("became_leader")), len(d.all("read_failed"))),
        (0, 1),
        "wrong password: it does not lead, and says it once",
    )
    e = Candidate("--lock", store.url("mine/x"), "-e", LEAD)
    ok(e.wait("became_leader"), "right password: it leads")
    with open(f"/proc/{e.pid}/cmdline") as f:
        shown = f.read()
    environs = ""
    for pid in (e.guard(), e.worker()):
        with open(f"/proc/{pid}/environ") as f, open(f"/proc/{pid}/cmdline") as g:
            environs += f.read() + g.read()
    ok(
        SECRET not in environs and "geheim" not in environs and "ge%2Fhe" not in environs,
        "secrets: none in the processes that the script runs in",
    )
    ok(
        "***" in shown and SECRET not in shown and "ge%2Fhe" not in shown,
        "secrets: none in the command line that ps shows",
        shown,
    )
    stop_everyone()
    store.end()


# ---- what is not etcd ----


def page(status: int, body: bytes) -> tuple[Any, str, str]:
    """What a web server, or a proxy that speaks no HTTP/2, says to whoever speaks it."""
    s, url = talker(b"HTTP/1.1 %d Reason\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body))
    return s, url.replace("etcd://", "etcd://me:geheim@"), url


class Deaf(Proxy):
    """Can keep to itself, for ever, what comes down on some connections; TCP acknowledges all of it."""

    def __init__(self, port: int) -> None:
        self.deaf: list[Any] = []
        super().__init__(port)

    async def _pump(self, pair: Any, reader: Any, writer: Any, way: Any, name: str) -> None:
        await super()._pump(pair, Ear(self, pair, reader, name), writer, way, name)


class Ear:
    def __init__(self, proxy: Any, pair: Any, reader: Any, name: str) -> None:
        self.proxy, self.pair, self.reader, self.name = proxy, pair, reader, name

    async def read(self, count: int) -> Any:
        while True:
            piece = await self.reader.read(count)
            # A WatchResponse about no watch: field 2 is -1 (protobuf's varint of it).
            if self.name == "down" and b"\x10" + b"\xff" * 9 + b"\x01" in piece:
                self.pair["alive"] = self.pair.get("alive", 0) + 1
            if not piece or self.name == "up" or not any(p is self.pair for p in self.proxy.deaf):
                return piece


def deaf_stream() -> None:
    """A proxy from which nothing comes any more on the watch alone, and which says nothing of that."""
    with servers.Etcd() as server:
        proxy = Deaf(server.port)
        d, e = Driver(), Driver()
        d.open(f"etcd://127.0.0.1:{proxy.port}/x")
        e.open(server.url("x"))
        d.do("watch")
        w = e.write(record("a"), "")
        ok(d.noticed(0), "deaf stream: at first it tells of changes")
        ok(
            wait_for(lambda: any(p.get("alive", 0) >= 2 for p in list(proxy.pairs))),
            "deaf stream: with nothing to tell it lasts, and says that it is there",
        )
        d.read()
        quiet, proxy.deaf = d.count(), list(proxy.pairs)
        e.write(record("b"), w["version"])
        ok(
            d.noticed(quiet),
            "deaf stream: one that says nothing any more is replaced, and what it did not tell is noticed",
        )
        same(d.read().get("record", {}).get("holderIdentity"), "b", "deaf stream: and read")
        d.end(), e.end()
        proxy.close()


def grpc_proxy() -> None:
    """etcd's own proxy, which gives watches numbers of its own, whatever they are asked for."""
    with servers.Etcd() as server:
        port = servers.free_port()
        proxy = subprocess.Popen(
            [
                os.environ.get("ETCD", "etcd"),
                "grpc-proxy",
                "start",
                f"--endpoints=127.0.0.1:{server.port}",
                f"--listen-addr=127.0.0.1:{port}",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        d, e, names = Driver(), Driver(), ("p", "q", "r")
        for name in names:
            d.open(f"etcd://127.0.0.1:{port}/{name}", name)
            e.open(server.url(name), name)
        ok(wait_for(lambda: d.read("p")["outcome"] == "absent"), "etcd's grpc-proxy: reads come through")
        told = []
        for name in names:
            d.do("watch", name)
            w = d.write(record("first"), "", name)
            told.append(w["outcome"])
            d.read(name)
        same(told, ["ok"] * 3, "etcd's grpc-proxy: and writes")

        def noticed() -> bool:
            before = d.count("q")
            e.write(record("second"), e.read("q")["version"], "q")
            return d.noticed(before, "q", patience=0.5)

        ok(wait_for(noticed), "etcd's grpc-proxy: a notice reaches the lock that it is for")
        same(
            [d.read(n)["record"]["holderIdentity"] for n in names],
            ["first", "second", "first"],
            "etcd's grpc-proxy: each lock has its own record",
        )
        d.end(), e.end()
        proxy.kill()
        proxy.wait()


def between_two() -> None:
    """A proxy that passes each call to one of two clusters: by one connection both answer."""
    first, second = servers.Etcd(), servers.Etcd()
    port = servers.free_port()
    proxy = subprocess.Popen(
        [
            os.environ.get("ETCD", "etcd"),
            "grpc-proxy",
            "start",
            f"--endpoints=127.0.0.1:{first.port},127.0.0.1:{second.port}",
            f"--listen-addr=127.0.0.1:{port}",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    d = Driver()
    d.open(f"etcd://127.0.0.1:{port}/k")
    direct = {id_of(s): s for s in (first, second)}
    used, strange, wrong, i = "", 0, [], 0
    end = time.monotonic() + PATIENCE  # the proxy begins with the cluster to which it is connected first
    while i < 40 or (not strange and time.monotonic() < end):
        i += 1
        r = d.read(within=5000)
        w = d.write(record(str(i)), r.get("version", ""), within=5000)
        told = [x.get("err", {}).get("text", "") for x in (r, w)]
        strange += any("belongs to the cluster" in t for t in told)
        if w["outcome"] == "ok":
            used = used or w["version"].split("-")[1]
            there = held(direct[used], "k") or {}
            if there.get("holderIdentity") != str(i):
                wrong.append(w)
    ok(strange > 0, f"between two clusters: {strange} answers are of the other one")
    same(wrong, [], "between two clusters: no write succeeds by the other one's answer")
    d.end()
    proxy.kill()
    proxy.wait()
    first.close()
    second.close()


def talker(text: bytes) -> tuple[Any, str]:
    s = socket.socket()
    s.bind(("127.0.0.1", 0))
    s.listen(50)

    def serve() -> None:
        while True:
            try:
                one, _ = s.accept()
            except OSError:
                return
            try:
                one.sendall(text)
                one.recv(65536)
                time.sleep(0.05)
            finally:
                one.close()

    threading.Thread(target=serve, daemon=True).start()
    return s, f"etcd://127.0.0.1:{s.getsockname()[1]}/x"


def strangers() -> None:
    """Each with a clear error, never a takeover."""
    for status, body in (
        (200, b"<html>hello</html>"),
        (200, b"{}"),
        (200, b'{"header":{}}'),
        (200, b"[]"),
        (404, b"Not Found"),
        (500, b"oops"),
        (302, b""),
        (200, b'{"header":{"revision":"-5"},"kvs":[{"mod_revision":"x","value":"!"}]}'),
    ):
        server, login, plain = page(status, body)
        refused(plain, ["failed"], "127.0.0.1.*no etcd, or a proxy", f"not etcd: HTTP {status} {body[:30].decode()!r}")
        refused(login, ["failed"], "no etcd, or a proxy", f"not etcd: HTTP {status} at the login")
        server.close()
    for text in (b"-ERR unknown command\r\n", b"\x15\x03\x01\x00\x02\x02\x28", b"SSH-2.0-OpenSSH_9\r\n", b""):
        s, url = talker(text)
        refused(url, ["failed"], "127.0.0.1", f"not etcd: a server that says {text[:20]!r}")
        s.close()
    redis = servers.Redis()
    refused(f"etcd://127.0.0.1:{redis.port}/x", ["failed"], "127.0.0.1", "not etcd: a Redis")
    redis.close()
    refused(
        "etcd://no-such-host.invalid/x",
        ["failed"],
        "no-such-host.invalid",
        "a host that does not resolve is named",
        20000,
    )
    refused("etcd://127.0.0.1:1/", ["not opened"], "key is missing", "a URL without a key")
    refused("etcd://127.0.0.1:1/x?tls=yes", ["not opened"], 'no option "tls"', "an unknown option")
    refused("etcd://me:geheim@127.0.0.1:99999/x", ["not opened"], "port", "a wrong port")


def segments(proxy: Proxy) -> int:
    """With data, that came from the clients on its connections (struct tcp_info of linux/tcp.h: tcpi_data_segs_in)."""
    sockets = [pair["client"].get_extra_info("socket") for pair in proxy.pairs]
    infos = [s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 160) for s in sockets]
    return sum(int.from_bytes(info[152:156], sys.byteorder) for info in infos)


def side_by_side() -> None:
    """What is asked at the same time leaves in one piece."""
    with servers.Etcd() as server:
        proxy = Proxy(server.port)
        d, names = Driver(), [f"n{i}" for i in range(30)]
        for name in names:
            d.open(f"etcd://127.0.0.1:{proxy.port}/{name}", name)
        d.read(names[0])
        before, first = segments(proxy), (d.number or 0) + 1
        commands: list[dict[str, Any]] = [
            {"id": first + i, "do": "read", "lock": name, "within_ms": 20000} for i, name in enumerate(names)
        ]
        d.number = first + len(names) - 1
        d.to.write("".join(json.dumps(c) + "\n" for c in commands))
        d.to.flush()
        outcomes = {d.wait(c["id"])["outcome"] for c in commands}
        came = segments(proxy) - before
        note(f"{came} segments")
        # The answers may come in pieces, each with a question of HTTP/2's own to be answered.
        ok(outcomes == {"absent"} and came <= 20, "side by side: thirty questions leave together")
        same(d.end(), 0, "side by side: and the locks close in peace")
        proxy.close()


def space() -> None:
    store = Etcd("--quota-backend-bytes", str(4 * 1024 * 1024))
    run(store, [lock_cases.full])
    store.end()


def full_disk() -> None:
    """etcd ends; with room again, and started again, it has what it had."""
    if os.geteuid() != 0:
        skip("out of space", "mounting a small disk needs root")
        return
    store = FullEtcd()
    run(store, [lock_cases.full])
    store.end()


def timed(job: Any) -> Any:
    def run_it() -> None:
        began = time.monotonic()
        job()
        note(f"{job.__name__} took {time.monotonic() - began:.1f} s")

    run_it.__name__ = job.__name__
    return run_it


def main() -> None:
    certificates()
    chosen = sys.argv[1:]
    together, apart = [
        users,
        listing,
        next_rights,
        expiry,
        tls,
        certificate_users,
        endpoints,
        strangers,
        side_by_side,
        grpc_proxy,
        between_two,
        space,
        deaf_stream,
        full_disk,
    ], [costs, elections, begun_anew, another_cluster, riding_out, nothing_is_taken_over]
    at_once(*(timed(job) for job in together if not chosen or job.__name__ in chosen))
    for job in apart:
        if not chosen or job.__name__ in chosen:
            at_once(timed(job))
    shutil.rmtree(where)


main()
done()

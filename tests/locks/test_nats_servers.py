#!/usr/bin/env -S PYTHONPATH=. python3
"""The NATS lock, on nats-server: buckets that are not fit, log-ins by passwords, nkeys and JWTs, rights, TLS, markers,
and a cluster of three whose leader is frozen and killed."""

import json
import os
import ssl
import subprocess
import sys
import time
from typing import Any

from tests.lib.cloud_servers import built
from tests.lib.lock_driver import WITHIN, Driver, record, tried
from tests.lib.nats_servers import BUCKET, STREAM, Client, Nats, Nkey, Operator
from tests.lib.pki import Pki
from tests.lib.processes import LUNARCH, PATIENCE, scratch, wait_for
from tests.lib.tap import at_once, done, ok, same, skip

SHORT = 3000  # ms; for operations that are to fail soon


def url(server: Any, key: str = "k", bucket: str = BUCKET, login: str = "") -> str:
    return f"nats://{login}127.0.0.1:{server.port}/{bucket}#{key}"


def opened(at: str) -> Driver:
    d = Driver()
    o = d.open(at)
    if not o["ok"]:
        raise RuntimeError(o["err"])
    return d


def text_of(result: dict[str, Any]) -> str:
    return str(result.get("err", {}).get("text", ""))


def refused(at: str, *words: str) -> None:
    d = Driver()
    o = d.open(at)
    r = d.read(within=SHORT) if o["ok"] else {"outcome": "refused", "err": o["err"]}
    good = r["outcome"] == "refused" and all(w in text_of(r) for w in words)
    ok(good and "s3cret" not in text_of(r), f"{at.split('@')[-1].split('/', 1)[1]}: refused: {words}", r)
    d.end()


def buckets() -> None:
    server = Nats()
    unfit: tuple[tuple[str, dict[str, Any], str], ...] = (
        ("ttl", {"max_age": 3600 * 10**9}, "TTL"),
        ("full", {"max_bytes": 10**6, "discard": "old"}, "discard: new"),
        ("copy", {"mirror": {"name": STREAM}, "subjects": []}, "mirror"),
        ("fed", {"sources": [{"name": STREAM}]}, "sources"),
        ("later", {"persist_mode": "async", "allow_atomic": False}, "persist_mode"),
    )
    for name, more, word in unfit:
        made = server.make_bucket(**{"name": f"KV_{name}", "subjects": [f"$KV.{name}.>"], **more})
        ok("error" not in made, f"buckets: {name} is made", made)
        refused(url(server, bucket=name), "not fit", word)
    refused(url(server, bucket="none"), "there is no bucket none", "nats kv add none")
    refused(url(server, bucket="a.b"), "BUCKET#KEY")
    made = server.make_bucket(name="KV_history", subjects=["$KV.history.>"], max_msgs_per_subject=5)
    d = opened(url(server, bucket="history"))
    versions = [""]
    for i in range(7):
        versions.append(d.write(record(f"w{i}"), versions[-1])["version"])
    same(d.read()["version"], versions[-1], "buckets: one with a history: the last is read")
    same(d.write(record("x"), versions[-2])["outcome"], "conflict", "buckets: and an older one is not met")
    d.end()
    server.make_bucket(name="KV_memory", subjects=["$KV.memory.>"], storage="memory")
    said = subprocess.run([LUNARCH, "doctor", "--lock", url(server, bucket="memory")], capture_output=True, text=True)
    ok(said.returncode == 1 and "in memory" in said.stdout, "buckets: in memory: doctor says: unfit", said.stdout)
    said = subprocess.run([LUNARCH, "doctor", "--lock", url(server)], capture_output=True, text=True)
    good = said.returncode == 0 and "sync_interval" in said.stdout and "one replica" in said.stdout
    ok(good, "buckets: in a file: doctor tells of sync_interval and replicas", said.stdout)
    server.close()


def markers() -> None:
    """What NATS' own clients leave of a deleted key is no record, and the next write is on its condition."""
    server = Nats()
    d = opened(url(server))
    first = d.write(record("a"), "")
    server.put(f"$KV.{BUCKET}.k", b"", "KV-Operation: DEL\r\n")
    r = d.read()
    same(r["outcome"], "absent", "markers: a deleted key has no record")
    same(d.write(record("b"), first["version"])["outcome"], "conflict", "markers: who read it before conflicts")
    w = d.write(record("c"), r.get("version", ""))
    same(w["outcome"], "ok", "markers: who has read the marker writes")
    gone = d.do("remove", expected=w["version"], within_ms=WITHIN)
    same(gone["outcome"], "ok", "markers: the record is removed")
    same(server.info()["state"]["messages"], 0, "markers: and nothing stays")
    w = d.write(record("d"), "")
    ok(w["outcome"] == "ok" and int(w["version"]) > int(first["version"]), "markers: versions go on", w)
    server.put(f"$KV.{BUCKET}.k", b"", "KV-Operation: PURGE\r\nNats-Rollup: sub\r\n")
    same(d.read()["outcome"], "absent", "markers: nor has one that was purged")
    server.put(f"$KV.{BUCKET}.k", b"some text")
    same(d.read()["outcome"], "foreign", "markers: what is no record is foreign")
    d.end()
    server.close()


RIGHTS = f"""
authorization {{ users: [
  {{ user: root, password: root }}
  {{ user: zoe, password: s3cret, permissions: {{
      publish: ["$KV.{BUCKET}.k", "$KV.{BUCKET}.k.next", "$JS.API.STREAM.INFO.{STREAM}",
        "$JS.API.STREAM.MSG.GET.{STREAM}", "$JS.API.CONSUMER.CREATE.{STREAM}.>"]
      subscribe: ["_INBOX.>"] }} }}
  {{ user: reader, password: s3cret, permissions: {{
      publish: ["$JS.API.STREAM.INFO.{STREAM}", "$JS.API.STREAM.MSG.GET.{STREAM}"], subscribe: ["_INBOX.>"] }} }}
] }}
"""


def rights() -> None:
    server = Nats(RIGHTS, login={"user": "root", "pass": "root"})
    d = opened(url(server, login="zoe:s3cret@"))
    w = d.write(record("a"), "")
    same(w["outcome"], "ok", "rights: those of docs/stores/nats.md do")
    seen = d.count()
    d.do("watch")
    server.put(f"$KV.{BUCKET}.k", b"{}")
    ok(d.noticed(seen), "rights: for notices, too")
    d.end()
    d = opened(url(server, login="reader:s3cret@"))
    began = time.monotonic()
    w = d.write(record("a"), "")
    good = w["outcome"] == "refused" and "Permissions Violation" in text_of(w) and "docs/stores/nats.md" in text_of(w)
    ok(good, "rights: who may only read is told so", w)
    ok(time.monotonic() - began < PATIENCE, "rights: at once")
    d.end()
    refused(url(server, login="zoe:wrong-s3cret@"), "Authorization Violation")
    refused(url(server), "Authorization Violation")
    server.close()
    server = Nats('authorization { token: "s3cret" }', login={"auth_token": "s3cret"})
    d = opened(url(server, login=":s3cret@"))
    same(d.write(record("a"), "")["outcome"], "ok", "rights: a token")
    d.end()
    refused(url(server, login="zoe@"), "nats://:TOKEN@HOST")
    server.close()


def with_option(server: Any, option: str) -> str:
    return url(server).replace("#", f"?{option}#")


def file_of(text: str, name: str) -> str:
    path = os.path.join(scratch(), name)
    with open(path, "w") as f:
        f.write(text)
    return path


def nkeys() -> None:
    where = scratch()
    mine, other, account = Nkey(where, "user"), Nkey(where, "user"), Nkey(where, "account")
    server = Nats(f"authorization {{ users: [ {{ nkey: {mine.public} }} ] }}", login={"key": mine})
    d = opened(with_option(server, f"nkey={file_of(mine.seed + chr(10), 'mine')}"))
    same(d.write(record("a"), "")["outcome"], "ok", "nkeys: a user's seed in a file")
    seen = d.count()
    d.do("watch")
    server.put(f"$KV.{BUCKET}.k", b"{}")
    ok(d.noticed(seen), "nkeys: for notices, too")
    d.end()
    wrong = (
        ("other", other.seed, "Authorization Violation"),
        ("account", account.seed, "the seed of an account or operator"),
        ("short", mine.seed[:-1], "damaged or cut off"),
        ("typo", mine.seed[:20] + ("A" if mine.seed[20] != "A" else "B") + mine.seed[21:], "damaged or cut off"),
        ("public", mine.public, "found none"),
        ("empty", "", "is empty"),
    )
    for name, text, said in wrong:
        refused(with_option(server, f"nkey={file_of(text, name)}"), said)
    refused(with_option(server, "nkey=/nonexistent"), "nkey: /nonexistent: No such file")
    refused(with_option(server, f"creds={file_of(mine.seed, 'bare')}"), "nsc generate creds", "JWT")
    refused(url(server, login="zoe:s3cret@").replace("#", "?nkey=x#"), "found two")
    refused(with_option(server, "nkey=x&creds=y"), "found two")
    server.close()
    plain = Nats()
    refused(with_option(plain, f"nkey={file_of(mine.seed, 'plain')}"), "without nkeys or JWTs")
    plain.close()


def credentials() -> None:
    operator, stranger = Operator(scratch()), Operator(scratch())
    key, token = operator.user("root")
    server = Nats(operator.settings, login={"key": key, "jwt": token})
    d = opened(with_option(server, f"creds={operator.creds('zoe')}"))
    w = d.write(record("a"), "")
    same(w["outcome"], "ok", "credentials: a file with a token and a seed")
    d.end()
    refused(with_option(server, f"creds={stranger.creds('zoe')}"), "Authorization Violation")
    refused(with_option(server, f"creds={operator.creds('late', -60)}"), "Authorization Violation")
    short = operator.creds("short", 15)  # a busy machine has logged in by then
    d = opened(with_option(server, f"creds={short}"))
    same(tried(lambda: d.read(), "ok").get("version"), w["version"], "credentials: a token that ends soon")
    d.do("watch")
    ended = wait_for(lambda: d.read(within=SHORT)["outcome"] != "ok")
    ok(ended, "credentials: with it the connection ends, and another is refused")
    operator.creds("short")
    r = tried(lambda: d.read(), "ok")
    same(r.get("version"), w["version"], "credentials: the file is renewed: the lock goes on with it")
    same(d.write(record("b"), w["version"])["outcome"], "ok", "credentials: and is written")
    d.end()
    with open(short) as f:
        secrets = [line for line in f.read().split() if len(line) > 50 and "-" not in line[:4] and "*" not in line]
    at = with_option(server, f"creds={short}").replace("#k", "#x")
    shown = ""
    for command in (["doctor"], ["exec", "--log-level", "debug", "--", "true"]):
        run = [LUNARCH, command[0], "--lock", at, *command[1:]]
        said = subprocess.run(run, capture_output=True, text=True, timeout=PATIENCE)
        ok(said.returncode == 0 and len(secrets) == 2, f"credentials: {command[0]} is content", said.stderr)
        shown += said.stdout + said.stderr
    ok(not any(s in shown for s in secrets), "credentials: neither token nor seed is shown", shown)
    server.close()


def tls() -> None:
    pki = Pki(scratch())
    cert, key = pki.server()
    mine, mine_key = pki.sign("client", "/CN=client")
    block = f'tls {{ cert_file: "{cert}", key_file: "{key}", ca_file: "{pki.ca}", verify: true %s }}'
    context = ssl.create_default_context(cafile=pki.ca)
    context.load_cert_chain(mine, mine_key)
    server = Nats(block % "", tls=context)
    ours = f"ca={pki.ca}&cert={mine}&key={mine_key}"
    at = url(server).replace("#", f"?{ours}#")
    d = opened(at)
    same(d.write(record("a"), "")["outcome"], "ok", "TLS: with the authority's and the client's certificates")
    d.end()
    for what, options in (("without the authority", f"cert={mine}&key={mine_key}"), ("without ours", f"ca={pki.ca}")):
        d = opened(url(server).replace("#", f"?{options}#"))
        r = d.read(within=SHORT)
        ok(r["outcome"] in ("failed", "refused") and text_of(r), f"TLS: {what} it fails: {text_of(r)}")
        d.end()
    d = opened(url(server).replace("#", f"?{ours}&server_name=other.example#"))
    r = d.read(within=SHORT)
    ok(r["outcome"] in ("failed", "refused") and "other.example" in text_of(r), f"TLS: another's name: {text_of(r)}")
    d.end()
    server.close()
    first = Nats(block % ", handshake_first: true", tls=context, login={"tls_first": True})
    d = opened(url(first).replace("#", f"?{ours}&tls_first=yes#"))
    w = d.write(record("a"), "")
    same(w["outcome"], "ok", "TLS: before the server says anything")
    seen = d.count()
    d.do("watch")
    first.put(f"$KV.{BUCKET}.k", b"{}")
    ok(d.noticed(seen), "TLS: for notices, too")
    d.end()
    d = opened(url(first).replace("#", f"?{ours}#"))
    r = d.read(within=SHORT)
    ok(r["outcome"] == "failed" and "tls_first" in text_of(r), f"TLS: without tls_first it is named: {text_of(r)}")
    d.end()
    first.close()
    plain = Nats()
    refused(url(plain).replace("#", "?tls=yes#"), "offers none")
    plain.close()


def leader_is_hurt() -> None:
    """Three servers and three replicas; all three addresses are in the URL."""
    members = Nats.cluster(3)
    hosts = ",".join(f"127.0.0.1:{m.port}" for m in members)
    d = opened(f"nats://{hosts}/{BUCKET}#cluster")
    d.write(record("a"), "")
    seen = d.count()
    d.do("watch")
    for hurt in ("pause", "kill"):
        leads = wait_for(lambda: next((m for m in members if m.process and m.leads()), None))
        assert leads
        getattr(leads, hurt)()

        def written() -> dict[str, Any]:
            return d.write(record(hurt), tried(lambda: d.read(), "ok").get("version", ""))

        w = tried(written, "ok")
        r = tried(lambda: d.read(), "ok")
        same(
            (w["outcome"], r.get("record", {}).get("holderIdentity")),
            ("ok", hurt),
            f"cluster: its leader has met {hurt}: another is elected, and the lock goes on",
        )
        if hurt == "pause":
            leads.resume()
        else:
            leads.whole = False
            leads.start()
            leads.whole = True
        ok(wait_for(leads.ready), "cluster: the one that was hurt goes on, and follows")
    for m in members:  # with the server that has the consumer the notices end, and begin anew
        m.whole = False
        m.restart()
        m.whole = True
        ok(wait_for(m.ready), "cluster: one after the other is started again")
    seen = d.count()
    other = opened(f"nats://{hosts}/{BUCKET}#cluster")

    def told() -> bool:
        other.write(record("told"), tried(lambda: other.read(), "ok").get("version", ""))
        return d.count() > seen

    ok(wait_for(told), "cluster: and there are notices again")
    for each in d, other:
        each.end()
    for m in members:
        m.close()


def raw() -> None:
    """The tests' own client sees what the lock has written as NATS' clients do: a key of a bucket."""
    server = Nats()
    d = opened(url(server, "some%20place/k"))
    d.write(record("a"), "")
    found = server.get(f"$KV.{BUCKET}.some=20place/k")
    same(json.loads(found or b"{}").get("holderIdentity"), "a", "raw: a key is escaped as buckets want it")
    c = Client((server.host, server.port))
    c.send("PUB x 0\r\n\r\nNONSENSE\r\n")
    c.close()
    d.end()
    server.close()


if not os.path.exists(built("nats", "nats-server")):
    skip("the NATS lock", "nats-server is not built: make test-stores does")
    done()
    sys.exit()
at_once(buckets, markers, rights, nkeys, credentials, tls, raw)
leader_is_hurt()
done()

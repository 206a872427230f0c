#!/usr/bin/env -S PYTHONPATH=. python3
"""The Consul lock passes the conformance suite on Consul itself (make test-stores builds it), and its own cases."""

import base64
import http.server
import json
import os
import subprocess
import sys
import threading
import time
import uuid
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.lib import lock_cases
from tests.lib.candidates import Candidate
from tests.lib.driver_player import Driver as Player
from tests.lib.lock_cases import BASIC, NETWORK, REPEATED, SERVER, full, read_only, run
from tests.lib.lock_driver import WITHIN, Driver, opened, record, tried
from tests.lib.pki import Pki
from tests.lib.processes import LUNARCH, PATIENCE, ROOT, scratch, wait_for
from tests.lib.servers import Consul as Server, free_port
from tests.lib.stores import Consul, ConsulWithRights, FullConsul
from tests.lib.tap import at_once, done, ok, same, skip

SHORT = 3000  # ms; for operations that are to fail soon


def text_of(result: dict[str, Any]) -> str:
    return str(result.get("err", {}).get("text", ""))


class Fake:
    """What answers as Consul would, from a table: (method, path) -> (status, headers, body), or a function of the query
    and the body that returns one. What is not there is a 404 of no Consul."""

    def __init__(self, answers: Any) -> None:
        fake, self.answers, self.asked = self, answers, []  # type: ignore[var-annotated]

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                pass

            def answer(self) -> None:
                url = urlsplit(self.path)
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                query = parse_qs(url.query, keep_blank_values=True)
                fake.asked.append((self.command, url.path, query, dict(self.headers)))
                found = fake.answers.get((self.command, url.path), (404, {}, b"none"))
                status, headers, content = found(query, body) if callable(found) else found
                try:
                    self.send_response(status)
                    for name, value in {**headers, "Content-Length": str(len(content))}.items():
                        self.send_header(name, value)
                    self.end_headers()
                    self.wfile.write(content)
                except OSError:
                    pass  # who asked is gone

            do_GET = do_PUT = do_DELETE = answer

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def url(self, key: str = "k") -> str:
        return f"consul://127.0.0.1:{self.port}/{key}"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


def entry(rec: dict[str, Any], index: int, key: str = "k", **more: str) -> bytes:
    value = base64.b64encode(json.dumps(rec).encode()).decode()
    return json.dumps([{"Key": key, "Value": value, "ModifyIndex": index, "Flags": 0, **more}]).encode()


def stale(_query: Any, _body: Any) -> Any:
    return 409, {}, b'{"Results":null,"Errors":[{"OpIndex":0,"What":"failed to set key \\"k\\", index is stale"}]}'


def answers() -> None:
    """What each answer to a write means, and to a read."""
    fake = Fake({})
    d = opened(fake.url())
    for what, answer, wanted in (
        ("the new index", (200, {}, b'{"Results":[{"KV":{"Key":"k","ModifyIndex":12}}],"Errors":null}'), "ok"),
        ("an answer about another key", (200, {}, b'{"Results":[{"KV":{"Key":"x","ModifyIndex":12}}]}'), "unknown"),
        ("an index of 0", (200, {}, b'{"Results":[{"KV":{"Key":"k","ModifyIndex":0}}]}'), "unknown"),
        ("what is no JSON", (200, {}, b"<html>"), "unknown"),
        ("a stale index", stale(0, 0), "conflict"),
        ("a denial in the transaction", (409, {}, b'{"Errors":[{"What":"Permission denied: lacks"}]}'), "refused"),
        ("another reason to roll back", (409, {}, b'{"Errors":[{"What":"something else"}]}'), "failed"),
        ("a denial", (403, {}, b"ACL not found"), "refused"),
        ("too large", (413, {}, b"Request body too large"), "invalid"),
        ("a rate limit", (429, {}, b"rate limit exceeded"), "failed"),
        ("no leader", (500, {}, b"No cluster leader"), "failed"),
        ("a leader that was deposed", (500, {}, b"leadership lost while committing log"), "unknown"),
        ("a gateway's trouble", (502, {}, b""), "unknown"),
        ("a redirection", (301, {"Location": "/elsewhere"}, b""), "refused"),
    ):
        fake.answers["PUT", "/v1/txn"] = answer
        w = d.write(record("a"), "7")
        ok(w["outcome"] == wanted, f"answers: a write, {what}: {wanted}", w)
        if wanted == "ok":
            same(w["version"], "12", "answers: whose version is the transaction's index")
    same(d.write(record("a"), "seven")["outcome"], "conflict", "answers: no key ever has a version that is no index")
    for what, answer, wanted in (
        ("a record", (200, {}, entry(record("a"), 9)), "ok"),
        ("no such key", (404, {"X-Consul-Index": "9"}, b""), "absent"),
        ("another server's 404", (404, {}, b"not found"), "refused"),
        ("another key's record", (200, {}, entry(record("a"), 9, "other")), "failed"),
        ("a value that is no base64", (200, {}, b'[{"Key":"k","Value":"?","ModifyIndex":9}]'), "failed"),
        ("a key that a session holds", (200, {}, entry(record("a"), 9, Session="5e55")), "foreign"),
        ("no leader", (500, {}, b"No cluster leader"), "failed"),
        ("a denial", (403, {}, b"Permission denied"), "refused"),
    ):
        fake.answers["GET", "/v1/kv/k"] = answer
        r = d.read()
        same(r["outcome"], wanted, f"answers: a read, {what}: {wanted}")
    ok('key "k" { policy = "write" }' in text_of(r), "answers: of a denial it is said which policy is needed", r)
    ok(
        all("consistent" in q for m, _, q, _ in fake.asked if m == "GET" and "index" not in q),
        "answers: each read asks for a consistent answer",
    )
    d.end()
    fake.close()


class Indexed:
    """A key whose blocking queries answer at once when the index that they name is not the present one."""

    def __init__(self) -> None:
        self.index, self.rec, self.change = 50, record("a"), threading.Condition()

    def set(self, index: int, rec: Any) -> None:
        with self.change:
            self.index, self.rec = index, rec
            self.change.notify_all()

    def __call__(self, query: dict[str, list[str]], _body: bytes) -> tuple[int, dict[str, str], bytes]:
        with self.change:
            if "index" in query:
                asked = int(query["index"][0])
                self.change.wait_for(lambda: self.index != asked, 10)
            return 200, {"X-Consul-Index": str(self.index)}, entry(self.rec, max(1, self.index))


def going_back() -> None:
    """A restored snapshot: the index goes back, or is 0."""
    key = Indexed()
    fake = Fake({("GET", "/v1/kv/k"): key})
    d = opened(fake.url())
    d.read()
    ok(wait_for(lambda: d.do("watch")["watching"]), "index: it is watched")
    ok(wait_for(lambda: any("index" in q for _, _, q, _ in fake.asked)), "index: by a blocking query")
    for index, what in ((51, "goes on"), (20, "goes back"), (0, "is 0"), (21, "goes on from there")):
        before = d.count()
        key.set(index, record(f"at {index}"))
        ok(d.noticed(before), f"index: it {what}, and that is noticed")
        ok(
            wait_for(lambda: any(q.get("index") == ["51"] for _, _, q, _ in fake.asked)),
            "index: the next query names the index that was answered",
        )
    same([q for _, _, q, _ in fake.asked if q.get("index") == ["0"]], [], "index: no query names the index 0")
    d.end()
    fake.close()


def at_once_the_same() -> None:
    """What stands in between answers from a cache: nothing new, at once, for ever."""
    for index, what in (("50", "the same index"), ("0", "an index of 0"), ("", "none")):
        asked: list[float] = []

        def answer(_query: Any, _body: Any, index: str = index, asked: list[float] = asked) -> Any:
            asked.append(time.monotonic())
            return 200, {"X-Consul-Index": index} if index else {}, entry(record("a", write="7" * 32), 50)

        fake = Fake({("GET", "/v1/kv/k"): answer})
        d = opened(fake.url())
        d.read()
        ok(
            wait_for(lambda: d.do("watch")["watching"]) and wait_for(lambda: len(asked) > 12),
            f"answers at once: {what}, and the watch goes on",
        )
        took = asked[11] - asked[1]
        ok(took > 2, f"answers at once: {what}, and ten queries take {took:.1f} s")
        d.end()
        fake.close()


def several(_: Any = None) -> None:
    """Of several addresses the one that answered last is asked, and the next one when it does not."""
    store = Consul()
    key = f"several-{uuid.uuid4().hex[:8]}"
    first, second = store.proxy(), store.proxy()
    d = opened(f"consul://127.0.0.1:{first.port},127.0.0.1:{second.port}/{key}")
    version = d.write(record("a"), "")["version"]
    first.close()
    w = d.write(record("b"), version)
    same(w["outcome"], "ok", "several: the first address is gone, and the next one is asked in the same operation")
    same(d.write(record("c"), w["version"])["outcome"], "ok", "several: which is asked from then on")
    d.end()

    third, fourth = store.proxy(), store.proxy()
    d = opened(f"consul://127.0.0.1:{third.port},127.0.0.1:{fourth.port}/{key}")
    version = d.read()["version"]
    third.freeze("down")
    rec = record("twice")
    w = d.write(rec, version, within=4 * SHORT)
    same(
        (w["outcome"], d.read()["record"]["write"]),
        ("unknown", rec["write"]),
        "several: a write whose answer is lost, and that conflicts at the next address, is unknown: it was applied",
    )
    d.end()
    for p in (second, third, fourth):
        p.close()
    store.end()


def rights() -> None:
    store = ConsulWithRights()
    d = opened(store.url("mine"))
    w = d.write(record("a"), "")
    same(w["outcome"], "ok", "rights: with a token that may write the key")
    r = opened(store.url("others"))
    read = r.read()
    same(read["outcome"], "refused", "rights: one of another key is refused")
    ok("policy" in text_of(read), f"rights: with the policy that is missing: {text_of(read)}")
    same(r.write(record("a"), "")["outcome"], "refused", "rights: so is a write")
    r.end()
    secret, store.user = store.user, None
    bare = opened(store.url("mine"))
    same(bare.read()["outcome"], "refused", "rights: without a token nothing is read")
    bare.end()
    by_env = opened(store.url("mine"), CONSUL_HTTP_TOKEN=str(secret))
    same(by_env.read()["outcome"], "ok", "rights: the token can come from CONSUL_HTTP_TOKEN")
    by_env.end()
    where = os.path.join(scratch(), "token")
    with open(where, "w") as f:
        f.write("00000000-0000-0000-0000-000000000000\n")
    by_file = opened(store.url("mine") + f"?token_file={where}")
    same(by_file.read()["outcome"], "refused", "rights: a file's token that Consul does not know is refused")
    with open(where, "w") as f:
        f.write(f"{secret}\n")
    same(by_file.read()["outcome"], "ok", "rights: and the file is read again when it is")
    by_file.end()
    by_name = opened(store.url("mine"), CONSUL_HTTP_TOKEN_FILE=where)
    same(by_name.read()["outcome"], "ok", "rights: CONSUL_HTTP_TOKEN_FILE names such a file")
    by_name.end()
    ok(str(secret) not in json.dumps(d.open(store.url("mine"), "again")), "rights: no token is printed")
    d.end()
    store.end()


def as_documented(store: Consul, *rules: str) -> str:
    """A token with these of the rules that docs/stores/consul.md lists."""
    with open(os.path.join(ROOT, "docs", "stores", "consul.md")) as f:
        page = f.read()
    missing = [r for r in rules if r not in page]
    same(missing, [], "documented: the page has the rules that are tried")
    made = store.call(
        "PUT", "/v1/acl/policy", {"Name": uuid.uuid4().hex, "Rules": "\n".join(rules).replace("PREFIX", "back")}
    )
    return str(store.call("PUT", "/v1/acl/token", {"Policies": [{"ID": made["ID"]}]})["SecretID"])


OWN = ('key "backup" { policy = "write" }', 'key "backup.next" { policy = "write" }')
DOCTORS, AGENTS = 'key_prefix "backup" { policy = "write" }', 'agent_prefix "" { policy = "read" }'
LISTERS = 'key_prefix "PREFIX" { policy = "read" }'


def documented() -> None:
    """A token that may do what docs/stores/consul.md says, and no more."""
    store = ConsulWithRights()

    def says(token: str, *args: str) -> tuple[int, str]:
        store.user = token
        p = subprocess.run([LUNARCH, *args], capture_output=True, text=True, timeout=PATIENCE)
        return p.returncode, p.stdout + p.stderr

    lock = as_documented(store, *OWN)
    store.user = lock
    c = Candidate("--lock", store.url("backup"), "-e", 'print("leads") sleep(1000)')
    ok(c.wait("print", "leads"), "documented: the two keys do for a term")
    key, prefix = (store.url(k).replace(lock, "{}") for k in ("backup", "back"))
    lister = as_documented(store, LISTERS)
    status, said = says(lister, "list", prefix.format(lister))
    ok(status == 0 and "backup" in said, "documented: a prefix that may be read does for list", said)
    other = as_documented(store, AGENTS)
    status, said = says(other, "list", prefix.format(other))
    ok(status != 0 and "backup  " not in said, "documented: without that nothing is listed", said)
    same(c.stop(), 0, "documented: but to release the lock they do")
    whole, some = as_documented(store, DOCTORS, AGENTS), as_documented(store, DOCTORS)
    status, said = says(whole, "doctor", "--lock", key.format(whole))
    ok(status == 0 and "is fit" in said and "Consul 1." in said, "documented: doctor's rights do for doctor", said)
    status, said = says(some, "doctor", "--lock", key.format(some))
    ok(status == 0 and 'agent_prefix ""' in said, "documented: without the agent's it does not know the version", said)
    status, said = says(lock, "doctor", "--lock", key.format(lock))
    ok(
        status != 0 and "the token needs a policy" in said,
        "documented: a lock's own rights are not enough for doctor",
        said,
    )
    store.end()


def datacenter() -> None:
    """?dc= is said with each request: one that Consul does not know is no place to read or write."""
    store = Consul({"datacenter": "here"})
    for dc, good in ("here", True), ("elsewhere", False):
        d = opened(store.url("dc") + "?dc=" + dc)
        read = d.read()
        same(read["outcome"] == "absent", good, f"datacenter: {dc}: a read: {text_of(read)}")
        w = d.write(record("a"), "")
        same(w["outcome"] == "ok", good, f"datacenter: {dc}: a write: {text_of(w)}")
        seen = d.count()
        d.do("watch")
        store.put("dc", b"{}")
        if good:
            ok(d.noticed(seen), "datacenter: here: there are notices")
        at = str(store.call("GET", "/v1/kv/dc")[0]["ModifyIndex"])
        gone = d.do("remove", expected=at, within_ms=WITHIN)
        same(gone["outcome"] == "ok", good, f"datacenter: {dc}: a removal: {text_of(gone)}")
        d.end()
    listed = subprocess.run([LUNARCH, "list", store.url("d") + "?dc=elsewhere"], capture_output=True, text=True)
    ok(listed.returncode != 0 and "datacenter" in listed.stderr, "datacenter: elsewhere: a list", listed.stderr)
    store.end()


def many_keys() -> None:
    """An agent allows a client 200 connections: a process follows 60 keys, and says of others that it does not."""
    store = Consul()
    with Player() as d:
        d.open("consul", driver="consul", file=None, hosts=[{"name": "127.0.0.1", "port": store.port}])
        said: dict[str, Any] = {}
        for i in range(62):
            d.send("WATCH", f"k{i}", 1)
        while len(said) < 62:
            m = d.next("watching")
            said[m["key"]] = m
        refused = [m for m in said.values() if not m["yes"]]
        same(len(refused), 2, "many keys: 60 of 62 are followed")
        ok(
            all("follows 60 keys" in m["why"] for m in refused),
            "many keys: and of two it is said why they are not",
            refused,
        )
        followed = next(k for k, m in said.items() if m["yes"])
        d.send("WATCH", followed, 0)
        while not (m := d.next("watching"))["yes"]:
            pass
        ok(m["key"] in [r["key"] for r in refused], "many keys: when one is given up, another takes its place")
    store.end()


def tls() -> None:
    where = scratch()
    pki = Pki(where)
    cert, key = pki.server()
    mine, mine_key = pki.sign("client", "/CN=client")
    port = free_port()
    server = Server(
        {
            "ports": {"https": port},
            "tls": {"https": {"ca_file": pki.ca, "cert_file": cert, "key_file": key, "verify_incoming": True}},
        }
    )
    url = f"consuls://127.0.0.1:{port}/tls"
    d = opened(f"{url}?ca={pki.ca}&cert={mine}&key={mine_key}")
    w = d.write(record("a"), "")
    same(w["outcome"], "ok", "TLS: with the authority's and the client's certificates")
    same(d.write(record("b"), w["version"])["outcome"], "ok", "TLS: and again on the same connection")
    d.end()
    for what, options in (("without the authority", f"?cert={mine}&key={mine_key}"), ("without ours", f"?ca={pki.ca}")):
        d = opened(url + options)
        r = d.read(within=SHORT)
        ok(r["outcome"] in ("failed", "refused") and text_of(r), f"TLS: {what} it fails: {text_of(r)}")
        d.end()
    server.close()


def wrong_urls() -> None:
    """Each operation says what is wrong with the URL."""
    for url, said in (
        ("consul://127.0.0.1:1/k?ca=/x", "consuls://"),
        ("consuls://127.0.0.1:1/k?cert=/x", "belong together"),
        ("consul://user:s3cret@127.0.0.1:1/k", "no users"),
        ("consul://127.0.0.1:1/k?colour=red", "colour"),
    ):
        d = Driver()
        o = d.open(url)
        r = d.read() if o["ok"] else {"outcome": "refused", "err": o["err"]}
        ok(r["outcome"] == "refused" and said in text_of(r), f"URL: {url}: {text_of(r)}")
        d.end()
    d = opened("consul://127.0.0.1:1/a//b")
    r = d.read()
    ok(r["outcome"] == "refused" and "slash" in text_of(r), f"URL: a key out of Consul's reach: {text_of(r)}")
    d.end()


def leader_stops() -> None:
    """A cluster of three whose leader is frozen, and then killed: all three addresses are in the URL."""
    members = Server.cluster(3)
    hosts = ",".join(f"127.0.0.1:{m.port}" for m in members)
    d = opened(f"consul://{hosts}/cluster")
    d.write(record("a"), "")
    for hurt in ("pause", "kill"):
        leads = wait_for(lambda: next((m for m in members if m.leads()), None))
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
            ok(wait_for(leads.ready), "cluster: the frozen one goes on, and follows")
    d.end()
    for m in members:
        m.close()


def restored() -> None:
    """consul snapshot restore in the same cluster: the record goes back, and its index does; what is written after it
    has larger ones than all before."""
    store = Consul()
    d = opened(store.url("restored"))
    d.write(record("before"), "")
    status, snapshot = store.server.http("GET", "/v1/snapshot")
    same(status, 200, "restored: a snapshot is taken")
    late = d.write(record("late"), d.read()["version"])
    store.server.http("PUT", "/v1/snapshot", snapshot)
    r = tried(lambda: d.read(), "ok")
    same(r["record"]["holderIdentity"], "before", "restored: the record before is there")
    same(d.write(record("late"), late["version"])["outcome"], "conflict", "restored: who saw the later one conflicts")
    w = d.write(record("after"), r["version"])
    ok(int(w["version"]) > int(late["version"]), f"restored: {w['version']} is larger than {late['version']}")
    d.end()
    store.end()


def peer() -> None:
    """What `consul lock` does where Lunarch's guard kills: it stops what it has started, and not what that has
    started. (That nothing of ours is left is shown by tests/cluster/faults/consul.py.)"""
    server, where = Server(), scratch()
    out, stop = os.path.join(where, "out"), os.path.join(where, "stop")

    def holder(name: str) -> subprocess.Popen[Any]:
        job = f"(while [ ! -e {stop} ]; do echo {name} >> {out}; sleep 0.1; done) & wait"
        at = f"-http-addr=http://127.0.0.1:{server.port}"
        null = subprocess.DEVNULL
        return subprocess.Popen([server.program(), "lock", at, "job", job], stdin=null, stdout=null, stderr=null)

    def lines() -> list[str]:
        with open(out) as f:
            return f.read().split()

    with open(out, "w"):
        pass
    a = holder("a")
    ok(wait_for(lambda: "a" in lines()), "consul lock: a has the lock, and what it runs has started something")
    b = holder("b")
    held = wait_for(lambda: json.loads(server.http("GET", "/v1/kv/job/.lock")[1])[0].get("Session"))
    server.http("PUT", f"/v1/session/destroy/{held}")
    ok(wait_for(lambda: "b" in lines()), "consul lock: a's session is gone, and b has the lock after the lock-delay")
    ok(
        wait_for(lambda: lines()[lines().index("b") :].count("a") > 3),
        "consul lock: what was started under a's lock goes on beside what b runs",
    )
    with open(stop, "w"):
        pass
    for p in (a, b):
        p.terminate()
        p.wait()
    server.close()


def conformance() -> None:
    store = Consul()
    run(store, [getattr(lock_cases, name) for name in sys.argv[1:]] or [*BASIC, *NETWORK, *REPEATED, *SERVER])
    store.end()


def limited() -> None:
    store = ConsulWithRights()
    run(store, [read_only])
    store.end()


def no_room() -> None:
    store = FullConsul()
    run(store, [full])
    store.end()


if not os.path.exists(Server.program()):
    skip("the Consul lock", "Consul is not built: make test-stores does")
    done()
    sys.exit()
conformance()
if not sys.argv[1:]:
    at_once(answers, going_back, at_once_the_same, wrong_urls, several, rights, documented, datacenter, many_keys)
    at_once(tls, leader_stops, restored, limited, no_room, peer)
done()

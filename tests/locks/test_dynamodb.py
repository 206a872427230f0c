#!/usr/bin/env -S PYTHONPATH=. python3
"""The DynamoDB lock passes the conformance suite on Dynalite and moto, which stand in for it (what they differ in:
tests/lib/dynamodb_servers.py). Its own cases, of throttling, lost answers, tables, credentials, meet Dynalite through a
server that answers instead of it where the case says so."""

import http.client
import json
import os
import subprocess
import uuid
from typing import Any

from tests.lib import dynamodb_servers
from tests.lib.candidates import Candidate
from tests.lib.driver_player import USAGE, Driver, told
from tests.lib.fake_s3 import Asked, Web
from tests.lib.lock_cases import BASIC, NETWORK, REPEATED, SERVER, missed_notices, run
from tests.lib.processes import LUNARCH, PATIENCE, ROOT
from tests.lib.stores import DynamoDB, MotoDynamoDB
from tests.lib.tap import at_once, done, ok, same

UNNOTICED = [c for c in NETWORK if c is not missed_notices]  # there are no notices


def dynalite() -> None:
    store = DynamoDB()
    os.environ.update(store.env)
    run(store, BASIC + UNNOTICED + REPEATED + SERVER)
    store.end()


def moto() -> None:
    store = MotoDynamoDB()
    os.environ.update(store.env)
    run(store, BASIC)
    store.end()


# ---- its own cases ----


class Front(Web):
    """Before a server. instead(asked, action): another answer than its own, None for an answer that is lost, or
    NotImplemented for its own. sent: the actions that it has seen."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self.sent: list[str] = []
        self.instead: Any = lambda asked, action: NotImplemented
        super().__init__(self.answer)

    def pass_on(self, asked: Asked) -> tuple[int, bytes, dict[str, str]]:
        c = http.client.HTTPConnection("127.0.0.1", self.store.port, timeout=PATIENCE)
        c.request(asked.method, asked.target, asked.body, dict(asked.headers.items()))
        r = c.getresponse()
        body = r.read()
        c.close()
        return r.status, body, {n: v for n, v in r.getheaders() if n.lower().startswith("x-am")}

    def answer(self, asked: Asked) -> Any:
        action = asked.headers["X-Amz-Target"].split(".")[1]
        self.sent.append(action)
        found = self.instead(asked, action)
        return self.pass_on(asked) if found is NotImplemented else found


def error(code: str, status: int = 400, **more: Any) -> tuple[int, bytes, dict[str, str]]:
    body = {"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": "as the test says", **more}
    return status, json.dumps(body).encode(), {"x-amzn-RequestId": uuid.uuid4().hex}


def record(holder: str = "a") -> str:
    return json.dumps({"holderIdentity": holder, "write": uuid.uuid4().hex})


NONE = {
    "AWS_EC2_METADATA_DISABLED": "true",
    "HOME": "/nonexistent",
    "AWS_ACCESS_KEY_ID": "",
    "AWS_SECRET_ACCESS_KEY": "",
}


def opened(store: Any, url: str, table: str = dynamodb_servers.TABLE, env: Any = None, **options: str) -> Any:
    d = Driver(env={**NONE, **(store.env if env is None else env)})
    place = {"driver": "dynamodb", "file": None, "url": f"dynamodb://{table}", "hosts": [{"name": table, "port": 0}]}
    o = d.open("dynamodb", **place, options={"endpoint": url, "region": dynamodb_servers.REGION, **options})
    if not o["ok"]:
        raise AssertionError(o["text"])
    return d


def throttled(store: Any) -> None:
    with Front(store) as front, opened(store, front.url) as d:
        for code in (
            "ProvisionedThroughputExceededException",
            "ThrottlingException",
            "RequestLimitExceeded",
            "TransactionConflictException",
            "ReplicatedWriteConflictException",
        ):
            left = [error(code) for _ in range(3)]
            front.instead = lambda asked, action: left.pop() if left else NotImplemented
            same(d.write(record(), key=code)["outcome"], "ok", f"throttled: three times {code}, and the write is done")
            front.instead = lambda asked, action: error(code)
            before = len(front.sent)
            w = d.write(record(), key=code + "-not", within=1)
            ok(told(w, "failed", code), f"throttled: {code} to the end is a write that was surely not done")
            ok(3 <= len(front.sent) - before <= 12, "throttled: which was sent some times, ever more rarely")
            ok(told(d.read(key=code, within=1), "failed", code), "throttled: a read fails then, too")
            same(store.get(code + "-not"), None, "throttled: and nothing is there")


def lost(store: Any) -> None:
    with Front(store) as front, opened(store, front.url) as d:
        w = d.write(record())
        text = record("x")

        def done_and_lost(asked: Any, action: str) -> Any:
            return front.pass_on(asked) and None if action == "PutItem" else NotImplemented

        front.instead = done_and_lost
        u = d.write(text, expected=w["version"])
        same(store.get("k"), text.encode(), "lost: a write was done, and its answer lost")
        ok(u["outcome"] in ("unknown", "ok"), f"lost: that is unknown, or found by a look ({u['outcome']})")
        front.instead = lambda asked, action: None if action == "PutItem" else NotImplemented
        version = d.read()["version"]
        same(d.write(record(), expected=version)["outcome"], "unknown", "lost: a request that may have come is unknown")
        same(store.get("k"), text.encode(), "lost: also where it was not done")

        def done_before(asked: Any, action: str) -> Any:
            """As a library does that sends again: this copy meets the first one."""
            if action == "PutItem":
                front.pass_on(asked)
            return NotImplemented

        front.instead = done_before
        text = record("y")
        w = d.write(text, expected=version)
        same((w["outcome"], store.get("k")), ("ok", text.encode()), "lost: a conflict with one's own write is none")
        same(d.read()["version"], w["version"], "lost: and its version is the one that is read")

        def replaced(asked: Any, action: str) -> Any:
            """The condition is met by nobody, and what is there is not to be had."""
            return (
                error("ConditionalCheckFailedException") if action == "PutItem" else error("InternalServerError", 500)
            )

        front.instead = replaced
        same(d.write(record(), expected=version)["outcome"], "unknown", "lost: a conflict without a look is unknown")
        front.instead = lambda asked, action: (
            error("ConditionalCheckFailedException") if action == "PutItem" else NotImplemented
        )
        u = d.write(record(), expected=w["version"])
        same(u["outcome"], "unknown", "lost: a conflict while what was expected is there is unknown")
        front.instead = lambda asked, action: NotImplemented
        same(d.write(record(), expected=version)["outcome"], "conflict", "lost: one that comes too late is a conflict")
        store.delete("k")
        same(d.write(record(), expected=w["version"])["outcome"], "conflict", "lost: so is a record that was deleted")
        same(store.get("k"), None, "lost: and it is not made anew")


def strange(store: Any) -> None:
    answers: list[tuple[Any, tuple[str, str]]] = [
        (lambda: error("InternalServerError", 500), ("failed", "unknown")),
        (lambda: error("ServiceUnavailable", 503), ("failed", "unknown")),
        (lambda: (200, b"{}", {}), ("failed", "unknown")),
        (lambda: (200, b"<html>welcome</html>", {}), ("failed", "unknown")),
        (lambda: (404, b"<html>not here</html>", {}), ("failed", "unknown")),
        (lambda: error("AccessDeniedException"), ("refused", "refused")),
        (lambda: error("ValidationException"), ("refused", "refused")),
        (lambda: error("ValidationException", message="Item size has exceeded"), ("refused", "invalid")),
        (lambda: error("InvalidSignatureException"), ("refused", "refused")),
        (lambda: error("ExpiredTokenException"), ("failed", "failed")),
    ]
    with Front(store) as front:
        for answer, outcomes in answers:
            with opened(store, front.url) as d:
                front.instead = lambda asked, action, a=answer: a()
                got = d.read()["outcome"], d.write(record(), key="strange")["outcome"]
                status, body, _ = answer()
                same(got, outcomes, f"strange: status {status} {body[:70]!r}")
        front.instead = lambda asked, action: NotImplemented
        same(store.get("strange"), None, "strange: and nothing was written")
        with opened(store, front.url) as d:
            w = d.write(record(), key="twice")
            front.instead = lambda asked, action: (200, b"{}", {"x-amzn-RequestId": "one"})
            d.write(record(), key="twice", expected=w["version"])
            u = d.write(record(), key="twice", expected=w["version"])
            same(u["outcome"], "unknown", "strange: an answer that comes twice is not believed")


def tables(store: Any) -> None:
    """What is no table for a lock is refused; what another program keeps in it is not touched."""
    url = f"http://127.0.0.1:{store.port}"
    same(store.server.make_table("terraform", "LockID")[0], 200, "tables: one as Terraform's is made")
    with opened(store, url, "terraform", partition_key="LockID") as d:
        same(d.write(record("t"))["outcome"], "ok", "tables: a lock works in it")
        item = {"LockID": {"S": "state"}, "Info": {"S": "{}"}}
        store.server.ask("PutItem", TableName="terraform", Item=item)
        r = d.read(key="state")
        ok(told(r, "foreign", "another program"), "tables: an item of Terraform's is another program's")
        ok(d.write(record(), key="state")["outcome"] == "conflict", "tables: and is not overwritten")
        kept = store.server.ask("GetItem", TableName="terraform", Key={"LockID": {"S": "state"}})[1]["Item"]
        same(kept, item, "tables: it is what it was")
    with opened(store, url, "terraform") as d:
        ok(told(d.read(), "refused", "partition_key="), "tables: another name of the partition key is told")
    keys = [{"AttributeName": n, "KeyType": t} for n, t in (("key", "HASH"), ("sort", "RANGE"))]
    kinds = [{"AttributeName": n, "AttributeType": "S"} for n in ("key", "sort")]
    made = store.server.make_table("sorted", KeySchema=keys, AttributeDefinitions=kinds)
    same(made[0], 200, "tables: one with a sort key is made")
    with opened(store, url, "sorted") as d:
        ok(told(d.write(record()), "refused", "no sort key"), "tables: which is refused")
    with opened(store, url, "nowhere") as d:
        ok(told(d.read(), "refused", "make the table"), "tables: none is told, and is no absent record")
        same(d.write(record())["outcome"], "refused", "tables: by a write, too")
    wrong: list[tuple[str, Any, dict[str, Any], str]] = [
        ("ab", None, {}, "3 to 255"),
        ("locks", [{"name": "locks", "port": 8000}], {}, "endpoint="),
        ("locks", None, {"partition_key": "version"}, "another name"),
        ("locks", None, {"region": None}, "?region="),
    ]
    for name, hosts, options, said in wrong:
        d = Driver(env={**NONE, **store.env})
        at = hosts or [{"name": name, "port": 0}]
        given = {k: v for k, v in {"region": "r", **options}.items() if v}
        o = d.open("dynamodb", driver="dynamodb", file=None, url=f"dynamodb://{name}", hosts=at, options=given)
        ok(not o["ok"] and o["code"] == USAGE and said in o["text"], f"tables: {name}, {options}: {said}", o["text"])
        d.end()


class Account:
    def __init__(self, env: Any) -> None:
        self.env = {**os.environ, **env}

    def says(self, *args: str) -> tuple[int, str]:
        p = subprocess.run([LUNARCH, *args], env=self.env, capture_output=True, text=True, timeout=PATIENCE)
        return p.returncode, p.stdout + p.stderr


def replicated(store: Any) -> None:
    """Doctor on a global table, as DescribeTable tells of one (neither server has replicas)."""
    more: dict[str, Any] = {}
    with Front(store) as front:

        def describe(asked: Any, action: str) -> Any:
            if action != "DescribeTable":
                return NotImplemented
            status, body, headers = front.pass_on(asked)
            said = json.loads(body)
            said["Table"].update(more)
            return status, json.dumps(said).encode(), {k: v for k, v in headers.items() if "crc" not in k.lower()}

        front.instead = describe
        named = store.url("replicated", front)
        unnamed = named.replace(f"region={dynamodb_servers.REGION}&", "")
        user = Account({**store.env, "AWS_REGION": dynamodb_servers.REGION})
        status, said = user.says("doctor", "--lock", unnamed)
        ok(
            status == 0 and "is fit" in said and "DynamoDB, us-east-1" in said,
            "global: a table of one region is fit",
            said,
        )
        more["Replicas"] = [{"RegionName": r} for r in ("eu-west-1", "us-east-1")]
        status, said = user.says("doctor", "--lock", unnamed)
        ok(status == 1 and "eu-west-1" in said, "global: a global one is not, where ?region= is not given", said)
        status, said = user.says("doctor", "--lock", named)
        ok(status == 0 and "each region decides" in said, "global: doctor warns of it where ?region= is", said)
        more["MultiRegionConsistency"] = "STRONG"
        status, said = user.says("doctor", "--lock", unnamed)
        ok(status == 0 and "was not tried" in said, "global: and of one that is strongly consistent", said)


def pages(store: Any) -> None:
    """A scan has 1 MB at most, and goes on from there."""
    for i in range(12):
        store.put(f"page-{i:02}", b"x" * 200_000)
    with Front(store) as front, opened(store, front.url) as d:
        a = d.answer(d.ask("LIST", "page-"))
        names = [n for n in json.loads(a["bytes"])["names"] if n.startswith("page-")]
        ok(front.sent.count("Scan") >= 3, f"pages: {front.sent.count('Scan')} of them are read")
        same((a["outcome"], len(names)), ("ok", 12), "pages: and each name is listed once")
    for i in range(12):
        store.delete(f"page-{i:02}")


class Instance(Web):
    """An instance's metadata, version 2: the role's keys, a new pair each time."""

    def __init__(self) -> None:
        super().__init__(self.answer)
        self.given = 0

    def answer(self, asked: Any) -> Any:
        if asked.target == "/latest/api/token":
            return (200, b"session", {}) if asked.method == "PUT" else (405, b"", {})
        if asked.headers["X-aws-ec2-metadata-token"] != "session":
            return 401, b"", {}
        if asked.target.endswith("/security-credentials/"):
            return 200, b"my-role", {}
        self.given += 1
        keys = {"AccessKeyId": f"AK{self.given}", "SecretAccessKey": "s", "Token": "t", "Code": "Success"}
        return 200, json.dumps({**keys, "Expiration": "2099-01-01T00:00:00Z"}).encode(), {}


def credentials(store: Any) -> None:
    """Found by lunarch.aws, of whose sources test_s3_own.py tries each; here that they are used, and renewed."""
    with Front(store) as front, Instance() as web:
        at = {"AWS_EC2_METADATA_DISABLED": "false", "AWS_EC2_METADATA_SERVICE_ENDPOINT": web.url}
        with opened(store, front.url, env=at) as d:
            same(d.read()["outcome"], "absent", "credentials: of an instance's role")
            asked = front.asked[-1]
            same(
                (asked.key, asked.headers["x-amz-security-token"]), ("AK1", "t"), "credentials: with its session token"
            )
            ok("/dynamodb/aws4_request" in asked.headers["Authorization"], "credentials: signed for this service")
            front.instead = lambda asked, action: (
                error("ExpiredTokenException") if asked.key == "AK1" else NotImplemented
            )
            same(d.write(record(), key="renewed")["outcome"], "ok", "credentials: new ones when these have expired")
            same(front.asked[-1].key, "AK2", "credentials: which are used from then on")
            for said in ("Signature expired: 20260101T000000Z is now earlier", "Signature not yet current: 20260101"):
                front.instead = lambda asked, action, s=said: error("InvalidSignatureException", message=s)
                sent = len(front.sent)
                ok(told(d.read(), "refused", "clock", said), f"credentials: a wrong clock is told: {said[:20]}")
                same((web.given, len(front.sent) - sent), (2, 1), "credentials: and asks for no new ones")
        before = len(front.asked)
        with opened(store, front.url, env={}) as d:
            ok(told(d.write(record()), "refused", "no credentials"), "credentials: none anywhere is told")
        same(len(front.asked), before, "credentials: and nothing is asked without")


def own() -> None:
    store = DynamoDB()
    for case in (throttled, lost, strange, tables, pages, credentials, replicated):
        case(store)
    store.end()


def policy(*without: str) -> Any:
    """The one of docs/stores/dynamodb.md. Moto knows no ARN of a table's item, and judges by actions."""
    with open(os.path.join(ROOT, "docs", "stores", "dynamodb.md")) as f:
        text = '{ "Version"' + f.read().split('{ "Version"')[1].split("\n\n")[0]
    p = json.loads(text.replace("arn:aws:dynamodb:REGION:ACCOUNT:table/TABLE", "*"))
    for s in p["Statement"]:
        s["Action"] = [a for a in s["Action"] if a not in without]
    p["Statement"] = [s for s in p["Statement"] if s["Action"]]
    return p


def rights() -> None:
    """An account that may do what docs/stores/dynamodb.md says, and no more; and accounts that lack something of it."""
    store = MotoDynamoDB()
    users = store.server.rights(
        documented=policy(), blind=policy("dynamodb:DescribeTable", "dynamodb:Scan"), reading=policy("dynamodb:PutItem")
    )
    by = {name: Account({**store.env, **env}) for name, env in users.items()}
    url = store.url("job")
    status, said = by["documented"].says("doctor", "--lock", url)
    ok(
        status == 0 and "is fit" in said and "note   clean" not in said,
        "rights: the documented ones do for doctor",
        said,
    )
    status, said = by["blind"].says("doctor", "--lock", url)
    ok(status == 0 and "DescribeTable" in said, "rights: without DescribeTable doctor says what it does not know", said)
    status, said = by["reading"].says("doctor", "--lock", url)
    ok(status != 0 and "status 403" in said, "rights: without PutItem it is not fit", said)
    runner = Candidate("--lock", url, "-e", 'print("leads") sleep(1000)', env=by["blind"].env)
    ok(runner.wait("print", "leads"), "rights: three of them do for a term")
    status, said = by["documented"].says("list", store.url("jo"))
    ok(status in (0, 1) and "leading" in said, "rights: and with Scan for list", said)
    status, said = by["blind"].says("list", store.url("jo"))
    ok(status != 0 and "status 403" in said, "rights: without it list says what is missing", said)
    same(runner.stop(), 0, "rights: and to release it")
    store.end()


at_once(dynalite, moto, own, rights)
done()

#!/usr/bin/env -S PYTHONPATH=. python3
"""The S3 lock's own cases, on an S3 that goes wrong in each way that matters: credentials of every source, signatures,
answers that are lost, and look-alikes that ignore conditions. What all locks must do: test_s3.py, on real servers."""

import base64
import hashlib
import json
import os
import tempfile
import threading
import time
import uuid
from datetime import datetime, timezone
from typing import Any

from tests.lib.driver_player import USAGE, Driver, told
from tests.lib.fake_s3 import FakeS3, Web, error
from tests.lib.processes import wait_for
from tests.lib.tap import at_once, done, note, ok, same

XML = {"Content-Type": "application/xml"}
KEYS = {"AWS_ACCESS_KEY_ID": "AKtest", "AWS_SECRET_ACCESS_KEY": "secret/+x"}
NONE = {"AWS_EC2_METADATA_DISABLED": "true", "HOME": "/nonexistent"}


def record(holder: str = "a", **fields: Any) -> str:
    return json.dumps({"holderIdentity": holder, "write": uuid.uuid4().hex, **fields})


def opened(server: Any, env: Any = None, bucket: str = "bucket", **options: str) -> Any:
    """A driver of the lock, whose environment has this and no other credentials."""
    d = Driver(env={**NONE, **(KEYS if env is None else env)})
    place = {"driver": "s3", "file": None, "url": f"s3://{bucket}", "hosts": [{"name": bucket, "port": 0}]}
    o = d.open("s3", **place, options={"endpoint": server.url, **options})
    if not o["ok"]:
        raise AssertionError(o["text"])
    return d


def stamp(seconds: float) -> str:
    return datetime.fromtimestamp(time.time() + seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def json_keys(key: str, secret: str, token: str | None, left: float = 3600) -> bytes:
    found = {"Code": "Success", "AccessKeyId": key, "SecretAccessKey": secret, "Expiration": stamp(left)}
    return json.dumps({**found, **({"Token": token} if token else {})}).encode()


# ---- where credentials come from ----


def works(what: str, s3: FakeS3, env: dict[str, str], key: str = "AKtest", **options: str) -> None:
    with opened(s3, env, **options) as d:
        w = d.write(record(), key=f"c-{uuid.uuid4().hex[:8]}")
        if not ok(w["outcome"] == "ok" and s3.asked[-1].key == key, f"credentials: {what}"):
            note(f"{w} {d.log_text()[-600:]}")


def credentials() -> None:
    users: dict[str, Any] = {
        "AKtest": ("secret/+x", None),
        "AKtemp": ("temporary=", "to/ken+=="),
        "AKfile": ("in a file", None),
    }
    with FakeS3(**users) as s3, tempfile.TemporaryDirectory() as home:
        works("of the environment", s3, KEYS)
        temporary = {
            "AWS_ACCESS_KEY_ID": "AKtemp",
            "AWS_SECRET_ACCESS_KEY": "temporary=",
            "AWS_SESSION_TOKEN": "to/ken+==",
        }
        works("of the environment, with a session token", s3, temporary, "AKtemp")
        files(s3, home)
        configured(s3, home)
        roles(s3, home)
        for_containers(s3, home)
        instance(s3)
        nobody(s3, home)


def files(s3: FakeS3, home: str) -> None:
    os.makedirs(f"{home}/.aws")
    with open(f"{home}/.aws/credentials", "w") as f:
        f.write("[default]\naws_access_key_id = AKfile\naws_secret_access_key = in a file\n\n")
        f.write("# another\n[other]\naws_access_key_id=AKtest\naws_secret_access_key=secret/+x\n")
    with open(f"{home}/.aws/config", "w") as f:
        f.write(
            '[default]\nregion = us-east-1\ns3 =\n  aws_access_key_id = no\n[profile "far away"]\nregion = eu-west-9\n'
        )
        answer = json.dumps(
            {"Version": 1, "AccessKeyId": "AKtemp", "SecretAccessKey": "temporary=", "SessionToken": "to/ken+=="}
        )
        f.write(f"[profile program]\ncredential_process = printf '%s' '{answer}'\n")
        f.write(
            "[profile broken]\ncredential_process = echo no such luck >&2; exit 3\n[profile sso]\nsso_session = x\n"
        )
    works("of the default profile", s3, {"HOME": home}, "AKfile")
    works("of the profile that AWS_PROFILE names", s3, {"HOME": home, "AWS_PROFILE": "other"})
    works("the environment's go before AWS_PROFILE", s3, {**KEYS, "HOME": home, "AWS_PROFILE": "default"})
    works("but not before the URL's profile", s3, {**KEYS, "HOME": home}, "AKfile", profile="default")
    works("of a profile's credential_process", s3, {"HOME": home, "AWS_PROFILE": "program"}, "AKtemp")
    moved = {"AWS_SHARED_CREDENTIALS_FILE": f"{home}/.aws/credentials", "AWS_CONFIG_FILE": f"{home}/.aws/config"}
    works("of files that the environment names", s3, moved, "AKfile")
    with opened(s3, {"HOME": home}, profile="broken") as d:
        ok(
            told(d.read(), "refused", "credential_process", "no such luck"),
            "credentials: a credential_process that fails is told",
        )
    with opened(s3, {"HOME": home}, profile="sso") as d:
        ok(told(d.read(), "refused", "SSO", "credential_process"), "credentials: a profile of SSO is told what to do")
    with opened(s3, {"HOME": home}, profile="nobody's") as d:
        ok(told(d.read(), "refused", "nobody's", "neither"), "credentials: a profile that is nowhere is told")


def configured(s3: FakeS3, home: str) -> None:
    """Where the profile says that S3 is. The order: tests/locks/test_s3.py, beside Amazon's own library."""
    with open(f"{home}/.aws/config", "a") as f:
        f.write(f"[profile near]\nendpoint_url = {s3.url}\n")
        f.write(
            f"[profile named]\nservices = dev\n[services dev]\nsts =\n  endpoint_url = x\n"
            f"s3 =\n  endpoint_url = {s3.url}\n"
        )
        f.write(f"[profile host]\nendpoint_url = http://localhost:{s3.port}\ns3 =\n    addressing_style = virtual\n")
        f.write("[profile lost]\nservices = nowhere\n[profile odd]\nendpoint_url = localhost:9000\n")

    def at(profile: str) -> tuple[Any, dict[str, Any]]:
        d = Driver(env={**NONE, **KEYS, "HOME": home, "AWS_PROFILE": profile})
        place = {"driver": "s3", "file": None, "url": "s3://bucket", "hosts": [{"name": "bucket", "port": 0}]}
        return d, d.open("s3", **place)

    for profile in ("near", "named"):
        with at(profile)[0] as d:
            same(d.read()["outcome"], "absent", f"endpoint: the one of profile {profile} is asked")
    with at("host")[0] as d:
        d.read()
        same(s3.asked[-1].headers["Host"], f"bucket.localhost:{s3.port}", "endpoint: with its addressing style")
    for profile, said in (("lost", "expected a section [services nowhere]"), ("odd", "expected a URL as https://HOST")):
        d, o = at(profile)
        ok(not o["ok"] and said in o["text"], f"endpoint: profile {profile} is refused, and why", o["text"])
        d.end()


def roles(s3: FakeS3, home: str) -> None:
    def sts(asked: Any) -> tuple[int, bytes, dict[str, str]]:
        body = asked.body.decode()
        good = (
            "WebIdentityToken=a.web.token&" in body + "&"
            if "WithWebIdentity" in body
            else asked.is_signed_with("in a file")
        )
        if not good or "RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fx" not in body:
            return 403, error("AccessDenied", "not you"), XML
        answer = "<AccessKeyId>AKtemp</AccessKeyId><SecretAccessKey>temporary=</SecretAccessKey>"
        answer += f"<SessionToken>to/ken+==</SessionToken><Expiration>{stamp(3600)}</Expiration>"
        return 200, f"<R><Credentials>{answer}</Credentials></R>".encode(), XML

    token = f"{home}/token"
    with open(token, "w") as f:
        f.write("a.web.token\n")
    with Web(sts) as web:
        asks = {
            "AWS_ROLE_ARN": "arn:aws:iam::1:role/x",
            "AWS_WEB_IDENTITY_TOKEN_FILE": token,
            "AWS_ENDPOINT_URL_STS": web.url,
        }
        works("by a web identity", s3, asks, "AKtemp")
        with open(f"{home}/.aws/config", "a") as f:
            f.write("[profile role]\nrole_arn = arn:aws:iam::1:role/x\nsource_profile = default\n")
            f.write(f"[profile web]\nrole_arn = arn:aws:iam::1:role/x\nweb_identity_token_file = {token}\n")
        at = {"HOME": home, "AWS_ENDPOINT_URL_STS": web.url}
        works("of a role that is assumed with another profile's", s3, at, "AKtemp", profile="role")
        works("by a profile's web identity", s3, at, "AKtemp", profile="web")
        with opened(s3, {**at, "AWS_ENDPOINT_URL_STS": "http://127.0.0.1:1"}, profile="role") as d:
            ok(told(d.read(), "failed", "STS"), "credentials: an STS that cannot be reached may answer later")
        with open(token, "w") as f:
            f.write("another\n")
        with opened(s3, asks) as d:
            ok(told(d.read(), "refused", "STS", "AccessDenied", "not you"), "credentials: that STS refuses is told")


def for_containers(s3: FakeS3, home: str) -> None:
    def container(asked: Any) -> tuple[int, bytes, dict[Any, Any]]:
        if asked.headers["Authorization"] != "pod's token":
            return 401, b"no", {}
        return 200, json_keys("AKtemp", "temporary=", "to/ken+=="), {}

    with open(f"{home}/pod", "w") as f:
        f.write("pod's token\n")
    with Web(container) as web:
        at = {"AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{web.url}/v1/credentials"}
        works("of a container", s3, {**at, "AWS_CONTAINER_AUTHORIZATION_TOKEN": "pod's token"}, "AKtemp")
        both = {"AWS_CONTAINER_AUTHORIZATION_TOKEN": "old", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": f"{home}/pod"}
        works("of a container, with a token in a file, which counts", s3, {**at, **both}, "AKtemp")
        with opened(s3, at) as d:
            ok(told(d.read(), "refused", "container", "401"), "credentials: that a container's are refused is told")
        proxy = {"http_proxy": "http://127.0.0.1:1", "no_proxy": "127.0.0.1"}  # which S3 has not, nor the container
        at["AWS_CONTAINER_CREDENTIALS_FULL_URI"] = f"http://localhost:{web.port}/v1/credentials"
        works("of a container, past a proxy", s3, {**at, **both, **proxy}, "AKtemp")
        with opened(s3, {**at, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": home}) as d:
            ok(told(d.read(), "refused", "Is a directory", home), "credentials: a directory is no token's file")
    for url in ("http://192.0.2.1/", "http://localhost:x@192.0.2.1/", "http://127.0.0.1.example.com/"):
        with opened(s3, {"AWS_CONTAINER_CREDENTIALS_FULL_URI": url}) as d:
            ok(
                told(d.read(), "refused", "another host"),
                f"credentials: a container's are asked for over plain HTTP on this machine alone, not at {url}",
            )


class Instance(Web):
    """Metadata, version 2. keys: what it answers; asleep: it does not."""

    def __init__(self, keys: bytes) -> None:
        super().__init__(self.answer)
        self.keys, self.awake, self.given = keys, threading.Event(), 0
        self.awake.set()

    def answer(self, asked: Any) -> tuple[int, bytes, dict[Any, Any]]:
        if asked.target == "/latest/api/token":
            good = asked.method == "PUT" and asked.headers["X-aws-ec2-metadata-token-ttl-seconds"]
            return (200, b"session", {}) if good else (405, b"", {})
        if asked.headers["X-aws-ec2-metadata-token"] != "session":
            return 401, b"", {}
        if asked.target.endswith("/security-credentials/"):
            return 200, b"my-role\n", {}
        self.given += 1
        self.awake.wait(60)
        return (200, self.keys, {}) if asked.target.endswith("/my-role") else (404, b"", {})


def instance(s3: FakeS3) -> None:
    with Instance(json_keys("AKtemp", "temporary=", "to/ken+==")) as web:
        at = {"AWS_EC2_METADATA_SERVICE_ENDPOINT": web.url + "/", "AWS_EC2_METADATA_DISABLED": "false"}
        works("of an instance, by version 2 of its metadata", s3, at, "AKtemp")
        proxy = {"http_proxy": "http://127.0.0.1:1", "no_proxy": "127.0.0.1"}
        local = {**at, "AWS_EC2_METADATA_SERVICE_ENDPOINT": f"http://localhost:{web.port}"}
        works("of an instance, past a proxy", s3, {**local, **proxy}, "AKtemp")
        with opened(s3, at) as d:
            d.read()
            s3.users["AKnew"], web.keys = ("new", "newer"), json_keys("AKnew", "new", "newer")
            given = web.given
            d.read()
            same(web.given, given, "credentials: what is long valid is not asked for again")
            s3.instead = lambda asked: (400, error("ExpiredToken"), XML) if asked.key == "AKtemp" else NotImplemented
            same(
                d.read()["outcome"],
                "absent",
                "credentials: new ones are fetched when the server says that these have expired",
            )
            same(s3.asked[-1].key, "AKnew", "credentials: and used")
            s3.instead = lambda asked: NotImplemented
    renewed(s3)


def renewed(s3: FakeS3) -> None:
    """In the background: what does not answer holds up nothing while the old ones are valid."""
    with Instance(json_keys("AKtemp", "temporary=", "to/ken+==", 4)) as web:
        at = {"AWS_EC2_METADATA_SERVICE_ENDPOINT": web.url, "AWS_EC2_METADATA_DISABLED": "false"}
        with opened(s3, at) as d:
            d.read()
            web.awake.clear()
            web.keys = json_keys("AKnew", "new", "newer")
            ok(
                wait_for(lambda: d.read()["outcome"] == "absent" and web.given > 1),
                "credentials: new ones are asked for before they end",
            )
            ok(
                d.read()["outcome"] == "absent" and s3.asked[-1].key == "AKtemp",
                "credentials: the old ones are used meanwhile",
            )
            web.awake.set()
            ok(wait_for(lambda: d.read() and s3.asked[-1].key == "AKnew"), "credentials: and then the new ones")


def nobody(s3: FakeS3, home: str) -> None:
    with opened(s3, {}) as d:
        r = d.read()
        ok(
            told(r, "refused", "no credentials", "environment", "profile default"),
            "credentials: none anywhere is told, with where was looked",
        )
        ok(told(d.write(record()), "refused", "no credentials"), "credentials: a write, too")
    before = len(s3.asked)
    with opened(s3, {"AWS_ACCESS_KEY_ID": "AKtest"}) as d:
        ok(told(d.read(), "refused", "AWS_SECRET_ACCESS_KEY"), "credentials: a half of a key is told")
    same(len(s3.asked), before, "credentials: and nothing is asked without")


# ---- what the server refuses ----


def refusals() -> None:
    with FakeS3() as s3:
        with opened(s3, {**KEYS, "AWS_SECRET_ACCESS_KEY": "wr0ng"}) as d:
            r = d.read()
            ok(told(r, "refused", "SignatureDoesNotMatch", "secret key"), "refused: a wrong secret is told")
            ok("wr0ng" not in r["text"] + d.log_text(), "refused: and not shown")
        with opened(s3, {**KEYS, "AWS_ACCESS_KEY_ID": "AKother"}) as d:
            ok(told(d.read(), "refused", "InvalidAccessKeyId"), "refused: an unknown key is told")
        with opened(s3, bucket="elsewhere") as d:
            ok(
                told(d.read(), "refused", "NoSuchBucket", "elsewhere"),
                "refused: that there is no such bucket is told, and is no absent record",
            )
        s3.clock = 3600
        with opened(s3) as d:
            ok(
                told(d.write(record()), "refused", "15 minutes", "the election does not"),
                "refused: a clock that is wrong is named",
            )
        s3.clock = 0
        same(s3.objects, {}, "refused: and nothing was written")
        s3.forbids = {"PUT"}
        with opened(s3) as d:
            w = d.write(record())
            ok(told(w, "refused", "AccessDenied", "docs/stores/s3.md"), "refused: missing rights are told")
            s3.forbids = set()
            same(d.write(record())["outcome"], "ok", "refused: and given later they count")
        for status, body, outcome in (
            (503, error("SlowDown"), "unknown"),  # it is not Amazon's
            (500, error("InternalError"), "unknown"),
            (404, b"<html>not here</html>", "unknown"),
            (200, b"", "unknown"),
        ):
            with opened(s3) as d:
                d.write(record(), key="proven")
                s3.instead = lambda asked, a=(status, body, {}): a
                r, w = d.read(), d.write(record())
                s3.instead = lambda asked: NotImplemented
                same((r["outcome"], w["outcome"]), ("failed", outcome), f"refused: status {status} {body[:60]!r}")
        regions(s3)
    stranger()


def regions(s3: FakeS3) -> None:
    s3.region = "eu-west-9"
    with opened(s3) as d:
        same(d.write(record(), key="region")["outcome"], "ok", "region: the one that the server names is used")
        asked = len(s3.asked)
        d.read()
        same(len(s3.asked), asked + 1, "region: and kept")
    with opened(s3, region="us-east-1") as d:
        ok(told(d.read(), "refused", "?region=eu-west-9"), "region: a wrong one in the URL is told, with the right one")
    with opened(s3, {**KEYS, "AWS_REGION": "eu-west-9"}) as d:
        asked = len(s3.asked)
        d.read()
        same((len(s3.asked) - asked, s3.asked[-1].region), (1, "eu-west-9"), "region: the environment's")
    s3.region = "us-east-1"


def stranger() -> None:
    with Web(lambda asked: (200, b"<html>welcome</html>", {})) as web, opened(web) as d:
        ok(told(d.read(), "failed", "ETag"), "refused: a web server is no S3")
        ok(d.write(record())["outcome"] != "ok", "refused: and takes no record")
    for bucket, hosts, said in (
        ("x.mrap", None, "multi-region"),
        ("fast--use1-az4--x-s3", None, "directory bucket"),
        ("b", None, "3 to 63"),
        ("bucket", [{"name": "bucket", "port": 9000}], "endpoint="),
        ("bucket", [{"name": "a-b", "port": 0}, {"name": "c-d", "port": 0}], "one bucket"),
    ):
        d = Driver(env={**NONE, **KEYS})
        place = {"driver": "s3", "file": None, "url": f"s3://{bucket}", "hosts": hosts or [{"name": bucket, "port": 0}]}
        o = d.open("s3", **place)
        ok(not o["ok"] and o["code"] == USAGE and said in o["text"], f"refused: {bucket}, {hosts}: {said}", o["text"])
        d.end()


# ---- what is lost on the way ----


def lost() -> None:
    with FakeS3() as s3, opened(s3) as d:
        w = d.write(record())
        old = record("x")
        s3.instead = lambda asked: s3.put(asked, "k") and None if asked.method == "PUT" else NotImplemented
        u = d.write(old, expected=w["version"])
        same(s3.objects["k"].decode(), old, "lost: a PUT was done and its answer lost")
        ok(u["outcome"] in ("unknown", "ok"), f"lost: that is unknown, or found by a look ({u['outcome']})")
        version = s3.etag(s3.objects["k"])

        def applied_before(asked: Any) -> Any:
            """A copy of the request was applied, and its answer lost: this one meets the copy."""
            if asked.method == "PUT":
                s3.put(asked, "k")
            return NotImplemented

        s3.instead = applied_before
        text = record("y")
        w = d.write(text, expected=version)
        same(
            (w["outcome"], s3.objects["k"].decode()),
            ("ok", text),
            "lost: 412 to a PUT that was repeated is settled by a look",
        )
        s3.instead = lambda asked: NotImplemented
        same(
            d.write(record("z"), expected=version)["outcome"],
            "conflict",
            "lost: 412 to one that came too late is a conflict",
        )
        same(s3.objects["k"].decode(), text, "lost: which changes nothing")
        s3.instead = (
            lambda asked: (409, error("ConditionalRequestConflict"), XML) if asked.method == "PUT" else NotImplemented
        )
        ok(
            told(d.write(record(), expected=w["version"]), "unknown", "ConditionalRequestConflict"),
            "lost: 409 while nothing has changed is unknown",
        )
        same(
            d.write(record(), expected=version)["outcome"], "conflict", "lost: and a conflict where another was faster"
        )
        s3.instead = lambda asked: (412, error("PreconditionFailed"), XML) if asked.method == "PUT" else (500, b"", {})
        same(d.write(record(), expected=w["version"])["outcome"], "unknown", "lost: 412 without a look is unknown")
        s3.instead = lambda asked: NotImplemented
        del s3.objects["k"]
        same(
            d.write(record(), expected=w["version"])["outcome"],
            "conflict",
            "lost: a record that was deleted is a conflict",
        )
        same(s3.objects, {}, "lost: and is not made anew")
        ok(
            told(d.write('{"holderIdentity":"a"}'), "invalid", "name of its write"),
            "lost: a text that could be written twice is not",
        )
        same(d.write(record(), key="a/../b")["outcome"], "invalid", "lost: nor is a key that the way would change")
        same(
            d.write(record(), key="x" * 1001)["outcome"],
            "invalid",
            "lost: nor one that is too long for a scratch key beside it",
        )
        s3.objects["k"] = b"x"
        s3.instead = lambda asked: (200, b"x", {"ETag": '"' + "e" * 70 + '"'})
        ok(told(d.read(), "failed", "63 bytes"), "lost: an ETag that is too long is told")


def replaced() -> None:
    """A copy was done and its answer lost, and another has replaced it before the next copy came."""
    with FakeS3() as s3, opened(s3) as d:
        version = d.write(record())["version"]
        copies: list[Any] = []

        def twice(asked: Any) -> Any:
            if asked.method not in ("PUT", "DELETE") or copies:
                return NotImplemented
            copies.append(s3.put(asked, "k") if asked.method == "PUT" else s3.delete(asked, "k"))
            s3.objects["k"] = record("z").encode()
            return None

        s3.instead = twice
        w = d.write(record("y"), expected=version)
        same((w["outcome"], len(copies)), ("unknown", 1), "replaced: a write that was done is no conflict")
        version = d.read()["version"]
        copies.clear()
        gone = d.answer(d.ask("REMOVE", "k", version))
        same((gone["outcome"], len(copies)), ("unknown", 1), "replaced: nor is a removal")
        same(d.answer(d.ask("REMOVE", "k", version))["outcome"], "conflict", "replaced: one that comes too late is")


# ---- look-alikes ----


def unfit(what: str, said: str, prepare: Any) -> None:
    with FakeS3() as s3, opened(s3) as d:
        prepare(s3)
        s3.objects["k"] = b"somebody's"
        w = d.write(record())
        ok(told(w, "refused", "cannot keep a lock", said), f"look-alike: {what}: is refused, and why")
        same(s3.objects["k"], b"somebody's", f"look-alike: {what}: before the record is touched")
        asked = len(s3.asked)
        same((d.write(record())["outcome"], len(s3.asked)), ("refused", asked), f"look-alike: {what}: for good")
        ok(d.log("store_unfit"), f"look-alike: {what}: and in the log")
        ok(
            not [k for k in s3.objects if k != "k"] or "DELETE" in s3.forbids,
            f"look-alike: {what}: nothing is left there",
        )


def fit() -> None:
    with FakeS3() as s3, opened(s3) as d:
        w = d.write(record())
        same(w["outcome"], "ok", "probe: an S3 is fit")
        first = [a.path for a in s3.puts()]
        ok(
            first[-1] == "/bucket/k" and all(p.startswith("/bucket/k.probe-") for p in first[:-1]),
            "probe: before the first write, beside it",
        )
        same(list(s3.objects), ["k"], "probe: nothing is left of it")
        many = len(s3.asked)
        d.write(record(), expected=w["version"])
        d.write(record(), key="another")
        same(len(s3.asked), many + 2, "probe: and it is not done again")
        note(f"the probe and the first write: {many} requests, {len(first)} of them PUTs")
    with FakeS3() as s3:
        s3.forbids = {"DELETE"}
        for i in (1, 2, 3):
            with opened(s3) as d:
                same(
                    d.write(
                        record(), key=f"k{i}" if i == 1 else "k1", expected=s3.etag(s3.objects["k1"]) if i > 1 else ""
                    )["outcome"],
                    "ok",
                    f"probe: without the right to delete, candidate {i} writes",
                )
                same(len(d.log("scratch_left")), i == 1, f"probe: which says so {'once' if i == 1 else 'no more'}")
        same(
            len([k for k in s3.objects if k.startswith("k1.probe")]), 2, "probe: and the next ones share a scratch key"
        )
    with FakeS3() as s3, opened(s3) as d:
        s3.instead = lambda asked: (500, error("InternalError"), XML) if ".probe" in asked.path else NotImplemented
        same(d.write(record())["outcome"], "failed", "probe: that it could not be done proves nothing")
        same(s3.objects, {}, "probe: and nothing is written")
        s3.instead = lambda asked: NotImplemented
        same(d.write(record())["outcome"], "ok", "probe: it is done again")
    with FakeS3() as s3, opened(s3) as d:
        ids = [d.start_write(record(str(i)), key=f"many-{i}") for i in range(8)]
        same([d.answer(i)["outcome"] for i in ids], ["ok"] * 8, "probe: all that wait for it go on")
        same(len({a.path for a in s3.puts(".probe")}), 1, "probe: it is one")


def other_forms() -> None:
    """Of an ETag that the server answers with quotes, and compares without (DigitalOcean, Hetzner)."""
    for kept in (False, True):
        with FakeS3() as s3, opened(s3) as d:
            s3.compares = lambda etag: etag.strip('"')
            what = "without quotes" + (", the scratch key is shared" if kept else "")
            s3.objects.update({"k.probe": b"left"} if kept else {})
            w = d.write(record())
            same(w["outcome"], "ok", f"form: {what}: a server that compares so is fit")
            asked = len(s3.asked)
            w = d.write(record(), expected=w["version"])
            same((w["outcome"], len(s3.asked)), ("ok", asked + 1), f"form: {what}: that form is kept")
            same(d.write(record(), expected='"old"')["outcome"], "conflict", f"form: {what}: and it compares")
            gone = d.answer(d.ask("REMOVE", "k", w["version"]))
            same((gone["outcome"], "k" in s3.objects), ("ok", False), f"form: {what}: also to remove")
    with FakeS3() as s3, opened(s3) as d:
        s3.compares = lambda etag: "neither"
        said = ("3 PUTs", "If-Match", "with quotes or without", "412 PreconditionFailed", "as the test says")
        ok(told(d.write(record()), "failed", *said), "form: that neither is taken is told, with what the server did")
        asked = len(s3.asked)
        many = [d.write(record())["outcome"] for _ in range(20)]
        ok(
            many == ["failed"] * 20 and len(s3.asked) <= 2 * asked,
            f"form: and it is not probed again with each write ({asked} requests, and {len(s3.asked) - asked})",
        )
        s3.compares = lambda etag: etag
        ok(wait_for(lambda: d.write(record())["outcome"] == "ok"), "form: but later, without a restart")
    with FakeS3() as s3, opened(s3) as d:
        s3.compares = lambda etag: etag.strip('"')
        s3.ignores.add("If-Match")
        ok(told(d.write(record()), "refused", "cannot keep a lock"), "form: in neither form may a condition be ignored")


def look_alikes() -> None:
    unfit("ignores If-None-Match", "If-None-Match", lambda s: s.ignores.add("If-None-Match"))
    unfit("ignores If-Match", "If-Match", lambda s: s.ignores.add("If-Match"))
    unfit("ignores both", "If-None-Match", lambda s: s.ignores.update(("If-None-Match", "If-Match")))
    unfit("compares and replaces in two steps", "at the same time", lambda s: setattr(s, "slow", 1.0))

    def knows_none(s: FakeS3) -> None:
        s.instead = lambda a: (501, error("NotImplemented"), XML) if a.headers.get("If-None-Match") else NotImplemented

    unfit("knows no conditions", "501", knows_none)


def checksums() -> None:
    """What buckets with Object Lock, or with a policy that demands encryption, want of each PUT."""
    arn = "arn:aws:kms:us-east-1:1:key/k"
    cases: tuple[tuple[dict[str, str], str | None, str | None], ...] = (
        ({}, None, None),
        ({"sse": "AES256"}, "AES256", None),
        ({"kms": arn}, "aws:kms", arn),
        ({"sse": "aws:kms:dsse", "kms": arn}, "aws:kms:dsse", arn),
    )
    for options, sse, kms in cases:
        with FakeS3() as s3, opened(s3, **options) as d:
            w = d.write(record())
            sums = [base64.b64encode(hashlib.sha256(a.body).digest()).decode() for a in s3.puts()]
            found = [(w["outcome"], [a.headers["x-amz-checksum-sha256"] for a in s3.puts()])]
            same(found, [("ok", sums)], f"checksums: each PUT has its checksum; {options}")
            key = "x-amz-server-side-encryption"
            asked = {(a.headers[key], a.headers[key + "-aws-kms-key-id"]) for a in s3.puts()}
            same(asked, {(sse, kms)}, f"checksums: and its encryption; {options}")
    for wrong, said in (({"sse": "aes"}, "AES256, aws:kms"), ({"sse": "AES256", "kms": arn}, "aws:kms")):
        d = Driver(env={**NONE, **KEYS})
        place = {"driver": "s3", "file": None, "url": "s3://bucket", "hosts": [{"name": "bucket", "port": 0}]}
        o = d.open("s3", **place, options=wrong)
        ok(not o["ok"] and said in o["text"], f"checksums: {wrong} is refused", o["text"])
        d.end()


def about() -> None:
    with FakeS3() as s3, opened(s3) as d:
        replicated = b"<ReplicationConfiguration><Rule/></ReplicationConfiguration>"
        kept = b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"
        s3.instead = lambda a: (
            (200, replicated, XML)
            if "replication" in a.query
            else (200, kept, XML)
            if "versioning" in a.query
            else NotImplemented
        )
        said = json.loads(d.answer(d.ask("ABOUT"))["bytes"].rstrip(b"\0"))
        ok("fake" in said["server"] and "us-east-1" in said["server"], "about: the server and the region")
        ok("replicated" in said["warning"] and "versions" in said["warning"], "about: both are warned of")


at_once(credentials, refusals, lost, replaced, fit, other_forms, look_alikes, checksums, about)
done()

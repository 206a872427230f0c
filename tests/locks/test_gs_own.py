#!/usr/bin/env -S PYTHONPATH=. python3
"""The own cases of the lock in Google Cloud Storage, on a storage that goes wrong: answers that are lost, refusals,
rates, tokens. Where tokens come from: tests/script/test_gcp.py. What all locks must do: test_gs.py."""

import json
import subprocess
import threading
import uuid
from typing import Any
from urllib.parse import parse_qs, unquote

from tests.lib.driver_player import USAGE, Driver, told
from tests.lib.fake_s3 import Web
from tests.lib.pki import Pki
from tests.lib.processes import scratch
from tests.lib.tap import at_once, done, ok, same

HERE = scratch()
PKI = Pki(HERE)
JSON = {"Content-Type": "application/json; charset=UTF-8"}


def record(holder: str = "a") -> str:
    return json.dumps({"holderIdentity": holder, "write": uuid.uuid4().hex})


def error(status: int, reason: str, message: str = "as the test says") -> tuple[int, bytes, dict[str, str]]:
    """As Google's JSON API says it."""
    inner = [{"message": message, "domain": "global", "reason": reason}]
    return status, json.dumps({"error": {"code": status, "message": message, "errors": inner}}).encode(), JSON


class Storage(Web):
    """One bucket, whose writes are one step. instead(asked): another answer, or NotImplemented for its own. It is also
    the tokens' server, and takes only the last token that it gave."""

    def __init__(self, tls: Any = None) -> None:
        super().__init__(self.answer, tls)
        self.objects: dict[str, tuple[bytes, int]] = {}
        self.generation, self.tokens, self.step = 1000, 0, threading.Lock()
        self.secret = tls is not None
        self.instead: Any = lambda asked: NotImplemented

    def writes(self) -> int:
        return len([a for a in self.asked if a.path.startswith("/upload/")])

    def answer(self, asked: Any) -> Any:
        if asked.path == "/token":
            self.tokens += 1
            return 200, json.dumps({"access_token": f"t{self.tokens}", "expires_in": 3599}).encode(), JSON
        if self.secret and asked.headers["Authorization"] != f"Bearer t{self.tokens}":
            return error(401, "authError", "Invalid Credentials")
        found = self.instead(asked)
        return self.own(asked) if found is NotImplemented else found

    def own(self, asked: Any) -> Any:
        if asked.path.startswith("/upload/storage/v1/b/bucket/o"):
            return self.put(asked)
        if not asked.path.startswith("/storage/v1/b/bucket/o/"):
            return error(404, "notFound", "The specified bucket does not exist.")
        key = unquote(asked.path.split("/o/", 1)[1])
        if key not in self.objects:
            return 404, b"No such object: bucket/" + key.encode(), {"Content-Type": "text/html"}
        if asked.method == "DELETE":
            del self.objects[key]
            return 204, b"", {}
        content, generation = self.objects[key]
        return 200, content, {"x-goog-generation": str(generation)}

    def put(self, asked: Any) -> Any:
        boundary = asked.headers["Content-Type"].split("boundary=")[1].encode()
        about, content = [p.split(b"\r\n\r\n", 1)[1][:-2] for p in asked.body.split(b"--" + boundary)[1:3]]
        known = json.loads(about)
        assert known["cacheControl"] == "no-store", known
        with self.step:
            at = self.objects.get(known["name"], (b"", 0))[1]
            if str(at) != parse_qs(asked.query)["ifGenerationMatch"][0]:
                return error(412, "conditionNotMet", "At least one of the pre-conditions you specified did not hold.")
            self.generation += 1
            self.objects[known["name"]] = content, self.generation
            return 200, json.dumps({"generation": str(self.generation)}).encode(), JSON


def place_of(bucket: str = "bucket", hosts: Any = None) -> dict[str, Any]:
    return {"driver": "gs", "file": None, "url": f"gs://{bucket}", "hosts": hosts or [{"name": bucket, "port": 0}]}


def opened(storage: Storage, **options: str) -> Driver:
    d = Driver(env={"HOME": "/nonexistent", "NO_GCE_CHECK": "true"})
    o = d.open("gs", **place_of(), options={"endpoint": storage.url, **options})
    if not o["ok"]:
        raise AssertionError(o["text"])
    return d


def lost() -> None:
    with Storage() as s, opened(s) as d:
        w = d.write(record())
        same((w["outcome"], s.objects["k"][1]), ("ok", int(w["version"])), "lost: a write; its version: the generation")
        old = record("x")
        s.instead = lambda asked: s.put(asked) and None if asked.method == "POST" else NotImplemented
        u = d.write(old, expected=w["version"])
        same(s.objects["k"][0].decode(), old, "lost: it was done and its answer lost")
        ok(u["outcome"] in ("unknown", "ok"), f"lost: that is unknown, or found by a look ({u['outcome']})")
        version = str(s.objects["k"][1])

        def applied_before(asked: Any) -> Any:
            """A copy of the request was applied, and its answer lost: this one meets the copy."""
            if asked.method == "POST":
                s.put(asked)
            return NotImplemented

        s.instead = applied_before
        text = record("y")
        w = d.write(text, expected=version)
        same(w["outcome"], "ok", "lost: 412 to a write that was repeated is settled by a look")
        same((s.objects["k"][0].decode(), str(s.objects["k"][1])), (text, w["version"]), "lost: its version is there")
        s.instead = lambda asked: NotImplemented
        same(d.write(record("z"), expected=version)["outcome"], "conflict", "lost: 412 to one that came too late")
        same(s.objects["k"][0].decode(), text, "lost: which changes nothing")
        unmet = error(412, "conditionNotMet")
        s.instead = lambda asked: unmet if asked.method == "POST" else NotImplemented
        ok(
            told(d.write(record(), expected=w["version"]), "unknown", "expected"),
            "lost: 412 though nothing has changed",
        )
        s.instead = lambda asked: unmet if asked.method == "POST" else (500, b"", {})
        same(d.write(record(), expected=w["version"])["outcome"], "unknown", "lost: 412 without a look is unknown")
        s.instead = lambda asked: NotImplemented
        del s.objects["k"]
        same(d.write(record(), expected=w["version"])["outcome"], "conflict", "lost: what was deleted is a conflict")
        same(s.objects, {}, "lost: and is not made anew")
        same(d.write(record(), expected='"etag"')["outcome"], "conflict", "lost: so is what is no generation")


def replaced() -> None:
    """A copy was done and its answer lost, and another has replaced it before the next copy came."""
    with Storage(tls=PKI.server()) as s, opened(s, ca=PKI.ca, credentials=account(s)) as d:
        w = d.write(record())
        copies: list[Any] = []

        def twice(asked: Any) -> Any:
            if asked.method != "POST" or copies:
                return NotImplemented
            copies.append(s.put(asked))
            s.generation += 1
            s.objects["k"] = record("z").encode(), s.generation
            return None

        s.instead = twice
        before = s.writes()
        u = d.write(record("y"), expected=w["version"])
        same((u["outcome"], s.writes() - before), ("unknown", 2), "replaced: a write that was done is no conflict")


def rates() -> None:
    """An object takes about one write a second."""
    with Storage() as s, opened(s) as d:
        left = [2]

        def busy(asked: Any) -> Any:
            if asked.method != "POST" or not left[0]:
                return NotImplemented
            left[0] -= 1
            return error(429, "rateLimitExceeded", "The object bucket/k exceeded the rate limit")

        s.instead = busy
        same((d.write(record())["outcome"], s.writes()), ("ok", 3), "rates: what came too fast is sent again")
        left[0] = 1000
        w = d.write(record(), expected=str(s.objects["k"][1]), within=4)
        ok(told(w, "failed", "one write a second", "exceeded"), "rates: and has failed where time is up")
        same(s.objects["k"][1], s.generation, "rates: for nothing was done")
        left[0] = 0
        s.instead = lambda asked: error(403, "userRateLimitExceeded")
        ok(told(d.write(record(), key="x"), "failed", "userRateLimit"), "rates: a project's quota is no missing right")


def refusals() -> None:
    with Storage() as s, opened(s) as d:
        ok(d.write(record())["outcome"] == "ok", "refused: first a write")
        at = str(s.objects["k"][1])
        for what, answer, read, wrote in (
            ("503", error(503, "backendError"), "failed", "unknown"),
            ("500 of a proxy", (500, b"<html>", {}), "failed", "unknown"),
            ("408", error(408, "uploadBrokenConnection"), "failed", "unknown"),
            ("a web page", (200, b"<html>welcome</html>", {}), "failed", "unknown"),
            ("another 404", (404, b"<html>not here</html>", {}), "refused", "refused"),
            ("no such bucket", error(404, "notFound", "The specified bucket does not exist."), "refused", "refused"),
            ("400", error(400, "invalid"), "refused", "refused"),
            ("no rights", error(403, "forbidden", "x does not have storage.objects.get access"), "refused", "refused"),
        ):
            s.instead = lambda asked, a=answer: a
            r, w = d.read(), d.write(record(), expected=at)
            same((r["outcome"], w["outcome"]), (read, wrote), f"refused: {what}")
            if what == "no rights":
                ok(
                    told(w, "refused", "docs/stores/gcs.md", "storage.objects.get"),
                    "refused: it is said what is missing",
                )
        same(str(s.objects["k"][1]), at, "refused: nothing was written")
    for hosts, bucket, said in (
        (None, "Bucket", "name of a bucket"),
        ([{"name": "bucket", "port": 9000}], "bucket", "endpoint="),
        ([{"name": "a-b", "port": 0}, {"name": "c-d", "port": 0}], "bucket", "one bucket"),
    ):
        with Driver() as d:
            o = d.open("gs", **place_of(bucket, hosts))
            ok(
                not o["ok"] and o["code"] == USAGE and said in o["text"],
                f"refused: {bucket}, {hosts}: {said}",
                o["text"],
            )
    with Storage() as s, opened(s) as d:
        s.instead = lambda asked: (404, b"Not Found", {})
        same(d.read()["outcome"], "absent", "refused: an emulator may say no more than Not Found of what is absent")
    with Storage(tls=PKI.server()) as s, opened(s, ca=PKI.ca, credentials=account(s)) as d:
        s.instead = lambda asked: (404, b"Not Found", {})
        ok(told(d.read(), "refused", "404"), "refused: which is no answer of Google's")
    with Driver() as d:
        o = d.open("gs", **place_of(), options={"endpoint": "http://127.0.0.1:1", "credentials": "/x"})
        ok(not o["ok"] and "no token is sent" in o["text"], "refused: credentials over plain HTTP", o["text"])


def account(s: Storage) -> str:
    """The file of a service account, whose tokens come from a server of its own."""
    giver = Web(lambda asked: s.answer(asked) if asked.path == "/token" else None)
    path = f"{HERE}/account-{s.port}.json"
    with open(f"{HERE}/rsa") as pem, open(path, "w") as f:
        made = {"type": "service_account", "client_email": "x", "private_key": pem.read()}
        json.dump({**made, "token_uri": f"{giver.url}/token"}, f)
    return path


def emulators() -> None:
    """What STORAGE_EMULATOR_HOST names is not Google: it gets no token."""
    with Storage(tls=PKI.server()) as s:
        s.secret = False
        env = {"STORAGE_EMULATOR_HOST": s.url, "GOOGLE_APPLICATION_CREDENTIALS": account(s), "HOME": "/nonexistent"}
        with Driver(env=env) as d:
            o = d.open("gs", **place_of(), options={"ca": PKI.ca})
            ok(o["ok"] and d.write(record())["outcome"] == "ok", "emulator: one that speaks TLS is used", o)
            same([a.headers["Authorization"] for a in s.asked], [None], "emulator: and gets no token")
            same(s.tokens, 0, "emulator: for which nobody is asked")
        with Driver(env=env) as d:
            o = d.open("gs", **place_of(), options={"ca": PKI.ca, "credentials": "/x"})
            ok(not o["ok"] and "no token is sent" in o["text"], "emulator: credentials for it are refused", o)
    for host in ("hidden:word@127.0.0.1:1", "http://hidden@127.0.0.1:1", "https://127.0.0.1:1/hidden", "ftp://hidden"):
        with Driver(env={"STORAGE_EMULATOR_HOST": host}) as d:
            o = d.open("gs", **place_of())
            good = not o["ok"] and o["code"] == USAGE and "STORAGE_EMULATOR_HOST: expected" in o["text"]
            ok(good and "hidden" not in o["text"], f"emulator: {host} is refused, and not shown", o)


def tokens() -> None:
    with Storage(tls=PKI.server()) as s, opened(s, credentials="/nonexistent/x", ca=PKI.ca) as d:
        ok(told(d.read(), "refused", "/nonexistent/x"), "tokens: none at all is told")
    with Storage(tls=PKI.server()) as s:
        with open(account(s)) as f, open(f"{HERE}/away.json", "w") as g:
            json.dump({**json.load(f), "token_uri": "http://127.0.0.1:1/token"}, g)
        with opened(s, credentials=f"{HERE}/away.json", ca=PKI.ca) as d:
            ok(told(d.read(), "failed", "127.0.0.1"), "tokens: whoever gives them may answer later")
    with Storage(tls=PKI.server()) as s:
        with opened(s, credentials=account(s), ca=PKI.ca) as d:
            w = d.write(record())
            same((w["outcome"], s.tokens), ("ok", 1), "tokens: a write over TLS, with the service account's")
            s.tokens += 1
            w = d.write(record(), expected=w["version"])
            same((w["outcome"], s.tokens), ("ok", 3), "tokens: what the server refuses is replaced, and sent again")
            s.instead = lambda asked: error(401, "authError", "Invalid Credentials")
            ok(told(d.write(record(), expected=w["version"]), "refused", "not accepted"), "tokens: or it is told")
    with Storage() as s, opened(s) as d:
        d.write(record())
        ok(not any(a.headers["Authorization"] for a in s.asked), "tokens: none goes over plain HTTP")


def about() -> None:
    bucket: dict[str, Any] = {
        **{"location": "EU", "versioning": {"enabled": True}, "retentionPolicy": {"retentionPeriod": "3"}},
        "softDeletePolicy": {"retentionDurationSeconds": "604800"},
    }
    with Storage() as s, opened(s) as d:
        s.instead = lambda asked: (200, json.dumps(bucket).encode(), JSON)
        said = json.loads(d.answer(d.ask("ABOUT"))["bytes"].rstrip(b"\0"))
        ok("EU" in said["server"] and said["unfit"], "about: a bucket with a retention period is unfit", said)
        ok(all(w in said["warning"] for w in ("versions", "soft delete")), "about: both are warned of", said)
        s.instead = lambda asked: error(403, "forbidden")
        said = json.loads(d.answer(d.ask("ABOUT"))["bytes"].rstrip(b"\0"))
        ok("storage.buckets.get" in said["server"], "about: without the right it is said which is missing", said)


subprocess.run(["openssl", "genpkey", "-quiet", "-algorithm", "RSA", "-out", f"{HERE}/rsa"], check=True)
at_once(lost, replaced, rates, refusals, emulators, tokens, about)
done()

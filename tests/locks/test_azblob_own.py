#!/usr/bin/env -S PYTHONPATH=. python3
"""The own cases of the lock in Azure Blob Storage, on a storage that goes wrong: answers that are lost or are somebody
else's, refusals, leases, tokens. Where tokens come from: tests/script/test_azure.py. What all locks must do, by the
account's key: test_azblob.py."""

import base64
import json
import threading
import uuid
from typing import Any

from tests.lib.driver_player import USAGE, Driver, told
from tests.lib.fake_s3 import Web
from tests.lib.pki import Pki
from tests.lib.processes import scratch
from tests.lib.tap import at_once, done, ok, same

PKI = Pki(scratch())
KEY = base64.b64encode(b"a key").decode()
NONE = {"HOME": "/nonexistent", "AZURE_POD_IDENTITY_AUTHORITY_HOST": "http://127.0.0.1:1"}


def record(holder: str = "a") -> str:
    return json.dumps({"holderIdentity": holder, "write": uuid.uuid4().hex})


def error(status: int, code: str, message: str = "as the test says") -> tuple[int, bytes, dict[str, str]]:
    body = f'<?xml version="1.0" encoding="utf-8"?><Error><Code>{code}</Code><Message>{message}</Message></Error>'
    return status, b"\xef\xbb\xbf" + body.encode(), {"x-ms-error-code": code, "Content-Type": "application/xml"}


class Storage(Web):
    """One container, whose writes are one step. instead(asked): another answer, or NotImplemented for its own. token:
    the only one that it takes, where it wants one."""

    def __init__(self, tls: Any = None) -> None:
        super().__init__(self.answer, tls)
        self.blobs: dict[str, tuple[bytes, str]] = {}
        self.written, self.step = 0, threading.Lock()
        self.token: str | None = None
        self.nameless = False  # its answers do not repeat the request's id
        self.instead: Any = lambda asked: NotImplemented

    def answer(self, asked: Any) -> Any:
        if self.token and asked.headers["Authorization"] != f"Bearer {self.token}":
            return error(401, "InvalidAuthenticationInfo")
        found = self.instead(asked)
        if found is NotImplemented:
            found = self.own(asked)
        if found is None:
            return None
        if self.nameless:
            return found
        return found[0], found[1], {"x-ms-client-request-id": asked.headers["x-ms-client-request-id"], **found[2]}

    def own(self, asked: Any) -> Any:
        with self.step:
            there = self.blobs.get(asked.path)
            if asked.method == "GET":
                return (200, there[0], {"ETag": there[1]}) if there else error(404, "BlobNotFound")
            if asked.headers["If-None-Match"] == "*" and there:
                return error(409, "BlobAlreadyExists")
            if asked.headers["If-Match"] and (not there or asked.headers["If-Match"] != there[1]):
                return error(412, "ConditionNotMet")
            if asked.method == "DELETE":
                del self.blobs[asked.path]
                return 202, b"", {}
            self.written += 1
            self.blobs[asked.path] = asked.body, f'"0x8DC{self.written:012X}"'
            return 201, b"", {"ETag": self.blobs[asked.path][1]}


def place_of(account: str = "acct", hosts: Any = None) -> dict[str, Any]:
    place = {"driver": "azblob", "file": None, "url": f"azblob://{account}"}
    return {**place, "hosts": hosts or [{"name": account, "port": 0}]}


def opened(storage: Storage, env: Any = None, **options: str) -> Driver:
    d = Driver(env={**NONE, **({"AZURE_STORAGE_KEY": KEY} if env is None else env)})
    o = d.open("azblob", **place_of(), options={"endpoint": f"{storage.url}/acct", **options})
    if not o["ok"]:
        raise AssertionError(o["text"])
    return d


PATH, K = "/acct/c/k", "c/k"


def lost() -> None:
    with Storage() as s, opened(s) as d:
        w = d.write(record(), key=K)
        same((w["outcome"], s.blobs[PATH][1]), ("ok", w["version"]), "lost: a write; its version: the ETag")
        old = record("x")
        s.instead = lambda asked: s.own(asked) and None if asked.method == "PUT" else NotImplemented
        u = d.write(old, key=K, expected=w["version"])
        same(s.blobs[PATH][0].decode(), old, "lost: it was done and its answer lost")
        ok(u["outcome"] in ("unknown", "ok"), f"lost: that is unknown, or found by a look ({u['outcome']})")
        version = s.blobs[PATH][1]

        def applied_before(asked: Any) -> Any:
            """A copy of the request was applied, and its answer lost: this one meets the copy."""
            if asked.method == "PUT":
                s.own(asked)
            return NotImplemented

        s.instead = applied_before
        text = record("y")
        w = d.write(text, key=K, expected=version)
        same(w["outcome"], "ok", "lost: 412 to a write that was repeated is settled by a look")
        same((s.blobs[PATH][0].decode(), s.blobs[PATH][1]), (text, w["version"]), "lost: its version is there")
        first = d.write(record(), key="c/new")
        same((first["outcome"], s.blobs["/acct/c/new"][1]), ("ok", first["version"]), "lost: and 409 to a first one")
        s.instead = lambda asked: NotImplemented
        same(
            d.write(record("z"), key=K, expected=version)["outcome"], "conflict", "lost: 412 to one that came too late"
        )
        same(d.write(record("z"), key=K)["outcome"], "conflict", "lost: 409 where there is another's")
        same(s.blobs[PATH][0].decode(), text, "lost: which change nothing")
        s.instead = lambda asked: error(412, "ConditionNotMet") if asked.method == "PUT" else NotImplemented
        at = w["version"]
        ok(told(d.write(record(), key=K, expected=at), "unknown", "expected"), "lost: 412 though nothing has changed")
        s.instead = lambda asked: error(412, "ConditionNotMet") if asked.method == "PUT" else (500, b"", {})
        same(d.write(record(), key=K, expected=at)["outcome"], "unknown", "lost: 412 without a look is unknown")
        s.instead = lambda asked: (201, b"", {"ETag": '"0x1"', "x-ms-client-request-id": "another"})
        ok(told(d.write(record(), key=K, expected=at), "unknown", "another request"), "lost: an answer to another's")
        s.instead, s.nameless = lambda asked: NotImplemented, True
        ok(told(d.write(record(), key=K, expected=at), "unknown", "has no id"), "lost: a success without the id")
        ok(told(d.read(key=K), "failed", "has no id"), "lost: nor is a read without it believed")
        s.nameless, at = False, s.blobs[PATH][1]
        same(d.read(key=K)["version"], at, "lost: which one with it is")
        del s.blobs[PATH]
        same(d.write(record(), key=K, expected=at)["outcome"], "conflict", "lost: what was deleted is a conflict")
        ok(PATH not in s.blobs, "lost: and is not made anew")


def replaced() -> None:
    """A copy was done and its answer lost, and another has replaced it before the next copy came."""
    with Storage(tls=PKI.server()) as s, opened(s, ca=PKI.ca) as d:
        w = d.write(record(), key=K)
        copies: list[Any] = []

        def twice(asked: Any) -> Any:
            if asked.method != "PUT" or copies:
                return NotImplemented
            copies.append(s.own(asked))
            s.written += 1
            s.blobs[PATH] = record("z").encode(), f'"0x8DC{s.written:012X}"'
            return None

        s.instead = twice
        u = d.write(record("y"), key=K, expected=w["version"])
        same((u["outcome"], len(copies)), ("unknown", 1), "replaced: a write that was done is no conflict")


def refusals() -> None:
    with Storage() as s, opened(s) as d:
        at = d.write(record(), key=K)["version"]
        for what, answer, read, wrote in (
            ("503", error(503, "ServerBusy"), "failed", "unknown"),
            ("500", error(500, "OperationTimedOut"), "failed", "unknown"),
            ("500 of a proxy", (500, b"<html>", {}), "failed", "unknown"),
            ("429", error(429, "TooManyRequests"), "failed", "unknown"),
            ("a web page", (200, b"<html>welcome</html>", {}), "failed", "unknown"),
            ("a weak ETag", (200, b"{}", {"ETag": 'W/"1"'}), "failed", "unknown"),
            ("another 404", (404, b"<html>not here</html>", {}), "failed", "unknown"),
            ("no such container", error(404, "ContainerNotFound"), "refused", "refused"),
            ("a wrong key", error(403, "AuthenticationFailed"), "refused", "refused"),
            ("no rights", error(403, "AuthorizationPermissionMismatch"), "refused", "refused"),
            ("a lease of Azure's", error(412, "LeaseIdMissing"), "refused", "refused"),
            ("an immutability policy", error(409, "BlobImmutableDueToPolicy"), "refused", "refused"),
        ):
            s.instead = lambda asked, a=answer: a
            r, w = d.read(key=K), d.write(record(), key=K, expected=at)
            same((r["outcome"], w["outcome"]), (read, wrote), f"refused: {what}")
            advice = {
                "no rights": "docs/stores/azure.md",
                "a lease of Azure's": "Lunarch takes none",
                "no such container": "make",
            }
            ok(advice.get(what, "") in w["text"], f"refused: {what}: and what to do", w["text"])
        same(s.blobs[PATH][1], at, "refused: nothing was written")
        for key in ("k", "c/", "c/a.", "c/a./b", "c/../x", "c/a/", "C/a", "c/" + "x" * 1000):
            same(d.write(record(), key=key)["outcome"], "invalid", f"refused: the key {key[:20]}")
    for hosts, account, said in (
        (None, "Account", "storage account"),
        ([{"name": "acct", "port": 9000}], "acct", "endpoint="),
        ([{"name": "one", "port": 0}, {"name": "two", "port": 0}], "acct", "one account"),
    ):
        with Driver(env=NONE) as d:
            o = d.open("azblob", **place_of(account, hosts))
            ok(not o["ok"] and o["code"] == USAGE and said in o["text"], f"refused: {account}: {said}", o["text"])


def tokens() -> None:
    given = [0]

    def machine(asked: Any) -> Any:
        given[0] += 1
        return 200, json.dumps({"access_token": f"t{given[0]}", "expires_in": "86399"}).encode(), {}

    with Web(machine) as giver, Storage(tls=PKI.server()) as s:
        env = {"AZURE_POD_IDENTITY_AUTHORITY_HOST": giver.url}
        s.token = "t1"
        with opened(s, env, ca=PKI.ca) as d:
            w = d.write(record(), key=K)
            same(w["outcome"], "ok", "tokens: a write over TLS, by the machine's identity")
            s.token = "t2"
            w = d.write(record(), key=K, expected=w["version"])
            same((w["outcome"], given[0]), ("ok", 2), "tokens: what the server refuses is replaced, and sent again")
            s.token = "another"
            w = d.write(record(), key=K, expected=w["version"])
            ok(told(w, "refused", "not accepted"), "tokens: or it is told")
        with opened(s, {}, ca=PKI.ca) as d:
            ok(told(d.read(key=K), "refused", "managed identity"), "tokens: that there is none is told")
    with Storage() as s, opened(s, {}) as d:
        ok(told(d.read(key=K), "refused", "plain HTTP"), "tokens: none goes over plain HTTP")
        same(s.asked, [], "tokens: where nothing is asked")
    with Storage() as s, opened(s, {"AZURE_STORAGE_SAS_TOKEN": "?sv=2021-12-02&sig=a%2Bb%3D"}) as d:
        d.write(record(), key=K)
        ok(s.asked[0].query.endswith("sig=a%2Bb%3D&sv=2021-12-02"), "tokens: a SAS stands in the query as it was")
        ok(not s.asked[0].headers["Authorization"], "tokens: and nothing else is said")


def secrets() -> None:
    """A SAS is as good as a password; where a connection string says that blobs are is checked as an endpoint is."""
    sas = {"AZURE_STORAGE_SAS_TOKEN": "?sv=2021-12-02&sig=hidden"}
    string = "AccountName=acct;AccountKey=" + KEY + ";BlobEndpoint="
    for env, endpoint, said in (
        (sas, "http://192.0.2.1/acct", "this machine alone"),
        (sas, "http://127.0.0.1.example.com/acct", "this machine alone"),
        (sas, "http://localhost.example.com/acct", "this machine alone"),
        ({"AZURE_STORAGE_CONNECTION_STRING": string + "http://hidden@192.0.2.1/acct"}, None, "CONNECTION_STRING"),
        ({"AZURE_STORAGE_CONNECTION_STRING": string + "hidden"}, None, "expected a URL"),
    ):
        with Driver(env={**NONE, **env}) as d:
            o = d.open("azblob", **place_of(), **({"options": {"endpoint": endpoint}} if endpoint else {}))
            good = not o["ok"] and o["code"] == USAGE and said in o["text"] and "hidden" not in o["text"]
            ok(good, f"secrets: {endpoint or 'a connection string'}: {said}", o)
    with Storage() as s, opened(s, {**sas, "http_proxy": "http://127.0.0.1:1"}) as d:
        same(d.write(record(), key=K)["outcome"], "ok", "secrets: and over plain HTTP no proxy sees a SAS")


def about() -> None:
    with Storage() as s, opened(s) as d:
        s.instead = lambda asked: (200, b"", {"x-ms-sku-name": "Standard_RAGRS", "Server": "Windows-Azure-Blob/1.0"})
        said = json.loads(d.answer(d.ask("ABOUT"))["bytes"].rstrip(b"\0"))
        ok("Standard_RAGRS" in said["server"] and "another region" in said["warning"], "about: a copied account", said)
        s.instead = lambda asked: (200, b"", {"x-ms-sku-name": "Standard_ZRS"})
        said = json.loads(d.answer(d.ask("ABOUT"))["bytes"].rstrip(b"\0"))
        ok(not said["warning"], "about: one of a single region", said)


at_once(lost, replaced, refusals, tokens, secrets, about)
done()

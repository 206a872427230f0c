#!/usr/bin/env -S PYTHONPATH=. python3
"""lunarch.azure finds tokens where Azure's tools do: before servers that answer as Microsoft's do (shapes of its
documents and of recorded answers), and check what they are asked. Keys and SAS are tried on Azurite: test_azblob.py,
test_azblob_own.py."""

import json
import os
import time
from typing import Any
from urllib.parse import parse_qs

from tests.lib.candidates import Candidate, stop_everyone
from tests.lib.fake_s3 import Web
from tests.lib.processes import PATIENCE, scratch
from tests.lib.tap import done, ok, same

HERE = scratch()
NAMES = "CLIENT_SECRET FEDERATED_TOKEN_FILE CLIENT_ID TENANT_ID AUTHORITY_HOST STORAGE_KEY STORAGE_CONNECTION_STRING"
CLEAN = {
    **{f"AZURE_{n}": "" for n in NAMES.split()},
    **{"IDENTITY_ENDPOINT": "", "IDENTITY_HEADER": "", "AZURE_STORAGE_SAS_TOKEN": "", "AZURE_STORAGE_ACCOUNT": ""},
    "AZURE_POD_IDENTITY_AUTHORITY_HOST": "http://127.0.0.1:1",
}
RESOURCE = "https://storage.azure.com"


def says(env: dict[str, str], more: str = "", options: str = "") -> list[str]:
    script = f"""local azure = require "lunarch.azure"
      return {{ on_leading = function()
        local c = azure.credentials {{ {options} }}
        local function say(token, err) print(token or err.code .. " " .. err.message) end
        say(c:token())
        {more}
        lunarch.exit()
      end }}"""
    c = Candidate("--lock", "none:", "-e", script, env={**os.environ, **CLEAN, **env}, options=())
    c.leave(PATIENCE)
    return [e["message"] for e in c.all("print")]


def refusal(status: int, error: str, description: str) -> tuple[int, bytes, dict[str, str]]:
    return status, json.dumps({"error": error, "error_description": description}).encode(), {}


class Microsoft(Web):
    """Entra, App Service's identities, and a machine's metadata."""

    def __init__(self) -> None:
        super().__init__(self.answers)
        self.given, self.lasts = 0, 86399

    def answers(self, asked: Any) -> Any:
        query = {k: v[0] for k, v in parse_qs(asked.query).items()}
        if asked.path == "/the-tenant/oauth2/v2.0/token":
            return self.entra({k: v[0] for k, v in parse_qs(asked.body.decode()).items()})
        if asked.path == "/msi/token":
            good = asked.headers["X-IDENTITY-HEADER"] == "hidden" and query["api-version"] == "2019-08-01"
            if not good or query["resource"] != RESOURCE:
                return 401, b"", {}
            on = str(int(time.time() + 86400))
            found = {
                "access_token": "service's " + query.get("client_id", "own"),
                "expires_on": on,
                "resource": RESOURCE,
            }
            return 200, json.dumps(found).encode(), {}
        if asked.path == "/metadata/identity/oauth2/token":
            return self.machine(asked, query)
        return 404, b"", {}

    @staticmethod
    def entra(form: dict[str, str]) -> Any:
        good = (form["client_id"], form["scope"]) == ("me", RESOURCE + "/.default")
        good = good and form["grant_type"] == "client_credentials"
        jwt = form.get("client_assertion_type") == "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
        if not good or (
            form.get("client_secret") != "d-secret" and not (jwt and form["client_assertion"] == "a.pod.s")
        ):
            return refusal(401, "invalid_client", "AADSTS7000215: Invalid client secret provided.")
        made = {"token_type": "Bearer", "expires_in": 3599, "ext_expires_in": 3599}
        return 200, json.dumps({**made, "access_token": "pod's" if jwt else "secret's"}).encode(), {}

    def machine(self, asked: Any, query: dict[str, str]) -> Any:
        if asked.headers["Metadata"] != "true" or query["api-version"] != "2018-02-01":
            return refusal(400, "invalid_request", "Required metadata header not specified")
        if query["resource"] != RESOURCE:
            return refusal(400, "invalid_resource", "AADSTS500011: The resource principal named x was not found")
        self.given += 1
        who = query.get("client_id", "own")
        made = {"client_id": who, "expires_in": str(self.lasts), "expires_on": "1", "ext_expires_in": "86399"}
        more = {"not_before": "1", "resource": RESOURCE, "token_type": "Bearer"}
        return 200, json.dumps({"access_token": f"machine's {who} {self.given}", **made, **more}).encode(), {}


def sources(web: Microsoft) -> None:
    with open(os.path.join(HERE, "token"), "w") as f:
        f.write("a.pod.s\n")
    here = {"AZURE_TENANT_ID": "the-tenant", "AZURE_CLIENT_ID": "me", "AZURE_AUTHORITY_HOST": web.url + "/"}
    secret = {**here, "AZURE_CLIENT_SECRET": "d-secret"}
    pod = {**here, "AZURE_FEDERATED_TOKEN_FILE": os.path.join(HERE, "token")}
    service = {"IDENTITY_ENDPOINT": f"{web.url}/msi/token", "IDENTITY_HEADER": "hidden"}
    machine = {"AZURE_POD_IDENTITY_AUTHORITY_HOST": web.url}

    def told(what: str, env: dict[str, str], *wanted: str, options: str = "") -> None:
        got = says(env, options=options)
        good = len(got) == 1 and got[0].startswith("denied azure: ") and all(w in got[0] for w in wanted)
        ok(good and "d-secret" not in got[0] and "hidden" not in got[0], f"{what} is told: {wanted}", got)

    same(says(secret), ["secret's"], "an application's secret: its token")
    same(says(pod), ["pod's"], "workload identity, by a federated token's file: its token")
    same(says({**pod, "AZURE_CLIENT_SECRET": "d-secret"}), ["secret's"], "the secret goes before it")
    same(says(service), ["service's own"], "App Service's identity: its token")
    same(says({**service, "AZURE_CLIENT_ID": "me"}), ["service's me"], "one that was assigned: its token")
    same(says(machine), ["machine's own 1"], "a machine's identity: its token")
    same(says(machine, options='client_id = "you"'), ["machine's you 2"], "one that the script names: its token")
    told("a wrong secret", {**secret, "AZURE_CLIENT_SECRET": "x"}, "401", "AADSTS7000215")
    told("a secret without a tenant", {"AZURE_CLIENT_SECRET": "d-secret"}, "AZURE_TENANT_ID")
    told("a token's file that is not there", {**pod, "AZURE_FEDERATED_TOKEN_FILE": "/nonexistent/x"}, "/nonexistent/x")
    same(says({**secret, "http_proxy": "http://127.0.0.1:1"}), ["secret's"], "which no proxy sees over plain HTTP")
    for where in ("192.0.2.1", "127.0.0.1.example.com", "127.0.0.1:1@192.0.2.1", "localhost:x@192.0.2.1"):
        told(f"plain HTTP at {where}", {**secret, "AZURE_AUTHORITY_HOST": f"http://{where}"}, "URL of https")
    told("a directory", {**pod, "AZURE_FEDERATED_TOKEN_FILE": HERE}, HERE, "Is a directory")
    told("a service that refuses", {**service, "IDENTITY_HEADER": "other"}, "service's", "401")
    told("another resource", machine, "400", "AADSTS500011", options='resource = "x"')
    told("nothing at all", {}, "no secret", "machine's")


def kept(web: Microsoft) -> None:
    at = {"AZURE_POD_IDENTITY_AUTHORITY_HOST": web.url}
    web.given = 0
    got = says(at, "say(c:token()) c:renew() say(c:token()) say(c:token())")
    same(got, [f"machine's own {n}" for n in (1, 1, 2, 2)], "a machine's: kept until it is refused")
    web.given = 0
    late = """local s, request = azure.storage("acct"), { url = "https://acct.blob.core.windows.net/x" }
      local function token(r) return r.headers.Authorization end
      local old = s:sign(request) say(token(old)) s:renew(old) say(token(s:sign(request)))
      s:renew(old) say(token(s:sign(request))) s:renew(s:sign(request)) say(token(s:sign(request)))"""
    got = says(at, late)[1:]
    wanted = [f"Bearer machine's own {n}" for n in (2, 3, 3, 4)]
    same(got, wanted, "an account: a late refusal of the token before leaves the one that is kept")
    web.given, web.lasts = 0, 4
    again = "local first = c:get().token repeat sleep(0.1) until c:get().token ~= first say 'renewed'"
    same(says(at, again), ["machine's own 1", "renewed"], "one that ends is renewed before it does")


def accounts() -> None:
    """Which of the environment's keys are an account's."""
    script = """local s, err = azure.storage("acct")
      local function or_none(value) return value or "-" end
      if not s then say(nil, err) return lunarch.exit() end
      print(or_none(s.key), or_none(s.sas), or_none(s.endpoint), s.credentials and "token" or "-")"""
    text = "DefaultEndpointsProtocol=https;AccountName=acct;AccountKey=a2V5;EndpointSuffix=core.chinacloudapi.cn"
    sas = "BlobEndpoint=https://x.example;SharedAccessSignature=sv=1&sig=a%2B=="
    cases: list[tuple[dict[str, str], str]] = [
        ({}, "- - - token"),
        ({"AZURE_STORAGE_KEY": "a2V5"}, "key - - -"),
        ({"AZURE_STORAGE_KEY": "a2V5", "AZURE_STORAGE_ACCOUNT": "other"}, "- - - token"),
        ({"AZURE_STORAGE_SAS_TOKEN": "?sv=1&sig=x"}, "- sv=1&sig=x - -"),
        ({"AZURE_STORAGE_CONNECTION_STRING": text}, "key - https://acct.blob.core.chinacloudapi.cn -"),
        ({"AZURE_STORAGE_CONNECTION_STRING": text.replace("acct", "other")}, "- - - token"),
        ({"AZURE_STORAGE_CONNECTION_STRING": sas}, "- sv=1&sig=a%2B== https://x.example -"),
        ({"AZURE_STORAGE_KEY": "no base64!"}, "invalid azure: the account's key: expected base64, found another text"),
    ]
    for env, wanted in cases:
        same(
            [" ".join(line.split()) for line in says(env, script)[1:]],
            [wanted],
            f"an account's keys: {sorted(env)}: {wanted[:30]}",
        )


def main() -> None:
    with Microsoft() as web:
        sources(web)
        kept(web)
    accounts()
    stop_everyone()
    done()


main()

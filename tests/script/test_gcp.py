#!/usr/bin/env -S PYTHONPATH=. python3
"""lunarch.gcp finds tokens where Google's tools do: before servers that answer as Google's do (shapes of its documents
and of recorded answers), and check what they are asked: openssl verifies each signature."""

import base64
import json
import os
import subprocess
import time
from typing import Any
from urllib.parse import parse_qs

from tests.lib.candidates import Candidate, stop_everyone
from tests.lib.fake_s3 import Web
from tests.lib.processes import PATIENCE, scratch
from tests.lib.tap import done, ok, same

HERE = scratch()
KEY = os.path.join(HERE, "key.pem")
JSON = {"Content-Type": "application/json; charset=UTF-8"}
CLEAN = {"HOME": "/nonexistent", "NO_GCE_CHECK": "true", "CLOUDSDK_CONFIG": "", "GOOGLE_APPLICATION_CREDENTIALS": ""}


def script(options: str = "", more: str = "") -> str:
    return f"""local gcp = require "lunarch.gcp"
      return {{ on_leading = function()
        local c = gcp.credentials {{ {options} }}
        local function say(token, err) print(token or err.code .. " " .. err.message) end
        say(c:token())
        {more}
        lunarch.exit()
      end }}"""


def says(env: dict[str, str], options: str = "", more: str = "") -> list[str]:
    c = Candidate("--lock", "none:", "-e", script(options, more), env={**os.environ, **CLEAN, **env}, options=())
    c.leave(PATIENCE)
    return [e["message"] for e in c.all("print")]


def file(name: str, content: Any) -> str:
    path = os.path.join(HERE, name)
    with open(path, "w") as f:
        f.write(content if isinstance(content, str) else json.dumps(content))
    return path


def answer(token: str, lasts: int = 3599) -> tuple[int, bytes, dict[str, str]]:
    return 200, json.dumps({"access_token": token, "expires_in": lasts, "token_type": "Bearer"}).encode(), JSON


def refusal(status: int, error: str, description: str) -> tuple[int, bytes, dict[str, str]]:
    return status, json.dumps({"error": error, "error_description": description}).encode(), JSON


def verified(token: str) -> dict[str, Any]:
    """A JSON web token's claims, once openssl has verified it."""
    parts = [base64.urlsafe_b64decode(p + "=" * (-len(p) % 4)) for p in token.split(".")]
    signature = os.path.join(HERE, "signature")
    with open(signature, "wb") as f:
        f.write(parts[2])
    how = ["openssl", "dgst", "-sha256", "-verify", KEY + ".pub", "-signature", signature]
    subprocess.run(how, input=token.rsplit(".", 1)[0].encode(), check=True, capture_output=True)
    header = json.loads(parts[0])
    assert (header["alg"], header["typ"], header["kid"]) == ("RS256", "JWT", "k1"), header
    claims: dict[str, Any] = json.loads(parts[1])
    return claims


class Google(Web):
    """Its tokens' server, the service that lets accounts act as another one, and an instance's metadata."""

    def __init__(self) -> None:
        super().__init__(self.answers)
        self.given, self.lasts, self.asleep = 0, 3599, False

    def answers(self, asked: Any) -> Any:
        form = {k: v[0] for k, v in parse_qs(asked.body.decode()).items()}
        if asked.path.startswith("/computeMetadata/"):
            return self.metadata(asked)
        if asked.path.endswith(":generateAccessToken"):
            return self.impersonation(asked)
        if asked.path == "/subject":
            return 200, json.dumps({"value": "from a url"}).encode(), JSON
        if form.get("grant_type") == "urn:ietf:params:oauth:grant-type:jwt-bearer":
            return self.by_key(form["assertion"])
        if form.get("grant_type") == "refresh_token":
            good = (form["client_id"], form["client_secret"], form["refresh_token"]) == ("id", "d-secret", "1//r+/=")
            return answer("a user's") if good else refusal(400, "invalid_grant", "Token has been expired or revoked.")
        if form.get("grant_type") == "urn:ietf:params:oauth:grant-type:token-exchange":
            wanted = {"audience": "//iam.example/pool", "subject_token_type": "urn:ietf:params:oauth:token-type:jwt"}
            good = all(form[k] == v for k, v in wanted.items()) and form["subject_token"].startswith("from a ")
            return answer("federated, " + form["subject_token"]) if good else refusal(400, "invalid_target", "no")
        return 404, b"", {}

    def by_key(self, assertion: str) -> Any:
        claims = verified(assertion)
        good = claims["aud"] == f"{self.url}/token" and abs(claims["iat"] - time.time()) < 600
        good = good and claims["exp"] == claims["iat"] + 3600
        if claims["iss"] != "me@x.iam.gserviceaccount.com" or not good:
            return refusal(400, "invalid_grant", "Invalid grant: account not found")
        self.given += 1
        return answer(f"key's {self.given}, {claims['scope'].rsplit('/', 1)[1]}", self.lasts)

    def metadata(self, asked: Any) -> Any:
        if asked.headers["Metadata-Flavor"] != "Google":
            return 403, b"", {}
        self.given += 1
        return answer(f"instance's {self.given}", self.lasts)

    @staticmethod
    def impersonation(asked: Any) -> Any:
        if asked.headers["Authorization"] not in ("Bearer a user's", "Bearer federated, from a file"):
            error = {"error": {"code": 403, "message": "Permission denied", "status": "PERMISSION_DENIED"}}
            return 403, json.dumps(error).encode(), JSON
        scope = json.loads(asked.body)["scope"][0].rsplit("/", 1)[1]
        made = {"accessToken": f"acting, {scope}", "expireTime": "2099-01-01T00:00:00Z"}
        return 200, json.dumps(made).encode(), JSON


def sources(google: Google) -> None:
    pem = open(KEY).read()
    key = {
        **{"type": "service_account", "client_email": "me@x.iam.gserviceaccount.com", "private_key_id": "k1"},
        **{"private_key": pem, "token_uri": f"{google.url}/token"},
    }
    user = {"type": "authorized_user", "client_id": "id", "client_secret": "d-secret", "refresh_token": "1//r+/="}
    user["token_uri"] = f"{google.url}/token"
    acts = f"{google.url}/v1/projects/-/serviceAccounts/x:generateAccessToken"
    pool: dict[str, Any] = {
        **{"type": "external_account", "audience": "//iam.example/pool", "token_url": f"{google.url}/v1/token"},
        **{"subject_token_type": "urn:ietf:params:oauth:token-type:jwt"},
        "credential_source": {"file": file("subject", "from a file\n")},
    }
    by_url = {"url": f"{google.url}/subject", "format": {"type": "json", "subject_token_field_name": "value"}}
    login = os.path.join(HERE, "gcloud")
    os.makedirs(login)
    file("gcloud/application_default_credentials.json", user)

    def named(name: str, content: Any) -> dict[str, str]:
        return {"GOOGLE_APPLICATION_CREDENTIALS": file(name, content)}

    def found(what: str, env: dict[str, str], token: str, options: str = "") -> None:
        same(says(env, options), [token], f"{what}: its token")

    def told(what: str, env: dict[str, str], *wanted: str) -> None:
        got = says(env)
        good = len(got) == 1 and got[0].startswith("denied gcp: ") and all(w in got[0] for w in wanted)
        ok(good and "d-secret" not in got[0] and "PRIVATE KEY" not in got[0], f"{what} is told: {wanted}", got)

    found("a service account's key", named("key.json", key), "key's 1, cloud-platform")
    past = {"http_proxy": "http://127.0.0.1:1"}
    found(
        "past a proxy: a URL",
        {**past, **named("url.json", {**pool, "credential_source": by_url})},
        "federated, from a url",
    )
    found("with a scope", {}, "key's 2, read", f'file = "{HERE}/key.json", scope = "https://x/read"')
    found("gcloud's login", {"CLOUDSDK_CONFIG": login}, "a user's")
    found(
        "a file goes before the login", {"CLOUDSDK_CONFIG": login, **named("key.json", key)}, "key's 3, cloud-platform"
    )
    found("workload identity federation, a file", named("pool.json", pool), "federated, from a file")
    found("a URL", named("url.json", {**pool, "credential_source": by_url}), "federated, from a url")
    found(
        "federation, then another account",
        named("acting.json", {**pool, "service_account_impersonation_url": acts}),
        "acting, cloud-platform",
    )
    acting = {"type": "impersonated_service_account", "service_account_impersonation_url": acts}
    found(
        "a login that acts as an account",
        named("as.json", {**acting, "source_credentials": user}),
        "acting, cloud-platform",
    )
    told("an account that may not", named("no.json", {**acting, "source_credentials": key}), "403", "Permission denied")
    told("a key of another account", named("other.json", {**key, "client_email": "x"}), "400", "account not found")
    told("a key that is none", named("none.json", {**key, "private_key": "x"}), "private_key", "RSA")
    told("a refresh token that was withdrawn", named("old.json", {**user, "refresh_token": "x"}), "expired or revoked")
    told("a file that is not there", {"GOOGLE_APPLICATION_CREDENTIALS": "/nonexistent/x"}, "/nonexistent/x")
    told("no JSON", named("text", "hello"), "no JSON")
    told("another type", named("odd.json", {"type": "gdch_service_account"}), "gdch_service_account")
    aws = {**pool, "credential_source": {"environment_id": "aws1", "url": "http://169.254.169.254/"}}
    told("federation by AWS", named("aws.json", aws), "file or url")
    for where in ("192.0.2.1", "localhost:x@192.0.2.1", "127.0.0.1.example.com", "127.0.0.1:1@192.0.2.1"):
        told(f"plain HTTP at {where}", named("plain.json", {**key, "token_uri": f"http://{where}/token"}), "https")
    told("a directory", {"GOOGLE_APPLICATION_CREDENTIALS": HERE}, HERE, "Is a directory")
    deep: dict[str, Any] = user
    for _ in range(4):
        deep = {**acting, "source_credentials": deep}
    told("accounts behind accounts", named("deep.json", deep), "more than 3")
    told("nothing at all", {}, "GOOGLE_APPLICATION_CREDENTIALS", "gcloud")


def kept(google: Google) -> None:
    at = {"NO_GCE_CHECK": "", "GCE_METADATA_HOST": f"127.0.0.1:{google.port}"}
    google.given = 0
    got = says(at, more="say(c:token()) c:renew() say(c:token()) say(c:token())")
    same(
        got, ["instance's 1", "instance's 1", "instance's 2", "instance's 2"], "an instance's: kept until it is refused"
    )
    google.given = 0
    late = "local old = c:token() c:renew(old) say(c:token()) c:renew(old) say(c:token()) "
    late += "c:renew(c:token()) say(c:token())"
    got = says(at, more=late)
    wanted = [f"instance's {n}" for n in (1, 2, 2, 3)]
    same(got, wanted, "a late refusal of the token before leaves the one that is kept, and one of that replaces it")
    google.given, google.lasts = 0, 4
    again = "local first = c:get().token repeat sleep(0.1) until c:get().token ~= first say 'renewed'"
    same(says(at, more=again), ["instance's 1", "renewed"], "one that ends is renewed before it does")


def main() -> None:
    subprocess.run(["openssl", "genpkey", "-quiet", "-algorithm", "RSA", "-out", KEY], check=True)
    subprocess.run(["openssl", "pkey", "-in", KEY, "-pubout", "-out", KEY + ".pub"], check=True)
    with Google() as google:
        sources(google)
        kept(google)
    stop_everyone()
    done()


main()

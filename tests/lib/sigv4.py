"""AWS Signature Version 4 as its documents describe it: to sign what tests ask a store, and to check what a
client has signed. Not fast, and no client: bytes in, texts out."""

import datetime
import hashlib
import hmac
from collections.abc import Mapping
from urllib.parse import quote, unquote

EMPTY = hashlib.sha256(b"").hexdigest()


def encoded(text: str, kept: str = "") -> str:
    return quote(text, safe=kept + "-._~")


def _canonical_query(query: str) -> str:
    pairs = []
    for part in filter(None, query.split("&")):
        name, _, value = part.partition("=")
        pairs.append((encoded(unquote(name.replace("+", " "))), encoded(unquote(value.replace("+", " ")))))
    return "&".join(f"{n}={v}" for n, v in sorted(pairs))


def signature(
    secret: str,
    scope: str,
    date: str,
    method: str,
    target: str,
    headers: Mapping[str, str],
    signed: str,
    body_hash: str,
) -> str:
    """scope: DAY/REGION/SERVICE/aws4_request. headers: by lower-case name. signed: names between ';'."""
    path, _, query = target.partition("?")
    lines = "".join(f"{name}:{' '.join(headers.get(name, '').split())}\n" for name in signed.split(";"))
    asked = "\n".join([method, encoded(unquote(path), "/"), _canonical_query(query), lines, signed, body_hash])
    text = "\n".join(["AWS4-HMAC-SHA256", date, scope, hashlib.sha256(asked.encode()).hexdigest()])
    key = b"AWS4" + secret.encode()
    for part in [*scope.split("/"), text]:
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key.hex()


def sign(
    key: str,
    secret: str,
    region: str,
    method: str,
    host: str,
    target: str,
    body: bytes,
    headers: Mapping[str, str],
    service: str = "s3",
) -> dict[str, str]:
    """The headers with which a request is sent. target: path and query, percent-encoded."""
    date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    scope, body_hash = f"{date[:8]}/{region}/{service}/aws4_request", hashlib.sha256(body).hexdigest()
    out = {k.lower(): v for k, v in headers.items()} | {
        "host": host,
        "x-amz-date": date,
        "x-amz-content-sha256": body_hash,
    }
    signed = ";".join(sorted(out))
    made = signature(secret, scope, date, method, target, out, signed, body_hash)
    out["authorization"] = f"AWS4-HMAC-SHA256 Credential={key}/{scope}, SignedHeaders={signed}, Signature={made}"
    return out


def wrong_with(secret: str, method: str, target: str, headers: Mapping[str, str], body: bytes) -> str:
    """What is wrong with a request's signature; "": it is right."""
    had = {k.lower(): v for k, v in headers.items()}
    given = had.get("authorization", "")
    if not given.startswith("AWS4-HMAC-SHA256 "):
        return "it is not signed"
    fields = dict(f.strip().split("=", 1) for f in given[len("AWS4-HMAC-SHA256 ") :].split(","))
    body_hash = had.get("x-amz-content-sha256", "")
    if body_hash != hashlib.sha256(body).hexdigest():
        return "X-Amz-Content-Sha256 is not the body's"
    needed = {"host"} | {n for n in had if n.startswith("x-amz-")}
    names = fields["SignedHeaders"].split(";")
    if names != sorted(names):
        return f"not sorted: {names}"
    missing = needed - set(names)
    if missing:
        return f"not signed: {sorted(missing)}"
    scope = fields["Credential"].split("/", 1)[1]
    made = signature(secret, scope, had.get("x-amz-date", ""), method, target, had, fields["SignedHeaders"], body_hash)
    return "" if made == fields["Signature"] else "another signature"

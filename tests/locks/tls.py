#!/usr/bin/env -S PYTHONPATH=. python3
"""A network that somebody else controls: each client that speaks TLS, against each server that it must not trust. It
refuses with an error that names the server and the reason, and says nothing that counts, in the clear or through TLS.

What each lock does beside that on its real server is in its own test."""

import json
import os
import platform
import re
import ssl
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from tests.lib.fake_s3 import Web
from tests.lib.hostile import CLEAN
from tests.lib.next_debian import next_debian
from tests.lib.pki import Pki
from tests.lib.processes import LUNARCH, PATIENCE, scratch
from tests.lib.tap import note, ok, run, skip
from tests.lib.tls_endpoint import Endpoint, not_yet_valid, self_signed

TMP = scratch()
SECRET = "s3cret" + os.urandom(6).hex()
for _name in ("ours", "others", "next"):
    os.mkdir(f"{TMP}/{_name}")
PKI, OTHER, NEXT = (Pki(f"{TMP}/{name}") for name in ("ours", "others", "next"))
# A system whose OpenSSL takes whatever there is: what is refused is not refused because of its settings.
LAX = f"{TMP}/openssl.cnf"
with open(LAX, "w") as _f:
    _f.write("openssl_conf=a\n[a]\nssl_conf=b\n[b]\nsystem_default=c\n[c]\n")
    _f.write("MinProtocol=TLSv1\nCipherString=ALL:@SECLEVEL=0\n")
ALT = "IP:127.0.0.1,DNS:localhost"

TOKENS = Web(lambda asked: (200, json.dumps({"access_token": SECRET, "expires_in": 3599}).encode(), {}))

Certificate = tuple[str, str]
ELSEWHERE: Certificate = PKI.sign("elsewhere", "/CN=elsewhere.test", "DNS:elsewhere.test")
EXPIRED: Certificate = PKI.sign("expired", "/CN=expired", ALT, "-1")
LATER, SELF = not_yet_valid(PKI), self_signed(PKI)
PKI.server(), OTHER.server()

# What is wrong; the endpoint (protocol given), the client's authority, what the error must match.
Make = Callable[[str], Endpoint]
SERVERS: list[tuple[str, Make, str, str]] = [
    ("wrong host name", lambda p: Endpoint(ELSEWHERE, p), PKI.ca, "127.0.0.1.*|match|name|Validation"),
    ("expired", lambda p: Endpoint(EXPIRED, p), PKI.ca, "expired"),
    ("not yet valid", lambda p: Endpoint(LATER, p), PKI.ca, "not yet valid"),
    ("self-signed", lambda p: Endpoint(SELF, p), PKI.ca, "self.signed|certificate"),
    ("an unknown authority", lambda p: Endpoint(OTHER.server(), p), PKI.ca, "certificate"),
    ("an authority that was replaced", lambda p: Endpoint(PKI.server(), p), NEXT.ca, "certificate"),
    (
        "TLS 1.1 at most",
        lambda p: Endpoint(PKI.server(), p, newest=ssl.TLSVersion.TLSv1_1, ciphers="ALL:@SECLEVEL=0"),
        PKI.ca,
        "protocol|version|alert|legacy",
    ),
    (
        "ciphers that hide nothing",
        lambda p: Endpoint(PKI.server(), p, newest=ssl.TLSVersion.TLSv1_2, ciphers="eNULL:@SECLEVEL=0"),
        PKI.ca,
        "handshake|alert|cipher",
    ),
    (
        "ciphers that prove nothing",
        lambda p: Endpoint(PKI.server(), p, newest=ssl.TLSVersion.TLSv1_2, ciphers="ADH:AECDH:@SECLEVEL=0"),
        PKI.ca,
        "certificate",
    ),
    ("no TLS", lambda p: Endpoint(None, p), PKI.ca, "TLS|SSL|version"),
    ("a handshake that is cut short", lambda p: Endpoint(PKI.server(), p, truncated=True), PKI.ca, "."),
    ("a client's certificate that is missing", lambda p: Endpoint(PKI.server(), p, clients=PKI.ca), PKI.ca, "."),
]

Client = Callable[[int, str], tuple[list[str], dict[str, str]]]


def lock(url: str, env: dict[str, str] | None = None) -> Client:
    """{port} and {ca} in it are filled in."""
    return lambda port, ca: (["status", "--lock", url.format(port=port, ca=ca)], env or {})


def kube(port: int, ca: str) -> tuple[list[str], dict[str, str]]:
    path = f"{TMP}/kubeconfig-{port}"
    with open(path, "w") as f:
        json.dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [
                    {"name": "c", "cluster": {"server": f"https://127.0.0.1:{port}", "certificate-authority": ca}}
                ],
                "users": [{"name": "u", "user": {"token": SECRET}}],
            },
            f,
        )
    return ["status", "--lock", "kube://n/x"], {"KUBECONFIG": path}


def gs(port: int, ca: str) -> tuple[list[str], dict[str, str]]:
    """With a token that it has from a server of this machine's own."""
    path = f"{TMP}/account-{port}"
    user = {"type": "authorized_user", "client_id": "x", "client_secret": "x", "refresh_token": "x"}
    with open(path, "w") as f:
        json.dump({**user, "token_uri": f"{TOKENS.url}/token"}, f)
    url = f"gs://bucket/x?endpoint=https://127.0.0.1:{port}&ca={ca}&credentials={path}"
    return ["status", "--lock", url], {}


def script(port: int, ca: str) -> tuple[list[str], dict[str, str]]:
    """A script's own client."""
    asks = f'http.get("https://127.0.0.1:{port}/x", {{ bearer = "{SECRET}", tls = {{ ca = "{ca}" }}, timeout = 5 }})'
    text = f'local r, err = {asks} print(r and "answered" or tostring(err)) os.exit(1)'
    return ["run", "--once", "--state-dir", f"{TMP}/state-{port}", "--lock", "x", "-e", text], {}


CLIENTS: list[tuple[str, str, Client]] = [
    ("etcds", "", lock(f"etcds://zoe:{SECRET}@127.0.0.1:{{port}}/x?ca={{ca}}")),
    ("rediss", "", lock(f"rediss://zoe:{SECRET}@127.0.0.1:{{port}}/x?ca={{ca}}")),
    ("consuls", "", lock(f"consuls://:{SECRET}@127.0.0.1:{{port}}/x?ca={{ca}}")),
    (
        "postgres, verify-full",
        "postgres",
        lock(f"postgres://zoe:{SECRET}@127.0.0.1:{{port}}/d?sslmode=verify-full&sslrootcert={{ca}}#x"),
    ),
    ("mysql", "mysql", lock(f"mysql://zoe:{SECRET}@127.0.0.1:{{port}}/d?ca={{ca}}#x")),
    ("mysql, by a name", "mysql", lock(f"mysql://zoe:{SECRET}@localhost:{{port}}/d?ca={{ca}}#x")),
    (
        "s3",
        "",
        lock(
            "s3://bucket/x?endpoint=https://127.0.0.1:{port}&region=us-east-1&ca={ca}",
            {"AWS_ACCESS_KEY_ID": SECRET, "AWS_SECRET_ACCESS_KEY": SECRET},
        ),
    ),
    ("gs", "", gs),
    (
        "azblob",
        "",
        lock(
            "azblob://account/c/x?endpoint=https://127.0.0.1:{port}/account&ca={ca}",
            {"AZURE_POD_IDENTITY_AUTHORITY_HOST": TOKENS.url},
        ),
    ),
    (
        "dynamodb",
        "",
        lock(
            "dynamodb://table/x?endpoint=https://127.0.0.1:{port}&region=us-east-1&ca={ca}",
            {"AWS_ACCESS_KEY_ID": SECRET, "AWS_SECRET_ACCESS_KEY": SECRET},
        ),
    ),
    ("kube", "", kube),
    ("a script's http", "", script),
]


def tried(client: Client, port: int, ca: str) -> tuple[int, str]:
    args, env = client(port, ca)
    p = subprocess.run(
        [LUNARCH, *args],
        capture_output=True,
        text=True,
        errors="replace",
        timeout=PATIENCE,
        env={**CLEAN, "OPENSSL_CONF": LAX, **env},
    )
    return p.returncode, p.stdout + p.stderr


def judge(server: str, make: Make, ca: str, says: str, name: str, protocol: str, client: Client) -> None:
    end = make(protocol)
    status, said = tried(client, end.port, ca)
    what = f"{name}: {server}"
    heard = f"{end.connections} connections; in the clear {end.clear[:60]!r}; through TLS {end.through[:60]!r}\n{said}"
    ok(status != 0 and end.connections and "answered" not in said, f"{what}: refused", heard)
    wants_certificate = server.startswith("a client's")  # TLS 1.3 tells a client after its first bytes, which are safe
    good = SECRET.encode() not in end.clear and (wants_certificate or not end.through)
    ok(good and not re.search(rb"zoe|Authorization|PRI \*|GET |POST ", end.clear), f"{what}: it is told nothing", heard)
    named = re.search(rf"(127\.0\.0\.1|localhost).*\b{end.port}\b", said, re.S)
    if protocol == "postgres":  # whose library does not say what is wrong with a certificate
        says += "|certificate verify failed"
    ok(named and re.search(says, said, re.I) and SECRET not in said, f"{what}: the error says which, and why", said)
    if os.environ.get("SHOW"):
        note(f"{what}: {said}")
    end.close()


def test_control() -> None:
    """With the right authority each of them speaks, through TLS: the others are refused for what is wrong with them"""
    for name, protocol, client in CLIENTS:
        end = Endpoint(PKI.server(), protocol)
        said = tried(client, end.port, PKI.ca)
        ok(end.through and not end.clear, f"{name}: the right server is spoken to, through TLS", (end.clear, said))
        end.close()


def test_without_authority() -> None:
    """Without an authority's file the system's count, which do not know ours: no password stands for a certificate"""
    for host in ("127.0.0.1", "localhost"):
        end = Endpoint(PKI.server(), "mysql")
        status, said = tried(lock(f"mysql://zoe:{SECRET}@{host}:{{port}}/d?tls=true#x"), end.port, "")
        ok(
            status != 0 and end.connections and not end.through,
            f"mysql, {host}: refused without an authority's file",
            said,
        )
        end.close()


def test_environment() -> None:
    """SSL_CERT_FILE names the system's authorities, for each library, wherever the system has its own file"""
    # AWS_CA_BUNDLE, which this machine may have, comes before it.
    keys = {"AWS_ACCESS_KEY_ID": SECRET, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_CA_BUNDLE": ""}
    s3 = "s3://bucket/x?endpoint=https://127.0.0.1:{port}&region=us-east-1"
    for name, protocol, url in (
        ("etcds", "", f"etcds://zoe:{SECRET}@127.0.0.1:{{port}}/x"),
        ("consuls", "", f"consuls://:{SECRET}@127.0.0.1:{{port}}/x"),
        ("s3", "", s3),
        ("mysql", "mysql", f"mysql://zoe:{SECRET}@127.0.0.1:{{port}}/d?tls=true#x"),
    ):
        for whose, ca in (("the server's", PKI.ca), ("another", OTHER.ca)):
            end = Endpoint(PKI.server(), protocol)
            _, said = tried(lock(url, {**keys, "SSL_CERT_FILE": ca}), end.port, "")
            good = ca == PKI.ca
            told = f"{name}, SSL_CERT_FILE has {whose} authority: {'spoken to, through TLS' if good else 'refused'}"
            ok(end.connections and bool(end.through) == good and not end.clear, told, (end.clear, said))
            end.close()


def test_other_library() -> None:
    """A module that was built for another libmariadb, which would believe a certificate for another host"""
    if platform.freedesktop_os_release()["VERSION_CODENAME"] == "trixie":
        return skip("mysql, another libmariadb than it was built for", "there is no other one: this is Debian 13")
    newer = {"LD_LIBRARY_PATH": next_debian("libmariadb3") + "/usr/lib/x86_64-linux-gnu"}
    url = f"mysql://zoe:{SECRET}@127.0.0.1:{{port}}/d?ca={{ca}}#x"
    for name, certificate in (("the right server", PKI.server()), ("a server of another name", ELSEWHERE)):
        end = Endpoint(certificate, "mysql")
        status, said = tried(lock(url, newer), end.port, PKI.ca)
        ok(
            status != 0 and not end.through and "built for Connector/C" in said,
            f"mysql, another libmariadb than it was built for: {name} is refused, and the reason told",
            said,
        )
        end.close()


def test_matrix() -> None:
    """Every client with every server"""
    with ThreadPoolExecutor(6) as pool:
        jobs = [pool.submit(judge, *server, *client) for server in SERVERS for client in CLIENTS]
        for job in jobs:
            job.result()


note(f"{len(CLIENTS)} clients, {len(SERVERS)} servers; OpenSSL of the endpoints: {ssl.OPENSSL_VERSION}")
run([test_control, test_without_authority, test_environment, test_other_library, test_matrix])

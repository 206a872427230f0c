#!/usr/bin/env -S PYTHONPATH=. python3
"""The S3 lock passes the conformance suite on SeaweedFS, also with a full disk, and moto. What docs/stores/s3.md says
of rights and of replicated buckets is tried on moto. Its own cases, on an S3 that goes wrong: test_s3_own.py."""

import json
import os
import subprocess
from typing import Any

from tests.lib import s3_servers
from tests.lib.candidates import Candidate
from tests.lib.lock_cases import BASIC, NETWORK, REPEATED, SERVER, full, missed_notices, run
from tests.lib.processes import LUNARCH, PATIENCE, ROOT, scratch
from tests.lib.servers import Server, ask
from tests.lib.stores import FullS3, MotoS3, S3
from tests.lib.tap import at_once, done, ok, same

UNNOTICED = [c for c in NETWORK if c is not missed_notices]  # there are no notices


def seaweed() -> None:
    store = S3()
    os.environ.update(store.env)
    run(store, BASIC + UNNOTICED + REPEATED + SERVER)
    store.end()


def moto() -> None:
    store = MotoS3()
    os.environ.update(store.env)
    run(store, BASIC)
    store.end()


def full_disk() -> None:
    store = FullS3()
    os.environ.update(store.env)
    run(store, [full, full, full])
    store.end()


def policy() -> Any:
    """The one of docs/stores/s3.md, for the lock "job"."""
    with open(os.path.join(ROOT, "docs", "stores", "s3.md")) as f:
        text = f.read().split('{ "Version"')[1].split("\n\n")[0]
    return json.loads('{ "Version"' + text.replace("BUCKET", s3_servers.BUCKET).replace("KEY", "job"))


def without(action: str) -> Any:
    p = policy()
    for s in p["Statement"]:
        s["Action"] = [a for a in ([s["Action"]] if isinstance(s["Action"], str) else s["Action"]) if a != action]
    p["Statement"] = [s for s in p["Statement"] if s["Action"]]
    return p


def with_more(*actions: str) -> Any:
    p = policy()
    p["Statement"].append({"Effect": "Allow", "Action": list(actions), "Resource": f"arn:aws:s3:::{s3_servers.BUCKET}"})
    return p


def held() -> None:
    """A bucket with Object Lock takes no object without a checksum."""
    store = MotoS3()
    s3, rule = store.server, b"<Rule><DefaultRetention><Mode>GOVERNANCE</Mode><Days>1</Days></DefaultRetention></Rule>"
    made = [s3.ask("PUT", "/held", headers={"x-amz-bucket-object-lock-enabled": "true"})[0]]
    lock = b"<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled>" + rule
    made.append(s3.ask("PUT", "/held?object-lock=", lock + b"</ObjectLockConfiguration>")[0])
    same((made, s3.ask("PUT", "/held/x", b"x")[0]), ([200, 200], 400), "held: a PUT without a checksum is refused")
    url = store.url("job").replace(s3_servers.BUCKET, "held", 1) + "&kms=a-key"
    user = Account(store, {})
    status, said = user.says("doctor", "--lock", url)
    ok(status == 0 and "is fit" in said, "held: a bucket with Object Lock is fit", said)
    runner = Candidate("--lock", url, "-e", 'print("leads") sleep(1000)', env=user.env)
    ok(runner.wait("print", "leads"), "held: a candidate leads on it")
    same(runner.stop(), 0, "held: and releases it")
    kept = s3.ask("HEAD", "/held/job")[1]
    same(
        [kept.get(f"x-amz-server-side-encryption{n}") for n in ("", "-aws-kms-key-id")],
        ["aws:kms", "a-key"],
        "held: the record is encrypted as the URL says",
    )
    store.end()


CONFIG = """[default]
region = eu-west-1
[profile global]
endpoint_url = https://global.example
[profile both]
endpoint_url = https://global.example
services = mine
[profile ignoring]
ignore_configured_endpoint_urls = true
endpoint_url = https://global.example
[profile fips]
use_fips_endpoint = true
[profile dual]
use_dualstack_endpoint = true
[profile indented]
  region = eu-west-1
  # a comment
  services = mine
[services mine]
s3 =
  endpoint_url = https://s3.example
  other = x
sts =
    endpoint_url = https://sts.example
"""
ASKED = """import botocore.config, botocore.session
signed = botocore.config.Config(signature_version="v4", s3={"addressing_style": "path"})
calls = {"s3": ("get_object", {"Bucket": "bucket", "Key": "k"}), "sts": ("get_caller_identity", {})}
for service, (call, given) in calls.items():
    client = botocore.session.Session().create_client(service, region_name="eu-west-1", config=signed)
    print("/".join(client.generate_presigned_url(call, given).split("?")[0].split("/")[:3]))
"""
ENVIRONMENTS: list[dict[str, str]] = [
    {},
    {"AWS_ENDPOINT_URL": "https://e.example"},
    {"AWS_ENDPOINT_URL": "https://e.example", "AWS_ENDPOINT_URL_STS": "https://f.example"},
    {"AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true", "AWS_ENDPOINT_URL": "https://e.example", "AWS_PROFILE": "both"},
    {"AWS_ENDPOINT_URL": "https://e.example", "AWS_PROFILE": "both"},
    {"AWS_USE_FIPS_ENDPOINT": "true", "AWS_USE_DUALSTACK_ENDPOINT": "true"},
    *({"AWS_PROFILE": name} for name in ("global", "both", "ignoring", "fips", "dual", "indented")),
]


def endpoints() -> None:
    """Each is where Amazon's own library asks."""
    path = os.path.join(scratch(), "aws-config")
    with open(path, "w") as f:
        f.write(CONFIG)
    script = """local aws = require "lunarch.aws"
      return { on_leading = function()
        for _, service in ipairs { "s3", "sts" } do print(aws.endpoint(service, "eu-west-1"), "") end
        lunarch.exit()
      end }"""
    for given in ENVIRONMENTS:
        env = {**os.environ, **S3.env, "AWS_CONFIG_FILE": path, "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent", **given}
        told = subprocess.run([s3_servers.installed("python"), "-c", ASKED], env=env, capture_output=True, text=True)
        c = Candidate("--lock", "none:", "-e", script, env=env, options=())
        c.leave(PATIENCE)
        ours = [e["message"].split()[0] for e in c.all("print")]
        ok(
            ours == told.stdout.split() and len(ours) == 2,
            f"endpoints: {given}: {ours}",
            f"{told.stdout} {told.stderr}",
        )


class Unquoting(Server):
    """HAProxy before a store: with it If-Match compares only an ETag that has no quotes, as Hetzner's does."""

    def __init__(self, behind: int) -> None:
        self.behind = behind
        super().__init__()

    def prepare(self) -> None:
        with open(os.path.join(self.dir, "cfg"), "w") as f:
            f.write(
                f"""defaults
  mode http
  timeout connect 60s
  timeout client 60s
  timeout server 60s
listen store
  bind 127.0.0.1:{self.port}
  http-request set-header If-Match other if {{ req.hdr(If-Match) -m beg \\" }}
  server store 127.0.0.1:{self.behind}
"""
            )

    def command(self) -> Any:
        return ["haproxy", "-db", "-f", os.path.join(self.dir, "cfg")]

    def ready(self) -> bool:
        return " 200 " in ask(self.port, "GET / HTTP/1.0\r\n\r\n")


def unquoting() -> None:
    store = MotoS3()
    with Unquoting(store.server.port) as front:
        through = Account(store, {})
        url = store.url("job", front)
        status, said = through.says("doctor", "--lock", url)
        ok(status == 0 and "is fit" in said, "unquoting: a store that compares ETags without quotes is fit", said)
        runner = Candidate("--lock", url, "-e", 'print("leads") sleep(1000)', env=through.env)
        ok(runner.wait("print", "leads"), "unquoting: a candidate leads on it")
        same(runner.stop(), 0, "unquoting: and releases it")
    store.end()


class Account:
    def __init__(self, store: MotoS3, env: Any) -> None:
        self.store, self.env = store, {**os.environ, **store.env, **env}

    def says(self, *args: str) -> tuple[int, str]:
        p = subprocess.run([LUNARCH, *args], env=self.env, capture_output=True, text=True, timeout=PATIENCE)
        return p.returncode, p.stdout + p.stderr

    def doctor(self) -> tuple[int, str]:
        return self.says("doctor", "--lock", self.store.url("job"))


def versioned_and_replicated(store: MotoS3) -> None:
    s3, bucket = store.server, "/" + s3_servers.BUCKET
    versioning = b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"
    rule = """<ReplicationConfiguration><Role>arn:aws:iam::123456789012:role/r</Role>
        <Rule><ID>all</ID><Priority>1</Priority><Status>Enabled</Status><Prefix></Prefix><Destination><Bucket>arn:aws:s3:::copy</Bucket></Destination></Rule>
        </ReplicationConfiguration>"""
    made = [s3.ask("PUT", "/copy")[0]]
    made += [s3.ask("PUT", b + "?versioning=", versioning)[0] for b in (bucket, "/copy")]
    made.append(s3.ask("PUT", bucket + "?replication=", rule.encode())[0])
    same(made, [200] * 4, "rights: the bucket of the test keeps versions, and is replicated")


def rights() -> None:
    """An account that may do what docs/stores/s3.md says, and no more; and accounts that lack something of it."""
    store = MotoS3()
    versioned_and_replicated(store)
    users = store.server.rights(
        documented=policy(),
        asking=with_more("s3:GetReplicationConfiguration", "s3:GetBucketVersioning"),
        blind=without("s3:ListBucket"),
        reading=without("s3:PutObject"),
        keeping=without("s3:DeleteObject"),
    )
    by = {name: Account(store, env) for name, env in users.items()}
    status, said = by["documented"].doctor()
    ok(
        status == 0 and "is fit" in said and "note   clean" not in said,
        "rights: the documented ones do for doctor",
        said,
    )
    status, said = by["asking"].doctor()
    ok("the bucket is replicated" in said, "rights: with two more it warns of a replicated bucket", said)
    ok("keeps versions" in said, "rights: and of one that keeps versions")
    status, said = by["blind"].says("list", store.url("jo"))
    ok(
        status != 0 and "s3:ListBucket is one of them" in said,
        "rights: without s3:ListBucket list says what is missing",
        said,
    )
    status, said = by["reading"].doctor()
    ok(status != 0 and "AccessDenied" in said, "rights: without s3:PutObject it is not fit", said)
    status, said = by["keeping"].doctor()
    ok("is fit" in said and "stays behind" in said, "rights: without s3:DeleteObject a scratch record stays", said)
    runner = Candidate("--lock", store.url("job"), "-e", 'print("leads") sleep(1000)', env=by["documented"].env)
    ok(runner.wait("print", "leads"), "rights: the documented ones do for a term")
    status, said = by["documented"].says("list", store.url("jo"))
    # The scratch record that stayed is overdue, so that the status is 1.
    ok(status in (0, 1) and "leading" in said, "rights: and for list", said)
    same(runner.stop(), 0, "rights: and to release it")
    store.end()


at_once(seaweed, moto, full_disk, rights, held, endpoints, unquoting)
done()

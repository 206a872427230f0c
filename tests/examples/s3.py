#!/usr/bin/env -S PYTHONPATH=. python3
"""examples/s3.lua: an object follows a file, its metadata the token; an old leader's write is refused."""

import os
import shutil
import signal
from urllib.parse import quote

from tests.lib import s3_servers
from tests.lib.candidates import FAST, Candidate, stop_everyone
from tests.lib.processes import ROOT, scratch, wait_for
from tests.lib.stores import S3
from tests.lib.tap import done, ok, same

where = scratch()
source = os.path.join(where, "page")
store = S3()
os.environ.update(store.env)
SCRIPT = os.path.join(ROOT, "examples", "s3.lua")
AT = f"http://127.0.0.1:{store.port}/{s3_servers.BUCKET}/page"


def say(text: str) -> None:
    with open(source + ".new", "w") as f:
        f.write(text)
    os.rename(f.name, source)


def candidate() -> Candidate:
    more = (AT, s3_servers.REGION, source, "0.2")
    return Candidate("--lock", store.url("locks/publish"), SCRIPT, "--", *more, options=FAST)


def token() -> int:
    return int({k.lower(): v for k, v in store.ask("GET", "page")[1].items()}["x-amz-meta-token"])


say("one")
first = candidate()
ok(wait_for(lambda: store.get("page") == b"one"), "the leader publishes the file")
say("two")
ok(wait_for(lambda: store.get("page") == b"two"), "and what is in it next")
old = token()
second = candidate()
ok(second.wait("new_leader"), "another candidate sees who leads")
for pid in (first.worker(), first.guard(), first.pid):
    first.kill(signal.SIGKILL, pid)
say("three")
ok(wait_for(lambda: store.get("page") == b"three"), "after its death the next one publishes")
ok(token() > old > 0, "with a larger token in the object's metadata")
path = f"/{s3_servers.BUCKET}/{quote('page')}"
headers = {"x-amz-meta-token": str(2**53 - 1)}
store.server.ask("PUT", path, b"newer", headers=headers)
ok(second.wait("stopped_leading"), "where a larger token stands, a term writes nothing, and ends")
same(store.get("page"), b"newer", "what the newer one wrote stays")
stop_everyone()
store.end()
shutil.rmtree(where)
done()

#!/usr/bin/env -S PYTHONPATH=. python3
"""examples/consul.lua: a key follows a command's output, its Flags the token; an old leader's write is refused."""

import json
import os
import shutil
import signal
from typing import Any

from tests.lib.candidates import FAST, Candidate, stop_everyone
from tests.lib.processes import ROOT, scratch, wait_for
from tests.lib.servers import Consul
from tests.lib.tap import done, ok, same, skip

where = scratch()
source = os.path.join(where, "servers")


def say(text: str) -> None:
    with open(source + ".new", "w") as f:
        f.write(text)
    os.rename(f.name, source)


def candidate(server: Consul) -> Candidate:
    script = os.path.join(ROOT, "examples", "consul.lua")
    at = f"http://127.0.0.1:{server.port}"
    return Candidate(
        "--lock", server.url("locks/servers"), script, "--", at, "servers", "0.1", "cat", source, options=FAST
    )


def main() -> None:
    with Consul() as server:

        def value() -> str:
            return server.http("GET", "/v1/kv/servers?raw")[1].decode()

        def entry() -> dict[str, Any]:
            return json.loads(server.http("GET", "/v1/kv/servers")[1])[0]

        say("one")
        first = candidate(server)
        ok(wait_for(lambda: value() == "one"), "the leader publishes what the command prints")
        say("two")
        ok(wait_for(lambda: value() == "two"), "and what it prints next")
        old = entry()
        second = candidate(server)
        ok(second.wait("new_leader"), "another candidate sees who leads")
        for pid in (first.worker(), first.guard(), first.pid):
            first.kill(signal.SIGKILL, pid)
        say("three")
        ok(wait_for(lambda: value() == "three"), "after its death the next one publishes")
        ok(entry()["Flags"] > old["Flags"] > 0, "with a larger token in the key's flags")
        path = f"/v1/kv/servers?cas={old['ModifyIndex']}&flags={old['Flags']}"
        late = server.http("PUT", path, b"late")[1].strip()
        same((late, value()), (b"false", "three"), "a write of the old term that comes late does nothing")
        say("four")
        server.http("PUT", f"/v1/kv/servers?flags={2**53 - 1}", b"newer")
        ok(second.wait("stopped_leading"), "where a larger token stands, a term writes nothing, and ends")
        same(value(), "newer", "what the newer one wrote stays")
        stop_everyone()
    shutil.rmtree(where)


if not os.path.exists(Consul.program()):
    skip("examples/consul.lua", "Consul is not built: make test-stores does")
    done()
main()
done()

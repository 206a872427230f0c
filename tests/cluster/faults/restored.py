#!/usr/bin/env -S PYTHONPATH=. python3
"""An etcd is restored from a snapshot while its candidates run: its revisions, which are the tokens, begin again below
those that were handed out. Who has seen a larger token does not lead, and says so, until the store counts higher."""

import os
import shutil
import signal
import subprocess
from typing import Any

from tests.lib import servers
from tests.lib.candidates import STEADY, Candidate, stop_everyone
from tests.lib.processes import PATIENCE, wait_for
from tests.lib.tap import done, ok, same

LEAD = "return { on_leading = function(term) print('token ' .. term.token) sleep(1e6) end }"


def ctl(server: Any, *words: str) -> str:
    return subprocess.run(
        ["etcdctl", "--endpoints", f"127.0.0.1:{server.port}", *words],
        env={**os.environ, "ETCDCTL_API": "3"},
        check=True,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    ).stdout


def tokens(*candidates: Candidate) -> list[int]:
    return [int(e["message"].split()[1]) for c in candidates for e in c.said("token ")]


def restored() -> None:
    with servers.Etcd() as server:
        url, snapshot, data = server.url("job"), os.path.join(server.dir, "snapshot"), os.path.join(server.dir, "data")
        a = Candidate("--lock", url, "--identity", "a", "-e", LEAD, options=STEADY)
        a.wait("print", "token ")
        b = Candidate("--lock", url, "--identity", "b", "-e", LEAD, options=STEADY)
        b.wait("new_leader")
        ctl(server, "snapshot", "save", snapshot)
        for i in range(200):
            ctl(server, "put", "other", str(i))
        a.kill(signal.SIGUSR1)
        ok(b.wait("print", "token "), "another leads, with a token that the snapshot does not know")
        a.wait("new_leader", "b leads")
        first, top = sorted(tokens(a, b))
        server.stop()
        shutil.rmtree(data)
        ctl(
            server,
            "snapshot",
            "restore",
            snapshot,
            "--data-dir",
            data,
            "--name",
            server.name,
            "--initial-cluster",
            f"{server.name}=http://127.0.0.1:{server.peer_port}",
            "--initial-advertise-peer-urls",
            f"http://127.0.0.1:{server.peer_port}",
        )
        server.start()
        ok(
            wait_for(lambda: all(c.complaints("belongs to the cluster") for c in (a, b))),
            "restored: it is another cluster, which is used when somebody says so",
        )
        for c in (a, b):
            c.kill(signal.SIGHUP)
        ok(
            wait_for(lambda: a.all("other_store") + b.all("other_store")),
            "restored: the record was written in the one before: a whole lease is waited out",
        )
        low = next(iter(wait_for(lambda: a.all("token_low") + b.all("token_low"))), None)
        ok(
            low and str(top) in low["message"],
            "restored: a term whose token is not above the largest that was seen is said",
        )
        same([t for t in tokens(a, b) if t > top], [], "restored: and not led")
        same(sorted(tokens(a, b)), sorted(set(tokens(a, b))), "restored: no token was handed out twice")
        for i in range(250):
            ctl(server, "put", "other", str(i))
        ok(
            wait_for(lambda: max(tokens(a, b)) > top, 3 * PATIENCE),
            "restored: when the store counts higher, somebody leads",
        )
        same([t for t in tokens(a, b) if first < t < top], [], "restored: and nobody with one in between")
        if not low:
            a.log()
            b.log()
        stop_everyone()


restored()
done()

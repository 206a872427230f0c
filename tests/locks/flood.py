#!/usr/bin/env -S PYTHONPATH=. python3
"""Answers that would become a hundred times their size when they are parsed: from an API server, its watch, an etcd.
The elector that gets them keeps its memory, says what it got, and its other elections go on. The servers here are
scripts: healthy ones send no such thing."""

import json
import os
import re
import signal
import struct
import threading
from typing import Any

from tests.lib.candidates import Candidate, timing
from tests.lib.h2 import DATA, Connection, H2Server, frame
from tests.lib.kubeapi import Api
from tests.lib.processes import scratch, wait_for
from tests.lib.tap import done, note, ok, same

MB = 1024 * 1024
TIMES = timing("15s", renew="10s", retry="1s")
api, home = Api(), scratch()


def small(count: int) -> str:
    """So many bytes of values of two bytes each."""
    return "[" + "{}," * (count // 3) + "{}]"


def lease(name: str, extra: Any) -> Any:
    return '{"kind":"Lease","metadata":{"name":"%s","uid":"u","resourceVersion":"7"},"spec":{},"x":%s}' % (name, extra)


def answer(text: str, code: int = 200) -> Any:
    data = text.encode()
    return lambda h: h.answer(code, text=data) or True


ANNOTATED = {
    "kind": "Lease",
    "metadata": {
        "name": "record",
        "uid": "u",
        "resourceVersion": "7",
        "annotations": {"lunarch.dev/record": small(3 * MB)},
    },
    "spec": {},
}
CLIENT_GO = {
    "kind": "ConfigMap",
    "metadata": {
        "name": "leader",
        "uid": "u",
        "resourceVersion": "7",
        "annotations": {"control-plane.alpha.kubernetes.io/leader": '{"x":' + small(3 * MB) + "}"},
    },
}
# By the lock's name: what its requests are answered with, and what is said of it.
ANSWERS = {
    "large": (answer(lease("large", small(15 * MB))), "the limit of 4194304"),
    "many": (answer(lease("many", small(3 * MB))), "at most 50000"),
    "refused": (answer(small(15 * MB), 404), "the limit of 4194304"),
    "record": (answer(json.dumps(ANNOTATED)), "at most 262144"),
    "leader": (answer(json.dumps(CLIENT_GO)), "no JSON object"),
}


over = threading.Event()


def watched(h: Any) -> bool:
    h.begin()
    while not over.wait(0.5):
        h.chunk(b'{"type":"MODIFIED","object":' + lease("watched", small(3 * MB)).encode() + b"}\n")
    return True


def rule(h: Any) -> bool | None:
    if "watch=1" in h.path:
        return "watched" in h.path and watched(h)
    name = re.sub(r"\?.*", "", h.path).rsplit("/", 1)[-1]
    return ANSWERS[name][0](h) if name in ANSWERS else False


def flooded(to: Connection, stream: int, path: str, message: bytes) -> None:
    """A message that is announced as 15 MB, or one whose elements are two bytes each; on looks, and as notices."""
    to.begin(stream)
    if path.endswith("/Watch"):
        to.say(stream, b"\x5a\0" * 400_000)
    elif len(etcd.calls) % 2:
        to.raw(frame(DATA, 0, stream, b"\0" + struct.pack(">I", 15 * MB) + b"\x12\0" * 8000))
    else:
        to.say(stream, b"\x12\0" * 400_000)
        to.end(stream)


def peak_mb(pid: int) -> int:
    with open(f"/proc/{pid}/status") as f:
        return int(re.findall(r"VmHWM:\s+(\d+)", f.read())[0]) // 1024


etcd = H2Server(flooded)
api.rule = rule
locks = {name: api.url(home, name) for name in ANSWERS} | {
    "leader": api.url(home, "leader") + "&resource=configmaps",
    "etcd": f"etcd://127.0.0.1:{etcd.port}/x",
}
said = {name: text for name, (_, text) in ANSWERS.items()} | {"etcd": "the limit of 8388608"}
script = os.path.join(home, "script.lua")
with open(script, "w") as f:
    f.write(
        "local list = { { name = 'healthy', lock = '%s/lock', on_leading = function() print 'leads' sleep(1e6) end } "
        "}\n" % home
    )
    for name, lock in locks.items():
        f.write(
            f"list[#list + 1] = {{ name = '{name}', lock = '{lock}', on_leading = function() print 'never' end }}\n"
        )
    f.write(
        "list[#list + 1] = { name = 'watched', lock = '%s', on_leading = function() print 'watches' sleep(1e6) end }\n"
        % api.url(home, "watched")
    )
    f.write("return list\n")

c = Candidate(script, options=TIMES)
ok(c.wait("print", "leads"), "a healthy election of the process leads")
for name, text in said.items():
    lock = re.sub(r"\?.*", "", locks[name]).replace("kube:///", "kube://n/")

    def found() -> list[dict[str, Any]]:
        return [
            e
            for k in ("read_failed", "foreign_record")
            for e in c.all(k, lock) + c.all(k, "the namespace n")
            if text in e["message"]
        ]

    ok(wait_for(found), f"{name}: what came is reported ({text})")
ok(
    c.wait("print", "watches")
    and wait_for(lambda: len([r for r in api.seen if r[0] == "GET" and r[1].split("?")[0].endswith("/watched")]) >= 4),
    "a watch's line of such values is answered with a look",
)
peak = peak_mb(c.pid)
note(f"the elector has needed {peak} MB at most")
ok(peak < 250, "and took no more memory than a few answers of the largest size")
same(
    (c.all("stopped_leading"), c.said("never")),
    ([], []),
    "the terms of those two go on, and nobody leads by such an answer",
)
over.set()
c.kill(signal.SIGTERM)
c.leave()
done()

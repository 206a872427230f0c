#!/usr/bin/env -S PYTHONPATH=. python3
"""The servers that the S3 lock's tests run on do what they are there for: SeaweedFS refuses wrong signatures, keeps
what it has answered through a SIGKILL, and SeaweedFS and moto honour each condition, also when 64 race."""

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.lib import stores
from tests.lib.s3_servers import BUCKET
from tests.lib.tap import ok, run, same


def race(count: int, ask: Callable[[int], int]) -> Counter[int]:
    """How many of them each status is answered to."""
    answers: list[int] = []
    together = threading.Barrier(count)

    def one(i: int) -> None:
        together.wait()
        answers.append(ask(i))

    threads = [threading.Thread(target=one, args=(i,)) for i in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return Counter(answers)


def conditions(store: Any) -> None:
    def ask(method: str, key: str, body: bytes = b"", **headers: str) -> int:
        given = {k.replace("_", "-"): v for k, v in headers.items()}
        return int(store.server.ask(method, f"/{BUCKET}/{key}", body, given, patience=60)[0])

    def tag(key: str) -> str:
        return str(store.server.ask("HEAD", f"/{BUCKET}/{key}")[1]["etag"])

    same(ask("PUT", "changed", b"1", if_none_match="*"), 200, f"{store.name}: If-None-Match: * makes what is not there")
    same(ask("PUT", "changed", b"2", if_none_match="*"), 412, f"{store.name}: and nothing else")
    old = tag("changed")
    same(ask("PUT", "changed", b"2", if_match=old), 200, f"{store.name}: If-Match with its tag changes it")
    same(ask("PUT", "changed", b"3", if_match=old), 412, f"{store.name}: an old tag does not")
    ok(ask("PUT", "none", b"3", if_match=old) in (404, 412), f"{store.name}: nor does it make what is not there")
    same(ask("DELETE", "changed", if_match=old), 412, f"{store.name}: an old tag does not delete")
    same(store.get("changed"), b"2", f"{store.name}: after all that it is what it was")
    same(ask("DELETE", "changed", if_match=tag("changed")), 204, f"{store.name}: its tag does")
    for r in range(3):
        key = f"r{r}"
        made = race(64, lambda i: ask("PUT", key, b"%d" % i, if_none_match="*"))
        same(made[200], 1, f"{store.name}: of 64 that race to make it, one does")
        now = tag(key)
        changed = race(64, lambda i: ask("PUT", key, b"u%d" % i, if_match=now))
        same(changed[200], 1, f"{store.name}: of 64 that race to change it, one does")
        now = tag(key)
        deleted = race(16, lambda i: ask("DELETE", key, if_match=now))
        same(deleted[204], 1, f"{store.name}: of 16 that race to delete it, one does")


def seaweedfs() -> None:
    store = stores.S3()
    try:
        status, _, body = store.server.ask("GET", f"/{BUCKET}/x", secret="another")
        ok(status == 403 and b"SignatureDoesNotMatch" in body, "SeaweedFS refuses another secret's signature", body)
        keys = ["plain", "with space", "k\u00e4se \u540d", "a/b", "a%2Fb", "{a}:b?c#d&e=f+g;h,i@j$k!(l)*~"]
        for key in keys:
            store.put(key, key.encode())
        same([store.get(k) for k in keys], [k.encode() for k in keys], "keys are kept apart")
        store.kill()
        store.restart()
        same(store.get("plain"), b"plain", "what was answered is there after a SIGKILL")
        conditions(store)
    finally:
        store.end()


def moto() -> None:
    store = stores.MotoS3()
    try:
        conditions(store)
    finally:
        store.end()


run([seaweedfs, moto])

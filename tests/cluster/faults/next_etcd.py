#!/usr/bin/env -S PYTHONPATH=. python3
"""Who comes next on etcd: never two leaders, and no lease is waited for, whatever happens to that one and to its
record."""

from typing import Any

from tests.lib.next_arena import ALL, contest, forbidden
from tests.lib.stores import Etcd, b64


class Closed(Etcd):
    """With users, one of whom may read everything and write no lock's next record."""

    def __init__(self) -> None:
        super().__init__("--bcrypt-cost", "4")
        self.auth("luna", "geheim")

    def restricted(self, f: Any) -> str:
        self.call("auth/role/grant", name="some", perm={"permType": "READWRITE", "key": b64(f.key.encode())})
        self.call("auth/role/grant", name="some", perm={"permType": "READ", "key": b64(f.next_key.encode())})
        return f.lock


contest((Etcd(), ALL), (Closed(), [forbidden]))

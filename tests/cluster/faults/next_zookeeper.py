#!/usr/bin/env -S PYTHONPATH=. python3
"""Who comes next on ZooKeeper: never two leaders, and no lease is waited for, whatever happens to that one and to its
record."""

import subprocess
from typing import Any

from tests.lib.next_arena import SOME, contest, forbidden
from tests.lib.processes import LUNARCH, PATIENCE
from tests.lib.stores import Zk, ZooKeeper


class Open(ZooKeeper):
    def restricted(self, f: Any) -> str:
        """Where nobody may make a node any more: the lock's is there."""
        directory = f.key
        f.rename(f"{directory}/lock")
        first = [LUNARCH, "exec", "--lock", f.lock, "--", "true"]
        subprocess.run(first, check=True, capture_output=True, timeout=PATIENCE)
        with Zk(self.port) as z:
            z.protect(f"/{directory}", z.READ)
        return f.lock


contest((Open(), [*SOME, forbidden]))

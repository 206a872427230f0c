#!/usr/bin/env python3
"""Who comes next on ZooKeeper: never two leaders, and no lease is waited for, whatever happens to that one and to its
record."""

import os
import subprocess
import sys
from typing import Any

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from next_arena import SOME, contest, forbidden
from processes import LUNARCH, PATIENCE
from stores import Zk, ZooKeeper


class Open(ZooKeeper):
    def restricted(self, f: Any) -> Any:
        """Where nobody may make a node any more: the lock's is there."""
        directory = f.key
        f.rename(f"{directory}/lock")
        first = [LUNARCH, "exec", "--lock", f.lock, "--", "true"]
        subprocess.run(first, check=True, capture_output=True, timeout=PATIENCE)
        with Zk(self.port) as z:
            z.protect(f"/{directory}", z.READ)
        return f.lock


contest((Open(), [*SOME, forbidden]))

#!/usr/bin/env python3
"""Who comes next on Redis: never two leaders, and no lease is waited for, whatever happens to that one and to its
record."""

import os
import sys
from typing import Any

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from next_arena import SOME, contest, forbidden
from stores import Redis


class Open(Redis):
    def restricted(self, f: Any) -> Any:
        """As a user who may do everything, with this lock's keys."""
        self.talk(
            "ACL",
            "SETUSER",
            "luna",
            "on",
            ">geheim",
            f"~{f.key}",
            f"~{{{f.key}}}:lunarch",
            f"&{{{f.key}}}:changed",
            "+@all",
        )
        return f.lock.replace("//", "//luna:geheim@")


contest((Open(), [*SOME, forbidden]))

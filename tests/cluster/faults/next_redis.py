#!/usr/bin/env -S PYTHONPATH=. python3
"""Who comes next on Redis: never two leaders, and no lease is waited for, whatever happens to that one and to its
record."""

from typing import Any

from tests.lib.next_arena import SOME, contest, forbidden
from tests.lib.stores import Redis


class Open(Redis):
    def restricted(self, f: Any) -> str:
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

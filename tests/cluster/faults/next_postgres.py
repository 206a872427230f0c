#!/usr/bin/env -S PYTHONPATH=. python3
"""Who comes next on PostgreSQL: never two leaders, and no lease is waited for, whatever happens to that one and to its
record."""

import subprocess
from typing import Any

from tests.lib.next_arena import SOME, contest, forbidden
from tests.lib.processes import LUNARCH, PATIENCE
from tests.lib.stores import Postgres


class Open(Postgres):
    def __init__(self) -> None:
        super().__init__()
        first = [LUNARCH, "exec", "--lock", self.url("first"), "--", "true"]  # which makes the table
        subprocess.run(first, check=True, capture_output=True, timeout=PATIENCE)
        self.server.sql(
            "CREATE ROLE luna LOGIN; GRANT SELECT, INSERT, UPDATE ON lunarch_locks TO luna; "
            "ALTER TABLE lunarch_locks ENABLE ROW LEVEL SECURITY; "
            "CREATE POLICY luna ON lunarch_locks USING (true) WITH CHECK (name NOT LIKE '%.next')"
        )

    def restricted(self, f: Any) -> str:
        """As a user who may not write the row of a next record: a policy says so (the owner is above policies)."""
        return f.lock.replace(f"//{self.server.superuser}@", "//luna@")


contest((Open(), [*SOME, forbidden]))

#!/usr/bin/env -S PYTHONPATH=. python3
"""No two leaders with a lock in Lua, whatever happens to leader, standbys, record, connections and server."""

import os

from tests.lib.arena import contest
from tests.lib.stores import Box

store = Box()
os.environ.update(store.env)
contest(store)

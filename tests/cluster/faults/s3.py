#!/usr/bin/env -S PYTHONPATH=. python3
"""No two leaders on an S3 (SeaweedFS), whatever happens to leader, standbys, record, connections and server."""

import os

from tests.lib.arena import contest
from tests.lib.stores import S3

store = S3()
os.environ.update(store.env)
contest(store)

#!/usr/bin/env -S PYTHONPATH=. python3
"""No two leaders on a DynamoDB (Dynalite), whatever happens to leader, standbys, record, connections and server."""

import os

from tests.lib.arena import contest
from tests.lib.stores import DynamoDB

store = DynamoDB()
os.environ.update(store.env)
contest(store)

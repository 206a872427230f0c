#!/usr/bin/env -S PYTHONPATH=. python3
"""No two leaders in Azure Blob Storage (Azurite), whatever happens to leader, standbys, record, connections and
server."""

import os

from tests.lib.arena import contest
from tests.lib.stores import AzureBlob

store = AzureBlob()
os.environ.update(store.env)
contest(store)

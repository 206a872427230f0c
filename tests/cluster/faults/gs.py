#!/usr/bin/env -S PYTHONPATH=. python3
"""No two leaders on Google Cloud Storage (fake-gcs-server), whatever happens to leader, standbys, record, connections
and server."""

from tests.lib.arena import contest
from tests.lib.stores import GcsOnDisk

contest(GcsOnDisk())

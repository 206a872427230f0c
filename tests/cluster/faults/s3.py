#!/usr/bin/env python3
"""No two leaders on an S3 (SeaweedFS), whatever happens to leader, standbys, record, connections and server."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from arena import contest
from stores import S3

store = S3()
os.environ.update(store.env)
contest(store)

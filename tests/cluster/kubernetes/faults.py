#!/usr/bin/env python3
"""No two leaders on a Lease of a real API server, whatever happens to leader, standbys, Lease, connections and
server."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from arena import contest
from kube_rig import Cluster
from kube_store import Kube

with Cluster() as cluster:
    contest(Kube(cluster, "leases"))

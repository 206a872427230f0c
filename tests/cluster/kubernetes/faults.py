#!/usr/bin/env python3
"""No two leaders on a Lease of a real API server, whatever happens to leader, standbys, Lease, connections and server."""
import os, sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from kube_store import *
from arena import contest

with Cluster() as cluster:
    contest(Kube(cluster, "leases"))

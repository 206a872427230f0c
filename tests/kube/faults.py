#!/usr/bin/env python3
"""No two leaders on a Lease of a real API server, whatever happens to leader, standbys, Lease, connections and server."""
from store import *
from arena import contest

with Cluster() as cluster:
    contest(Kube(cluster, "leases"))

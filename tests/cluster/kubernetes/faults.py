#!/usr/bin/env -S PYTHONPATH=. python3
"""No two leaders on a Lease of a real API server, whatever happens to leader, standbys, Lease, connections and
server."""


from tests.lib.arena import contest
from tests.lib.kube_rig import Cluster
from tests.lib.kube_store import Kube

with Cluster() as cluster:
    contest(Kube(cluster, "leases"))

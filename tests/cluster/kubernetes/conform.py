#!/usr/bin/env python3
"""The Kubernetes lock passes the conformance suite against a real API server: a Lease, then a ConfigMap and a pair of
both, as a service account with no more rights than it needs. Options: names of cases."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import lock_cases
from kube_rig import Cluster
from kube_store import Kube
from tap import done

with Cluster() as cluster:
    wanted = [getattr(lock_cases, n) for n in sys.argv[1:]]
    lock_cases.run(Kube(cluster, "leases"), wanted or lock_cases.BASIC + lock_cases.NETWORK + lock_cases.SERVER)
    lock_cases.run(
        Kube(cluster, "configmaps"),
        wanted or [lock_cases.swap, lock_cases.by_hand, lock_cases.foreign, lock_cases.contents, lock_cases.notices],
    )
    lock_cases.run(
        Kube(cluster, "configmapsleases"),
        wanted or [lock_cases.swap, lock_cases.by_hand, lock_cases.contents, lock_cases.notices],
    )
done()

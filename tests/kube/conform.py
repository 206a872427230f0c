#!/usr/bin/env python3
"""The Kubernetes lock passes the conformance suite against a real API server: a Lease, then a ConfigMap and a pair of both, as a
service account with no more rights than it needs. Options: names of cases."""
import sys
from store import *
import cases

with Cluster() as cluster:
    wanted = [getattr(cases, n) for n in sys.argv[1:]]
    cases.run(Kube(cluster, "leases"), wanted or cases.BASIC + cases.NETWORK + cases.SERVER)
    cases.run(Kube(cluster, "configmaps"), wanted or [cases.swap, cases.by_hand, cases.foreign, cases.contents, cases.notices])
    cases.run(Kube(cluster, "configmapsleases"), wanted or [cases.swap, cases.by_hand, cases.contents, cases.notices])
done()

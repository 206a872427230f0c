#!/usr/bin/env -S PYTHONPATH=. python3
"""The Kubernetes lock passes the conformance suite against a real API server: a Lease, then a ConfigMap, a pair of
both, and Endpoints, as a service account with no more rights than it needs. Options: names of cases."""

import sys

from tests.lib import lock_cases
from tests.lib.kube_rig import Cluster
from tests.lib.kube_store import Kube
from tests.lib.lock_driver import Driver
from tests.lib.tap import done, ok


def list_rights(store: Kube) -> None:
    """Who may do all but list is told what is missing, by the verb."""
    rule = {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "verbs": ["get", "create", "update", "watch"],
    }
    store.configs[store.port] = store.cluster.kubeconfig(store.ns, store.cluster.account(store.ns, "unlisted", [rule]))
    d = Driver()
    d.open(store.url("web-"), prefix=True)
    r = d.names()
    ok(
        r["outcome"] == "failed" and 'resources ["leases"], verbs ["list"]' in r["err"]["text"],
        "list: who may not is told the verb that is needed",
    )
    d.end()


with Cluster() as cluster:
    wanted = [getattr(lock_cases, n) for n in sys.argv[1:]]
    leases = Kube(cluster, "leases")
    lock_cases.run(leases, wanted or lock_cases.BASIC + lock_cases.NETWORK + lock_cases.SERVER)
    case = lock_cases
    basic = [case.examined, case.next_record, case.next_shared, case.listed_by_hand]
    by_hand = [*basic, case.by_hand, case.noticed_by_hand]
    for kind, cases in (
        ("configmaps", [*by_hand, case.foreign, case.list_pages]),
        ("configmapsleases", by_hand),
        ("endpoints", basic[:2]),
    ):
        case.run(Kube(cluster, kind), wanted or cases)
    if not wanted:
        list_rights(leases)
done()

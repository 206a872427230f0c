#!/usr/bin/env -S PYTHONPATH=. python3
"""As tests/cluster/faults/addresses.py, on a real API server."""

from urllib.parse import quote

from tests.lib import store_addresses
from tests.lib.kube_rig import Cluster
from tests.lib.kube_store import Kube


def start(place: store_addresses.Place) -> store_addresses.Site:
    store = Kube(Cluster(["--advertise-address=10.99.0.1"]), "leases")

    def url(key: str, host: str) -> str:
        config = store.cluster.kubeconfig(
            store.ns,
            store.token,
            server=f"https://{host}:{store.port}",
            **{"insecure-skip-tls-verify": True, "certificate-authority": None},
        )
        return f"kube://{store.ns}/{key}?kubeconfig={quote(config)}"

    return store_addresses.Site(place, store, url)


store_addresses.run(lambda place: [lambda: start(place)])

#!/usr/bin/env -S PYTHONPATH=. python3
"""Slots on Leases of a real API server."""

from tests.lib import slot_cases
from tests.lib.candidates import stop_everyone
from tests.lib.kube_rig import Cluster
from tests.lib.kube_store import Kube
from tests.lib.tap import done

with Cluster() as cluster:
    slot_cases.run(Kube(cluster, "leases"))
    stop_everyone()
done()

#!/usr/bin/env -S PYTHONPATH=. python3
"""doctor on a real API server: fit, named, and cleaned up behind, if it may."""

import json
import subprocess
from urllib.parse import quote

from tests.lib.kube_rig import LEASES, Cluster
from tests.lib.processes import LUNARCH
from tests.lib.tap import done, note, ok, same


def rules(*more: str) -> list[dict[str, list[str]]]:
    return [
        {
            "apiGroups": ["coordination.k8s.io"],
            "resources": ["leases"],
            "verbs": ["get", "create", "update", "watch", *more],
        }
    ]


def doctor(c: Cluster, ns: str, token: str) -> subprocess.CompletedProcess[str]:
    url = f"kube://{ns}/web?kubeconfig={quote(c.kubeconfig(ns, token))}"
    return subprocess.run([LUNARCH, "doctor", "--json", "--lock", url], capture_output=True, text=True, timeout=600)


with Cluster() as c:
    for ns, more, left in (("may", ("delete",), 0), ("maynot", (), 2)):
        c.namespace(ns)
        r = doctor(c, ns, c.account(ns, rules=rules(*more)))
        j = json.loads(r.stdout or "{}")
        if not ok(
            r.returncode == 0 and j.get("fit") and j["server"].startswith("Kubernetes v"),
            f"{ns} delete Leases: the API server is fit, and named",
        ):
            note(r.stdout + r.stderr)
        leases = c.call("GET", LEASES.format(ns))[1]["items"]
        same(len(leases), left, f"{ns} delete Leases: so many scratch Leases stay, with that of who comes next")
        ok(
            bool(left) == any(f["name"] == "clean" for f in j.get("findings", [])),
            f"{ns} delete Leases: and that is said if there is one",
        )
done()

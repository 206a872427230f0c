"""A Lease, ConfigMap or pair on a real API server as the conformance cases and the arena know a store: reached into
behind the runtime's back, hurt. Clients have a service account with no more rights than they need."""

import json
from typing import Any
from urllib.parse import quote

from tests.lib.kube_rig import LEASES
from tests.lib.stores import Store

OURS, THEIRS = "lunarch.dev/record", "control-plane.alpha.kubernetes.io/leader"
PUBLIC = ("holderIdentity", "leaseDurationSeconds", "acquireTime", "renewTime")
CORE = "/api/v1/namespaces/{}/configmaps"
ENDPOINTS = "/api/v1/namespaces/{}/endpoints"
# delete: doctor's removal of its own record, which a case tries; list: lunarch list's
VERBS = ["get", "create", "update", "watch", "delete", "list"]
RIGHTS = [
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": VERBS},
    {"apiGroups": [""], "resources": ["configmaps", "endpoints"], "verbs": VERBS},
]


class Kube(Store):
    """What the cases know as the store's content is our annotation; the fields of everybody go with it."""

    rounds = 60
    any_name = False
    clocks = (0, 7200)  # its certificates are no older than the test

    def __init__(self, cluster: Any, kind: str) -> None:
        self.cluster, self.kind, self.name = cluster, kind, f"kube {kind}"
        self.port = cluster.port
        self.ns = cluster.namespace(f"conform-{kind}")
        self.token = cluster.account(self.ns, rules=RIGHTS)
        self.configs: dict[int, str] = {}
        self.paths = [
            {"leases": LEASES, "configmaps": CORE, "endpoints": ENDPOINTS}[k].format(self.ns)
            for k in {"configmapsleases": ("configmaps", "leases")}.get(kind, (kind,))
        ]

    def config(self, port: int) -> str:
        if port not in self.configs:
            self.configs[port] = self.cluster.kubeconfig(self.ns, self.token, server=f"https://127.0.0.1:{port}")
        return self.configs[port]

    def url(self, key: str, through: Any = None) -> str:
        return f"kube://{self.ns}/{key}?resource={self.kind}&kubeconfig={quote(self.config((through or self).port))}"

    def next_key(self, key: str) -> str:
        return key + "-next"

    def holds(self, content: bytes) -> bool:
        try:
            content.decode()
        except UnicodeDecodeError:
            return False
        return True

    def get(self, key: str) -> bytes | None:
        status, object = self.cluster.call("GET", f"{self.paths[-1]}/{key}")
        text = object["metadata"].get("annotations", {}).get(OURS) if status == 200 else None
        return None if text is None else text.encode()

    def object(self, path: str, key: str, text: str) -> dict[str, Any]:
        lease = path.endswith("leases")
        annotations = {OURS: text}
        try:
            ours = json.loads(text)
            public = {k: ours[k] for k in PUBLIC} | {
                "leaseTransitions" if lease else "leaderTransitions": ours["leaderTransitions"]
            }
        except (ValueError, TypeError, KeyError):
            public = {}
        if public and not lease:
            annotations[THEIRS] = json.dumps(public)
        return (
            {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": public}
            if lease
            else {"apiVersion": "v1", "kind": "Endpoints" if path.endswith("endpoints") else "ConfigMap"}
        ) | {"metadata": {"name": key, "namespace": self.ns, "annotations": annotations}}

    def put(self, key: str, content: bytes) -> None:
        for path in self.paths:
            while not self.put_one(path, key, content.decode()):
                pass

    def put_one(self, path: str, key: str, text: str) -> bool:
        """False: somebody was faster."""
        object = self.object(path, key, text)
        status, old = self.cluster.call("GET", f"{path}/{key}")
        if status == 200:
            object["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
        status, answer = (
            self.cluster.call("PUT", f"{path}/{key}", object)
            if status == 200
            else self.cluster.call("POST", path, object)
        )
        if status not in (200, 201, 409):
            raise RuntimeError(f"{path}/{key}: {status} {answer}")
        return status != 409

    def delete(self, key: str) -> None:
        for path in self.paths:
            self.cluster.call("DELETE", f"{path}/{key}")

    def put_many(self, keys: list[str], content: bytes) -> None:
        for path in self.paths:
            for k in keys:
                self.cluster.call("POST", path, self.object(path, k, content.decode()))

    def delete_many(self, keys: list[str]) -> None:
        for path in self.paths:
            self.cluster.call("DELETE", path)  # all that is in the namespace

    def pause(self) -> None:
        self.cluster.api.pause()

    def resume(self) -> None:
        self.cluster.api.resume()

    def kill(self) -> None:
        self.cluster.api.kill()

    def restart(self) -> None:
        self.cluster.api.start()

    def repair(self) -> None:
        pass

    def end(self) -> None:
        pass  # the cluster is its owner's

"""The real Kubernetes API server behind Debian's etcd, with TLS, RBAC and service-account tokens, and a contender that
is real client-go. Both are built from Kubernetes' published Go modules (go_build.sh), started on free loopback ports,
stopped by pid.

    with Cluster() as c:
        c.get("/api/v1/namespaces/default")             # as an administrator
        c.kubeconfig(token=...)                         # the path of a kubeconfig; default: the administrator's
certificate"""

import base64
import json
import os
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from typing import Any

from tests.lib.candidates import Logged
from tests.lib.pki import Pki, openssl
from tests.lib.processes import CACHE, PATIENCE, wait_for
from tests.lib.servers import Etcd, Server

TOOLS = os.path.join(CACHE, "kube")
LEASES = "/apis/coordination.k8s.io/v1/namespaces/{}/leases"


class ApiServer(Server):
    """options: kube-apiserver's, besides those it needs. older: of its certificates, as Pki's."""

    def __init__(self, etcd: Any, options: Any = (), start: bool = True, machine: Any = None, older: int = 0) -> None:
        self.etcd, self.options, self.older = etcd, list(options), older
        super().__init__(start, machine)

    def prepare(self) -> None:
        self.pki = Pki(self.dir, self.older)
        self.admin = self.pki.sign("admin", "/O=system:masters/CN=admin")
        self.pki.server(*([self.host] if self.machine else []))
        self.late = self.pki.sign(
            "late-server", "/CN=kube-apiserver", "DNS:late.test", days="-1"
        )  # shown to who asks for that name
        openssl("genrsa", "-out", self.pki.path("sa.key"), "2048")
        self.context = ssl.create_default_context(cafile=self.pki.ca)
        self.context.load_cert_chain(*self.admin)

    def command(self) -> list[str]:
        p = self.pki.path
        return [
            os.path.join(TOOLS, "kube-apiserver"),
            f"--etcd-servers=http://{self.etcd.host}:{self.etcd.port}",
            f"--secure-port={self.port}",
            f"--bind-address={self.host}",
            "--endpoint-reconciler-type=none",
            f"--tls-cert-file={p('server.crt')}",
            f"--tls-private-key-file={p('server.key')}",
            f"--tls-sni-cert-key={','.join(self.late)}:late.test",
            f"--client-ca-file={p('ca.crt')}",
            "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-signing-key-file={p('sa.key')}",
            f"--service-account-key-file={p('sa.key')}",
            "--service-cluster-ip-range=10.96.0.0/24",
            f"--cert-dir={self.dir}",
            "--disable-admission-plugins=ServiceAccount",
            "--profiling=false",
            *self.options,
        ]

    def ready(self) -> bool:
        try:
            return self.call("GET", "/readyz", timeout=5)[0] == 200
        except OSError:
            return False

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        timeout: float = PATIENCE,
        token: Any = None,
        kind: str = "application/json",
    ) -> Any:
        """(status, object or text), as an administrator or with a token."""
        headers = {"Content-Type": kind, "Accept": "application/json"}
        context = self.context
        if token:
            headers["Authorization"] = "Bearer " + token
            context = ssl.create_default_context(cafile=self.pki.ca)
        request = urllib.request.Request(
            f"https://{self.host}:{self.port}{path}",
            method=method,
            headers=headers,
            data=None if body is None else json.dumps(body).encode(),
        )
        try:
            with urllib.request.urlopen(request, timeout=timeout, context=context) as r:
                status, text = r.status, r.read()
        except urllib.error.HTTPError as e:
            status, text = e.code, e.read()
        try:
            return status, json.loads(text)
        except ValueError:
            return status, text.decode(errors="replace")


MINIMAL = [
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "update", "watch"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]},
]


class Cluster:
    def __init__(self, options: Any = ()) -> None:
        self.etcd = Etcd()
        self.api = ApiServer(self.etcd, options)
        self.count = 0

    @classmethod
    def on(cls, etcd: Etcd, api: Any) -> "Cluster":
        """Of servers that were started elsewhere."""
        made = cls.__new__(cls)
        made.etcd, made.api, made.count = etcd, api, 0
        return made

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.api.close()
        self.etcd.close()

    @property
    def port(self) -> int:
        return self.api.port

    def call(self, method: str, path: str, body: Any = None, **kw: Any) -> Any:
        return self.api.call(method, path, body, **kw)

    def must(self, method: str, path: str, body: dict[str, Any] | None = None, **kw: str) -> dict[str, Any]:
        status, answer = self.call(method, path, body, **kw)
        if status not in (200, 201, 202):
            raise RuntimeError(f"{method} {path}: {status} {answer}")
        return answer

    def namespace(self, name: str) -> str:
        self.must("POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        return name

    def account(self, ns: str, name: str = "elector", rules: Any = MINIMAL) -> str:
        """A service account bound to a role with these rules; its token."""
        meta = {"name": name, "namespace": ns}
        rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}"
        self.must(
            "POST",
            f"/api/v1/namespaces/{ns}/serviceaccounts",
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta},
        )
        self.must(
            "POST",
            rbac + "/roles",
            {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": meta, "rules": rules},
        )
        self.must(
            "POST",
            rbac + "/rolebindings",
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "RoleBinding",
                "metadata": meta,
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
                "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": ns}],
            },
        )
        wait_for(lambda: self.allowed(ns, name, rules[0]))
        return self.token(ns, name)

    def allowed(self, ns: str, name: str, rule: dict[str, list[str]]) -> bool:
        """The authorizer learns of bindings through a watch of its own, a moment later."""
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": f"system:serviceaccount:{ns}:{name}",
                "resourceAttributes": {
                    "namespace": ns,
                    "verb": rule["verbs"][0],
                    "group": rule["apiGroups"][0],
                    "resource": rule["resources"][0],
                    "name": (rule.get("resourceNames") or [""])[0],
                },
            },
        }
        return self.must("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)["status"]["allowed"]

    def token(self, ns: str, name: str = "elector", seconds: int = 3600) -> str:
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": seconds},
        }
        return self.must("POST", f"/api/v1/namespaces/{ns}/serviceaccounts/{name}/token", request)["status"]["token"]

    def signed(self, token: str, **claims: int) -> str:
        """A token like this one with other claims, signed by the server's own key: as good as any but for what they
        say."""

        def part(data: bytes) -> bytes:
            return base64.urlsafe_b64encode(data).rstrip(b"=")

        header, payload, _ = token.split(".")
        claims = json.loads(base64.urlsafe_b64decode(payload + "==")) | claims
        text = header.encode() + b"." + part(json.dumps(claims).encode())
        r = subprocess.run(
            ["openssl", "dgst", "-sha256", "-sign", self.api.pki.path("sa.key")],
            input=text,
            capture_output=True,
            check=True,
        )
        return (text + b"." + part(r.stdout)).decode()

    def kubeconfig(
        self, ns: str = "default", token: Any = None, user: Any = None, server: Any = None, **cluster: Any
    ) -> str:
        """user: a kubeconfig's user; default: the token's, else the administrator's."""
        self.count += 1
        path = os.path.join(self.api.dir, f"config-{self.count}")
        user = user or (
            {"token": token} if token else {"client-certificate": self.api.admin[0], "client-key": self.api.admin[1]}
        )
        cluster = {
            "server": server or f"https://{self.api.host}:{self.port}",
            "certificate-authority": self.api.pki.ca,
            **cluster,
        }
        with open(path, "w") as f:
            json.dump(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "here",
                    "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me", "namespace": ns}}],
                    "clusters": [{"name": "here", "cluster": {k: v for k, v in cluster.items() if v is not None}}],
                    "users": [{"name": "me", "user": user}],
                },
                f,
            )
        return path

    # Leases, as an administrator.
    def lease(self, ns: str, name: str) -> Any:
        status, lease = self.call("GET", LEASES.format(ns) + "/" + name)
        return lease if status == 200 else None

    def put_lease(self, ns: str, name: str, spec: dict[str, Any], **meta: dict[str, str]) -> dict[str, Any]:
        """Creates it, or edits the one that is there as kubectl edit would."""
        old = self.lease(ns, name)
        if not old:
            return self.must(
                "POST",
                LEASES.format(ns),
                {
                    "apiVersion": "coordination.k8s.io/v1",
                    "kind": "Lease",
                    "metadata": {"name": name, **meta},
                    "spec": spec,
                },
            )
        old["spec"] = {**old.get("spec", {}), **spec}
        old["metadata"].update(meta)
        return self.must("PUT", LEASES.format(ns) + "/" + name, old)

    def edit_lease(self, ns: str, name: str, **spec: int | str) -> dict[str, Any]:
        return self.must("PATCH", LEASES.format(ns) + "/" + name, {"spec": spec}, kind="application/merge-patch+json")

    def delete_lease(self, ns: str, name: str) -> None:
        self.must("DELETE", LEASES.format(ns) + "/" + name)

    def events(self, ns: str) -> list[dict[str, Any]]:
        return self.must("GET", f"/api/v1/namespaces/{ns}/events")["items"]

    def requests(self, agent: str | None = None) -> list[Any]:
        """[(verb, resource, code, user agent)] of the audit log, if the server was started with one (AUDIT)."""
        with open(os.path.join(self.api.dir, "audit")) as f:
            entries = [json.loads(line) for line in f if line.endswith("\n")]  # the last may be half written
        return [e for e in entries if agent is None or e.get("userAgent", "").startswith(agent)]


def micro_now(offset: int = 0) -> str:
    t = time.time() + offset
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(t)) + f".{int(t % 1 * 1e6):06d}Z"


def connections(pids: list[int], port: int, host: str | None = None) -> int:
    """Of these processes to that port, which the server has not closed (its side's FIN leaves state 08). host: only to
    that one, written as in /proc/net/tcp and tcp6."""
    inodes = set()
    for pid in pids:
        for fd in os.listdir(f"/proc/{pid}/fd"):
            try:
                inodes.add(os.readlink(f"/proc/{pid}/fd/{fd}").removeprefix("socket:[").rstrip("]"))
            except OSError:
                pass
    count = 0
    for table in filter(os.path.exists, ("/proc/net/tcp", "/proc/net/tcp6")):
        with open(table) as f:
            for line in f.readlines()[1:]:
                _, _, to, state, *_, inode = line.split()[:10]
                at, number = to.split(":")
                count += inode in inodes and state == "01" and int(number, 16) == port and host in (None, at)
    return count


class ClientGo(Logged):
    """A contender that is real client-go (contender/main.go); its events, as JSON lines with the time of
    CLOCK_MONOTONIC."""

    def __init__(
        self,
        kubeconfig: Any,
        ns: str,
        name: str,
        identity: str,
        lease: str = "3s",
        renew: str = "2s",
        retry: str = "400ms",
        *options: Any,
        release: bool = True,
    ) -> None:
        self.name = identity
        values = {"kubeconfig": kubeconfig, "namespace": ns, "name": name, "identity": identity}
        values |= {"lease": lease, "renew": renew, "retry": retry, "release": str(release).lower()}
        process = subprocess.Popen(
            [os.path.join(TOOLS, "contender"), *(f"-{key}={value}" for key, value in values.items()), *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert process.stdout
        super().__init__(process, process.stdout)


AUDIT_POLICY = """apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: ["RequestReceived"]
rules:
- level: Metadata
  resources: [{group: coordination.k8s.io, resources: [leases]}, {group: "", resources: [configmaps, endpoints,\
 events]}]
- level: None
"""
AUDIT_EVERYTHING = """apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: ["RequestReceived"]
rules: [{level: Metadata}]
"""


class AuditedCluster(Cluster):
    """With a log of every request for a lock, or of what the policy says."""

    def __init__(self, options: Any = (), policy: Any = AUDIT_POLICY) -> None:
        self.etcd = Etcd()
        self.api = ApiServer(self.etcd, options, start=False)
        self.count = 0
        path = os.path.join(self.api.dir, "policy")
        with open(path, "w") as f:
            f.write(policy)
        self.api.options += [
            f"--audit-policy-file={path}",
            f"--audit-log-path={self.api.dir}/audit",
            "--audit-log-mode=blocking",
            "--audit-log-maxsize=1000",
        ]
        self.api.start()

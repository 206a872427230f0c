#!/usr/bin/env -S PYTHONPATH=. python3
"""examples/kubernetes, and lunarch.kube: the manifests are applied to the real API server, the script runs in three
pods' places with their service account alone, and the Service's selector always finds the leader's pod and no other; a
watch that misses nothing; a Service's EndpointSlice, which follows the leader.

The numbers T.. are those of the cases in tests/cluster/kubernetes/README.md."""

import json
import os
import re
import shutil
import signal
import socket
import urllib.error
from typing import Any

from tests.lib.candidates import Candidate
from tests.lib.kube_rig import AUDIT_EVERYTHING, AuditedCluster, Cluster, connections
from tests.lib.processes import LUNARCH, PATIENCE, ROOT, children, wait_for
from tests.lib.servers import free_port
from tests.lib.tap import done, note, ok, same

EXAMPLE = os.path.join(ROOT, "examples", "kubernetes")
PATHS = {
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts/{}",
    "Service": "/api/v1/namespaces/{}/services/{}",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles/{}",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings/{}",
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments/{}",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/{}/poddisruptionbudgets/{}",
}


def apply(c: AuditedCluster, ns: str, name: str) -> dict[str, dict[str, Any]]:
    """As kubectl apply --server-side does."""
    with open(os.path.join(EXAMPLE, name)) as f:
        documents = f.read().split("\n---\n")
    made = {}
    for text in documents:
        kind, called = (re.findall(p, text, re.M)[0] for p in (r"^kind: (\w+)", r"^  name: (\w+)"))
        request = urllib.request.Request(
            f"https://127.0.0.1:{c.port}{PATHS[kind].format(ns, called)}?fieldManager=test",
            method="PATCH",
            data=text.encode(),
            headers={"Content-Type": "application/apply-patch+yaml"},
        )
        with urllib.request.urlopen(request, timeout=PATIENCE, context=c.api.context) as r:
            made[kind] = json.load(r)
    return made


class Pod(Candidate):
    """What the kubelet would start: the container's arguments and environment, the service account's files in their
    place."""

    MOUNT = (
        'mount -t tmpfs tmpfs "$1/run" && mkdir -p "$1/run/secrets/kubernetes.io/serviceaccount" && '
        'cp "$ACCOUNT"/* "$1/run/secrets/kubernetes.io/serviceaccount/" && shift && '
    )
    # As the image's user, who has no home.
    USER = "setpriv --reuid 65534 --regid 65534 --clear-groups"
    ENTER = ["unshare", "--mount", "--propagation", "private", "sh", "-c", f'{MOUNT}exec {USER} "$@"', "sh", ""]
    PROGRAM = LUNARCH
    SCRIPT = os.path.join(EXAMPLE, "label-leader.lua")

    def __init__(
        self, c: AuditedCluster, ns: str, name: str, account: str, container: dict[str, Any], host: str = "127.0.0.1"
    ) -> None:
        """host: of the API server's Service, as the pod is told."""
        self.pod = name
        env = {
            "POD_NAME": name,
            "POD_NAMESPACE": ns,
            "POD_IP": "127.0.0.1",
            "KUBERNETES_SERVICE_HOST": host,
            "KUBERNETES_SERVICE_PORT": str(c.port),
            "ACCOUNT": account,
            "KUBECONFIG": "",
        }
        args = [re.sub(r"\$\((\w+)\)", lambda m: env[str(m[1])], a) for a in container["args"][1:]]
        args = [
            self.SCRIPT if a.startswith("/etc/lunarch/") else f"127.0.0.1:{free_port()}" if a == ":9090" else a
            for a in args
        ]
        super().__init__(*args, program=self.PROGRAM, env=env, prefix=self.ENTER)


def selected(c: AuditedCluster, ns: str, service: dict[str, Any]) -> list[str]:
    """The pods that the Service finds."""
    selector = "%2C".join(f"{k.replace('/', '%2F')}%3D{v}" for k, v in service["spec"]["selector"].items())
    return [
        p["metadata"]["name"] for p in c.must("GET", f"/api/v1/namespaces/{ns}/pods?labelSelector={selector}")["items"]
    ]


def led_by(c: Any, ns: Any, service: Any, pods: Any) -> Any:
    """Waits until the Service finds one pod, which the Lease's holder runs in; that pod."""

    def one() -> Pod | None:
        found, lease = selected(c, ns, service), c.lease(ns, "web")
        if not lease:
            return None
        holder = next(
            (
                p
                for p in pods
                if p.wait("became_leader", patience=0)
                and lease["spec"]["holderIdentity"] in str(p.all("became_leader")[-1])
            ),
            None,
        )
        return holder if holder and found == [holder.pod] else None

    return wait_for(one)


def right(verb: str, group: str, resource: str, name: str = "") -> dict[str, list[str]]:
    return {"apiGroups": [group], "resources": [resource], "verbs": [verb], "resourceNames": [name]}


def minimal(c: AuditedCluster, ns: str, role: dict[str, Any]) -> None:
    """The role has no right that has not been used, and the server refuses what is beside it."""
    granted = {
        (v, g, r) for rule in role["rules"] for g in rule["apiGroups"] for r in rule["resources"] for v in rule["verbs"]
    }
    user = f"system:serviceaccount:{ns}:web"

    def used() -> set[tuple[str, str, str]]:
        entries = [
            e for e in c.requests() if e["user"]["username"] == user and e["responseStatus"].get("code") in (200, 201)
        ]
        return {
            (e["verb"], e["objectRef"].get("apiGroup", ""), e["objectRef"]["resource"])
            for e in entries
            if "objectRef" in e
        }

    wait_for(lambda: used() == granted)
    same(used() ^ granted, set(), f"of the role's {len(granted)} rights each has been used, and nothing beside them")
    ok(c.allowed(ns, "web", right("update", "coordination.k8s.io", "leases", "web")), "the account may renew its Lease")
    beside = [
        right("delete", "coordination.k8s.io", "leases", "web"),
        right("list", "coordination.k8s.io", "leases"),
        *[right(v, "coordination.k8s.io", "leases", "other") for v in ("get", "update", "watch")],
        *[right(v, "", "events") for v in ("get", "list", "update", "delete")],
        *[right(v, "", "pods", "web-0") for v in ("get", "create", "update", "delete", "watch")],
        *[right("get", "", what) for what in ("secrets", "configmaps", "endpoints", "nodes", "services")],
    ]
    same(
        [r for r in beside if c.allowed(ns, "web", r)],
        [],
        f"it may do none of {len(beside)} things beside, such as delete its Lease, touch another, read Secrets",
    )


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as s:
            s.bind(("::1", 0))
        return True
    except OSError:
        return False


def three_pods(pod: Any = Pod) -> None:
    six = has_ipv6()
    with AuditedCluster(["--bind-address=::"] if six else [], policy=AUDIT_EVERYTHING) as c:
        ns = c.namespace("example")
        made = apply(c, ns, "rbac.yaml") | apply(c, ns, "deployment.yaml")
        same(made["Deployment"]["spec"]["replicas"], 3, "the manifests are accepted by the API server")
        wait_for(lambda: c.allowed(ns, "web", {"apiGroups": [""], "resources": ["pods"], "verbs": ["patch"]}))
        account = os.path.join(c.api.dir, "account")
        os.mkdir(account)
        shutil.copy(c.api.pki.ca, os.path.join(account, "ca.crt"))
        for name, text in (("token", c.token(ns, "web")), ("namespace", ns)):
            with open(os.path.join(account, name), "w") as f:
                f.write(text)
        template = made["Deployment"]["spec"]["template"]
        pods = []
        for i in range(3):
            spec = {**template["spec"], "serviceAccountName": "web"}
            c.must(
                "POST",
                f"/api/v1/namespaces/{ns}/pods",
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {"name": f"web-{i}", "labels": template["metadata"]["labels"]},
                    "spec": spec,
                },
            )
            pods.append(
                pod(c, ns, f"web-{i}", account, template["spec"]["containers"][0], *(["::1"] if six and i else []))
            )
        first = led_by(c, ns, made["Service"], pods)
        if not ok(first, "the Service finds the leader's pod and no other"):
            for p in pods:
                p.log()
            return
        same(
            sum(len(p.all("read_failed") + p.all("acquire_failed") + p.all("watch_refused")) for p in pods),
            0,
            "the role has every right that is needed",
        )
        warnings = [e for p in pods for e in p.events if e.get("level") in ("warn", "error")]
        same(warnings, [], "no pod warns of anything, though its user has no home")
        if six:
            ok(
                all(
                    [
                        wait_for(lambda: connections([p.pid, *children(p.pid)], c.port, "0" * 24 + "01000000"))
                        for p in pods[1:]
                    ]
                ),
                "T79 two of the pods reach the API server by IPv6",
            )
        else:
            note("this machine has no ::1: all pods use IPv4")
        for p in pods:
            p.kill(signal.SIGTERM) if p is first else None
        first.process.wait(PATIENCE)
        rest = [p for p in pods if p is not first]
        second = led_by(c, ns, made["Service"], rest)
        ok(second, "after a rolling restart's SIGTERM it finds the next")
        second.kill(signal.SIGKILL)
        third = led_by(c, ns, made["Service"], [p for p in rest if p is not second])
        ok(third, "after a crash too: the dead pod's label is taken away by the next leader")
        for p in pods:
            p.kill(signal.SIGTERM)
            p.process.wait(PATIENCE)
        same(selected(c, ns, made["Service"]), [], "and when nobody leads it finds none")
        minimal(c, ns, made["Role"])
        token = open(os.path.join(account, "token")).read()
        ok(not any(token in json.dumps(e) for p in pods for e in p.events), "the token is in no log")


MODULE = """
local kube = require "lunarch.kube"
local server, token_file, ca = ...
local api = kube.connect { server = server, token_file = token_file, ca = ca, namespace = "module" }
return { on_leading = function()
  print("get", api:get("configmaps", "one").data.a, select(2, api:get("configmaps", "none")).code)
  print("list", #api:list("configmaps", { selector = { kind = "test" } }), #api:list("configmaps", { selector =\
 "kind=other" }))
  print("patch", api:patch("v1/configmaps", "one", { data = { b = "2", a = json.null } }).data.b, api:get("configmaps",\
 "one").data.a)
  print("json patch", api:patch("configmaps", "one", { { op = "add", path = "/data/c", value = "3" } }, { type = "json"\
 }).data.c)
  for _, what in ipairs { { "secrets" }, { "nodes", { namespace = false } }, { "apps/v1/deployments" }, { "nonsense" }\
 } do
    local _, err = api:list(table.unpack(what))
    print("refused", what[1], err.code, err.status, err)
  end
  for event, map in api:watch("configmaps", { selector = { kind = "test" } }) do
    print("event", event, map.metadata.name, map.data and map.data.n)
    if map.metadata.name == "end" then lunarch.exit(0) end
  end
end }
"""


def module(c: Any) -> None:
    ns = c.namespace("module")
    maps = f"/api/v1/namespaces/{ns}/configmaps"

    def make(name: str, n: str = "0", kind: str = "test") -> None:
        c.must(
            "POST",
            maps,
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": name, "labels": {"kind": kind}},
                "data": {"a": "1", "n": n},
            },
        )

    def change(name: str, n: str) -> None:
        c.must("PATCH", f"{maps}/{name}", {"data": {"n": n}}, kind="application/merge-patch+json")

    token = c.account(
        ns, "reader", [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch", "patch"]}]
    )
    script, secret = os.path.join(c.api.dir, "module.lua"), os.path.join(c.api.dir, "reader")
    for path, text in ((script, MODULE), (secret, token)):
        with open(path, "w") as f:
            f.write(text)
    for name in ("one", "two", "three"):
        make(name)
    r = Candidate(
        "--lock", script + ".lock", script, "--", f"https://127.0.0.1:{c.port}", secret, c.api.pki.ca, options=()
    )

    def heard(*words: Any) -> Any:
        return r.wait("print", "\t".join(words))

    ok(
        heard("event", "added", "one") and heard("event", "added", "two") and heard("event", "added", "three"),
        "lunarch.kube: a watch begins with what is there",
    )
    said = [e["message"] for e in r.all("print")]

    def has(*words: str) -> bool:
        return any(m.startswith(words[0]) and all(w in m for w in words) for m in said)

    ok(has("get\t1\tmissing"), "an object is got, or is missing")
    ok(has("list\t3\t0"), "objects are listed by their labels")
    ok(has("patch\t2\tnil") and has("json patch\t3"), "patches of two kinds change what they should")
    for what in ("secrets", "nodes", "deployments"):
        ok(
            has("refused", what, "denied\t403", "forbidden"),
            f"{what}: without the right to it a list is an error with the server's words",
        )
    change("one", "1")
    make("four")
    make("other", kind="other")
    c.must("DELETE", f"{maps}/two")
    ok(
        heard("event", "modified", "one", "1") and heard("event", "added", "four") and heard("event", "deleted", "two"),
        "changes are told",
    )
    c.api.restart(signal.SIGKILL)
    change("one", "2")
    c.must("DELETE", f"{maps}/three")
    ok(
        heard("event", "modified", "one", "2") and heard("event", "deleted", "three"),
        "after a crash of the server, too",
    )
    same(len(r.all("print", "event\tadded\tfour")), 1, "and nothing twice")
    same(r.all("print", "\tother"), [], "nor what was not asked for")
    make("end")
    same(r.leave(), 0, "until the loop is left")
    ok(not any(token in json.dumps(e) for e in r.events), "the token is in no log")


SLICES = "/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices"
SERVICE_RULES = [
    {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["get", "create", "patch"]}
]
# A writer that looks, is told to go on by a file, and writes what it looked for: its patch waits between the two.
LATE = """
local kube = require "lunarch.kube"
local server, token_file, ca, token, gate = ...
local api = kube.connect { server = server, token_file = token_file, ca = ca, namespace = "service" }
return { on_leading = function(term)
  local patch, former = api.patch, { token = math.tointeger(token) }
  rawset(api, "patch", function(...)
    print "looked"
    while not io.open(gate) do sleep(0.05) end
    return patch(...)
  end)
  local _, err = api:publish(former, "web", { address = "10.9.9.9", port = 1 })
  print("late", err and err.code)
  rawset(api, "patch", nil)
  _, err = api:publish(former, "web", { address = "10.9.9.9", port = 1 })
  print("again", err and err.code)
  _, err = api:withdraw(former, "web")
  print("withdraw", err and err.code)
  _, err = api:publish(former, "theirs", { address = "10.9.9.9", port = 1 })
  print("foreign", err and err.code)
  print("nothing", api:withdraw(former, "none"))
  sleep(3600)
end }
"""


def service(c: Any) -> None:
    """examples/kubernetes/service.lua: the EndpointSlice of a Service has the leader's address, and nobody else's."""
    ns = c.namespace("service")
    slices = SLICES.format(ns)
    secret, account = os.path.join(c.api.dir, "service-token"), os.path.join(c.api.dir, "service-account")
    token = c.account(ns, "web", SERVICE_RULES)
    os.mkdir(account)
    shutil.copy(c.api.pki.ca, os.path.join(account, "ca.crt"))
    for path, text in ((secret, token), (account + "/token", token), (account + "/namespace", ns)):
        with open(path, "w") as f:
            f.write(text)
    lock = os.path.join(c.api.dir, "service.lock")

    def elector(ip: str) -> Candidate:
        return Candidate(
            "--lock",
            lock,
            os.path.join(EXAMPLE, "service.lua"),
            env={
                "SERVICE": "web",
                "POD_IP": ip,
                "POD_PORT": "8080",
                "POD_NAMESPACE": ns,
                "KUBERNETES_SERVICE_HOST": "127.0.0.1",
                "KUBERNETES_SERVICE_PORT": str(c.port),
                "ACCOUNT": account,
            },
            prefix=["unshare", "--mount", "--propagation", "private", "sh", "-c", Pod.MOUNT + 'exec "$@"', "sh", ""],
        )

    def addresses() -> Any:
        status, found = c.call("GET", f"{slices}/web-lunarch")
        return [a for e in found.get("endpoints") or [] for a in e["addresses"]] if status == 200 else None

    def written() -> int:
        return int(c.must("GET", f"{slices}/web-lunarch")["metadata"]["annotations"]["lunarch.dev/token"])

    one, two = elector("10.0.0.1"), elector("10.0.0.2")
    wait_for(lambda: addresses() in (["10.0.0.1"], ["10.0.0.2"]))
    led = {"10.0.0.1": one, "10.0.0.2": two}
    (first,) = addresses()
    old = written()
    labels = c.must("GET", f"{slices}/web-lunarch")["metadata"]["labels"]
    same(labels["kubernetes.io/service-name"], "web", "the leader makes the EndpointSlice of a Service")
    (second,) = [ip for ip in led if ip != first]
    same(led[first].stop(), 0, "the leader stops")
    ok(wait_for(lambda: addresses() == [second]), "the slice has the next leader's address instead")
    new = written()
    ok(new > old, "and its token, which is larger")
    third = elector("10.0.0.3")
    third.event("new_leader")
    led[second].kill()
    ok(wait_for(lambda: addresses() == ["10.0.0.3"]), "what a killed leader left is replaced by the next")
    newest = written()

    c.must(
        "POST",
        slices,
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "addressType": "IPv4",
            "metadata": {"name": "theirs-lunarch", "labels": {"kubernetes.io/service-name": "theirs"}},
            "endpoints": [{"addresses": ["10.1.1.1"]}],
            "ports": [],
        },
    )
    script, gate = os.path.join(c.api.dir, "late.lua"), os.path.join(c.api.dir, "gate")
    with open(script, "w") as f:
        f.write(LATE)
    arguments = (f"https://127.0.0.1:{c.port}", secret, c.api.pki.ca, str(newest), gate)
    late = Candidate("--lock", script + ".lock", script, "--", *arguments)
    late.event("print", "looked")
    third.kill()
    fourth = elector("10.0.0.4")
    ok(
        wait_for(lambda: addresses() == ["10.0.0.4"]),
        "a writer has looked and not yet written, and another term begins",
    )
    open(gate, "w").close()
    ok(late.wait("print", "late\tconflict"), "its write comes too late, and is refused")
    ok(late.wait("print", "again\tfenced"), "when it looks again it finds the larger token")
    ok(late.wait("print", "withdraw\tfenced"), "and takes nothing away")
    ok(late.wait("print", "foreign\tforeign"), "a slice that somebody else keeps is refused")
    theirs = c.must("GET", f"{slices}/theirs-lunarch")
    same([e["addresses"] for e in theirs["endpoints"]], [["10.1.1.1"]], "as it was")
    ok(late.wait("print", "nothing\ttrue"), "where there is no slice, there is nothing to take away")
    same(addresses(), ["10.0.0.4"], "the leader's address is still there")
    same(fourth.stop(), 0, "it stops")
    same(addresses(), [], "and when nobody leads the Service has no address")
    late.stop()


if __name__ == "__main__":
    three_pods()
    with Cluster() as cluster:
        service(cluster)
    with Cluster() as cluster:
        module(cluster)
    done()

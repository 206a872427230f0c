#!/usr/bin/env -S PYTHONPATH=. python3
"""examples/kubernetes: its chart, kustomization and sidecar, by the real helm and kustomize: linted, built, taken by
the real API server as a dry run and for good, and led with the rights and the environment of what came of them, and no
more."""

import json
import os
import re
import shutil
import subprocess
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import quote

import yaml

from tests.lib.candidates import Candidate, stop_everyone
from tests.lib.kube_rig import Cluster
from tests.lib.processes import CACHE, PATIENCE, ROOT, scratch, wait_for
from tests.lib.servers import Redis, free_port
from tests.lib.tap import done, note, ok, same

EXAMPLE = os.path.join(ROOT, "examples", "kubernetes")
CHART = os.path.join(EXAMPLE, "chart")
SCRIPT = "return { on_leading = function(term) print 'leading' while true do sleep(1) end end }"
IP = "10.1.2.3"  # the pods'
GROUPS = {
    "v1": "/api/v1",
    "apps/v1": "/apis/apps/v1",
    "policy/v1": "/apis/policy/v1",
    "rbac.authorization.k8s.io/v1": "/apis/rbac.authorization.k8s.io/v1",
}
APPLICATION = """apiVersion: apps/v1
kind: Deployment
metadata: {name: shop}
spec:
  replicas: 2
  selector: {matchLabels: {app: shop}}
  template:
    metadata: {labels: {app: shop}}
    spec:
      containers: [{name: shop, image: "shop:1"}]
"""


def tool(name: str, *args: str) -> "subprocess.CompletedProcess[str]":
    """helm or kustomize, which see nothing of this machine's settings."""
    home = scratch()
    r = subprocess.run(
        [os.path.join(CACHE, "charts", name), *args],
        capture_output=True,
        text=True,
        timeout=300,
        stdin=subprocess.DEVNULL,
        env={"HOME": home, "PATH": "/usr/bin:/bin"},
    )
    return r


def helm(ns: str, *args: str) -> "subprocess.CompletedProcess[str]":
    # A helm that is built of its module does not know which Kubernetes it was made for.
    return tool("helm", "template", "night", CHART, "--namespace", ns, "--kube-version", "1.34.0", *args)


def objects(text: str) -> list[Any]:
    return [d for d in yaml.safe_load_all(text) if d]


def kind(made: list[Any], name: str) -> Any:
    return next((d for d in made if d["kind"] == name), None)


def apply(c: Cluster, ns: str, d: dict[str, Any], dry: bool) -> int:
    """As kubectl apply --server-side does; strict: an unknown field is refused. The status."""
    plural = d["kind"].lower() + "s"
    request = urllib.request.Request(
        f"https://127.0.0.1:{c.port}{GROUPS[d['apiVersion']]}/namespaces/{ns}/{plural}/{d['metadata']['name']}"
        f"?fieldManager=test&fieldValidation=Strict{'&dryRun=All' if dry else ''}",
        method="PATCH",
        data=json.dumps(d).encode(),
        headers={"Content-Type": "application/apply-patch+yaml"},
    )
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE, context=c.api.context) as r:
            return int(r.status)
    except urllib.error.HTTPError as e:
        note(f"{d['kind']}: {e.read().decode()[:500]}")
        return e.code


def taken(c: Cluster, ns: str, what: str, text: str) -> list[Any]:
    made = objects(text)
    for dry in (True, False):
        same(
            [(d["kind"], s) for d in made for s in [apply(c, ns, d, dry)] if s not in (200, 201)],
            [],
            f"{what}: the API server takes its {len(made)} objects{', tried first' if dry else ''}",
        )
    return made


def answers(port: int, path: str) -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=PATIENCE) as r:
            return int(r.status)
    except urllib.error.HTTPError as e:
        return e.code
    except OSError:
        return 0


def led(c: Cluster, ns: str, what: str, made: list[Any], container: Any, probes: Any, script: str | None) -> None:
    """Two candidates told by the container's environment, with the token of the Deployment's account."""
    pod = kind(made, "Deployment")["spec"]["template"]["spec"]
    account = pod["serviceAccountName"]
    rule = next(r for r in kind(made, "Role")["rules"] if "update" in r["verbs"])
    wait_for(lambda: c.allowed(ns, account, rule))
    config = c.kubeconfig(ns, c.token(ns, account))
    env = {e["name"]: e["value"] for e in container["env"] if "value" in e}
    lease = re.sub(r"^kube:///", "", env["LUNARCH_LOCK"])
    env |= {"LUNARCH_LOCK": f"kube://{ns}/{lease}?kubeconfig={quote(config)}"}
    if script:
        env["LUNARCH_SCRIPT"] = script
    env = {k: v.replace("$(POD_IP)", IP) for k, v in env.items()} | {"POD_IP": IP}
    ports, two = [free_port(), free_port()], []
    for port in ports:
        two.append(Candidate(env={**env, "LUNARCH_LISTEN": f"127.0.0.1:{port}"}, options=()))
    wait_for(lambda: any(p.all("became_leader") for p in two))
    wait_for(lambda: all(answers(port, "/readyz") == 200 for port in ports))
    same(
        [answers(port, p["httpGet"]["path"]) for port in ports for p in probes],
        [200] * len(ports) * len(probes),
        f"{what}: the probes are content with the leader and with the standby",
    )
    same(sorted(answers(port, "/leader") for port in ports), [200, 503], f"{what}: and /leader says which one leads")
    first = next(p for p in two if p.all("became_leader"))
    other = next(p for p in two if p is not first)
    same(first.stop(), 0, f"{what}: the leader stops")
    ok(other.wait("became_leader"), f"{what}: with the role's rights alone the other leads then")
    if "LUNARCH_SERVICE" in env:
        ok(other.wait("service_published"), f"{what}: and the Service {env['LUNARCH_SERVICE']} leads to it")
    refused = [e["message"] for p in two for e in p.events if "forbidden" in e.get("message", "")]
    same(refused, [], f"{what}: and nothing was refused to either")
    other.stop()
    beside = {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "resourceNames": ["other"],
        "verbs": ["update"],
    }
    ok(not c.allowed(ns, account, beside), f"{what}: another Lease is not theirs to write")


def make_service(c: Cluster, ns: str, name: str) -> None:
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}}
    c.must("POST", f"/api/v1/namespaces/{ns}/services", service)


def of_slices(made: list[Any]) -> list[Any]:
    """The rules of the role that are about a Service's address."""
    return [r for r in kind(made, "Role")["rules"] if {"services", "endpointslices"} & set(r["resources"])]


def restricted(what: str, pod: dict[str, Any], container: dict[str, Any]) -> None:
    """What Kubernetes' Pod Security Standard "restricted" asks for, and a root that cannot be written to."""
    mine, all_of = container["securityContext"], pod.get("securityContext", {})
    same(
        (
            mine.get("runAsNonRoot", all_of.get("runAsNonRoot")),
            mine.get("seccompProfile", all_of.get("seccompProfile")),
            mine["allowPrivilegeEscalation"],
            mine["capabilities"],
            mine["readOnlyRootFilesystem"],
        ),
        (True, {"type": "RuntimeDefault"}, False, {"drop": ["ALL"]}, True),
        f"{what}: no root, no capability, seccomp, nothing to write to",
    )


def chart(c: Cluster) -> None:
    ns = c.namespace("chart")
    r = tool("helm", "lint", "--strict", CHART, "--set", "script=x", "--kube-version", "1.34.0")
    if not ok(r.returncode == 0 and "0 chart(s) failed" in r.stdout, "helm lint --strict"):
        note(r.stdout + r.stderr)
    file = os.path.join(scratch(), "script.lua")
    with open(file, "w") as f:
        f.write(SCRIPT)
    plain = helm(ns, "--set-file", f"script={file}")
    same(of_slices(objects(plain.stdout)), [], "chart: without a Service the role has no rights to Services")
    make_service(c, ns, "shop")
    r = helm(
        *(ns, "--set-file", f"script={file}", "--set", "port=8080,service=shop:8080"),
        *("--set", "env.LUNARCH_LEASE_DURATION=6s"),
    )
    if not ok(r.returncode == 0, "helm template"):
        note(r.stderr)
    made = taken(c, ns, "chart", r.stdout)
    same(
        sorted(d["kind"] for d in made),
        ["ConfigMap", "Deployment", "PodDisruptionBudget", "Role", "RoleBinding", "ServiceAccount"],
        "chart: what it makes",
    )
    pod = kind(made, "Deployment")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    restricted("chart", pod, container)
    same(kind(made, "ConfigMap")["data"]["script.lua"], SCRIPT, "chart: the script is as it was given")
    env = {e["name"]: e.get("value") for e in container["env"]}
    same(
        (env["LUNARCH_SHUTDOWN_GRACE"], pod["terminationGracePeriodSeconds"]),
        ("30s", 45),
        "chart: a pod has time to hand over",
    )
    probes = [container["livenessProbe"], container["readinessProbe"]]
    led(c, ns, "chart", made, container, probes, SCRIPT)
    for wrong, why in (
        ((), "no script"),
        (("--set", "script=x,scriptConfigMap=y"), "give one of them"),
        (("--set", "script=x,replica=2"), "replica"),
        (("--set", "script=x,env.a-b=c"), "a-b"),
        (("--set", "script=x,passwordSecret.name=s"), "give lock"),
        (("--set", "script=x,service=A_b"), "service"),
    ):
        r = helm(ns, *wrong)
        ok(r.returncode and why in r.stderr, f"chart: {' '.join(wrong) or 'nothing'} is refused: {why}")
    made = objects(helm(ns, "--set", "scriptConfigMap=mine,lock=redis://r/x", "--set", "maxUnavailable=null").stdout)
    same(
        (kind(made, "ConfigMap"), kind(made, "PodDisruptionBudget"), kind(made, "Role")["rules"] or []),
        (None, None, []),
        "chart: of another store's lock the role has no rule; a ConfigMap and no budget, where that is asked for",
    )


def notes(c: Cluster, ns: str, *args: str) -> str:
    """What helm install says, which helm template does not show. Of a copy that takes any Kubernetes: install does not
    know --kube-version."""
    copy = os.path.join(scratch(), "chart")
    shutil.copytree(CHART, copy)
    path = os.path.join(copy, "Chart.yaml")
    with open(path) as f:
        text = re.sub(r"(?m)^kubeVersion:.*\n", "", f.read())
    with open(path, "w") as f:
        f.write(text)
    r = tool(
        *("helm", "install", "night", copy, "--namespace", ns, "--dry-run=client", "--kubeconfig", c.kubeconfig(ns)),
        *("--set", "script=x", *args),
    )
    if r.returncode:
        note(r.stderr)
    return r.stdout.partition("\nNOTES:\n")[2]


def rights(c: Cluster) -> None:
    """What the role has, and what helm says of it, by the kind of lock."""
    ns = c.namespace("rights")
    for lock, words in (
        ("", "has the rights for it, and for night-next"),
        ("kube:///spare", "THE ROLE HAS NO RIGHTS FOR IT"),
        ("redis://r/night", "in a store of kind redis, which asks Kubernetes for no rights"),
        ("/srv/locks/night?shared=link", "a directory that all pods see"),
        ("file:/srv/locks/night?shared=link", "a directory that all pods see"),
        ("night", "THE LOCK night IS OF EACH POD ALONE"),
        ("none:", "IS OF EACH POD ALONE"),
    ):
        said = notes(c, ns, "--set", f"lock={lock}")
        ok(words in said, f"chart: helm install says of the lock '{lock}': {words}", said)
    said = notes(c, ns, "--set", "service=shop:8080")
    ok("The Service shop must be there, without a selector" in said, "chart: and what Service must be there", said)
    # The rules that the notes give are enough.
    said = notes(c, ns, "--set", "lock=kube:///spare")
    rules = yaml.safe_load("\n".join(line for line in said.splitlines() if line.startswith("  - {")))
    file = os.path.join(scratch(), "values.json")
    with open(file, "w") as f:
        f.write(json.dumps({"rules": rules}).replace("NAME", "spare"))
    r = helm(ns, "--set", "script=x,lock=kube:///spare", "--values", file)
    made = taken(c, ns, "rights", r.stdout)
    (container,) = kind(made, "Deployment")["spec"]["template"]["spec"]["containers"]
    probes = [container["livenessProbe"], container["readinessProbe"]]
    led(c, ns, "rights", made, container, probes, SCRIPT)


def password(c: Cluster) -> None:
    """From a Secret, for a store that asks for one: a real Redis."""
    ns, secret = c.namespace("password"), "pass%2F:@word"
    redis = Redis("--requirepass", secret)
    try:
        lock = redis.url("night")
        words = ("--set", f"script=x,lock={lock},passwordSecret.name=store,passwordSecret.key=redis-password")
        r = helm(ns, *words)
        if not ok(r.returncode == 0, "chart: with a Secret's password"):
            note(r.stderr)
        made = taken(c, ns, "password", r.stdout)
        (container,) = kind(made, "Deployment")["spec"]["template"]["spec"]["containers"]
        env = {e["name"]: e for e in container["env"]}
        same(
            env["LUNARCH_LOCK_PASSWORD"].get("valueFrom"),
            {"secretKeyRef": {"name": "store", "key": "redis-password"}},
            "chart: the password comes from the Secret's key",
        )
        # What the kubelet makes of it.
        told = {"LUNARCH_LOCK": env["LUNARCH_LOCK"]["value"], "LUNARCH_LOCK_PASSWORD": secret}
        p = Candidate("-e", SCRIPT, env=told)
        ok(p.wait("became_leader"), "chart: with which a candidate leads on a store that asks for it")
        same(p.stop(), 0, "chart: and ends well")
        p = Candidate("-e", SCRIPT, env={**told, "LUNARCH_LOCK_PASSWORD": "wrong"})
        ok(p.leave() not in (0, None) or p.complaints(), "chart: and with another one does not")
        p.stop()
    finally:
        redis.stop()


def kustomization(c: Cluster) -> None:
    ns = c.namespace("base")
    r = tool("kustomize", "build", EXAMPLE)
    if not ok(r.returncode == 0, "kustomize builds examples/kubernetes"):
        note(r.stderr)
    made = taken(c, ns, "kustomization", r.stdout)
    pod = kind(made, "Deployment")["spec"]["template"]["spec"]
    restricted("kustomization", pod, pod["containers"][0])
    script = next(v for v in pod["volumes"] if v["name"] == "script")["configMap"]["name"]
    same(kind(made, "ConfigMap")["metadata"]["name"], script, "kustomization: the pods have the script's ConfigMap")


def with_components(application: str, *components: str) -> str:
    """What kustomize makes of an application, or of the example's own, and these."""
    home = scratch()
    paths = [os.path.relpath(os.path.join(EXAMPLE, part), os.path.realpath(home)) for part in components]
    base = os.path.relpath(EXAMPLE, os.path.realpath(home))
    for name, text in (
        ("shop.yaml", application),
        (
            "kustomization.yaml",
            f"resources: [{'shop.yaml' if application else base}]\ncomponents: [{', '.join(paths)}]\n",
        ),
    ):
        with open(os.path.join(home, name), "w") as f:
            f.write(text)
    r = tool("kustomize", "build", home)
    if not ok(r.returncode == 0, f"kustomize adds {' and '.join(components)} to a Deployment"):
        note(r.stderr)
    return r.stdout


def service(c: Cluster) -> None:
    """The component that takes the selector away, and lets the leader keep the Service's address."""
    ns = c.namespace("service")
    made = taken(c, ns, "service", with_components("", "service"))
    same(kind(made, "Service")["spec"].get("selector"), None, "service: the Service has no selector")
    container = kind(made, "Deployment")["spec"]["template"]["spec"]["containers"][0]
    env = {e["name"]: e.get("value") for e in container["env"]}
    same((env["LUNARCH_SERVICE"], len(of_slices(made))), ("web", 3), "service: the leader keeps it, with three rules")


def sidecar(c: Cluster) -> None:
    ns = c.namespace("sidecar")
    make_service(c, ns, "leader")
    made = taken(c, ns, "sidecar", with_components(APPLICATION, "sidecar", "sidecar/service"))
    pod = kind(made, "Deployment")["spec"]["template"]["spec"]
    same([p["name"] for p in pod["containers"]], ["shop"], "sidecar: the program is as it was")
    (beside,) = pod["initContainers"]
    same(beside["restartPolicy"], "Always", "sidecar: it starts before the program, and ends after it")
    restricted("sidecar", pod, beside)
    same([v["name"] for v in pod["volumes"]], ["lunarch-state"], "sidecar: the pod has no volume more than it needs")
    led(c, ns, "sidecar", made, beside, [beside["startupProbe"], beside["livenessProbe"]], None)


def state_file(c: Cluster) -> None:
    """The sidecar's variant with a file that the program reads."""
    ns, place = c.namespace("file"), scratch()
    shop = APPLICATION.replace(
        '"shop:1"', '"shop:1", volumeMounts: [{name: lunarch-file, mountPath: /run/lunarch, readOnly: true}]'
    )
    made = taken(c, ns, "state file", with_components(shop, "sidecar", "sidecar/file"))
    pod = kind(made, "Deployment")["spec"]["template"]["spec"]
    (beside,) = pod["initContainers"]
    restricted("state file", pod, beside)
    (mount,) = (m for m in beside["volumeMounts"] if m["name"] == "lunarch-file")
    env = {e["name"]: e.get("value") for e in beside["env"]}
    same(
        (os.path.dirname(env["LUNARCH_STATE_FILE"] or ""), [v for v in pod["volumes"] if v["name"] == "lunarch-file"]),
        (mount["mountPath"], [{"name": "lunarch-file", "emptyDir": {"medium": "Memory"}}]),
        "state file: it lies in a volume in memory that both containers have",
    )
    path = os.path.join(place, os.path.basename(env["LUNARCH_STATE_FILE"] or "?"))
    p = Candidate("--lock", os.path.join(place, "lock"), "-e", SCRIPT, env={"LUNARCH_STATE_FILE": path})
    p.wait("became_leader")

    def leads() -> bool:
        with open(path) as f:
            return any(e["leading"] for e in json.load(f)["elections"])

    ok(wait_for(leads), "state file: by which variable a candidate says there that it leads")
    p.stop()


try:
    with Cluster() as cluster:
        chart(cluster)
        rights(cluster)
        password(cluster)
        kustomization(cluster)
        service(cluster)
        sidecar(cluster)
        state_file(cluster)
finally:
    stop_everyone()
done()

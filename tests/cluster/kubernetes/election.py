#!/usr/bin/env -S PYTHONPATH=. python3
"""Elections on a real Kubernetes API server: what may happen to a Lease, beside and against real client-go. The numbers
T.. are those of README.md beside this file, cases in which other electors fail. Scenarios run side by side, each in a
namespace of its own.

Arguments: names of scenarios. HANDOVERS=N: how many the mixed election goes through (24; FULL=1: 200)."""

import concurrent.futures
import json
import os
import signal
import sys
import time
import traceback
from typing import Any
from urllib.parse import quote

from tests.lib import field
from tests.lib.candidates import Candidate, timing
from tests.lib.kube_rig import LEASES, MINIMAL, AuditedCluster, connections, micro_now
from tests.lib.kube_scene import LONG_AGO, RARE, SCRIPT, SLOW, STURDY, Clock, Scene, tokens
from tests.lib.pki import Pki
from tests.lib.processes import PATIENCE, moment, scratch, wait_for
from tests.lib.proxy import Proxy
from tests.lib.servers import free_port
from tests.lib.tap import done, note, ok, same


def life(s: Any) -> None:
    """A Lease is made, renewed and released as client-go would, and read by its commands."""
    s.leader("--identity", "web_1", name="made", times=RARE)  # nobody renews it meanwhile
    made = s.lease("made")["spec"]
    same(
        (made["holderIdentity"], made["leaseTransitions"], made["acquireTime"]),
        ("web_1", 0, made["renewTime"]),
        "T01 a missing Lease is made, with transitions 0",
    )
    a = s.leader("--identity", "web_1", "--address", "10.0.0.1:80")
    first = s.lease()["spec"]
    same(
        first["leaseDurationSeconds"],
        10,
        "T63 seconds are published rounded up, and one more where client-go would not see renewals",
    )
    wait_for(lambda: s.lease()["spec"]["renewTime"] != first["renewTime"])
    token = str(a.wait("became_leader")["token"])
    out = s.run("leader", "--lock", s.url())
    same((out.returncode, out.stdout.strip()), (0, "10.0.0.1:80"), "lunarch leader prints the address")
    out = s.run("status", "--json", "--lock", s.url())
    ok(
        out.returncode == 0 and json.loads(out.stdout) and '"web_1"' in out.stdout and token in out.stdout,
        "lunarch status names holder and token",
    )
    b = s.candidate("--identity", "web_2")
    ok(b.wait("new_leader"), "a standby sees who leads")
    began = time.time()
    renewed = wait_for(lambda: len(s.since(began, "update")) > 8)
    same(
        (renewed, [e for e in s.since(began, "get") if e["objectRef"].get("name") == "lock"]),
        (True, []),
        "T18 eight renewals later: nobody has asked for the Lease with a GET, neither leader nor standby",
    )
    a.kill(signal.SIGTERM)
    same(a.process.wait(PATIENCE), 0, "a stop is a clean one")
    took = b.wait("became_leader")["seen"] - a.all("stopped_leading")[0]["seen"]
    note(f"graceful handover: {took * 1000:.0f} ms")
    spec = s.lease()["spec"]
    same(
        (spec["holderIdentity"], spec["leaseTransitions"]),
        ("web_2", 1),
        "T12 the next takes over at once, with one transition more",
    )
    b.kill(signal.SIGTERM)
    b.process.wait(PATIENCE)
    spec = s.lease()["spec"]
    same(
        (spec["holderIdentity"], spec["leaseDurationSeconds"], spec["leaseTransitions"]),
        ("", 1, 1),
        "T37 a release is client-go's: empty holder, one second",
    )
    same(s.run("status", "--lock", s.url()).returncode, 1, "lunarch status says that nobody leads")
    wanted = {f"web_{n} {did}" for n in (1, 2) for did in ("became leader", "stopped leading")}

    def told() -> set[str]:
        return {
            e["message"]
            for e in s.c.events(s.ns)
            if (e["involvedObject"]["kind"], e["reason"]) == ("Lease", "LeaderElection")
        }

    ok(wait_for(lambda: wanted <= told()), "Kubernetes Events say who became leader and who stopped leading", told())
    bad = [
        (e["verb"], e["responseStatus"]["code"])
        for e in s.requests()
        if 400 <= e["responseStatus"]["code"] < 500 and e["responseStatus"]["code"] not in (404, 409)
    ]
    same(bad, [], "the server has refused nothing")


def stolen(s: Any) -> None:
    """Somebody edits the holder: the term ends at once, by the watch, and nothing is written over the thief's."""
    a = s.leader(times=RARE)
    wall, began = time.time(), time.monotonic()
    s.c.edit_lease(s.ns, "lock", holderIdentity="thief", leaseDurationSeconds=8)
    e = a.wait("stopped_leading", "lost")
    ok(
        e and not s.since(wall, "update"),
        "T20 T29 a stolen Lease ends the term at once: no renewal was in between (the next is 20 s away)",
    )
    note(f"stolen: noticed after {(e['seen'] - began) * 1000:.0f} ms")
    same(s.holder(), "thief", "T20 and the thief's record is not touched")
    ok(a.wait("became_leader", count=2), "T52 when the thief's lease has run out, the same process leads again")
    t = tokens(a)
    ok(t[0] < t[1], "T53 with a larger token")
    s.c.edit_lease(s.ns, "lock", holderIdentity="thief again")
    a.kill(signal.SIGTERM)
    a.process.wait(PATIENCE)
    same(s.holder(), "thief again", "T38 who is told to stop after a theft releases nothing of the thief's")


def deleted(s: Any) -> None:
    a = s.leader(times=RARE)
    began = time.time()
    s.c.delete_lease(s.ns, "lock")
    ok(
        a.wait("stopped_leading", "deleted") and not s.since(began, "update"),
        "T27 a deleted Lease ends the term at once, with a look at most (the next renewal is 20 s away)",
    )
    s.c.put_lease(
        s.ns,
        "lock",
        {
            "holderIdentity": "peer",
            "leaseDurationSeconds": 2,
            "leaseTransitions": 0,
            "renewTime": micro_now(),
            "acquireTime": micro_now(),
        },
    )
    # The record before was deleted, so its own lease is waited out, too: RARE's, which is as long as PATIENCE.
    ok(a.wait("became_leader", count=2, patience=3 * PATIENCE), "T28 one made anew by a peer is waited out")
    same(s.lease()["spec"]["leaseTransitions"], 1, "T28 and then taken over, not made again")
    t = tokens(a)
    ok(t[0] < t[1], "T53 tokens grow across a deletion")
    old, began = s.lease(), time.time()
    s.c.delete_lease(s.ns, "lock")
    s.c.put_lease(s.ns, "lock", {**old["spec"], "holderIdentity": "peer", "leaseDurationSeconds": 600})
    ok(
        a.wait("stopped_leading", count=2) and not s.since(began, "update"),
        "T28 deleted and re-created between two looks: the term ends, before the next renewal",
    )
    same(
        [e["responseStatus"]["code"] for e in s.requests("update") if e["responseStatus"]["code"] == 201],
        [],
        "T28 no PUT has ever made a Lease",
    )
    same(s.holder(), "peer", "T28 and the peer's is not touched")


def microseconds(s: Any) -> None:
    """Renewals that differ by microseconds only, which client-go does not see."""
    spec: dict[str, Any] = {
        "holderIdentity": "busy",
        "leaseDurationSeconds": 2,
        "leaseTransitions": 5,
        "acquireTime": LONG_AGO.format(0),
        "renewTime": LONG_AGO.format(0),
    }
    # 5 s, within which a busy machine gets an edit done.
    s.c.put_lease(s.ns, "lock", {**spec, "leaseDurationSeconds": 5})
    s.c.put_lease(s.ns, "for-go", spec)
    a, go = s.candidate(), s.go("go", name="for-go", lease="2s", renew="1500ms", retry="200ms")
    i, began = 0, time.monotonic()
    while time.monotonic() < began + 15 or not go.all("started") and time.monotonic() < began + PATIENCE:
        time.sleep(0.25)
        i += 1
        s.c.edit_lease(s.ns, "lock", renewTime=LONG_AGO.format(i))
        if not go.all("started"):
            s.c.edit_lease(s.ns, "for-go", renewTime=LONG_AGO.format(i))
    same(
        (s.holder(), a.all("became_leader")),
        ("busy", []),
        "T10 renewals inside one second are seen: three leases long nobody takes over",
    )
    ok(
        go.all("started"),
        "T10 client-go has taken over from a holder that renews (its known weakness, shown by the same edits)",
    )
    ok(a.wait("became_leader"), "T08 when they stop, the record is waited out from its last change")
    same(s.lease()["spec"]["leaseTransitions"], 6, "T12 with one transition more")
    go.stop()


def coordinated(s: Any) -> Any:
    s.c.put_lease(s.ns, "lock", {"strategy": "OldestEmulationVersion"})
    if not s.lease()["spec"].get("strategy"):
        return ok(False, "T68 the server keeps a strategy")
    a = s.candidate()
    e = a.wait("foreign_record")
    ok(e and "coordinated" in e["message"], "T68 a Lease under coordinated leader election is reported")
    edited = s.c.edit_lease(s.ns, "lock", renewTime=LONG_AGO.format(1))
    time.sleep(4)
    same(
        s.lease()["metadata"]["resourceVersion"],
        edited["metadata"]["resourceVersion"],
        "T68 for eight periods nobody else has written it",
    )
    ok(not a.all("became_leader") and not s.requests("update"), "T68 and left alone")


def emptied(s: Scene) -> None:
    """Someone empties the holder (client-go from 1.34 on does, late): the leader may not know yet, so nobody takes it
    at once."""
    a = s.leader(times=SLOW)
    b = s.candidate(times=SLOW)
    b.wait("new_leader")
    os.kill(a.pid, signal.SIGSTOP)
    s.c.edit_lease(s.ns, "lock", holderIdentity="", leaseDurationSeconds=1)
    time.sleep(4)
    same(b.all("became_leader"), [], "a Lease emptied by hand is not free while its leader may not know")
    os.kill(a.pid, signal.SIGCONT)


def others(s: Any) -> None:
    """What other clients leave behind."""
    s.c.put_lease(s.ns, "nulls", {"leaseDurationSeconds": 15, "leaseTransitions": 2})
    s.c.put_lease(s.ns, "empty", {})
    s.c.put_lease(
        s.ns,
        "labelled",
        {"holderIdentity": "", "leaseDurationSeconds": 1, "leaseTransitions": 1},
        labels={"a": "b"},
        annotations={"x": "y"},
    )
    a = s.leader(name="nulls")
    s.leader(name="empty")
    same(s.lease("nulls")["spec"]["leaseTransitions"], 3, "T05 a release with nulls is taken at once")
    same(s.lease("empty")["spec"]["leaseTransitions"], 1, "T03 so is an empty one, with transitions 1")
    owner = s.c.must("GET", f"/api/v1/namespaces/{s.ns}/serviceaccounts/elector")["metadata"]["uid"]
    c = s.leader(name="labelled", more=f"&label=app%3Dweb&owner=v1/ServiceAccount/elector/{owner}")
    meta = s.lease("labelled")["metadata"]
    same(
        (meta["labels"], meta["annotations"].get("x")),
        ({"a": "b", "app": "web"}, "y"),
        "T12 labels and annotations of others are kept, ours added",
    )
    same(
        [o["uid"] for o in meta.get("ownerReferences", [])],
        [owner],
        "an owner is set, so that the Lease is collected with it",
    )
    before = s.lease("labelled")["spec"]["renewTime"]
    s.c.must(
        "PATCH",
        LEASES.format(s.ns) + "/labelled",
        {"metadata": {"labels": {"new": "1"}}},
        kind="application/merge-patch+json",
    )
    wait_for(lambda: s.lease("labelled")["spec"]["renewTime"] > before)
    ok(not c.all("stopped_leading"), "T19 a label edited meanwhile: the term goes on")
    s.c.edit_lease(s.ns, "nulls", leaseDurationSeconds=1)
    wait_for(lambda: s.lease("nulls")["spec"]["leaseDurationSeconds"] == 10)
    same(
        (s.lease("nulls")["spec"]["leaseDurationSeconds"], a.all("stopped_leading")),
        (10, []),
        "T30 an edited duration is set right by the next renewal",
    )


def beside_go(s: Scene) -> None:
    """Lunarch's commands on a Lease that client-go holds; a handover in each direction."""
    go = s.go("go-1")
    go.wait("started")
    out = s.run("status", "--json", "--lock", s.url())
    ok(out.returncode == 0 and '"go-1"' in out.stdout, "lunarch status reads a Lease that client-go holds")
    a = s.candidate("--identity", "lunarch-1")
    e = a.wait("new_leader")
    ok(e and "go-1" in e["message"], "a candidate reports client-go as the leader")
    go.stop()
    ok(a.wait("became_leader"), "client-go releases: Lunarch leads")
    go = s.go("go-2")
    ok(
        wait_for(lambda: [e for e in go.all("new_leader") if e["who"] == "lunarch-1"]),
        "client-go sees Lunarch as the leader",
    )
    a.kill(signal.SIGTERM)
    a.process.wait(PATIENCE)
    ok(go.wait("started"), "Lunarch releases: client-go leads")
    go.stop()


def refused(s: Scene) -> None:
    """Rights that are missing, each said once with what is needed."""
    a = s.candidate(times=STURDY)
    e = a.wait("read_failed", "403")
    ok(
        e and 'verbs ["get", "create", "update", "watch"]' in e["message"] and s.ns in e["message"],
        "403: the rule that is missing is spelled out",
    )
    time.sleep(5)
    same(len(a.complaints("403")), 1, "403: and said once, not at every try")
    out = s.run("status", "--lock", s.url())
    ok(out.returncode == 69 and "403" in out.stderr, "status: 403 is exit status 69")
    no_ns = Candidate(
        "-e", SCRIPT, "--lock", f"kube://not-there/lock?kubeconfig={quote(s.c.kubeconfig())}", options=STURDY
    )
    s.candidates.append(no_ns)
    e = no_ns.wait("acquire_failed", "404")
    ok(e and "404" in e["message"] and "not-there" in e["message"], "404: a namespace that does not exist is named")
    time.sleep(5)
    same(len(no_ns.complaints("404")), 1, "404: and said once")


def half_refused(s: Scene) -> None:
    """A role that may look, but neither make nor change."""
    s.c.put_lease(s.ns, "free", {"holderIdentity": "", "leaseDurationSeconds": 1, "leaseTransitions": 1})
    for name, verb in (("missing", "create"), ("free", "update")):
        c = s.candidate(name=name, times=STURDY)
        e = c.wait("acquire_failed", "403")
        ok(
            e
            and f"cannot {verb} resource" in e["message"]
            and 'verbs ["get", "create", "update", "watch"]' in e["message"],
            f"403 to {verb}: said, with the rule that is missing",
        )
    time.sleep(5)
    same([len(c.complaints("403")) for c in s.candidates], [1, 1], "403 to writes: each said once, not at every try")
    same(
        [c.all("store_back") for c in s.candidates],
        [[], []],
        "403 to writes: that it can be read is not said to be the end of it",
    )
    same((s.lease("missing"), s.holder("free")), (None, ""), "403 to writes: nothing is written")


def old_refused(s: Scene) -> None:
    """A role that may do all with Leases, but only look at what older clients elect on."""
    released = json.dumps(
        {
            "holderIdentity": "",
            "leaseDurationSeconds": 1,
            "acquireTime": LONG_AGO.format(0)[:19] + "Z",
            "renewTime": LONG_AGO.format(0)[:19] + "Z",
            "leaderTransitions": 1,
        }
    )
    s.c.must(
        "POST",
        f"/api/v1/namespaces/{s.ns}/configmaps",
        {"metadata": {"name": "free", "annotations": {"control-plane.alpha.kubernetes.io/leader": released}}},
    )
    for name, kind, verb, what in (
        ("missing", "configmaps", "create", "configmaps"),
        ("missing", "endpoints", "create", "endpoints"),
        ("free", "configmaps", "update", "configmaps"),
        ("pair", "configmapsleases", "create", "configmaps"),
    ):
        c = s.candidate(name=name, more=f"&resource={kind}", times=STURDY)
        e = c.wait("acquire_failed", "403")
        ok(
            e
            and f'cannot {verb} resource "{what}"' in e["message"]
            and f'resources ["{what}"], verbs ["get", "create", "update", "watch"]' in e["message"],
            f"403 to {verb} {what} for {kind}: said, with the rule that is missing",
            e,
        )
    time.sleep(5)
    same(
        [len(c.complaints("403")) for c in s.candidates],
        [1, 1, 1, 1],
        "403 to writes of annotation locks: each said once, not at every try",
    )
    same(
        [c.all("became_leader") for c in s.candidates],
        [[]] * 4,
        "403 to writes of annotation locks: nobody leads, not on half a pair either",
    )
    same(s.holder("pair"), None, "403 to writes of annotation locks: and no Lease says so")


def revoked(s: Any) -> None:
    """A leader's rights are taken away."""
    a = s.leader(times=STURDY)
    wait_for(s.watched)  # a watch that is refused would be said first
    binding = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{s.ns}/rolebindings/elector"
    old = s.c.must("GET", binding)
    s.c.must("DELETE", binding)
    e = a.wait("renew_failed", "403")
    ok(
        e and "403" in e["message"] and "cannot update resource" in e["message"],
        "T34 a leader whose role is taken away says which rule is missing",
    )
    e = a.wait("stopped_leading")
    took = moment(e["time"]) - moment(s.lease()["spec"]["renewTime"])
    ok(
        0 < took < s.lease()["spec"]["leaseDurationSeconds"],
        f"T34 and its term ends before the record's lease does ({took:.1f} s after the last renewal)",
    )
    refused = [e for e in s.requests() if e["responseStatus"]["code"] == 403]
    ok(len(refused) < 10 + 5 * took, f"T34 without a busy loop ({len(refused)} requests were refused)")
    said = a.complaints("403")  # a slow machine may have other troubles
    ok(len(said) <= 3, f"T34 nor many words ({len(said)})")
    s.c.must(
        "POST",
        binding.removesuffix("/elector"),
        {k: old[k] for k in ("roleRef", "subjects")} | {"metadata": {"name": "elector"}},
    )
    ok(a.wait("became_leader", count=2), "T34 when it has them again it leads again")


def polling(s: Scene) -> None:
    """Without the verb watch a candidate polls."""
    a = s.leader()
    ok(a.wait("watch_refused"), "without the verb watch that is said")
    b = s.candidate()
    ok(b.wait("new_leader") and b.wait("watch_refused"), "T75 a standby polls then")
    a.kill(signal.SIGTERM)
    ok(b.wait("became_leader"), "T75 and leads when it is free")


def rotation(s: Scene) -> None:
    """A token's file with another account's token, and the first account deleted: the term goes on."""
    s.c.must("POST", f"/api/v1/namespaces/{s.ns}/serviceaccounts", {"metadata": {"name": "second"}})
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{s.ns}/rolebindings"
    s.c.must(
        "POST",
        rbac,
        {
            "metadata": {"name": "second"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "elector"},
            "subjects": [{"kind": "ServiceAccount", "name": "second", "namespace": s.ns}],
        },
    )
    wait_for(lambda: s.c.allowed(s.ns, "second", MINIMAL[0]))
    path = os.path.join(s.c.api.dir, "rotated-token")
    with open(path, "w") as f:
        f.write(s.token)
    a = s.leader(config=s.c.kubeconfig(s.ns, user={"tokenFile": path}))
    open(path, "w").close()
    time.sleep(1)
    with open(path + ".new", "w") as f:
        f.write(s.c.token(s.ns, "second") + "\n")
    os.rename(path + ".new", path)
    s.c.must("DELETE", f"/api/v1/namespaces/{s.ns}/serviceaccounts/elector")
    ok(
        wait_for(lambda: any(e["user"]["username"].endswith(":second") for e in s.requests("update"))),
        "T31 after a 401 the token's file is read again",
    )
    same(a.all("stopped_leading"), [], "T31 T32 and the term goes on")
    secret = s.token.split(".")[1]
    ok(not any(secret in json.dumps(e) for e in a.events), "no token in any log line")


def plugins(s: Scene) -> None:
    """Credentials from a program."""
    script = os.path.join(s.c.api.dir, "plugin")
    with open(script, "w") as f:
        f.write(
            """#!/bin/sh
echo run >> "$0.runs"
case $KUBERNETES_EXEC_INFO in *'"interactive":false'*) ;; *) exit 9 ;; esac
[ "$1" = bad ] && { echo "s3cret-output"; exit 0; }
[ "$1" = fail ] && { echo "the login has expired" >&2; exit 3; }
printf '{"apiVersion":"%s","kind":"ExecCredential","status":{"token":"%s","expirationTimestamp":"%s"}}' "$1" "$TOKEN"\
 "$UNTIL"
"""
        )
    os.chmod(script, 0o755)

    def config(version: str, *args: str, until: str = "2100-01-01T00:00:00Z") -> str:
        return s.c.kubeconfig(
            s.ns,
            user={
                "exec": {
                    "apiVersion": f"client.authentication.k8s.io/{version}",
                    "command": script,
                    "interactiveMode": "Never",
                    "args": list(args) or [f"client.authentication.k8s.io/{version}"],
                    "env": [{"name": "TOKEN", "value": s.token}, {"name": "UNTIL", "value": until}],
                }
            },
        )

    a = s.leader(config=config("v1"))
    with open(script + ".runs") as f:
        same(len(f.readlines()), 1, "T78 an exec plugin is run once for many requests")
    b = s.leader(config=config("v1beta1"), name="beta")
    out = s.run("status", "--lock", s.url(config=config("v1", "bad")))
    ok(
        out.returncode == 69 and "ExecCredential" in out.stderr and "s3cret" not in out.stderr,
        "T78 one that prints something else is an error, without what it printed",
    )
    out = s.run("status", "--lock", s.url(config=config("v1", "fail")))
    ok(out.returncode == 69 and "the login has expired" in out.stderr, "T78 one that fails: its last words are shown")
    same([x for c in (a, b) for x in c.all("stopped_leading")], [], "T78 and both led on")


def bad_input(s: Any) -> None:
    """Each a clear error with its exit status, nothing taken, no secret shown."""
    other = Pki(scratch())
    expired = s.c.api.pki.sign("expired", "/O=system:masters/CN=late", days="-1")
    missing = os.path.join(s.c.api.dir, "no-such-config")
    now = int(time.time())
    late = s.c.signed(s.token, iat=now - 7200, nbf=now - 7200, exp=now - 3600)
    same(
        s.c.call("GET", LEASES.format(s.ns) + "/lock", token=s.c.signed(s.token, exp=now + 600))[0],
        404,
        "a token that is signed like the expired one, but not expired, is good",
    )
    cases = [
        (
            "a wrong CA",
            s.url(config=s.c.kubeconfig(s.ns, s.token, **{"certificate-authority": other.ca})),
            69,
            "certificate",
        ),
        (
            "a server that is not there",
            s.url(config=s.c.kubeconfig(s.ns, s.token, server=f"https://127.0.0.1:{free_port()}")),
            69,
            "connect",
        ),
        (
            "a server whose certificate has expired",
            s.url(config=s.c.kubeconfig(s.ns, s.token, **{"tls-server-name": "late.test"})),
            69,
            "certificate has expired",
        ),
        (
            "a server of another name",
            s.url(config=s.c.kubeconfig(s.ns, s.token, **{"tls-server-name": "other.test"})),
            69,
            "other.test",
        ),
        (
            "an expired certificate",
            s.url(config=s.c.kubeconfig(s.ns, user={"client-certificate": expired[0], "client-key": expired[1]})),
            69,
            "401",
        ),
        ("a token that is none", s.url(config=s.c.kubeconfig(s.ns, "s3cret")), 69, "401"),
        ("an expired token", s.url(config=s.c.kubeconfig(s.ns, late)), 69, "401"),
        ("a missing kubeconfig", s.url(config=missing), 69, missing),
        ("an unknown context", s.url(more="&context=nope"), 69, 'no context "nope"'),
        ("an unknown option", s.url(more="&resorce=leases"), 2, "resource"),
        ("an unknown resource", s.url(more="&resource=secrets"), 2, "configmapsleases"),
        ("no name", "kube://x", 2, "kube://NAMESPACE/NAME"),
        ("a name that cannot be", "kube://x/UPPER", 2, "no name of an object"),
    ]
    for what, url, status, text in cases:
        out = s.run("status", "--lock", url)
        said = out.stdout + out.stderr
        if not ok(
            text in out.stderr
            and out.returncode == status
            and not any(secret in said for secret in ("s3cret", s.token, late)),
            f"{what}: said ({text}), status {status}, no secret",
        ):
            note(f"{out.returncode} {said}")
    s.c.put_lease(s.ns, "lock", {"holderIdentity": "", "leaseTransitions": 1}, annotations={"lunarch.dev/record": "{"})
    out = s.run("status", "--lock", s.url())
    ok("lunarch.dev/record" in out.stderr, "an annotation that is no JSON is named")
    s.c.put_lease(s.ns, "big", {"holderIdentity": "x", "leaseDurationSeconds": 1}, annotations={"blob": "x" * 250_000})
    a = s.leader(name="big")
    ok(
        s.lease("big")["metadata"]["annotations"]["blob"] == "x" * 250_000 and not a.all("stopped_leading"),
        "T65 a large object is kept as it is",
    )


def large(s: Scene) -> None:
    """A ConfigMap with as much as one may have, 1 MiB, on which others than electors depend."""
    path = f"/api/v1/namespaces/{s.ns}/configmaps"
    data = {"blob": "0123456789abcdef" * 65535}
    s.c.must("POST", path, {"metadata": {"name": "lock"}, "data": data})
    a, b = (s.candidate("--identity", f"large-{n}", more="&resource=configmaps", times=SLOW) for n in (1, 2))
    wait_for(lambda: a.all("became_leader") or b.all("became_leader"))
    leads, waits = (a, b) if a.all("became_leader") else (b, a)
    waits.wait("new_leader")
    began = time.time()
    renewed = wait_for(lambda: len(s.since(began, "update")) >= 3)
    same(
        (renewed, s.since(began, "get")),
        (True, []),
        "T74 1 MiB in a line of the watch: three renewals later nobody has had to ask with a GET",
    )
    leads.kill(signal.SIGTERM)
    ok(waits.wait("became_leader"), "T65 1 MiB: handed over")
    record = {
        "holderIdentity": "thief",
        "leaseDurationSeconds": 600,
        "leaderTransitions": 9,
        "acquireTime": "2020-01-01T00:00:00Z",
        "renewTime": "2020-01-01T00:00:00Z",
    }
    s.c.must(
        "PATCH",
        f"{path}/lock",
        {"metadata": {"annotations": {"control-plane.alpha.kubernetes.io/leader": json.dumps(record)}}},
        kind="application/merge-patch+json",
    )
    ok(waits.wait("stopped_leading", "lost"), "T20 T74 1 MiB: a theft that is shown in such a line ends the term")
    ok(s.c.must("GET", f"{path}/lock")["data"] == data, "T65 1 MiB: and every byte of it has been kept by every write")


def checked(s: Any) -> None:
    """lunarch check: what it says of a Lease, and that it changes nothing."""

    def check(status: int, text: str, what: str, **kw: str) -> None:
        out = s.run("check", "-e", SCRIPT, "--lock", s.url(**kw))
        if not ok(
            out.returncode == status and text in out.stdout and s.token not in out.stdout + out.stderr, f"check: {what}"
        ):
            note(f"{out.returncode} {out.stdout} {out.stderr}")

    check(0, "nobody leads: there is no record", "a Lease that is not there yet is no problem")
    s.c.put_lease(
        s.ns,
        "lock",
        {
            "holderIdentity": "peer",
            "leaseDurationSeconds": 600,
            "leaseTransitions": 3,
            "renewTime": micro_now(),
            "acquireTime": micro_now(),
        },
    )
    check(0, "peer leads", "it says who leads, whoever wrote it")
    s.c.put_lease(
        s.ns, "strange", {"holderIdentity": "", "leaseTransitions": 1}, annotations={"lunarch.dev/record": "{"}
    )
    check(1, "lunarch.dev/record", "a record that cannot be read is a problem", name="strange")
    s.c.account(s.ns, "nobody", NOTHING)
    nobody = s.c.kubeconfig(s.ns, s.c.token(s.ns, "nobody"))
    check(
        1,
        'verbs ["get", "create", "update", "watch"]',
        "missing rights are a problem, with the rule that is needed",
        config=nobody,
    )
    check(1, "401", "so is a token that is none", config=s.c.kubeconfig(s.ns, "s3cret"))
    check(
        1,
        "connect",
        "and a server that is not there",
        config=s.c.kubeconfig(s.ns, s.token, server=f"https://127.0.0.1:{free_port()}"),
    )
    same({e["verb"] for e in s.requests()}, {"get"}, "check: it has asked for Leases and done nothing else")
    same(
        [s.lease("lock")["spec"]["holderIdentity"], s.lease("none")],
        ["peer", None],
        "check: nothing is changed, nothing is made",
    )


def no_events(s: Scene) -> None:
    """A role that lacks Events: the election knows nothing of it."""
    a = s.leader("--identity", "quiet_1", times=STURDY)
    b = s.candidate("--identity", "quiet_2", times=STURDY)
    b.wait("new_leader")
    a.kill(signal.SIGTERM)
    same(
        (a.process.wait(PATIENCE), bool(b.wait("became_leader"))),
        (0, True),
        "without the right to make Events: led, and handed over",
    )
    refused = wait_for(
        lambda: [
            e
            for e in s.requests("create")
            if e["objectRef"]["resource"] == "events" and e["responseStatus"]["code"] == 403
        ]
    )
    ok(refused, "without the right to make Events: the server has refused them")
    renewed = len(s.requests("update"))
    wait_for(lambda: len(s.requests("update")) > renewed + 8)
    same((b.all("stopped_leading"), s.holder()), ([], "quiet_2"), "without the right to make Events: the term goes on")
    complaints = [e["message"] for c in (a, b) for e in c.events if e.get("level") in ("warn", "error")]
    same(
        [m for m in complaints if "403" in m or "forbidden" in m],
        [],
        "without the right to make Events: nothing is complained of",
    )


def crashes(s: Any) -> None:
    """A leader is killed, and the next is of the other kind: it knows nothing but the record. Times are those in the
    record."""

    def waited(last: Any, name: str) -> Any:
        now = s.lease(name)["spec"]
        took = moment(now["acquireTime"]) - moment(last["renewTime"])
        note(f"{name}: taken {took:.3f} s after the last renewal, whose record says {last['leaseDurationSeconds']} s")
        return took >= last["leaseDurationSeconds"]

    go, a = s.go("go-1", name="of-go"), s.leader(name="of-ours")
    go.wait("started")
    b, successor = s.candidate(name="of-go"), s.go("go-2", name="of-ours")
    b.wait("new_leader"), wait_for(lambda: successor.all("new_leader"))
    for dying in (go, a):
        dying.kill(signal.SIGKILL)
        dying.process.wait(PATIENCE)
    last = {name: s.lease(name)["spec"] for name in ("of-go", "of-ours")}
    ok(
        b.wait("became_leader") and waited(last["of-go"], "of-go"),
        "T43 Lunarch waits out the record of a client-go that was killed, not a moment less",
    )
    ok(
        successor.wait("started") and waited(last["of-ours"], "of-ours"),
        "T43 and client-go that of a Lunarch that was killed",
    )
    successor.stop()


def set_back(s: Any) -> None:
    """A leader's wall clock is set back beside client-go, which believes a leader for as long as the record's times
    change."""
    # The server's certificate is younger than that clock.
    config = s.c.kubeconfig(s.ns, s.token, **{"certificate-authority": None, "insecure-skip-tls-verify": True})
    clock = Clock(s.c)
    a = s.leader("--identity", "lunarch-1", config=config, env=clock.env)
    go = s.go("go", lease="5s", renew="3s")
    ok(
        wait_for(lambda: [e for e in go.all("new_leader") if e["who"] == "lunarch-1"]),
        "T56 client-go sees Lunarch as the leader",
    )

    def written() -> int:
        return len([e for e in s.requests("update") if e["responseStatus"]["code"] == 200])

    since, before = written(), s.lease()["spec"]["renewTime"]
    clock.set(-3600)
    wait_for(lambda: written() >= since + 30 or go.all("started"))
    same(
        (go.all("started"), a.all("stopped_leading")),
        ([], []),
        "T56 the clock is set back an hour: for three leases of client-go's, it sees renewals and waits",
    )
    after = s.lease()["spec"]
    ok(
        9 < moment(after["renewTime"]) - moment(before) < 600,
        "T56 renewTime goes on from where it was, by what has passed",
    )
    end = "9999-12-31T23:59:59.999999Z"

    def edit() -> Any:
        lease = s.lease()
        meta, lease["spec"]["renewTime"] = lease["metadata"], end
        meta["annotations"] = {
            k: json.dumps({**json.loads(v), "renewTime": end}) for k, v in meta["annotations"].items()
        }
        return s.c.call("PUT", LEASES.format(s.ns) + "/lock", lease)[0] == 200

    wait_for(edit)
    ok(
        wait_for(lambda: s.lease()["spec"]["renewTime"] < before),
        "T56 at the end of the years there are, it begins at the clock anew",
    )
    a.kill(signal.SIGTERM)
    a.process.wait(PATIENCE)
    same(
        [e["message"] for e in a.all("stopped_leading")],
        ["shutdown (asked to shut down)"],
        "T56 and the term goes on until it is told to end",
    )
    ok(go.wait("started"), "T56 a release is seen at once, whatever the clock says")
    go.stop()


def counted_out(s: Any) -> None:
    """The API has 32 bits for leaseTransitions: the last number is no end of the elections."""
    most = 2**31 - 1
    s.c.put_lease(s.ns, "lock", {"holderIdentity": "", "leaseDurationSeconds": 1, "leaseTransitions": most})
    a = s.candidate("--identity", "one", times=STURDY)
    ok(a.wait("became_leader"), "leaseTransitions is at its end: the Lease can be acquired")
    b = s.candidate("--identity", "two", times=STURDY)
    b.wait("new_leader")
    a.kill(signal.SIGKILL)
    ok(b.wait("became_leader"), "leaseTransitions is at its end: and taken over from one that was killed")
    same(s.lease()["spec"]["leaseTransitions"], most, "leaseTransitions is at its end: it stays there")
    same(a.complaints() + b.complaints(), [], "leaseTransitions is at its end: nothing is complained of")
    t = tokens(a, b)
    same(t, sorted(set(t)), "leaseTransitions is at its end: tokens grow, since they are the Lease's versions")


def idle(s: Any) -> None:
    """The server closes what has been idle for 90 s; a handshake would be a good part of a handover."""
    a, b = s.leader(times=SLOW), s.candidate(times=SLOW)
    b.wait("new_leader")
    wait_for(lambda: connections([b.pid], s.c.port) == 2)
    time.sleep(100)
    # When the server is slow there is one more for a moment.
    wait_for(lambda: connections([b.pid], s.c.port) == 2)
    same(
        connections([b.pid], s.c.port),
        2,
        "a standby that has had nothing to ask for a long time still has its connection for work beside that of its "
        "watch",
    )
    asked = [e for e in s.requests("get") if e["objectRef"].get("name") == "lock"]
    same(len(asked), 2, "and has not asked for the Lease again")
    a.kill(signal.SIGTERM)
    e = b.wait("became_leader")
    note(f"graceful handover after 100 s: {(e['seen'] - a.wait('stopped_leading')['seen']) * 1000:.0f} ms")


def slow_replies(s: Scene) -> None:
    """One candidate's replies come late by up to a lease, another is near: never do two act."""
    f = field.Field("slow replies")
    proxy = Proxy(s.c.port)
    far = s.c.kubeconfig(s.ns, s.token, server=f"https://127.0.0.1:{proxy.port}")
    try:
        times = timing("4s", renew="2s", retry="300ms", stop_grace="500ms", kill="750ms", drift="750ms")
        f.lock = s.url(config=far)
        a = f.join("far", times=times)
        f.acts(1)
        f.lock = s.url()
        f.join("near", times=times)
        for delay in (0.3, 1.2, 2.2, 3.5, 0):
            terms = len(f.terms())
            proxy.delay(delay, "down")
            if delay > 2:
                f.acts(terms + 1)
            else:
                time.sleep(2.5)
        f.verdict("T24 late replies")
        ok(a.process.poll() is None, "T24 and the slow one is still there")
    finally:
        f.end()
        proxy.close()


def mixed(s: Any) -> None:
    """One Lease, one candidate of each kind, handed over and crashed to and fro."""
    hold = os.path.join(s.c.api.dir, "held")
    # Lunarch's side waits for the file, since client-go releases the Lease before its own work has stopped (its
    # weakness); client-go's side says "overlap" if Lunarch's work still runs.
    script = (
        f"on_leading = function(t) assert(exec {{ 'flock', '{hold}', 'sh', '-c', 'echo held >> {hold}.ours; exec "
        f"sleep 1000' }}) end"
    )
    rounds, go, ours, led = int(os.environ.get("HANDOVERS") or (200 if os.environ.get("FULL") else 24)), [], [], []
    took: dict[tuple[int, bool], list[float]] = {(to, crash): [] for to in (0, 1) for crash in (False, True)}
    times = timing("5s", renew="4s", retry="400ms", stop_grace="400ms", kill="300ms", drift="300ms")
    ours.append(s.candidate("--identity", "l-0", times=times, script=script))
    ours[0].wait("became_leader")

    def held() -> Any:
        try:
            with open(hold + ".ours") as f:
                return f.read().count("\n")
        except OSError:
            return 0

    wait_for(held)
    for i in range(rounds):
        crash, began = i % 4 in (1, 2), time.monotonic()
        if i % 2 == 0:
            go.append(s.go(f"g-{i}", "-hold", hold, lease="5s", renew="4s", retry="400ms"))
            wait_for(lambda: go[-1].all("new_leader"))
            ours[-1].kill(signal.SIGKILL if crash else signal.SIGTERM)
            got = go[-1].wait("started") and wait_for(lambda: go[-1].all("held") + go[-1].all("overlap"))
        else:
            worked = held()
            ours.append(s.candidate("--identity", f"l-{i}", times=times, script=script))
            ours[-1].wait("new_leader")
            go[-1].kill(signal.SIGKILL if crash else signal.SIGTERM)
            got = ours[-1].wait("became_leader") and wait_for(lambda: held() > worked)
        led.append(bool(got))
        took[i % 2, crash].append(time.monotonic() - began)
    for (to, crash), t in took.items():
        note(
            f"to {('client-go', 'Lunarch')[to]} after a {('release', 'crash')[crash]}, with the newcomer's start: "
            f"median {sorted(t)[len(t) // 2]:.2f} s of {len(t)}"
        )
    same(led.count(True), rounds, f"mixed election: {rounds} handovers, half of them crashes, both directions")
    same(
        [e for g in go for e in g.all("overlap")],
        [],
        "T26 mixed election: when client-go begins, nothing of Lunarch's term is alive",
    )
    same([e for o in ours for e in o.all("hook_failed")], [], "mixed election: and each of Lunarch's terms did work")
    t = tokens(*ours)
    same(t, sorted(set(t)), "mixed election: every token is larger than all before")
    turns = s.lease()["spec"]["leaseTransitions"]
    ok(turns >= rounds, f"mixed election: a transition for each handover ({turns}; a slow machine adds some)")
    bad = [
        (e["verb"], e["responseStatus"]["code"])
        for e in s.requests()
        if 400 <= e["responseStatus"]["code"] < 500 and e["responseStatus"]["code"] not in (404, 409)
    ]
    same(bad, [], "T26 mixed election: no request was wrong: of 400 to 499 only 409, and 404 for what is not there")
    for g in go:
        g.stop()


def who_is_next(s: Any) -> None:
    """The Lease NAME-next says who comes next. client-go beside it is neither asked nor hindered by that."""

    def published() -> Any:
        ours = json.loads(s.lease()["metadata"]["annotations"]["lunarch.dev/record"])
        said = ours.get("next") or {}
        return s.holder() and said.get("term") == ours["term"] and said.get("identity")

    a = s.leader("--identity", "a")
    b = s.candidate("--identity", "b")
    ok(wait_for(lambda: published() == "b", 3 * PATIENCE), "who comes next: b, says the Lease")
    ok(s.lease("lock-next"), "who comes next: which stands in a Lease of its own")
    go = s.go("go-1", "-again")
    go.wait("new_leader")
    b.kill(signal.SIGKILL)
    b.leave()
    a.stop()
    ok(go.wait("started"), "who comes next: b has died, a stops, and client-go leads")
    c = s.candidate("--identity", "c")
    ok(c.wait("new_leader", "go-1"), "who comes next: c follows client-go")
    go.stop()
    ok(c.wait("became_leader"), "who comes next: client-go releases, and c leads")
    go = s.go("go-2")
    go.wait("new_leader")
    d = s.candidate("--identity", "d")
    ok(wait_for(lambda: published() == "d", 3 * PATIENCE), "who comes next: d, beside client-go")
    c.stop()
    ok(
        wait_for(lambda: go.all("started") or d.all("became_leader")),
        "who comes next: c releases for d, and d or client-go leads",
    )
    note(f"released for d beside client-go: {'client-go' if go.all('started') else 'd'} leads")
    go.stop()
    ok(d.wait("became_leader"), "who comes next: without client-go, d")


def next_refused(s: Any) -> None:
    """Rights to one Lease alone, which is there: another than that nobody may read or write."""
    s.c.put_lease(s.ns, "lock", {})
    a = s.leader("--identity", "a", times=STURDY)
    b = s.candidate("--identity", "b", times=STURDY)
    said = b.wait("next_refused")
    ok(said and "lock-next" in said["message"], "next-refused: who may not have the second Lease says so")
    note(said and said["message"])
    began = time.time()
    a.stop()
    ok(b.wait("became_leader"), "next-refused: and elections work without")
    took = moment(s.lease()["spec"]["acquireTime"]) - began
    ok(took < 20, f"next-refused: at a release without waiting for a lease ({took:.3f} s)")
    same(len(b.all("next_refused")), 1, "next-refused: that was said once")


def old_locks(s: Scene) -> None:
    """ConfigMap, Endpoints and the pairs: led, handed over, and read as client-go 1.23 would."""
    for kind in ("configmaps", "endpoints", "configmapsleases", "endpointsleases"):
        a = s.leader("--identity", f"{kind}-1", name=kind, more=f"&resource={kind}")
        path = f"/api/v1/namespaces/{s.ns}/{kind.removesuffix('leases') if kind.endswith('sleases') else kind}/{kind}"
        text = s.c.must("GET", path)["metadata"]["annotations"]["control-plane.alpha.kubernetes.io/leader"]
        record = json.loads(text)
        same(
            (list(record), record["holderIdentity"]),
            (["holderIdentity", "leaseDurationSeconds", "acquireTime", "renewTime", "leaderTransitions"], f"{kind}-1"),
            f"T66 {kind}: the annotation is client-go's",
        )
        b = s.candidate("--identity", f"{kind}-2", name=kind, more=f"&resource={kind}")
        b.wait("new_leader")
        a.kill(signal.SIGTERM)
        ok(b.wait("became_leader"), f"{kind}: handed over")
        if kind.endswith("sleases"):
            same(s.holder(kind), f"{kind}-2", f"{kind}: the Lease says the same")
        t = tokens(a, b)
        same(t, sorted(set(t)), f"{kind}: tokens grow")
    s.c.edit_lease(s.ns, "configmapsleases", holderIdentity="new-client", leaseDurationSeconds=600)
    c = s.candidates[-3]
    ok(c.wait("stopped_leading"), "T67 a client that knows only the Lease has taken it: the term of the pair ends")
    time.sleep(2)
    same(s.holder("configmapsleases"), "new-client", "T67 and while the two disagree nobody takes either")


NO_WATCH = [{**MINIMAL[0], "verbs": ["get", "create", "update"]}]
NO_EVENTS = MINIMAL[:1]
LOOKING = [{**MINIMAL[0], "verbs": ["get", "watch"]}]
OLD_LOOKING = MINIMAL + [{"apiGroups": [""], "resources": ["configmaps", "endpoints"], "verbs": ["get", "watch"]}]
NOTHING = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]
OLD = MINIMAL + [
    {"apiGroups": [""], "resources": ["configmaps", "endpoints"], "verbs": ["get", "create", "update", "watch"]}
]
ONE_LEASE = [
    {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "resourceNames": ["lock"],
        "verbs": ["get", "update", "watch"],
    }
]
SCENES = {
    "life": (life, MINIMAL),
    "stolen": (stolen, MINIMAL),
    "deleted": (deleted, MINIMAL),
    "microseconds": (microseconds, MINIMAL),
    "coordinated": (coordinated, MINIMAL),
    "emptied": (emptied, MINIMAL),
    "others": (others, MINIMAL),
    "beside-go": (beside_go, MINIMAL),
    "refused": (refused, NOTHING),
    "half-refused": (half_refused, LOOKING),
    "old-refused": (old_refused, OLD_LOOKING),
    "revoked": (revoked, MINIMAL),
    "polling": (polling, NO_WATCH),
    "rotation": (rotation, MINIMAL),
    "plugins": (plugins, MINIMAL),
    "bad-input": (bad_input, MINIMAL),
    "slow-replies": (slow_replies, MINIMAL),
    "set-back": (set_back, MINIMAL),
    "counted-out": (counted_out, MINIMAL),
    "crashes": (crashes, MINIMAL),
    "old-locks": (old_locks, OLD),
    "who-is-next": (who_is_next, MINIMAL),
    "next-refused": (next_refused, ONE_LEASE),
    "mixed": (mixed, MINIMAL),
    "idle": (idle, MINIMAL),
    "large": (large, OLD),
    "checked": (checked, MINIMAL),
    "no-events": (no_events, NO_EVENTS),
}


def play(cluster: AuditedCluster, name: str) -> None:
    scene, rules = SCENES[name]
    began = time.monotonic()
    s = Scene(cluster, name, rules)
    try:
        scene(s)
    except Exception:
        ok(False, f"{name}: {traceback.format_exc()}".replace("\n", "\n# "))
    finally:
        s.end()
    note(f"{name} took {time.monotonic() - began:.1f} s")


if __name__ == "__main__":
    with AuditedCluster(
        ["--feature-gates=CoordinatedLeaderElection=true", "--runtime-config=coordination.k8s.io/v1beta1=true"]
    ) as cluster, concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: play(cluster, n), sys.argv[1:] or reversed(SCENES)))
    done()

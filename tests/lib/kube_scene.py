"""A scenario on a real API server: a namespace, an account of its own with its rights, candidates of both kinds."""

import os
import struct
import subprocess
from urllib.parse import quote

import field
from candidates import Candidate, timing
from kube_rig import MINIMAL, ClientGo
from processes import LUNARCH, PATIENCE

# Retries are a second apart or more in what is read by client-go, which compares whole seconds.
TIMES = timing("5s", renew="3s", retry="500ms", stop_grace="600ms", kill="700ms", drift="700ms")
SLOW = timing("60s", renew="40s", retry="2s")
# Whatever is noticed before a renewal was noticed by the watch.
RARE = timing("60s", renew="40s", retry="20s")
SCRIPT = (
    "on_leading = function(t) print('lead ' .. t.token) end; on_stopped = function(t, why) print('stop ' .. why) end"
)
LONG_AGO = "2020-01-01T00:00:00.{:06d}Z"


class Scene:
    """A namespace with an account of its own."""

    def __init__(self, cluster, ns, rules=MINIMAL):
        self.c, self.ns, self.candidates = cluster, cluster.namespace(ns), []
        self.token = cluster.account(ns, rules=rules)
        self.config = cluster.kubeconfig(ns, self.token)

    def url(self, name="lock", config=None, more=""):
        return f"kube://{self.ns}/{name}?kubeconfig={quote(config or self.config)}{more}"

    def candidate(self, *options, name="lock", config=None, times=TIMES, more="", script=SCRIPT, **kw):
        c = Candidate("-e", script, "--lock", self.url(name, config, more), *options, options=times, **kw)
        self.candidates.append(c)
        return c

    def leader(self, *options, **kw):
        c = self.candidate(*options, **kw)
        if not c.wait("became_leader"):
            raise RuntimeError(f"nobody became leader: {c.events}")
        return c

    def lease(self, name="lock"):
        return self.c.lease(self.ns, name)

    def holder(self, name="lock"):
        lease = self.lease(name)
        return lease and lease["spec"].get("holderIdentity")

    def go(self, identity, *options, name="lock", lease="5s", renew="3s", retry="500ms", **kw):
        return ClientGo(self.config, self.ns, name, identity, lease, renew, retry, *options, **kw)

    def run(self, *args):
        return subprocess.run([LUNARCH, *args], capture_output=True, text=True, timeout=PATIENCE)

    def requests(self, verb=None, agent="lunarch"):
        found = [
            e
            for e in self.c.requests(agent)
            if e.get("objectRef", {}).get("namespace") == self.ns and e["stage"] == "ResponseComplete"
        ]
        return [e for e in found if verb in (None, e["verb"])]

    def asked(self, before):
        """What Lunarch has asked of Leases since, besides watches."""
        return [
            e for e in self.requests()[len(before) :] if e["objectRef"]["resource"] == "leases" and e["verb"] != "watch"
        ]

    def end(self):
        for c in self.candidates:
            c.stop()


class Clock:
    """A candidate's own wall clock (tests/cluster/faults/shim.c), in seconds beside this machine's, which is left
    alone."""

    def __init__(self, c):
        self.path = os.path.join(c.api.dir, f"clock-{id(self)}")
        self.set(0)
        self.env = {"LD_PRELOAD": field.build("shim.c", "-shared", "-fPIC"), "SHIM_CLOCK": self.path}

    def set(self, seconds):
        with open(self.path, "r+b" if os.path.exists(self.path) else "wb") as f:
            f.write(struct.pack("q", seconds * 10**9))


def tokens(*candidates):
    return [
        e["token"] for e in sorted((e for c in candidates for e in c.all("became_leader")), key=lambda e: e["seen"])
    ]

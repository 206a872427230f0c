"""A scenario on a real API server: a namespace, an account of its own with its rights, candidates of both kinds."""

import os
import struct
import subprocess
from typing import Any
from urllib.parse import quote

from tests.lib import field
from tests.lib.candidates import Candidate, timing
from tests.lib.kube_rig import MINIMAL, ClientGo
from tests.lib.processes import LUNARCH, PATIENCE, moment

# An operation has four seconds, so that a slow machine is no trouble that is logged.
STURDY = timing("20s", renew="16s", retry="500ms")
# Retries are a second apart or more in what is read by client-go, which compares whole seconds.
# A term outlasts an API server that is busy for some seconds.
TIMES = timing("9s", renew="7s", retry="500ms", stop_grace="600ms", kill="700ms", drift="700ms")
SLOW = timing("60s", renew="40s", retry="2s")
# Whatever is noticed before a renewal was noticed by the watch.
RARE = timing("60s", renew="40s", retry="20s")
SCRIPT = (
    "on_leading = function(t) print('lead ' .. t.token) end; on_stopped = function(t, why) print('stop ' .. why) end"
)
LONG_AGO = "2020-01-01T00:00:00.{:06d}Z"


class Scene:
    """A namespace with an account of its own."""

    def __init__(self, cluster: Any, ns: str, rules: Any = MINIMAL) -> None:
        self.c, self.ns = cluster, cluster.namespace(ns)
        self.candidates: list[Candidate] = []
        self.token = cluster.account(ns, rules=rules)
        self.config = cluster.kubeconfig(ns, self.token)

    def url(self, name: str = "lock", config: Any = None, more: str = "") -> str:
        return f"kube://{self.ns}/{name}?kubeconfig={quote(config or self.config)}{more}"

    def candidate(
        self,
        *options: Any,
        name: str = "lock",
        config: Any = None,
        times: Any = TIMES,
        more: str = "",
        script: Any = SCRIPT,
        **kw: Any,
    ) -> Any:
        c = Candidate("-e", script, "--lock", self.url(name, config, more), *options, options=times, **kw)
        self.candidates.append(c)
        return c

    def leader(self, *options: str, **kw: Any) -> Candidate:
        c = self.candidate(*options, **kw)
        if not c.wait("became_leader"):
            raise RuntimeError(f"nobody became leader: {c.events}")
        return c

    def lease(self, name: str = "lock") -> Any:
        return self.c.lease(self.ns, name)

    def holder(self, name: str = "lock") -> Any:
        lease = self.lease(name)
        return lease and lease["spec"].get("holderIdentity")

    def go(
        self,
        identity: str,
        *options: str,
        name: str = "lock",
        lease: str = "10s",
        renew: str = "8s",
        retry: str = "500ms",
        **kw: Any,
    ) -> ClientGo:
        return ClientGo(self.config, self.ns, name, identity, lease, renew, retry, *options, **kw)

    def run(self, *args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([LUNARCH, *args], capture_output=True, text=True, timeout=PATIENCE)

    def requests(self, verb: str | None = None, agent: str = "lunarch") -> list[Any]:
        """What was answered in this namespace, but for what is about who comes next: that is looked at at times of its
        own."""
        found = [
            e
            for e in self.c.requests(agent)
            if e.get("objectRef", {}).get("namespace") == self.ns and e["stage"] == "ResponseComplete"
        ]
        return [e for e in found if verb in (None, e["verb"]) and not e["objectRef"].get("name", "").endswith("-next")]

    def since(self, began: float, verb: str) -> list[Any]:
        """What the server has received since, by the wall clock: its log has a request when that is answered, and in
        no order."""
        return [e for e in self.requests(verb) if moment(e["requestReceivedTimestamp"]) >= began]

    def watched(self) -> bool:
        """A watch is open, or has been."""
        return any(
            e["verb"] == "watch" and e["stage"] == "ResponseStarted" and e["objectRef"].get("namespace") == self.ns
            for e in self.c.requests("lunarch")
        )

    def end(self) -> None:
        for c in self.candidates:
            c.stop()


class Clock:
    """A candidate's own wall clock (tests/cluster/faults/shim.c), in seconds beside this machine's, which is left
    alone."""

    def __init__(self, c: Any) -> None:
        self.path = os.path.join(c.api.dir, f"clock-{id(self)}")
        self.set(0)
        self.env = {"LD_PRELOAD": field.build("shim.c", "-shared", "-fPIC"), "SHIM_CLOCK": self.path}

    def set(self, seconds: float) -> None:
        with open(self.path, "r+b" if os.path.exists(self.path) else "wb") as f:
            f.write(struct.pack("q", seconds * 10**9))


def tokens(*candidates: Candidate) -> list[Any]:
    return [
        e["token"] for e in sorted((e for c in candidates for e in c.all("became_leader")), key=lambda e: e["seen"])
    ]

"""The image of packaging/image.sh: made, unpacked (umoci), and run as containers (crun), each of which is a candidate.

Not how the image is made. Used by tests/install/image.py.

    bundle = unpack(build(scratch()), scratch())
    c = Container(bundle, "one", {"LUNARCH_LOCK": ...}, {"/srv": "/some/directory"})"""

import json
import os
import shutil
import signal
import subprocess
from typing import Any

from tests.lib.candidates import Candidate, Logged
from tests.lib.processes import LUNARCH, PATIENCE, ROOT, piped, scratch, wait_for
from tests.lib.tap import note

# crun asks which cgroups there are even where it is told to use none, and refuses two generations side by side. So it
# sees one, in a mount namespace of its own.
APART = ["unshare", "--mount", "sh", "-c", 'mount -t cgroup2 none /sys/fs/cgroup && exec "$@"', "sh"]
LEFT_OUT = ("/sys", "/sys/fs/cgroup", "/dev/mqueue")  # not to be mounted without a network namespace, or not needed


def checked(*command: str, **kw: Any) -> str:
    """What it prints; a failure is shown and ends the test."""
    r = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=600, **kw)
    if r.returncode:
        note(r.stdout[-2000:] + r.stderr[-2000:])
        raise RuntimeError(f"{' '.join(command)[:200]}: status {r.returncode}")
    return r.stdout


def build(directory: str, version: str = "0.0.0+test") -> str:
    """The path of the OCI layout."""
    note(checked(os.path.join(ROOT, "packaging", "image.sh"), os.path.dirname(LUNARCH), directory, version).strip())
    return os.path.join(directory, "oci")


def blob(layout: str, digest: str) -> dict[str, Any]:
    with open(os.path.join(layout, "blobs", *digest.split(":"))) as f:
        return json.load(f)


def manifest(layout: str) -> str:
    """The image's digest."""
    with open(os.path.join(layout, "index.json")) as f:
        (entry,) = json.load(f)["manifests"]
    return str(entry["digest"])


def config(layout: str) -> dict[str, Any]:
    return blob(layout, blob(layout, manifest(layout))["config"]["digest"])["config"]


def unpack(layout: str, directory: str) -> str:
    """A bundle, as runtimes take it."""
    bundle = os.path.join(directory, "bundle")
    checked("umoci", "unpack", "--image", layout + ":latest", bundle)
    return bundle


class Container(Candidate):
    """One container: with a root that cannot be written to, without a capability, on the network of this machine."""

    def __init__(
        self, bundle: str, name: str, env: dict[str, str], mounts: dict[str, str], args: list[str] | None = None
    ) -> None:
        """mounts: {place inside: directory outside}. args: besides the image's entry point, instead of its command."""
        self.id, self.state = f"{name}-{os.getpid()}", scratch()
        here = os.path.join(self.state, "bundle")
        os.mkdir(here)
        with open(os.path.join(bundle, "config.json")) as f:
            spec = json.load(f)
        process = spec["process"]
        process |= {"terminal": False, "capabilities": {}, "noNewPrivileges": True}
        process["env"] += [f"{k}={v}" for k, v in env.items()]
        if args is not None:
            process["args"] = [process["args"][0], *args]
        spec["root"] = {"path": os.path.join(bundle, "rootfs"), "readonly": True}
        spec["hostname"] = name
        spec["linux"].pop("resources", None)
        spec["linux"]["namespaces"] = [n for n in spec["linux"]["namespaces"] if n["type"] != "network"]
        spec["mounts"] = [m for m in spec["mounts"] if m["destination"] not in LEFT_OUT] + [
            {"destination": to, "type": "bind", "source": source, "options": ["rbind", "rw"]}
            for to, source in mounts.items()
        ]
        with open(os.path.join(here, "config.json"), "w") as f:
            json.dump(spec, f)
        self.crun = ["crun", "--root", os.path.join(self.state, "crun"), "--cgroup-manager=disabled"]
        self.name = name
        runtime = subprocess.Popen(
            [*APART, *self.crun, "run", "--bundle", here, self.id],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
        Logged.__init__(self, runtime, piped(runtime.stderr))
        Candidate.everyone.append(self)

    def kill(self, sig: int = signal.SIGKILL, pid: int | None = None) -> None:
        """The container's process 1, as a runtime or the kubelet does it."""
        if self.process.poll() is None:
            subprocess.run([*self.crun, "kill", self.id, str(int(sig))], capture_output=True, timeout=PATIENCE)

    def inside(self, *command: str) -> "subprocess.CompletedProcess[str]":
        """A command in it, as kubectl exec runs it."""
        return subprocess.run(
            [*APART, *self.crun, "exec", "--user", "65532:65532", self.id, *command],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )

    def init(self) -> int:
        """Its process 1, as this machine numbers it; 0: it does not run."""

        def pid() -> int:
            r = subprocess.run([*self.crun, "state", self.id], capture_output=True, text=True, timeout=PATIENCE)
            return int(json.loads(r.stdout)["pid"]) if r.returncode == 0 else 0

        return wait_for(pid)


def have_tools() -> str | None:
    """What is missing, or None."""
    if os.geteuid() != 0:
        return "root, to run containers"
    return next((t for t in ("buildah", "umoci", "crun") if not shutil.which(t)), None)

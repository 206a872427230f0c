#!/usr/bin/env python3
"""examples/kubernetes/Dockerfile without Docker: each stage is a Debian 12 by debootstrap, its RUN lines run in it by
chroot, its COPY lines copied. What comes out runs in the places of the manifests' three pods, as the user and with the
entry point that it names, against the real API server. Needs root, debootstrap, a mirror."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

import example
from typing import Any

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from candidates import stop_everyone
from processes import ROOT
from tap import done, note, ok

BASES = ("debian:12", "debian:12-slim")
DOCKERFILE = os.path.join(ROOT, "examples", "kubernetes", "Dockerfile")


def instructions() -> Any:
    """[(word, rest)], continued lines joined."""
    with open(DOCKERFILE) as f:
        text = re.sub(r"\\\n\s*", "", f.read())
    return [tuple(line.split(None, 1)) for line in text.splitlines() if line.strip() and not line.startswith("#")]


def run(*command: str, **kw: Any) -> Any:
    """Its output; a failure is shown and ends the test."""
    r = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, stdin=subprocess.DEVNULL, **kw
    )
    if r.returncode:
        note(r.stdout[-3000:])
        raise RuntimeError(f"{shlex.join(command)[:200]}: status {r.returncode}")
    return r.stdout


class Image:
    def __init__(self, home: Any) -> None:
        self.home, self.user = home, "0"
        self.stages: dict[str, str] = {}
        self.entry: list[str] = []

    def base(self) -> Any:
        """The smallest Debian there is, made once and copied."""
        path = os.path.join(self.home, "base")
        if not os.path.exists(path):
            run("debootstrap", "--variant=minbase", "bookworm", path)
            shutil.copy("/etc/resolv.conf", os.path.join(path, "etc", "resolv.conf"))
        return path

    def do_from(self, rest: Any) -> None:
        base, _, name = rest.partition(" AS ")
        if base not in BASES:
            raise RuntimeError(f"FROM {base}: not one of {BASES}")
        self.root = os.path.join(self.home, f"stage-{len(self.stages)}")
        self.stages[name or str(len(self.stages))] = self.root
        run("cp", "-a", self.base(), self.root)

    def do_run(self, rest: Any) -> None:
        run(
            "chroot",
            self.root,
            "/usr/bin/env",
            "-i",
            "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "DEBIAN_FRONTEND=noninteractive",
            "/bin/sh",
            "-c",
            rest,
        )

    def do_copy(self, rest: Any) -> None:
        *options, source, target = rest.split()
        there = next((self.stages[o.removeprefix("--from=")] for o in options), None)
        source = os.path.join(there, source.lstrip("/")) if there else os.path.join(ROOT, source)
        into = os.path.join(self.root, target.lstrip("/"))
        os.makedirs(into if os.path.isdir(source) or target.endswith("/") else os.path.dirname(into), exist_ok=True)
        if there or not os.path.isdir(source):
            run("cp", "-a", source + "/." if os.path.isdir(source) else source, into)
        else:  # the context is what is in the repository
            run(
                "sh",
                "-c",
                'cd "$1" && git ls-files -z | tar --create --null --files-from=- | tar --extract --no-same-owner '
                '--directory="$2"',
                "sh",
                source,
                into,
            )

    def do_user(self, rest: Any) -> None:
        self.user = rest

    def do_entrypoint(self, rest: Any) -> None:
        self.entry = json.loads(rest)

    def build(self) -> None:
        for word, rest in instructions():
            getattr(self, f"do_{word.lower()}")(rest)
            note(f"{word} {rest[:100]}")


if os.geteuid() != 0 or not shutil.which("debootstrap"):
    sys.exit("make test-image makes a Debian in a directory: it needs root and Debian's package debootstrap")
home = tempfile.mkdtemp(prefix="lunarch-image-")
try:
    image = Image(home)
    image.build()
    ok(True, "every line of the Dockerfile works on a Debian 12")
    # As a container has it: a /proc, and no more of this machine's files.
    enter = [
        "unshare",
        "--mount",
        "--propagation",
        "private",
        "sh",
        "-c",
        'root=$1 user=$2; shift 2; mount -t proc proc "$root/proc" && exec chroot --userspec="$user:$user" "$root" '
        '"$@"',
        "sh",
        image.root,
        image.user,
    ]
    out = run(*enter, *image.entry, "--version")
    ok(re.search(r"locks:.*\bkube\b", out), "the image's lunarch has the Kubernetes lock")
    note(out)

    class Pod(example.Pod):
        ENTER = [*example.Pod.ENTER[:6], example.Pod.MOUNT + enter[6], "sh", image.root, *enter[8:]]
        PROGRAM = image.entry[0]
        SCRIPT = "/etc/lunarch/label-leader.lua"

    example.three_pods(Pod)
    note(
        f"the image: {run('du', '-sm', image.root).split()[0]} MB, of which Debian "
        f"{run('du', '-sm', image.base()).split()[0]} MB"
    )
finally:
    stop_everyone()
    shutil.rmtree(home)
done()

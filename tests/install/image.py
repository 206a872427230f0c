#!/usr/bin/env -S PYTHONPATH=. python3
"""The image of `make image`: twice the same; what is in it, and what is not; and three containers of it, told by their
environment alone, that hand over when the leader is stopped and when it is killed."""

import os
import shutil
import stat
import sys
from typing import Any

from tests.lib.candidates import stop_everyone
from tests.lib.containers import Container, build, config, have_tools, manifest, unpack
from tests.lib.processes import scratch, wait_for
from tests.lib.tap import done, note, ok, same, skip

SCRIPT = """
return {
  on_leading = function(term)
    print("leads " .. term.token .. " in zone " .. os.date "%z" .. " as "
      .. assert(io.open("/proc/self/status")):read("a"):match("Uid:%s*(%d+)"))
    while true do sleep(1) end
  end,
  on_stopped = function(term, reason) print("stopped") end,
}
"""


def files(root: str) -> Any:
    for where, _, names in os.walk(root):
        for name in names:
            path = os.path.join(where, name)
            yield "/" + os.path.relpath(path, root), os.lstat(path)


missing = have_tools()
if missing:
    skip("the image, and three containers of it", f"{missing} is missing")
    done()
    sys.exit()

home = scratch()
os.chmod(home, 0o755)
layout, again = build(os.path.join(home, "one")), build(os.path.join(home, "two"))
same(manifest(layout), manifest(again), "built twice, it is the same image, bit by bit")
shutil.rmtree(os.path.join(home, "two"))

said = config(layout)
same(
    (said["User"], said["StopSignal"]),
    ("65532:65532", "SIGTERM"),
    "its user is a number that is not root's; SIGTERM stops",
)
same((said["Entrypoint"], said["Cmd"]), (["/usr/bin/lunarch"], ["run"]), "without arguments it is `lunarch run`")
labels = said["Labels"]
ok(
    all(labels.get("org.opencontainers.image." + k) for k in ("title", "version", "revision", "created", "licenses")),
    "it has the labels of the OCI",
)
bundle = unpack(layout, home)
there = dict(files(os.path.join(bundle, "rootfs")))
same(
    [p for p, s in there.items() if s.st_mode & (stat.S_ISUID | stat.S_ISGID) or p.endswith(("/sh", "/bash"))],
    [],
    "no shell is in it, and nothing that changes the user",
)
same(
    [p for p, s in there.items() if s.st_uid and not p.startswith("/var/lib/lunarch")],
    [],
    "its user owns no file of it",
)
ok(
    "/usr/share/doc/libcurl4/copyright" in there and "/var/lib/dpkg/status.d/libcurl4" in there,
    "of each library it has the licence, and the version for scanners",
)

shared = os.path.join(home, "shared")
os.mkdir(shared)
os.chmod(shared, 0o1777)
ENV = {
    "LUNARCH_SCRIPT": SCRIPT,
    "LUNARCH_LOCK": "file:/shared/lock?shared=link",
    "LUNARCH_LOG_FORMAT": "json",
    "LUNARCH_LEASE_DURATION": "6s",
    "TZ": "Etc/GMT-3",
}


def container(name: str, **env: str) -> Container:
    state = os.path.join(home, name)
    os.mkdir(state)
    os.chown(state, 65532, 65532)
    return Container(bundle, name, {**ENV, **env}, {"/shared": shared, "/var/lib/lunarch": state})


def leader(among: list[Any], count: int) -> Container:
    """Who says that it leads; count: how many have said so until now."""

    def all_terms() -> list[tuple[int, Any]]:
        return [(e["token"], c) for c in among for e in c.all("print", "leads ")]

    wait_for(lambda: len(all_terms()) >= count)
    return max(all_terms(), key=lambda t: t[0])[1]


try:
    script = os.path.join(shared, "mounted.lua")
    with open(script, "w") as f:
        f.write(SCRIPT)
    three = [container("a"), container("b"), container("c", LUNARCH_SCRIPT="/shared/mounted.lua")]
    first = leader(three, 1)
    ok(first.all("print", "in zone +0300"), "it knows the time zones")
    ok(
        first.all("print", "as 65532"),
        "three containers, told by their environment alone: one leads, as the image's user",
    )
    with open(f"/proc/{first.init()}/status") as f:
        nspid = next(line.split()[-1] for line in f if line.startswith("NSpid:"))
    same(nspid, "1", "the elector is process 1 of its container")
    why = first.inside("/usr/bin/lunarch", "ctl", "status")
    if not ok(why.returncode == 0 and "lead" in why.stdout, "`lunarch ctl` in the container reaches it"):
        note(f"{why.returncode} {why.stdout} {why.stderr}")
    versions = first.inside("/usr/bin/lunarch", "--version").stdout
    note(versions)
    ok("cannot" not in versions and versions.count("module ") == 9, "each module finds its libraries")
    same(first.stop(), 0, "the image's stop signal ends it with status 0")
    second = leader(three, 2)
    ok(second is not first, "and another leads")
    second.kill()
    same(second.leave(), 137, "which is killed")
    third = leader(three, 3)
    ok(third not in (first, second), "and the third leads")
    terms = sorted((e["token"], e["seen"]) for c in three for e in c.all("print", "leads "))
    same([t for t, _ in sorted(terms, key=lambda t: t[1])], [t for t, _ in terms], "tokens grow")
finally:
    stop_everyone()
done()

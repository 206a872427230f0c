#!/usr/bin/env -S PYTHONPATH=. python3
"""make release of this commit with a tag, twice: in directories of other names, by people with other settings. The
files are the same, bit by bit; the checksums hold; the sources are whole; notes are there; and what is not committed is
refused. Needs root, buildah, what makes packages, and two times the whole build."""

import hashlib
import os
import re
import subprocess
import tempfile

from tests.lib.debian import needs, run
from tests.lib.processes import ROOT
from tests.lib.tap import done, note, ok, same

CLEAN = {k: v for k, v in os.environ.items() if not k.startswith(("LUNARCH_", "MAKE", "MFLAGS", "LC_", "LANG"))}
# Who builds: the name of the directory, the umask, and what else is theirs.
BUILDERS = (
    ("one", 0o022, {"LC_ALL": "C.UTF-8", "TZ": "UTC"}),
    (
        "another-place/with-a-longer-name",
        0o027,
        {"LC_ALL": "C", "TZ": "Asia/Kolkata", "USER": "somebody", "HOME": "/tmp"},
    ),
)


def clone(home: str, name: str, umask: int, version: str) -> str:
    place = os.path.join(home, name)
    run("git", "clone", "-q", "--no-local", ROOT, place, umask=umask)
    run("git", "-C", place, "tag", "v" + version)
    return place


def made(place: str, umask: int, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    asked = ["nice", "make", "release"]
    return subprocess.run(asked, cwd=place, capture_output=True, text=True, umask=umask, env={**CLEAN, **env})


def digests(directory: str) -> dict[str, str]:
    found = {}
    for where, _, names in os.walk(directory):
        for name in names:
            path = os.path.join(where, name)
            with open(path, "rb") as f:
                found[os.path.relpath(path, directory)] = hashlib.file_digest(f, "sha256").hexdigest()
    return found


def look(place: str, version: str) -> None:
    out = os.path.join(place, "build", "release")
    files = digests(out)
    for name in sorted(files):
        note(f"{os.path.getsize(os.path.join(out, name)):9} {name}")
    want = [f"lunarch-{version}.tar.gz", "NOTES.md", "SHA256SUMS"]
    want += [f"lunarch-{version}-linux-amd64{end}" for end in (".tar.gz", ".cdx.json", "-image.tar", "-image.cdx.json")]
    with open(os.path.join(ROOT, "packaging", "packages.txt")) as f:
        packages = ["lunarch", *re.findall(r"^(lunarch-\w+)", f.read(), re.M)]
    want += [f"debian-12/{p}_{version}_amd64.deb" for p in packages]
    same(sorted(files), sorted(want), "each file is there under the version alone, and nothing else is")
    r = subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=out, capture_output=True, text=True)
    same((r.returncode, r.stdout), (0, ""), "the checksums hold")
    with open(os.path.join(out, "SHA256SUMS")) as f:
        same(len(f.read().splitlines()), len(want) - 1, "of every file")
    with open(os.path.join(out, "NOTES.md")) as f, open(os.path.join(ROOT, "CHANGELOG.md")) as log:
        first = re.split(r"^## .*\n", log.read(), flags=re.M)[1]
        ok(first.strip() and first.strip() in f.read(), "the notes are the first part of CHANGELOG.md")
    run("tar", "-xf", f"{out}/lunarch-{version}.tar.gz", "-C", out)
    tree = f"{out}/lunarch-{version}"
    listed = run("git", "-C", place, "ls-files").split("\n")[:-1]
    same(
        [f for f in listed if not os.path.lexists(os.path.join(tree, f))],
        [],
        "the source archive has all that is tracked",
    )
    run("make", "-s", "-C", tree, "build/version.h", env=CLEAN)
    with open(tree + "/build/version.h") as f:
        same(f.read(), f'#define LUNARCH_VERSION "{version}"\n', "and its version")


needs("buildah", "lintian", "dpkg-buildpackage")
home = tempfile.mkdtemp(prefix="lunarch-release-")
try:
    with open(os.path.join(ROOT, "CHANGELOG.md")) as f:
        [version] = re.findall(r"^## ([\d.]+)", f.read(), re.M)[:1]
    places = [clone(home, name, umask, version) for name, umask, _ in BUILDERS]
    for place, (name, umask, env) in zip(places, BUILDERS):
        r = made(place, umask, env)
        if not ok(r.returncode == 0 and "gpg --detach-sign" in r.stdout, f"make release in {name}"):
            note(r.stdout[-3000:] + r.stderr[-3000:])
    first, second = (digests(os.path.join(place, "build", "release")) for place in places)
    differs = sorted(name for name in first.keys() | second.keys() if first.get(name) != second.get(name))
    same(differs, [], f"{len(first)} files of two builds have the same bytes")
    look(places[0], version)
    with open(os.path.join(places[0], "README.md"), "a") as f:
        f.write("\n")
    r = made(places[0], 0o022, {})
    ok(r.returncode and "README.md" in r.stderr, "a file that is not as it was committed is refused by name", r.stderr)
finally:
    subprocess.run(["rm", "-rf", "--one-file-system", home])
done()

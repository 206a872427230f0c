#!/usr/bin/env -S PYTHONPATH=. python3
"""The archive of `make tarball`: twice the same; what is in it, by its own list; installed and removed; and run without
a right in containers that have a C library and nothing else: a term in each store, certificates where distributions
have them, and the words where a time zone is missing."""

import glob
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from typing import Any

from tests.lib import servers
from tests.lib.bare import MOVED, SCRIPT, TlsEtcd, bare, bare_root, build, holds, https, in_stores, unpack
from tests.lib.candidates import stop_everyone
from tests.lib.containers import have_tools
from tests.lib.pki import Pki
from tests.lib.processes import ROOT, scratch, wait_for
from tests.lib.tap import done, ok, same, skip

PROGRAM = MOVED + "/bin/lunarch"
OLDEST = (2, 34)  # the C library of RHEL 9
# Where distributions have the file of their certificate authorities.
AUTHORITIES = {
    "Debian": "/etc/ssl/certs/ca-certificates.crt",
    "RHEL": "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "SUSE": "/etc/ssl/ca-bundle.pem",
}


def digest(path: str) -> str:
    with open(path, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()


def later_symbols(path: str) -> set[str]:
    """What a file needs of a C library newer than OLDEST."""
    said = subprocess.run(["objdump", "-T", path], capture_output=True, text=True, check=True).stdout
    found = re.findall(r"\*UND\*.*\(GLIBC_([\d.]+)\)\s+(\S+)", said)
    return {name for version, name in found if tuple(map(int, version.split("."))) > OLDEST}


def look(tree: str) -> None:
    """What is in it."""
    with open(tree + "/README") as f:
        text = f.read()
    with open(tree + "/share/doc/lunarch/sbom.cdx.json") as f:
        bill = json.load(f)
    files = {os.path.relpath(p, tree) for p in glob.glob(tree + "/lib/lunarch/*/**", recursive=True) if ".so" in p}
    told = [o["location"] for c in bill["components"] for o in c["evidence"]["occurrences"]]
    same(
        {p for p in told if p.startswith("lib/")}, files, f"its bill of materials names each of {len(files)} libraries"
    )
    same(len([p for p in told if "linked in" in p]), 3, "and those that are linked into the program")
    same([p for p in told if p not in text], [], "README has the same list")
    with open(os.path.join(ROOT, "packaging", "licences.txt")) as f:
        known = f.read()
    same(
        [
            c["name"]
            for c in bill["components"]
            if f"| {c['licenses'][0]['expression']}\n" not in known or not c["version"]
        ],
        [],
        "with version and licence",
    )
    lacks = [
        c["name"] for c in bill["components"] if not os.path.exists(f"{tree}/share/doc/lunarch/licences/{c['name']}")
    ]
    same(lacks, [], "of each the licence's text is inside")
    changed = []
    for path in files:
        places = [f"{d}/{path.split('/', 3)[3]}" for d in glob.glob("/usr/lib/*-linux-gnu*")]
        places += [
            f"{d}/{path.split('/', 2)[2]}".replace("lua/", "lua/5.4/") for d in glob.glob("/usr/lib/*-linux-gnu*")
        ]
        places += [p.replace("/plugin/", "/libmariadb3/plugin/") for p in places]
        if digest(os.path.join(tree, path)) not in [digest(p) for p in places if os.path.exists(p)]:
            changed.append(path)
    same(changed, [], "each is the file of Debian's package, unchanged")
    new = {
        os.path.relpath(p, tree): later_symbols(p)
        for p in [tree + "/bin/lunarch", *glob.glob(tree + "/lib/lunarch/**/*.so*", recursive=True)]
    }
    same({p: n for p, n in new.items() if n}, {}, "nothing in it needs a C library newer than 2.34")


def installed(tree: str, home: str) -> None:
    prefix = os.path.join(home, "opt dir")
    plain = {k: v for k, v in os.environ.items() if not k.startswith("LUNARCH_")}

    def install(*options: str) -> Any:
        return subprocess.run([tree + "/install.sh", *options], cwd=home, capture_output=True, text=True, env=plain)

    r = install("--prefix", "opt dir")
    ok(r.returncode == 0 and r.stdout.startswith("lunarch "), "install.sh --prefix installs it", r.stdout + r.stderr)
    with open(prefix + "/lib/systemd/system/lunarch@.service") as f:
        ok(f"ExecStart={prefix}/bin/lunarch run" in f.read(), "units name the program's place")
    # What a version before this one brought, and what somebody else put there.
    for name in ("deps/libold.so.1", "own.conf"):
        open(os.path.join(prefix, "lib", "lunarch", name), "w").close()
    with subprocess.Popen([prefix + "/bin/lunarch", "run", "--lock", home + "/busy", "-e", "sleep(100)"], env=plain,
                          stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as runs:  # fmt: skip
        assert runs.stderr
        while "became_leader" not in runs.stderr.readline():
            pass
        r = install("--prefix=" + prefix)
        same((r.returncode, runs.poll()), (0, None), "installed again while it runs: the elector goes on")
        runs.terminate()
        runs.stderr.read()
    same(runs.returncode, 0, "to its regular end")
    ok(not os.path.exists(prefix + "/lib/lunarch/deps/libold.so.1"), "a library of an older version is gone")
    r = install("--remove", "--prefix", prefix)
    left = [os.path.relpath(os.path.join(w, f), prefix) for w, _, names in os.walk(prefix) for f in names]
    same((r.returncode, left), (0, ["lib/lunarch/own.conf"]), "--remove removes what is ours, and nothing else")
    r = install("--prefix", tree + "/here")
    ok(r.returncode == 2 and not os.path.exists(tree + "/here"), "it does not install into itself")


def trusting(bundle: str, home: str, which: str, script: dict[str, str], pki: Pki, etcd: Any) -> None:
    """Servers' certificates, against the authorities in a distribution's place."""
    state = os.path.join(home, which)
    authorities = os.path.join(state, "authorities")
    os.makedirs(authorities)
    os.chown(state, 65532, 65532)
    mounts = {"/state": state}
    if which in AUTHORITIES:
        directory, name = os.path.split(AUTHORITIES[which])
        shutil.copy(pki.ca, os.path.join(authorities, name))
        mounts[directory] = authorities
    c = bare(bundle, which, script, mounts)
    ok(wait_for(lambda: c.all("print", "all")), f"{which}: a script leads")
    good = which in AUTHORITIES
    said = [e["message"] for e in c.all("print", "")]
    ok(any(m == "https 200" for m in said) == good, f"{which}: http {'trusts' if good else 'trusts nobody'}", said)
    ok(any(m == "mysql 2" for m in said) == good, f"{which}: so does mysql, with a log-in by a plugin", said)
    url = f"etcds://127.0.0.1:{etcd.port}/{which}"
    r = holds(c.inside, PROGRAM, url) if good else c.inside(PROGRAM, "status", "--lock", url)
    ok(
        (r.returncode == 0) == good and (good or "certificate" in r.stderr),
        f"{which}: and so does a lock in etcd, by TLS",
        r.stdout + r.stderr,
    )
    if which == "Debian":
        ok('cjson ["yes"]' in said, "lua-cjson is there", said)
        zone = [m for m in said if m.startswith("zone ")]
        ok("tzdata" in zone[0], "where there are no time zones, it says which package has them", zone)
        in_stores(c.inside, PROGRAM)
    same(c.stop(), 0, f"{which}: SIGTERM ends it with status 0")


missing = have_tools()
if missing:
    skip("the archive, and containers of it", f"{missing} is missing")
    done()
    sys.exit()
home = scratch()
os.chmod(home, 0o755)
archive, again = build(home + "/one"), build(home + "/two")
same(digest(archive), digest(again), "made twice, it is the same archive, bit by bit")
shutil.rmtree(home + "/two")
tree = unpack(archive, home + "/unpacked")
look(tree)
installed(tree, home)

pki_place = home + "/pki"
os.mkdir(pki_place)
os.chmod(pki_place, 0o755)
pki = Pki(pki_place)
TlsEtcd.pki = pki
bundle = bare_root(home + "/bundle", tree)
with TlsEtcd() as etcd, servers.MariaDB("--plugin-load-add=auth_ed25519", pki=pki) as mariadb:
    mariadb.sql("CREATE USER luna IDENTIFIED VIA ed25519 USING PASSWORD('moon')")
    script = {
        "LUNARCH_SCRIPT": SCRIPT,
        "LUNARCH_LOCK": "/state/lock",
        "PAGE": f"https://127.0.0.1:{https(pki)}/",
        "MYSQL": str(mariadb.port),
    }
    try:
        for which in (*AUTHORITIES, "nowhere"):
            trusting(bundle, home, which, script, pki, etcd)
    finally:
        stop_everyone()
done()

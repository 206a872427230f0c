#!/usr/bin/env -S PYTHONPATH=. python3
"""The archive of make tarball in a clean Debian 13 (debootstrap): unpacked and run by a user without a right, where it
lies and installed; a term in each store; the certificates of that system; then in an unprivileged container, whose
root cannot be written to. Its bill of materials, and the image's, by CycloneDX's own schema. Needs root, a mirror."""

import os
import shutil
import subprocess
import tempfile

from tests.lib import servers
from tests.lib.bare import SCRIPT, Result, bare, bare_root, build, https, in_stores
from tests.lib.candidates import stop_everyone
from tests.lib.containers import build as build_image
from tests.lib.debian import bootstrap, needs, run
from tests.lib.pki import Pki
from tests.lib.processes import wait_for
from tests.lib.tap import done, note, ok, same

PLACE = "/home/somebody/lunarch of mine"
ENV = ("/usr/bin/env", "-i", "PATH=/usr/bin:/bin", "HOME=/tmp")


class Clean:
    """A Debian 13 with its certificates and nothing else. What runs in it has this machine's network."""

    def __init__(self, root: str) -> None:
        self.root = root
        bootstrap(root, "--variant=minbase", "--include=ca-certificates", suite="trixie")

    def enter(self, *command: str, user: str = "65534") -> Result:
        become = ["setpriv", "--reuid", user, "--regid", user, "--clear-groups", *ENV] if user else [*ENV]
        mounts = 'mount -t proc proc "$1/proc" && exec chroot "$@"'
        apart = ["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child=KILL"]
        line = [*apart, "sh", "-c", mounts, "sh", self.root, *become, *command]
        return subprocess.run(line, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=600)


def valid(bill: str) -> None:
    python = os.path.expanduser(os.environ.get("XDG_CACHE_HOME", "~/.cache") + "/lunarch-tests/sbom/env/bin/python")
    check = """
import json, sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
text = open(sys.argv[1]).read()
print(len(json.loads(text)["components"]), JsonStrictValidator(SchemaVersion.V1_6).validate_str(text))
"""
    r = subprocess.run([python, "-c", check, bill], capture_output=True, text=True)
    ok(
        r.stdout.endswith(" None\n"),
        f"{os.path.basename(bill)} is valid: {r.stdout.split()[:1]} components",
        r.stdout + r.stderr,
    )


def used(m: Clean, archive: str) -> None:
    os.makedirs(m.root + PLACE)
    shutil.copy(archive, m.root + PLACE)
    run("chown", "-R", "65534:65534", m.root + os.path.dirname(PLACE))
    name = os.path.basename(archive)
    r = m.enter("tar", "-xf", f"{PLACE}/{name}", "-C", PLACE)
    same((r.returncode, r.stderr), (0, ""), "a user unpacks it")
    tree = f"{PLACE}/{name.removesuffix('.tar.gz')}"
    r = m.enter(
        tree + "/bin/lunarch",
        "run",
        "--lock",
        "/tmp/lock",
        "-e",
        'print(require "cjson".encode { "it leads" }) lunarch.exit(0)',
    )
    ok(r.returncode == 0 and '["it leads"]' in r.stderr, "and runs it where it lies", r.stderr)
    os.rename(m.root + tree, m.root + "/home/somebody/here")
    tree = "/home/somebody/here"
    r = m.enter(tree + "/install.sh", "--prefix", "/home/somebody/.local")
    ok(r.returncode == 0, "and installs it without a right", r.stdout + r.stderr)
    in_stores(m.enter, tree + "/bin/lunarch")
    in_stores(m.enter, "/home/somebody/.local/bin/lunarch")
    r = m.enter(tree + "/install.sh", user="")
    ok(
        r.returncode == 0 and m.enter("/usr/local/bin/lunarch", "--version").returncode == 0,
        "root installs it",
        r.stderr,
    )
    r = m.enter(tree + "/install.sh", "--remove", user="")
    left = [w for w, d, names in os.walk(m.root + "/usr/local") if any("lunarch" in n for n in (*d, *names))]
    same((r.returncode, left), (0, []), "and removes all of it")


def certificates(m: Clean, pki: Pki) -> None:
    """An authority that the system's administrator adds."""
    program = "/home/somebody/.local/bin/lunarch"
    body = 'local r, why = http.get(os.getenv "PAGE") print(tostring(r and r.status or why)) lunarch.exit(0)'
    page = f"https://127.0.0.1:{https(pki)}/"

    def asked() -> str:
        return m.enter("env", f"PAGE={page}", program, "run", "--lock", "/tmp/page", "-e", body).stderr

    said = asked()
    ok("certificate" in said, "a server of an unknown authority is refused", said)
    shutil.copy(pki.ca, m.root + "/usr/local/share/ca-certificates/test.crt")
    r = m.enter("/usr/sbin/update-ca-certificates", user="")
    note(r.stdout.strip())
    said = asked()
    ok("print: 200" in said, "with its certificate among the system's it is trusted", said)


def contained(m: Clean, home: str, pki: Pki) -> None:
    """As orchestrators run it: a user without a name, no capability, a root that cannot be written to."""
    bundle = bare_root(home + "/bundle", m.root + "/home/somebody/here", m.root)
    state = home + "/state"
    os.mkdir(state)
    os.chown(state, 65532, 65532)
    with servers.MariaDB("--plugin-load-add=auth_ed25519", pki=pki) as mariadb:
        mariadb.sql("CREATE USER luna IDENTIFIED VIA ed25519 USING PASSWORD('moon')")
        page = f"https://127.0.0.1:{https(pki)}/"
        env = {"LUNARCH_SCRIPT": SCRIPT, "LUNARCH_LOCK": "/state/lock", "PAGE": page, "MYSQL": str(mariadb.port)}
        c = bare(bundle, "trixie", env, {"/state": state})
        ok(wait_for(lambda: c.all("print", "all")), "in a container of it a script leads")
        said = [e["message"] for e in c.all("print", "")]
        same(said, ['cjson ["yes"]', "https 200", "mysql 2", "zone true", "all"], "and all that it calls is there")
        same(c.stop(), 0, "SIGTERM ends it with status 0")


needs("debootstrap", "crun")
home = tempfile.mkdtemp(prefix="lunarch-tarball-")
os.chmod(home, 0o755)
try:
    archive = build(home + "/made")
    ok(os.path.getsize(archive) < 10_000_000, f"{os.path.getsize(archive) / 1e6:.1f} MB")
    build_image(home + "/image", "0.0.0")
    valid(archive.removesuffix(".tar.gz") + ".cdx.json")
    valid(home + "/image/sbom.cdx.json")
    os.mkdir(home + "/pki")
    pki = Pki(home + "/pki")
    machine = Clean(home + "/trixie")
    used(machine, archive)
    certificates(machine, pki)
    contained(machine, home, pki)
finally:
    stop_everyone()
    subprocess.run(["rm", "-rf", "--one-file-system", home])
done()

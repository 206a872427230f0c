"""The archive of packaging/tarball.sh: made, unpacked, and run in containers whose root has a C library and nothing
else: no other library, no shell, no certificate, no user but a number.

Not how the archive is made. Used by tests/install/tarball.py and tests/cluster/debian/tarball.py.

    root = bare_root(scratch(), unpacked)
    c = bare(root, "one", {"LUNARCH_LOCK": ...}, {"/state": directory})"""

import glob
import http.server
import json
import os
import shutil
import ssl
import subprocess
import threading
from collections.abc import Callable
from typing import Any

from tests.lib import servers, stores
from tests.lib.containers import Container, checked
from tests.lib.pki import Pki
from tests.lib.processes import LUNARCH, ROOT
from tests.lib.tap import note, ok

C_LIBRARY = ("libc.so.6", "libm.so.6", "libresolv.so.2", "libgcc_s.so.1", "libnss_files.so.2", "libnss_dns.so.2")
Result = subprocess.CompletedProcess[str]
Inside = Callable[..., Result]  # runs a command line in there
MOVED = "/elsewhere, later"  # a place that nothing was built for


SCRIPT = """
local mysql = require "lunarch.mysql"
return {
  on_leading = function(term)
    print("cjson " .. require "cjson".encode { "yes" })
    local page, why = http.get(os.getenv "PAGE")
    print("https " .. tostring(page and page.status or why))
    local db, refused = mysql.open { host = "127.0.0.1", port = tonumber(os.getenv "MYSQL"), user = "luna",
      password = "moon", tls = true }
    local rows = db and db:query "SELECT 1 + 1 AS two"
    print("mysql " .. tostring(rows and rows[1] and rows[1].two or refused))
    local known, unknown = pcall(term.cron, term, "0 4 * * *", print, { zone = "Europe/Berlin" })
    print("zone " .. tostring(known or unknown))
    print "all"
    while true do sleep(1) end
  end,
}
"""


class TlsEtcd(servers.Etcd):
    pki: Any = None
    metrics = 0

    def command(self) -> list[str]:
        here = f"127.0.0.1:{self.port}"
        cert, key = self.pki.server()
        self.metrics = self.metrics or servers.free_port()
        line = [word.replace("http://" + here, "https://" + here) for word in super().command()]
        own = ("--cert-file", cert, "--key-file", key, "--listen-metrics-urls", f"http://127.0.0.1:{self.metrics}")
        return [*line, *own]

    def ready(self) -> bool:
        return '"health":"true"' in servers.ask(self.metrics, "GET /health HTTP/1.0\r\n\r\n")


def https(pki: Pki) -> int:
    """The port of a server of pages."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*pki.server())
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return int(server.server_address[1])


def build(directory: str, version: str = "0.0.0+test") -> str:
    """The path of the archive."""
    made = checked(os.path.join(ROOT, "packaging", "tarball.sh"), os.path.dirname(LUNARCH), directory, version)
    note(made.strip())
    [path] = glob.glob(directory + "/*.tar.gz")
    return path


def unpack(archive: str, directory: str) -> str:
    """The tree in it, below another name than it was made with."""
    os.makedirs(directory)
    checked("tar", "-xf", archive, "-C", directory)
    [tree] = os.listdir(directory)
    os.rename(os.path.join(directory, tree), os.path.join(directory, "moved there"))
    return os.path.join(directory, "moved there")


def c_library(root: str, tree: str) -> str:
    """A root that has it, and its loader."""
    said = subprocess.run(["readelf", "-l", tree + "/bin/lunarch"], capture_output=True, text=True, check=True).stdout
    interpreter = said.split("interpreter: ")[1].split("]")[0]
    libraries = checked("gcc", "-print-multiarch").strip()
    for name in [interpreter, *(f"/lib/{libraries}/{n}" for n in C_LIBRARY)]:
        os.makedirs(os.path.dirname(root + name), exist_ok=True)
        shutil.copy(name, root + name)
    for made in ("tmp", "etc"):
        os.makedirs(os.path.join(root, made))
    return root


def bare_root(directory: str, tree: str, root: str = "") -> str:
    """A bundle, as Container takes it: the tree, and this machine's C library; or the tree in a root that is there."""
    os.makedirs(directory)
    if root:
        os.symlink(root, directory + "/rootfs")
    else:
        root = c_library(directory + "/rootfs", tree)
    shutil.copytree(tree, root + MOVED, symlinks=True)
    subprocess.run(["crun", "spec", "--bundle", directory], check=True)
    with open(os.path.join(directory, "config.json")) as f:
        spec = json.load(f)
    spec["process"] |= {"args": [MOVED + "/bin/lunarch"], "user": {"uid": 65532, "gid": 65532}, "env": []}
    with open(os.path.join(directory, "config.json"), "w") as f:
        json.dump(spec, f)
    return directory


def bare(bundle: str, name: str, env: dict[str, str], mounts: dict[str, str]) -> Container:
    return Container(bundle, name, {"LUNARCH_LOG_FORMAT": "json", **env}, mounts, ["run"])


def holds(inside: Inside, program: str, url: str) -> Result:
    """A term of a command in that store, from beginning to end. The command is the program, for want of another."""
    return inside(program, "exec", "--lock", url, "--lease-duration", "6s", "--", program, "--version")


def in_stores(inside: Inside, program: str) -> None:
    """Each module, and each store that Debian has a server of."""
    versions = inside(program, "--version").stdout
    note(versions)
    ok("cannot" not in versions and versions.count("\nmodule ") == 9, "each module finds its libraries")
    for kind in (stores.Redis, stores.Etcd, stores.Postgres, stores.ZooKeeper, stores.MariaDB):
        store = kind()
        r = holds(inside, program, store.url("tarball"))
        ok(r.returncode == 0 and "libcurl" in r.stdout, f"a term in {store.name}", r.stdout + r.stderr)
        store.server.close()

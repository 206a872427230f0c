#!/usr/bin/env -S PYTHONPATH=. python3
"""The packages on a Debian that has booted, with its systemd and journald: a stop for which the script wants longer
than the unit says, what the journal has of a program, and each lock under the hardening of lunarch@. Needs root, a
mirror, and the stores' servers."""

import base64
import json
import os
import subprocess
import tempfile
from typing import Any

from tests.lib import stores
from tests.lib.debian import Booted, clean_debian, made, needs
from tests.lib.kube_rig import Cluster
from tests.lib.kube_store import Kube
from tests.lib.pki import Pki
from tests.lib.processes import scratch, wait_for
from tests.lib.servers import Etcd, free_port
from tests.lib.tap import done, note, ok, same

# It takes longer than the units below say, and less than it may.
TAKES_S, UNIT_S, GRACE_S = 9, 4, 100
SLOW = f"""return {{ shutdown_grace = {GRACE_S}, on_leading = function()
  print "began" log.warn "two" log.error "three\\nand four"
  while true do sleep(1) end
end, on_stopping = function() sleep({TAKES_S}) print "finished" end }}"""
COMMAND = f"trap 'sleep {TAKES_S}; echo finished >&2; exit 0' TERM; echo began >&2; while :; do sleep 1; done"
SHORT = f"[Service]\nTimeoutStopSec={UNIT_S}s\nRestart=no\n"
# What systemd is told nothing of, it stops as its unit says.
UNHEARD = SHORT + "Type=exec\nNotifyAccess=none\nWatchdogSec=0\n"
KINDS: list[Any] = [
    *(stores.Etcd, stores.Redis, stores.Postgres, stores.MariaDB, stores.ZooKeeper, stores.S3, stores.Consul)
]
LEADS = 'return { on_leading = function() print "leads" while true do sleep(1) end end }'


def quoted(text: str) -> str:
    """For a unit's EnvironmentFile=."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def read(path: str) -> str:
    with open(path) as f:
        return f.read()


def shows(m: Booted, unit: str, what: str) -> str:
    return str(m.run(f"systemctl show --value -p {what} {unit}").stdout.strip())


def journal(m: Booted, unit: str) -> list[dict[str, Any]]:
    """What the unit's own processes have said."""
    said = m.run(f"journalctl -o json --all _SYSTEMD_UNIT={unit}.service").stdout
    return [json.loads(line) for line in said.splitlines()]


def becomes(m: Booted, unit: str, text: str, what: str) -> None:
    if not ok(wait_for(lambda: shows(m, unit, "StatusText") == text), what):
        note(m.run(f"systemctl status --no-pager -l {unit}").stdout)


def has_said(m: Booted, unit: str, word: str) -> bool:
    return any(word in entry["MESSAGE"] for entry in journal(m, unit))


def stopped(m: Booted, unit: str) -> str:
    """How the unit ends when it is asked to."""
    m.run(f"systemctl stop {unit}")
    return shows(m, unit, "Result")


def draining(m: Booted) -> None:
    for name in ("slow", "unheard"):
        m.write(f"/etc/lunarch/{name}.lua", SLOW)
        m.write(
            f"/etc/lunarch/{name}.env",
            f"LUNARCH_LOCK={name}\nLUNARCH_SHUTDOWN_GRACE={GRACE_S}s\nCOMMAND={quoted(COMMAND)}\n",
        )
        for kind in ("lunarch", "lunarch-exec"):
            m.write(f"/etc/systemd/system/{kind}@{name}.service.d/stop.conf", SHORT if name == "slow" else UNHEARD)
    m.run("systemctl daemon-reload")
    for kind in ("lunarch", "lunarch-exec"):
        unit = f"{kind}@slow"
        m.must(f"systemctl start {unit}")
        becomes(m, unit, "leading", f"{kind}: systemd's status says that it leads")
        ok(wait_for(lambda: has_said(m, unit, "began")), f"{kind}: what it is for has begun")
        m.run(f"systemctl stop --no-block {unit}")
        becomes(m, unit, "draining", f"{kind}: it is stopped, and systemd's status says draining")
        ok('Status: "draining"' in m.run(f"systemctl status --no-pager {unit}").stdout, "... as systemctl status does")
        ok(wait_for(lambda: shows(m, unit, "ActiveState") in ("inactive", "failed")), f"{kind}: it ends")
        same(shows(m, unit, "Result"), "success", f"{kind}: systemd waits for longer than TimeoutStopSec")
        ok(has_said(m, unit, "finished"), f"{kind}: what was to be done is done")
        unit = f"{kind}@unheard"
        m.must(f"systemctl start {unit}")
        ok(wait_for(lambda: has_said(m, unit, "began")), f"({kind}: one that systemd does not hear)")
        same(stopped(m, unit), "timeout", f"({kind}: without what we say systemd waits no longer than TimeoutStopSec)")
        ok(not has_said(m, unit, "finished"), f"({kind}: and it is cut off)")


def told_to_the_journal(m: Booted) -> None:
    """What systemd knows of a line is not in the line: when it was written, and how bad it is."""
    for kind, levels in (("lunarch", {"ERROR": "3", "INFO": "6", "WARN": "4"}), ("lunarch-exec", {"INFO": "6"})):
        lines = [e for e in journal(m, f"{kind}@slow") if " lock=" in e["MESSAGE"]]
        seen = {(e["MESSAGE"].split()[0], e["PRIORITY"]) for e in lines}
        same(seen, set(levels.items()), f"{kind}: each entry begins with its level, and has its priority")


def written(m: Booted, name: str, url: str, env: dict[str, str], more: str = "") -> None:
    m.write(f"/etc/lunarch/{name}.lua", LEADS)
    m.write(f"/etc/lunarch/{name}.env", "".join(f"{k}={v}\n" for k, v in {"LUNARCH_LOCK": url, **env}.items()))
    m.write(f"/etc/systemd/system/lunarch@{name}.service.d/more.conf", f"[Service]\n{more}")


def tls(m: Booted, servers: list[Any]) -> str:
    """Of a server's authority, whose certificate only root may read: as a credential of the unit."""
    pki = Pki(scratch())
    certificate, key = pki.server()
    port = free_port()
    etcd = Etcd(options=("--cert-file", certificate, "--key-file", key), start=False)
    etcd.options += ["--listen-client-urls", f"http://127.0.0.1:{etcd.port},https://127.0.0.1:{port}"]
    servers.append(etcd)
    etcd.start()
    m.write("/etc/lunarch/ca.crt", read(pki.ca))
    os.chmod(m.root + "/etc/lunarch/ca.crt", 0o600)
    return f"etcds://127.0.0.1:{port}/x?ca=/run/credentials/lunarch%40tls.service/ca"


def kube(m: Booted, servers: list[Any]) -> str:
    cluster = Cluster()
    servers.append(cluster)
    account = Kube(cluster, "leases")
    authority = base64.b64encode(read(cluster.api.pki.ca).encode()).decode()
    place = {"certificate-authority": None, "certificate-authority-data": authority}
    m.write("/etc/lunarch/kubeconfig", read(cluster.kubeconfig(account.ns, account.token, **place)))
    return f"kube://{account.ns}/x?kubeconfig=/etc/lunarch/kubeconfig"


def locks(m: Booted) -> None:
    """One of each module that a package brings."""
    servers: list[Any] = []
    try:
        written(m, "tls", tls(m, servers), {}, "LoadCredential=ca:/etc/lunarch/ca.crt\n")
        written(m, "kube", kube(m, servers), {})
        for kind in KINDS:
            store = kind()
            servers.append(store.server)
            written(m, kind.name, store.url("x"), kind.env)
        m.run("systemctl daemon-reload")
        for name in ("tls", "kube", *(kind.name for kind in KINDS)):
            unit = f"lunarch@{name}"
            m.must(f"systemctl start {unit}")
            becomes(m, unit, "leading", f"{name}: under the unit's hardening it leads")
            same(stopped(m, unit), "success", f"{name}: and ends")
            wrong = [e["MESSAGE"] for e in journal(m, unit) if int(e["PRIORITY"]) <= 4]
            wrong = [w for w in wrong if "was restarted or promoted" not in w]  # as a young Redis is
            same(wrong, [], f"{name}: and has warned of nothing")
    finally:
        for server in servers:
            server.close()


needs("debootstrap", "systemd-nspawn", "etcd")
home = tempfile.mkdtemp(prefix="lunarch-booted-")
machine = None
try:
    machine = Booted(clean_debian(home, made()))
    machine.must("apt-get install -y -q /root/*.deb")
    draining(machine)
    told_to_the_journal(machine)
    locks(machine)
finally:
    if machine:
        machine.close()
    subprocess.run(["rm", "-rf", "--one-file-system", home])
done()

#!/usr/bin/env -S PYTHONPATH=. python3
"""TLS between the Kubernetes lock and the real API server (make kube-server): a server that shows a certificate which
must not be trusted, and a client whose certificate the server does not take. Each is refused, by an error that names
the server or the file, and no term begins.

A server that speaks an old TLS alone cannot be made of it: it can be told the oldest TLS that it speaks, not the newest
one. tests/locks/tls_servers.py has the same for other stores."""

import ssl
from typing import Any
from urllib.parse import quote

from tests.lib.kube_rig import ApiServer, Cluster
from tests.lib.servers import Etcd
from tests.lib.tap import done
from tests.lib.tls_cases import OURS, RIGHT, Speaks, clients_certificates, servers_certificates

ADMIN = OURS.sign("admin", "/O=system:masters/CN=luna")


class Shows(ApiServer):
    """With our authority's certificates in place of its own."""

    def __init__(self, etcd: Any, speaks: Speaks) -> None:
        self.speaks = speaks
        super().__init__(etcd)

    def prepare(self) -> None:
        super().prepare()
        self.speaks.files(self.dir, RIGHT, None)
        self.context = ssl.create_default_context(cafile=OURS.ca)
        self.context.load_cert_chain(*ADMIN)


class Kube(Speaks):
    """The server asks for a client's certificate always, and takes who shows none as anonymous. strict: who names none
    shows none, else the right one."""

    name, mine, strict = "kube", ADMIN, False

    def __init__(self, etcd: Any) -> None:
        self.server = Shows(etcd, self)
        self.cluster = Cluster.on(etcd, self.server)

    def names(self) -> str:
        return f"{super().names()}|{self.server.dir}/config"

    def url(self, ca: str, cert: str = "", key: str = "") -> str:
        if not cert and not self.strict:
            cert, key = ADMIN
        user = {"client-certificate": cert, "client-key": key} if cert else {"username": ""}
        config = self.cluster.kubeconfig("kube-system", user=user, **{"certificate-authority": ca})
        return f"kube://kube-system/tls?kubeconfig={quote(config)}"


etcd = Etcd()
api = Kube(etcd)
servers_certificates(api)
api.strict = True
clients_certificates(api)
api.server.close()
etcd.close()
done()

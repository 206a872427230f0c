#!/usr/bin/env -S PYTHONPATH=. python3
"""TLS between a lock and real servers of etcd, Redis, PostgreSQL and MariaDB: a server that shows a certificate which
must not be trusted, one that speaks an old TLS only, and a client whose certificate the server does not take. Each is
refused, by an error that names the server or the file, and no term begins.

tests/locks/tls.py has the same for an endpoint that keeps what it hears; tests/cluster/kubernetes/tls.py, for a real
API server."""

import os
import signal
import subprocess
from typing import Any
from urllib.parse import quote

from tests.lib import servers
from tests.lib.candidates import FAST
from tests.lib.processes import LUNARCH, PATIENCE
from tests.lib.tap import at_once, done, ok
from tests.lib.tls_cases import OLD, OURS, RIGHT, TMP, Speaks, clients_certificates, refused, servers_certificates


class Etcd(Speaks):
    name = "etcd"

    def __init__(self, strict: bool) -> None:
        speaks = self

        class Server(servers.Etcd):
            metrics = servers.free_port()

            def prepare(self) -> None:
                super().prepare()
                speaks.files(self.dir, RIGHT, None)

            def command(self) -> list[str]:
                here = f"127.0.0.1:{self.port}"
                line = [word.replace("http://" + here, "https://" + here) for word in super().command()]
                line += ["--cert-file", f"{self.dir}/server.crt", "--key-file", f"{self.dir}/server.key"]
                line += ["--client-cert-auth", "--trusted-ca-file", f"{self.dir}/ca.crt"] if strict else []
                return [*line, "--listen-metrics-urls", f"http://127.0.0.1:{self.metrics}"]

            def ready(self) -> bool:
                return '"health":"true"' in servers.ask(self.metrics, "GET /health HTTP/1.0\r\n\r\n")

        self.server = Server()

    def url(self, ca: str, cert: str = "", key: str = "") -> str:
        own = f"&cert={cert}&key={key}" if cert else ""
        return f"etcds://127.0.0.1:{self.server.port}/x?ca={ca}{own}"


class Redis(Speaks):
    name = "rediss"

    def __init__(self, strict: bool, *options: str) -> None:
        speaks = self
        self.at = servers.free_port()  # its own is without TLS, for the test

        class Server(servers.Redis):
            def prepare(self) -> None:
                speaks.files(self.dir, RIGHT, None)
                files = [
                    "--tls-cert-file",
                    "server.crt",
                    "--tls-key-file",
                    "server.key",
                    "--tls-ca-cert-file",
                    "ca.crt",
                ]
                self.options = ["--tls-port", str(speaks.at), *files, *self.options]
                self.options += ["--tls-auth-clients", "yes" if strict else "no"]

        self.server = Server(*options, start=False)
        self.server.environment = OLD
        self.server.start()
        # A server that has just been started elects nobody for a lease: that is over before it is asked through TLS.
        first = [LUNARCH, "run", "--once", "--state-dir", self.server.dir, *FAST, "--lock", self.server.url("x")]
        subprocess.run([*first, "-e", "os.exit(0)"], check=True, capture_output=True, timeout=PATIENCE)

    def tls_port(self) -> int:
        return self.at

    def reload(self) -> None:
        self.server.cli("CONFIG", "SET", "tls-cert-file", "server.crt")

    def url(self, ca: str, cert: str = "", key: str = "") -> str:
        own = f"&cert={cert}&key={key}" if cert else ""
        return f"rediss://127.0.0.1:{self.at}/x?ca={ca}{own}"


class Postgres(Speaks):
    name, starttls = "postgres", "postgres"

    def __init__(self, strict: bool, *options: str) -> None:
        speaks = self

        class Server(servers.Postgres):
            def prepare(self) -> None:
                super().prepare()
                speaks.files(self.dir, RIGHT, self.run_as())
                on = [f"ssl_cert_file={self.dir}/server.crt", f"ssl_key_file={self.dir}/server.key", "ssl=on"]
                on += [f"ssl_ca_file={self.dir}/ca.crt"] if strict else []
                self.options += [word for setting in (*on, *options) for word in ("-c", setting)]
                with open(os.path.join(self.dir, "data", "pg_hba.conf"), "w") as f:
                    f.write("local all all trust\nhostssl all all 127.0.0.1/32 trust")
                    f.write(" clientcert=verify-ca\n" if strict else "\n")

        self.server = Server(start=False)
        self.server.environment = OLD
        self.server.start()

    def reload(self) -> None:
        self.server.send(signal.SIGHUP)

    def url(self, ca: str, cert: str = "", key: str = "") -> str:
        own = f"&sslcert={cert}&sslkey={key}" if cert else f"&sslcert={TMP}/no.crt"
        at = f"postgres://{self.server.superuser}@127.0.0.1:{self.server.port}/postgres"
        return f"{at}?sslmode=verify-full&sslrootcert={ca}{own}#x"


class MariaDB(Speaks):
    name, starttls = "mysql", "mysql"

    def __init__(self, strict: bool, *options: str) -> None:
        self.server = servers.MariaDB(*options, pki=OURS, start=False)
        self.server.environment = OLD
        self.server.start()
        self.who = "luna"
        if options:  # its own client does not speak what they say
            self.who = f"{self.server.superuser}:{quote(self.server.password)}"
        else:
            needs = "REQUIRE X509" if strict else "REQUIRE SSL"
            self.server.sql(f"CREATE USER luna {needs}; GRANT ALL ON test.* TO luna")

    def reload(self) -> None:
        self.server.sql("FLUSH SSL")

    def url(self, ca: str, cert: str = "", key: str = "") -> str:
        own = f"&cert={cert}&key={key}" if cert else ""
        return f"mysql://{self.who}@127.0.0.1:{self.server.port}/test?ca={ca}{own}#x"


def old_protocols() -> None:
    """etcd has no TLS before 1.2."""
    for s in (Redis(False, "--tls-protocols", "TLSv1.1", "--tls-ciphers", "ALL:@SECLEVEL=0"),
              Postgres(False, "ssl_min_protocol_version=TLSv1", "ssl_max_protocol_version=TLSv1.1"),
              MariaDB(False, "--tls-version=TLSv1.1")):  # fmt: skip
        at = ["openssl", "s_client", "-tls1_1", "-cipher", "ALL:@SECLEVEL=0", "-connect", f"127.0.0.1:{s.tls_port()}"]
        at += ["-starttls", s.starttls] if s.starttls else []
        seen = subprocess.run(at, input="", capture_output=True, text=True, errors="replace", env={**os.environ, **OLD})
        ok("TLSv1.1" in seen.stdout and "Cipher is (NONE)" not in seen.stdout, f"{s.name}: the server speaks TLS 1.1")
        refused(s, "the server speaks TLS 1.1 only", s.url(OURS.ca), "protocol|version|alert|legacy|SSL|TLS")
        s.server.close()


def each(test: Any, kind: Any, strict: bool) -> Any:
    def run() -> None:
        s = kind(strict)
        test(s)
        s.server.close()

    return run


KINDS = (Etcd, Redis, Postgres, MariaDB)
TESTS = (servers_certificates, False), (clients_certificates, True)
at_once(*[each(test, kind, strict) for test, strict in TESTS for kind in KINDS], old_protocols)
done()

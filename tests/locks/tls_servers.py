#!/usr/bin/env python3
"""TLS between a lock and real servers of etcd, PostgreSQL and MariaDB: a server that shows a certificate which must not
be trusted, one that speaks an old TLS only, and a client whose certificate the server does not take. Each is refused,
by an error that names the server or the file, and no term begins.

tests/locks/tls.py has the same for an endpoint that keeps what it hears; Kubernetes has some of it in
tests/locks/kube_credentials.py."""

import os
import re
import shutil
import signal
import subprocess
import sys
from typing import Any
from urllib.parse import quote

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import servers
from hostile import CLEAN
from pki import Pki
from processes import LUNARCH, PATIENCE, scratch, wait_for
from tap import at_once, done, note, ok, same
from tls_endpoint import self_signed

TMP = scratch()
os.chmod(TMP, 0o755)
for _name in ("ours", "others", "next"):
    os.mkdir(f"{TMP}/{_name}")
OURS, OTHERS, NEXT = (Pki(f"{TMP}/{name}") for name in ("ours", "others", "next"))
ALT = "IP:127.0.0.1,DNS:localhost"
RIGHT = OURS.server()
# Whose certificate the server shows, the authority that the client has, what the error says.
SHOWN = (
    (
        "another host's",
        OURS.sign("elsewhere", "/CN=elsewhere.test", "DNS:elsewhere.test"),
        OURS.ca,
        "is for|does not match|verif|Validation",
    ),
    ("one that has expired", OURS.sign("late", "/CN=late", ALT, "-1"), OURS.ca, "expired|verify failed"),
    ("a self-signed one", self_signed(OURS), OURS.ca, "self.signed|certificate"),
    ("another authority's", OTHERS.server(), OURS.ca, "certificate"),
    ("one of an authority that was replaced", RIGHT, NEXT.ca, "certificate"),
)
MINE, STRANGERS = OURS.sign("mine", "/CN=luna"), OTHERS.sign("stranger", "/CN=luna")
STALE = OURS.sign("stale", "/CN=luna", days="-1")
# The client's certificate and key. What the error says is the server's word for it, or the library's.
SAID = "certificate|alert|SSL|TLS|denied|closed"
WRONG = (
    ("none", ("", ""), SAID),
    ("another authority's", STRANGERS, SAID),
    ("one that has expired", STALE, SAID),
    ("one with another's key", (MINE[0], STALE[1]), "key|mismatch"),
    ("a file that is not there", (f"{TMP}/none.crt", MINE[1]), r"none\.crt"),
)
# What OpenSSL's settings of the system forbid would be refused by the server, not by the lock.
LAX = f"{TMP}/openssl.cnf"
with open(LAX, "w") as _f:
    _f.write("openssl_conf=a\n[a]\nssl_conf=b\n[b]\nsystem_default=c\n[c]\n")
    _f.write("MinProtocol=TLSv1\nCipherString=ALL:@SECLEVEL=0\n")
OLD = {"OPENSSL_CONF": LAX}


class Speaks:
    """A server with TLS whose certificate can be changed while it runs. It asks for a client's if `strict`."""

    name, starttls = "", ""
    server: Any

    def url(self, ca: str, cert: str = "", key: str = "") -> str:
        raise NotImplementedError

    def reload(self) -> None:
        """It looks at its files."""

    def files(self, where: str, shown: tuple[str, str], owner: str | None) -> None:
        for path, name in (*zip(shown, ("server.crt", "server.key")), (OURS.ca, "ca.crt")):
            new = os.path.join(where, name + ".new")
            shutil.copy(path, new)
            os.chmod(new, 0o600)
            if owner:
                shutil.chown(new, owner)
            os.rename(new, os.path.join(where, name))

    def show(self, shown: tuple[str, str]) -> None:
        """Returns when it shows that one."""
        self.files(self.server.dir, shown, self.server.run_as())
        self.reload()
        with open(shown[0]) as f:
            wanted = f.read().strip().splitlines()[-3]  # a line of the certificate that no other one has

        def there() -> bool:
            at = ["openssl", "s_client", "-connect", f"127.0.0.1:{self.server.port}"]
            more = ["-starttls", self.starttls] if self.starttls else []
            seen = subprocess.run([*at, *more], input="", capture_output=True, text=True, errors="replace")
            return wanted in seen.stdout

        ok(wait_for(there), f"{self.name}: the server shows {os.path.basename(shown[0])}")


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


def led(url: str) -> tuple[bool, str]:
    """Whether a term began, and what was said until the elector gave up, or that one of the first tries failed."""
    env = {**CLEAN, **OLD}
    state = os.path.join(TMP, "state-" + os.urandom(4).hex())
    options = ["--once", "--state-dir", state, "--log-format", "json", "--retry-period", "200ms"]
    command = [LUNARCH, "run", *options, "--lock", url, "-e", "print 'leads' os.exit(0)"]
    out = state + ".log"
    with open(out, "w") as f:
        p = subprocess.Popen(command, stdout=f, stderr=subprocess.STDOUT, env=env)

    def said() -> str:
        with open(out, errors="replace") as f:
            return f.read()

    wait_for(lambda: p.poll() is not None or re.search("leads|_failed|_refused|hopeless", said()), PATIENCE)
    if p.poll() is None:
        p.terminate()
    p.wait(PATIENCE)
    return '"leads"' in said(), said()


def refused(s: Speaks, what: str, url: str, says: str, names: str = "") -> None:
    began, said = led(url)
    ok(not began, f"{s.name}: {what}: no term begins", said)
    named = names or f"127.0.0.1.*{s.server.port}"
    ok(re.search(named, said, re.S) and re.search(says, said, re.I), f"{s.name}: {what}: the error says so", said)
    if os.environ.get("SHOW"):
        note(f"{s.name}: {what}: {said}")


def servers_certificates(make: Any) -> None:
    s = make(False)
    same(led(s.url(OURS.ca))[0], True, f"{s.name}: the right certificate: it leads")
    for what, shown, ca, says in SHOWN:
        s.show(shown)
        refused(s, f"the server's certificate is {what}", s.url(ca), says)
    s.show(RIGHT)
    same(led(s.url(OURS.ca))[0], True, f"{s.name}: the right certificate again: it leads")
    s.server.close()


def clients_certificates(make: Any) -> None:
    s = make(True)
    same(led(s.url(OURS.ca, *MINE))[0], True, f"{s.name}: the right client's certificate: it leads")
    for what, (cert, key), says in WRONG:
        refused(s, f"the client's certificate is {what}", s.url(OURS.ca, cert, key), says, "." if cert else "")
    s.server.close()


def old_protocols() -> None:
    """etcd has no TLS before 1.2."""
    for s in (Postgres(False, "ssl_min_protocol_version=TLSv1", "ssl_max_protocol_version=TLSv1.1"),
              MariaDB(False, "--tls-version=TLSv1.1")):  # fmt: skip
        at = ["openssl", "s_client", "-tls1_1", "-cipher", "ALL:@SECLEVEL=0", "-starttls", s.starttls]
        at += ["-connect", f"127.0.0.1:{s.server.port}"]
        seen = subprocess.run(at, input="", capture_output=True, text=True, errors="replace", env={**os.environ, **OLD})
        ok("TLSv1.1" in seen.stdout and "Cipher is (NONE)" not in seen.stdout, f"{s.name}: the server speaks TLS 1.1")
        refused(s, "the server speaks TLS 1.1 only", s.url(OURS.ca), "protocol|version|alert|legacy|SSL|TLS")
        s.server.close()


def each(test: Any, make: Any) -> Any:
    def run() -> None:
        test(make)

    return run


KINDS = (Etcd, Postgres, MariaDB)
at_once(*[each(test, kind) for test in (servers_certificates, clients_certificates) for kind in KINDS], old_protocols)
done()

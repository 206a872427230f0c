"""What a lock must do whose server shows a certificate that must not be trusted, or does not take the client's: no term
begins, and the error names the server or the file. The certificates, and those cases.

Not the servers: tests/locks/tls_servers.py and tests/cluster/kubernetes/tls.py start real ones."""

import os
import re
import shutil
import subprocess
from typing import Any

from tests.lib.hostile import CLEAN
from tests.lib.pki import Pki
from tests.lib.processes import LUNARCH, PATIENCE, scratch, wait_for
from tests.lib.tap import note, ok, same
from tests.lib.tls_endpoint import self_signed

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
        "is for|does not match|name matches|verif|Validation",
    ),
    ("one that has expired", OURS.sign("late", "/CN=late", ALT, "-1"), OURS.ca, "expired|verify failed"),
    ("a self-signed one", self_signed(OURS), OURS.ca, "self.signed|certificate"),
    ("another authority's", OTHERS.server(), OURS.ca, "certificate"),
    ("one of an authority that was replaced", RIGHT, NEXT.ca, "certificate"),
)
MINE, STRANGERS = OURS.sign("mine", "/CN=luna"), OTHERS.sign("stranger", "/CN=luna")
STALE = OURS.sign("stale", "/CN=luna", days="-1")
# The client's certificate and key. What the error says is the server's word for it, or the library's.
SAID = "certificate|alert|SSL|TLS|denied|closed|40[13]"
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
    mine = MINE  # the right client's
    server: Any

    def tls_port(self) -> int:
        return self.server.port

    def url(self, ca: str, cert: str = "", key: str = "") -> str:
        raise NotImplementedError

    def names(self) -> str:
        """What an error calls it: a regular expression."""
        return f"127.0.0.1.*{self.tls_port()}"

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
            at = ["openssl", "s_client", "-connect", f"127.0.0.1:{self.tls_port()}"]
            more = ["-starttls", self.starttls] if self.starttls else []
            seen = subprocess.run([*at, *more], input="", capture_output=True, text=True, errors="replace")
            return wanted in seen.stdout

        ok(wait_for(there), f"{self.name}: the server shows {os.path.basename(shown[0])}")


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
    named = names or s.names()
    ok(re.search(named, said, re.S) and re.search(says, said, re.I), f"{s.name}: {what}: the error says so", said)
    if os.environ.get("SHOW"):
        note(f"{s.name}: {what}: {said}")


def servers_certificates(s: Speaks) -> None:
    same(led(s.url(OURS.ca))[0], True, f"{s.name}: the right certificate: it leads")
    for what, shown, ca, says in SHOWN:
        s.show(shown)
        refused(s, f"the server's certificate is {what}", s.url(ca), says)
    s.show(RIGHT)
    same(led(s.url(OURS.ca))[0], True, f"{s.name}: the right certificate again: it leads")


def clients_certificates(s: Speaks) -> None:
    same(led(s.url(OURS.ca, *s.mine))[0], True, f"{s.name}: the right client's certificate: it leads")
    for what, (cert, key), says in WRONG:
        refused(s, f"the client's certificate is {what}", s.url(OURS.ca, cert, key), says, "." if cert else "")

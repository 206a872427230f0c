"""A certificate authority for one test, and what it signs."""

import os
import struct
import subprocess
import threading
from collections.abc import Mapping

from tests.lib.field import build


def openssl(*args: str, env: Mapping[str, str] | None = None) -> None:
    subprocess.run(["openssl", *args], check=True, capture_output=True, env={**os.environ, **(env or {})})


class Pki:
    """A certificate authority and what it signs, as PEM files of one directory. older: all of it is valid for so many
    days before now, too."""

    def __init__(self, where: str, older: int = 0) -> None:
        self.dir, self.older = where, older
        self.ca = self.path("ca.crt")
        self.env: dict[str, str] = {}
        self._signing = threading.RLock()  # a test's threads share it
        if older:
            self.env = {"LD_PRELOAD": build("shim.c", "-shared", "-fPIC"), "SHIM_CLOCK": self.path("clock")}
            with open(self.path("clock"), "wb") as f:
                f.write(struct.pack("=q", -older * 86400 * 10**9))
        self._openssl(
            *"req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=test-ca".split(),
            *("-days", str(3 + older), "-keyout", self.path("ca.key"), "-out", self.ca),
        )

    def _openssl(self, *args: str) -> None:
        openssl(*args, env=self.env)

    def path(self, name: str) -> str:
        return os.path.join(self.dir, name)

    def server(self, *addresses: str) -> tuple[str, str]:
        """A server's (certificate, key) for loopback addresses, and these, made once."""
        with self._signing:
            if not os.path.exists(self.path("server.crt")):
                names = [
                    "IP:127.0.0.1,IP:::1,DNS:localhost,DNS:kubernetes.default.svc",
                    *(f"IP:{a}" for a in addresses),
                ]
                self.sign("server", "/CN=kube-apiserver", ",".join(names))
        return self.path("server.crt"), self.path("server.key")

    def sign(self, name: str, subject: str, alt: str | None = None, days: str = "2") -> tuple[str, str]:
        """(certificate, key). alt: a subjectAltName. days may be negative: expired."""
        key, csr, crt, ext = (self.path(name + end) for end in (".key", ".csr", ".crt", ".ext"))
        with open(ext, "w") as f:
            f.write("extendedKeyUsage=clientAuth,serverAuth\n" + (f"subjectAltName={alt}\n" if alt else ""))
        with self._signing:
            self._openssl(
                *"req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj".split(),
                subject,
                *("-keyout", key, "-out", csr),
            )
            self._openssl(
                *("x509", "-req", "-in", csr, "-CA", self.ca, "-CAkey", self.path("ca.key"), "-CAcreateserial"),
                *("-days", str(int(days) + self.older), "-extfile", ext, "-out", crt),
            )
        return crt, key

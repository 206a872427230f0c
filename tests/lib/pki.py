"""A certificate authority for one test, and what it signs."""

import os
import subprocess
from typing import Any


def openssl(*args: Any, **kw: Any) -> None:
    subprocess.run(["openssl", *args], check=True, capture_output=True, **kw)


class Pki:
    """A certificate authority and what it signs, as PEM files of one directory."""

    def __init__(self, where: str) -> None:
        self.dir = where
        self.ca = self.path("ca.crt")
        openssl(
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "3",
            "-subj",
            "/CN=test-ca",
            "-keyout",
            self.path("ca.key"),
            "-out",
            self.ca,
        )

    def path(self, name: str) -> Any:
        return os.path.join(self.dir, name)

    def server(self, *addresses: str) -> Any:
        """A server's (certificate, key) for loopback addresses, and these, made once."""
        if not os.path.exists(self.path("server.crt")):
            names = ["IP:127.0.0.1,IP:::1,DNS:localhost,DNS:kubernetes.default.svc", *(f"IP:{a}" for a in addresses)]
            self.sign("server", "/CN=kube-apiserver", ",".join(names))
        return self.path("server.crt"), self.path("server.key")

    def sign(self, name: str, subject: Any, alt: Any = None, days: str = "2") -> Any:
        """(certificate, key). alt: a subjectAltName. days may be negative: expired."""
        key, csr, crt, ext = (self.path(name + end) for end in (".key", ".csr", ".crt", ".ext"))
        openssl(
            "req",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-subj",
            subject,
            "-keyout",
            key,
            "-out",
            csr,
        )
        with open(ext, "w") as f:
            f.write("extendedKeyUsage=clientAuth,serverAuth\n" + (f"subjectAltName={alt}\n" if alt else ""))
        openssl(
            "x509",
            "-req",
            "-in",
            csr,
            "-CA",
            self.ca,
            "-CAkey",
            self.path("ca.key"),
            "-CAcreateserial",
            "-days",
            days,
            "-extfile",
            ext,
            "-out",
            crt,
        )
        return crt, key

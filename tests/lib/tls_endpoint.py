"""A port that speaks TLS as badly as a test wants, behind the first bytes of PostgreSQL's or MariaDB's protocol or
behind none. It keeps what it hears: in the clear, and through TLS.

Not a store: it hangs up after the first bytes. Used by tests/locks/tls.py."""

import datetime
import socket
import ssl
import struct
import subprocess
import threading

from tests.lib.pki import Pki, openssl

CLIENT_SSL = 0x800
ABLE = 0x81BFF7FF  # all else that a MariaDB can


def not_yet_valid(pki: Pki) -> tuple[str, str]:
    """A certificate for next year."""
    crt, key = (pki.path("later" + end) for end in (".crt", ".key"))
    openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=later",
            "-keyout", key, "-out", pki.path("later.csr"))  # fmt: skip
    start = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=300)
    end = start + datetime.timedelta(days=300)
    with open(pki.path("later.cnf"), "w") as f:
        f.write(
            f"[ca]\ndefault_ca=d\n[d]\ndatabase={pki.path('index')}\nnew_certs_dir={pki.dir}\n"
            f"serial={pki.path('serial')}\n"
            "policy=p\ndefault_md=sha256\n[p]\ncommonName=supplied\n[e]\nsubjectAltName=IP:127.0.0.1,DNS:localhost\n"
        )
    open(pki.path("index"), "w").close()
    with open(pki.path("serial"), "w") as f:
        f.write("77\n")
    subprocess.run(
        ["openssl", "ca", "-batch", "-config", pki.path("later.cnf"), "-extensions", "e", "-in", pki.path("later.csr"),
         "-cert", pki.ca, "-keyfile", pki.path("ca.key"), "-out", crt, "-startdate", f"{start:%Y%m%d%H%M%SZ}",
         "-enddate", f"{end:%Y%m%d%H%M%SZ}"],
        check=True, capture_output=True,
    )  # fmt: skip
    return crt, key


def self_signed(pki: Pki) -> tuple[str, str]:
    crt, key = (pki.path("self" + end) for end in (".crt", ".key"))
    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "3",
            "-subj", "/CN=self", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", crt)  # fmt: skip
    return crt, key


class Endpoint:
    """certificate: None: no TLS at all. protocol: "postgres", "mysql", or "" for TLS from the first byte on."""

    def __init__(
        self,
        certificate: tuple[str, str] | None,
        protocol: str = "",
        newest: ssl.TLSVersion | None = None,
        ciphers: str = "",
        clients: str = "",
        truncated: bool = False,
    ) -> None:
        self.protocol, self.truncated = protocol, truncated
        self.context = None
        if certificate:
            self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.context.load_cert_chain(*certificate)
            self.context.set_alpn_protocols(["h2", "http/1.1"])
            if newest:
                self.context.minimum_version = ssl.TLSVersion.TLSv1
                self.context.maximum_version = newest
            if ciphers:
                self.context.set_ciphers(ciphers)
            if clients:
                self.context.verify_mode = ssl.CERT_REQUIRED
                self.context.load_verify_locations(clients)
        self.clear = b""  # what came outside of TLS, but for what a protocol says before it
        self.through = b""  # what came through it
        self.connections = 0
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                s, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(s,), daemon=True).start()

    def _serve(self, s: socket.socket) -> None:
        s.settimeout(5)
        try:
            with s:
                self._converse(s)
        except (OSError, ValueError):
            pass

    def _begin(self, s: socket.socket) -> None:
        """Up to where TLS begins."""
        if self.protocol == "postgres":
            while (first := s.recv(8, socket.MSG_WAITALL)) == struct.pack(">II", 8, 80877104):  # GSSENCRequest
                s.sendall(b"N")
            self.clear += b"" if first == struct.pack(">II", 8, 80877103) else first  # SSLRequest
            s.sendall(b"S" if self.context else b"N")
        elif self.protocol == "mysql":
            able = ABLE | CLIENT_SSL if self.context else ABLE
            hello = b"\x0a10.11.0\0" + struct.pack("<I", 7) + b"abcdefgh\0" + struct.pack("<H", able & 0xFFFF)
            hello += b"\x21" + struct.pack("<HHB", 2, able >> 16, 21) + bytes(10) + b"ijklmnopqrst\0"
            hello += b"mysql_native_password\0"
            s.sendall(struct.pack("<I", len(hello)) + hello)
            if self.context:
                size = int.from_bytes(s.recv(4, socket.MSG_WAITALL)[:3], "little")
                asked = s.recv(size, socket.MSG_WAITALL)
                self.clear += b"" if size == 32 else asked  # the request for TLS has no name in it

    def _converse(self, s: socket.socket) -> None:
        self._begin(s)
        if not self.context:
            if not self.protocol:
                s.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
            self.clear += s.recv(65536)
            return
        first = s.recv(1, socket.MSG_PEEK)
        if first != b"\x16":  # the handshake's record (RFC 8446, 5.1)
            self.clear += s.recv(65536)
            return
        if self.truncated:
            s.recv(100)
            s.sendall(b"\x16\x03\x03\x00\x7a\x02\x00\x00\x76\x03\x03")
            return
        with self.context.wrap_socket(s, server_side=True) as tls:
            self.through += tls.recv(65536)

    def close(self) -> None:
        self.listener.close()

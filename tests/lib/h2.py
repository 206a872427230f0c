"""A server of gRPC over HTTP/2 (RFC 9113) that does what a test tells it, frame by frame; and a client that passes
calls on to a real one."""

import ctypes
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, CONTINUATION = 0, 1, 3, 4, 6, 7, 9
END_STREAM, ACK, END_HEADERS = 1, 1, 4
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
UNAVAILABLE = 14

_lib = ctypes.CDLL("libnghttp2.so.14")


class _Pair(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_void_p),
        ("value", ctypes.c_void_p),
        ("name_len", ctypes.c_size_t),
        ("value_len", ctypes.c_size_t),
        ("flags", ctypes.c_uint8),
    ]


_lib.nghttp2_hd_inflate_hd2.restype = ctypes.c_ssize_t
_lib.nghttp2_hd_inflate_hd2.argtypes = [
    ctypes.c_void_p,
    ctypes.POINTER(_Pair),
    ctypes.POINTER(ctypes.c_int),
    ctypes.c_char_p,
    ctypes.c_size_t,
    ctypes.c_int,
]
_lib.nghttp2_hd_inflate_end_headers.argtypes = [ctypes.c_void_p]


class Headers:
    """What a peer's header blocks say, in their order (RFC 7541)."""

    def __init__(self) -> None:
        self.inflater = ctypes.c_void_p()
        _lib.nghttp2_hd_inflate_new(ctypes.byref(self.inflater))

    def read(self, block: bytes) -> dict[str, str]:
        found: dict[str, str] = {}
        pair, flags = _Pair(), ctypes.c_int()
        while True:
            n = _lib.nghttp2_hd_inflate_hd2(
                self.inflater, ctypes.byref(pair), ctypes.byref(flags), block, len(block), 1
            )
            if n < 0:
                raise OSError(f"a header block that makes no sense: {n}")
            block = block[n:]
            if flags.value & 2:
                name = ctypes.string_at(pair.name, pair.name_len).decode()
                found[name] = ctypes.string_at(pair.value, pair.value_len).decode()
            if flags.value & 1:
                _lib.nghttp2_hd_inflate_end_headers(self.inflater)
                return found


def block(headers: dict[str, str]) -> bytes:
    """Each as it is: literal, not indexed, not Huffman coded."""

    def text(s: str) -> bytes:
        data = s.encode()
        if len(data) < 127:
            return bytes([len(data)]) + data
        more, out = len(data) - 127, b"\x7f"
        while more > 127:
            out, more = out + bytes([more & 127 | 128]), more >> 7
        return out + bytes([more]) + data

    return b"".join(b"\0" + text(k) + text(v) for k, v in headers.items())


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def prefixed(message: bytes) -> bytes:
    """As gRPC has it in DATA."""
    return b"\0" + struct.pack(">I", len(message)) + message


def messages(data: bytes) -> tuple[list[bytes], bytes]:
    """The whole messages in data, and the rest."""
    found = []
    while len(data) >= 5 and len(data) >= 5 + (size := struct.unpack(">I", data[1:5])[0]):
        found.append(data[5 : 5 + size])
        data = data[5 + size :]
    return found, data


class Connection:
    def __init__(self, server: "H2Server", sock: socket.socket) -> None:
        self.server, self.socket, self.headers = server, sock, Headers()
        self.file = sock.makefile("rb")
        self.paths: dict[int, str] = {}
        self.pending: dict[int, bytes] = {}
        self.asked: dict[int, int] = {}  # messages of a stream
        self.pings: list[float] = []
        self.lock = threading.Lock()

    # ---- what the test says ----

    def raw(self, data: bytes) -> None:
        with self.lock:
            self.socket.sendall(data)

    def begin(self, stream: int, status: str = "200", kind: str = "application/grpc", end: bool = False) -> None:
        head = block({":status": status, "content-type": kind})
        self.raw(frame(HEADERS, END_HEADERS | (END_STREAM if end else 0), stream, head))

    def say(self, stream: int, message: bytes) -> None:
        data = prefixed(message)
        for at in range(0, len(data), 16384):
            self.raw(frame(DATA, 0, stream, data[at : at + 16384]))

    def end(self, stream: int, status: int = 0, text: str = "") -> None:
        tail = block({"grpc-status": str(status), "grpc-message": text})
        self.raw(frame(HEADERS, END_HEADERS | END_STREAM, stream, tail))

    def answer(self, stream: int, message: bytes | None = None, status: int = 0, text: str = "") -> None:
        self.begin(stream)
        if message is not None:
            self.say(stream, message)
        self.end(stream, status, text)

    def reset(self, stream: int, code: int) -> None:
        self.raw(frame(RST_STREAM, 0, stream, struct.pack(">I", code)))

    def go(self, last: int, code: int = 0, text: bytes = b"") -> None:
        self.raw(frame(GOAWAY, 0, 0, struct.pack(">II", last, code) + text))

    def close(self) -> None:
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    # ---- what comes ----

    def serve(self) -> None:
        try:
            if self.file.read(len(PREFACE)) != PREFACE:
                return
            self.raw(frame(SETTINGS, 0, 0, b"".join(struct.pack(">HI", k, v) for k, v in self.server.settings.items())))
            while len(head := self.file.read(9)) == 9:
                payload = self.file.read(int.from_bytes(head[:3], "big"))
                self.take(head[3], head[4], int.from_bytes(head[5:], "big"), payload)
        except OSError:
            pass
        finally:
            self.socket.close()

    def take(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == SETTINGS and not flags & ACK:
            self.raw(frame(SETTINGS, ACK, 0))
        elif kind == PING and not flags & ACK:
            self.pings.append(time.monotonic())
            if self.server.answers_pings:
                self.raw(frame(PING, ACK, 0, payload))
        elif kind == HEADERS:
            self.paths[stream] = self.headers.read(payload)[":path"]
            self.asked[stream] = 0
        elif kind == DATA:
            found, self.pending[stream] = messages(self.pending.get(stream, b"") + payload)
            for message in found:
                self.asked[stream] += 1
                self.server.calls.append((self.paths[stream], message))
                self.server.rule(self, stream, self.paths[stream], message)


class H2Server:
    """rule(connection, stream, path, message) is called for each message of each call, on the connection's thread, and
    does what it likes with them. settings: of the server (RFC 9113, 6.5.2)."""

    def __init__(
        self, rule: Callable[[Connection, int, str, bytes], Any], settings: dict[int, int] | None = None
    ) -> None:
        self.rule, self.settings, self.answers_pings = rule, settings or {}, True
        self.calls: list[tuple[str, bytes]] = []
        self.connections: list[Connection] = []
        self.socket = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        while True:
            try:
                one, _ = self.socket.accept()
            except OSError:
                return
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.connections.append(Connection(self, one))
            threading.Thread(target=self.connections[-1].serve, daemon=True).start()

    def close(self) -> None:
        self.socket.close()
        for c in self.connections:
            c.close()


class H2Client:
    """Calls of one message to a real server, one after the other. Threads take turns."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), 30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file, self.headers, self.next, self.lock = self.socket.makefile("rb"), Headers(), 1, threading.Lock()
        self.authority = f"127.0.0.1:{port}"
        # INITIAL_WINDOW_SIZE, and as much for the connection: nothing here is given back.
        window = struct.pack(">I", 2**30)
        self.socket.sendall(PREFACE + frame(SETTINGS, 0, 0, struct.pack(">H", 4) + window) + frame(8, 0, 0, window))

    def call(self, path: str, message: bytes) -> tuple[bytes | None, int, str]:
        """The answer, gRPC's status, its text."""
        with self.lock:
            stream, self.next = self.next, self.next + 2
            head = {":method": "POST", ":scheme": "http", ":path": path, ":authority": self.authority}
            head |= {"content-type": "application/grpc", "te": "trailers"}
            self.socket.sendall(
                frame(HEADERS, END_HEADERS, stream, block(head)) + frame(DATA, END_STREAM, stream, prefixed(message))
            )
            data, said = b"", dict[str, str]()
            while len(h := self.file.read(9)) == 9:
                payload = self.file.read(int.from_bytes(h[:3], "big"))
                kind, flags = h[3], h[4]
                if kind in (SETTINGS, PING) and not flags & ACK:
                    self.socket.sendall(frame(kind, ACK, 0, payload if kind == PING else b""))
                elif kind == HEADERS:
                    said |= self.headers.read(payload)
                elif kind == DATA:
                    data += payload
                elif kind in (RST_STREAM, GOAWAY):
                    break
                if kind in (HEADERS, DATA) and flags & END_STREAM:
                    found = messages(data)[0]
                    return (found[0] if found else None), int(said["grpc-status"]), said.get("grpc-message", "")
            return None, UNAVAILABLE, "the connection was lost"

"""What the terms of the chaos test have done: acts without a token, in the order of one file, and with it, as a
receiver accepted or refused them.

Not a clock's business: the order of appends to one file is the kernel's, and so is that of messages to one socket. Used
by tests/cluster/faults/chaos.py."""

import os
import socket
import threading
from typing import Any


class Term:
    def __init__(self, token: int, name: str, at: float) -> None:
        self.token, self.name, self.first, self.last = token, name, at, at


class Acts:
    """Read as they come. Times are those of the acts where they say one (seconds of CLOCK_MONOTONIC)."""

    def __init__(self, path: str) -> None:
        self.path, self.at, self.rest = path, 0, b""
        self.terms: dict[int, Term] = {}
        self.newest: Term | None = None
        self.count = 0
        self.last = 0.0
        self.gaps: list[tuple[float, float]] = []  # (until when, seconds): nobody acted for over a second
        self.late: list[tuple[float, str]] = []  # acts of a term after those of a newer one

    def read(self) -> None:
        try:
            with open(self.path, "rb") as f:
                f.seek(self.at)
                data = f.read()
        except FileNotFoundError:
            return
        self.at += len(data)
        *lines, self.rest = (self.rest + data).split(b"\n")
        for line in lines:
            token, name, ms = line.decode().split()
            self._add(int(token), name, int(ms) / 1000)

    def _add(self, token: int, name: str, at: float) -> None:
        self.count += 1
        term = self.terms.get(token)
        if self.newest and token < self.newest.token:
            self.late.append(
                (at or self.last, f"{name} acted with token {token} after {self.newest.name} with {self.newest.token}")
            )
        elif term and term.name != name:
            self.late.append((at or self.last, f"{name} and {term.name} both acted with token {token}"))
        if not term:
            term = self.terms[token] = Term(token, name, at or self.last)
        if not self.newest or token > self.newest.token:
            self.newest = term
        if at:
            if self.last and at - self.last > 1:
                self.gaps.append((at, at - self.last))
            term.first = term.first or at
            term.last = self.last = max(at, self.last)


class Receiver:
    """Fenced: it keeps the largest token, and refuses a smaller one."""

    def __init__(self, path: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        self.socket.bind(path)
        os.chmod(path, 0o666)
        self.largest, self.by = 0, ""
        self.accepted: list[tuple[int, str]] = []  # each token once, in the order of the first
        self.count = self.refused = 0
        self.wrong: list[str] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                data: Any = self.socket.recv(300)
            except OSError:
                return
            token, name, _ = data.decode().split()
            self._receive(int(token), name)

    def _receive(self, token: int, name: str) -> None:
        if token < self.largest:
            self.refused += 1
            return
        self.count += 1
        if token > self.largest:
            self.largest, self.by = token, name
            self.accepted.append((token, name))
        elif name != self.by:
            self.wrong.append(f"{name} wrote with the token {token} of {self.by}")

    def close(self) -> None:
        self.socket.close()

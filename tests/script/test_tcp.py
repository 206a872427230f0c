#!/usr/bin/env -S PYTHONPATH=. python3
"""lunarch.tcp on real sockets: lines and bytes as they come, TLS that begins later, who closes, what waits, and a term
that ends."""

import os
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable
from typing import Any

from tests.lib.candidates import Candidate, stop_everyone
from tests.lib.pki import Pki
from tests.lib.processes import LUNARCH, PATIENCE, scratch, wait_for
from tests.lib.tap import done, ok, same

HERE = scratch()


class Talker:
    """Does with each connection what it is told; `ended`: how many of them the other side has closed."""

    def __init__(self, talk: Callable[[socket.socket], Any]) -> None:
        self.talk, self.ended = talk, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        while True:
            try:
                s = self.listener.accept()[0]
            except OSError:
                return
            threading.Thread(target=self.serve, args=(s,), daemon=True).start()

    def serve(self, s: socket.socket) -> None:
        try:
            s = self.talk(s) or s
            while s.recv(65536):
                pass
        except OSError:
            pass
        self.ended += 1
        s.close()

    def close(self) -> None:
        self.listener.close()


def says(body: str) -> list[str]:
    script = f"""local tcp = require "lunarch.tcp"
      local function say(value, err) print(value ~= nil and tostring(value) or err.code .. " " .. err.message) end
      return {{ on_leading = function(term)
        {body}
        lunarch.exit()
      end }}"""
    c = Candidate("--lock", "none:", "-e", script, options=())
    c.leave(PATIENCE)
    return [e["message"] for e in c.all("print")]


def at(port: int, more: str = "") -> str:
    return f'local c = assert(tcp.connect {{ host = "127.0.0.1", port = {port} {more} }})'


def plain() -> None:
    def talk(s: socket.socket) -> None:
        for part in (b"one\r\ntw", b"o\nthr", b"ee bytes\x00\xff", b"rest\n"):
            s.sendall(part)
            s.recv(1)  # the other side has this part, and asks for the next one

    with_parts = Talker(talk)
    got = says(
        at(with_parts.port)
        + """ say(c:line()) c:write "." say(c:line()) c:write "."
          say(#c:bytes(12)) c:write "." say((c:line():byte())) say(c.name)"""
    )
    same(got[:3], ["one", "two", "12"], "lines end with a newline, bytes are counted")
    same(got[3:], ["255", f"127.0.0.1:{with_parts.port}"], "any byte may come, and the connection is named")
    with_parts.close()


def large() -> None:
    """More than sockets take at once: to the other side, which reads late, and from it, to one that reads late."""
    size = 8 << 20

    def talk(s: socket.socket) -> None:
        s.sendall(b"x" * size)
        left = size
        while left > 0:
            left -= len(s.recv(65536))
        s.sendall(b"done\n")

    t = Talker(talk)
    got = says(at(t.port) + f' sleep(0.3) say(#c:bytes({size})) c:write(("y"):rep({size})) say(c:line())')
    same(got, [str(size), "done"], "8 MB to it and from it")
    t.close()


def ends() -> None:
    def half(s: socket.socket) -> None:
        s.sendall(b"half a line")
        s.close()

    t = Talker(half)
    got = says(at(t.port) + " say(c:line()) say(c:bytes(4)) say(c:line()) say(c:write 'x')")
    ok(len(got) == 4 and got[0].startswith("unreachable") and "closed" in got[0], "an end within a line is told", got)
    same(got[1:2], ["half"], "and what came before it can be read")
    ok(got[3:] and got[3].startswith("unreachable"), "and nothing is written any more", got)
    t.close()
    quiet = Talker(lambda s: None)
    got = says(at(quiet.port) + " say(c:line(0.1)) c:close() say(c:line(1))")
    ok(got and got[0].startswith("timeout") and f"127.0.0.1:{quiet.port}" in got[0], "silence: the time is up", got)
    ok(got[1:] and got[1].startswith("cancelled"), "what was closed says so", got)
    got = says(
        at(quiet.port)
        + """ local task = lunarch.spawn(function() return c:line() end)
          sleep(0.1) say(pcall(c.line, c)) c:close() say(task:wait())"""
    )
    ok(
        len(got) == 2 and got[0] == "false" and got[1].startswith("cancelled"),
        "who waits while it is closed is told",
        got,
    )
    quiet.close()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        nobody = s.getsockname()[1]
        got = says(f'say(tcp.connect {{ host = "127.0.0.1", port = {nobody} }})')
    ok(got and got[0].startswith("unreachable") and str(nobody) in got[0], "nobody listens", got)


def term() -> None:
    """A connection ends with its term."""
    t = Talker(lambda s: s.sendall(b"hello\n"))
    script = f"""local tcp = require "lunarch.tcp"
      return {{ on_leading = function(term)
        local c = assert(tcp.connect {{ host = "127.0.0.1", port = {t.port} }})
        print(c:line())
        kept = c
        term:resign()
      end }}"""
    c = Candidate("--lock", os.path.join(HERE, "lock"), "-e", script)
    worker = wait_for(lambda: c.all("print")) and c.worker()
    ok(wait_for(lambda: t.ended), "a term has ended, and its connection with it")
    same(c.worker(), worker, "though its process goes on")
    c.leave(PATIENCE)
    t.close()


def tls() -> None:
    pki = Pki(HERE)
    cert, key = pki.server()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)

    def later(s: socket.socket) -> socket.socket:
        s.sendall(b"ready\r\n")
        s.recv(len("STARTTLS\r\n"))  # the handshake may come at once
        secret = context.wrap_socket(s, server_side=True)
        secret.sendall(b"secret: " + secret.recv(100) + b"\r\n")
        return secret

    t = Talker(later)
    words = 'say(c:line()) c:write "STARTTLS\\r\\n"'
    asked = f'assert(c:starttls {{ ca = "{pki.ca}" }}) c:write "word" say(c:line())'
    same(says(at(t.port) + words + asked), ["ready", "secret: word"], "TLS that begins later")
    got = says(at(t.port) + words + 'assert(c:starttls()) c:write "word" say(c:line())')
    ok(len(got) == 2 and got[1].startswith("denied"), "a certificate of an authority that is not known: denied", got)
    got = says(at(t.port) + words + f'c:starttls {{ ca = "{pki.ca}", server_name = "other.example" }} say(c:line())')
    ok(len(got) == 2 and "other.example" in got[1], "another's name", got)
    got = says(at(t.port) + 'say(c:line()) say(c:starttls { ca = "/nonexistent/ca" })')
    ok(len(got) == 2 and "/nonexistent/ca" in got[1], "a file that is not there is named", got)
    t.close()
    early = Talker(lambda s: s.sendall(b"ready\r\nand more"))
    got = says(at(early.port) + "say(c:line()) say(c:bytes(1)) say(c:starttls())")
    ok(
        len(got) == 3 and got[2].startswith("invalid"),
        "what was said in plain text is not taken for what came over TLS",
        got,
    )
    early.close()

    def first(s: socket.socket) -> socket.socket:
        secret = context.wrap_socket(s, server_side=True)
        secret.sendall(b"hello\n")
        return secret

    t = Talker(first)
    same(says(at(t.port, f', tls = {{ ca = "{pki.ca}" }}') + "say(c:line())"), ["hello"], "TLS from the first byte")
    t.close()


def misuse() -> None:
    for call, word in (
        ('{ host = "x" }', "port"),
        ("{ port = 1 }", "host"),
        ('{ host = "x", port = 70000 }', "65535"),
        ('{ host = "x", prot = 1 }', "port"),
    ):
        got = says(f"print(select(2, pcall(tcp.connect, {call})))")
        ok(len(got) == 1 and "tcp.connect" in got[0] and word in got[0], f"misuse: {call}", got)
    script, path = os.path.join(HERE, "tcp.lua"), os.path.join(HERE, "tcp_test.lua")
    with open(script, "w") as f:
        f.write("""return { on_leading = function() require "lunarch.tcp".connect { host = "x", port = 1 } end }""")
    with open(path, "w") as f:
        f.write(f"""test("x", function() local sim = simulate {{ script = "{script}" }} sim:elect() sim:run(1) end)""")
    told = subprocess.run([LUNARCH, "test", path], capture_output=True, text=True)
    ok("makes no connections" in told.stdout + told.stderr, "lunarch test says that it makes none", told.stdout)


def main() -> None:
    plain()
    large()
    ends()
    term()
    tls()
    misuse()
    stop_everyone()
    done()


main()

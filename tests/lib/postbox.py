"""A mail server that keeps what it is sent: as much of RFC 5321 as a client needs to leave a message."""

import os
import socketserver
import threading


class _Session(socketserver.StreamRequestHandler):
    server: "Mailbox"

    def say(self, text: str) -> None:
        self.wfile.write(text.encode() + b"\r\n")

    def data(self) -> bytes | None:
        """None: the client has gone in the middle."""
        lines = []
        with self.server.changed:
            self.server.waiting += 1
            self.server.changed.wait_for(
                lambda: self.server.limit is None or len(self.server.mails) < self.server.limit
            )
            self.server.waiting -= 1
        self.say("354 go ahead")
        while (line := self.rfile.readline()) != b".\r\n":
            if not line:
                return None
            lines.append(line[1:] if line.startswith(b"..") else line)
        return b"".join(lines)

    def handle(self) -> None:
        sender: str | None = None
        boxes: list[str] = []
        self.say("220 here")
        while line := self.rfile.readline().decode().strip():
            word = line.split(" ")[0].split(":")[0].upper()
            if word == "MAIL":
                sender, boxes = line[line.index("<") + 1 : line.index(">")], []
            elif word == "RCPT":
                box = line[line.index("<") + 1 : line.index(">")]
                if box.startswith("nobody@"):
                    self.say("550 no such box")
                    continue
                boxes.append(box)
            elif word == "DATA":
                text = self.data()
                if text is None:
                    return
                self.server.mails.append((sender, boxes, text))
            elif word == "QUIT":
                self.say("221 bye")
                return
            self.say("250 fine")


class Mailbox(socketserver.ThreadingTCPServer):
    """mails: (sender, boxes, message). limit: no more are taken for now; waiting: so many would like to leave one.
    nobody@ has no box."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Session)
        self.mails: list[tuple[str | None, list[str], bytes]] = []
        self.waiting, self.changed = 0, threading.Condition()
        self._limit: int | None = None
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def limit(self) -> int | None:
        return self._limit

    @limit.setter
    def limit(self, limit: int | None) -> None:
        with self.changed:
            self._limit = limit
            self.changed.notify_all()

    def handle_error(self, *_: object) -> None:
        pass  # a client that was killed

    def sendmail(self, directory: str) -> str:
        """A program as /usr/sbin/sendmail that sends its mail here: the real msmtp."""
        path = os.path.join(directory, "sendmail")
        with open(path + ".conf", "w") as f:
            f.write(f"account default\nhost 127.0.0.1\nport {self.server_address[1]}\ntls off\nauth off\n")
        with open(path, "w") as f:
            f.write(f'#!/bin/sh\nexec msmtp --file={path}.conf "$@"\n')
        os.chmod(path, 0o755)
        return path

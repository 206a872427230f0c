#!/usr/bin/env -S PYTHONPATH=. python3
"""Work outside (docs/operations.md): what a command asks a daemon for goes on when its term is over, however that ends,
while what it started itself is dead. And a next term that ends first what is there has one such work."""

import os
import shlex
import signal
import socket
import subprocess
import sys
import threading

from tests.lib.candidates import Candidate, stop_everyone
from tests.lib.processes import alive, scratch, wait_for
from tests.lib.tap import done, ok, same

HOME = scratch()
CLIENT = (
    "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.sendall(sys.argv[2].encode());"
    " s.recv(1)"
)


class Daemon:
    """Starts a work in a session of its own for whoever asks, as a container's daemon does, and ends it when asked."""

    def __init__(self) -> None:
        self.path = os.path.join(HOME, "daemon")
        self.works: list[subprocess.Popen[bytes]] = []
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen()
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self) -> None:
        while True:
            client, _ = self.listener.accept()
            with client:
                if client.recv(16) == b"start":
                    self.works.append(
                        subprocess.Popen(["sleep", "100000"], start_new_session=True, env={"MARKS": "none"})
                    )
                else:
                    self.end()
                client.sendall(b"y")

    def ask(self, what: str) -> str:
        """As a line of a shell."""
        return shlex.join([sys.executable, "-c", CLIENT, self.path, what])

    def living(self) -> list[int]:
        return [w.pid for w in self.works if w.poll() is None]

    def end(self) -> None:
        for work in self.works:
            work.kill()
            work.wait()


def own_pid(path: str) -> int:
    wait_for(lambda: os.path.exists(path) and open(path).read().strip())
    with open(path) as f:
        return int(f.read())


def ends(daemon: Daemon, how: str) -> None:
    path = os.path.join(HOME, how.replace(" ", "-"))
    line = f"setsid -f sh -c 'echo $$ >{path}; exec sleep 100000'; {daemon.ask('start')}; exec sleep 100000"
    a = Candidate("--lock", path + ".lock", "-c", line, command="exec")
    own = own_pid(path)
    (work,) = wait_for(daemon.living)
    guard = a.guard()
    if how == "clean stop":
        a.kill(signal.SIGTERM)
    elif how == "lost lease":
        os.unlink(path + ".lock")
    if how in ("elector killed", "both killed"):
        a.kill(signal.SIGSTOP)  # it does not kill the tree when the guard has gone
    if how in ("guard killed", "both killed"):
        os.kill(guard, signal.SIGKILL)
    if how in ("elector killed", "both killed"):
        a.kill(signal.SIGKILL)
    a.leave()
    if how == "both killed":  # a candidate of this machine proves the death, and kills what is left
        b = Candidate("--lock", path + ".lock", "-c", "exit 0", command="exec")
        b.leave()
    ok(wait_for(lambda: not alive(own)), f"{how}: a daemon that the command became is dead")
    same(daemon.living(), [work], f"{how}: what another daemon does for it goes on")
    daemon.end()


def begins(daemon: Daemon) -> None:
    """The page's way: what an earlier term may have left on this machine is ended first."""
    lock = os.path.join(HOME, "begins.lock")
    for term in 1, 2:
        before = daemon.living()
        line = f"{daemon.ask('end')}; {daemon.ask('start')}; exec sleep 100000"
        a = Candidate("--lock", lock, "-c", line, command="exec")
        (now,) = wait_for(lambda: [p for p in daemon.living() if p not in before])
        same(daemon.living(), [now], f"term {term}: one work runs")
        a.kill(signal.SIGKILL)
        a.leave()
    daemon.end()


the_daemon = Daemon()
try:
    for one in "clean stop", "lost lease", "elector killed", "guard killed", "both killed":
        ends(the_daemon, one)
    begins(the_daemon)
finally:
    the_daemon.end()
    stop_everyone()
done()

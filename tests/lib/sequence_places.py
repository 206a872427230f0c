"""Where the locks of a random sequence (tests/cluster/sequences) are, and what happens to them there.

Not the electors: sequence_play.py starts these. Used by it."""

import fcntl
import json
import os
import subprocess
from typing import Any

from tests.lib.processes import new_directory
from tests.lib.proxy import Proxy
from tests.lib.stores import Etcd, File


class Unfit(Exception):
    """This cannot be done here."""


class FilePlace(File):
    """In a file system of its own, if this is root: it can be full, or read-only."""

    def __init__(self) -> None:
        self.top = new_directory()
        self.own = os.geteuid() == 0
        if self.own:
            subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k,mode=0700", "tmpfs", self.top], check=True)
        self.dir = os.path.join(self.top, "locks")
        os.mkdir(self.dir)
        self.held: list[Any] = []

    @property
    def locks(self) -> str:
        return f"file:{self.dir}/"

    def hurt(self, what: str) -> None:
        if what == "away":
            os.rename(self.dir, self.dir + ".away")
        elif what == "slow":
            for key in "abc":
                f = open(os.path.join(self.dir, f".{key}.lock"), "a")
                fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self.held.append(f)
        elif not self.own:
            raise Unfit("needs root")
        elif what == "full":
            with open(os.path.join(self.top, "junk"), "wb", buffering=0) as junk:
                try:
                    while True:
                        junk.write(b"\0" * 4096)
                except OSError:
                    pass
        elif subprocess.run(["mount", "-o", "remount,ro", self.top], stderr=subprocess.DEVNULL).returncode:
            raise Unfit("is in use")

    def mend(self) -> None:
        if self.own:
            subprocess.run(["mount", "-o", "remount,rw", self.top], check=True)
        for f in self.held:
            f.close()
        self.held = []
        if os.path.exists(os.path.join(self.top, "junk")):
            os.unlink(os.path.join(self.top, "junk"))
        if os.path.exists(self.dir + ".away"):
            if os.path.isdir(self.dir):  # made anew meanwhile
                subprocess.run(["rm", "-rf", self.dir], check=True)
            os.rename(self.dir + ".away", self.dir)

    def end(self) -> None:
        if self.own:
            subprocess.run(["umount", "--lazy", self.top], check=True)
        subprocess.run(["rm", "-rf", self.top], check=True)


class EtcdPlace(Etcd):
    """On a server that is there already, through a proxy of its own. The alarm for a full store is raised by hand."""

    def __init__(self, port: int, prefix: str) -> None:
        self.port, self.prefix, self.root, self.user = port, prefix, None, None
        self.way = Proxy(port)
        self.full = False

    @property
    def locks(self) -> str:
        return f"etcd://127.0.0.1:{self.way.port}/{self.prefix}"

    def put(self, key: str, content: bytes) -> None:
        super().put(self.prefix + key, content)

    def get(self, key: str) -> bytes | None:
        return super().get(self.prefix + key)

    def delete(self, key: str) -> None:
        super().delete(self.prefix + key)

    def alarm(self, action: str) -> None:
        member = self.call("maintenance/status")["header"]["member_id"]
        self.call("maintenance/alarm", action=action, memberID=member, alarm="NOSPACE")

    def hurt(self, what: str) -> None:
        if what == "away":
            self.way.freeze()
        elif what == "slow":
            self.way.delay(0.3)
        elif what == "full":
            self.full = True
            self.alarm("ACTIVATE")
        else:
            raise Unfit("not there")

    def mend(self) -> None:
        self.way.thaw()
        self.way.heal()
        if self.full:
            self.alarm("DEACTIVATE")
        self.full = False

    def end(self) -> None:
        self.mend()
        self.way.close()


def holder(content: bytes | None) -> str | None:
    """Whom a record names; None: it is no record."""
    try:
        found = json.loads(content or b"")
        return str(found["holderIdentity"])
    except (ValueError, KeyError, TypeError):
        return None


def emptied(content: bytes | None) -> bytes:
    """As a person frees a record."""
    try:
        found = json.loads(content or b"")
        found["holderIdentity"] = ""
        return json.dumps(found).encode()
    except (ValueError, TypeError):
        return b""

"""Stores as the conformance cases need them: started, reached into behind the runtime's back, hurt. One class each."""
import os, shutil, sys
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import scratch
from proxy import Proxy


class Store:
    name = "?"
    rounds = 1000           # of the race; where that takes a minute, CI does fewer and `make test-full` all
    revisions = True        # a version never comes back, whatever is done to the key
    watches = True
    notices_by_hand = True  # also of what is done to the record without the runtime
    env = {}
    port = None

    def holds(self, content):
        return True

    def proxy(self):
        return Proxy(self.port)

    def repair(self):
        pass

    def end(self):
        pass


class File(Store):
    name = "file"

    def __init__(self):
        self.dir = scratch()

    def path(self, key):
        return os.path.join(self.dir, key)

    def url(self, key, through=None):
        return "file:" + self.path(key)

    def keys(self):
        return ["plain", "with space", "k\u00e4se \u540d", "a%2Fb", "q'uo\"te", "dash-", "x" * 150]

    def put(self, key, content):
        with open(self.path(key) + ".by-hand", "wb") as f:
            f.write(content)
        os.rename(f.name, self.path(key))

    def get(self, key):
        try:
            with open(self.path(key), "rb") as f:
                return f.read()
        except FileNotFoundError:
            return None

    def delete(self, key):
        try:
            os.unlink(self.path(key))
        except FileNotFoundError:
            pass

    def end(self):
        shutil.rmtree(self.dir)

#!/usr/bin/env -S PYTHONPATH=. python3
"""A contender that is kazoo's Election and nothing else: the peer that make bench measures beside Lunarch.
kazoo_election.py HOSTS PATH: says "leading" when it leads; on SIGTERM it releases the lock and ends."""

import signal
import sys
import threading

from kazoo.client import KazooClient

over = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: over.set())
client = KazooClient(hosts=sys.argv[1], timeout=15)
client.start()


def lead() -> None:
    print("leading", flush=True)
    over.wait()


client.Election(sys.argv[2]).run(lead)
client.stop()

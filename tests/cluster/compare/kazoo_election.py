#!/usr/bin/env -S PYTHONPATH=. python3
"""A leader of make compare that is kazoo's Election, which is its Lock with a function that runs while it is held.
https://kazoo.readthedocs.io/en/latest/api/recipe/election.html: run(function). Its lock is lost with the session, so
the program listens to the connection's state, and its work ends when that is SUSPENDED or LOST:
https://kazoo.readthedocs.io/en/latest/basic_usage.html, "Listening for Connection Events".
kazoo_election.py HOSTS PATH DIR NAME obedient|busy [COMMAND...]. With a command it starts that instead of acting."""

import os
import struct
import subprocess
import sys
import time

from kazoo.client import KazooClient, KazooState

hosts, path, directory, name, kind, *command = sys.argv[1:]
losses = 0


def listen(state: str) -> None:
    global losses
    losses += state != KazooState.CONNECTED


def lead() -> None:
    before = losses
    if command:
        child = subprocess.Popen(command)
        while child.poll() is None and losses == before:
            time.sleep(0.01)
        child.terminate()
        child.wait()
        return
    with open(f"{directory}/{name}.{os.getpid()}.{time.monotonic_ns()}.acts", "ab", buffering=0) as acts:
        while not os.path.exists(f"{directory}/{name}.finish") and (kind == "busy" or losses == before):
            acts.write(struct.pack("d", time.monotonic()))
            time.sleep(0.01)


client = KazooClient(hosts=hosts, timeout=15)
client.add_listener(listen)
client.start()
client.Election(path, name).run(lead)
client.stop()

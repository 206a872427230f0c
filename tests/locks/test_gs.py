#!/usr/bin/env -S PYTHONPATH=. python3
"""The lock in Google Cloud Storage passes the conformance suite on fake-gcs-server; that it lasts, on the one with a
disk. Its own cases, on a storage that goes wrong: test_gs_own.py."""

import sys

from tests.lib import lock_cases
from tests.lib.lock_cases import BASIC, NETWORK, REPEATED, SERVER, missed_notices, run
from tests.lib.stores import Gcs, GcsOnDisk
from tests.lib.tap import at_once, done


def in_memory() -> None:
    store = Gcs()
    unnoticed = [c for c in NETWORK if c is not missed_notices]  # there are no notices
    run(store, [getattr(lock_cases, name) for name in sys.argv[1:]] or BASIC + unnoticed + REPEATED)
    store.end()


def on_disk() -> None:
    store = GcsOnDisk()
    run(store, SERVER)
    store.end()


if sys.argv[1:]:
    in_memory()
else:
    at_once(in_memory, on_disk)
done()

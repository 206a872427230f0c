#!/usr/bin/env -S PYTHONPATH=. python3
"""A lock file of a user's own passes the conformance suite: Box, by its own scheme and by a lua: URL."""

import os
import sys

from tests.lib import lock_cases
from tests.lib.lock_cases import BASIC, NETWORK, REPEATED, SERVER, full, read_only, run
from tests.lib.stores import Box
from tests.lib.tap import done

only = [getattr(lock_cases, n) for n in sys.argv[1:]]
store = Box()
os.environ.update(store.env)  # of the racers
run(store, only or BASIC + NETWORK + SERVER + REPEATED + [read_only, full])
store.end()
if not only:
    store = Box(named=False)
    run(store, [lock_cases.examined, lock_cases.next_record])
    store.end()
done()

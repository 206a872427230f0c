#!/usr/bin/env -S PYTHONPATH=. python3
"""The etcd lock passes the conformance suite (users, TLS, clusters: test_etcd_own.py)."""

import sys

from tests.lib import lock_cases
from tests.lib.lock_cases import BASIC, NETWORK, REPEATED, SERVER, run
from tests.lib.stores import Etcd
from tests.lib.tap import done

store = Etcd()
run(store, [getattr(lock_cases, name) for name in sys.argv[1:]] or [*BASIC, *NETWORK, *REPEATED, *SERVER])
store.end()
done()

#!/usr/bin/env python3
"""The etcd lock passes the conformance suite (users, TLS, clusters: test_etcd_own.py)."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import lock_cases
from lock_cases import BASIC, NETWORK, REPEATED, SERVER, run
from stores import Etcd
from tap import done

store = Etcd()
run(store, [getattr(lock_cases, name) for name in sys.argv[1:]] or [*BASIC, *NETWORK, *REPEATED, *SERVER])
store.end()
done()

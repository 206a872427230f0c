#!/usr/bin/env python3
"""The etcd lock passes the conformance suite (users, TLS, clusters: test_etcd_own.py)."""
import sys
import cases
from cases import BASIC, NETWORK, SERVER, replayed, run
from stores import Etcd
from harness import done

store = Etcd()
run(store, [getattr(cases, name) for name in sys.argv[1:]] or [*BASIC, *NETWORK, replayed, *SERVER])
store.end()
done()

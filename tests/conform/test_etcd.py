#!/usr/bin/env python3
"""The etcd lock passes the conformance suite."""
import cases
from cases import BASIC, NETWORK, SERVER, run
from stores import Etcd
from harness import done
import sys

store = Etcd()
run(store, [getattr(cases, n) for n in sys.argv[1:]] or BASIC + NETWORK + SERVER)
store.end()
done()

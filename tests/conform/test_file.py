#!/usr/bin/env python3
"""The file lock passes the conformance suite (its own faults are in tests/unit/test_lock_file.c)."""
from cases import BASIC, run
from stores import File
from harness import done

store = File()
run(store, BASIC)
store.end()
done()

#!/usr/bin/env python3
"""The file lock passes the conformance suite, by rename and by link (its own faults are in tests/unit/test_lock_file.c)."""
from cases import BASIC, run
from stores import File, SharedFile
from harness import done

for store in File(), SharedFile():
    run(store, BASIC)
    store.end()
done()

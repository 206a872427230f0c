#!/usr/bin/env -S PYTHONPATH=. python3
"""The file lock passes the conformance suite, by rename and by link (its own faults are in
tests/unit/locks/file/test_lock_file.c)."""


from tests.lib.lock_cases import BASIC, run
from tests.lib.stores import File, SharedFile
from tests.lib.tap import done

for store in File(), SharedFile():
    run(store, BASIC)
    store.end()
done()

#!/usr/bin/env python3
"""The file lock passes the conformance suite, by rename and by link (its own faults are in
tests/unit/locks/file/test_lock_file.c)."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from lock_cases import BASIC, run
from stores import File, SharedFile
from tap import done

for store in File(), SharedFile():
    run(store, BASIC)
    store.end()
done()

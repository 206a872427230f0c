#!/usr/bin/env -S PYTHONPATH=. python3
"""Pokes on an S3 (SeaweedFS)."""

import os

from tests.lib.candidates import stop_everyone
from tests.lib.poke_cases import play
from tests.lib.stores import S3
from tests.lib.tap import done

store = S3()
os.environ.update(store.env)
try:
    play(store)
finally:
    stop_everyone()
    store.end()
done()

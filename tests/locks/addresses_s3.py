#!/usr/bin/env -S PYTHONPATH=. python3
"""As tests/cluster/faults/addresses.py, on S3."""


from tests.lib import store_addresses
from tests.lib.stores import S3

store_addresses.run(lambda place: [lambda: store_addresses.by_name(place, S3)])

#!/usr/bin/env -S PYTHONPATH=. python3
"""As tests/cluster/faults/addresses.py, on Google Cloud Storage's stand-in."""


from tests.lib import store_addresses
from tests.lib.stores import Gcs

store_addresses.run(lambda place: [lambda: store_addresses.by_name(place, Gcs)])

#!/usr/bin/env -S PYTHONPATH=. python3
"""As tests/cluster/faults/addresses.py, on Azure Blob Storage's stand-in."""


from tests.lib import store_addresses
from tests.lib.stores import AzureBlob

store_addresses.run(lambda place: [lambda: store_addresses.by_name(place, AzureBlob)])

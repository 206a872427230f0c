#!/usr/bin/env python3
"""As tests/cluster/faults/addresses.py, on S3."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import store_addresses
from stores import S3

store_addresses.run(lambda place: [lambda: store_addresses.by_name(place, S3)])

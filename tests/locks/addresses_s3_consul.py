#!/usr/bin/env python3
"""As tests/cluster/faults/addresses.py, on S3 and Consul."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import addresses
from stores import S3, Consul

addresses.run(lambda place: [lambda kind=kind: addresses.by_name(place, kind()) for kind in (S3, Consul)])  # type: ignore

#!/usr/bin/env python3
"""A name with addresses that do not answer, and a name that moves: whoever can be reached is found, on etcd, Redis,
PostgreSQL, ZooKeeper and MariaDB."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import addresses
from stores import Etcd, MariaDB, Postgres, Redis, ZooKeeper

ALL = (Etcd, Redis, Postgres, ZooKeeper, MariaDB)
addresses.run(lambda place: [lambda kind=kind: addresses.by_name(place, kind()) for kind in ALL])  # type: ignore

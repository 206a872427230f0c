#!/usr/bin/env python3
"""A name with addresses that do not answer, and a name that moves: whoever can be reached is found, on etcd, Redis,
PostgreSQL, ZooKeeper and MariaDB."""

import os
import sys
from functools import partial
from typing import Any

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import store_addresses
from stores import Etcd, MariaDB, Postgres, Redis, ZooKeeper

ALL: tuple[Any, ...] = (Etcd, Redis, Postgres, ZooKeeper, MariaDB)
store_addresses.run(lambda place: [partial(store_addresses.by_name, place, kind) for kind in ALL])

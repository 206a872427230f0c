#!/usr/bin/env -S PYTHONPATH=. python3
"""A name with addresses that do not answer, and a name that moves: whoever can be reached is found, on etcd, Redis,
PostgreSQL, ZooKeeper and MariaDB."""

from functools import partial
from typing import Any

from tests.lib import store_addresses
from tests.lib.stores import Etcd, MariaDB, Postgres, Redis, ZooKeeper

ALL: tuple[Any, ...] = (Etcd, Redis, Postgres, ZooKeeper, MariaDB)
store_addresses.run(lambda place: [partial(store_addresses.by_name, place, kind) for kind in ALL])

#!/usr/bin/env -S PYTHONPATH=. python3
"""Slots (`exec --slots N`, `slots = N` in a script) on a file and on servers. Arguments: names of stores."""

import sys
from typing import Any

from tests.lib import slot_cases
from tests.lib.candidates import stop_everyone
from tests.lib.stores import Etcd, File, Postgres, Redis, ZooKeeper
from tests.lib.tap import done

STORES: dict[str, Any] = {"file": File, "etcd": Etcd, "redis": Redis, "postgres": Postgres, "zookeeper": ZooKeeper}

for name in sys.argv[1:] or STORES:
    store = STORES[name]()
    slot_cases.run(store)
    stop_everyone()
    store.end()
done()

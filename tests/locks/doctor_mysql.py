#!/usr/bin/env python3
"""lunarch doctor --full calls the lock in MariaDB fit."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from full_doctor import doctor, passes
from stores import MariaDB
from tap import done, same

store = MariaDB()
passes(doctor("--lock", store.url("d")), "MariaDB", notes=("watch",))
left = store.server.sql("SELECT COUNT(*) FROM test.lunarch_locks WHERE name <> ''")
same(left, "0", "MariaDB: nothing of the examination stays")
store.end()
done()

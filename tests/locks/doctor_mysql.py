#!/usr/bin/env -S PYTHONPATH=. python3
"""lunarch doctor --full calls the lock in MariaDB fit."""


from tests.lib.full_doctor import doctor, passes
from tests.lib.stores import MariaDB
from tests.lib.tap import done, same

store = MariaDB()
passes(doctor("--lock", store.url("d")), "MariaDB", notes=("watch",))
left = store.server.sql("SELECT COUNT(*) FROM test.lunarch_locks WHERE name <> ''")
same(left, "0", "MariaDB: nothing of the examination stays")
store.end()
done()

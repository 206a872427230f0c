#!/usr/bin/env -S PYTHONPATH=. python3
"""No two leaders on MariaDB, whatever happens to leader, standbys, record, connections and server."""


from tests.lib.arena import ELECTORS, contest
from tests.lib.stores import MariaDB

contest(MariaDB(), ELECTORS)

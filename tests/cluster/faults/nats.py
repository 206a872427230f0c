#!/usr/bin/env -S PYTHONPATH=. python3
"""No two leaders on NATS, whatever happens to leader, standbys, record, connections and server."""


from tests.lib.arena import contest
from tests.lib.stores import Nats

contest(Nats())

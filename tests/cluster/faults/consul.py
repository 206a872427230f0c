#!/usr/bin/env -S PYTHONPATH=. python3
"""No two leaders on Consul, whatever happens to leader, standbys, record, connections and server."""


from tests.lib.arena import contest
from tests.lib.stores import Consul

contest(Consul())

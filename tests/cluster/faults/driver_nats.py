#!/usr/bin/env -S PYTHONPATH=. python3
"""No two leaders, whatever happens to the drivers of the lock in NATS: killed, stopped and slowed at any moment."""


from tests.lib.driver_arena import contest
from tests.lib.stores import Nats

contest(Nats())

#!/usr/bin/env -S PYTHONPATH=. python3
"""No two leaders, whatever happens to the drivers of the lock in DynamoDB (Dynalite); they are
killed, stopped and slowed at any moment."""

from tests.lib.driver_arena import contest
from tests.lib.stores import DynamoDB

contest(DynamoDB())

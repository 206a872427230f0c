#!/usr/bin/env python3
"""No two leaders, whatever happens to the drivers of a lock in Lua (the tests' Box); they are
killed, stopped and slowed at any moment."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from driver_arena import contest
from stores import Box

contest(Box())

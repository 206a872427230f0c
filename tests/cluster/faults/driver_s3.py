#!/usr/bin/env python3
"""No two leaders, whatever happens to the drivers of the lock in S3 (SeaweedFS); they are
killed, stopped and slowed at any moment."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from driver_arena import contest
from stores import S3

contest(S3())

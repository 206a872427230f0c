#!/usr/bin/env python3
"""No two leaders on MariaDB, whatever happens to leader, standbys, record, connections and server."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from arena import contest
from stores import MariaDB

contest(MariaDB())

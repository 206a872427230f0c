#!/usr/bin/env python3
"""No two leaders on zookeeper, whatever happens to leader, standbys, record, connections and server."""
import os, sys
TESTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
sys.path[:0] = [TESTS, os.path.join(TESTS, "conform")]
from arena import contest
from stores import ZooKeeper

contest(ZooKeeper())

#!/usr/bin/env python3
"""lunarch doctor --full calls the Consul lock fit."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from full_doctor import doctor, passes
from stores import Consul
from tap import done, same

store = Consul()
passes(doctor("--lock", store.url("d")), "Consul")
same(store.call("GET", "/v1/kv/?keys"), [], "Consul: nothing of the examination stays")
store.end()
done()

#!/usr/bin/env -S PYTHONPATH=. python3
"""lunarch doctor --full calls the Consul lock fit."""


from tests.lib.full_doctor import doctor, passes
from tests.lib.stores import Consul
from tests.lib.tap import done, same

store = Consul()
passes(doctor("--lock", store.url("d")), "Consul")
same(store.call("GET", "/v1/kv/?keys"), [], "Consul: nothing of the examination stays")
store.end()
done()

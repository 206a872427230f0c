#!/usr/bin/env -S PYTHONPATH=. python3
"""The NATS lock passes the conformance suite on nats-server (make test-stores builds it), and its own cases."""

import os
import sys

from tests.lib import lock_cases
from tests.lib.cloud_servers import built
from tests.lib.lock_cases import BASIC, NETWORK, REPEATED, SERVER, run
from tests.lib.stores import Nats
from tests.lib.tap import done, skip


def conformance() -> None:
    store = Nats()
    run(store, [getattr(lock_cases, name) for name in sys.argv[1:]] or [*BASIC, *NETWORK, *REPEATED, *SERVER])
    store.end()


if not os.path.exists(built("nats", "nats-server")):
    skip("the NATS lock", "nats-server is not built: make test-stores does")
    done()
    sys.exit()
conformance()
done()

#!/usr/bin/env -S PYTHONPATH=. python3
"""The file lock passes the conformance suite, by rename and by link (its own faults are in
tests/unit/locks/file/test_lock_file.c); and it works where the user's descriptors of inotify are used up."""

import os
import subprocess

from tests.lib.asked import Asked, candidate, until
from tests.lib.candidates import stop_everyone
from tests.lib.lock_cases import BASIC, run
from tests.lib.processes import scratch
from tests.lib.stores import File, SharedFile
from tests.lib.tap import done, ok

LIMIT = "/proc/sys/user/max_inotify_instances"  # of a user namespace
NO_INOTIFY = ["unshare", "--user", "--map-root-user", "sh", "-c", f'echo 0 >{LIMIT} && exec "$@"', "sh"]


def watches(c: Asked) -> bool:
    return bool(c.status()["store"]["watching"])


def test_no_inotify(lock: str) -> None:
    a = candidate(lock, "ann", "-e", "sleep(1e6)", prefix=NO_INOTIFY)
    a.event("became_leader")
    said = a.event("watch_refused")["message"]
    ok(
        os.path.dirname(lock) in said and "fs.inotify.max_user_instances" in said,
        "without a descriptor of inotify a candidate leads, and the log names directory and limit",
        said,
    )
    ok(not watches(a), "status says that it does not watch")
    b = candidate(lock, "bob", "-e", "sleep(1e6)", prefix=NO_INOTIFY)
    b.event("new_leader")
    subprocess.run(
        ["nsenter", "--user", "--target", str(b.pid), "--preserve-credentials", "sh", "-c", f"echo 9 >{LIMIT}"],
        check=True,
    )
    ok(until(lambda: watches(b)), "it does as soon as there is one again")
    a.stop()
    ok(b.wait("became_leader"), "and the next one leads")
    stop_everyone()


for store in File(), SharedFile():
    run(store, BASIC)
    store.end()
test_no_inotify(os.path.join(scratch(), "lock"))
done()

#!/usr/bin/env -S PYTHONPATH=. python3
"""This checkout in a Debian 13: built there with no warning, and each unit test. With a COMMAND: that instead, at the
checkout's root there (make test-trixie). Needs root, debootstrap, a mirror."""

import os
import sys
from concurrent.futures import ThreadPoolExecutor

from tests.lib.debian import Workshop, needs
from tests.lib.tap import done, note, ok, retell

AT_ONCE = 4


def unit(workshop: Workshop, program: str) -> None:
    """Each of its sentences is one of this test."""
    r = workshop.ask("tests/lib/job.sh", "plain:" + program)
    retell(program.rpartition("unit/")[2], r.stdout, r.returncode, r.stderr[-1500:])


needs("debootstrap")
workshop = Workshop("trixie")
if sys.argv[1:]:
    for fd in workshop.inherited:
        os.set_inheritable(fd, True)  # whoever ends this ends the command, and then the Debian is free
    command = workshop.enter(*sys.argv[1:])
    os.execvp(command[0], command)
note(workshop.run("sh", "-c", "gcc --version | head -n 1; ldd --version | head -n 1; cat /etc/debian_version"))
built = workshop.ask("sh", "-c", "make -j $(nproc) all unit-programs")
if not ok(built.returncode == 0, "it is built, and no warning is left", (built.stdout + built.stderr)[-3000:]):
    done()
programs = workshop.run("find", "build/tests/unit", "-type", "f", "-perm", "-100").split()
ok(len(programs) > 70, f"(unit tests: {len(programs)})")
with ThreadPoolExecutor(AT_ONCE) as pool:
    list(pool.map(lambda p: unit(workshop, p), sorted(programs)))
done()

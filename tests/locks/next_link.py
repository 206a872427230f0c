#!/usr/bin/env -S PYTHONPATH=. python3
"""Candidates that agree who comes next, on a real etcd: the sentences of tests/unit/election/test_next_link.c, which
has them for a file."""

import os
import shutil
import subprocess
import sys
import tempfile

from tests.lib.stores import Etcd

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")

store = Etcd()
build = os.path.abspath(os.path.join(ROOT, os.environ.get("BUILD", "build")))
with tempfile.TemporaryDirectory() as where:  # a program finds its modules beside it
    program = shutil.copy(os.path.join(build, "tests/unit/election/test_next_link"), where)
    os.symlink(os.path.join(build, "modules"), os.path.join(where, "modules"))
    status = subprocess.run([program], env={**os.environ, "LUNARCH_NEXT_URL": store.url("lock")}).returncode
store.end()
sys.exit(status)

#!/usr/bin/env python3
"""The S3 lock passes the conformance suite on SeaweedFS, also with a full disk, and on moto. Its own cases, on an S3
that goes wrong: test_s3_own.py."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from lock_cases import BASIC, NETWORK, REPEATED, SERVER, full, missed_notices, run
from stores import FullS3, MotoS3, S3
from tap import at_once, done

UNNOTICED = [c for c in NETWORK if c is not missed_notices]  # there are no notices


def seaweed() -> None:
    store = S3()
    os.environ.update(store.env)
    run(store, BASIC + UNNOTICED + REPEATED + SERVER)
    store.end()


def moto() -> None:
    store = MotoS3()
    os.environ.update(store.env)
    run(store, BASIC)
    store.end()


def full_disk() -> None:
    store = FullS3()
    os.environ.update(store.env)
    run(store, [full, full, full])
    store.end()


at_once(seaweed, moto, full_disk)
done()

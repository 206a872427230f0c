#!/usr/bin/env -S PYTHONPATH=. python3
"""The lock in Azure Blob Storage passes the conformance suite on Azurite, by the account's key; doctor says that it is
fit by a SAS, and over TLS by a machine's identity, too. Its own cases, on a storage that goes wrong:
test_azblob_own.py."""

import json
import os
import subprocess
import sys

from tests.lib import cloud_servers, lock_cases
from tests.lib.fake_s3 import Web
from tests.lib.lock_cases import BASIC, NETWORK, REPEATED, SERVER, missed_notices, run
from tests.lib.pki import Pki
from tests.lib.processes import LUNARCH, PATIENCE, scratch
from tests.lib.stores import AzureBlob
from tests.lib.tap import at_once, done, ok

UNNOTICED = [c for c in NETWORK if c is not missed_notices]  # there are no notices
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith("AZURE_")}


def conformance() -> None:
    store = AzureBlob()
    os.environ.update(store.env)
    run(store, [getattr(lock_cases, name) for name in sys.argv[1:]] or BASIC + UNNOTICED + REPEATED + SERVER)
    store.end()


def doctor(url: str, env: dict[str, str]) -> tuple[int, str]:
    command = [LUNARCH, "doctor", "--lock", url]
    p = subprocess.run(command, env={**CLEAN, **env}, capture_output=True, text=True, timeout=PATIENCE)
    return p.returncode, p.stdout + p.stderr


def by_sas() -> None:
    store = AzureBlob()
    status, said = doctor(store.url("sas"), {"AZURE_STORAGE_SAS_TOKEN": cloud_servers.Azurite.sas("rcwdl")})
    ok(status == 0 and "is fit" in said, "a SAS of the container: fit", said)
    status, said = doctor(store.url("sas"), {"AZURE_STORAGE_SAS_TOKEN": cloud_servers.Azurite.sas("r")})
    ok(status != 0 and "AuthorizationPermissionMismatch" in said, "one to read alone: it is said what is missing", said)
    store.end()


def by_token() -> None:
    pki = Pki(scratch())
    store = AzureBlob(tls=(pki.ca, *pki.server()))
    answer = json.dumps({"access_token": cloud_servers.Azurite.token(), "expires_in": "86399"}).encode()
    with Web(lambda asked: (200, answer, {})) as machine:
        url = store.url("token").replace("http%3A", "https%3A") + f"&ca={pki.ca}"
        status, said = doctor(url, {"AZURE_POD_IDENTITY_AUTHORITY_HOST": machine.url})
        ok(status == 0 and "is fit" in said, "a machine's identity, over TLS: fit", said)
    store.end()


if sys.argv[1:]:
    conformance()
else:
    at_once(conformance, by_sas, by_token)
done()

#!/usr/bin/env python3
"""lunarch doctor --full calls the S3 lock fit, on SeaweedFS."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from full_doctor import doctor, passes
from stores import S3
from tap import done

store = S3()
# A text without a write's name is refused, and there are no notices.
passes(doctor("--lock", store.url("d"), **store.env), "S3", notes=("foreign", "watch"))
store.end()
done()

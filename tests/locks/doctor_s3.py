#!/usr/bin/env -S PYTHONPATH=. python3
"""lunarch doctor --full calls the S3 lock fit, on SeaweedFS."""


from tests.lib.full_doctor import doctor, passes
from tests.lib.stores import S3
from tests.lib.tap import done

store = S3()
# A text without a write's name is refused, and there are no notices.
passes(doctor("--lock", store.url("d"), **store.env), "S3", notes=("foreign", "watch"))
store.end()
done()

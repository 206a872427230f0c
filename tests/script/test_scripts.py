#!/usr/bin/env -S PYTHONPATH=. /usr/bin/python3
"""Runs tests/script/scripts/*.lua inside a worker, each three times: plainly, and with the collector at work all the
time."""

import os
from typing import Any

from tests.lib.player import END, EXIT, SCRIPTS, Worker
from tests.lib.tap import ok, run

OTHERS = ("tap.lua", "waits_while_loading.lua", "http_client.lua", "mysql_client.lua")  # other tests run these


def run_script(name: str, mode: Any) -> None:
    with Worker(os.path.join(SCRIPTS, name + ".lua"), *mode) as w:
        w.ready()
        w.lead()
        kind, fields = w.receive(120)
        label = " ".join([name, *mode])
        for line in w.output().splitlines():
            if line.startswith("#"):
                print(line)
            elif " - " in line:
                ok(line.startswith("ok"), label + ": " + line.split(" - ", 1)[1])
        plan = [line for line in w.output().splitlines() if line.startswith("1..")]
        ok(
            kind == EXIT and fields["code"] == 0 and len(plan) == 1,
            label + ": runs to its end and says that all is well",
            "%d %r\n%s" % (kind, fields, w.log_text() if kind == END else ""),
        )


def main() -> None:
    names = sorted(n[:-4] for n in os.listdir(SCRIPTS) if n.endswith(".lua") and n not in OTHERS)
    tests = []
    for name in names:
        for mode in ([], ["gc"], ["generational"]):

            def test(name: str = name, mode: Any = mode) -> None:
                run_script(name, mode)

            test.__doc__ = "%s %s" % (name, mode)
            tests.append(test)
    run(tests)


main()

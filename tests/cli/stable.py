#!/usr/bin/env -S PYTHONPATH=. python3
"""What docs/compatibility.md calls stable is there: each name of tests/cli/stable.txt, which is asked of the program
itself and of the docs that are made of it or compared with it. A release adds what is new to the list:

    PYTHONPATH=. tests/cli/stable.py --add"""

import json
import os
import re
import sys
import urllib.request
from typing import Any

from tests.lib.asked import Asked
from tests.lib.candidates import stop_everyone
from tests.lib.commands import COMMANDS, run
from tests.lib.processes import ROOT, scratch, wait_for
from tests.lib.tap import done, ok, same

LIST = os.path.join(ROOT, "tests", "cli", "stable.txt")
SCRIPT = """
return { name = "job", address = "host:1", on_leading = function(term)
  term:save { step = 1 }
  print "leads"
  while true do sleep(1) end
end }
"""


def page(name: str) -> str:
    with open(os.path.join(ROOT, "docs", name)) as f:
        return f.read()


def section(text: str, title: str) -> str:
    return re.split(r"^## ", text.split(f"\n## {title}\n", 1)[1], maxsplit=1, flags=re.M)[0]


def said() -> set[str]:
    """The command line, and what the pages' tables name."""
    found = set()
    for command in COMMANDS:
        text = run(command, "--help").stdout
        found.add(f"command {command}")
        found |= {f"option {command} {o}" for o in re.findall(r"^ +(?:-\w )? *(--[a-z][a-z-]*)", text, re.M)}
        found |= {f"variable {command} {v}" for v in re.findall(r"^ +(LUNARCH_\w+)", text, re.M)}
    operations = page("operations.md")
    found |= {f"exit {n}" for n in re.findall(r"^\| (\d+)", section(operations, "Exit statuses"), re.M)}
    for row in re.findall(r"^\| (`.*?) \| (?:debug|info|warn|error)", section(operations, "Logs"), re.M):
        found |= {f"event {e}" for e in re.findall(r"`(\w+)`", row)}
    found |= {f"path {p}" for p in re.findall(r"^\| `(/\w*)` \|", section(operations, "Over HTTP"), re.M)}
    api, owner = page("api.md"), ""
    for heading, row in re.findall(r"^##+ (.*)|^\| `(\w+)` \|", api, re.M):
        if heading:
            owner = re.sub(r"\(.*|`", "", heading)
            found.add(f"api {owner}")
        else:
            found.add(f"api {owner} {row}")
    schemes = re.findall(r"^locks: (.*)$", run("--version").stdout, re.M)
    return found | {f"scheme {s}" for line in schemes for s in line.split()}


def keys(kind: str, value: Any, path: str = "") -> set[str]:
    """Of JSON: each key, with those above it. What is told of a situation (notes, reasons) is there in that alone."""
    if isinstance(value, list):
        return {k for item in value for k in keys(kind, item, path)}
    if not isinstance(value, dict) or path.endswith(("notes.", "reasons.")):
        return set()
    here = {f"{kind} {path}{k}" for k in value}
    return here.union(*(keys(kind, v, f"{path}{k}.") for k, v in value.items()))


def shown() -> set[str]:
    """What a leader and the commands print of it, as JSON and as metrics."""
    home = scratch()
    script, lock, state = (os.path.join(home, n) for n in ("job.lua", "lock", "state.json"))
    with open(script, "w") as f:
        f.write(SCRIPT)
    c = Asked("--lock", lock, "--state-file", state, script)
    wait_for(lambda: c.all("print", "leads") and c.all("became_leader"))

    def get(path: str) -> str:
        with urllib.request.urlopen(c.url + path) as answer:
            return str(answer.read().decode())

    def leads() -> Any:
        with open(state) as f:
            told = json.load(f)
        return told["elections"] and told["elections"][0]["leading"] and told

    with open(lock) as f:
        found = keys("record", json.load(f))
    found |= keys("state-file", wait_for(leads))
    for path in ("/status", "/history"):
        found |= keys(path, json.loads(get(path)))
    for command in (("status", "--lock", lock), ("history", "--lock", lock), ("list", home + "/")):
        found |= keys(command[0], json.loads(run(command[0], "--json", *command[1:]).stdout.splitlines()[0]))
    found |= keys("ctl-status", json.loads(run("ctl", "status", "--json", "--control", c.socket).stdout))
    for name, kind in re.findall(r"^# TYPE (\w+) (\w+)", get("/metrics"), re.M):
        found.add(f"metric {name} {kind}")
    for name, labels in re.findall(r"^(lunarch_\w+)\{([^}]*)\}", get("/metrics"), re.M):
        found |= {f"label {name} {label}" for label in re.findall(r"(\w+)=\"", labels)}
    for event in c.events:
        found |= {f"log {k}" for k in event if k not in ("seen",)}
    stop_everyone()
    return found


there = said() | shown()
if sys.argv[1:] == ["--add"]:
    with open(LIST) as f:
        listed = {line.strip() for line in f}
    with open(LIST, "w") as f:
        f.write("".join(line + "\n" for line in sorted(there | listed)))
    sys.exit()
with open(LIST) as f:
    promised = [line.strip() for line in f]
ok(len(promised) > 500, f"(the list has {len(promised)} names)")
for kind in sorted({p.split()[0] for p in promised}):
    gone = [p for p in promised if p.split()[0] == kind and p not in there]
    same(gone, [], f"{kind}: each of {sum(p.split()[0] == kind for p in promised)} is there")
done()

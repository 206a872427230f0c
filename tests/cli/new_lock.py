#!/usr/bin/env -S PYTHONPATH=. python3
"""new --lock: the lock file that it writes passes its test and check; check says what is wrong with a lock file."""

import atexit
import os
import shutil
import subprocess
from typing import Any

from tests.lib.processes import LUNARCH, scratch
from tests.lib.tap import done, note, ok, same

TMP = scratch()
atexit.register(shutil.rmtree, TMP, True)
PATH = os.path.join(TMP, "mystore.lua")


def lunarch(*args: str) -> Any:
    env = {k: v for k, v in os.environ.items() if not k.startswith("LUNARCH_")}
    return subprocess.run([LUNARCH, *args], capture_output=True, text=True, timeout=120, cwd=TMP, env=env)


def says(r: Any, status: int, *words: str, what: str) -> None:
    if not ok(r.returncode == status and all(w in r.stdout + r.stderr for w in words), what):
        note(f"status {r.returncode}\n{r.stdout}{r.stderr}")


says(
    lunarch("new", "--lock", "mystore"), 0, "mystore.lua", "mystore_test.lua", what="it writes a lock file and its test"
)
text = open(PATH).read()
ok("starter" not in text and 'scheme = "mystore"' in text, "which bear the name")
says(lunarch("test", "mystore_test.lua"), 0, what="the test passes")
says(lunarch("new", "--lock", "mystore"), 1, "there is one already", what="nothing is overwritten")
says(lunarch("new", "--lock", "My_Store"), 2, "small letters", what="a name that no URL can begin with is refused")
same(os.path.exists(os.path.join(TMP, "My_Store.lua")), False, "and nothing is written")
says(
    lunarch("check", PATH),
    0,
    "lock file",
    "mystore://",
    "open, read",
    "no problem found",
    what="check knows a lock file",
)
with open(PATH, "w") as f:
    f.write('local hash = require "lunarch.hash"\n' + text)
says(lunarch("test", "mystore_test.lua"), 1, "'lunarch.hash'", "stand-in", what="a test has no modules: it says so")
with open(PATH, "w") as f:
    f.write(text)
same("Environment" in lunarch("new", "--help").stdout, False, "its help has no heading with nothing below it")
says(lunarch("run", PATH), 1, "this is a lock file", "--lock", what="run says that it is no script")

for change, words in {
    ("write = function", "wrte = function"): ("'wrte'", "did you mean 'write'?"),
    ("open = function", "_ = function"): ("no key '_'",),
    ('scheme = "mystore"', 'scheme = "My Store"'): ("scheme", "small letters", "My Store"),
    ('host = "text"', 'host = "txt"'): ("host", "did you mean 'text'?"),
    ('scheme = "mystore"', 'scheme = { "mystore", "redis" }'): ("'redis'", "built in"),
    ("\nreturn {", "\nlocal it = {"): ("returns nothing", "a lock file ends with"),
    ("remove = function(store, key, op)", "remove = 1, key = function(store, key, op)"): ("mystore.lua",),
    ("return { server", "return { sever = undefined_name, server"): ("undefined_name", "line "),
}.items():
    with open(PATH, "w") as f:
        f.write(text.replace(*change))
    says(lunarch("check", PATH), 1, *words, what=f"check: {change[1].strip()}: is told")
with open(PATH, "w") as f:
    f.write(text.replace("open = function(place)", 'open = function(place)\n\t\tos.execute "true"', 1))
says(
    lunarch("check", PATH), 0, "os.execute", "share the driver", what="check: what blocks is told, as it is in a driver"
)
same("lost lease" in lunarch("check", PATH).stdout, False, "and not as in a script")
done()

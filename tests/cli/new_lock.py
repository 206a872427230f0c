#!/usr/bin/env -S PYTHONPATH=. python3
"""new --lock: the lock file that it writes passes its test and check; check says what is wrong with a lock file."""

import atexit
import os
import shutil

from tests.lib.commands import check, run
from tests.lib.processes import scratch
from tests.lib.tap import done, ok, same

TMP = scratch()
atexit.register(shutil.rmtree, TMP, True)
PATH = os.path.join(TMP, "mystore.lua")
os.chdir(TMP)


check(run("new", "--lock", "mystore"), 0, "mystore.lua", "mystore_test.lua", what="it writes a lock file and its test")
text = open(PATH).read()
ok("starter" not in text and 'scheme = "mystore"' in text, "which bear the name")
check(run("test", "mystore_test.lua"), 0, what="the test passes")
check(run("new", "--lock", "mystore"), 1, "there is one already", what="nothing is overwritten")
check(run("new", "--lock", "My_Store"), 2, "small letters", what="a name that no URL can begin with is refused")
same(os.path.exists(os.path.join(TMP, "My_Store.lua")), False, "and nothing is written")
check(
    run("check", PATH), 0, "lock file", "mystore://", "open, read", "no problem found", what="check knows a lock file"
)
with open(PATH, "w") as f:
    f.write('local hash = require "lunarch.hash"\n' + text)
check(run("test", "mystore_test.lua"), 1, "'lunarch.hash'", "stand-in", what="a test has no modules: it says so")
with open(PATH, "w") as f:
    f.write(text)
same("Environment" in run("new", "--help").stdout, False, "its help has no heading with nothing below it")
check(run("run", PATH), 1, "this is a lock file", "--lock", what="run says that it is no script")

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
    check(run("check", PATH), 1, *words, what=f"check: {change[1].strip()}: is told")
with open(PATH, "w") as f:
    f.write(text.replace("open = function(place)", 'open = function(place)\n\t\tos.execute "true"', 1))
check(run("check", PATH), 0, "os.execute", "share the driver", what="check: what blocks is told, as it is in a driver")
same("lost lease" in run("check", PATH).stdout, False, "and not as in a script")
done()

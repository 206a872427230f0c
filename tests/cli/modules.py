#!/usr/bin/env -S PYTHONPATH=. python3
"""Loadable modules: where they are looked for, and what is said of one that is missing, foreign, or lacks its
library."""

import os
import re
import shutil
import subprocess

from tests.lib.processes import LUNARCH, PATIENCE, scratch
from tests.lib.tap import done, note, ok

place = scratch()
program = os.path.join(place, "bin", "lunarch")
for directory in ("bin/modules", "lib/lunarch"):
    os.makedirs(os.path.join(place, directory))
shutil.copy(LUNARCH, program)
build = subprocess.run([program, "--version"], capture_output=True, text=True).stdout.split()[1]


def status(url: str, **env: str) -> tuple[int, str]:
    argv, environment = [program, "status", "--lock", url], {**os.environ, **env}
    p = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE, env=environment)
    return p.returncode, p.stderr


def compile_module(path: str, text: str, *libraries: str) -> None:
    source = os.path.join(place, "module.c")
    with open(source, "w") as f:
        f.write(text)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", path, source, *libraries], check=True)


code, text = status("redis://127.0.0.1/x")
ok(code == 69 and "its module redis.so" in text, "a module that is not installed is named")
note(text)

beside = os.path.join(place, "bin/modules/redis.so")
with open(beside, "w") as f:
    f.write("no shared object " * 100)
code, text = status("redis://127.0.0.1/x")
ok(code == 69 and beside in text and "invalid ELF header" in text, "a file that is no shared object is named")

FIELDS = "struct { const char *build; const void *locks; void *lua, *libraries; } "
compile_module(beside, FIELDS + 'const lunarch_module = { "another" };')
code, text = status("redis://127.0.0.1/x")
ok(code == 69 and "of another build (another)" in text and build in text, "a module of another build is refused")

compile_module(beside, FIELDS + 'const lunarch_module = { "%s" };' % build)
code, text = status("redis://127.0.0.1/x")
ok(code == 69 and "the module redis was built without it" in text, "a module of this build is taken")

library = os.path.join(place, "libhiredis.so")  # linked by a name that is nowhere
compile_module(library, "int gone(void) { return 1; }", "-Wl,-soname,libhiredis.so.none")
compile_module(beside, "int gone(void); int f(void) { return gone(); }", library)
code, text = status("redis://127.0.0.1/x")
ok(
    code == 69 and re.search(r"install libhiredis[\d.]+\)\. libhiredis\.so\.none: ", text),
    "a missing library is named with the package that brings it",
)
p = subprocess.run([program, "--version"], capture_output=True, text=True)
ok(p.returncode == 0 and re.search(r"module redis: .*apt-get install", p.stdout), "--version says so too")

real = os.path.join(os.path.dirname(LUNARCH), "modules/redis.so")
linked = subprocess.run(["ldd", real], capture_output=True, text=True, check=True).stdout
name = re.search(r"libhiredis\.so\S*", linked)
assert name
other = os.path.join(place, name.group())  # of that name, but without the functions
compile_module(other, "int other(void) { return 1; }", f"-Wl,-soname,{name.group()}")
built = os.path.join(place, "built")
os.makedirs(os.path.join(built, "modules"))
shutil.copy(LUNARCH, built)
shutil.copy(real, os.path.join(built, "modules"))
program = os.path.join(built, os.path.basename(LUNARCH))
code, text = status("redis://127.0.0.1:1/x", LD_LIBRARY_PATH=place)
ok(
    code == 69 and "cannot load" in text and "undefined symbol: redis" in text,
    "a library without a function that the module calls is found out when the module is opened, not when it is called",
)
note(text)
program = os.path.join(place, "bin", "lunarch")

os.rename(beside, os.path.join(place, "lib/lunarch/redis.so"))
code, text = status("redis://127.0.0.1/x")
ok("apt-get install libhiredis" in text, "an installed program finds its modules in ../lib/lunarch")
shutil.rmtree(place)
done()

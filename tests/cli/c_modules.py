#!/usr/bin/env -S PYTHONPATH=. python3
"""C modules that scripts load with require: they work on the program's Lua, and on no other."""

import os
import re
import shlex
import shutil
import subprocess

from tests.lib.commands import run
from tests.lib.processes import LUNARCH, PATIENCE, scratch
from tests.lib.tap import done, note, ok, same

place = scratch()


def pkg_config(what: str) -> list[str]:
    return subprocess.run(
        ["pkg-config", what, "lua5.4"], capture_output=True, text=True, check=True, timeout=PATIENCE
    ).stdout.split()


def script(text: str) -> tuple[int, list[str]]:
    """Its lines. They are printed while the script is loaded, so each is a line of the log."""
    path = os.path.join(place, "script.lua")
    with open(path, "w") as f:
        f.write(f"package.cpath = '{place}/?.so;' .. package.cpath\n{text}\nlunarch.exit(0)\n")
    p = run("run", "--log-format", "text", "--lock", os.path.join(place, "lock"), path)
    found = re.findall(r"^\S+ \S+ INFO +print: (.*)$", p.stderr, re.M)
    if p.returncode:
        note(p.stderr)
    return p.returncode, found


def functions() -> list[str]:
    """All that Lua's headers declare."""
    directory = next(f[2:] for f in pkg_config("--cflags") if f.startswith("-I"))
    found = []
    for name in ("lua.h", "lauxlib.h", "lualib.h"):
        with open(os.path.join(directory, name)) as f:
            found += re.findall(r"^LUA\w*_API [^;]*?\((lua\w*)\)\s*\(", f.read(), re.M)
    return sorted(set(found))


# For each function of Lua: whether it is in the object that `print` is in, which is the Lua that runs the script.
MODULE = """
#include <dlfcn.h>
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
static const struct { const char *name; void *function; } all[] = { %s };
int luaopen_%s(lua_State *L)
{
    Dl_info running, found;

    lua_newtable(L);
    lua_getglobal(L, "ipairs");
    dladdr((void *)lua_tocfunction(L, -1), &running);
    lua_pop(L, 1);
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++) {
        dladdr(all[i].function, &found);
        lua_pushboolean(L, found.dli_fbase == running.dli_fbase);
        lua_setfield(L, -2, all[i].name);
    }
    return 1;
}
"""


def compile_module(name: str, *libraries: str) -> None:
    source, path = os.path.join(place, name + ".c"), os.path.join(place, name + ".so")
    with open(source, "w") as f:
        f.write(MODULE % (", ".join('{ "%s", (void *)%s }' % (n, n) for n in functions()), name))
    compiler = shlex.split(os.environ.get("CC", "cc"))
    subprocess.run(
        [*compiler, "-D_GNU_SOURCE", "-shared", "-fPIC", *pkg_config("--cflags"), "-o", path, source, *libraries],
        check=True,
        timeout=PATIENCE,
    )


ASK = """
local elsewhere, n = {}, 0
for name, here in pairs(require "%s") do
    n = n + 1
    if not here then elsewhere[#elsewhere + 1] = name end
end
table.sort(elsewhere)
print(n, table.concat(elsewhere, " "))
"""


def every_function() -> None:
    names = functions()
    ok(len(names) > 100 and "lua_pcallk" in names and "luaL_checkversion_" in names, "Lua's headers are read", names)
    compile_module("plain")
    same(
        script(ASK % "plain"),
        (0, [f"{len(names)}\t"]),
        "a C module finds every function of Lua in the Lua that runs the script",
    )
    compile_module("linked", "-Wl,--no-as-needed", *pkg_config("--libs"))
    same(script(ASK % "linked"), (0, [f"{len(names)}\t"]), "so does one that was linked with a liblua of its own")


def packaged() -> None:
    status, lines = script(
        """
local cjson = require "cjson"
print(cjson.encode { 1, 2.5, { a = cjson.null } }, cjson.decode("[1, 2]")[2])
print(select(2, pcall(cjson.decode, "[")))
for line in io.lines "/proc/self/maps" do
    if line:find("liblua5%.4%.so") then print(line) end
end"""
    )
    ok(
        status == 0 and lines[0].startswith('[1,2.5,{"a":null}]\t2') and "Expected" in lines[1],
        "a module of the distribution (lua-cjson) works, and its errors arrive",
        lines,
    )
    linked = "liblua5.4" in subprocess.run(["ldd", LUNARCH], capture_output=True, text=True).stdout
    ok(linked or len(lines) == 2, "and brings no other Lua with it", lines)


every_function()
packaged()
shutil.rmtree(place)
done()

#!/usr/bin/env -S PYTHONPATH=. python3
"""docs/guide.md, docs/cookbook.md, docs/library.md and docs/testing.md are run: every script checked, every test passed
(and failed by a script that does nothing), every command executed; lunarch new; the API's one source, and that it
describes what there is."""

import os
import re
import shutil
import subprocess
from typing import Any

from tests.lib.processes import LUNARCH, ROOT, scratch
from tests.lib.tap import done, note, ok, same, skip

room = scratch()
tool = os.path.join(room, "bin")
os.mkdir(tool)
os.symlink(LUNARCH, os.path.join(tool, "lunarch"))
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith("LUNARCH")}
CLEAN["PATH"] = tool + ":" + CLEAN["PATH"]
IDLE = "return { on_leading = function() end }\n"


def run(*argv: str, cwd: str, **kw: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv, cwd=cwd, env=CLEAN, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, **kw
    )


def held(p: Any, what: str, good: bool = True) -> None:
    if not ok((p.returncode == 0) == good, what):
        note(f"status {p.returncode}\n{p.stdout}{p.stderr}")


def read(path: str) -> str:
    with open(os.path.join(ROOT, path)) as f:
        return f.read()


def write(path: str, text: str) -> None:
    with open(path, "w") as f:
        f.write(text)


def lock_of(script: str) -> str:
    return script + (".lock-{name}" if re.search(r"^ +name = |shards\.elections", read(script), re.M) else ".lock")


def page(path: str) -> None:
    name = os.path.basename(path)
    place = os.path.join(room, name)
    os.mkdir(place)
    scripts, commands = [], []
    for kind, text in re.findall(r"^```(\w*)\n(.*?)^```$", read(path), re.M | re.S):
        if kind == "sh":
            commands.append(text)
        elif kind == "lua":
            first = re.match(r"-- (\w+\.lua)\n", text)
            ok(first, f"{name}: a snippet says in its first line which file it is: {text.splitlines()[0]}")
            if first:
                scripts.append(first[1])
                write(os.path.join(place, first[1]), text)
    tests = [s for s in scripts if s.endswith("_test.lua")]
    ok(
        tests and (commands or name != "guide.md"), f"{name}: has tests, and the guide has commands"
    )  # a page that is read wrongly would have none
    for script in sorted(set(scripts) - set(tests)):
        held(
            run("lunarch", "check", "--lock", lock_of(os.path.join(place, script)), script, cwd=place),
            f"{name}: {script} is checked without a problem",
        )
    for test in tests:
        held(run("lunarch", "test", test, cwd=place), f"{name}: {test} passes")
    idle = os.path.join(place, "idle")
    os.mkdir(idle)
    for script in scripts:
        shutil.copy(os.path.join(place, script), idle) if script in tests else write(os.path.join(idle, script), IDLE)
    for test in tests:
        held(run("lunarch", "test", test, cwd=idle), f"{name}: {test} fails for a script that does nothing", good=False)
    for command in commands:
        held(run("sh", "-e", "-c", command, cwd=place), f"{name}: {command.strip().splitlines()[0]}")


page("docs/guide.md")
page("docs/cookbook.md")
page("docs/library.md")
page("docs/testing.md")

# CONTRIBUTING.md: a newcomer can do what it says.
text = read("CONTRIBUTING.md")
commands = "".join(re.findall(r"^```sh\n(.*?)^```$", text, re.M | re.S))
targets = set(re.findall(r"\bmake (?!-)([\w./-]+)", commands) + re.findall(r"`make ([\w-]+)", text))
made = read("Makefile")
made += "".join(read(included) for included in re.findall(r"^include (\S+)$", made, re.M))
made = made.replace("$(BUILD)", "build")
same(
    sorted(
        t
        for t in targets
        if not re.search(rf"^{re.escape(t)}:", made, re.M)
        and not os.path.exists(os.path.join(ROOT, t.removeprefix("build/") + ".c"))
    ),
    [],
    "CONTRIBUTING.md: the Makefile has every target that it names",
)
named = set(re.findall(r"`((?:runtime|lua|tests|scripts|packaging|docs|\.ci|\.clang)[\w./-]*)`", text))
named |= set(re.findall(r"^(tests/\S+)", commands, re.M)) | set(re.findall(r"\]\(([\w./]+)\)", text))
same(
    sorted(n for n in named if "NAME" not in n and not os.path.exists(os.path.join(ROOT, n))),
    [],
    "CONTRIBUTING.md: every file that it names is there",
)

# lunarch new
place = os.path.join(room, "new")
os.mkdir(place)
held(run("lunarch", "new", "nightly", cwd=place), "lunarch new writes a script and its test")
same(
    sorted(os.listdir(place)),
    [".luacheckrc", "nightly.lua", "nightly_test.lua"],
    "and the luacheck options that know the API",
)
text = "".join(open(os.path.join(place, f)).read() for f in ("nightly.lua", "nightly_test.lua"))
ok("starter" not in text and text.count("nightly") > 4, "they bear the new name")
held(run("lunarch", "check", "nightly.lua", cwd=place), "what it writes is checked without a problem")
held(run("lunarch", "test", "nightly_test.lua", cwd=place), "and its test passes")
if shutil.which("luacheck"):
    held(run("luacheck", "-q", ".", cwd=place), "and luacheck, with those options, finds nothing")
else:
    skip("and luacheck, with those options, finds nothing", "luacheck is not installed: scripts/deps.sh lint")
before = open(os.path.join(place, "nightly.lua")).read()
p = run("lunarch", "new", "nightly", cwd=place)
ok(
    p.returncode == 1 and "nightly.lua" in p.stderr and open(os.path.join(place, "nightly.lua")).read() == before,
    "nothing that is there is overwritten",
)
for bad in ("", "a b", "../x", "-"):
    same(run("lunarch", "new", bad, cwd=place).returncode, 2, f"a name like '{bad}' is refused")
held(run("lunarch", "new", "other.lua", cwd=place), "a name may end in .lua")
ok(os.path.exists(os.path.join(place, "other_test.lua")), "and means the same")

# The API.
held(
    run("lua5.4", "scripts/api.lua", "--check", cwd=ROOT),
    "docs/api.md and examples/.luacheckrc are what lua/meta says, and everything there is described",
)
p = run("lunarch", "help", "api", cwd=room)
same(p.stdout, read("docs/api.md"), "lunarch help api prints the whole of it")
p = run("lunarch", "help", "api", "term", cwd=room)
ok(
    p.returncode == 0 and "term:resign" in p.stdout and "json.encode" not in p.stdout,
    "lunarch help api term prints that part",
)
p = run("lunarch", "help", "api", "json.encode", cwd=room)
ok(
    p.returncode == 0 and "json.encode" in p.stdout and "json.decode" not in p.stdout,
    "lunarch help api json.encode prints that function",
)
p = run("lunarch", "help", "api", "on_leading", cwd=room)
same(
    (p.returncode, [line.split()[1] for line in p.stdout.splitlines()]),
    (0, ["Election", "`on_leading`", "Shards", "`on_leading`"]),
    "lunarch help api on_leading prints what is so called",
)
for name in ("lunarch.retry", "retry"):
    p = run("lunarch", "help", "api", name, cwd=room)
    ok(
        p.returncode == 0 and "retry.call" in p.stdout and "template" not in p.stdout,
        f"lunarch help api {name} prints a module of the library",
    )
p = run("lunarch", "help", "api", "nonsense", cwd=room)
ok(p.returncode == 2 and "nonsense" in p.stderr, "an unknown name is said")

# What there is, as a script sees it, against what is described: names on either side alone are errors.
described = set(re.findall(r"^### `([\w.:]+)\(", read("docs/api.md"), re.M))
modules = sorted(f[:-4] for f in os.listdir(os.path.join(ROOT, "lua", "lunarch")))
write(
    os.path.join(room, "names.lua"),
    """
local names, seen = {}, {}
local function add(prefix, t)
  for key, value in pairs(t) do
    if type(key) == "string" and type(value) == "function" and key:sub(1, 2) ~= "__" then names[prefix .. key] = true\
 end
  end
end
local function methods(prefix, object)
  local index = getmetatable(object) and getmetatable(object).__index or object
  if type(index) == "function" then
    for i = 1, 9 do
      local _, value = debug.getupvalue(index, i)
      if type(value) == "table" then add(prefix, value) end
    end
  else
    add(prefix, index)
  end
end
local standard = {}
for name in ("assert collectgarbage dofile error getmetatable ipairs load loadfile next pairs pcall print rawequal\
 rawget rawlen rawset require select "
  .. "setmetatable tonumber tostring type warn xpcall"):gmatch "%a+" do standard[name] = true end
for key, value in pairs(_G) do
  if type(value) == "function" and not standard[key] then names[key] = true end
end
local libraries = { string = 1, table = 1, math = 1, io = 1, os = 1, debug = 1, coroutine = 1, utf8 = 1, package = 1,\
 _G = 1, arg = 1 }
for key, value in pairs(_G) do
  if type(value) == "table" and not libraries[key] then
    local _ = key == "tasks" and value.scope or key == "http" and value.get
    add(key .. (key == "election" and ":" or "."), value)
  end
end
names["lunarch.exit"] = true
for name in ("MODULES"):gmatch "%a+" do add(name .. ".", require("lunarch." .. name)) end
for name in pairs(names) do
  local short = name:match "^lunarch%.(%a+)$" -- lunarch.sleep is sleep
  if short and rawget(_G, short) == lunarch[short] then names[name] = nil end
end
return {
  on_leading = function(term)
    methods("term:", term)
    methods("task:", spawn(function() end))
    methods("queue:", tasks.queue())
    local semaphore = tasks.semaphore(1)
    methods("semaphore:", semaphore)
    methods("permit:", semaphore:acquire())
    tasks.scope(function(scope) methods("scope:", scope) end)
    methods("child:", exec { "true", background = true })
    methods("Address:", require("lunarch.vip").new("192.0.2.1", "lo"))
    methods("Lock:", require("lunarch.lock").open("none:"))
    methods("Store:", require("lunarch.redis").connect("redis://127.0.0.1"))
    methods("Database:", require("lunarch.sql").connect("postgres://127.0.0.1"))
    methods("Credentials:", require("lunarch.aws").credentials())
    methods("GcpCredentials:", require("lunarch.gcp").credentials())
    methods("AzureCredentials:", require("lunarch.azure").credentials())
    methods("AzureStorage:", require("lunarch.azure").storage("account"))
    methods("Client:", require("lunarch.kube").connect { server = "http://127.0.0.1" })
    local list = {}
    for name in pairs(names) do list[#list + 1] = name end
    io.write(table.concat(list, "\\n"), "\\n")
    io.stdout:flush()
    lunarch.exit(0)
  end,
}
""".replace(
        "MODULES", " ".join(modules)
    ),
)
p = run("lunarch", "run", "--lock", os.path.join(room, "names-lock"), "--log-level", "error", "names.lua", cwd=room)
there = set(p.stdout.split())
held(p, "a script can list what it sees")
testing = {
    d for d in described if d.startswith("sim:") or d in ("test", "simulate", "expect", "equal", "matches", "raises")
}
same(sorted(there - described), [], "everything a script can call is described")
# There is no response, database or connection without a server, and no Next without another leader: tests/script has
# those.
responses = {
    d
    for d in described
    if d.startswith(("response:", "Next:", "MysqlDatabase:", "MysqlTransaction:", "TcpConnection:"))
}
same(sorted(described - there - testing - responses), [], "everything that is described is there")
write(
    os.path.join(room, "sim_test.lua"),
    """test("names", function()
  local sim = simulate { script = "names.lua" }
  for name in ("%s"):gmatch "[%%w_]+" do equal(type(sim[name]), "function", name) end
end)
"""
    % " ".join(d[4:] for d in testing if d.startswith("sim:")),
)
held(run("lunarch", "test", "sim_test.lua", cwd=room), "and so are the methods of sim")
CLEAN["LUNARCH"] = os.path.join(room, "lunarch")
for path in ("cli/options.py", "locks/test_file.py"):
    p = run(os.path.join("tests", path), cwd=ROOT)
    ok(
        re.search(r"is missing: `make.*` builds it$", p.stderr.strip()) and "Traceback" not in p.stderr,
        f"{path} says what to build first",
    )
shutil.rmtree(room)
done()

#!/usr/bin/env -S PYTHONPATH=. python3
"""The process that runs the script dies after the files have changed: the one that follows runs what the first has read
(the script, its modules, crontabs), and a reload takes the files of now. Two isolated elections run the same, too."""

import os
import signal
import subprocess
from collections.abc import Callable

from tests.lib.candidates import Candidate, stop_everyone
from tests.lib.processes import LUNARCH, children, scratch, wait_for
from tests.lib.tap import at_once, done, ok, same


class Place:
    """A directory with files, and a candidate that runs s.lua there."""

    def __init__(self, **files: str) -> None:
        self.dir = scratch()
        for name, text in files.items():
            self.put(name + ".lua", text)

    def path(self, name: str) -> str:
        return os.path.join(self.dir, name)

    def put(self, name: str, text: str) -> None:
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        with open(self.path(name) + ".new", "w") as f:
            f.write(text.replace("DIR", self.dir))
        os.rename(self.path(name) + ".new", self.path(name))

    def start(self, *options: str, script: str = "s.lua") -> Candidate:
        return Candidate("--lock", self.path("lock"), *options, self.path(script))


LEADS = ("print", "leads ")


def replaced(c: Candidate, event: tuple[str, str] = LEADS) -> Candidate:
    """When another process than now runs the script of c, which leads, and leads again; the event says so."""
    times = len(c.all(*event))
    c.kill(signal.SIGKILL, c.worker())
    c.event(*event, times + 1)
    return c


def reloaded(c: Candidate, event: tuple[str, str] = LEADS) -> Candidate:
    times = len(c.all(*event))
    c.kill(signal.SIGHUP)
    c.event(*event, times + 1)
    return c


def said(c: Candidate, about: str, count: int) -> str:
    """What it has printed for the so-many-th time with that word in front."""
    wait_for(lambda: len(c.said(about + " ")) >= count)
    messages = [str(e["message"]) for e in c.said(about + " ")]
    if len(messages) < count:
        c.log()
        raise RuntimeError(f"it has not printed '{about} ...' {count} times")
    return messages[count - 1].removeprefix(about + " ")


SCRIPT = """print("loaded VERSION")
return { on_leading = function() print("leads VERSION") end }
"""


def the_script() -> None:
    """Whatever happens to its file."""

    def emptied(p: Place) -> None:
        open(p.path("s.lua"), "w").close()

    def now_a_directory(p: Place) -> None:
        os.unlink(p.path("s.lua"))
        os.mkdir(p.path("s.lua"))

    harms: dict[str, Callable[[Place], None]] = {
        "was changed": lambda p: p.put("s.lua", SCRIPT.replace("VERSION", "two")),
        "was broken": lambda p: p.put("s.lua", "return {{"),
        "is half written": lambda p: os.truncate(p.path("s.lua"), len(SCRIPT) // 2),
        "was emptied": emptied,
        "was removed": lambda p: os.unlink(p.path("s.lua")),
        "is a directory": now_a_directory,
    }
    places = {what: Place(s=SCRIPT.replace("VERSION", "one")) for what in harms}
    all_of_them = {what: p.start() for what, p in places.items()}
    for what, c in all_of_them.items():
        said(c, "leads", 1)
        harms[what](places[what])
        c.kill(signal.SIGKILL, c.worker())
    for what, c in all_of_them.items():
        same((said(c, "loaded", 2), said(c, "leads", 2)), ("one", "one"), f"a script that {what}: goes on as it was")
    for what, c in all_of_them.items():
        if os.path.isdir(places[what].path("s.lua")):
            os.rmdir(places[what].path("s.lua"))
        places[what].put("s.lua", SCRIPT.replace("VERSION", "three"))
        c.kill(signal.SIGHUP)
    for what, c in all_of_them.items():
        same(said(c, "leads", 3), "three", f"a script that {what}: a reload takes the file")
        places[what].put("s.lua", SCRIPT.replace("VERSION", "four"))
    c = replaced(all_of_them["was changed"])
    same(said(c, "leads", 4), "three", "and what follows the new script's process runs that one")


MODULES = """package.path = "DIR/first/?.lua;" .. package.path
local function get(name)
  local good, value = pcall(require, name)
  return good and value or "-"
end
local names = { "same", "gone", "sub.shadowed", "absent", "again", "again" }
for i, name in ipairs(names) do names[i] = get(name) end
print("loaded " .. table.concat(names, " "))
return { on_leading = function() print("leads " .. get "lazy") end }
"""


def modules() -> None:
    """A rival leads at first, so that the hook runs, and asks for a module, after the files have changed."""
    p = Place(s=MODULES, same="return 'same1'", gone="return 'gone1'", lazy="return 'lazy1'")
    p.put("sub/shadowed.lua", "return 'shadowed1'")
    rival = Candidate("--lock", p.path("lock"), "-e", "print 'rival'")
    rival.event("became_leader")
    c = p.start()
    old = "same1 gone1 shadowed1 - - -"
    same(said(c, "loaded", 1), old, "modules are loaded")
    c.event("new_leader")
    p.put("same.lua", "return 'same2'")
    os.unlink(p.path("gone.lua"))
    p.put("first/sub/shadowed.lua", "return 'shadowed2'")
    p.put("absent.lua", "return 'absent2'")
    p.put("lazy.lua", "return 'lazy2'")
    rival.stop()
    same(said(c, "leads", 1), "lazy2", "one that is asked for later is read then")
    p.put("lazy.lua", "return 'lazy3'")
    replaced(c)
    same(
        said(c, "loaded", 2),
        old,
        "after its process has died: a module that was changed, one that was removed, one that another file stands"
        " before now, one that was not there: all as they were",
    )
    same(said(c, "leads", 2), "lazy2", "so is one that was asked for later")
    p.put("again.lua", "return 'again2'")
    replaced(c)
    same(said(c, "loaded", 3), "same1 gone1 shadowed1 - - again2", "who asks again for one that was not there gets it")
    os.unlink(p.path("again.lua"))
    replaced(c)
    same(said(c, "loaded", 4), "same1 gone1 shadowed1 - again2 again2", "and from then on it is as it was, too")
    reloaded(c)
    same(said(c, "loaded", 5), "same2 - shadowed2 absent2 - -", "a reload takes what is there now")
    same(said(c, "leads", 5), "lazy3", "and so do the new script's hooks")


BROKEN = """return { on_leading = function() print("leads " .. tostring(select(2, pcall(require, "m")))) end }"""


def broken_modules() -> None:
    """What cannot be compiled is of no use to anybody, so it is not kept."""
    p = Place(s=BROKEN, m="return {{")
    c = p.start()
    same(
        said(c, "leads", 1).splitlines()[0],
        f"error loading module 'm' from file '{p.path('m.lua')}':",
        "a module that cannot be compiled is an error",
    )
    ok(c.said(f"{p.path('m.lua')}:1: unexpected symbol"), "which names the line")
    p.put("m.lua", "#!/usr/bin/lua\nreturn debug.getinfo(1).source .. ' ' .. select(2, ...)")
    replaced(c)
    name = p.path("m.lua")
    same(said(c, "leads", 2), f"@{name} {name}", "it is read again when it is asked for again; and knows its file")
    p.put("m.lua", "return {{")
    replaced(c)
    same(said(c, "leads", 3), f"@{name} {name}", "now it is kept")


def too_large() -> None:
    p = Place(s='require "m"', m="return '" + 16 * 1024 * 1024 * "x" + "'")
    c = p.start()
    c.leave()
    ok(c.wait("load_failed", "module m: it is larger than 16 MB"), "a module has a bound, which is named", c.events)


ISOLATED = """local function exists(path)
  local file <close> = io.open(path)
  return file ~= nil
end
local m = require "m"
print("loaded VERSION " .. m)
if exists "DIR/next" then
  os.rename("DIR/next", "DIR/s.lua")
  os.remove "DIR/m.lua"
  os.rename("DIR/next_m", "DIR/m.lua")
end
local function election(name)
  return { name = name, lock = "DIR/" .. name, isolate = true,
    on_leading = function() print("leads " .. name .. " VERSION " .. m) end }
end
return { election "a", election "b" }
"""


def isolated() -> None:
    """Each has a process of its own. The first of all that load the script changes the files."""
    p = Place(s=ISOLATED.replace("VERSION", "one"), m="return 'm1'")
    p.put("next", ISOLATED.replace("VERSION", "two"))
    p.put("next_m", "return 'm2'")
    c = Candidate(p.path("s.lua"))
    for name in "a", "b":
        same(said(c, f"leads {name}", 1), "one m1", f"{name} runs what the first process has read")
    ok(not os.path.exists(p.path("next")), "(the files have changed before)")
    for guard in children(c.pid):
        for worker in children(guard):
            c.kill(signal.SIGKILL, worker)
    for name in "a", "b":
        same(said(c, f"leads {name}", 2), "one m1", f"{name} runs it after the death of its process, too")
    p.put("next", ISOLATED.replace("VERSION", "three"))
    p.put("next_m", "return 'm3'")
    c.kill(signal.SIGHUP)
    for name in "a", "b":
        same(said(c, f"leads {name}", 3), "two m2", f"{name}: so it is in a reload")


def in_cron(*args: str) -> subprocess.CompletedProcess[str]:
    argv = [LUNARCH, "cron", *args]
    return subprocess.run(argv, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)


def crontabs() -> None:
    """A job's exit status says which crontab it is from."""
    p = Place()

    def put(name: str, status: int) -> None:
        tab = f"MAILTO=''\n# lunarch: name={os.path.basename(name)}\n0 0 1 1 * exit {status}\n"
        p.put(name, tab)

    def statuses() -> list[int]:
        state = ("--state-dir", p.path("state"), "--lock", "jobs", "--wait")
        return [in_cron("run", *state, name).returncode for name in ("single", "changed", "removed", "added")]

    put("single", 11)
    put("tabs/changed", 12)
    put("tabs/removed", 13)
    files = (p.path("single"), p.path("tabs"))
    c = Candidate("--state-dir", p.path("state"), "--lock", "jobs", *files, command="cron")
    c.event("became_leader")
    old = [11, 12, 13, 1]
    ok(wait_for(lambda: statuses() == old), "jobs run", f"{statuses()}")
    os.unlink(p.path("single"))
    put("tabs/changed", 22)
    os.unlink(p.path("tabs/removed"))
    put("tabs/added", 24)
    replaced(c, ("became_leader", ""))
    ok(
        wait_for(lambda: statuses() == old),
        "after the death of the process that runs them, when crontabs were changed, removed and added: the same jobs",
        f"{statuses()}",
    )
    put("single", 21)
    c.kill(signal.SIGHUP)
    c.event("crontabs_taken")
    ok(wait_for(lambda: statuses() == [21, 22, 1, 24]), "a reload takes those of now", f"{statuses()}")


try:
    at_once(the_script, modules, broken_modules, too_large, isolated, crontabs)
finally:
    stop_everyone()
done()

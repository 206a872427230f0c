#!/usr/bin/env -S PYTHONPATH=. python3
"""make deb's packages in a Debian 12 of their own (debootstrap): made twice with the same bytes, installed, used,
upgraded while a term runs, purged. Needs root, debootstrap, a mirror."""

import glob
import hashlib
import os
import re
import subprocess
import tempfile

from tests.lib.debian import Machine, build, made, needs, run
from tests.lib.processes import ROOT, wait_for
from tests.lib.tap import done, note, ok, same

LATER = "99.0"
# Asks for a module that the program has not loaded yet, when it is told to.
SCRIPT = """return { on_leading = function(term)
  print("leading")
  while not io.open "/ask" do sleep(0.1) end
  print("http", pcall(function() return http.get "http://127.0.0.1:1/" end))
  print("asked", term:is_leading())
  while true do sleep(1) end
end }"""


def digests(files: dict[str, str]) -> dict[str, str]:
    found = {}
    for name, path in files.items():
        with open(path, "rb") as f:
            found[name] = hashlib.sha256(f.read()).hexdigest()
    return found


def installed(m: Machine, packages: dict[str, str]) -> None:
    before = m.packages()
    m.install(packages["lunarch"])
    more = sorted(set(m.packages()) - set(before))
    same(more, ["lua-cjson", "lunarch"], "the program brings one small package into the smallest Debian")
    version = m.run("lunarch", "--version").split()[1]
    ok(f"_{version}_" in packages["lunarch"], "--version is the package's")
    said = m.ask("lunarch", "status", "--lock", "postgres://nobody@127.0.0.1/x#y").stderr
    ok("lunarch-postgres" in said, "a lock whose package is missing names it")
    said = m.run(
        "lunarch", "run", "--lock", "one", "-e", "assert(term:save { a = 1 }) print(term:load().a) lunarch.exit(0)"
    )
    ok("became_leader" in said and "print: 1" in said, "a script leads, and saves a checkpoint")
    ok(not m.ask("getent", "passwd", "lunarch").stdout, "without systemd there is no user for its units")
    m.run("apt-get", "install", "-y", "-q", "--no-install-recommends", "systemd-standalone-sysusers")
    m.run("dpkg-reconfigure", "lunarch")
    ok(m.ask("getent", "passwd", "lunarch").stdout, "with systemd there is")
    m.install(*packages.values())
    lacks = re.findall(r"^module (\w+): (?:not installed|.*apt-get)", m.run("lunarch", "--version"), re.M)
    same(lacks, [], "with all packages every module loads")


def made_there(home: str) -> None:
    """By root, of another user's checkout with a change, in a Debian that has build-essential and nothing else."""
    m = Machine(os.path.join(home, "maker"), "--include=build-essential")
    run("git", "clone", "-q", "--no-local", ROOT, m.root + "/src")
    m.write("/src/docs/style.md", "changed\n")
    run("chown", "-R", "1000:1000", m.root + "/src")
    r = m.ask("make", "-C", "/src", "deb")
    if not ok(r.returncode == 0 and "/lunarch_" in r.stdout, "make deb works on a minimal Debian"):
        note(r.stdout[-3000:] + r.stderr[-3000:])


def documented(m: Machine) -> None:
    """Each relative link, and each picture, leads to a file of the package."""
    top = m.root + "/usr/share/doc/lunarch"
    links, lacks = 0, []
    for page in glob.glob(top + "/**/*.md*", recursive=True):
        with open(page, encoding="latin-1") as f:
            for to in re.findall(r"\]\((?!https?:|mailto:|#)([^)#\s]+)", f.read()):
                links += 1
                if not os.path.exists(os.path.join(os.path.dirname(page), to)):
                    lacks.append(f"{os.path.relpath(page, top)}: {to}")
    ok(links > 200, f"(the installed pages have links: {links})")
    same(lacks, [], "each relative link and picture of the installed pages leads to a file")


def upgraded(m: Machine, later: dict[str, str]) -> None:
    m.write("/script.lua", SCRIPT)
    argv = m.enter("lunarch", "run", "--lock", "two", "/script.lua")
    with open(os.path.join(m.root, "log"), "w") as log:
        elector = subprocess.Popen(argv, stdout=log, stderr=log)

    def says(word: str) -> bool:
        with open(os.path.join(m.root, "log")) as f:
            return word in f.read()

    ok(wait_for(lambda: says("leading")), "a term runs")
    m.install(*later.values())
    same(m.run("lunarch", "--version").split()[1], LATER, "every package is replaced")
    ok(elector.poll() is None and not says("stopped_leading"), "the term goes on")
    m.write("/ask", "")
    ok(wait_for(lambda: says("asked")), "the script goes on")
    ok(
        says("http.so is of another build (99.0)") and says("start this program again"),
        "a module of the new version is refused by name, with what to do",
    )
    ok(says("asked\ttrue") and not says("stopped_leading"), "and the term goes on")
    elector.kill()
    elector.wait()


def purged(m: Machine, packages: dict[str, str]) -> None:
    owned = [line for name in packages for line in m.run("dpkg", "-L", name).split() if line not in ("/.", "")]
    ours = [path for path in owned if "lunarch" in path and os.path.lexists(m.root + path)]
    ok(len(ours) > 50, "(the packages have files)")
    m.run("apt-get", "purge", "-y", "-q", *packages)
    same([path for path in ours if os.path.lexists(m.root + path)], [], "a purge removes all that is theirs")


needs("debootstrap")
home = tempfile.mkdtemp(prefix="lunarch-deb-")
try:
    first, second = made(), build(os.path.join(home, "second"))
    same(digests(first), digests(second), "made twice the packages have the same bytes")
    newer = build(os.path.join(home, "newer"), LATER)
    note(", ".join(f"{name} {os.path.getsize(path) // 1024} kB" for name, path in sorted(first.items())))
    made_there(home)
    machine = Machine(os.path.join(home, "root"))
    installed(machine, first)
    documented(machine)
    upgraded(machine, newer)
    purged(machine, newer)
finally:
    subprocess.run(["rm", "-rf", "--one-file-system", home])
done()

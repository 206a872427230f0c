#!/usr/bin/env -S PYTHONPATH=. python3
"""make install and uninstall, into a directory of their own; and scripts/deps.sh for people who are not root."""

import os
import re
import shutil
import subprocess

from tests.lib.processes import LUNARCH, PATIENCE, ROOT, scratch
from tests.lib.tap import done, ok, same

HOME = scratch()
os.chmod(HOME, 0o755)
TREE = os.path.join(HOME, "opt", "lunarch")
PLAIN = {k: v for k, v in os.environ.items() if not k.startswith(("LUNARCH_", "MAKE", "MFLAGS"))}


def make(target: str) -> subprocess.CompletedProcess[str]:
    """What is built is taken as it is (-o all): the test before this one may have been built with other flags."""
    return subprocess.run(
        ["make", "-s", "-o", "all", "-o", "build/lunarch", target, f"DESTDIR={HOME}", "PREFIX=/opt/lunarch"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=PLAIN,
        timeout=600,
    )


def files() -> list[str]:
    return sorted(os.path.relpath(os.path.join(base, f), TREE) for base, _, names in os.walk(TREE) for f in names)


def modules(program: str) -> list[tuple[str, str]]:
    return re.findall(
        r"^module (\w+): (?!not installed)(.*)",
        subprocess.run([program, "--version"], capture_output=True, text=True, cwd="/").stdout,
        re.M,
    )


def installing() -> None:
    r = make("install")
    same((r.returncode, r.stdout + r.stderr), (0, ""), "make install is silent")
    program = os.path.join(TREE, "bin", "lunarch")
    there = files()
    ok(
        {
            "bin/lunarch",
            "share/bash-completion/completions/lunarch",
            "share/zsh/site-functions/_lunarch",
            "share/fish/vendor_completions.d/lunarch.fish",
            "share/man/man1/lunarch.1",
            "share/man/man1/lunarch-exec.1",
            "share/man/man7/lunarch-script.7",
        }
        <= set(there),
        "program, completion and manual pages are where they belong",
    )
    built = sorted(f for f in os.listdir(os.path.join(ROOT, "build", "modules")) if f.endswith(".so"))
    same(
        [f for f in there if f.startswith("lib/lunarch/")],
        [f"lib/lunarch/{m}" for m in built],
        "and every module that was built",
    )
    ok(
        modules(program) and modules(program) == modules(LUNARCH),
        "the installed program finds its modules and their libraries, from anywhere",
    )
    with open(os.path.join(ROOT, "build", "flags")) as f:
        shared = f.read().endswith(" shared\n")
    needed = subprocess.run(["ldd", program], capture_output=True, text=True, timeout=PATIENCE).stdout
    same(
        [library in needed for library in ("libc.", "liblua5.4.", "libev.", "libjansson.")],
        [True, shared, shared, shared],
        "Lua, libev and jansson are in the program (but with SHARED=1)",
    )
    r = subprocess.run(
        [program, "run", "--lock", HOME + "/lock", "-e", "print(term.token) lunarch.exit(0)"],
        capture_output=True,
        text=True,
        cwd="/",
        env={**PLAIN, "PATH": "/usr/bin:/bin"},
        timeout=PATIENCE,
    )
    ok(r.returncode == 0 and "became_leader" in r.stderr, "it runs a script: what it needs is in it")
    r = subprocess.run(
        [
            "bash",
            "-c",
            f". {TREE}/share/bash-completion/completions/lunarch; COMP_WORDS=({program} sta) COMP_CWORD=1; _lunarch; "
            f"echo ${{COMPREPLY[*]}}",
        ],
        capture_output=True,
        text=True,
        env=PLAIN,
        timeout=PATIENCE,
    )
    same(r.stdout.strip(), "status", "the installed completion works with it")
    with open(os.path.join(TREE, "lib", "lunarch", "other.conf"), "w") as f:
        f.write("of somebody else")
    r = make("uninstall")
    same((r.returncode, r.stdout + r.stderr), (0, ""), "make uninstall is silent")
    same(files(), ["lib/lunarch/other.conf"], "and removes what is ours, and nothing else")


def as_nobody(argv: list[str], env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    become = (
        [shutil.which("setpriv") or "setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
        if os.geteuid() == 0
        else []
    )
    return subprocess.run([*become, *argv], capture_output=True, text=True, env=env, cwd="/", timeout=PATIENCE)


def of_another_user() -> None:
    """A checkout of another user, as root's build of somebody's clone is one; and one without git."""
    export, clone = os.path.join(HOME, "export"), os.path.join(HOME, "clone")
    shutil.copytree(ROOT, export, ignore=shutil.ignore_patterns(".git", "build"))
    shutil.copytree(export, clone)
    commit = (
        "git init -q && git add -A && git -c user.name=a -c user.email=a@b commit -q -m all"
        " && git rev-parse --short HEAD"
    )
    head = subprocess.run(commit, shell=True, cwd=clone, capture_output=True, text=True, check=True).stdout.strip()
    if os.geteuid() == 0:
        subprocess.run(["chown", "-R", "65534:65534", clone], check=True)
    subprocess.run(["make", "-s", "build/version.h"], cwd=clone, check=True, env=PLAIN)
    with open(os.path.join(clone, "build", "version.h")) as f:
        ok("+" + head in f.read(), "in another user's checkout the version has the commit")
    said = subprocess.run(["lua5.4", "scripts/words.lua"], cwd=clone, capture_output=True, text=True)
    same((said.returncode, said.stderr), (0, ""), "lint and format are told its files")
    lint = subprocess.run([export + "/scripts/lint.sh"], capture_output=True, text=True, timeout=PATIENCE)
    ok(lint.returncode and "not a git repository" in lint.stderr, "where git says nothing, lint says so", lint.stderr)


def asking_for_packages() -> None:
    """Nothing is installed as far as this dpkg can see, and there is no other tool than these."""
    tools, empty = os.path.join(HOME, "tools"), os.path.join(HOME, "dpkg")
    os.makedirs(tools)
    os.makedirs(empty)
    for name in ("dpkg-query", "id", "env"):
        os.symlink(shutil.which(name) or name, os.path.join(tools, name))
    for name in ("scripts/deps.sh", "runtime/modules.txt"):
        os.makedirs(os.path.join(HOME, os.path.dirname(name)))
        shutil.copy(os.path.join(ROOT, name), os.path.join(HOME, name))
    script = os.path.join(HOME, "scripts", "deps.sh")
    env = {"PATH": tools, "DPKG_ADMINDIR": empty}
    r = as_nobody(["/bin/sh", script], env)
    ok(
        r.returncode == 1
        and "apt-get install gcc libc6-dev make" in r.stderr
        and "liblua5.4-dev" in r.stderr
        and "neither root nor sudo" in r.stderr,
        "without root and sudo the missing packages are named, as a line to type",
    )
    sudo = os.path.join(tools, "sudo")
    with open(sudo, "w") as f:
        f.write(f'#!/bin/sh\n[ "$1" = -n ] && shift\n[ "$1" = true ] || echo "$*" >> {HOME}/asked\n')
    os.chmod(sudo, 0o755)
    os.chmod(HOME, 0o777)
    r = as_nobody(["/bin/sh", script], env)
    with open(HOME + "/asked") as f:
        asked = f.read()
    ok(
        r.returncode == 0 and "apt-get update" in asked and re.search(r"apt-get install .*gcc libc6-dev make", asked),
        "with sudo it installs them",
    )
    r = subprocess.run(
        [os.path.join(ROOT, "scripts", "deps.sh")], capture_output=True, text=True, env=PLAIN, timeout=PATIENCE
    )
    same((r.returncode, r.stdout + r.stderr), (0, ""), "where nothing is missing it says nothing, and needs no right")


def building_without_packages() -> None:
    r = subprocess.run(
        ["make", f"BUILD={HOME}/build"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**PLAIN, "PKG_CONFIG_LIBDIR": "/nonexistent"},
        timeout=PATIENCE,
    )
    same(
        (r.returncode, len(r.stderr.splitlines()), "`make deps`" in r.stderr),
        (2, 1, True),
        "make without the packages names make deps, in one line",
    )


installing()
building_without_packages()
asking_for_packages()
of_another_user()
shutil.rmtree(HOME, ignore_errors=True)
done()

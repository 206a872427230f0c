#!/usr/bin/env -S PYTHONPATH=. python3
"""Completion in bash, zsh and fish: the same lines in each real shell."""

import atexit
import json
import os
import pty
import re
import shutil
import subprocess

from tests.lib.candidates import Candidate, stop_everyone
from tests.lib.commands import COMMANDS
from tests.lib.processes import LUNARCH, PATIENCE, ROOT, scratch, socket_name, wait_for
from tests.lib.tap import done, note, ok, same, skip

TMP = scratch()
HERE = os.path.join(TMP, "here")
STATE = os.path.join(TMP, "state")
SCRIPT = os.path.join(TMP, "two.lua")
atexit.register(shutil.rmtree, TMP, True)
atexit.register(stop_everyone)
# Not what this machine's users have set up for their shells.
ENV = {k: v for k, v in os.environ.items() if not k.startswith(("LUNARCH_", "XDG_", "ZDOTDIR"))}
ENV |= {"PATH": os.path.dirname(LUNARCH) + ":" + os.environ["PATH"], "HOME": TMP, "TERM": "dumb", "LC_ALL": "C.UTF-8"}
ENV["LUNARCH_LOCKS_DIR"] = os.path.join(TMP, "locks")


def bash(lines: list[str]) -> list[list[str]]:
    script = [
        f"source {ROOT}/packaging/completion/lunarch.bash",
        "[[ $(complete -p lunarch) = *_lunarch* ]] || echo none >&2",
    ]
    for line in lines:
        words = " ".join(repr(w) for w in re.split(r"(?<=\S)(?=[=:])|(?<=[=:])(?=[^=:])| ", line))
        script.append(f"COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _lunarch")
        script.append('printf "%s\\n" "${COMPREPLY[@]}"; echo end')
    return parts(["bash", "-uc", "\n".join(script)])


def fish(lines: list[str]) -> list[list[str]]:
    script = [f"source {ROOT}/packaging/completion/lunarch.fish"]
    for line in lines:
        script.append(f"complete -C '{line}'; echo end")
    return parts(["fish", "--private", "-c", "\n".join(script)])


def parts(argv: list[str]) -> list[list[str]]:
    r = subprocess.run(argv, capture_output=True, text=True, cwd=HERE, env=ENV, timeout=5 * PATIENCE)
    same(r.stderr, "", f"{argv[0]} takes the file without a word")
    found: list[list[str]] = [[]]
    for line in r.stdout.splitlines():
        if line == "end":
            found.append([])
        elif line:
            found[-1].append(line.split("\t")[0])
    return found[:-1]


# The matches go to a file, and no menu into the terminal. With -O, -A and -D compadd only answers the function that
# called it.
ZSH = r"""
fpath=(%(functions)s $fpath)
autoload -U compinit && compinit -D -u
zstyle ':completion:*' verbose yes
compadd() {
    if [[ ${@[1,(i)(-|--)]} == *-(O|A|D)\ * ]]; then
        builtin compadd "$@"
        return
    fi
    local -a found
    builtin compadd -A found "$@"
    (($#found)) && print -rl -- $found >> $FOUND
    builtin compadd "$@"
}
finished() { print -r -- end >> $FOUND; compstate[insert]= compstate[list]=; }
first() { comppostfuncs=(finished); }
compprefuncs=(first)
ask() { compprefuncs=(first); zle list-choices; BUFFER=; }
zle -N ask
bindkey '^I' ask
print ready >> $FOUND
"""


def zsh(lines: list[str]) -> list[list[str]]:
    """In a terminal, since zsh completes nowhere else. A line is typed when the one before it is answered."""
    functions = os.path.join(TMP, "functions")
    os.mkdir(functions)
    shutil.copy(os.path.join(ROOT, "packaging", "completion", "lunarch.zsh"), os.path.join(functions, "_lunarch"))
    begin, found = os.path.join(TMP, "begin.zsh"), os.path.join(TMP, "found")
    with open(begin, "w") as f:
        f.write(ZSH % {"functions": functions})
    open(found, "w").close()
    ours, theirs = pty.openpty()
    p = subprocess.Popen(
        ["zsh", "-f", "-i"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=HERE,
        env={**ENV, "FOUND": found},
        start_new_session=True,
    )
    os.close(theirs)
    shown = subprocess.Popen(  # so that the terminal does not fill up
        ["cat"], stdin=ours, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    got = lambda: open(found).read()  # noqa: E731
    os.write(ours, f"source {begin}\n".encode())
    ready = wait_for(lambda: "ready\n" in got())
    for i, line in enumerate(lines if ready else []):
        os.write(ours, line.encode() + b"\t")
        if not wait_for(lambda: got().count("end\n") > i):
            break
    p.kill()
    p.wait()
    shown.kill()
    if got().count("end\n") != len(lines):
        note(str(shown.communicate()[0][-2000:]))
    os.close(ours)
    return [part.splitlines() for part in got().partition("ready\n")[2].split("end\n")[:-1]]


def whole(shell: str, line: str, offered: list[str]) -> list[str]:
    """The values, as they are when the line is completed. bash leaves away what it has split off, zsh a file's
    directory; fish writes the option again, and offers what is similar where nothing begins as the word does."""
    word = line.rsplit(" ", 1)[-1]
    option = word.partition("=")[0] + "=" if word.startswith("--") and "=" in word else ""
    value = word.removeprefix(option)
    if shell == "bash" and ":" in value:
        offered = [value.rpartition(":")[0] + ":" + o for o in offered]
    if shell == "zsh":
        offered = [o.replace("\\ ", " ") for o in offered]
        offered = [o if "/" in o else value.rpartition("/")[0] + "/" + o for o in offered] if "/" in value else offered
    if shell == "fish":
        offered = [o.removeprefix(option) for o in offered if o.removeprefix(option).startswith(value)]
    return sorted({o if o.endswith("://") else o.rstrip("/") for o in offered})


def options_of(command: str) -> list[str]:
    r = subprocess.run([LUNARCH, command, "--help"], capture_output=True, text=True, env=ENV, timeout=PATIENCE)
    return sorted(re.findall(r"^  (?:-\w|  ) (--[a-z-]+)", r.stdout.split("\nOptions:\n")[1].split("\n\n")[0], re.M))


def test_lines() -> None:
    lines: dict[str, list[str]] = {
        "lunarch ": [*COMMANDS, "help", "--help", "--version"],
        "lunarch st": ["status"],
        "lunarch run --reta": [],
        "lunarch run --leader-elect-resource-lock lea": ["leases"],
        "lunarch exec --restart on": ["on-loss"],
        "lunarch run --lock-": [],
        "lunarch run --ret": ["--retry-period"],
        "lunarch leader --ret": [],
        "lunarch run --log-format j": ["json"],
        "lunarch run --log-level=d": ["debug"],
        "lunarch exec -E ": ["75"],
        "lunarch exec --lease-duration=": ["15s"],
        "lunarch status --lock pos": ["postgres://", "postgresql://"],
        "lunarch status --lock=postgres:": ["postgres://"],
        "lunarch status --lock cons": ["consul://", "consuls://"],
        "lunarch status --lock myst": ["mystore://"],
        "lunarch doctor --fu": ["--full"],
        "lunarch new --lo": ["--lock"],
        "lunarch run --identity ": [],
        "lunarch ctl re": ["reload", "resign", "resume"],
        "lunarch run ": ["a.lua", "a_test.lua", "b c.lua", "sub"],
        "lunarch run --once b": ["b c.lua"],
        "lunarch test ": ["a_test.lua", "sub"],
        "lunarch run --state-dir ": ["sub"],
        "lunarch run --control n": ["n.txt"],
        "lunarch run --control=n": ["n.txt"],
        "lunarch run a.lua -- n": ["n.txt"],
        "lunarch exec --lock x unshar": ["unshare"],
        "lunarch exec --once --lock x -- unshar": ["unshare"],
        "lunarch exec --lock x cat n": ["n.txt"],
        "lunarch help st": ["status"],
        "lunarch help api term:res": ["term:resign"],
        "lunarch help api on_stopp": ["on_stopped", "on_stopping"],
        "lunarch doctor ": options_of("doctor"),
        f"lunarch ctl --state-dir {STATE} --election ": ["first", "second"],
        f"lunarch ctl --state-dir={STATE} --election s": ["second"],
        f"lunarch ctl --state-dir {STATE} --control ": [f"{STATE}/ctl/{socket_name(elector.pid)}"],
        f"lunarch ctl --state-dir {STATE} why {SCRIPT[:-2]}": [SCRIPT],
        f"lunarch ctl --state-dir {STATE} --lock {TMP}/n": [],
        f"lunarch ctl --state-dir {STATE} --lock file:{TMP}/lock-f": [f"file:{TMP}/lock-first"],
        "lunarch nonsense x": [],
    }
    for command in COMMANDS:
        lines[f"lunarch {command} --"] = options_of(command)
    for shell in (bash, fish, zsh):
        if not shutil.which(shell.__name__):
            skip(f"{shell.__name__} answers every line", f"{shell.__name__} is not installed")
            continue
        got = shell(list(lines))
        same(len(got), len(lines), f"{shell.__name__} answers every line")
        for (line, wanted), offered in zip(lines.items(), got):
            shown = line.replace(TMP, "").replace(str(elector.pid), "PID")
            same(whole(shell.__name__, line, offered), sorted(wanted), f"{shell.__name__}: {shown}")


os.makedirs(os.path.join(HERE, "sub"))
os.mkdir(ENV["LUNARCH_LOCKS_DIR"])
open(os.path.join(ENV["LUNARCH_LOCKS_DIR"], "mystore.lua"), "w").close()
for name in ("a.lua", "a_test.lua", "b c.lua", "n.txt"):
    open(os.path.join(HERE, name), "w").close()
with open(SCRIPT, "w") as f:
    elections = (
        f"{{ name = '{name}', lock = {json.dumps(f'{TMP}/lock-{name}')}, on_leading = function() end }}"
        for name in ("first", "second")
    )
    f.write(f"return {{ {', '.join(elections)} }}\n")
elector = Candidate("--state-dir", STATE, SCRIPT)
ok(elector.wait("became_leader", count=2), "two elections run")
test_lines()
done()

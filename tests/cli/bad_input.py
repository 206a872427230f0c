#!/usr/bin/env -S PYTHONPATH=. python3
"""Bad input, each kind by name: the error says which file, key and value, nothing is lost, and nobody leads by
mistake."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from typing import Any

from tests.lib.candidates import Candidate, stop_everyone
from tests.lib.commands import CLEAN, run
from tests.lib.processes import LUNARCH, PATIENCE, piped, scratch, wait_for
from tests.lib.tap import at_once, done, note, ok, same, skip

TMP = scratch()
os.chmod(TMP, 0o755)
ROOT_USER = os.geteuid() == 0
MAPPED = [] if ROOT_USER else ["--user", "--map-root-user"]
LEAD = (
    "return { on_leading = function(t) print('leads', t.token) end, on_stopped = function(t, why) print('stopped', "
    "why) end }"
)
RECORD = {
    "holderIdentity": "somebody",
    "leaseDurationSeconds": 15,
    "acquireTime": "2020-01-02T03:04:05Z",
    "renewTime": "2020-01-02T03:04:06Z",
    "leaderTransitions": 3,
}


def room(name: str) -> str:
    """A directory of the scenario's own."""
    path = os.path.join(TMP, name)
    os.mkdir(path)
    return path


def says(r: subprocess.CompletedProcess[str], status: int, words: list[str], what: str) -> None:
    good = r.returncode == status and all(w in r.stderr for w in words) and "leads" not in r.stderr + r.stdout
    if not ok(good, what):
        note(f"status {r.returncode}, wanted {status} and {words}\n{r.stdout}{r.stderr}")


def content(path: str) -> Any:
    """What is at a path: bytes, or what kind of thing."""
    if os.path.islink(path):
        return os.readlink(path)
    if os.path.isdir(path):
        return sorted(os.listdir(path))
    with open(path, "rb") as f:
        return f.read()


# ---- the record ----


def bad_record(name: str, words: list[str], put: Any, event: str = "foreign_record", prefix: Any = ()) -> None:
    lock = os.path.join(room("record-" + name.replace(" ", "-")), "lock")
    put(lock)
    before = content(lock)
    c = Candidate("--lock", lock, "-e", LEAD, prefix=prefix, env={"LUNARCH_LOG_LEVEL": ""})
    said = c.wait(event)
    if not ok(
        said and all(w in said["message"] for w in (lock, *words)), f"a record that is {name}: run names it and says so"
    ):
        c.log()
    for options, what in ((["-n"], "-n"), (["--wait", "1s"], "--wait")):
        r = subprocess.run(
            [*prefix, LUNARCH, "exec", *options, "--lock", lock, "--", "echo", "ran"],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            env=CLEAN,
            cwd="/",
        )
        if not ok(
            r.returncode == 69 and not r.stdout and all(w in r.stderr for w in (lock, *words)),
            f"a record that is {name}: exec {what} gives up with 69, and runs nothing",
        ):
            note(f"{r.returncode} {r.stdout}{r.stderr}")
    same(c.stop(), 0, f"a record that is {name}: run stops as always")
    ok(
        content(lock) == before and not c.all("became_leader"),
        f"a record that is {name}: it is as it was, and nobody has led",
    )


def write(data: Any) -> Any:
    def put(path: str) -> None:
        with open(path, "wb") as f:
            f.write(data if isinstance(data, bytes) else json.dumps(data).encode())

    return put


def unreadable(path: str) -> None:
    write(RECORD)(path)
    os.chmod(path, 0)


def bad_records() -> None:
    whole = json.dumps(RECORD).encode()
    bad_record("empty", ["is empty"], write(b""))
    bad_record("truncated", ["no JSON", "line 1"], write(whole[:40]))
    bad_record("binary", ["no JSON"], write(b"\x7fELF\0\1\2\xff" * 100))
    bad_record("huge", ["has 300", "262144"], write(b" " * 300_000 + whole))
    bad_record("of another program", ["holderIdentity", "leaseDurationSeconds"], write({"name": "x", "version": 3}))
    bad_record(
        "of the wrong type", ["leaseDurationSeconds", '"long"'], write({**RECORD, "leaseDurationSeconds": "long"})
    )


def bad_things() -> None:
    bad_record("a directory", ["is a directory"], os.mkdir)
    # Root reads everything: as somebody else then.
    other = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"] if ROOT_USER else []
    bad_record("unreadable", ["Permission denied"], unreadable, event="read_failed", prefix=other)
    loop = os.path.join(room("loop"), "lock")
    os.symlink("lock", loop)
    says(
        run("run", "--lock", loop, "-e", LEAD),
        2,
        [loop, "symbolic link"],
        "a record that is a symbolic link to itself: run refuses, and names it",
    )
    says(
        run("exec", "--lock", loop, "--", "echo", "leads"),
        69,
        [loop, "symbolic link"],
        "a record that is a symbolic link to itself: exec too",
    )
    same(os.readlink(loop), "lock", "a record that is a symbolic link to itself: the link stays")


# ---- the disk ----


def on_small_disk(name: str) -> tuple[Any, str]:
    """A leader whose lock is on a file system of 64 KB that only it has; where that is seen from here."""
    home = room(name)
    mount = f'mount -t tmpfs -o size=64k,mode=0777 tmpfs "{home}" && exec "$@"'
    c = Candidate(
        "--lock",
        home + "/lock",
        "-e",
        LEAD,
        prefix=["unshare", *MAPPED, "--mount", "--propagation", "private", "sh", "-c", mount, "sh"],
    )
    c.wait("became_leader")
    return c, f"/proc/{c.pid}/root{home}"


def ends_and_leads_again(c: Candidate, seen: str, name: str, words: list[str], heal: Any) -> None:
    """Renewing fails, the term ends in time, and the record is whole all the while; healed, it leads again."""
    before = content(seen + "/lock")
    said = c.wait("renew_failed")
    if not ok(
        said and all(w in said["message"] for w in words),
        f"{name}: the log says which record cannot be written, and why",
    ):
        c.log()
    ok(c.wait("stopped_leading", "expired") and c.wait("print", "stopped"), f"{name}: a leader that cannot renew stops")
    now = json.loads(content(seen + "/lock"))
    old = json.loads(before)
    ok(
        now["holderIdentity"] == old["holderIdentity"] and now["token"] == old["token"],
        f"{name}: the old record is whole",
    )
    same([f for f in os.listdir(seen) if f.endswith(".tmp")], [], f"{name}: nothing half-written is left")
    heal()
    ok(c.wait("became_leader", count=2), f"{name}: when it can be written again, it leads again")
    ok(json.loads(content(seen + "/lock"))["token"] > old["token"], f"{name}: with a larger token")
    same(c.stop(), 0, f"{name}: and releases at the end")


def full_disk() -> None:
    c, seen = on_small_disk("full")

    def fill() -> None:
        with open(seen + "/fill", "wb", buffering=0) as f:
            try:
                while f.write(b"x" * 4096):
                    pass
            except OSError:
                pass

    fill()
    ends_and_leads_again(
        c,
        seen,
        "a full disk",
        ["/full/lock", "No space left", "the old one is untouched"],
        lambda: os.unlink(seen + "/fill"),
    )


def read_only_disk() -> None:
    c, seen = on_small_disk("readonly")
    home = seen.split("/root", 1)[1]

    def remount(how: str) -> None:
        enter = [
            "nsenter",
            "--target",
            str(c.pid),
            *([] if ROOT_USER else ["--user", "--preserve-credentials"]),
            "--mount",
        ]
        subprocess.run([*enter, "mount", "-o", f"remount,{how}", home], check=True, cwd="/")

    remount("ro")
    ends_and_leads_again(
        c, seen, "a read-only disk", ["/readonly/lock", "Read-only file system"], lambda: remount("rw")
    )


# ---- rights ----


def sticky() -> None:
    name = "a sticky directory of another user"
    if not ROOT_USER:
        skip(name, "needs root, to be two users")
        return
    home = tempfile.mkdtemp(dir=TMP)
    os.chmod(home, 0o1777)
    lock = home + "/lock"

    def as_user(uid: Any) -> Any:
        return ["setpriv", "--reuid", str(uid), "--regid", str(uid), "--clear-groups"]

    first = Candidate("--lock", lock, "--identity", "first", "-e", LEAD, prefix=as_user(65533))
    first.wait("became_leader")
    second = Candidate("--lock", lock, "--identity", "second", "-e", LEAD, prefix=as_user(65534))
    ok(second.wait("new_leader", "first leads"), f"{name}: another user follows a leader")
    same(first.stop(), 0, f"{name}: the leader releases")
    said = second.wait("acquire_failed")
    if not ok(
        said and all(w in said["message"] for w in (lock, "65533", "65534", "sticky")),
        f"{name}: the log names file, users and the bit",
    ):
        second.log()
    same(json.loads(content(lock))["previousHolder"], "first", f"{name}: the record is as its owner left it")
    second.stop()
    ok(not second.all("became_leader"), f"{name}: the other user has not led")


HOLD = """import fcntl, os, signal, sys
f = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o600)
fcntl.flock(f, fcntl.LOCK_EX)
print("held", flush=True)
os.kill(os.getpid(), signal.SIGSTOP)"""


def frozen() -> None:
    name = "a holder frozen inside the kernel lock"
    home = room("frozen")
    holder = subprocess.Popen([sys.executable, "-c", HOLD, home + "/.lock.lock"], stdout=subprocess.PIPE)
    piped(holder.stdout).readline()
    wait_for(lambda: open(f"/proc/{holder.pid}/stat").read().rsplit(")", 1)[1].split()[0] == "T")
    c = Candidate("--lock", home + "/lock", "-e", LEAD)
    # On a busy machine a try may end by its deadline before it has looked for who has the lock; another one follows.
    said = c.wait("acquire_failed", f"process {holder.pid} ")
    if not ok(
        said and all(w in said["message"] for w in (home, "stopped")), f"{name}: its process and state are named"
    ):
        c.log()
    ok(not os.path.exists(home + "/lock") and not c.all("became_leader"), f"{name}: nobody leads past it")
    holder.kill()
    holder.wait()
    piped(holder.stdout).close()
    ok(c.wait("became_leader"), f"{name}: once it is dead somebody leads")
    c.stop()


# ---- scripts, locks, nesting ----


def script(home: str, name: str, text: str) -> str:
    path = os.path.join(home, name)
    with open(path, "w") as f:
        f.write(text)
    return path


def bad_scripts() -> None:
    """What else is wrong with one: script/test_load.py."""
    home = room("scripts")
    lock = ["--lock", home + "/lock"]
    says(run("run", *lock, home + "/none.lua"), 1, [home + "/none.lua", "No such file"], "a script that is missing")
    many = "local l = {} for i = 1, 20000 do l[i] = { name = 'e' .. i, on_leading = print } end return l"
    says(
        run("run", "--lock", lock[1] + "{name}", script(home, "many.lua", many)),
        1,
        ["at most 16384 elections", "20000"],
        "a script with too many elections",
    )
    says(
        run("run", *lock, script(home, "typo.lua", "return {\n on_leading = print,\n on_stoped = print }")),
        1,
        ["typo.lua:3", "on_stoped", "on_stopped"],
        "a script with an unknown key: the near one is suggested",
    )
    says(
        run(
            "run",
            *lock,
            script(home, "times.lua", "return { on_leading = print, lease_duration = 5, renew_deadline = 6 }"),
        ),
        2,
        ["5s", "6s", "renew"],
        "a script whose times break a rule: the numbers",
    )
    same(sorted(f for f in os.listdir(home) if not f.endswith(".lua")), [], "bad scripts leave no record behind")


def bad_times() -> None:
    """Which they are: unit/config/test_options.c."""
    home = room("times")
    cases: list[tuple[list[str], dict[str, str], list[str], str]] = [
        (["--lease-duration", "15"], {}, ["--lease-duration: '15'", "unit"], "a bad duration"),
        ([], {"LUNARCH_RETRY_PERIOD": "soon"}, ["LUNARCH_RETRY_PERIOD", "'soon'"], "one in the environment"),
        (
            ["--lease-duration", "10s", "--renew-deadline", "10s"],
            {},
            ["10s from --lease-duration", "10s from --renew-deadline"],
            "two that break a rule",
        ),
        (["--lease-duratoin", "5s"], {}, ["--lease-duratoin", "--lease-duration"], "an unknown option"),
    ]
    for options, env, words, what in cases:
        says(
            run("run", "--lock", home + "/lock", *options, "-e", LEAD, env=env),
            2,
            words,
            f"{what}: where it is from, the value, and what was expected",
        )
    same(os.listdir(home), [], "bad times leave no record behind")


def twice() -> None:
    home = room("twice")
    os.symlink(home, home + "-link")
    text = f"""return {{
  {{ name = "a", lock = "{home}/same", on_leading = print }},
  {{ name = "b", lock = "file:{home}-link/same", on_leading = print }},
}}"""
    says(
        run("run", script(home, "twice.lua", text)),
        2,
        [f"file:{home}/same", "listed twice", "twice.lua"],
        "a lock listed twice, in two spellings, one through a symbolic link: run refuses and names it",
    )
    same(os.listdir(home), ["twice.lua"], "a lock listed twice: nothing was written")


def nested() -> None:
    home = room("nested")
    a, b = ["--lock", home + "/a"], ["--lock", home + "/b"]
    says(
        run("exec", *a, "--log-level", "warn", "--", LUNARCH, "exec", *a, "--", "echo", "leads"),
        2,
        [home + "/a", "itself"],
        "a nested exec of the same lock says so",
    )
    r = run("exec", *a, "--", LUNARCH, "exec", *b, "--", LUNARCH, "exec", *a, "--", "echo", "ran")
    ok(
        r.returncode == 2 and "waits_for_itself" in r.stderr and "ran" not in r.stdout,
        "a nested exec of the same lock with another between them says so too",
    )
    outer = Candidate(
        *a,
        "--",
        LUNARCH,
        "run",
        "--log-format",
        "json",
        *a,
        "-e",
        "return { on_leading = function() end }",
        command="exec",
    )
    said = outer.wait("waits_for_itself")
    ok(
        said and str(outer.pid) in said["message"],
        "a run nested under an exec of the same lock says so, with the process that it waits for",
    )
    outer.stop()
    r = run(
        "exec", *a, "--log-level", "warn", "--", LUNARCH, "exec", *b, "--log-level", "warn", "--", "sh", "-c", "exit 5"
    )
    same((r.returncode, r.stderr), (5, ""), "nested on another lock: not a word, and the command's status")


# ---- identities ----

IDENTITIES = {
    "with quotes": 'it\'s "it"',
    "with newlines": "a\nb\r\n\tc",
    "in UTF-8": "Zürich-→-領導-🙂",
    "of 4 KB": "x" * 4096,
    "with a backslash and a control character": "a\\n\x1b[2Jb",
}


WHO = """return { on_leading = function() end,
  on_new_leader = function(l) print("new " .. (l.identity == os.getenv "WANTED" and "exact" or l.identity)) end }"""


def identity(name: str, text: str) -> None:
    lock = os.path.join(room("identity-" + name.replace(" ", "-")), "lock")
    a = Candidate(
        "--lock",
        lock,
        "--identity",
        text,
        "--",
        "sh",
        "-c",
        'printf %s "$LUNARCH_TERM_IDENTITY" > ${0}; exec sleep 100',
        lock + ".seen",
        command="exec",
    )
    ok(
        wait_for(lambda: os.path.exists(lock + ".seen") and content(lock + ".seen") == text.encode()),
        f"an identity {name}: the command sees it exactly",
    )
    same(json.loads(content(lock))["holderIdentity"], text, f"an identity {name}: so does whoever reads the record")
    b = Candidate("--lock", lock, "--identity", "b", "-e", WHO, env={"WANTED": text})
    ok(
        b.wait("print", "new exact"),
        f"an identity {name}: on_new_leader gets it whole, and the log is JSON lines all the same",
    )
    same(
        json.loads(run("status", "--json", "--lock", lock).stdout)["leader"],
        text,
        f"an identity {name}: status --json shows it exactly",
    )
    shown = run("status", "--lock", lock).stdout
    ok(
        not any(c in shown.replace("\n", "").replace("\t", "") for c in map(chr, range(32))),
        f"an identity {name}: in text for people it is one line without control characters",
    )
    a.stop()
    ok(b.wait("became_leader"), f"an identity {name}: the next one leads")
    same(
        [e for e in a.events + b.events if e["event"] == "unparsed"],
        [],
        f"an identity {name}: no log line was broken by it",
    )
    b.stop()


def identities() -> None:
    for name, text in IDENTITIES.items():
        identity(name, text)
    home = room("bytes")
    r = run("run", "--lock", home + "/lock", "--identity", b"caf\xe9", "-e", LEAD)
    says(r, 2, ["identity", "caf", "UTF-8"], "an identity that is not UTF-8 is refused, since no record could hold it")
    same(os.listdir(home), [], "an identity that is not UTF-8: nothing was written")


at_once(bad_records, bad_things, full_disk, read_only_disk, sticky, frozen)
at_once(bad_scripts, bad_times, twice, nested, identities)
stop_everyone()
shutil.rmtree(TMP, ignore_errors=True)
done()

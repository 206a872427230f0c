#!/usr/bin/env -S PYTHONPATH=. python3
"""doctor --full: a lock that breaks a rule fails, and it is said which; nothing stays. Locks that keep every rule pass,
each in its tests/locks/test_*.py."""

import atexit
import json
import os
import shutil
import signal
import subprocess
import urllib.parse
from typing import Any

from tests.lib.full_doctor import CLEAN, doctor, findings
from tests.lib.processes import LUNARCH, scratch, wait_for
from tests.lib.servers import Redis
from tests.lib.stores import Box
from tests.lib.tap import at_once, done, note, ok, same

TMP = scratch()
atexit.register(shutil.rmtree, TMP, True)


def fails(j: dict[str, Any], name: str, *words: str, what: str) -> None:
    told = [f for f in findings(j, "unfit") if f["name"] == name and all(w in f["text"] for w in words)]
    if not ok(j["status"] == 1 and j.get("fit") is False and told, f"{what}: fails, and {name} says why"):
        note(f"{j['status']} {j['errors']} {findings(j, 'unfit', 'note')}")


def test_broken_off() -> None:
    with Redis() as server:
        d = subprocess.Popen(
            [LUNARCH, "doctor", "--full", "--lock", server.url("x")],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=CLEAN,
        )
        there = wait_for(lambda: d.poll() is not None or "doctor" in server.cli("KEYS", "*doctor*"))
        d.send_signal(signal.SIGINT)
        said = d.communicate(timeout=120)[0]
        if not ok(
            there and d.returncode in (130, -signal.SIGINT) and "UNFIT" not in said, "Ctrl-C ends it, without a verdict"
        ):
            note(f"{d.returncode} {said}")
        same(server.cli("KEYS", "*doctor*").split(), [], "and nothing of the examination stays")


DRIVERS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "locks", "drivers")


def lock_file(name: str) -> str:
    """A copy that belongs to us, and that nobody else can write."""
    path = os.path.join(TMP, os.path.basename(name))
    shutil.copyfile(os.path.join(DRIVERS, name), path)
    os.chmod(path, 0o644)
    return path


def planted(name: str, port: int, case: str, *words: str) -> Any:
    def run() -> None:
        url = f"lua:{lock_file(f'faulty/{name}.lua')}?host=127.0.0.1:{port}#{name}"
        j = doctor("--lock", url, BOX_LUA=os.path.join(DRIVERS, "box.lua"))
        fails(j, case, *words, what=f"a lock in Lua, {name.replace('_', ' ')}")

    run.__name__ = name
    return run


def test_planted(store: Box) -> None:
    """What authors do wrong, and what they are told."""
    slow = store.proxy()
    slow.delay(0.03)
    at_once(
        planted("failed_for_unknown", slow.port, "deadline", 'returned "failed"', "in the store", '"unknown"'),
        planted("failed_for_broken", store.port, "cut", 'returned "failed"', "in the store", '"unknown"'),
        planted("conflict_for_again", store.port, "cut", 'returned "conflict"', "in the store", "second try"),
        planted("absent_for_broken", store.port, "cut", 'returned "absent"', '"failed"'),
        planted("no_compare", store.port, "swap", 'returned "ok"', "op.expected is not compared"),
        planted("conflict_for_lost", store.port, "version", 'returned "conflict"', "in the store", "second try"),
        planted("equal_versions", store.port, "swap", "two different records have the version"),
        planted("blocks", store.port, "held", "blocks", "op.timeout"),
        planted("squeezes", store.port, "text", "blanks", "another text"),
        planted("caches", store.port, "swap", "another record is read", "ask the store each time"),
        planted("likes", store.port, "list", "no others", "no pattern"),
        planted("folds", store.port, "key", "has the record of another key"),
        planted("misses_changes", store.port, "watch", "changed() was not called"),
    )
    slow.close()


def test_no_remove(store: Box) -> None:
    """`remove` is optional: one note says what stays behind, and it is true."""
    what = "a lock in Lua without `remove`"
    url = f"lua:{lock_file('no_remove.lua')}?host=127.0.0.1:{store.port}#noremove"
    j = doctor("--lock", url, BOX_LUA=os.path.join(DRIVERS, "box.lua"))
    if not ok(j["status"] == 0 and j.get("fit") and not findings(j, "unfit", "unsure"), f"{what}: fit"):
        note(f"{j['status']} {j['errors']} {findings(j, 'unfit', 'unsure')}")
    told = [f["text"] for f in j["findings"] if "behind" in f["text"]]
    ok(len(told) == 1 and "no `remove`" in told[0], f"{what}: one note says so", told)
    same([f for f in j["findings"] if "removed" in f["text"] or f["name"] == "deleted"], [], f"{what}: no more")
    names = json.loads(store.ask("GET", "/list?prefix=noremove")[1])["names"]
    base = min(names, key=len)
    rest = {n[len(base) :] for n in names} - {"", ".next"}
    said = [t.strip() for t in told[0].split(" with ")[-1].split(",")] if told else []
    same((base in str(told), sorted(urllib.parse.unquote(s) for s in said)), (True, sorted(rest)), f"{what}: each key")


NEEDED = ["swap", "version", "remove", "foreign", "deadline", "answer", "cut", "killed", "stopped", "racers"]


def test_untried(store: Box) -> None:
    """What safety rests upon and could not be tried is not proved: neither fit nor unfit."""
    what = "a lock in Lua without a certain answer"
    url = f"lua:{lock_file('faulty/unknown.lua')}?host=127.0.0.1:{store.port}#unknown"
    j = doctor("--lock", url, BOX_LUA=os.path.join(DRIVERS, "box.lua"))
    if not ok(j["status"] == 1 and j.get("fit") is False and not findings(j, "unfit"), f"{what}: not proved"):
        note(f"{j['status']} {j['errors']} {findings(j, 'unfit')}")
    unsure = [f["name"] for f in findings(j, "unsure")]
    same(sorted(unsure), sorted(NEEDED), f"{what}: each rule that was not tried is named, once")
    same([f for f in j["findings"] if "behind" in f["text"]], [], f"{what}: nothing stays, and nothing else is said")
    ok(all("planted" in f["text"] for f in findings(j, "unsure")), f"{what}: and why")
    r = subprocess.run(
        [LUNARCH, "doctor", "--full", "--lock", url],
        capture_output=True,
        text=True,
        timeout=900,
        env={**CLEAN, "BOX_LUA": os.path.join(DRIVERS, "box.lua")},
    )
    last = r.stdout.splitlines()[-1] if r.stdout else ""
    if not ok(r.returncode == 1 and "NOT proved" in last and "UNSURE swap" in r.stdout, f"{what}: in words"):
        note(r.stdout + r.stderr)
    what = "a lock in Lua without a certain answer where a text is that is no record"
    url = f"lua:{lock_file('faulty/unknown_over_foreign.lua')}?host=127.0.0.1:{store.port}#over"
    j = doctor("--lock", url, BOX_LUA=os.path.join(DRIVERS, "box.lua"))
    same([f["name"] for f in findings(j, "unfit", "unsure")], ["foreign"], f"{what}: that alone is not proved")
    told = str(findings(j, "unsure"))
    ok("planted" in told and '"a text"' not in told and "a text was in the store" in told, f"{what}: and why", told)


def test_by_command() -> None:
    """A connection that is not Lunarch's cannot be broken here, so nothing is known of it."""
    what = "a lock in Lua that is asked by a command"
    with Redis() as server:
        j = doctor("--lock", f"lua:{lock_file('by_command.lua')}?host=127.0.0.1:{server.port}#x")
    if not ok(j["status"] == 1 and j.get("fit") is False and not findings(j, "unfit"), f"{what}: not proved"):
        note(f"{j['status']} {j['errors']} {findings(j, 'unfit')}")
    same([f["name"] for f in findings(j, "unsure")], ["cut"], f"{what}: since one rule could not be tried")
    told = str(findings(j, "unsure"))
    ok("`http`, `lunarch.mysql` or `lunarch.tcp`" in told and "proxy" in told, f"{what}: and how it can be", told)


def test_none() -> None:
    j = doctor("--lock", "none:")
    fails(j, "racers", "64 of 64", "two leaders", what="a lock of nothing")
    fails(j, "swap", "absent", what="a lock of nothing")


test_broken_off()
test_none()
test_by_command()
box = Box()
test_planted(box)
test_untried(box)
test_no_remove(box)
box.end()
done()

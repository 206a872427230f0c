#!/usr/bin/env -S PYTHONPATH=. python3
"""The file lock between clients of a real NFS server. Run inside the virtual machine, by machine.py; with names of
scenes, only those."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from typing import Any

from tests.lib.processes import LUNARCH, PATIENCE, piped, wait_for
from tests.cluster.nfs.rig import EXPORT, LEASE, Client, Server, Shared, get, leads, rules, run, saved
from tests.lib.tap import done, note, ok, same

ROUNDS = int(os.environ.get("NFS_ROUNDS", "8"))
# How a leader is cut off: at the write whose request, or whose answer, gets lost, or at any moment.
CUTS = ["LINK request", "LINK reply", "now", "now"]


# ---- what the rig can produce ----

# One who renames under a flock, and one who links: each says when it is about to, and what came of it.
RENAMER = """
import fcntl, os
with open("lock.lock", "w") as f:
    fcntl.flock(f, fcntl.LOCK_EX)
    with open("." + NAME + ".tmp", "w") as new:
        new.write(NAME)
    print("ready", flush=True)
    input()
    os.rename("." + NAME + ".tmp", "lock")
    print("done", flush=True)
"""
LINKER = """
import os
with open("." + NAME + ".tmp", "w") as new:
    new.write(NAME)
print("ready", flush=True)
input()
try:
    os.link("." + NAME + ".tmp", "0000000000000002")
    print("done", flush=True)
except FileExistsError:
    print("exists", flush=True)
"""


class Script:
    def __init__(self, client: Any, code: Any, name: str, where: str) -> None:
        self.lines: list[str] = []
        code = code.replace("NAME", f'"{name}"')
        self.process = subprocess.Popen(
            [*client.prefix, "sh", "-c", f"cd /mnt/{where} && exec python3 -c '{code}'"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        threading.Thread(
            target=lambda: self.lines.extend(line.strip() for line in piped(self.process.stdout)), daemon=True
        ).start()

    def said(self, *words: Any) -> Any:
        return wait_for(lambda: [w for w in words if w in self.lines], 120)

    def go(self) -> None:
        piped(self.process.stdin).write("go\n")
        piped(self.process.stdin).flush()


def late(clients: Any, code: Any, cut: Any, name: str) -> Any:
    """The first client's change, or the answer to it, is lost on its way, the second one makes its own, the first one
    is healed. What is there then, after what the second one was told and left, and what the first one is told in the
    end."""
    where = cut.replace(" ", "_")
    os.mkdir(f"{EXPORT}/{where}", 0o777)
    first = Script(clients[0], code, "late", where)
    first.said("ready")
    clients[0].cut(cut)
    first.go()
    wait_for(clients[0].is_cut)
    second = Script(clients[1], code, "next", where)
    second.said("ready")
    second.go()
    told = second.said("done", "exists")
    between = get(f"{EXPORT}/{where}/{name}")
    clients[0].heal()
    told += first.said("done", "exists")
    for s in first, second:
        piped(s.process.stdin).close()
        s.process.wait(PATIENCE)
    return told, between, get(f"{EXPORT}/{where}/{name}")


def floor(clients: Any) -> None:
    same(
        late(clients, RENAMER, "RENAME request", "lock"),
        (["done", "done"], "next", "late"),
        "the rig shows what flock and rename come to: the lock's lease expires, and a rename that hung overwrites "
        "what was done since",
    )
    same(
        late(clients, LINKER, "LINK request", "0000000000000002"),
        (["done", "exists"], "next", "next"),
        "a link that hung as long meets the name that was made since",
    )
    lost = late(clients, LINKER, "LINK reply", "0000000000000002")
    same(
        (lost[0][0], *lost[1:]), ("exists", "late", "late"), "a link whose answer was lost was made, and others meet it"
    )
    note(f"its own client is told: {lost[0][1]}")


# ---- commands ----


def refused(client: Any) -> None:
    """A plain file lock on NFS."""
    before, wrong = os.listdir(EXPORT), []
    client.run("sh", "-c", "echo 'return { on_leading = function() end }' >/tmp/script.lua")
    for command in (
        ["run", "--lock", "/mnt/lock", "/tmp/script.lua"],
        ["exec", "--lock", "/mnt/lock", "--", "true"],
        ["check", "--lock", "/mnt/lock", "/tmp/script.lua"],
        ["doctor", "--lock", "/mnt/lock"],
    ):
        r = client.run(LUNARCH, *command, check=False, timeout=PATIENCE)
        if r.returncode == 0 or "NFS" not in r.stdout + r.stderr or "shared=link" not in r.stdout + r.stderr:
            wrong.append((command[0], r.returncode, r.stdout + r.stderr))
    same(
        (wrong, os.listdir(EXPORT)),
        ([], before),
        "run, exec, check and doctor refuse a plain file lock on NFS, say why, and leave nothing there",
    )


def fit(client: Any) -> None:
    r = client.run(LUNARCH, "doctor", "--lock", "file:/mnt/examined?shared=link", check=False, timeout=300)
    if not ok(r.returncode == 0, "doctor finds ?shared=link on NFS fit"):
        note(r.stdout + r.stderr)


def race(clients: Any, rounds: Any, url: str) -> None:
    conform = os.path.join(os.path.dirname(LUNARCH), "conform")
    r = run(
        conform,
        "race",
        url,
        str(rounds),
        "12",
        "4",
        check=False,
        timeout=600,
        env={**os.environ, "CONFORM_HOSTS": " ".join(str(c.pid) for c in clients)},
    )
    try:
        found = json.loads(r.stdout)
    except ValueError:
        found = {}
    note(r.stdout + r.stderr)
    same(
        {k: found.get(k) for k in ("rounds", "won", "unsure", "wrong", "failed")},
        {"rounds": rounds, "won": rounds, "unsure": 0, "wrong": 0, "failed": 0},
        f"{len(clients)} clients race for each version: one winner, which the next look shows, and tokens grow",
    )


# ---- terms ----


def versions(path: str) -> Any:
    """(number, record) of what is there, on the server."""
    found = []
    for name in sorted(n for n in os.listdir(path) if not n.startswith(".")):
        try:
            found.append((int(name), json.loads(get(f"{path}/{name}"))))
        except FileNotFoundError:  # an old one, removed meanwhile
            pass
    return found


def attack(f: Any, leader: Any, other: Any, how: str) -> Any:
    """One round: the leader is cut off in the middle of a write, the other one leads and saves, and what was held up
    arrives. What was wrong."""
    terms, before, heard = len(f.terms()), saved(leader), len(leader.all("new_leader", other.name))
    wait_for(lambda: saved(leader) >= before + 2)
    if how == "now":
        time.sleep(random.random())
    began = time.monotonic()
    leader.client.cut(how)
    wait_for(leader.client.is_cut)
    succeeded = wait_for(lambda: len(f.terms()) > terms and leads(other), 120)
    before = saved(other)
    wait_for(lambda: saved(other) >= before + 3)
    took = time.monotonic() - began
    held = f.record_seen_by(other.client) or {}
    leader.client.heal()
    back = wait_for(lambda: len(leader.all("new_leader", other.name)) > heard, 120)
    before = saved(other)
    wait_for(lambda: saved(other) >= before + 10)
    now = f.record_seen_by(other.client) or {}
    there = versions(f.place)
    note(
        f"{how}: cut off for {took:.1f} s; {held.get('leader')} {held.get('term')} {held.get('token')}, then "
        f"{now.get('leader')} {now.get('term')} "
        f"{now.get('token')}; {len(there)} versions, the last {there[-1:] and there[-1][0]}"
    )
    tokens = [r["token"] for _, r in there]
    # On a machine that is slow just then a later term may have begun meanwhile.
    kept = (
        now.get("token", 0) > held.get("token", 0)
        or now.get("token") == held.get("token")
        and now.get("leader") == other.name
    )
    return [
        what
        for what, good in {
            "nobody succeeded": succeeded,
            "the former leader did not come back": back,
            "the record was another's": held.get("leader") == other.name,
            "the record is the former leader's": kept,
            "a newer version has an older token": tokens and tokens == sorted(tokens),
        }.items()
        if not good
    ]


def pair_of(f: Any, clients: Any) -> Any:
    pair = [f.enter(c) for c in clients]
    wait_for(lambda: any(map(leads, pair)))
    for c in pair:
        c.wait("print", "started")
    return pair


def in_order(pair: Any) -> Any:
    """(the leader, the other one)"""
    wait_for(lambda: any(map(leads, pair)), 120)
    return pair if leads(pair[0]) else pair[::-1]


def late_writes(clients: Any, url: str, cuts: Any, rounds: Any) -> None:
    f = Shared(url)
    pair, wrong = pair_of(f, clients), []
    for n in range(rounds):
        leader, other = in_order(pair)
        problems = attack(f, leader, other, cuts[n % len(cuts)])
        wrong += problems
        if problems:
            f.logs()
    same(
        wrong,
        [],
        f"{rounds} times a leader is cut off in the middle of a write: the next one leads, saves, and what arrives "
        "late changes nothing",
    )
    f.verdict("late writes")
    f.end()


def standbys_cut(clients: Any, url: str, rounds: int = 3) -> None:
    """A server that gave somebody a delegation of a file holds up who removes it, until the delegation's holder answers
    or is given up."""
    f, ended = Shared(url), 0
    pair = pair_of(f, clients)
    for _ in range(rounds):
        leader, standby = in_order(pair)
        time.sleep(2 + random.random() * 2)  # it looks meanwhile
        count, before, back, began = len(f.terms()), saved(leader), len(standby.all("store_back")), time.monotonic()
        standby.client.cut()
        wait_for(
            lambda: saved(leader) >= before + 20 and time.monotonic() > began + LEASE + 2 or not leads(leader), 120
        )
        ended += len(f.terms()) > count or not leads(leader)
        note(f"{saved(leader) - before} versions in {time.monotonic() - began:.1f} s")
        standby.client.heal()
        wait_for(lambda: len(standby.all("store_back")) > back)
    note(f"{ended} of {rounds} terms ended")
    ok(
        ended <= 1,
        f"{rounds} times a standby is cut off: the leader goes on, but for once at the most, on a machine that is slow",
    )
    f.verdict("a standby is cut off")
    f.end()


def changes(server: Any, clients: Any) -> None:
    """Terms that end otherwise."""
    f = Shared("file:/mnt/changes?shared=link")
    pair = pair_of(f, clients)
    leader, other = in_order(pair)
    count = len(f.terms())
    leader.kill(signal.SIGTERM)
    ok(
        leader.leave() == 0
        and wait_for(lambda: len(f.terms()) > count and leads(other))
        and not leader.all("release_failed"),
        "a leader that is asked to stop hands over",
    )
    first = f.enter(leader.client)
    first.wait("new_leader", other.name)

    count, began = len(f.terms()), time.monotonic()
    server.stop()
    time.sleep(2)
    server.start()
    wait_for(lambda: sum(map(leads, (first, other))) == 1 and saved(in_order([first, other])[0]) > 0)
    leader, standby = in_order([first, other])
    before = saved(leader)
    ok(
        wait_for(lambda: saved(leader) > before + 3 or saved(standby) > 3 and leads(standby), 120),
        "the server is restarted in a term: somebody leads and saves",
    )
    note(f"{len(f.terms()) - count} new terms in {time.monotonic() - began:.1f} s")

    leader, standby = in_order([first, other])
    count = len(f.terms())
    leader.client.crash()
    ok(
        wait_for(lambda: len(f.terms()) > count and leads(standby), 120),
        "a client's machine vanishes: the other one leads after the lease",
    )
    leader.client.heal()
    f.verdict("hand-over, restart of the server, crash")
    f.end()


def main() -> None:
    server = Server()
    rules()
    clients = [Client(n) for n in ("alpha", "beta")]
    older = [Client(n, "3") for n in ("gamma", "delta")]
    scenes = {
        "refused": lambda: refused(clients[0]),
        "floor": lambda: floor(clients),
        "doctor": lambda: fit(clients[0]),
        "race": lambda: race(clients, 30, "file:/mnt/race?shared=link"),
        "late": lambda: late_writes(clients, "file:/mnt/late?shared=link", CUTS, ROUNDS),
        "race3": lambda: race(older, 30, "file:/mnt/race3?shared=link"),
        "late3": lambda: late_writes(older, "file:/mnt/late3?shared=link", ["LINK3 request", "LINK3 reply"], 2),
        "standby": lambda: standbys_cut(clients, "file:/mnt/standby?shared=link"),
        "changes": lambda: changes(server, clients),
    }
    for name in sys.argv[1:] or scenes:
        began = time.monotonic()
        scenes[name]()
        note(f"{name}: {time.monotonic() - began:.0f} s")
    done()


main()

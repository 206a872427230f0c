#!/usr/bin/env -S PYTHONPATH=. python3
"""`lunarch ctl handover`: a leader hands over because it is asked to, to whoever comes next or to one that is named; it
leads on where that does not come forward; and what is said of each."""

import json
import os
import signal
import subprocess

import atexit

from tests.lib.asked import LONG, Asked, candidate, until
from tests.lib.candidates import FAST, stop_everyone
from tests.lib.processes import LUNARCH, scratch
from tests.lib.servers import Etcd
from tests.lib.tap import done, note, ok, same

TMP = scratch()
atexit.register(stop_everyone)
IDLE = "sleep(1e6)"


def check(said: tuple[int, str], status: int, *words: str, what: str) -> bool:
    good = ok(said[0] == status and all(w in said[1] for w in words), what)
    if not good:
        note(said)
    return good


def leads(c: Asked) -> bool:
    return bool(c.status()["leading"])


def next_of(c: Asked) -> str:
    return str(c.status()["next"]["identity"])


def hand_over(c: Asked, *args: str) -> tuple[int, str]:
    return c.ctl("handover", *args, patience=2 * LONG)


def crowd(lock: str) -> tuple[Asked, Asked, Asked]:
    """One leads, one comes next, one is a standby."""
    a = candidate(lock, "ann", "--address", "ann:1", "-e", IDLE)
    a.event("became_leader")
    b = candidate(lock, "bob", "--address", "bob:1", "-e", IDLE)
    b.wait("comes_next", patience=LONG)
    c = candidate(lock, "cid", "-e", IDLE)
    c.event("new_leader")
    return a, b, c


def test_clean(kind: str, a: Asked, b: Asked, c: Asked) -> None:
    ok(until(lambda: next_of(a) == "bob"), f"{kind}: the leader knows who comes next")
    check(hand_over(b), 1, "it does not lead", "ann does", "where it runs", what=f"{kind}: a standby says whom to ask")
    term = a.status()["term"]
    check(
        hand_over(a, "--to", "dan", "--timeout", "1s"),
        75,
        "dan",
        "the term goes on",
        "ann leads",
        what=f"{kind}: one that does not come forward in time is named, and the status is 75",
    )
    ok(a.wait("not_handed_over", "dan", patience=LONG), f"{kind}: the log says so too")
    same((leads(a), a.status()["term"]), (True, term), f"{kind}: and the leader leads on in its term")
    check(hand_over(a, "--to", "ann"), 1, "ann is the one that leads", what=f"{kind}: nobody hands over to itself")
    ok(until(lambda: next_of(a) == "bob"), f"{kind}: who came next before does so again")
    said = hand_over(a)
    check(said, 0, "bob leads now, at bob:1", "nobody led for", what=f"{kind}: who leads now, and how long nobody did")
    ok(until(lambda: leads(b)) and not leads(a), f"{kind}: it does")  # its store may tell ann first
    ok(a.wait("released_for", "bob", patience=LONG), f"{kind}: the release was for it, and the log says why")
    same(a.status()["next"]["handovers"], {"request": 1, "priority": 0, "rotation": 0}, f"{kind}: it is counted")
    same(a.metric("lunarch_handovers_total", 'why="request"'), 1.0, f"{kind}: in the metrics, too")
    code, text = hand_over(b, "--to", "cid", "--json", "--timeout", "3m")
    answer = json.loads(text) if code == 0 else {}
    ok(
        code == 0 and answer["leader"] == "cid" and answer["gapMs"] >= 0,
        f"{kind}: --to hands over to the one that it names; --json has it as fields",
        text,
    )
    ok(leads(c), f"{kind}: that one leads")


def test_polled(a: Asked, b: Asked, c: Asked) -> None:
    """The store tells of no changes: the one that is named looks later than the old leader does."""
    ok(until(lambda: next_of(a) == "bob"), "on a lock that is polled the leader knows who comes next")
    for old, to in ((a, "cid"), (c, "bob"), (b, "ann")):
        check(hand_over(old, "--to", to, "--timeout", "3m"), 0, f"{to} leads now", what=f"and hands over to {to}")


def test_alone(lock: str) -> None:
    a = candidate(lock, "ann", "-e", IDLE)
    a.event("became_leader")
    check(hand_over(a, "--timeout", "500ms"), 75, "ann leads", what="with nobody to hand over to it is 75")
    waits = subprocess.Popen(
        [LUNARCH, "ctl", "--control", a.socket, "handover", "--to", "dan", "--timeout", "10m"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    ok(until(lambda: "it waits for dan to come next" in a.why()), "why says for whom a leader waits")
    check(hand_over(a), 1, "another request to hand over is under way", what="meanwhile another request is refused")
    a.kill(signal.SIGTERM)
    text = waits.communicate(timeout=LONG)[0]
    ok(waits.returncode == 75 and "lunarch ctl:" in text, "who waits hears that the term has ended otherwise", text)
    same(a.leave(LONG), 0, "and the leader stops as ever")


def begin_stopping(lock: str) -> tuple[Asked, Asked]:
    script = os.path.join(TMP, "stopping.lua")
    with open(script, "w") as f:
        f.write(
            "return { on_leading = function() sleep(1e6) end,\n"
            "on_stopping = function(term) sleep(1) print('drained', term:is_leading()) end }\n"
        )
    a = candidate(lock, "ann", script)
    a.event("became_leader")
    return a, candidate(lock, "bob", "-e", IDLE)


def test_stopping(a: Asked, b: Asked) -> None:
    b.wait("comes_next", patience=LONG)
    ok(until(lambda: next_of(a) == "bob"), "a leader with on_stopping, and one that comes next")
    check(hand_over(a), 0, "bob leads now", what="a hand-over waits for on_stopping")
    ok(a.wait("print", "drained\ttrue", patience=LONG), "which runs while its process leads")


def begin_exec(lock: str) -> tuple[Asked, Asked, Asked]:
    a = candidate(lock, "ann", "--", "sleep", "1000", command="exec")
    a.event("became_leader")
    b = candidate(lock, "bob", "--restart", "on-loss", "--", "sleep", "1000", command="exec")
    b.wait("comes_next", patience=LONG)
    c = candidate(lock, "cid", "-e", IDLE)
    c.event("new_leader")
    return a, b, c


def test_exec(a: Asked, b: Asked, c: Asked) -> None:
    ok(until(lambda: next_of(a) == "bob"), "exec knows who comes next")
    check(hand_over(a), 0, "bob leads now", what="exec hands over, and stays until it can say who leads")
    same(a.leave(LONG), 76, "then it ends with its command: the status says that the lock is another's")
    ok(until(lambda: leads(b)), "the other exec leads")
    check(hand_over(b, "--to", "cid", "--timeout", "3m"), 0, "cid leads now", what="exec --restart hands over, too")
    ok(until(lambda: b.status()["phase"] == "following"), "and is a standby then")


def test_several() -> None:
    script = os.path.join(TMP, "two.lua")
    with open(script, "w") as f:
        f.write(
            "local function lead() sleep(1e6) end\n"
            f"return {{ {{ name = 'x', lock = '{TMP}/x', on_leading = lead }},"
            f" {{ name = 'y', lock = '{TMP}/y', on_leading = lead }} }}\n"
        )
    a = Asked("--identity", "ann", script, options=FAST)
    a.wait("became_leader", count=2)
    check(hand_over(a), 1, "--election NAME", what="of several elections one must be named")
    check(hand_over(a, "--election", "x", "--timeout", "300ms"), 75, what="then it is the one that is asked")
    for order, words in (["pause", "--to", "bob"], "--to is for"), (["why", "--timeout", "1s"], "--timeout is for"):
        check(a.ctl(*order), 2, words, what=f"ctl {' '.join(order)} is refused")


# All begin at once: for who comes next each of them waits as long.
stopping, executing = begin_stopping(os.path.join(TMP, "stopping")), begin_exec(os.path.join(TMP, "exec"))
with Etcd() as server:
    polled = crowd(os.path.join(TMP, "polled") + "?shared=link")
    everyone = {"file": crowd(os.path.join(TMP, "lock")), "etcd": crowd(server.url("handover"))}
    for kind, candidates in everyone.items():
        test_clean(kind, *candidates)
    test_polled(*polled)
    test_stopping(*stopping)
    test_exec(*executing)
    stop_everyone()
test_alone(os.path.join(TMP, "alone"))
test_several()
done()

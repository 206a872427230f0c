#!/usr/bin/env -S PYTHONPATH=. python3
"""A preferred machine, as in docs/cookbook.md, on a real PostgreSQL: it leads whenever it can. When it is killed
another leads, and hands over to it when it is back."""

import signal
import time
from typing import Any

from tests.lib.candidates import WATCHED
from tests.lib.next_arena import LATER, NextArena
from tests.lib.stores import Postgres
from tests.lib.tap import done, note, ok

AFTER = ["--preempt", "--preempt-after", "1s"]
store = Postgres()
f = NextArena(store, "a preferred machine")


def join(name: str, priority: int) -> Any:
    return f.join(name, "--priority", str(priority), *AFTER, times=WATCHED)


def led(count: int, *names: str) -> bool:
    """Waits for the so-many-th term of all; whether it is one of theirs."""
    return bool(f.acts(count, patience=LATER)) and f.terms()[count - 1][1] in names


def gap(last: Any, first: Any) -> None:
    """Between two terms, as the candidates' logs have it."""
    begin, end = first.wait("became_leader"), last.wait("stopped_leading")
    if begin and end:
        note(f"{last.name} stops leading, and {begin['seen'] - end['seen']:.3f} s later {first.name} leads")


others = {name: join(name, 0) for name in ("web1", "web2")}
ok(led(1, *others), "one of two machines leads")
strong = join("big", 10)
ok(led(2, "big"), "a larger one comes, and the leader hands over to it")
gap(others[f.terms()[0][1]], strong)
strong.kill(signal.SIGKILL, strong.worker())
strong.kill(signal.SIGKILL)
strong.leave()
since = time.monotonic()
ok(led(3, *others), "it is killed, and another leads")
note(f"a crash costs {time.monotonic() - since:.3f} s on this machine, where deaths are proved")
strong = join("big", 10)
ok(led(4, "big"), "it is back, and leads again")
ok(others[f.terms()[2][1]].wait("released_for", "for big"), "since the other released the lock for it")
f.close()
store.end()
done()

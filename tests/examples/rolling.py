#!/usr/bin/env -S PYTHONPATH=. python3
"""examples/rolling.sh and drain.sh: five machines are brought up to date on a real etcd, with the time without a leader
at each step. A script stands in for ssh, and a thread for the service manager of each machine."""

import os
import subprocess
import threading
import time
from typing import Any

from tests.lib.candidates import WATCHED
from tests.lib.next_arena import LATER, NextArena
from tests.lib.processes import LUNARCH, ROOT, moment
from tests.lib.stores import Etcd
from tests.lib.tap import done, note, ok, same

NAMES = ["web1", "web2", "web3", "web4", "web5"]
store = Etcd()
f = NextArena(store, "a rolling update")
room = os.path.join(f.dir, "machines")
os.mkdir(room)
steps: list[tuple[str, float, float]] = []  # which machine was away, from when, until when


def path(*parts: str) -> str:
    return os.path.join(room, *parts)


def script(name: str, text: str) -> None:
    with open(path(name), "w") as file:
        file.write("#!/bin/sh\nset -eu\n" + text)
    os.chmod(path(name), 0o755)


os.symlink(LUNARCH, path("lunarch"))
for name in ("drain.sh", "rolling.sh"):
    os.symlink(os.path.join(ROOT, "examples", name), path(name))
script(
    "remote",
    f'export MACHINE=$1 PATH="{room}:$PATH"\nfor s in "{room}/$1".*/ctl/*.sock; do export LUNARCH_CONTROL=$s; done\n'
    'shift\nexec "$@"\n',
)
script("restart", f'kill "$(cat "{room}/$MACHINE.pid")"\nwhile [ ! -e "{room}/$MACHINE.2" ]; do sleep 0.1; done\n')


def start(name: str, version: int) -> Any:
    state = path(f"{name}.{version}.state")
    os.mkdir(state)
    c = f.join(name, "--state-dir", state, times=WATCHED)
    with open(path(f"{name}.pid"), "w") as file:
        file.write(f"{c.pid}\n")
    return c


def manage(name: str, c: Any) -> None:
    """When it has ended its next version is started; the restart has been done when that one knows who leads."""
    c.process.wait()
    left = time.time()
    state = path(f"{name}.1.state")
    os.rename(state, state.replace(".state", "-gone"))
    if start(name, 2).wait("new_leader", patience=LATER):
        steps.append((name, left, time.time()))
        open(path(f"{name}.2"), "w").close()


threads = []
for name in NAMES:
    c = start(name, 1)
    ok(f.acts(1, "web1") if name == "web1" else c.wait("new_leader"), f"{name} runs")
    threads.append(threading.Thread(target=manage, args=(name, c), daemon=True))
    threads[-1].start()
r = subprocess.run(
    [path("rolling.sh"), *NAMES, "--", "restart"],
    env={**os.environ, "REMOTE": path("remote")},
    capture_output=True,
    text=True,
    timeout=900,
)
ok(r.returncode == 0, "the update succeeds", r.stdout + r.stderr)
note(r.stdout)
for t in threads:
    t.join(60)
same(sorted(s[0] for s in steps), NAMES, "all five machines run the new version")
begins = sorted(moment(e["time"]) for c in f.candidates for e in c.all("became_leader"))
ends = sorted(moment(e["time"]) for c in f.candidates for e in c.all("stopped_leading"))
since = 0.0
for name, left, back in steps:
    gaps = [b - e for e, b in zip(ends, begins[1:]) if since <= e < back]
    note(f"{name} is away for {back - left:.3f} s; nobody leads for {sum(gaps) * 1000:.1f} ms")
    since = back
# A machine that was too slow for its lease has led before the update of another.
ok(
    len(begins) > 2 or (len(begins), steps[-1][0]) == (2, "web1"),
    "the one that led was the last one, and handed over once",
)
f.close()
store.end()
done()

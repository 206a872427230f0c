#!/usr/bin/env -S PYTHONPATH=. python3
"""make compare: the same failures done to Lunarch and to other electors. Who leads acts every 10 ms and writes when.
All are on one machine, so one clock says whether two acted at once, and for how long.

    compare.py [--runs N] [--jobs N] [--json FILE] [--peers WORD...] [--faults WORD...]

Each cell of the table is one elector, one failure and one kind of work: obedient work ends when it is told to, and busy
work does not listen. Peers are in peers.py."""

import argparse
import glob
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.lib.cgroups import Cgroup
from tests.cluster.compare.peers import PEERS, SERVERS, Peer, actor
from tests.lib.processes import children, marked, new_directory
from tests.lib.proxy import Proxy

KINDS = ("obedient", "busy")
PAUSE_S = 1.0  # who has not acted for so long has not acted in between: it was stopped
SETTLE_S = 3.0  # a candidate that has been there so long waits in the queue
WATCH_S = 8.0  # how long both are watched when another leads


class Gone(Exception):
    """A run that shows nothing: whoever should lead first never did."""


def acts_of(path: str) -> list[float]:
    with open(path, "rb") as f:
        data = f.read()
    return [a for (a,) in struct.iter_unpack("d", data[: len(data) // 8 * 8])]


def stretches(acts: list[float]) -> list[tuple[float, float]]:
    """(first, last) of acts with no pause between them."""
    found: list[tuple[float, float]] = []
    for at in acts:
        if found and at - found[-1][1] < PAUSE_S:
            found[-1] = (found[-1][0], at)
        else:
            found.append((at, at))
    return found


def overlap(everyone: list[list[float]]) -> float:
    """Seconds in which at least two acted. One act in the middle of another's counts as a millisecond."""
    ends = sorted(end for acts in everyone for a, b in stretches(acts) for end in ((a, 1), (max(b, a + 0.001), -1)))
    total, acting, since = 0.0, 0, 0.0
    for at, change in ends:
        if acting >= 2:
            total += at - since
        acting, since = acting + change, at
    return total


def send(pid: int, sig: int) -> None:
    try:
        os.kill(pid, sig)
    except ProcessLookupError:
        pass


class Scene:
    """One run: its candidates, and who of them has acted when."""

    def __init__(self, peer: Peer, server: Any, fault: str, kind: str, program: str) -> None:
        self.peer, self.server, self.fault, self.kind, self.program = peer, server, fault, kind, program
        self.place, self.key = new_directory("lunarch-compare-"), f"compare-{uuid.uuid4().hex[:12]}"
        self.candidates: dict[str, subprocess.Popen[bytes]] = {}
        self.mark = f"LUNARCH_COMPARE={self.key}"
        self.freezer = Cgroup(self.key) if fault == "machine frozen" else None

    def join(self, name: str, port: int | None = None) -> None:
        command = [self.program, self.place, name, self.kind]
        beside = not self.peer.library or self.fault == "holder killed"
        argv = self.peer.argv(
            self.server,
            port or (self.server.port if self.server else 0),
            self.key,
            self.place,
            name,
            self.kind,
            command if beside else [],
        )
        prefix = self.freezer.prefix() if self.freezer and name == "a" else []
        with open(f"{self.place}/{name}.log", "wb") as log:
            self.candidates[name] = subprocess.Popen(
                [*prefix, *argv],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.place,
                start_new_session=True,
                env={**os.environ, "LUNARCH_COMPARE": self.key, "ETCDCTL_API": "3"},
            )

    def acts(self, name: str) -> list[list[float]]:
        return [acts_of(path) for path in glob.glob(f"{self.place}/{name}.*.acts")]

    def acted(self, names: str, since: float, patience: float) -> str:
        """Waits until one of them has acted since then; its name, or nothing."""
        end = time.monotonic() + patience
        while time.monotonic() < end:
            for name in names:
                if any(a and a[-1] > since for a in self.acts(name)):
                    return name
            time.sleep(0.05)
        return ""

    def enter(self, names: str, port: int | None = None) -> None:
        """The first of them leads, and the others wait, in this order."""
        self.join(names[0], port)
        if not self.acted(names[0], 0, 120):
            raise Gone(f"{names[0]} never led")
        for name in names[1:]:
            time.sleep(SETTLE_S)
            self.join(name)
        time.sleep(SETTLE_S)

    def others(self, names: str, since: float) -> str:
        return self.acted(names, since, self.peer.patience)

    def signal(self, name: str, sig: int) -> None:
        """To the elector alone."""
        if self.candidates[name].poll() is None:
            send(self.candidates[name].pid, sig)

    def family(self, name: str) -> list[int]:
        """The elector and all that it has started."""
        pids = [self.candidates[name].pid]
        for pid in pids:
            pids += [c for c in children(pid) if c not in pids]
        return pids

    def finish(self, name: str) -> None:
        """Its work is done, and ends by itself."""
        with open(f"{self.place}/{name}.finish", "w"):
            pass

    def result(self) -> dict[str, Any]:
        everyone = [a for name in self.candidates for a in self.acts(name) if a]
        last = time.monotonic()
        return {
            "overlap_s": round(overlap(everyone), 3),
            "to_the_end": sum(a[-1] > last - PAUSE_S for a in everyone) >= 2,
            "terms": len(everyone),
        }

    def end(self) -> None:
        """Only processes of this run: those that have its mark in their environment."""
        for name in self.candidates:
            self.finish(name)
        if self.freezer:
            self.freezer.freeze(False, [])
        for _ in range(3):
            for pid in set(marked(self.mark)) | {p.pid for p in self.candidates.values() if p.poll() is None}:
                send(pid, signal.SIGKILL)
        for p in self.candidates.values():
            p.wait()
        if self.freezer:
            self.freezer.remove()
        shutil.rmtree(self.place, ignore_errors=True)


# ---- what is done to them: a leads, b waits ----


def cut_off(s: Scene) -> str:
    """Nothing passes between the leader and the store until another has led for a while; then what was held arrives."""
    proxy = Proxy(s.server.port)
    try:
        s.enter("ab", proxy.port)
        since = time.monotonic()
        proxy.freeze()
        led = s.others("b", since)
        time.sleep(WATCH_S)
        proxy.thaw()
        time.sleep(WATCH_S / 2)
        return led
    finally:
        proxy.close()


def elector_stopped(s: Scene) -> str:
    """SIGSTOP to the elector's process, and SIGCONT when another has led for a while. What it has started goes on."""
    s.enter("ab")
    since = time.monotonic()
    s.signal("a", signal.SIGSTOP)
    led = s.others("b", since)
    time.sleep(WATCH_S / 2)
    s.signal("a", signal.SIGCONT)
    time.sleep(WATCH_S)
    return led


def machine_frozen(s: Scene) -> str:
    """The elector and all that it has started stand still, and go on at once when another has led for a while."""
    assert s.freezer
    s.enter("ab")
    since, pids = time.monotonic(), s.family("a")
    s.freezer.freeze(True, pids)
    led = s.others("b", since)
    time.sleep(WATCH_S / 2)
    s.freezer.freeze(False, pids)
    time.sleep(WATCH_S)
    return led


def key_deleted(s: Scene) -> str:
    """Somebody deletes the leader's key, node, record or file."""
    s.enter("ab")
    since = time.monotonic()
    s.peer.delete(s.server, s.key, s.place)
    if not s.peer.store:
        s.join("c")  # b has opened the old file already
    led = s.others("bc", since)
    time.sleep(WATCH_S)
    return led


def stale_waiter(s: Scene) -> str:
    """b is stopped while it waits, for longer than its session. Then a's work is done, c leads, and b is continued."""
    s.enter("abc")
    s.signal("b", signal.SIGSTOP)
    time.sleep(s.peer.lapse + 5)
    since = time.monotonic()
    s.finish("a")
    led = s.others("c", since)
    time.sleep(WATCH_S / 4)
    s.signal("b", signal.SIGCONT)
    time.sleep(WATCH_S)
    return led


def holder_killed(s: Scene) -> str:
    """SIGKILL to the elector's process while the command that it has started runs."""
    s.enter("ab")
    since = time.monotonic()
    s.signal("a", signal.SIGKILL)
    led = s.others("b", since)
    time.sleep(WATCH_S)
    return led


FAULTS: dict[str, Callable[[Scene], str]] = {
    "leader cut off": cut_off,
    "elector stopped": elector_stopped,
    "machine frozen": machine_frozen,
    "store frozen": lambda s: "",  # done to all of a server's at once, in freeze()
    "key deleted": key_deleted,
    "stale waiter": stale_waiter,
    "holder killed": holder_killed,
}


class Frozen:
    """A server is frozen once, for all elections on it: when all are ready, until the longest session is over."""

    def __init__(self, server: Any, count: int, lapse: float) -> None:
        self.server, self.lapse, self.since = server, lapse, 0.0
        self.ready = threading.Barrier(count, action=self.freeze)

    def freeze(self) -> None:
        self.since = time.monotonic()
        self.server.pause()
        time.sleep(self.lapse + 5)
        self.server.resume()

    def play(self, s: Scene) -> str:
        try:
            s.enter("ab")
        finally:
            self.ready.wait(600)
        led = s.acted("b", self.since, 2 * s.peer.lapse)
        time.sleep(WATCH_S)
        return led


def applies(peer: Peer, fault: str) -> bool:
    return bool(peer.store) or fault not in ("leader cut off", "store frozen")


class Comparison:
    def __init__(self, runs: int, jobs: int, peers: list[Peer], faults: list[str], quiet: bool = False) -> None:
        self.runs, self.jobs, self.peers, self.faults, self.quiet = runs, jobs, peers, faults, quiet
        self.servers: dict[str, Any] = {}
        self.results: list[dict[str, Any]] = []
        self.program = actor()

    def say(self, text: str) -> None:
        if not self.quiet:
            print(text, file=sys.stderr, flush=True)

    def play(self, peer: Peer, fault: str, kind: str, run: int, how: Callable[[Scene], str]) -> None:
        s = Scene(peer, self.servers.get(peer.store), fault, kind, self.program)
        row: dict[str, Any] = {"peer": peer.name, "fault": fault, "work": kind, "run": run}
        try:
            row["next"] = how(s)
            row |= s.result()
        except Exception as e:  # a run that could not be made is no result, and is said
            row["error"] = f"{type(e).__name__}: {e}"
            for name in s.candidates:
                with open(f"{s.place}/{name}.log", errors="replace") as f:
                    row["error"] += f"\n{name}: {f.read()[-500:]}"
        finally:
            s.end()
        self.results.append(row)
        self.say(json.dumps(row))

    def everything(self) -> None:
        stores_ = sorted({p.store for p in self.peers if p.store})
        with ThreadPoolExecutor(4) as pool:
            self.servers = dict(zip(stores_, pool.map(lambda name: SERVERS[name](), stores_)))
        try:
            todo = [
                (peer, fault, kind, run, FAULTS[fault])
                for run in range(1, self.runs + 1)
                for fault in self.faults
                for peer in self.peers
                for kind in KINDS
                if applies(peer, fault) and fault != "store frozen"
            ]
            with ThreadPoolExecutor(self.jobs) as pool:
                for job in [pool.submit(self.play, *t) for t in todo]:
                    job.result()
            if "store frozen" in self.faults:
                self.freeze()
        finally:
            for server in self.servers.values():
                server.end()

    def freeze(self) -> None:
        threads = []
        for store, server in self.servers.items():
            on_it = [p for p in self.peers if p.store == store]
            frozen = Frozen(server, len(on_it) * len(KINDS) * self.runs, max(p.lapse for p in on_it))
            for peer in on_it:
                for kind in KINDS:
                    for run in range(1, self.runs + 1):
                        job = (peer, "store frozen", kind, run, frozen.play)
                        threads.append(threading.Thread(target=self.play, args=job))
        for t in threads:
            t.start()
        for t in threads:
            t.join()

    def cell(self, peer: Peer, fault: str, kind: str) -> str:
        """How many of how many runs had two leaders, and for how long at most. "+": still at the end of the run."""
        if not applies(peer, fault):
            return "–"
        rows = [r for r in self.results if (r["peer"], r["fault"], r["work"]) == (peer.name, fault, kind)]
        good = [r for r in rows if "error" not in r]
        twice = [r for r in good if r["overlap_s"] > 0]
        text = f"{len(twice)} of {len(good)}"
        if twice:
            worst = max(twice, key=lambda r: r["overlap_s"])
            most = worst["overlap_s"]
            text += f", {most:.1f} s" if most >= 0.1 else f", {most * 1000:.0f} ms"
            text += "+" if worst["to_the_end"] else ""
        alone = sum(not r["next"] for r in good)
        if alone:
            text += f", nobody else led in {alone}"
        return text + (f" ({len(rows) - len(good)} not made)" if len(rows) > len(good) else "")

    def table(self) -> str:
        lines = ["| elector | work | " + " | ".join(self.faults) + " |", "|---|---|" + "---|" * len(self.faults)]
        for peer in self.peers:
            for kind in KINDS:
                cells = [self.cell(peer, fault, kind) for fault in self.faults]
                lines.append(f"| {peer.name} | {kind} | " + " | ".join(cells) + " |")
        return "\n".join(lines)


def chosen(words: list[str], names: list[str]) -> list[str]:
    return [n for n in names if not words or any(w.lower() in n.lower() for w in words)]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=int(os.environ.get("RUNS") or 3))
    parser.add_argument("--jobs", type=int, default=12, help="runs at a time: they mostly wait")
    parser.add_argument("--json", help="write every run there")
    parser.add_argument("--peers", nargs="*", default=[])
    parser.add_argument("--faults", nargs="*", default=[])
    options = parser.parse_args()
    names = chosen(options.peers, [p.name for p in PEERS])
    wanted = [p for p in PEERS if p.name in names]
    absent = [p.name for p in wanted if not p.there()]
    wanted = [p for p in wanted if p.there()]
    c = Comparison(options.runs, options.jobs, wanted, chosen(options.faults, list(FAULTS)))
    began = time.time()
    c.everything()
    versions = {p.name: p.version() for p in wanted}
    print(c.table())
    print("\n" + ", ".join(f"{name} {version}" for name, version in versions.items()))
    if absent:
        print(f"not installed or not built, so left out: {', '.join(absent)}")
    print(f"{len(c.results)} runs in {time.time() - began:.0f} s")
    if options.json:
        with open(options.json, "w") as f:
            json.dump({"versions": versions, "runs": c.results}, f, indent=1)
    sys.exit(any("error" in r for r in c.results))


if __name__ == "__main__":
    main()

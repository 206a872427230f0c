"""The rows of make bench about who comes next: the gap of a hand-over with a next beside one without, of `lunarch ctl
handover`, and after a next that has died; and what all of it asks of a store, counted there. Everything at the presets.
Used by bench.py for the file lock, and by store_rows.py on each store's own server, beside its peers and its floor."""

import base64
import http.client
import json
import os
import shutil
import signal
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from tests.lib import servers
from tests.lib.processes import LUNARCH, new_directory, piped, wait_for
from tests.bench.rows import QUICK, RUNS, Runner, kill_all, row

# Both print a moment of CLOCK_MONOTONIC, which all processes of a machine share.
SAYS = """local function say(what) io.write(("%s %.9f\\n"):format(what, time.monotonic())) io.flush() end
return { on_leading = function() say "leads" end, on_stopped = function() say "stopped" end }"""
BATCH = 3 if QUICK else 10  # leaders of each kind that wait for their next side by side
WITHOUT, WITH, CTL = "without a next", "with a next", "by ctl handover"


def said(r: Any, what: str) -> float:
    """The moment in the line that begins with this word; lines before it are passed over."""
    for line in r.out:
        word, at = line.split()
        if word == what:
            return float(at)
    raise RuntimeError(f"a candidate has ended without saying {what!r}: {r.log.events[-5:]}")


# ---- the next record ----


def beside(url: str) -> str:
    """The URL of the place where the lock's next record is."""
    place, mark, query = url.partition("?")
    head, key = os.path.split(place)
    if url.startswith("redis:"):
        return f"{head}/%7B{key}%7D:next"
    if url.startswith("kube:"):
        return f"{place}-next{mark}{query}"
    return f"{head}/.{key}.next" if url.startswith("/") else f"{place}.next{mark}{query}"


def occupy(url: str) -> Any:
    """Another lock's record is where the next record would be, as soon as the process that is returned has ended. So
    nobody comes next, and all else is the same."""
    return subprocess.Popen(
        [LUNARCH, "run", "--once", "--lock", beside(url), "-e", "term:resign()"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def next_of(url: str) -> Any:
    """Who comes next, as the leader publishes it; None: nobody."""
    shown = subprocess.run([LUNARCH, "status", "--json", "--lock", url], capture_output=True, text=True).stdout
    found = json.loads(shown).get("next") if shown else None
    return found.get("identity") if isinstance(found, dict) else found


def await_next(url: str) -> Any:
    """A standby waits up to R/2 before it comes next, and a leader that is not told of it looks each L."""

    def look() -> Any:
        time.sleep(0.3)
        return next_of(url)

    found = wait_for(look)
    if not found:
        raise RuntimeError(f"{url}: nobody comes next")
    return found


# ---- gaps ----


class Group:
    """A leader and its standbys, on a lock of their own. Groups are made first, and then begun: on a store that elects
    nobody for a while they wait side by side."""

    def __init__(self, url: str, standbys: int = 1, alone: bool = False) -> None:
        """alone: nobody can come next."""
        self.url, self.count, self.control = url, standbys, os.path.join(new_directory(), "control")
        self.occupant = occupy(url) if alone else None
        self.leader = Runner(url, SAYS, ["--identity", "leader", "--control", self.control])
        self.standbys: dict[str, Runner] = {}

    def begin(self) -> None:
        said(self.leader, "leads")
        if self.occupant and self.occupant.wait() != 0:
            raise RuntimeError(f"the place beside {self.url} cannot be taken: {self.occupant.returncode}")
        self.standbys = {f"s{i}": Runner(self.url, SAYS, ["--identity", f"s{i}"]) for i in range(self.count)}
        for s in self.standbys.values():
            s.log.wait("new_leader")

    def hand_over(self, kind: str) -> tuple[float, float]:
        """Milliseconds from the signal, or the command's start, and from on_stopped's first line, to on_leading's."""
        (standby,) = self.standbys.values()
        began = time.monotonic()
        if kind == CTL:
            command = [LUNARCH, "ctl", "handover", "--control", self.control]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        else:
            self.leader.log.kill(signal.SIGTERM)
        leads = said(standby, "leads")
        stopped = said(self.leader, "stopped")
        if kind != CTL:
            self.leader.log.process.wait()  # the end of its processes would be a part of what is measured next
        return (leads - began) * 1000, (leads - stopped) * 1000

    def leave(self) -> None:
        for r in (self.leader, *self.standbys.values()):
            r.log.kill(signal.SIGCONT)
            r.leave()
        shutil.rmtree(os.path.dirname(self.control))


def measured(url: Callable[[str], str]) -> dict[str, list[tuple[float, float]]]:
    """Of each kind, what Group.hand_over measures; the kinds by turns, each as often the first as the others, so that
    what else the machine does is in all, and what the last one left."""
    kinds = (WITHOUT, WITH, CTL)
    values: dict[str, list[tuple[float, float]]] = {kind: [] for kind in kinds}
    for first in range(0, RUNS, BATCH):
        groups = {
            (i, kind): Group(url(f"n{i}x{k}"), alone=kind == WITHOUT)
            for i in range(first, min(RUNS, first + BATCH))
            for k, kind in enumerate(kinds)
        }
        for group in groups.values():
            group.begin()
        for (_, kind), group in groups.items():
            if kind != WITHOUT:
                await_next(group.url)
        for i, kind in sorted(groups, key=lambda one: (one[0], (kinds.index(one[1]) + one[0]) % len(kinds))):
            values[kind].append(groups[i, kind].hand_over(kind))
        for group in groups.values():
            group.leave()
    return values


def after_dead_next(url: Callable[[str], str]) -> Iterator[float]:
    """The next dies with all its processes, and its leader ends at once: until the other standby leads."""
    groups = [Group(url(f"d{i}"), standbys=2) for i in range(2 if QUICK else 10)]
    for group in groups:
        group.begin()
    for group in groups:
        following = group.standbys.pop(await_next(group.url))
        (other,) = group.standbys.values()
        kill_all(following.log)
        began = time.monotonic()
        group.leader.log.kill(signal.SIGTERM)
        yield (said(other, "leads") - began) * 1000
        following.log.leave()
        following.out.close()
    for group in groups:
        group.leave()


def gaps(name: str, url: Callable[[str], str], floor: Any = None) -> None:
    values = measured(url)
    for i, since in ((0, "from its beginning"), (1, "from on_stopped")):
        goal = None
        for kind, pairs in values.items():
            each = [pair[i] for pair in pairs]
            row(f"{name}: hand-over {kind}, {since}", goal, each, "ms", floor if i == 0 else None)
            goal = goal or round(statistics.median(each), 1)  # with a next it takes no longer
    row(f"{name}: SIGTERM just after the next was killed", 600, list(after_dead_next(url)), "ms")


# ---- requests ----


def local_ports(pid: int) -> set[str]:
    """Of the TCP connections of this process."""
    inodes = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            inodes.add(os.readlink(f"/proc/{pid}/fd/{fd}").removeprefix("socket:[").rstrip("]"))
        except OSError:
            pass
    with open("/proc/net/tcp") as f:
        rows = [line.split() for line in f.readlines()[1:]]
    return {str(int(r[1].split(":")[1], 16)) for r in rows if r[9] in inodes}


class Monitor:
    """Every command that a Redis carries out, as it tells a client that asks for it (MONITOR)."""

    def __init__(self, server: Any) -> None:
        self.lines: list[str] = []
        argv = ["redis-cli", "-h", "127.0.0.1", "-p", str(server.port), "MONITOR"]
        self.process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout
        self.process.stdout.readline()
        threading.Thread(target=self.lines.extend, args=(self.process.stdout,), daemon=True).start()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


class RedisCount:
    """Requests by who sent them, and those that name the next record; a script's own commands have no sender."""

    def __init__(self, server: Any, group: Group) -> None:
        self.monitor, self.group = Monitor(server), group

    def rows(self, minutes: float) -> Iterator[tuple[str, Any, float]]:
        lines = list(self.monitor.lines)
        self.monitor.close()
        following = next_of(self.group.url)
        others = [s for name, s in self.group.standbys.items() if name != following]

        def sent(runners: Any) -> tuple[float, float]:
            ports = set().union(*(local_ports(r.log.pid) for r in runners))
            own = [line for line in lines if line.split("]")[0].rpartition(":")[2] in ports]
            own = [line for line in own if '"ECHO"' not in line]  # by which each request's answers are known to end
            return len(own) / minutes, len([line for line in own if ":next" in line.lower()]) / minutes

        total, about = sent([self.group.leader])
        yield "requests a minute of the leader", 34, total
        yield "  of these for the next record", 4, about
        total, about = sent([self.group.standbys[following]])
        yield "requests a minute of the next", None, total
        yield "  of these for the next record", 4, about
        if others:
            total, about = sent(others)
            yield "requests a minute of each other standby", None, total / len(others)
            yield "  of these for the next record", 0, about / len(others)
        sets = [line for line in lines if " lua] " in line and '"set"' in line.lower() and ":next" in line]
        yield "writes of the next record a minute", 4, len(sets) / minutes


class EtcdCount:
    """Requests of all candidates together, from etcd's metrics, and how often the next record was written, from its
    version."""

    def __init__(self, server: Any, group: Group) -> None:
        self.port, self.key = server.port, os.path.basename(group.url)
        self.version, self.requests = self.next_version(), self.count()

    def ask(self, method: str, path: str, body: str | None = None) -> str:
        connection = http.client.HTTPConnection(f"127.0.0.1:{self.port}")
        connection.request(method, path, body)
        text = connection.getresponse().read().decode()
        connection.close()
        return text

    def count(self) -> float:
        own = ("Txn", "Range", "Put", "DeleteRange")
        return sum(
            float(line.split()[1])
            for line in self.ask("GET", "/metrics").splitlines()
            if line.startswith("grpc_server_handled_total{") and any(f'grpc_method="{m}"' in line for m in own)
        )

    def next_version(self) -> int:
        key = base64.b64encode(f"{self.key}.next".encode()).decode()
        found = json.loads(self.ask("POST", "/v3/kv/range", json.dumps({"key": key}))).get("kvs")
        return int(found[0]["version"]) if found else 0

    def rows(self, minutes: float) -> Iterator[tuple[str, Any, float]]:
        requests, version = self.count(), self.next_version()
        yield "requests a minute of all candidates", None, (requests - self.requests) / minutes
        yield "writes of the next record a minute", 4, (version - self.version) / minutes


def next_requests(directory: str) -> None:
    """A leader's 30 renewals a minute, 4 reads by the leader, 4 writes by the next, and nothing by the others."""
    minutes = 1.0 if QUICK else 5.0
    counters: Any = ((servers.Redis, RedisCount), (servers.Etcd, EtcdCount))
    for kind, counter in counters:
        for standbys in (1, 3, 100):
            with kind() as server:
                group = Group(server.url("count"), standbys)
                group.begin()
                await_next(group.url)
                time.sleep(20)  # what follows the beginning of a term has happened
                count = counter(server, group)
                began = time.monotonic()
                time.sleep(60 * minutes)
                for what, goal, value in count.rows((time.monotonic() - began) / 60):
                    row(f"{kind.__name__}, {standbys} standbys: {what}", goal, [value], "")
                group.leave()


# ---- a command that is warm ----

WARM = """sleep 0.5
if [ "$LUNARCH_WARM_FD" ]; then eval "echo ready >&$LUNARCH_WARM_FD; read -r line <&$LUNARCH_WARM_FD"; fi
echo serves; exec sleep 1000"""


def exec_warm(directory: str) -> None:
    """A command that needs half a second before it can serve: SIGTERM to the leader until the next one serves."""
    for kind, options in (("cold", ()), ("warm", ("--warm",))):
        values = []
        for i in range(3 if QUICK else 10):
            lock = f"{directory}/{kind}{i}"
            argv = [LUNARCH, "exec", *options, "--lock", lock, "--", "sh", "-c", WARM]
            leader = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            piped(leader.stdout).readline()
            standby = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            await_next(lock)
            time.sleep(1)  # it is ready
            began = time.perf_counter()
            leader.send_signal(signal.SIGTERM)
            piped(standby.stdout).readline()
            values.append((time.perf_counter() - began) * 1000)
            for p in (leader, standby):
                p.terminate()
                p.wait()
                piped(p.stdout).close()
        row(f"exec: SIGTERM until the next command serves, {kind}", None, values, "ms")


parts = (next_requests, exec_warm)

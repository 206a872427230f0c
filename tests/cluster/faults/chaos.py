#!/usr/bin/env -S PYTHONPATH=. python3
"""Five electors, each on a machine of its own (machines.py), on a store of several servers, and storms of faults that
overlap, drawn at random from a seed. No term acts beside the next; a receiver of tokens never accepts an older one
after a newer; no checkpoint is lost or set back; when a storm is over somebody leads.

    chaos.py [--stores NAME...] [--minutes N] [--seed N] [--beyond]

Stores: file redis etcd postgres zookeeper kubernetes nats. --beyond: with faults that docs/safety.md does not cover,
too, where only tokens and checkpoints must hold. Without arguments: what the whole check runs."""

import argparse
import os
import random
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.lib import chaos_timeline
from tests.lib.chaos_faults import Fault, Unfit, catalog, draw
from tests.lib.chaos_nodes import LEASE_S, START_S, Node
from tests.lib.chaos_record import Acts, Receiver
from tests.lib.chaos_stores import SITES
from tests.lib.field import Field
from tests.lib.machines import Network, Way, apart
from tests.lib.processes import LUNARCH, PATIENCE, wait_for, waited
from tests.lib.tap import at_once, done, note, ok, same, skip

ELECTORS = 5
STORM_S = 20.0
STALL_S = 0.5  # the machine that runs all this was late by so long within a lease: an overlap then shows nothing
LEADS_AGAIN_S = 6 * PATIENCE  # after a storm that is waited for; how long it may take is counted (may_take)


class Chaos(Field):
    def __init__(self, number: int, store: str, seed: int, beyond: bool) -> None:
        super().__init__(f"{store}{', beyond the promises' if beyond else ''}")
        self.seed, self.beyond = seed, beyond
        self.network = Network(number, seed)
        self.site: Any = SITES[store](self.network)
        self.receiver, self.acted = Receiver(self.witness + ".receiver"), Acts(self.witness + ".acts")
        self.nodes: list[Node] = []
        for i in range(ELECTORS):
            m = self.network.machine(f"e{i + 1}")
            if not self.site.nodes:
                self.site.seen_by(m)
            self.nodes.append(Node(self, m, self.site.url(), f"{number}-{seed}"))
        self.kinds = catalog(self.site, beyond)
        self.faults: list[Fault] = []
        self.notes: list[tuple[float, str]] = []
        self.overlaps: list[tuple[float, str]] = []
        self.ways: list[tuple[set[tuple[int, int]], Way]] = []
        self.threads: list[threading.Thread] = []
        self.children: list[Any] = []
        self.undo: list[tuple[float, int, Fault, Callable[[], object]]] = []
        self.calms: list[float] = []
        self.tardy: list[str] = []  # those that took too long
        self.excused = 0  # that this machine may have made too long
        self.began = self.ended = time.monotonic()

    # ---- what faults use ----

    def aside(self, job: Callable[[], object]) -> None:
        """What may take long."""
        t = threading.Thread(target=job, daemon=True)
        t.start()
        self.threads.append(t)

    def run(self, command: list[str]) -> None:
        self.children.append(
            subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=self.dir
            )
        )

    def hurt_network(self, some: list[int], others: list[int], direction: str, way: Way) -> Callable[[], object]:
        pairs = {(a, b) for a in some for b in others if direction in ("both", "from")}
        pairs |= {(b, a) for a in some for b in others if direction in ("both", "to")}
        entry = (pairs, way)
        self.ways.append(entry)
        self.set_network()

        def undo() -> None:
            self.ways.remove(entry)
            self.set_network()

        return undo

    def set_network(self) -> None:
        now: dict[tuple[int, int], Way] = {}
        for pairs, way in self.ways:
            for p in pairs:
                now[p] = now.get(p, Way()) | way
        self.network.set(now)

    # ---- a storm ----

    def leader(self) -> Node | None:
        t = self.acted.newest
        return next((n for n in self.nodes if t and n.name == t.name and n.runs()), None)

    def tick(self, tend: bool = True) -> None:
        now = time.monotonic()
        for entry in [u for u in self.undo if u[0] <= now]:
            self.undo.remove(entry)
            entry[3]()
            entry[2].ended = now
        for n in self.nodes if tend else []:
            n.tend(now)
        self.acted.read()
        self.children = [c for c in self.children if c.poll() is None]
        time.sleep(0.02)

    def begin(self, f: Fault) -> None:
        f.began = time.monotonic()
        self.faults.append(f)
        of_server = f.kind.startswith(("server", "failed", "shared"))
        target: Any = f.target
        if not of_server:
            target = self.leader() if f.target == "leader" else self.nodes[f.target]
        f.done = "the leader" if target is None else target.name if not of_server else f"server {target + 1}"
        try:
            if target is None:
                raise Unfit("is not there")
            undo = self.kinds[f.kind][1](self, target, f.what)
        except Unfit as e:
            f.done += f" {e}: not done"
            return
        self.undo.append((f.began + f.length, len(self.faults), f, undo))

    def storm(self, number: int, seconds: float) -> None:
        r = random.Random(f"{self.seed} {self.site.name} {self.beyond} {number}")
        todo = draw(self.kinds, r, seconds, len(self.nodes), len(self.site.nodes))
        since = time.monotonic()
        while time.monotonic() < since + seconds:
            while todo and since + todo[0].at <= time.monotonic():
                self.begin(todo.pop(0))
            self.tick()

    def calm(self) -> bool:
        """All is mended; somebody must lead. Counted from then."""
        for entry in sorted(self.undo, key=lambda u: u[:2], reverse=True):
            entry[3]()
            entry[2].ended = time.monotonic()
        self.undo.clear()
        for n in self.nodes:  # who stood still may not have heard it
            n.resume_campaign(self)
        for t in self.threads:
            t.join(3 * PATIENCE)
        self.threads.clear()
        self.site.mend()
        since, waited_before = time.monotonic(), waited()
        self.notes.append((since, "begins"))
        self.acted.read()
        seen, end = self.acted.count, since + LEADS_AGAIN_S
        # Who acts now may be on its way out: whoever acts a lease's tenth later leads.
        while time.monotonic() < end and (self.acted.count == seen or not self.leads(since)):
            self.tick()
        took = max(0.0, (self.acted.newest.first if self.acted.newest else since) - since)
        self.calms.append(took)
        told = f"somebody leads after {took:.2f} s"
        waited_after = waited()
        if waited_before is not None and waited_after is not None:
            # What a hypervisor or a cgroup's quota takes away nobody is said to wait for: the relay notices it.
            slow = waited_after - waited_before + self.network.stalled(since, time.monotonic())
            told += f", of which something waited for this machine for {slow:.2f} s at most"
            if took > self.may_take() + slow:
                self.tardy.append(f"{since - self.began:.3f} s: {told}")
            elif took > self.may_take():
                self.excused += 1
        self.notes.append((time.monotonic(), told))
        return time.monotonic() < end

    def may_take(self) -> float:
        """Until somebody leads, in calm, on a machine where nobody waits for a processor: all electors may have ended,
        a lease runs out, and a candidate looks."""
        return START_S + 1.5 * LEASE_S + float(self.site.waits_s)

    def somebody(self) -> Any:
        self.acted.read()
        return self.acted.newest

    def leads(self, since: float) -> bool:
        t = self.acted.newest
        return bool(t and t.last > max(since, t.first) + LEASE_S / 10)

    def play(self, minutes: float) -> bool:
        self.began = time.monotonic()
        number = 0
        for n in self.nodes:
            n.start()
        good = ok(wait_for(self.somebody, 3 * PATIENCE), f"{self.name}: somebody leads")
        while good and time.monotonic() < self.began + minutes * 60:
            self.storm(number, min(STORM_S, max(5.0, self.began + minutes * 60 - time.monotonic())))
            good = self.calm()
            number += 1
        self.ended = time.monotonic()
        good = ok(good, f"{self.name}: after each of {number} storms somebody led")
        what = f"within {self.may_take():.1f} s, and what this machine was late by"
        return same(self.tardy, [], f"{self.name}: {what}") and good

    # ---- what must have held ----

    def headline(self) -> str:
        return (
            f"{self.name}, seed {self.seed}: {self.ended - self.began:.0f} s, {len(self.hits())} faults, "
            f"{len(self.acted.terms)} terms"
        )

    def hits(self) -> list[Fault]:
        return [f for f in self.faults if "not done" not in f.done]

    def judge(self) -> bool:
        self.acted.read()
        began_beside = [(int(line.rsplit(" at ", 1)[1].split()[0]) / 1000, line) for line in self.lines("overlaps")]
        for at, what in sorted(began_beside + self.acted.late):
            stall = self.network.stalled(at - LEASE_S, at)
            if stall >= STALL_S:
                note(f"{self.name}: shows nothing, since the machine stood still for {stall:.2f} s: {what}")
            else:
                self.overlaps.append((at, what))
        told = [f"{at - self.began:.3f} s: {what}" for at, what in self.overlaps[:5]]
        good = True
        if self.beyond:
            note(f"{self.name}: {len(self.overlaps)} acts of a term after a newer one's, without a token: {told[:3]}")
        else:
            good = same(told, [], f"{self.name}: no term acted, or was there, beside the next")
        tokens = [t for t, _ in self.terms()]
        if self.beyond:  # what was frozen before its first act may make it when a newer term has acted
            tokens.sort()
        good = same(tokens, sorted(set(tokens)), f"{self.name}: every token is larger than all before it") and good
        r = self.receiver
        accepted = [t for t, _ in r.accepted]
        what = f"accepted {r.count} writes in the order of their tokens, and refused {r.refused}"
        good = same((r.wrong, accepted), ([], sorted(set(accepted))), f"{self.name}: the receiver {what}") and good
        what = "every term loaded what earlier ones knew to be saved"
        good = same(self.checkpoints(kept=True), [], f"{self.name}: {what}") and good
        self.tell()
        return good

    def tell(self) -> None:
        kinds = Counter(f.kind for f in self.hits())
        gap, calm = max([g for _, g in self.acted.gaps] or [0.0]), max(self.calms or [0.0])
        stalls = [length for _, length in self.network.stalls]
        note(self.headline() + f", {sum(n.starts for n in self.nodes)} starts of electors, {self.acted.count} acts")
        note(f"{self.name}: faults: {', '.join(f'{k} {v}' for k, v in sorted(kinds.items()))}")
        if "failed over" in self.kinds:
            note(f"{self.name}: another server served from then on {self.site.moved} times")
        note(f"{self.name}: longest time without an act {gap:.1f} s, {calm:.1f} s of calm until somebody led")
        if self.excused:
            what = f"took longer than {self.may_take():.1f} s, which shows nothing, since this machine was late"
            note(f"{self.name}: {self.excused} of {len(self.calms)} calms {what}")
        note(f"{self.name}: this machine stood still {len(stalls)} times, {max(stalls or [0.0]):.2f} s at the longest")

    def end(self) -> None:
        self.ended = self.ended or time.monotonic()
        for n in self.nodes:
            n.end()
        self.receiver.close()
        self.site.close()
        self.network.close()
        super().end()


LAST = 40  # faults that are told where it failed; the timeline has all


def job(number: int, store: str, minutes: float, seed: int, beyond: bool, always: bool) -> Callable[[], None]:
    def play() -> None:
        c, good = Chaos(number, store, seed, beyond), False
        try:
            good = c.play(minutes)
            good = c.judge() and good
        finally:
            c.ended = time.monotonic()
            there = os.path.join(os.path.dirname(LUNARCH), "chaos")
            if c.site.nodes and not good:
                note(f"{c.name}: its servers' files {c.site.keep(os.path.join(there, f'{store}-{seed}-servers'))}")
            if always or not good:
                note(f"{c.name}: timeline {chaos_timeline.write(c, there)}")
                for f in c.faults[-LAST:] if not good else []:
                    note(f"  {f} ({f.done})")
                note(f"again: make chaos STORE={store} SEED={seed} MINUTES={minutes:g}{' BEYOND=1' if beyond else ''}")
            c.end()

    play.__name__ = store
    return play


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--stores", nargs="*", choices=list(SITES))
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--beyond", action="store_true")
    o = parser.parse_args()
    seed = o.seed or time.time_ns() % 1000000
    note(f"seed {seed}")
    if o.stores:
        jobs = [job(i, s, o.minutes, seed, o.beyond, True) for i, s in enumerate(o.stores)]
    else:
        jobs = [job(0, "file", 1, seed, False, False), job(1, "redis", 1, seed, False, False)]
        jobs.append(job(2, "file", 0.6, seed, True, False))
    at_once(*jobs)
    done()


if __name__ == "__main__":
    if os.geteuid() != 0 or not os.path.exists("/dev/net/tun"):
        skip("chaos", "only root can make machines, of network namespaces with /dev/net/tun")
        done()
    apart()
    main()

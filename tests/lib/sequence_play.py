"""Plays one random sequence (tests/cluster/sequences) on real electors, then lets it be calm, and says what does not
hold.

Not which sequences there are: sequence_draw.py. What the witness shows: sequence_judge.py. Used by
tests/cluster/sequences/sequences.py, a process for each sequence."""

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from dataclasses import dataclass
from typing import Any

from tests.lib import sequence_judge
from tests.lib.candidates import Candidate
from tests.lib.processes import alive, children, marked, new_directory, runs_lock_file, wait_for
from tests.lib.sequence_draw import Op, Sequence
from tests.lib.sequence_places import EtcdPlace, FilePlace, Unfit, emptied, holder
from tests.lib.sequence_script import LEASE_S, OPTIONS, SHUTDOWN_GRACE_S, Script

GOOD = "ab"
START_S = 5  # --start-timeout, where the program has that option
SLACK_S = 10.0  # of a machine that is busy, besides what it was seen to stand still
ASKED_S = 10.0  # an elector answers within, in calm
DURATIONS_S = {"1s": 1.0, "2s": 2.0, "200ms": 0.1}  # of a resignation
UNTIL_S = 4.0  # longer than a worker may take to quit
HURRY_S = 8.0  # most is right again in less than half of that; for shrinking, where there is a second look


def now() -> float:
    """As the scripts write it: seconds since this machine began."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Stalls:
    """For how long this machine stood still: a thread that wants to wake up every 20 ms."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, float]] = []  # until when, for how long
        self.ended = False
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        last = now()
        while not self.ended:
            time.sleep(0.02)
            t = now()
            if t - last > 0.07:
                self.seen.append((t, t - last - 0.02))
            last = t

    def within(self, since: float, until: float | None = None) -> float:
        return sum(length for at, length in list(self.seen) if since <= at <= (until or at) + 1)


class Request:
    """An order by `lunarch ctl`. versions: what was in the script's file meanwhile."""

    def __init__(self, life: "Life", words: list[str]) -> None:
        self.life, self.words, self.asked = life, words, now()
        self.versions = {life.elector.script.version}
        self.names: set[str] = {name for v in life.in_force for name, _ in life.world.scripts[v].elections()}
        self.answered: float | None = None
        self.status: int | None = None
        self.text = ""
        self.process = subprocess.Popen(
            [life.program, "ctl", "--control", life.control, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, life.world.marker[0]: life.world.marker[1]},
        )
        self.thread = threading.Thread(target=self._wait, daemon=True)
        self.thread.start()

    def _wait(self) -> None:
        text = self.process.communicate()[0]
        self.text, self.status = text.strip(), self.process.returncode
        self.answered = now()
        self.life.answered(self)

    def __str__(self) -> str:
        return f"`ctl {' '.join(self.words)}` of {self.life.identity}"


@dataclass
class Rest:
    """An operator's order not to campaign. names: of the elections that there were; None: all that there will be."""

    since: float
    until: float
    names: set[str] | None


class Life:
    """A process of an elector, from its start to its end."""

    def __init__(self, elector: "Elector", number: int) -> None:
        self.elector = elector
        self.world: World = elector.world
        self.program: str = self.world.program
        self.identity: str = f"e{elector.number}.{number}"
        self.control: str = os.path.join(self.world.dir, f"c{self.identity}")
        self.listen = os.path.join(self.world.dir, f"l{self.identity}")
        self.began = now()
        self.killed = self.frozen = False  # by the sequence
        self.stays = False  # a worker is stopped for good
        self.asked_to_end = 0
        self.hup: float | None = None
        self.went_on = 0.0  # after a stop
        self.kills = 0  # of its guards and workers
        self.versions = {elector.script.version}  # that may run here, or may have
        self.in_force: set[int] = {elector.script.version}
        self.requests: list[Request] = []
        self.rests: list[Rest] = []
        self.stopped: list[int] = []  # pidfds
        marker = self.world.marker
        self.c = Candidate(
            "--state-dir",
            os.path.join(self.world.dir, "state"),
            "--control",
            self.control,
            "--listen",
            "unix:" + self.listen,
            "--identity",
            self.identity,
            *self.world.options,
            elector.path,
            options=OPTIONS,
            program=self.program,
            env={marker[0]: marker[1]},
        )

    def runs(self) -> bool:
        return self.c.process.poll() is None

    def get(self, path: str, patience: float = 2.0) -> tuple[int, str]:
        """0: it does not answer."""
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(patience)
            try:
                s.connect(self.listen)
                s.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
                answer = http.client.HTTPResponse(s)
                answer.begin()
                return answer.status, answer.read().decode()
            except (OSError, http.client.HTTPException):
                return 0, ""

    def elections(self) -> Any:
        status, text = self.get("/status")
        return json.loads(text)["elections"] if status == 200 else []

    def ready(self) -> Any:
        """It has loaded its script."""
        return wait_for(lambda: not self.runs() or self.elections(), SLACK_S)

    def guards(self) -> list[int]:
        return sorted(p for p in children(self.c.pid) if not runs_lock_file(p))

    def pids(self, who: str) -> list[int]:
        if who == "elector":
            return [self.c.pid]
        guards = self.guards()
        if who == "all":
            return [self.c.pid, *guards, *(w for g in guards for w in children(g)[:1])]
        first = 0 if who.startswith("old") else len(guards) // 2 if who.startswith("middle") else -1
        chosen = [guards[first]] if guards else []
        return chosen if who.endswith("guard") else [w for g in chosen for w in children(g)[:1]]

    def signal(self, who: str, sig: int, stays: bool = False) -> None:
        """stays: stopped, also in calm."""
        pids = self.pids(who)
        if not pids:
            raise Unfit("is not there")
        for pid in pids:
            try:
                fd = os.pidfd_open(pid)
                signal.pidfd_send_signal(fd, sig)
            except ProcessLookupError:
                continue
            if sig == signal.SIGSTOP and not stays:
                self.stopped.append(fd)
            else:
                os.close(fd)
        if sig == signal.SIGKILL:
            if who == "elector":
                self.killed = True
                self.c.leave()
            else:
                self.kills += 1
        self.stays = self.stays or stays
        if sig == signal.SIGSTOP:
            self.frozen = self.frozen or who == "all" or len(self.stopped) + stays > 1

    def go_on(self) -> None:
        for fd in self.stopped:
            try:
                signal.pidfd_send_signal(fd, signal.SIGCONT)
            except ProcessLookupError:
                pass
            os.close(fd)
        self.stopped = []
        self.went_on = now()

    def ask(self, *words: str) -> Request:
        """By an operator, who is obeyed until he says otherwise."""
        r = Request(self, list(words))
        self.requests.append(r)
        return r

    def answered(self, r: Request) -> None:
        with self.world.lock:
            good = r.status == 0
            if r.words[0] == "reload" and good:
                self.versions |= r.versions
                overlap = [o for o in self.requests if o is not r and o.words[0] == "reload" and not o.answered]
                if self.hup or overlap:
                    self.in_force |= r.versions
                else:
                    self.in_force = set(r.versions)
            elif r.words[0] == "pause" and good:
                # Its answer may be read when the next order has been given.
                resumed = [o.asked for o in self.requests if o.words[0] == "resume" and o.asked >= r.asked]
                self.rests.append(Rest(now(), min(resumed, default=float("inf")), None))
            elif r.words[0] == "resign" and r.words[1:]:
                self.rests.append(Rest(now(), r.asked + DURATIONS_S[r.words[1]] - 0.1, r.names))

    def file_changed(self) -> None:
        version = self.elector.script.version
        for r in self.requests:
            if not r.answered:
                r.versions.add(version)
        if self.hup is not None and (
            self.stopped or now() < max(self.hup, self.went_on) + 2 * self.world.start_s
        ):  # one that is stopped hears of it when it goes on
            self.versions.add(version)
            self.in_force.add(version)

    def load_again(self) -> None:
        """By SIGHUP, of which nothing says when it is done."""
        self.hup = now()
        self.file_changed()
        self.c.kill(signal.SIGHUP)

    def may_run(self, version: int) -> bool:
        """Not what only reloads named that were refused."""
        named = [r for r in self.requests if version in r.versions and r.words[0] == "reload"]
        return version in self.versions or any(r.answered is None for r in named)


class Elector:
    def __init__(self, world: "World", number: int) -> None:
        self.world, self.number = world, number
        self.path: str = os.path.join(world.dir, f"s{number}.lua")
        self.lives: list[Life] = []
        self.script: Script

    def put(self, words: str) -> None:
        with self.world.lock:
            self.script = self.world.script(words, self)
            with open(self.path + ".new", "w") as f:
                f.write(self.script.text())
            os.rename(self.path + ".new", self.path)
            for life in self.lives[-1:]:
                life.file_changed()

    def start(self) -> None:
        if not self.script.loads():
            self.put(GOOD)
        self.lives.append(Life(self, len(self.lives) + 1))

    @property
    def life(self) -> Life:
        return self.lives[-1]


@dataclass
class How:
    program: str
    back_off_s: float  # at most, between a worker's death and the next
    start_timeout: bool  # whether it has that option
    hurry: bool = False


class World:
    def __init__(self, sequence: Sequence, how: "How", etcd: int) -> None:
        self.sequence, self.program, self.hurry = sequence, how.program, how.hurry
        self.took: list[float] = []  # until all was right again
        self.back_off_s = how.back_off_s
        self.start_s = START_S if how.start_timeout else 30
        self.options = ["--start-timeout", f"{START_S}s"] if how.start_timeout else []
        self.dir = new_directory()
        os.mkdir(os.path.join(self.dir, "state"), 0o700)
        self.witness = os.path.join(self.dir, "witness")
        open(self.witness, "w").close()
        self.marker = ("SEQUENCE_TEST", f"{os.getpid()}-{time.time_ns()}")
        self.place: Any = EtcdPlace(etcd, self.marker[1] + "/") if sequence.lock == "etcd" else FilePlace()
        self.lock = threading.RLock()
        self.scripts: dict[int, Script] = {}
        self.stalls = Stalls()
        self.edits: dict[str, int] = {}
        self.hurt = False  # the store was
        self.older: dict[str, bytes] = {}
        self.notes: list[str] = []
        self.wrong: list[str] = []
        self.last_op = now()
        self.electors = [Elector(self, i + 1) for i in range(sequence.electors)]

    def script(self, words: str, elector: Elector) -> Script:
        version = len(self.scripts) + 1
        self.scripts[version] = Script(words, version, str(elector.number), self.witness, self.place.locks)
        return self.scripts[version]

    @property
    def lives(self) -> list[Life]:
        return [life for e in self.electors for life in e.lives]

    def fail(self, category: str, text: str) -> None:
        self.wrong.append(f"{category}: {text}")

    # ---- operations ----

    def do(self, op: Op) -> None:
        if op.what == "wait":
            return
        if op.what in ("record", "store"):
            getattr(self, "do_" + op.what)(*op.args)
            return
        e = self.electors[min(int(op.args[0]), len(self.electors)) - 1]
        if op.what == "start":
            if e.life.runs():
                raise Unfit("runs")
            e.start()
        elif op.what == "write":
            e.life.ready()
            e.put(op.args[1])
        elif not e.life.runs():
            raise Unfit("has ended")
        else:
            getattr(self, "do_" + op.what)(e.life, *op.args[1:])

    def do_reload(self, life: Life, words: str = "") -> None:
        life.ready()
        if words:
            life.elector.put(words)
        life.ask("reload")

    def do_hup(self, life: Life, words: str = "") -> None:
        life.ready()
        if words:
            life.elector.put(words)
        life.load_again()

    def do_kill(self, life: Life, who: str) -> None:
        life.signal(who, signal.SIGKILL)

    def do_stop(self, life: Life, who: str, stays: str = "") -> None:
        life.signal(who, signal.SIGSTOP, bool(stays))

    def do_cont(self, life: Life) -> None:
        life.go_on()

    def do_pause(self, life: Life) -> None:
        life.ready()
        life.ask("pause")

    def do_resume(self, life: Life) -> None:
        with self.lock:
            for rest in life.rests:
                rest.until = min(rest.until, now())
        life.ready()
        life.ask("resume")

    def do_resign(self, life: Life, *duration: str) -> None:
        life.ready()
        life.ask("resign", *duration)

    def do_handover(self, life: Life, election: str = "a") -> None:
        life.ready()
        life.ask("handover", "--timeout", "1s", "--election", election)

    def do_usr1(self, life: Life) -> None:
        life.ready()
        life.c.kill(signal.SIGUSR1)

    def do_term(self, life: Life, how: str) -> None:
        life.ready()
        for _ in range(2 if how == "twice" else 1):
            life.asked_to_end += 1
            life.c.kill(signal.SIGTERM)
            time.sleep(0.02)

    def do_until(self, life: Life, event: str) -> None:
        since = self.last_op

        def came() -> bool:
            return any(e["seen"] >= since - now() + time.monotonic() for e in life.c.all(event))

        wait_for(came, UNTIL_S)

    def do_look(self, life: Life) -> None:
        """Who cannot lead is not said to be ready to."""
        if life.stopped or not life.ready():
            return

        def wrong() -> list[str]:
            found = []
            elections = life.elections()
            for st in elections:
                path = "/standby" + (f"/{st['name']}" if len(elections) > 1 else "")
                unfit = st["paused"] or st["sittingOutMs"] > 500
                if unfit and not st["leading"] and life.get(path)[0] == 200:
                    found.append(f"{life.identity}: {path} is 200, and /status says {json.dumps(st['reasons'])}")
            return found

        said: list[str] = []
        end = time.monotonic() + 1
        while time.monotonic() < end:
            said = wrong()
            if not said:
                return
            time.sleep(0.1)
        self.fail("ready", said[0])

    def do_record(self, key: str, what: str) -> None:
        content = self.place.get(key)
        self.edits[key] = self.edits.get(key, 0) + 1
        try:
            if what == "delete":
                self.place.delete(key)
            elif what == "empty":
                self.place.put(key, emptied(content))
            elif what == "foreign":
                self.place.put(key, b"config of another program")
            elif key in self.older:
                self.place.put(key, self.older[key])
        except (OSError, RuntimeError) as e:  # what is full, or away
            raise Unfit(str(e)) from e
        if content and holder(content):
            self.older.setdefault(key, content)

    def do_store(self, what: str) -> None:
        self.place.mend()
        if what != "mend":
            self.hurt = True
            try:
                self.place.hurt(what)
            except OSError as e:
                raise Unfit(str(e)) from e

    # ---- calm ----

    def bound(self) -> float:
        """Ten leases, the back-offs, what a script may take to load, to end, and to be ended."""
        lease = 3.0 if any(s.has("times") for s in self.scripts.values()) else LEASE_S
        return 10 * lease + 2 * self.back_off_s + self.start_s + 2 * SHUTDOWN_GRACE_S

    def until(self, complaints: Any, bound: float) -> list[str]:
        """What is left of them at the end of that time. Twice in a row none: what one sees in between may pass."""
        since, quiet = now(), 0
        bound = min(bound, HURRY_S) if self.hurry else bound
        while True:
            found = complaints()
            quiet = 0 if found else quiet + 1
            if not found:
                self.took.append(now() - since)
            hopeless = [f for f in found if f.startswith(("died", "ended"))]
            late = now() > since + bound + self.stalls.within(since)
            if quiet == 2 or hopeless or (found and late):
                return list(found)
            time.sleep(0.1)

    def mend(self) -> None:
        self.place.mend()
        self.revive()
        for life in self.lives:
            life.go_on()
        for key in [k for k in self.edits if holder(self.place.get(k)) is None]:
            self.place.delete(key)
        for e in self.electors:
            if e.life.asked_to_end:
                self.ends(e.life)
            if not e.life.runs():
                if not (e.life.killed or e.life.asked_to_end):
                    self.fail(*self.end_of(e.life))
                e.put(GOOD)
                e.start()
            elif any(r.words[0] in ("pause", "resign") for r in e.life.requests):
                for r in e.life.requests:
                    r.thread.join(ASKED_S if r.words[0] in ("pause", "resign") else 0)
                self.do_resume(e.life)

    def could_not_kill(self, r: Request) -> bool:
        """It was refused since its elector is one that revive starts again."""
        ends = "it is shutting down" in r.text
        while ends and r.life.runs() and now() < (r.answered or 0) + SHUTDOWN_GRACE_S + SLACK_S:
            time.sleep(0.02)
        return ends and r.life.c.process.poll() == 1 and bool(r.life.c.all("not_reaped"))

    def revive(self) -> None:
        """Who could not kill its worker in time ends with 1, and is started again: a guard that has to wait for a
        processor for longer than the kill allowance is no fault."""
        for e in self.electors:
            if e.life.c.process.poll() == 1 and e.life.c.all("not_reaped") and not e.life.asked_to_end:
                self.notes.append(f"{e.life.identity} could not kill its worker in time")
                e.life.killed = True
                e.put(GOOD)
                e.start()

    @staticmethod
    def end_of(life: Life) -> tuple[str, str]:
        status = life.c.process.returncode
        if status < 0:
            return "died", f"{life.identity} died of signal {-status}"
        last = "; ".join(f"{e.get('event')} {e.get('message', '')}" for e in life.c.events[-3:])
        return "ended", f"{life.identity} has ended by itself, with {status}: {last}"

    def ends(self, life: Life) -> None:
        """It was asked to, and must."""
        since = now()
        while life.runs() and now() < since + SHUTDOWN_GRACE_S + SLACK_S + self.stalls.within(since):
            time.sleep(0.02)
        status = life.c.process.poll()
        if status is None:
            self.fail("end", f"{life.identity} does not end")
            life.c.kill()
            life.killed = True
            life.c.leave()
        elif status not in ((0, 143) if life.asked_to_end > 1 else (0,)) and not life.killed:
            if status < 0:
                self.fail(*self.end_of(life))
            else:
                self.fail("end", f"{life.identity} ended with {status}")

    def unanswered(self) -> list[str]:
        return [f"request: {r} is not answered" for life in self.lives for r in life.requests if r.answered is None]

    def complaints(self) -> list[str]:
        self.revive()
        found: list[str] = self.unanswered()
        locks: dict[str, list[tuple[Life, Any, str]]] = {}
        led = sequence_judge.led(self)
        for life in [e.life for e in self.electors]:
            if not life.runs():
                if not life.asked_to_end:
                    category, text = self.end_of(life)
                    found.append(f"{category}: {text}")
                continue
            elections = life.elections()
            if not elections:
                found.append(f"silent: {life.identity} does not say its status")
                continue
            found += self.workers(life, elections)
            # A worker that leads another election is not killed for one whose hooks do not begin.
            patient = life.stays and sum(st["leading"] for st in elections) > 1
            for st in elections:
                path = f"/{st['name']}" if len(elections) > 1 else ""
                locks.setdefault(st["lock"], []).append((life, st, path))
                if st["leading"] and (st["lock"], st["token"]) not in led and not patient:
                    found.append(f"hookless: {life.identity} leads {st['name']}, and no hook of that term has run")
        for lock, those in locks.items():
            found += self.one_leads(lock.rsplit("/", 1)[1], those)
        return found

    def workers(self, life: Life, elections: Any) -> list[str]:
        scripts = [self.scripts[v] for v in life.in_force]
        what = {(st["name"], st["lock"]) for st in elections}
        fitting = [s for s in scripts if s.elections() == what]
        if not fitting:
            words = [s.words for s in scripts]
            return [f"elections: {life.identity} has {sorted(what)}, of the script {' or '.join(words)}"]
        found = []
        guards = life.guards()
        if len(guards) not in [s.workers() for s in fitting]:
            found.append(f"workers: {life.identity} has {len(guards)} guards, its script is {fitting[0].words}")
        if any(not children(g) for g in guards):
            found.append(f"workers: {life.identity} has a guard without a worker")
        addresses = {s.address() for s in fitting}
        for st in elections:
            if st["address"] not in addresses:
                found.append(f"address: {life.identity} has {st['address']}, its script {' or '.join(addresses)}")
        return found

    def one_leads(self, lock: str, those: list[tuple[Life, Any, str]]) -> list[str]:
        found = []
        asked = [(life, st, path, life.get("/leader" + path)[0] == 200) for life, st, path in those]
        leaders = [life.identity for life, _, _, leads in asked if leads]
        if len(leaders) != 1:
            reasons = [f"{life.identity} {st['phase']} {json.dumps(st['reasons'])}" for life, st, _, _ in asked]
            found.append(f"{'nobody' if not leaders else 'two'}: {leaders} lead {lock}: {'; '.join(reasons)}")
        for life, st, path, leads in asked:
            who = f"{life.identity}, {lock}"
            if life.get("/standby" + path)[0] != (503 if leads else 200):
                found.append(f"standby: /standby of {who} is wrong: leads {leads} {json.dumps(st['reasons'])}")
            for p in ("/readyz", "/healthz"):
                if life.get(p)[0] != 200:
                    found.append(f"standby: {p} of {who} is not 200")
            if leads or not leaders:
                continue
            odd = [r for r in st["reasons"] if r["reason"] != "leader"]
            if st["paused"] or st["sittingOutMs"] or odd or not st["next"]["able"]:
                found.append(f"rests: {who} could not lead: {json.dumps(odd)} {st['next']['unableWhy']}")
            if st["leader"] != leaders[0]:
                found.append(f"why: {who} says that {st['leader']} leads, but {leaders[0]} does")
            if leaders[0] not in life.get("/why" + path)[1]:
                found.append(f"why: /why of {who} does not name {leaders[0]}")
        return found

    def all_good(self) -> bool:
        """Whether they could lead, whatever else happened: not one that loops on a standby, or whose worker stays
        stopped though it is to answer may_lead."""
        for life in [e.life for e in self.electors]:
            scripts = [self.scripts[v] for v in life.in_force]
            if any(s.has("loops") or (s.has("maylate") and life.stays) for s in scripts):
                return False
        return True

    def calm(self) -> bool:
        self.mend()
        if self.wrong:
            return False
        self.wrong += self.until(self.all_is_well, self.bound())
        for _ in self.electors[1:] if not self.wrong else []:
            self.hand_on()
        return not self.wrong

    def all_is_well(self) -> list[str]:
        return self.complaints() if self.all_good() else self.unanswered()

    def hand_on(self) -> None:
        """Another one must lead, with the script that it has."""
        leading = [e.life for e in self.electors if any(st["leading"] for st in e.life.elections())]
        for r in [life.ask("resign", "200ms") for life in leading]:
            r.thread.join(ASKED_S)
        self.wrong += self.until(self.all_is_well, self.bound())

    def reload_all(self) -> bool:
        """What loads, loads; from then on everything is of that script."""
        asked = []
        for e in self.electors:
            e.put(GOOD)
            e.life.hup = None
            asked.append(e.life.ask("reload"))
        left = self.until(self.unanswered, self.start_s + 2 * SHUTDOWN_GRACE_S + 2 * self.back_off_s + ASKED_S)
        self.wrong += left
        for r in asked:
            if not left and r.status and not self.could_not_kill(r):
                self.fail("reload", f"{r} of a good script: status {r.status}, {r.text}")
        if not self.wrong:
            self.wrong += self.until(self.complaints, self.bound())
        return not self.wrong

    def leave(self) -> bool:
        """One after the other, who leads the first election first: so each of them must be able to."""
        left = [e.life for e in self.electors]
        while left and not self.wrong:
            leading = [x for x in left if any(st["leading"] and st["name"] == "a" for st in x.elections())]
            life = (leading or left)[0]
            left.remove(life)
            life.asked_to_end += 1
            life.c.kill(signal.SIGTERM)
            self.ends(life)
            if left and not self.wrong:
                self.wrong += self.until(self.complaints, self.bound())
        return not self.wrong

    def left_behind(self) -> None:
        for life in self.lives:
            for path in (life.control, life.listen):
                if life.c.process.returncode == 0 and not life.killed and os.path.exists(path):
                    self.fail("left", f"{life.identity} has left {os.path.basename(path)} behind")
        if not wait_for(lambda: not marked("=".join(self.marker)), SLACK_S):
            names = []
            for pid in marked("=".join(self.marker)):
                with open(f"/proc/{pid}/cmdline", "rb") as f:
                    names.append(f.read().replace(b"\0", b" ").decode().strip())
            self.fail("left", f"processes are left: {names}")
        if not self.wrong:
            for key in "ab":
                content = self.place.get(key)
                if holder(content):
                    self.fail("left", f"the record of {key} still names {holder(content)}")

    # ---- all of it ----

    def play(self) -> None:
        for e in self.electors:  # the first one leads when the others come
            e.put(self.sequence.script)
            e.start()
            e.life.ready()
            if e.number == 1:
                wait_for(lambda: all(st["leading"] for st in self.electors[0].life.elections()), SLACK_S)
        for op in self.sequence.ops:
            time.sleep(op.after_ms / 1000)
            began = now()
            try:
                self.do(op)
            except (Unfit, IndexError, ProcessLookupError) as e:
                self.notes.append(f"not done: {op}: {e}")
            self.last_op = began
        for phase in (self.calm, self.reload_all, self.leave):
            if not phase():
                break
        if not self.wrong:
            self.left_behind()
        sequence_judge.judge(self)

    def end(self) -> None:
        self.stalls.ended = True
        for _ in range(3):
            for pid in marked("=".join(self.marker)):
                if alive(pid):
                    try:
                        os.kill(pid, signal.SIGKILL)
                    except ProcessLookupError:
                        pass
        for life in self.lives:
            life.c.leave(SLACK_S)
        self.place.end()
        shutil.rmtree(self.dir, ignore_errors=True)

    def logs(self) -> list[str]:
        lines = []
        for life in self.lives:
            for e in life.c.events[-60:]:
                when, text = e.get("time", "")[11:23], e.get("message", "").split("\n")[0]
                lines.append(f"{life.identity} {when} {e.get('election', '')} {e.get('event')} {text}")
        return lines + sequence_judge.lines(self)[-60:]


def play(sequence: Sequence, how: "How", etcd: int) -> dict[str, Any]:
    """etcd: the port of a server, for a sequence that is on one."""
    w = World(sequence, how, etcd)
    began = now()
    try:
        w.play()
        return {
            "wrong": w.wrong,
            "notes": w.notes,
            "logs": w.logs(),
            "took": max(w.took, default=0.0),
            "stalled": w.stalls.within(began),
        }
    finally:
        w.end()

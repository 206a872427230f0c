"""The n-th allocation or system call of one process of a candidate fails, in a whole term with a standby beside it:
what became of it.

Not which of them are tried: tests/failures/*.py choose. Used by these."""

import concurrent.futures
import dataclasses
import errno
import hashlib
import itertools
import mmap
import os
import re
import signal
import struct
import subprocess
import threading
import uuid
from collections.abc import Callable, Iterable
from typing import Any

from tests.lib import stores
from tests.lib.candidates import Candidate, timing
from tests.lib.field import Field, compiled
from tests.lib.kubeapi import Api
from tests.lib.processes import LUNARCH, ROOT, children, marked, scratch, wait_for
from tests.lib.tap import note, ok

HOME = os.path.join(ROOT, "tests", "failures")
ROLES = ["other", "elector", "guard", "worker", "launched", "driver", "spawned"]
OWN, LIBRARY = range(2)
CRASH_THERE = 1
WHATS, SITES, HEAD = 512, 16384, 64  # nth.h
# Others may lead 1.5 s after the last term's processes should be dead, which a busy machine may be late by.
TIMES = timing("5s", renew="3s", retry="150ms", stop_grace="500ms", kill="750ms", drift="750ms")
SETTLED = 8.0  # seconds in which a candidate leads, or will not because of what failed
AT_ONCE = int(os.environ.get("AT_ONCE", "4"))  # terms; most of one is waiting
SPARE = 4  # descriptors that a second connection, and what it leaves for a moment, may take


# Where libraries crash without memory, whatever their caller does, by frame_of. The elector is dead then, and its guard
# does what it always does.
CRASHES = {
    # Its C client, 3.8.0: recordio.c does not look whether the first buffer of a message is there, zookeeper.c not
    # whether the message is (create_buffer_oarchive); others assert it (zk_hashtable.c). zookeeper_init2 asks
    # getpwuid_r for a line of its log, in which glibc asserts it (nss_database.c). No issue of its tracker was found.
    *(
        f"libzookeeper_st.so.2 {function}"
        for function in (
            "zookeeper_init2",
            "zookeeper_process",
            "zookeeper_interest",
            "zoo_amulti",
            "zoo_async",
            "zoo_awexists",
            "zoo_awget",
            "zoo_aget_children2",
        )
    ),
    # Both die in the process of a lock file, which is begun again. libcurl 7.88.1 signs what is sent to S3 (sha256.c)
    # and does not look whether OpenSSL could begin; newer ones look. OpenSSL 3.0 itself, asked for a digest by its
    # name (EVP_MD_fetch), takes a lock that it could not make.
    *(f"libcrypto.so.3 {function}" for function in ("EVP_DigestUpdate", "SHA256_Update", "CRYPTO_THREAD_read_lock")),
}


class File:
    """The words of nth.h."""

    def __init__(self) -> None:
        self.path = os.path.join(scratch(), "nth")
        size = 8 * (HEAD + len(ROLES) * (WHATS + 2 * SITES))
        with open(self.path, "w+b") as f:
            f.truncate(size)
            self.map = mmap.mmap(f.fileno(), size)

    def words(self, at: int, count: int) -> list[int]:
        return list(struct.unpack_from(f"={count}Q", self.map, 8 * at))

    def begin(self, *words: int) -> None:
        self.map[:] = bytes(len(self.map))
        struct.pack_into(f"={len(words)}Q", self.map, 0, *words)

    def counts(self, role: str) -> list[int]:
        return self.words(HEAD + WHATS * ROLES.index(role), WHATS)

    def sites(self, role: str, what: int) -> list[int]:
        at = HEAD + WHATS * len(ROLES) + (2 * ROLES.index(role) + what) * SITES
        return self.words(at, min(SITES, self.counts(role)[what]))


def _symbols(*arguments: str) -> list[tuple[int, str]]:
    out = subprocess.run(["nm", "-n", *arguments], capture_output=True, text=True, check=True).stdout
    found = re.findall(r"^([0-9a-f]+) [tT] (\S+)$", out, re.M)
    return [(int(at, 16), name) for at, name in found]


def own_code() -> tuple[int, int]:
    """Where in the program its own functions are: it is linked before the libraries, in one piece (Makefile)."""
    build = os.path.dirname(LUNARCH)
    objects = [os.path.join(d, f) for d, _, files in os.walk(f"{build}/obj") for f in files if f.endswith(".o")]
    out = subprocess.run(["nm", *objects], capture_output=True, text=True, check=True).stdout
    own = set(re.findall(r"^[0-9a-f]+ T (\S+)$", out, re.M)) - {"main"}
    symbols = [(at, name) for at, name in _symbols("--extern-only", LUNARCH) if name != "main"]
    places = [i for i, (_, name) in enumerate(symbols) if name in own]
    first, last = places[0], places[-1]
    strangers = [name for _, name in symbols[first:last] if name not in own]
    if strangers:
        raise RuntimeError(f"in the middle of the program's own code: {strangers[:5]}")
    return symbols[first - 1][0] + 1 if first else 0, symbols[last + 1][0]


class Places:
    """Names for addresses in the program."""

    def __init__(self) -> None:
        self.symbols = _symbols(LUNARCH)

    def name(self, at: int) -> str:
        below = [name for address, name in self.symbols if address <= at]
        return below[-1] if below and at < self.symbols[-1][0] + 4096 else "a shared library"


@dataclasses.dataclass(frozen=True)
class Limit:
    """What to put before a command line that is to run within it; how it is taken away after its end. words: for the
    reader; stranger: what is put before makes it another user's, whose state directory is its own."""

    before: list[str]
    words: str
    end: Callable[[], None] = lambda: None
    stranger: bool = False


@dataclasses.dataclass(frozen=True)
class Fault:
    """how: "alloc", "limit", or the name of a system call. n: 0: nothing fails, all are counted. rest: what follows
    fails, too."""

    how: str
    role: str
    n: int = 0
    what: int = 0  # of an allocation: OWN or LIBRARY; of a system call: its number
    error: int = errno.ENOMEM
    rest: bool = False
    limit: Limit | None = None

    def words(self) -> str:
        """By which a test does it again."""
        if self.how == "alloc":
            return f"{self.role}/{['own', 'library'][self.what]}/{self.n}"
        return f"{self.role}/{self.how}/{self.n}/{errno.errorcode[self.error]}"

    def __str__(self) -> str:
        if self.limit:
            return self.limit.words
        kind = ["own allocation", "allocation by a library"][self.what] if self.how == "alloc" else self.how
        after = " and all later ones" if self.rest else ""
        return f"{self.role}: {kind} {self.n}{after}: {errno.errorcode[self.error]}"


def lot(seed: int, words: str) -> int:
    """A number that is drawn for these words."""
    return int.from_bytes(hashlib.sha256(f"{seed} {words}".encode()).digest()[:8], "big")


def drawn(faults: list[Fault], seed: int, most: int) -> list[Fault]:
    """So many of them. How often a call is made differs a little from term to term; who is drawn hardly depends on
    that."""
    return sorted(faults, key=lambda f: lot(seed, f.words()))[:most]


@dataclasses.dataclass
class Outcome:
    fault: Fault
    kind: str = "not reached"
    fired: bool = False
    at: int = 0
    status: int | None = None
    wrong: list[str] = dataclasses.field(default_factory=list)
    left: set[str] = dataclasses.field(default_factory=set)  # files after a clean end
    descriptors: int = 0  # of the elector while it leads
    log: list[str] = dataclasses.field(default_factory=list)
    file: Any = None  # of a counting run


class Kube(stores.Store):
    """The API server of the tests: a real one's start takes longer than all that is tried on it."""

    name = "kubernetes"

    def __init__(self) -> None:
        self.api, self.home = Api(), scratch()

    def url(self, key: str, through: Any = None) -> str:
        return str(self.api.url(self.home, key))

    def end(self) -> None:
        pass


STORES: dict[str, Callable[[], Any]] = {
    "file": stores.File,
    "exec": stores.File,  # by lunarch exec, all others by lunarch run
    "shared": stores.SharedFile,
    "redis": stores.Redis,
    "etcd": stores.Etcd,
    "postgres": stores.Postgres,
    "zookeeper": stores.ZooKeeper,
    "kubernetes": Kube,
    "mariadb": stores.MariaDB,
    "consul": stores.Consul,
    "s3": stores.S3,
    "gs": stores.Gcs,
    "azblob": stores.AzureBlob,
}


class Lab:
    """One store, and terms on it in which something fails."""

    def __init__(self, name: str) -> None:
        self.name, self.store = name, STORES[name]()
        self.told = 143 if name == "exec" else 0  # status after SIGTERM: of exec the command's, as a shell has it
        self.alloc = compiled(os.path.join(HOME, "alloc.c"), "-shared", "-fPIC")
        self.inject = compiled(os.path.join(HOME, "inject.c"))
        self.own = own_code()
        self.usual: Outcome | None = None  # what a term is like in which nothing fails
        self.files = threading.local()

    def count(self, how: str) -> File:
        """A term in which nothing fails; its file."""
        out = Term(self, Fault(how, "elector")).run()
        if out.wrong or out.status != self.told:
            raise RuntimeError(f"a term in which nothing fails: {out}")
        self.usual = out
        return out.file

    def file(self) -> File:
        """One for each thread."""
        if not hasattr(self.files, "file"):
            self.files.file = File()
        found: File = self.files.file
        return found


class Term:
    def __init__(self, lab: Lab, fault: Fault) -> None:
        self.lab, self.fault, self.mark = lab, fault, f"NTH_RUN={uuid.uuid4()}"
        self.f = Field(str(fault))
        self.lock = lab.store.url(f"nth-{uuid.uuid4().hex[:12]}")
        self.out = Outcome(fault, file=lab.file())

    def join(self, name: str, *options: str, **more: Any) -> Any:
        limit = self.fault.limit
        state = os.path.join(self.f.dir, f"state-{name}" if limit and limit.stranger else "state")
        env = {**self.lab.store.env, **more.pop("env", {})}
        if self.lab.name != "exec":
            return self.f.join(name, "--state-dir", state, *options, times=TIMES, lock=self.lock, env=env, **more)
        where = ["--state-dir", state, "--lock", self.lock, "--identity", name]
        c = Candidate(
            *where,
            *("--", self.f.program, self.f.witness, name),
            command="exec",
            options=TIMES,
            env=env,
            name=name,
            **more,
        )
        self.f.candidates.append(c)
        return c

    def leads(self, c: Any) -> bool:
        return bool(c.said("saved ") or (self.lab.name == "exec" and self.f.terms()))

    def hurt(self, *more: str) -> Candidate:
        """The candidate in which something fails. more: options of it."""
        fault, file = self.fault, self.out.file
        env = dict([self.mark.split("=")])
        if fault.limit:
            return self.join("a", env=env, prefix=fault.limit.before)
        if fault.how == "alloc":
            file.begin(ROLES.index(fault.role), fault.what, fault.n, fault.error, *self.lab.own, 0, 0, 0, fault.rest)
            env |= {"LD_PRELOAD": self.lab.alloc, "NTH_FILE": file.path}
            return self.join("a", env=env)
        file.begin(ROLES.index(fault.role), fault.what, fault.n, fault.error, 0, 0, 0, 0, 0, fault.rest)
        return self.join("a", *more, env=env, prefix=[self.lab.inject, file.path])

    def run(self) -> Outcome:
        try:
            self.play()
        finally:
            self.f.end()
            if self.fault.limit:
                self.fault.limit.end()
        return self.out

    def play(self) -> None:
        a = self.hurt()
        wait_for(lambda: self.leads(a) or a.process.poll() is not None, SETTLED)
        # On a busy machine it may not have come so far.
        wait_for(lambda: self.leads(a) or bool(said(a)) or a.process.poll() is not None, 60)
        b = self.join("b")
        wait_for(lambda: b.all("new_leader") or b.all("became_leader") or a.process.poll() is not None, SETTLED)
        if not wait_for(lambda: not leading(a) or children(a.pid) or a.process.poll() is not None, 20):
            self.out.wrong.append("it leads without a guard")
        ended_itself = a.process.poll() is not None
        self.out.descriptors = len(descriptors(a.pid)) if not ended_itself else 0
        a.ask_to_stop()
        self.out.status = a.leave()
        if self.out.status is None:
            self.out.wrong.append("it does not end when it is told to")
            a.kill()
        if not self.f.acts(1, "b"):
            self.out.wrong.append("nobody leads afterwards")
        if not wait_for(lambda: not marked(self.mark), 20):
            self.out.wrong.append(f"processes of it live on: {[name_of(p) for p in marked(self.mark)]}")
        # A guard that was late on a busy machine was killed, as it must be; nothing failed in that one.
        if b.stop() != self.lab.told and not b.all("guard_killed"):
            self.out.wrong.append(f"the other one ended with status {b.process.returncode}")
        wait_for(lambda: a.closed and b.closed, 10)
        fired, at = self.out.file.words(6, 2)
        self.out.fired, self.out.at = fired > 0 or self.fault.limit is not None, at
        self.judge(a, b, ended_itself)

    def judge(self, a: Candidate, b: Candidate, ended_itself: bool) -> None:
        out, tokens = self.out, [token for token, _ in self.f.terms()]
        out.wrong += self.f.lines("overlaps")
        if tokens != sorted(set(tokens)):
            out.wrong.append(f"tokens do not grow: {tokens}")
        out.wrong += [f"a checkpoint is older than what was saved: {c}" for c in self.f.stale()]
        text = [e["message"] for c in (a, b) for e in c.all("unparsed")]
        out.wrong += [line for line in text if re.search(r"Sanitizer|runtime error:|corrupt|double free", line)]
        words = said(a)
        # A line of the log may be lost (what fails is its write), or the term be too short for the witness.
        led = a.all("became_leader") or a.said("leading ") or "a" in [name for _, name in self.f.terms()]
        crash = out.status is not None and out.status < 0 and signal.Signals(-out.status).name
        by_library = self.out.file.words(10, 1) == [CRASH_THERE]  # which uses memory that it was not given
        if crash and crash not in ("SIGABRT", "SIGKILL") and not by_library:
            out.wrong.append(f"it ended by {crash}")
        if by_library and frame_of(text) not in CRASHES:
            out.wrong.append(f"{frame_of(text)} crashes without memory, which is not known of it (CRASHES)")
        if ended_itself and out.status == 0:
            out.wrong.append("it ended of itself, with status 0")
        if ended_itself and not words and not by_library:
            out.wrong.append(f"it ended of itself with status {out.status}, and said nothing")
        if not (ended_itself or led or words):
            out.wrong.append("it did not lead, and said nothing")
        if out.status == self.lab.told and not ended_itself:
            out.left = {re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}|\d+", "N", p) for p in files(self.f.dir)}
            self.compare()
        out.kind = self.kind(a, ended_itself) if out.fired else "not reached"
        if by_library:
            out.kind = f"ended by a crash of {frame_of(text)}"
        out.log = [f"{c.name}: {e.get('event')} {e.get('message', '')}" for c in (a, b) for e in c.events]

    def compare(self) -> None:
        """With a term in which nothing fails."""
        out, usual = self.out, self.lab.usual
        if not usual:
            return
        if out.left - usual.left and self.fault.how not in ("unlink", "unlinkat"):
            out.wrong.append(f"files are left: {sorted(out.left - usual.left)}")
        if out.descriptors > usual.descriptors + SPARE:
            out.wrong.append(f"{out.descriptors} descriptors are open, usual are {usual.descriptors}")

    def kind(self, a: Any, ended_itself: bool) -> str:
        if self.out.status is None or self.out.status < 0:
            return "ended hard"
        if ended_itself or self.out.status != self.lab.told:
            return "ended clean"
        if a.all("guard_lost") or a.all("guard_killed") or a.all("worker_gone"):
            return "lost its processes, went on"
        return "went on" if a.all("became_leader") else "did not lead, ended when told to"


def called(path: str, back: int) -> str:
    """What the code of this file called where it goes on at this address."""
    at = [f"--start-address={back - 8}", f"--stop-address={back}"]
    out = subprocess.run(["objdump", "-d", *at, path], capture_output=True, text=True, check=True).stdout
    names = re.findall(r"call.*<(\w+)@plt>", out)
    return str(names[-1]) if names else "?"


def frame_of(text: list[str]) -> str:
    """Where a library has crashed, of what alloc.c has written: "LIBRARY FUNCTION". The library is the innermost code
    that is not the C library's; the function is the innermost of the library's that has a name there: one that others
    may call. That a call of it ended in another (a tail call) leaves no trace of it but in who called it."""
    found = [re.search(r"(/\S+?)\((\w*)\+?(0x\w+)?\)\[", line) for line in text]
    frames = [(m[1], m[2], int(m[3] or "0", 16)) for m in found if m]
    frames = [f for f in frames if not os.path.basename(f[0]).startswith(("libc.so", "alloc.", "libasan"))]
    if not frames:
        return "?"
    library = frames[0][0]
    inside = list(itertools.takewhile(lambda f: f[0] == library, frames))
    names = [name for _, name, _ in inside if name]
    if not names and len(inside) < len(frames):
        path, _, back = frames[len(inside)]
        names = [called(path, back)]
    return f"{os.path.basename(library)} {names[0] if names else '?'}"


def leading(c: Candidate) -> bool:
    return len(c.all("became_leader")) > len(c.all("stopped_leading"))


def said(c: Candidate) -> list[Any]:
    """What it has complained about."""
    return [e for e in list(c.events) if e.get("level") in ("warn", "error") or e.get("event") == "unparsed"]


def descriptors(pid: int) -> list[str]:
    try:
        return os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return []


def files(directory: str) -> list[str]:
    found = [os.path.join(d, f) for d, _, names in os.walk(directory) for f in names]
    return [os.path.relpath(p, directory) for p in found]


def name_of(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as f:
            return f"{pid} {f.read().replace(bytes(1), b' ').decode(errors='replace')}"
    except OSError:
        return str(pid)


def try_all(lab: Lab, faults: Iterable[Fault], what: str, loud: bool = False) -> dict[str, int]:
    """One sentence for all of them; what went wrong is noted, with the fault by which it can be done again. loud: what
    went well, too."""
    counts: dict[str, int] = {}
    wrong: list[Outcome] = []

    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        for out in pool.map(lambda fault: Term(lab, fault).run(), faults):
            counts[out.kind] = counts.get(out.kind, 0) + 1
            if out.wrong:
                wrong.append(out)
            if out.wrong or loud or "crash" in out.kind:
                say(lab, out)
    total = ", ".join(f"{n} {kind}" for kind, n in sorted(counts.items()))
    ok(not wrong, f"{what}: {total}")
    return counts


def say(lab: Lab, out: Outcome) -> None:
    note(f"{lab.name}: {out.fault}: {out.kind}, status {out.status}, at {hex(out.at)}; ONLY={out.fault.words()}")
    for line in [*out.wrong, *out.log[-40:]]:
        note(f"  {line}")

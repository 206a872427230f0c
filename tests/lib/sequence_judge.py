"""What the witness of a random sequence (tests/cluster/sequences) shows: which hooks ran, of which script, for which
lock, in which order. Each is a line that the hook appended by one write, so the file's order is the order of acts.

Not who leads now: sequence_play.py asks that. Used by it."""

from typing import Any, NamedTuple

# What the log has only if the program is wrong (docs/operations.md, Logs), or says what no program of ours prints.
DEFECTS = ("bug", "elector_message", "worker_malformed", "worker_failed", "script_host_failed", "unparsed")
STALL_S = 0.15  # of a machine that stood still for so long an overlap shows nothing: the kill allowance is 0.4 s

BRIEF_S = 0.1
TICK_S = 0.02  # what /proc/uptime shows is up to 10 ms older


class Act(NamedTuple):
    hook: str
    identity: str
    version: int
    name: str
    want: str  # the lock that this election has in this script
    lock: str  # that of the term
    token: int
    pid: int
    at: float


def lines(w: Any) -> list[str]:
    with open(w.witness) as f:
        return f.read().splitlines()


def acts(w: Any) -> list[Act]:
    found = []
    for line in lines(w):
        p = line.split()
        if len(p) == 9:
            found.append(Act(p[0], p[1], int(p[2]), p[3], p[4], p[5], int(p[6]), int(p[7]), float(p[8])))
    return found


def led(w: Any) -> set[tuple[str, int]]:
    """Locks and tokens of the terms whose on_leading began."""
    return {(a.lock, a.token) for a in acts(w) if a.hook == "leading"}


def judge(w: Any) -> None:
    seen = acts(w)
    lives = {life.identity: life for life in w.lives}
    for life in w.lives:
        for e in life.c.events:
            if e.get("event") in DEFECTS:
                w.fail("defect", f"{life.identity}: {e.get('event')} {e.get('message')}")
                break
    _scripts(w, seen, lives)
    _order(w, seen, lives)
    _rests(w, seen, lives)
    _pairs(w, seen, lives)


def _scripts(w: Any, seen: list[Act], lives: dict[str, Any]) -> None:
    for a in seen:
        if a.want != a.lock:
            w.fail("lock", f"{a.hook} of {a.name} ran for {a.lock}, its lock is {a.want} (script {a.version})")
            break
    for a in seen:
        if not lives[a.identity].may_run(a.version):
            words = w.scripts[a.version].words
            w.fail("version", f"{a.hook} of {a.name} ran in {a.identity}, of {words}, which was not loaded by a reload")
            break


def _covered(w: Any, lock: str, at: float) -> bool:
    """Whether the order of acts there must be right: not where people edited the record more than once, or a candidate
    came that had not seen it; not where all of a term stood still, or the machine."""
    edits = w.edits.get(lock.rsplit("/", 1)[1], 0)
    return (
        edits + (1 if edits and any(len(e.lives) > 1 for e in w.electors) else 0) < 2
        and not any(life.frozen for life in w.lives)
        and w.stalls.within(at - 3.0, at) < STALL_S
    )


def _order(w: Any, seen: list[Act], lives: dict[str, Any]) -> None:
    newest: dict[str, Act] = {}
    for a in seen:
        if a.hook in ("stopped", "ended"):
            continue
        last = newest.get(a.lock)
        if a.hook == "leading":
            if last and last.token == a.token:
                w.fail("twice", f"on_leading of {a.name} ran twice for token {a.token}")
                return
            if last and last.token > a.token and _covered(w, a.lock, a.at):
                w.fail("token", f"the token of {a.lock} went from {last.token} back to {a.token}")
                return
            newest[a.lock] = a
        elif not last or last.token != a.token:
            if _covered(w, a.lock, a.at):
                w.fail("beside", f"{a.hook} of {a.identity} for {a.lock}, token {a.token}, beside {last}")
                return


def _rests(w: Any, seen: list[Act], lives: dict[str, Any]) -> None:
    """An operator said that it is not to campaign: a term that it had may go on, also after a reload. A write that was
    on its way then may begin one."""
    before: dict[str, str] = {}
    for a in (a for a in seen if a.hook == "leading"):
        for rest in lives[a.identity].rests:
            late = 1.0 if w.hurt or w.sequence.lock == "etcd" else 0.03 + w.stalls.within(rest.since, a.at)
            if w.scripts[a.version].has("busy"):
                late += 1.0  # its term has begun, and on_leading waits for what its worker does
            of_it = rest.names is None or a.name in rest.names
            if of_it and rest.since + late < a.at < rest.until - TICK_S and before.get(a.lock) != a.identity:
                after = f"{a.at - rest.since:.2f} s after it was paused, or resigned"
                w.fail("paused", f"{a.identity} began to lead {a.lock} {after}")
                return
        before[a.lock] = a.identity


def _was_brief(life: Any, token: int) -> bool:
    """That term ended so soon that a worker which the machine held up may have heard of both at once."""
    began, ends = (
        [e["seen"] for e in life.c.all(event) if e.get("token") == token] for event in ("became_leader", "stopping")
    )
    return bool(began and ends) and ends[0] - began[0] < BRIEF_S


def _dropped(w: Any, life: Any, a: Act) -> bool:
    """docs/scripting.md, The hooks: when on_stopped does not run, or not to its beginning."""
    if life.killed or life.asked_to_end > 1:
        return True
    given_up = [e for e in life.c.all("on_stopped_dropped") if a.name in (e.get("election"), None)]
    # It takes the death of two replacements, or the end of the program.
    return bool(given_up) and (life.kills > 2 or life.asked_to_end > 0)


def _pairs(w: Any, seen: list[Act], lives: dict[str, Any]) -> None:
    began: dict[tuple[str, int], Act] = {}
    stopped: dict[tuple[str, int], list[Act]] = {}
    for a in seen:
        key = (a.lock, a.token)
        if a.hook == "leading":
            began[key] = a
        elif a.hook == "stopped":
            stopped.setdefault(key, []).append(a)
    for key, a in began.items():
        life = lives[a.identity]
        of = [v for v in (a.version, *life.versions)]
        if key in stopped or any(w.scripts[v].has("nostopped") for v in of) or _dropped(w, life, a) or w.wrong:
            continue
        w.fail("unpaired", f"no on_stopped of {a.name} for token {a.token} in {a.identity}")
        return
    for key, many in stopped.items():
        life = lives[many[0].identity]
        hangs = any(w.scripts[v].has("stoppedhangs") or w.scripts[v].has("stoppedslow") for v in life.versions)
        if len(many) > 1 and not life.kills and not hangs:
            w.fail("unpaired", f"on_stopped of {many[0].name} ran {len(many)} times for token {key[1]}")
            return
        # A worker that is busy hears that its term began and that it ends in one moment.
        busy = any(w.scripts[v].has("busy") for v in life.versions) or _was_brief(life, key[1])
        if key not in began and not life.kills and not busy:
            w.fail("unpaired", f"on_stopped of {many[0].name} for token {key[1]}, which never began")
            return

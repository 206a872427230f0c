"""TAP, the tests' own language (testanything.org): numbered sentences that hold or do not, and a plan at the end.

Not an assertion library: what fails is said, and the test goes on. Used by every test in Python; lib/tap.h is the same
for C."""

import re
import sys
import threading
from collections.abc import Callable, Iterable

_count = _failed = 0
_speaking = threading.RLock()  # scenarios may run side by side


def _say(line: str) -> None:
    """In one piece: a line of another thread in the middle of it would hide a sentence from prove."""
    with _speaking:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def ok(good: object, what: str, why: object = None) -> bool:
    """why: noted if it does not hold."""
    global _count, _failed
    with _speaking:
        _count += 1
        _failed += not good
        _say(f"{'ok' if good else 'not ok'} {_count} - {what}")
        if not good and why is not None:
            note(why)
    return bool(good)


def same(got: object, want: object, what: str) -> bool:
    return ok(got == want, what, f"got {got!r}, wanted {want!r}")


def note(text: object) -> None:
    with _speaking:
        for line in str(text).splitlines():
            _say(f"# {line}")


def skip(what: str, why: str) -> None:
    global _count
    with _speaking:
        _count += 1
        _say(f"ok {_count} - {what} # SKIP {why}")


def retell(name: str, said: str, status: int | None, errors: str = "") -> None:
    """Each sentence of another program is one of this test; and that it ended well, and said something."""
    told = 0
    for line in said.splitlines():
        found = re.match(r"(not )?ok \d+(?: - )?(.*?)(?: # SKIP (.*))?$", line)
        if not found:
            if not re.match(r"1\.\.|# ok", line):
                note(line)
        elif found[3] is not None:
            skip(f"{name}: {found[2]}", found[3])
        else:
            ok(not found[1], f"{name}: {found[2]}")
            told += not found[1]
    ok(status == 0 and told, f"{name} ends well", f"status {status}\n{errors}")


def failures() -> int:
    """How many sentences have not held so far."""
    return _failed


def done() -> None:
    """The plan. Ends the process."""
    _say(f"1..{_count}")
    sys.exit(_failed > 0)


def _guarded(job: Callable[[], object], what: str) -> None:
    """An exception is a sentence that does not hold, or prove would see a plan that fits."""
    try:
        job()
    except Exception as e:
        ok(False, what, f"{type(e).__name__}: {e}")


def run(tests: Iterable[Callable[[], object]]) -> None:
    """Runs functions one after the other, then ends the process. An exception fails the function's first line of
    documentation."""
    for test in tests:
        _guarded(test, (test.__doc__ or test.__name__).strip().splitlines()[0])
    done()


def at_once(*jobs: Callable[[], object]) -> None:
    """Runs functions side by side; their sentences may come in any order. An exception in one is a failure."""
    threads = [threading.Thread(target=_guarded, args=(job, job.__name__)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

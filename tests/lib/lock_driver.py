"""Speaks to the conformance program (main.c): locks of any kind, driven one operation at a time from a test."""

import json
import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from tests.lib.processes import LUNARCH, PATIENCE, wait_for
from tests.lib.tap import note, ok

PROGRAM = os.path.join(os.path.dirname(LUNARCH), "conform")
WITHIN = 20_000  # ms; generous: for operations that nothing hinders


def record(holder: str = "somebody", **fields: Any) -> dict[str, Any]:
    """A record as a term's write would make it, with a write name of its own. A field that is None is left out."""
    now = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime())
    all = {
        "holderIdentity": holder,
        "leaseDurationSeconds": 15,
        "acquireTime": now,
        "renewTime": now,
        "leaderTransitions": 0,
        "leaseDurationMs": 15000,
        "renewDeadlineMs": 10000,
        "retryPeriodMs": 2000,
        "term": 1,
        "token": 1,
        "write": uuid.uuid4().hex,
        "state": "leading",
        **fields,
    }
    return {name: value for name, value in all.items() if value is not None}


# What a next record has (runtime/lease/next_record.h), instead of a term: record("somebody", **NOMINATION).
NOMINATION = {
    "term": None,
    "token": None,
    "state": None,
    "renewDeadlineMs": None,
    "incarnation": "6f1c0a52-0b7e-4b51-9a34-b4c3a9d3f0aa",
    "nomination": {"priority": 7},
}


class Driver:
    everyone: list["Driver"] = []

    def __init__(self, env: Mapping[str, str] | None = None) -> None:
        if not os.path.exists(PROGRAM):
            sys.exit("build/conform is missing: `make build/conform` builds it")
        self.process = subprocess.Popen(
            [PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **(env or {})}
        )
        self.number: int | None = 0  # of the last operation; None: the program has ended
        self.answers: dict[int, list[Any]] = {}
        self.notices: dict[str, int] = {}
        assert self.process.stdin and self.process.stdout
        self.to, self.answers_from = self.process.stdin, self.process.stdout
        self.news = threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()
        Driver.everyone.append(self)

    def _read(self) -> None:
        for text in self.answers_from:
            line = json.loads(text)
            with self.news:
                if "notice" in line:
                    self.notices[line["notice"]] = self.notices.get(line["notice"], 0) + 1
                else:
                    self.answers.setdefault(line["id"], []).append(line)
                self.news.notify_all()
        with self.news:
            self.number = None
            self.news.notify_all()

    def start(self, do: str, lock: str = "a", **args: Any) -> int:
        with self.news:
            if self.number is None:
                raise RuntimeError("the conformance program has ended")
            self.number += 1
            number = self.number
        self.to.write(json.dumps({"id": number, "do": do, "lock": lock, **args}) + "\n")
        self.to.flush()
        return number

    def wait(self, number: int, patience: float = PATIENCE) -> Any:
        with self.news:
            self.news.wait_for(lambda: number in self.answers or self.number is None, patience)
            if number not in self.answers:
                raise RuntimeError(
                    "no answer: the conformance program " + ("has died" if self.number is None else "says nothing")
                )
            return self.answers[number][0]

    def do(self, what: str, lock: str = "a", **args: Any) -> dict[str, Any]:
        return self.wait(self.start(what, lock, **args))

    def open(self, url: str, lock: str = "a", prefix: bool = False) -> dict[str, Any]:
        """prefix: to be listed."""
        return self.do("open", lock, url=url, prefix=prefix)

    def open_next(self, url: str, of: str = "a", lock: str = "n") -> dict[str, Any]:
        """The next record of a lock that was opened by this URL."""
        return self.do("open", lock, url=url, next_of=of)

    def names(self, lock: str = "a", within: int = WITHIN) -> dict[str, Any]:
        return self.do("list", lock, within_ms=within)

    def beside(self, more: str, lock: str = "a", url: str = "") -> str:
        """The URL of another lock; url: of the lock, which is not needed of a prefix."""
        return str(self.do("beside", lock, url=url, more=more)["url"])

    def read(self, lock: str = "a", within: float = WITHIN) -> dict[str, Any]:
        return self.do("read", lock, within_ms=within)

    def write(
        self, rec: Any, expected: Any, lock: str = "a", within: float = WITHIN, durable: bool = True, floor: int = 0
    ) -> Any:
        """floor: the largest token that an elector would have seen."""
        return self.do("write", lock, record=rec, expected=expected, within_ms=within, durable=durable, floor=floor)

    def start_write(
        self, rec: dict[str, Any], expected: str, lock: str = "a", within: float = WITHIN, durable: bool = True
    ) -> int:
        return self.start("write", lock, record=rec, expected=expected, within_ms=within, durable=durable)

    def count(self, lock: str = "a") -> int:
        with self.news:
            return self.notices.get(lock, 0)

    def noticed(self, more_than: int, lock: str = "a", patience: float = PATIENCE) -> bool:
        with self.news:
            return self.news.wait_for(lambda: self.notices.get(lock, 0) > more_than, patience)

    def twice(self) -> list[Any]:
        """Operations that were answered more than once."""
        with self.news:
            return [a for a in self.answers.values() if len(a) > 1]

    def end(self) -> int | None:
        self.to.close()
        try:
            return self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return None


def tried(operation: Callable[[], Any], *wanted: str) -> dict[str, Any]:
    """The result of an operation that is begun again until it is wanted: without a word, anything but "failed". In the
    end whatever it is."""
    results = []

    def good() -> bool:
        results.append(operation())
        return results[-1]["outcome"] in wanted if wanted else results[-1]["outcome"] != "failed"

    wait_for(good)
    return results[-1]


def opened(url: str, **env: Any) -> Driver:
    d = Driver(env)
    o = d.open(url)
    if not o["ok"]:
        raise RuntimeError(o["err"])
    return d


def told(result: Any, *said: str, outcome: tuple[str, ...] = ("failed", "refused")) -> bool:
    """Whether an operation ended so, with these words; otherwise that is noted."""
    text = result.get("err", {}).get("text", "")
    good = result["outcome"] in outcome and all(s in text for s in said)
    if not good:
        note(f"{result}, not {said}")
    return good


def hears(x: Driver, other: Driver, what: str) -> None:
    """x is told of what the other one writes."""
    short = 4000  # ms

    def told_of() -> bool:
        before = x.count()
        w = other.write(record("e"), other.read(within=short).get("version", ""), within=short, durable=False)
        return w["outcome"] == "ok" and x.noticed(before, patience=1)

    ok(wait_for(told_of), what)


def race(url: str, rounds: int, racers: int = 64, processes: int = 8) -> tuple[dict[str, Any], str]:
    r = subprocess.run(
        [PROGRAM, "race", url, str(rounds), str(racers), str(processes)], capture_output=True, text=True, timeout=1800
    )
    return json.loads(r.stdout) if r.stdout else {}, r.stderr.strip()

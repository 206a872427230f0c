"""Speaks to the conformance program (main.c): locks of any kind, driven one operation at a time from a test."""

import json
import os
import subprocess
import threading
import time
import uuid

from processes import LUNARCH, PATIENCE

PROGRAM = os.path.join(os.path.dirname(LUNARCH), "conform")
WITHIN = 20_000  # ms; generous: for operations that nothing hinders


def record(holder="somebody", **fields):
    """A record as a term's write would make it, with a write name of its own."""
    now = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime())
    return {
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


class Driver:
    everyone = []

    def __init__(self, env=None):
        self.process = subprocess.Popen(
            [PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **(env or {})}
        )
        self.number, self.answers, self.notices, self.lines = 0, {}, {}, 0
        self.news = threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()
        Driver.everyone.append(self)

    def _read(self):
        for text in self.process.stdout:
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

    def start(self, do, lock="a", **args):
        with self.news:
            if self.number is None:
                raise RuntimeError("the conformance program has ended")
            self.number += 1
            number = self.number
        self.process.stdin.write(json.dumps({"id": number, "do": do, "lock": lock, **args}) + "\n")
        self.process.stdin.flush()
        return number

    def wait(self, number, patience=PATIENCE):
        with self.news:
            self.news.wait_for(lambda: number in self.answers or self.number is None, patience)
            if number not in self.answers:
                raise RuntimeError(
                    "no answer: the conformance program " + ("has died" if self.number is None else "says nothing")
                )
            return self.answers[number][0]

    def do(self, what, lock="a", **args):
        return self.wait(self.start(what, lock, **args))

    def open(self, url, lock="a"):
        return self.do("open", lock, url=url)

    def read(self, lock="a", within=WITHIN):
        return self.do("read", lock, within_ms=within)

    def write(self, rec, expected, lock="a", within=WITHIN, durable=True, floor=0):
        """floor: the largest token that an elector would have seen."""
        return self.do("write", lock, record=rec, expected=expected, within_ms=within, durable=durable, floor=floor)

    def start_write(self, rec, expected, lock="a", within=WITHIN, durable=True):
        return self.start("write", lock, record=rec, expected=expected, within_ms=within, durable=durable)

    def count(self, lock="a"):
        with self.news:
            return self.notices.get(lock, 0)

    def noticed(self, more_than, lock="a", patience=PATIENCE):
        with self.news:
            return self.news.wait_for(lambda: self.notices.get(lock, 0) > more_than, patience)

    def twice(self):
        """Operations that were answered more than once."""
        with self.news:
            return [a for a in self.answers.values() if len(a) > 1]

    def end(self):
        self.process.stdin.close()
        try:
            return self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return None


def race(url, rounds, racers=64, processes=8):
    r = subprocess.run(
        [PROGRAM, "race", url, str(rounds), str(racers), str(processes)], capture_output=True, text=True, timeout=1800
    )
    return json.loads(r.stdout) if r.stdout else {}, r.stderr.strip()

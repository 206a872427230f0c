#!/usr/bin/env -S PYTHONPATH=. python3
"""The wall clock is set back an hour, and forward a day, while somebody leads: it decides nothing. Tokens grow all the
same, times in the record never go back, and no job of term:cron runs twice. Each candidate sees its own clock (shim.c);
this machine's is left alone."""

import json
import os
import signal
import struct
import time
from typing import Any

from tests.lib.candidates import WATCHED, Candidate
from tests.lib.field import Field, build, freeze
from tests.lib.processes import PATIENCE, wait_for
from tests.lib.tap import at_once, done, ok, same

HOUR = 3600


class Clocked(Field):
    def clock(self, name: str) -> str:
        return os.path.join(self.dir, f"clock-{name}")

    def set(self, name: str, seconds: float) -> None:
        with open(self.clock(name), "r+b" if os.path.exists(self.clock(name)) else "wb") as f:
            f.write(struct.pack("q", seconds * 10**9))

    def start(self, name: str, seconds: float = 0, env: Any = None) -> Any:
        self.set(name, seconds)
        return self.join(
            name, env={"LD_PRELOAD": build("shim.c", "-shared", "-fPIC"), "SHIM_CLOCK": self.clock(name), **(env or {})}
        )

    def renewals(self, count: int) -> list[str]:
        """Waits until the record has changed so often; the times of renewal it said."""
        seen = {}
        wait_for(lambda: seen.update({(r := self.record())["write"]: r["renewTime"]}) or len(seen) > count)
        return list(seen.values())


def set_back() -> None:
    f = Clocked("back")
    a = f.start("a")
    f.acts(1, "a")
    b = f.start("b")
    b.wait("new_leader")
    before = f.record()
    f.set("a", -HOUR)
    times = f.renewals(20)  # 6 s, which is more than R
    same(len(f.terms()), 1, "set back an hour: the leader leads on, renewing")
    same([t for t in times if t < before["renewTime"]], [], "set back an hour: the record's time does not go back")
    same(f.record()["acquireTime"], before["acquireTime"], "set back an hour: nor does the time of its election")
    f.set("b", -HOUR)
    f.renewals(3)
    same(len(f.terms()), 1, "set back an hour for the standby: it waits on")
    first = f.terms()[0][0]
    a.kill(signal.SIGUSR1)
    ok(f.acts(1, "b"), "set back an hour: the leader resigns, and the other leads")
    second = f.terms()[1][0]
    ok(
        f.record()["acquireTime"] < before["acquireTime"],
        "set back an hour: whose clock is an hour behind, as the record shows",
    )
    ok(second == first + 1, "set back an hour: the token counts on where the clock would have made it smaller")
    a.kill(signal.SIGKILL)
    freeze(b, f.lock)
    c = f.start("c", -2 * HOUR)
    c.wait("new_leader", "b leads")
    ok(f.acts(1, "c"), "set back: a frozen leader is waited out by one whose clock is two hours behind")
    b.stop()
    f.verdict("set back an hour")
    f.end()


def set_forward() -> None:
    f = Clocked("forward")
    a = f.start("a")
    f.acts(1, "a")
    b = f.start("b", 24 * HOUR)
    ok(b.wait("new_leader", "a leads"), "a day ahead: a standby follows a record that looks a day old")
    f.renewals(5)
    same(len(f.terms()), 1, "a day ahead: and does not take it")
    f.set("a", 24 * HOUR)
    f.renewals(20)
    same([len(f.terms()), len(a.all("stopped_leading"))], [1, 0], "set forward a day: the leader leads on")
    f.set("a", 0)
    f.renewals(20)
    same([len(f.terms()), len(a.all("stopped_leading"))], [1, 0], "set forward a day, and back again: it leads on")
    a.stop()
    ok(f.acts(1, "b"), "set forward: a clean stop hands over at once")
    f.verdict("set forward")
    f.end()


JOB = """return { on_leading = function(term)
  term:cron("0 * * * *", function(tick) print("ran " .. tick.time) end, { zone = "UTC", catch_up = "all", name = "job"\
 })
end }"""


def cron() -> None:
    """The second leader's clock is two days behind, and is set right while it leads."""
    f = Clocked("cron")
    script, right = (
        os.path.join(f.dir, "cron.lua"),
        600 - int(time.time()) % HOUR,
    )  # ten past, so that no hour begins meanwhile
    with open(script, "w") as out:
        out.write(JOB)

    def start(name: str, seconds: float) -> Any:
        f.set(name, seconds)
        c = Candidate(
            "--lock",
            f.lock,
            "--identity",
            name,
            script,
            options=WATCHED,
            name=name,
            cwd=f.dir,
            env={"LD_PRELOAD": build("shim.c", "-shared", "-fPIC"), "SHIM_CLOCK": f.clock(name)},
        )
        f.candidates.append(c)
        return c

    def mark() -> int:
        return f.record().get("checkpoint", {}).get("cron", {}).get("job", 0)

    a = start("a", right)
    ok(wait_for(lambda: os.path.exists(f.lock) and mark()), "cron: a job that no leader has seen begins now")
    a.stop()
    record, hour = f.record(), mark() // HOUR * HOUR
    record["checkpoint"]["cron"]["job"] = hour  # it ran then
    with open(f.lock + ".mine", "w") as out:
        json.dump(record, out)
    os.rename(f.lock + ".mine", f.lock)
    behind = right - 48 * HOUR
    b = start("b", behind)
    said = b.wait("cron_future")
    ok(
        said
        and said["level"] == "warn"
        and '"job"' in said["message"]
        and all(time.strftime("%Y-%m-%dT%H:", time.gmtime(t)) in said["message"] for t in (hour, time.time() + behind)),
        f"cron: a leader whose clock is two days behind says so: {said and said['message']}",
    )
    f.renewals(3)
    same(mark(), hour, "cron: the mark stays where it is")
    f.set("b", right + HOUR)
    ok(
        wait_for(lambda: b.said("ran "), 2 * PATIENCE),
        "cron: once its clock is past the mark, the job runs within a minute",
    )
    f.renewals(3)
    same(
        [e["message"] for e in b.said("ran ")],
        [f"ran {hour + HOUR}"],
        "cron: for the next time, and for none before the mark",
    )
    same([mark(), len(b.all("cron_future"))], [hour + HOUR, 1], "cron: the mark goes on, and nothing more is said")
    f.end()


def shim_works() -> None:
    """Without this the rest would prove nothing."""
    f = Clocked("shim")
    a = f.start("a", -HOUR)
    f.acts(1, "a")
    ok(
        a.wait("became_leader")["time"] < time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(time.time() - 1800)),
        "the candidate's clock is an hour behind",
    )
    f.end()


at_once(shim_works, set_back, set_forward, cron)
done()

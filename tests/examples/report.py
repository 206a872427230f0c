#!/usr/bin/env -S PYTHONPATH=. python3
"""examples/report.lua: a mail for each day, through the real msmtp, also for the days on which nobody led, whoever is
killed meanwhile."""

import email
import email.policy
import json
import os
import shutil
import signal
import time
from typing import Any

from tests.lib.candidates import Candidate, stop_everyone
from tests.lib.postbox import Mailbox
from tests.lib.processes import ROOT, scratch, wait_for
from tests.lib.tap import done, ok, same

SCRIPT = os.path.join(ROOT, "examples", "report.lua")
DAY = 86400
where = scratch()
LOCK, LOG = os.path.join(where, "lock"), os.path.join(where, "app.log")
box = Mailbox()
sendmail = box.sendmail(where)
now = int(time.time())
today = now - now % DAY


def day(back: int) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(today - back * DAY))


def join(name: str) -> Any:
    return Candidate("--lock", LOCK, "--identity", name, SCRIPT, "--", LOG, "ops@example.org", sendmail)


def reports() -> list[Any]:
    """Which days have been reported, in the order in which their mails came."""
    return [email.message_from_bytes(m[2], policy=email.policy.default) for m in list(box.mails)]


def days() -> list[str]:
    return [str(m["x-report"]) for m in reports()]


def record() -> dict[str, Any]:
    with open(LOCK) as f:
        return json.load(f)


with open(LOG, "w") as f:
    for back in range(7, -1, -1):
        f.write(f"{day(back)}T01:00:00Z INFO nothing\n")
        if back != 3:
            f.writelines(
                [f"{day(back)}T02:00:00Z ERROR disk {back} full\n"] * 3
                + [f"{day(back)}T03:00:00Z ERROR cable {back} cut\n"]
            )
a = join("a")
ok(
    a.wait("became_leader") and wait_for(lambda: "checkpoint" in record()),
    "one leads, and the record says when it began",
)
a.kill(signal.SIGTERM)
same(a.leave(), 0, "it stops")
ok(set(days()) <= {day(1)}, "nothing was missed")  # unless it is 06:00 now
box.mails.clear()
r = record()
r["checkpoint"]["cron"]["report"] = today - 5 * DAY + 7 * 3600  # as if all had been down since that morning
with open(LOCK + ".edited", "w") as f:
    json.dump(r, f)
os.rename(LOCK + ".edited", LOCK)


def due() -> list[str]:
    return [day(b) for b in range(5, -1, -1) if today - (b - 1) * DAY + 6 * 3600 <= time.time()]


box.limit = 1
a, b = join("a"), join("b")
ok(
    wait_for(lambda: days() == due()[:1] and box.waiting),
    "after days without a leader the next one sends a report for the first of them",
)
leader = a if a.all("became_leader") else b
other = b if leader is a else a
leader.kill(signal.SIGKILL)
ok(
    other.wait("became_leader"), "when it is killed over the second, another leads"
)  # nothing of the first is alive then, no sendmail either
box.limit = None
ok(other.wait("report_sent", due()[-1]), "and goes on to the last")
ok(wait_for(lambda: days() == due()), "each day has one report, in order, and no other day has one", (due(), days()))
by_day = {str(m["x-report"]): m.get_content().replace("\r\n", "\n") for m in reports()}
text = by_day.get(day(2), "")
ok(
    "3 disk 2 full" in text and text.index("disk 2 full") < text.index("1 cable 2 cut") and "disk 1" not in text,
    "a report counts that day's errors",
    text,
)
ok("nobody was there" in text, "and says that it is late")
ok("no errors on" in by_day.get(day(3), ""), "a day without errors is reported as such", by_day)
ok(all(m[1] == ["ops@example.org"] for m in box.mails), "all went to whom they are for")
with open(LOCK) as f:
    ok(json.load(f)["checkpoint"]["cron"]["report"] >= today - DAY + 6 * 3600, "the record remembers the last one")
other.kill(signal.SIGTERM)
same(other.leave(), 0, "the other leaves in peace")
stop_everyone()
shutil.rmtree(where)
done()

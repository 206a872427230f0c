#!/usr/bin/env -S PYTHONPATH=. /usr/bin/python3
"""The admin endpoint's page in a real browser: what it shows of a leader, of a standby, of a term that changes hands,
of terms before its process, of jobs, of a lost store and of a process that has gone; on a phone and in the dark;
without a complaint of the browser.

`page.py --pictures DIR` writes what docs/operations.md shows."""

import atexit
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from typing import Any

from tests.lib import servers
from tests.lib.browser import Browser, Tab
from tests.lib.candidates import STEADY, Candidate, Logged, stop_everyone
from tests.lib.lock_driver import record
from tests.lib.processes import LUNARCH, PATIENCE, scratch, wait_for
from tests.lib.tap import done, ok, same

PICTURES = sys.argv[2] if sys.argv[1:2] == ["--pictures"] else ""
redis = servers.Redis()
browser = Browser()
for end in redis.close, stop_everyone, browser.close:
    atexit.register(end)


def start(name: str) -> tuple[Candidate, str]:
    c = Candidate(
        *("--listen", "127.0.0.1:0", "--lock", redis.url("web"), "--identity", name, "-e", "sleep(1e6)"), options=STEADY
    )
    return c, re.findall(r"http://\S+:\d+", c.event("listening")["message"])[0]


def picture(tab: Tab, name: str) -> None:
    if PICTURES:
        tab.run("new Promise(done => setTimeout(done, 2500))")
        tab.picture(os.path.join(PICTURES, f"page-{name}.png"))


def fits(tab: Tab) -> bool:
    """Nothing is wider than the screen."""
    return bool(tab.run("document.documentElement.scrollWidth <= window.innerWidth"))


# The least contrast of text and ground, by WCAG 2's formula, over all that has text of its own.
CONTRAST = """(() => {
  const part = v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const rgb = text => text.match(/[\\d.]+/g).map(Number);
  const light = c => 0.2126 * part(c[0]) + 0.7152 * part(c[1]) + 0.0722 * part(c[2]);
  const ground = e => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor);
    if (c.length < 4 || c[3] > 0) return c; } return [255, 255, 255]; };
  let least = 21;
  for (const e of document.querySelectorAll("body *")) {
    if (![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()) || !e.getClientRects().length) continue;
    const [a, b] = [light(rgb(getComputedStyle(e).color)), light(ground(e))].sort((x, y) => y - x);
    least = Math.min(least, (a + 0.05) / (b + 0.05));
  }
  return least;
})()"""


def ago(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime(time.time() - seconds))


def past(*terms: tuple[str, float, float, str]) -> list[dict[str, Any]]:
    """Terms as the machines of earlier leaders wrote them, each by its own clock."""
    return [
        {"identity": who, "token": i + 1, "from": ago(begin), "to": ago(end), "reason": reason}
        for i, (who, begin, end, reason) in enumerate(terms)
    ]


def put(lock: str, **fields: Any) -> None:
    """What an earlier leader left: a released record."""
    redis.cli("SET", lock, json.dumps(record("", state="released", term=3, token=3, **fields)))


# The clock of web-3 is two minutes behind that of web-2, or that one's ahead; not in the pictures.
overlap = 0 if PICTURES else 120
put(
    "web",
    pastTerms=past(
        ("web-2", 3000, 1700, "handed_over"), ("web-3", 1700 + overlap, 700, "unknown"), ("web-2", 688, 3, "shutdown")
    ),
)
zero, _ = start("web-0")
zero.event("became_leader")
zero.stop()
first, first_url = start("web-1")
first.event("became_leader")
second, second_url = start("web-2")
second.event("comes_next")

lead = browser.open(first_url, width=840, height=900)
ok(
    lead.shows("web-1 leads", "h2") and lead.shows("Leading", ".state"),
    "the leader's page says who leads, and that all is well",
)
ok(lead.shows("web-2", ".facts"), "and who comes next")
ok(lead.shows("Renewed", ".facts") and lead.shows("fencing token", ".facts"), "the last renewal, term and token")
ok(lead.shows("web-1 (this process)", ".terms li.own"), "its term is in the timeline")
ok(lead.shows("was shut down", ".terms li.other"), "and so is one of before this process, with the reason of its end")
same(
    lead.run("[...document.querySelectorAll('.terms li:not(.none) .who')].map(e => e.firstChild.data)"),
    ["web-1", "web-0", "web-2", "web-3", "web-2"],
    "and those of before, as the record has them, the newest first",
)
ok(lead.shows("vanished", ".terms") and lead.shows("token 2", ".terms"), "with tokens, and reasons in words")
ok(PICTURES or lead.shows("their clocks differ", ".terms .doubt"), "clocks that do not agree are said to")
ok(lead.shows("nobody led", ".terms li.none"), "the time without a leader is in it")
same(lead.run("document.querySelectorAll('.lanes .lane').length"), 4, "each leader has a line")
before = lead.text(".terms li:first-child .lasted")
ok(wait_for(lambda: lead.text(".terms li:first-child .lasted") != before), "the present term grows")
ok(lead.shows("live", "#link"), "it is live")
ok(lead.shows(f"process {first.pid}", "#process"), "and says which process this is")
picture(lead, "leading")

stand = browser.open(second_url, width=390, height=1000, dark=True)
ok(stand.shows("web-1 leads", "h2") and stand.shows("Standing by", ".state"), "a standby's page says who leads")
ok(stand.shows("This process", ".facts"), "and that this process comes next")
ok(stand.shows("web-1 leads (term ", ".part"), "and why it does not lead, as `ctl why` does")
ok(stand.shows("web-1", ".terms li.other"), "the other's term is in its timeline")
ok(stand.shows("web-0", ".terms li.other"), "and the one of before both processes")
ok(fits(stand), "it fits a phone")
stand.size(360, 700)
ok(fits(stand), "also a small one")
stand.size(390, 1000)
ground = "getComputedStyle(document.body).backgroundColor"
dark = stand.run(ground)
ok(stand.run(CONTRAST) >= 4.5, "dark: the text has the contrast that WCAG asks for")
picture(stand, "standby")
stand.dark(False)
ok(wait_for(lambda: stand.run(ground) != dark), "it is light for who likes it light")
ok(stand.run(CONTRAST) >= 4.5, "light: the text has the contrast, too")

first.kill(signal.SIGUSR1)  # it resigns
second.event("became_leader")
ok(
    stand.shows("web-2 leads", "h2") and stand.shows("Leading", ".state"),
    "when the standby leads, its page shows that by itself",
)
ok(lead.shows("web-2 leads", "h2"), "and the other's page shows whom it follows now")
ok(lead.shows("resigned", ".terms"), "and in the timeline how its own term ended")
ok(wait_for(lambda: stand.shows("web-2 (this process)", ".terms li:first-child")), "its own term is the newest")

redis.pause()
ok(lead.shows("The store does not answer", ".state"), "a store that is lost is said first")
ok(
    lead.shows("not known", "h2") and lead.shows("Store silent", ".facts") and lead.shows("s", ".facts .ill"),
    "who leads is not known then, and since when",
)
ok(lead.shows("not known whether it still leads", ".terms .doubt"), "and the last term is in doubt")
ok(lead.run(CONTRAST) >= 4.5, "this has the contrast, too")
lead.size(840, 760)
picture(lead, "store-lost")
redis.resume()
ok(
    bool(wait_for(lambda: "does not answer" not in lead.text(".state") and "not known" not in lead.text("h2"))),
    "when it is back, so is the leader's name",
)

# ---- the jobs of lunarch cron ----

CRONTAB = """# lunarch: name=backup timeout=2h
30 3 * * * true
# lunarch: name=sync-orders catch_up=always
*/5 * * * * while [ ! -e "$LUNARCH_TEST_GATE" ]; do sleep 0.05; done
CRON_TZ=Europe/Berlin
# lunarch: name=report
0 6 * * mon-fri make-report --password=secret || exit 3
# lunarch: name=thumbnails
*/10 8-18 * * * true
"""


def start_cron() -> tuple[Logged, str, str]:
    """A machine that takes over: one job is due, and of the others the history tells. The job ends, and so does each
    later run of it, when there is the gate."""
    room = scratch()
    gate, table, out = (os.path.join(room, name) for name in ("gate", "crontab", "out"))
    os.mkdir(out)
    with open(table, "w") as f:
        f.write(CRONTAB.replace("$LUNARCH_TEST_GATE", gate))
    runs = ("backup", 18000, "ok", 734.2), ("report", 28800, "failed", 31.0), ("thumbnails", 800, None, None)
    with open(os.path.join(out, "history-host7.jsonl"), "w") as f:
        for job, before, status, took in runs:
            run = {"id": job, "job": job, "time": 0, "began": time.time() - before, "token": 3}
            end = {"id": job, "token": 3, "status": status, "why": "exit status 3", "took": took}
            f.write("".join(json.dumps(x) + "\n" for x in ([run, end] if status else [run])))
    marks = {"cron": {"sync-orders": int(time.time()) - 400}}
    put(
        "jobs",
        checkpoint=marks,
        pastTerms=past(("jobs-2", 32400, 14400, "handed_over"), ("jobs-3", 14400, 9, "shutdown")),
    )
    given = ["--lock", redis.url("jobs"), "--identity", "jobs-1", "--listen", "127.0.0.1:0", "--sendmail", "/none"]
    where = ["--log-format", "json", "--output-dir", out, "--state-dir", room, table]
    # A zone where it is 20 h now: neither backup nor thumbnails is due.
    zone = {} if PICTURES else {"TZ": f"Etc/GMT{(time.gmtime().tm_hour - 20 + 12) % 24 - 12:+d}"}
    argv = [LUNARCH, "cron", *given, *STEADY, *where]
    p = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True, env={**os.environ, **zone})
    atexit.register(p.kill)
    assert p.stderr
    c = Logged(p, p.stderr)
    return c, re.findall(r"http://\S+:\d+", c.event("listening")["message"])[0], gate


cron, cron_url, gate = start_cron()
jobs = browser.open(cron_url, width=840, height=780)
ok(jobs.shows("sync-orders", ".jobs") and jobs.shows("running now", ".jobs"), "a job that runs now is said to")
ok(
    jobs.shows("daily at 03:30", ".jobs") and jobs.shows("*/10 8-18 * * *", ".jobs"),
    "schedules: in words or as written",
)
ok(jobs.shows("Europe/Berlin", ".jobs") and jobs.shows("in ", ".jobs .next"), "with their zone, and the next run")
row = "[...document.querySelectorAll('.jobs tr')].map(r => r.innerText.replace(/\\s+/g, ' '))"
rows = {name: [r for r in jobs.run(row) if r.startswith(name)] for name in ("backup", "report", "thumbnails")}
ok(
    "ok" in rows["backup"][0] and "took 12 min 14 s" in rows["backup"][0],
    "what came of the last run, of an earlier term, too",
)
ok("failed" in rows["report"][0] and "exit status 3" in rows["report"][0], "and why, if it failed")
ok("lost" in rows["thumbnails"][0], "a run whose leader went with it is lost")
ok("secret" not in jobs.text(), "no command is shown, since it may have secrets")
ok(jobs.run(CONTRAST) >= 4.5, "it has the contrast")
picture(jobs, "jobs")
with open(gate, "w"):
    pass
ok(wait_for(lambda: "running now" not in jobs.text(".jobs")), "a job that has ended is said to, by itself")
jobs.size(360, 700)
jobs.dark(True)
ok(fits(jobs) and jobs.run(CONTRAST) >= 4.5, "it fits a small phone, in the dark, too")
cron.ask_to_stop()
cron.leave()

same(
    [t.complaints() for t in (lead, stand, jobs)],
    [[], [], []],
    "no error and no breach of the page's policy on any console",
)
asked = {u for t in (lead, stand, jobs) for u in t.requested() if not u.startswith(("data:", "about:"))}
same(
    [u for u in asked if not u.startswith((first_url, second_url, cron_url))],
    [],
    "nothing is loaded from anywhere else",
)

lead.run(
    "document.body.append(Object.assign(document.createElement('script'), { textContent: 'window.breached = 1' }))"
)
ok(not lead.run("window.breached") and lead.complaints(), "a script that is not the page's is refused by its policy")
first.stop()
ok(lead.shows("does not answer", "#link"), "the page of a process that has gone says that it is old")


def fetch(path: str, **headers: str) -> Any:
    return urllib.request.urlopen(urllib.request.Request(second_url + path, headers=headers), timeout=PATIENCE)


page = fetch("/", Accept="text/html,*/*;q=0.8")
policy = page.headers["Content-Security-Policy"]
ok(
    "default-src 'none'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy,
    "the policy is strict",
)
nonces = {
    re.findall(r"'nonce-(\w+)'", fetch("/", Accept="text/html").headers["Content-Security-Policy"])[0] for _ in range(3)
}
same(len(nonces), 3, "its number is another one each time")
done()

#!/usr/bin/python3
"""The admin endpoint's page in a real browser: what it shows of a leader, of a standby, of a term that changes hands,
of a lost store and of a process that has gone; on a phone and in the dark; without a complaint of the browser.

`page.py --pictures DIR` writes what docs/operations.md shows."""

import atexit
import os
import re
import signal
import sys
import urllib.request
from typing import Any

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import servers
from browser import Browser, Tab
from candidates import STEADY, Candidate, stop_everyone
from processes import PATIENCE, wait_for
from tap import done, ok, same

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

first, first_url = start("web-1")
first.event("became_leader")
second, second_url = start("web-2")
second.event("comes_next")

lead = browser.open(first_url, width=840, height=545)
ok(
    lead.shows("web-1 leads", "h2") and lead.shows("Leading", ".state"),
    "the leader's page says who leads, and that all is well",
)
ok(lead.shows("web-2", ".facts"), "and who comes next")
ok(lead.shows("Renewed", ".facts") and lead.shows("fencing token", ".facts"), "the last renewal, term and token")
ok(lead.shows("web-1 (this process)", ".terms li.own"), "its term is in the timeline")
ok(lead.shows("live", "#link"), "it is live")
ok(lead.shows(f"process {first.pid}", "#process"), "and says which process this is")
picture(lead, "leading")

stand = browser.open(second_url, width=390, height=700, dark=True)
ok(stand.shows("web-1 leads", "h2") and stand.shows("Standing by", ".state"), "a standby's page says who leads")
ok(stand.shows("This process", ".facts"), "and that this process comes next")
ok(stand.shows("web-1 leads (term 1", ".part"), "and why it does not lead, as `ctl why` does")
ok(stand.shows("web-1", ".terms li.other"), "the other's term is in its timeline")
ok(fits(stand), "it fits a phone")
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
ok(stand.run("document.querySelectorAll('.line rect').length") >= 2, "the timeline has both terms")

redis.pause()
ok(lead.shows("The store does not answer", ".state"), "a store that is lost is said first")
ok(
    lead.shows("not known", "h2") and lead.shows("Store silent", ".facts .ill"),
    "who leads is not known then, and since when",
)
ok(lead.run(CONTRAST) >= 4.5, "this has the contrast, too")
lead.size(840, 470)
picture(lead, "store-lost")
redis.resume()
ok(
    bool(wait_for(lambda: "does not answer" not in lead.text(".state") and "not known" not in lead.text("h2"))),
    "when it is back, so is the leader's name",
)

same([t.complaints() for t in (lead, stand)], [[], []], "no error and no breach of the page's policy on any console")
asked = {u for t in (lead, stand) for u in t.requested() if not u.startswith(("data:", "about:"))}
same([u for u in asked if not u.startswith((first_url, second_url))], [], "nothing is loaded from anywhere else")

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

#!/usr/bin/env -S PYTHONPATH=. python3
"""Why does nobody lead? What `ctl why`, `ctl status`, /status, /readyz and the log say of each thing that keeps a
candidate from leading."""

import atexit
import json
import os
import re
import shutil
import signal
import subprocess

from tests.lib.asked import LONG, Asked
from tests.lib.candidates import FAST, STEADY, Candidate, stop_everyone
from tests.lib.commands import replace
from tests.lib.processes import LUNARCH, scratch, wait_for
from tests.lib.servers import Redis
from tests.lib.tap import done, ok, same

TMP = scratch()
atexit.register(shutil.rmtree, TMP, True)
atexit.register(stop_everyone)
ANSWER = os.path.join(TMP, "answer")
SCRIPT = os.path.join(TMP, "s.lua")
GOOD = (
    "local function answer() local f <close> = io.open(%r) return f and f:read 'a' or 'yes' end\n"
    "return { on_leading = function(term) sleep(1e6) end, may_lead = function()\n"
    "  local a = answer()\n"
    "  if a == 'error' then error 'no disk' end\n"
    "  if a == 'slow' then sleep(1000) end\n"
    "  return a == 'yes', a\n"
    "end }\n" % ANSWER
)


def test_same_identity() -> None:
    lock = os.path.join(TMP, "same")
    bob = Candidate("--lock", lock, "-e", "sleep(1e6)", options=FAST)
    bob.event("became_leader")
    both = [Asked("--lock", lock, "--identity", "ann", "-e", "sleep(1e6)", options=FAST) for _ in range(2)]
    for c in both:
        c.event("new_leader")
    bob.stop()
    wait_for(lambda: both[0].all("became_leader") or both[1].all("became_leader"))
    for c, who in zip(both if both[0].all("became_leader") else both[::-1], ("leader", "standby")):
        ok(c.wait("same_identity", patience=LONG), f"the {who} of two that stood by with one identity is told so")
        why = c.why()
        ok("another candidate has this one's identity, ann" in why, f"and so is who asks the {who} why", why)
        same(len(c.all("same_identity")), 1, "once")
        ok(
            c.metric("lunarch_same_identity_writes_total") > 0,
            f"and the {who}'s metric counts what the other one writes",
        )
    wait_for(lambda: '"next"' in open(lock).read())
    r = subprocess.run([LUNARCH, "doctor", "--lock", lock], capture_output=True, text=True)
    told = "who leads and who comes next have one identity, ann"
    ok(r.returncode == 0 and told in r.stdout, "doctor says so, and that the store is fit", r.stdout + r.stderr)
    for c in both:
        c.kill(signal.SIGKILL)
    again = Asked("--lock", lock, "--identity", "ann", "-e", "sleep(1e6)", options=FAST)
    again.event("became_leader")
    same(
        (again.all("same_identity"), again.metric("lunarch_same_identity_writes_total")),
        ([], 0.0),
        "one that is started again after its death is alone",
    )


def test_script_error() -> None:
    replace(
        SCRIPT,
        "return { on_leading = function(term)\n"
        f"  local f <close> = io.open({ANSWER!r}) if f then error 'no disk' end\n"
        "  sleep(1e6)\nend }\n",
    )
    replace(ANSWER, "fail")
    c = Asked("--lock", os.path.join(TMP, "error"), SCRIPT, options=FAST)
    said = r"its script raised an error [\d.]+s ago: on_leading: \S*s.lua:2: no disk"
    ok(c.wait("hook_failed"), "a hook raises")
    ok(
        wait_for(lambda: re.search(said, c.why())),
        "why names it, with its line, and says how long ago that was",
        c.why(),
    )
    os.unlink(ANSWER)
    ok(wait_for(lambda: c.why().startswith("this elector leads since ")), "the next term begins")
    ok(re.search(said, c.why()), "and the last error is told of a leader, too", c.why())
    e = c.status()
    ok(e["scriptError"].endswith("s.lua:2: no disk") and e["scriptErrorMs"] >= 0, "so it is in --json", e)


def test_blocks() -> None:
    script = "return { on_leading = function(term) print 'blocks' while true do end end }"
    c = Asked("--lock", os.path.join(TMP, "blocks"), "-e", script, options=STEADY)
    ok(c.wait("print", "blocks"), "a hook blocks its process, in the middle of a term")
    said = r"the process of its script runs nothing else: it is busy in on_leading, for [\d.]+s"
    ok(wait_for(lambda: re.search(said, c.why())), "why names it, and says for how long", c.why())
    e = c.status()["worker"]
    same((e["silentMs"], e["doing"]), (-1, "it is busy in on_leading"), "so does --json")
    ok(e["busyMs"] >= 1000, "with the time", e)
    c.kill(signal.SIGKILL)


def test_others() -> None:
    lock = os.path.join(TMP, "others")
    a = Asked("--lock", lock, "--identity", "ann", "-e", "sleep(1e6)", options=STEADY)
    a.event("became_leader")
    b = Asked("--lock", lock, "--identity", "bob", "-e", "sleep(1e6)", options=STEADY)
    b.event("new_leader")
    ok(a.why().startswith("this elector leads since "), "why: a leader leads, since when")
    text = b.why()
    ok(
        "does not lead" in text and re.search(r"ann leads .* its lease lasts [\d.]+m?s more", text),
        "why: a standby does not, since another does, for how long at least",
        text,
    )
    ok("new_leader" in b.ctl("why")[1].split("what happened")[1], "then the last decisions follow")
    same(
        (b.ctl("resign")[0], "ann does" in b.ctl("resign")[1], b.status()["sittingOutMs"]),
        (1, True, 0),
        "resign of one that does not lead says so, and changes nothing",
    )
    code, text = b.ctl("resign", "1h")
    ok(code == 1 and "sits out for 1h" in text, "with a time it sits out all the same, and says both")
    b.says("it sits out until 20", what="sitting out is shown, with its end")
    b.ctl("pause")
    b.says("it is paused: by an operator", what="paused is shown")
    e = b.status()
    ok(e["paused"] is True and 0 < e["sittingOutMs"] <= 3600000, "both are in --json")
    kinds = [r["reason"] for r in e["reasons"]]
    same(kinds, ["leader", "paused", "sitting_out"], "with a word for each reason")
    b.ctl("resume")
    a.kill(signal.SIGSTOP)
    os.unlink(lock)
    b.says("it waits out a record that is gone", what="so is a record that is waited out")
    a.kill(signal.SIGCONT)
    x = Asked("--lock", os.path.join(TMP, "exec"), "--", "sleep", "1000", command="exec")
    x.event("became_leader")
    ok("leads since" in x.why(), "exec tells it, too")
    y = Asked("--lock", os.path.join(TMP, "exec"), "--", "sleep", "1000", command="exec")
    y.event("new_leader")
    code, text = y.ctl("resign")
    ok(code == 1 and "it does not lead" in text, "and so does its resign")
    o = Asked("--lock", lock, "-e", "return { on_new_leader = print }")
    ok(wait_for(lambda: "it observes" in o.why()), "an observer says that it never leads")


def test_reload() -> None:
    """What else is said of one: reload_whole.py."""
    replace(SCRIPT, GOOD)
    c = Asked("--lock", os.path.join(TMP, "reload"), SCRIPT, options=STEADY)
    c.event("became_leader")
    same(c.ctl("reload"), (0, ""), "a reload that succeeds says nothing")
    replace(
        SCRIPT, "return { on_leading = function() print 'one' sleep(1e6) end, on_stopped = function() sleep(1) end }"
    )
    ok(c.ctl("reload")[0] == 0 and c.wait("print", "one"), "the script that was loaded leads")
    for word in ("two", "three"):
        replace(SCRIPT, "return { on_leading = function() print '%s' sleep(1e6) end }" % word)
        c.ctl("reload")
    ok(c.wait("print", "three"), "a reload while the last one's term is ending is not lost")


def test_may_lead() -> None:
    replace(SCRIPT, GOOD)
    replace(ANSWER, "low disk")
    c = Asked("--lock", os.path.join(TMP, "may_lead"), "--may-lead-timeout", "1s", SCRIPT)
    c.says("low disk", what="may_lead's no and its reason are shown")
    e = json.loads(c.get("/status")[1])["elections"][0]["mayLead"]
    same((e["answer"], e["why"]), ("no", "low disk"), "/status has its last answer")
    replace(ANSWER, "still low")
    c.says("still low", what="the newest reason is shown")
    same(len(c.all("may_not_lead")), 1, "a refusal is logged once when it begins")
    replace(ANSWER, "error")
    ok(c.wait("hook_failed", "no disk"), "an error in may_lead is logged")
    wait_for(lambda: c.status()["mayLead"]["sinceMs"] > 4000)
    same(len(c.all("hook_failed")), 1, "once, not at every try")
    replace(ANSWER, "slow")
    ok(c.wait("may_lead_late", "not answered"), "an answer that takes longer than may_lead_timeout is said")
    c.says("may_lead has not answered in time (1s)", what="and shown")
    replace(ANSWER, "yes")
    ok(c.wait("may_lead", "says yes") and c.wait("became_leader"), "the end of the refusal is logged, once")
    same(len(c.all("may_lead")), 1, "and no more")
    slow = os.path.join(TMP, "slow.lua")
    replace(slow, "return { on_leading = print, may_lead = function() sleep(1) return true end }")
    d = Asked("--lock", os.path.join(TMP, "slowly"), slow)
    ok(d.wait("became_leader"), "an answer may take longer than the retry period (0.4 s)")
    ok(not d.all("may_lead_late"), "and is not late before may_lead_timeout, 5 s")


def lost(c: Asked) -> bool:
    return c.get("/readyz")[0] == 503


def test_store() -> None:
    with Redis() as server:
        url = server.url("standing")
        a = Asked("--lock", url, "--identity", "ann", "-e", "sleep(1e6)", options=FAST)
        a.event("became_leader")
        b = Asked("--lock", url, "--identity", "bob", "-e", "sleep(1e6)", options=FAST)
        b.event("new_leader")
        same([c.get("/readyz")[0] for c in (a, b)], [200, 200], "leader and standby are ready")
        same([c.get("/standby")[0] for c in (a, b)], [503, 200], "/standby is 200 on the standby alone")
        server.pause()
        ok(wait_for(lambda: lost(b)), "a standby that has lost its store is not ready")
        ok(
            wait_for(lambda: "the store has not answered" in b.get("/leader")[1]),
            "who leads is not known, it says then",
        )
        same([b.get(p)[0] for p in ("/healthz", "/standby", "/leader")], [200, 503, 503], "but it is alive")
        ok(b.wait("store_lost", "has not answered for"), "the log says when it begins")
        b.says("the store last answered", what="why and status say so")
        shown = b.ctl("status")[1]
        ok(
            re.search(r"the store answered \S+ ago; failed so far: \d+ reads, \d+ writes, \d+ watches", shown)
            and "0 reads, 0 writes" not in shown,
            "status counts what has failed",
            shown,
        )
        e = b.status()["store"]
        ok(e["lost"] and e["lastContactMs"] > 2000 and e["readsFailed"] + e["writesFailed"] > 0, "so does --json")
        ok(b.metric("lunarch_store_last_contact_seconds") > 2, "how long ago it answered is a metric")
        ok(b.metric("lunarch_store_failures_total") > 0, "and so are the failures")
        ok(wait_for(lambda: lost(a)), "the leader, whose term has ended by then, is not ready either")
        server.resume()
        ok(wait_for(lambda: not lost(a) and not lost(b)), "both are ready again when the store is back")
        ok(b.wait("store_back"), "the log says when it is over")
        same(len(b.all("store_lost")), 1, "each of these once")
        ok(wait_for(lambda: a.metric("lunarch_term_seconds") + b.metric("lunarch_term_seconds") > 0), "a term's age")
        ok('renew_deadline="5s"' in b.get("/metrics")[1], "the durations are an info metric")
    n = Asked("--lock", "redis://127.0.0.1:1/nobody", "-e", "sleep(1e6)", options=FAST)
    ok(wait_for(lambda: "the store has not answered yet" in n.get("/readyz")[1]), "nor is one that never reached it")
    n.says("the store has not answered yet", what="which is said")


test_same_identity()
test_script_error()
test_blocks()
test_others()
test_reload()
test_may_lead()
test_store()
done()

#!/usr/bin/env -S PYTHONPATH=. python3
"""A worker that is told to lead answers before any hook of the term runs. One that does not, since it is stopped or its
script is busy, is said to be silent, and is killed when the time is up; one that is merely slow is not, and neither is
one that has answered."""

import atexit
import os
import signal

from tests.lib.asked import Asked
from tests.lib.candidates import STEADY, Candidate, stop_everyone
from tests.lib.processes import scratch, wait_for
from tests.lib.tap import done, note, ok, same

TMP = scratch()
atexit.register(stop_everyone)
LATE = ["--start-timeout", "1h"]  # never, as far as a test goes
SOON = ["--start-timeout", "5s"]  # enough for a slow machine to start a worker
LEADS = "on_leading = function() print 'leading' sleep(1e6) end"


def path(name: str) -> str:
    return os.path.join(TMP, name)


def go_on(name: str) -> None:
    with open(path(name), "w"):
        pass


def script(name: str, text: str) -> str:
    with open(path(name), "w") as f:
        f.write(text)
    return path(name)


def busy_until(name: str) -> str:
    return f"print 'busy' while not io.open('{path(name)}') do end"


def follow(lock: str, *args: str) -> tuple[Candidate, Asked]:
    """A leader, and a standby of which more is to be known."""
    leader = Candidate("--lock", path(lock), "-e", "sleep(1e6)", options=STEADY)
    leader.event("became_leader")
    standby = Asked("--lock", path(lock), *args, options=STEADY)
    standby.event("new_leader")
    return leader, standby


def test_stopped() -> None:
    leader, c = follow("stopped", *LATE, "-e", "return { %s }" % LEADS)
    wait_for(lambda: c.status()["couldLead"])
    pid = c.worker()
    c.kill(signal.SIGSTOP, pid)
    leader.stop()
    c.event("became_leader")
    words = f"that it leads, so no hook of the term has run: it is stopped (SIGSTOP): kill -CONT {pid}"
    ok(wait_for(lambda: words in c.why()), "why: the worker is stopped, and how it goes on", c.why())
    worker = c.status()["worker"]
    ok(worker["silentMs"] > 1000 and worker["doing"].startswith("it is stopped"), "status has it", str(worker))
    ok(c.metric("lunarch_worker_silent_seconds") > 1, "and so has a metric")
    ok(not c.said("leading"), "no hook of the term has run")
    c.kill(signal.SIGCONT, pid)
    ok(c.wait("print", "leading"), "it goes on, and leads")
    ok(wait_for(lambda: "no hook" not in c.why()), "which why knows")
    same(
        (c.status()["worker"], c.metric("lunarch_worker_silent_seconds")),
        ({"silentMs": -1, "busyMs": -1, "doing": ""}, 0),
        "and status, and the metric",
    )
    same((c.worker(), len(c.all("became_leader"))), (pid, 1), "all of it in one worker, and one term")
    c.stop()


def test_stopped_for_long() -> None:
    leader, c = follow("long", *SOON, "-e", "return { %s }" % LEADS)
    wait_for(lambda: c.status()["couldLead"])
    pid = c.worker()
    c.kill(signal.SIGSTOP, pid)
    leader.stop()
    ok(
        c.wait("worker_silent", "has not answered; it is stopped (SIGSTOP): kill -CONT %d: it is killed" % pid),
        "a stopped worker that does not go on in time is killed",
    )
    ok(c.wait("stopped_leading", "worker"), "which ends the term")
    ok(c.wait("print", "leading"), "and its replacement leads")
    c.event("became_leader", count=2)
    same([len(c.all(e)) for e in ("worker_gone", "worker_silent", "became_leader")], [1, 1, 2], "once")
    c.stop()


def test_slow() -> None:
    text = "return { on_new_leader = function() %s end, %s }" % (busy_until("slow.go"), LEADS)
    leader, c = follow("slow", *LATE, "-e", text)
    c.event("print", "busy")
    leader.stop()
    c.event("became_leader")
    words = "it is busy in on_new_leader"
    ok(wait_for(lambda: words in c.why()), "why: the worker is busy, and with what", c.why())
    same(len(c.all("print", "leading")), 0, "the term's hooks wait for that")
    go_on("slow.go")
    ok(c.wait("print", "leading"), "a worker that is merely slow leads in the end")
    ok(not c.all("worker_silent") and not c.all("worker_gone"), "and is not killed")
    c.stop()


def test_too_slow() -> None:
    text = """return { on_new_leader = function()
  if not io.open(%r) then io.open(%r, "w"):close() while true do end end
end, %s }""" % (
        path("met"),
        path("met"),
        LEADS,
    )
    leader, c = follow("too_slow", *SOON, "-e", text)
    wait_for(lambda: os.path.exists(path("met")))
    leader.stop()
    ok(c.wait("worker_silent", "it is busy in on_new_leader: it is killed"), "one that is busy for too long is killed")
    ok(c.wait("print", "leading"), "and its replacement, which is not, leads")
    c.event("became_leader", count=2)
    same([len(c.all(e)) for e in ("worker_gone", "became_leader")], [1, 2], "once")
    c.stop()


def test_answered() -> None:
    text = "return { on_leading = function() print 'leading' while true do end end }"
    c = Asked("--lock", path("answered"), *SOON, "-e", text, options=STEADY)
    c.event("print", "leading")
    ok(wait_for(lambda: c.status()["sinceBeganMs"] > 12_000), "a script that is busy in its term may go on")
    ok(
        not c.all("worker_silent") and not c.all("stopped_leading") and "has not answered" not in c.why(),
        "for ever: it has answered that it leads",
        c.why(),
    )
    c.stop()


def test_another() -> None:
    """Two elections in one worker. Whoever waits for one must not kill the other."""
    two = script(
        "two.lua",
        """return {
  { name = "a", on_leading = function() %s print 'a goes on' sleep(1e6) end },
  { name = "b", on_leading = function() print 'b leads' sleep(1e6) end },
}"""
        % busy_until("two.go"),
    )
    leader = Candidate("--lock", path("two-b"), "-e", "sleep(1e6)", options=STEADY)
    leader.event("became_leader")
    c = Asked("--lock", path("two-{name}"), *SOON, two, options=STEADY)
    c.event("print", "busy")
    leader.stop()
    c.event("became_leader", count=2)
    ok(
        c.wait("worker_silent", "it is busy in on_leading of election a: it is waited for", count=2),
        "a worker that is busy with an election that it leads is not killed for another",
    )
    status = c.ctl("why", "--election", "b")[1]
    ok("it is busy in on_leading of election a" in status, "why tells of which", status)
    go_on("two.go")
    ok(c.wait("print", "b leads"), "when it is busy no more, it leads that, too")
    ok(not c.all("worker_gone") and not c.all("stopped_leading"), "and nothing was lost")
    c.stop()


for test in (test_stopped, test_stopped_for_long, test_slow, test_too_slow, test_answered, test_another):
    note(test.__name__)
    test()
done()

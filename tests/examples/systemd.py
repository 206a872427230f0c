#!/usr/bin/env -S PYTHONPATH=. python3
"""examples/systemd.lua, and lunarch.systemd, with real systemds: two machines, each with Debian's systemd as process 1
of a PID namespace; and its --user kind. Needs root."""

import os
import signal
from typing import Any

from tests.lib.candidates import STEADY, stop_everyone
from tests.lib.processes import PATIENCE, ROOT, scratch, wait_for
from tests.lib.systemds import Systemd
from tests.lib.tap import done, ok, same, skip

SCRIPT = os.path.join(ROOT, "examples", "systemd.lua")
UNITS = {
    "job.service": "[Unit]\nDefaultDependencies=no\n[Service]\nExecStart=/bin/sleep infinity\n",
    "short.service": "[Unit]\nDefaultDependencies=no\n[Service]\nExecStart=/bin/sh -c 'sleep 1; exit 7'\n",
    "broken.service": "[Unit]\nDefaultDependencies=no\n[Service]\nType=oneshot\nExecStart=/bin/false\n",
    "deaf.service": '[Unit]\nDefaultDependencies=no\n[Service]\nExecStart=/bin/sh -c \'trap "" TERM; while :; do '
    "sleep 1; done'\n",
    "mine.service": "[Unit]\nDefaultDependencies=no\n[Service]\nDelegate=yes\nEnvironment=XDG_RUNTIME_DIR=/run/mine "
    "HOME=/run/mine\n"
    "ExecStart=/lib/systemd/systemd --user --unit=quiet.target\n",
}


def machine() -> Systemd:
    return Systemd(UNITS, UNITS)


def failover(a: Systemd, b: Systemd) -> None:
    lock = os.path.join(scratch(), "lock")

    def join(host: Any, name: str) -> Any:
        return host.lunarch("--lock", lock, "--identity", name, SCRIPT, "--", "job.service", "0.2", options=STEADY)

    a.systemctl("start", "job.service")
    ok(a.active("job.service"), "(the unit runs on a machine, as a crash may leave it)")
    second = join(b, "b")
    ok(second.wait("unit_started") and b.active("job.service"), "the leader starts the unit")
    first = join(a, "a")
    ok(first.wait("new_leader") and not a.active("job.service"), "who comes later stops it before all else")
    b.systemctl("kill", "--signal=KILL", "job.service")
    ok(second.wait("unit_ended", "signal") and second.wait("unit_started", count=2), "it is killed, and started again")
    ok(wait_for(lambda: b.active("job.service")), "and runs")
    second.kill(signal.SIGTERM)
    ok(first.wait("unit_started") and a.active("job.service"), "at a handover the other machine starts it")
    ok(not b.active("job.service"), "where it ran it is stopped")
    same(second.leave(), 0, "who handed over has ended in peace")
    first.kill(signal.SIGKILL, first.worker())
    ok(first.wait("stopped_leading"), "the script's process is killed")
    ok(
        wait_for(lambda: not a.active("job.service")) or first.wait("unit_started", count=2),
        "its replacement stops the unit, or leads again",
    )
    first.kill(signal.SIGTERM)
    first.leave()
    ok(not a.active("job.service") and not b.active("job.service"), "when all have stopped it runs nowhere")
    deaf = a.lunarch("--lock", lock + "2", SCRIPT, "--", "deaf.service", options=STEADY)
    ok(deaf.wait("unit_started"), "a unit that does not listen to SIGTERM is started")
    deaf.kill(signal.SIGTERM)
    same(deaf.leave(), 0, "and stopped")
    ok(not a.active("deaf.service"), "being killed")


MODULE = """
local systemd = require "lunarch.systemd"
local mine = { user = true, timeout = 30 }
return { on_leading = function()
  print("start", systemd.start "job.service", systemd.start "job.service")
  local state = systemd.state "job.service"
  print("state", state.active, state.sub, math.type(state.pid))
  local _, err = systemd.wait("job.service", { timeout = 0.2, interval = 0.1 })
  print("wait", err.code, err)
  print("stop", systemd.stop "job.service", systemd.stop "job.service", systemd.stop "nonesuch.service")
  print("stopped", systemd.state("job.service").active, systemd.state("job.service").pid)
  assert(systemd.start "short.service")
  state = assert(systemd.wait("short.service", { timeout = 60 }))
  print("ended", state.active, state.result, state.code)
  for _, name in ipairs { "nonesuch.service", "broken.service" } do
    local _, why = systemd.start(name)
    print(name, why.code, why)
  end
  print("no state", select(2, systemd.state "nonesuch.service").code)
  print("mine", systemd.start("job.service", mine), systemd.state("job.service", mine).active, systemd.state\
 "job.service".active)
  print("mine", systemd.stop("job.service", mine), systemd.state("job.service", mine).active)
  for _, bad in ipairs { {}, { "--force" }, { "a b" }, { "a", { usr = true } }, { "a", { timeout = "1" } } } do
    print("misuse", select(2, pcall(systemd.start, table.unpack(bad, 1, 2))))
  end
  lunarch.exit(0)
end }
"""


def module(a: Systemd) -> None:
    script = os.path.join(scratch(), "module.lua")
    with open(script, "w") as f:
        f.write(MODULE)
    a.systemctl("start", "mine.service")
    mine = {"XDG_RUNTIME_DIR": "/run/mine"}
    ok(
        wait_for(lambda: a.systemctl("--user", "is-active", "quiet.target", env=mine).stdout.strip() == "active"),
        "(a user's systemd runs)",
    )
    c = a.lunarch("--lock", script + ".lock", script, env=mine, options=())
    same(c.leave(3 * PATIENCE), 0, "lunarch.systemd does what it says to the end")
    said = [e["message"] for e in c.all("print")]

    def has(*words: str) -> bool:
        return any(all(w in m for w in words) for m in said)

    ok(has("start\ttrue\ttrue"), "a unit is started, and what runs can be started")
    ok(has("state\tactive\trunning\tinteger"), "it runs")
    ok(has("wait\ttimeout", "still active"), "waiting for its end takes as long as is allowed")
    ok(
        has("stop\ttrue\ttrue\ttrue") and has("stopped\tinactive\tnil"),
        "it is stopped; so is what does not run, or is not there",
    )
    ok(has("ended\tfailed\texit-code\t7"), "wait says how a unit has ended")
    ok(
        has("nonesuch.service\tmissing", "not found") and has("no state\tmissing"),
        "a unit that is not there is an error that says so",
    )
    ok(has("broken.service\tfailed", "broken.service"), "so is one that fails to start")
    ok(has("mine\ttrue\tactive\tinactive") and has("mine\ttrue\tinactive"), "the user's systemd has units of its own")
    same(len([m for m in said if m.startswith("misuse")]), 5, "misuse raises")
    for word in ("found nil", '"--force"', '"a b"', "did you mean 'user'", "seconds"):
        ok(has("misuse", word), f"with the reason: {word}")


if os.geteuid() != 0:
    skip("systemd units", "process 1 of a namespace needs root")
    done()
with machine() as a, machine() as b:
    failover(a, b)
    module(a)
    stop_everyone()
done()

#!/usr/bin/env -S PYTHONPATH=. python3
"""examples/vip.lua, and lunarch.vip: two machines and a client on one switch, which are network namespaces; the address
answers the client before and after each failover, and the client is told that it has moved. Needs root."""

import os
import re
import signal
import subprocess
from typing import Any

from tests.lib.candidates import STEADY, Candidate, stop_everyone
from tests.lib.processes import PATIENCE, ROOT, scratch, wait_for
from tests.lib.servers import Server
from tests.lib.tap import done, ok, same, skip

SCRIPT = os.path.join(ROOT, "examples", "vip.lua")
SHARED, SHARED6 = "10.77.0.100", "fd77::100"


class Namespace(Server):
    """A network of its own, for as long as its process lives."""

    def command(self) -> list[str]:
        return ["unshare", "--net", "sleep", "infinity"]

    def ready(self) -> bool:
        try:
            return os.readlink(f"/proc/{self.process.pid}/ns/net") != os.readlink("/proc/self/ns/net")
        except OSError:
            return False

    def enter(self, *argv: Any) -> Any:
        return ["nsenter", f"--net=/proc/{self.process.pid}/ns/net", *argv]

    def run(self, *argv: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(self.enter(*argv), capture_output=True, text=True, timeout=PATIENCE)

    def must(self, line: str) -> str:
        p = self.run(*line.split())
        if p.returncode:
            raise RuntimeError(f"{line}: {p.stderr}")
        return p.stdout


class Host(Namespace):
    """A machine at a port of the switch."""

    def __init__(self, switch: Namespace, number: int) -> None:
        super().__init__()
        self.switch, self.cable = switch, f"port{number}"
        switch.must(f"ip link add name {self.cable} type veth peer name net0 netns {self.process.pid}")
        switch.must(f"ip link set {self.cable} master switch up")
        for line in (
            "link set lo up",
            "link set net0 up",
            f"address add 10.77.0.{number}/24 dev net0",
            f"address add fd77::{number}/64 dev net0 nodad",
        ):
            self.must("ip " + line)
        self.mac = re.findall(r"ether (\S+)", self.must("ip link show net0"))[0]

    def pull(self) -> None:
        self.switch.must(f"ip link set {self.cable} down")

    def plug(self) -> None:
        self.switch.must(f"ip link set {self.cable} up")

    def has(self, address: Any = SHARED) -> Any:
        return f" {address}/" in self.must("ip -o address show dev net0")

    def lunarch(self, *args: str, prefix: Any = (), **kw: Any) -> Candidate:
        return Candidate(*args, prefix=[*self.enter(), *prefix], **kw)


def knows(client: Any, address: Any = SHARED) -> Any:
    """Where the client believes the address to be."""
    found = re.search(rf"^{address} .*lladdr (\S+)", client.must(f"ip neigh show {address} dev net0"), re.M)
    return found and found[1]


def answers(client: Any, address: Any = SHARED) -> Any:
    return wait_for(lambda: client.run("ping", "-q", "-c", "1", "-W", "1", address).returncode == 0)


def failover(a: Host, b: Host, client: Host) -> None:
    lock = os.path.join(scratch(), "lock")

    def join(host: Any, name: str) -> Any:
        return host.lunarch("--lock", lock, "--identity", name, SCRIPT, "--", SHARED + "/24", "net0", options=STEADY)

    first = join(a, "a")
    ok(first.wait("address_taken") and a.has(), "the leader has the address")
    ok(answers(client) and knows(client) == a.mac, "and answers the client under it")
    second = join(b, "b")
    second.wait("new_leader")
    ok(not b.has(), "the other has not")
    a.pull()
    ok(second.wait("address_taken") and b.has(), "the leader's cable is pulled: the other takes the address")
    ok(wait_for(lambda: knows(client) == b.mac), "and tells the client, who has asked nobody")
    ok(answers(client), "under it the client is answered again")
    ok(wait_for(lambda: not a.has()), "the first has given it back")
    second.kill(signal.SIGTERM)
    same(second.leave(), 0, "the second stops")
    ok(not b.has(), "and leaves no address behind")
    a.plug()
    ok(first.wait("address_taken", count=2), "the first has its cable back, and leads again")
    ok(answers(client) and wait_for(lambda: knows(client) == a.mac), "and answers")
    a.pull()
    for pid in [first.guard(), first.pid]:
        first.kill(signal.SIGSTOP, pid)
    for pid in [first.guard(), first.pid]:
        first.kill(signal.SIGKILL, pid)
    first.leave()
    ok(a.has(), "killed together, elector and guard leave the address where it was, as a crash would")
    third = join(b, "b")
    ok(third.wait("address_taken") and answers(client), "when the lease has run out the other has it")
    again = join(a, "a")
    ok(again.wait("new_leader") and not a.has(), "who comes back after a crash drops the address first")
    for c in (again, third):
        c.kill(signal.SIGTERM)
        c.leave()


MODULE = """
local vip = require "lunarch.vip"
local four, six = vip.new("10.77.0.101/24", "net0"), vip.new("fd77::101/64", "net0")
return {
  on_leading = function()
    print("released before", four:release(), four:is_here())
    do
      local held <close> = assert(four:take())
      print("twice", four:take() == held, four:is_here())
      assert(six:take())
      print("six", six:is_here())
    end
    print("closed", four:is_here(), six:is_here())
    print("six released", six:release(), six:release(), six:is_here())
    local _, err = vip.new("10.77.0.9", "nowhere"):take()
    print("device", err.code, err)
    print("release", vip.new("10.77.0.9", "nowhere"):release())
    for _, bad in ipairs { { "10.0.0.1/33", "net0" }, { "10.0.0", "net0" }, { "a; reboot", "net0" }, { "10.0.0.1", "x\
 y" }, { "10.0.0.1" },
      { "10.0.0.1", "net0", { announcment = 1 } } } do
      print("misuse", select(2, pcall(vip.new, table.unpack(bad, 1, 3))))
    end
    local held <close> = assert(four:take())
    print "hold"
    sleep(600)
  end,
}
"""

RIGHTS = """
local vip = require "lunarch.vip"
return { on_leading = function()
  local taken, err = vip.new("10.77.0.102/24", "net0"):take()
  print("refused", taken, err.code, err)
  lunarch.exit(0)
end }
"""


def module(a: Host, b: Host, client: Host) -> None:
    room = scratch()

    def script(name: str, text: str) -> str:
        with open(os.path.join(room, name), "w") as f:
            f.write(text)
        return os.path.join(room, name)

    a.plug()
    ok(answers(client, "10.77.0.1"), "(the cable is in again)")
    b.must("ip address add fd77::101/64 dev net0 nodad")
    ok(
        answers(client, "fd77::101") and knows(client, "fd77::101") == b.mac,
        "(the client knows an IPv6 address of the other machine)",
    )
    b.must("ip address del fd77::101/64 dev net0")
    c = a.lunarch("--lock", os.path.join(room, "lock"), script("module.lua", MODULE), options=())
    ok(c.wait("print", "hold"), "lunarch.vip does what it says to the end")
    said = [e["message"] for e in c.all("print")]

    def has(*words: Any) -> Any:
        return any(all(w in m for w in words) for m in said)

    ok(has("released before\ttrue\tfalse"), "what is not there can be released")
    ok(has("twice\ttrue\ttrue"), "what is there can be taken")
    ok(
        has("six\ttrue") and has("closed\tfalse\ttrue"),
        "a <close> variable releases at the end of its block, and nothing else",
    )
    ok(has("six released\ttrue\ttrue\tfalse"), "an IPv6 address, too, is taken and released")
    ok(
        wait_for(lambda: knows(client, "fd77::101") == a.mac),
        "and the client, who has asked nobody, is told that it has moved",
    )
    ok(has("device\tmissing", "nowhere"), "a device that is not there is an error that names it")
    ok(has("release\ttrue"), "nothing is to be released there")
    same([m.count("misuse") for m in said if "misuse" in m], [1] * 6, "misuse raises")
    for word in ("10.0.0.1/33", '"10.0.0"', "a; reboot", "x y", "found nil", "announcements"):
        ok(has("misuse", word), f"with the reason: {word}")
    ok(a.has("10.77.0.101"), "it is held")
    c.kill(signal.SIGUSR1)
    ok(
        c.wait("stopped_leading") and wait_for(lambda: not a.has("10.77.0.101")),
        "when the term ends, <close> alone releases it",
    )
    c.kill(signal.SIGTERM)
    c.leave()
    c = a.lunarch(
        "--lock",
        os.path.join(room, "lock2"),
        script("rights.lua", RIGHTS),
        options=(),
        prefix=["setpriv", "--bounding-set", "-net_admin", "--inh-caps", "-net_admin"],
    )
    e = c.wait("print", "refused")
    ok(
        e and "nil\tdenied" in e["message"] and "CAP_NET_ADMIN" in e["message"],
        "without the right to it, an error says which right that is",
    )
    c.leave()


if os.geteuid() != 0:
    skip("a virtual address", "network namespaces need root")
    done()
with Namespace() as switch:
    switch.must("ip link add name switch type bridge")
    switch.must("ip link set switch up")
    with Host(switch, 1) as a, Host(switch, 2) as b, Host(switch, 3) as client:
        failover(a, b, client)
        module(a, b, client)
        stop_everyone()
done()

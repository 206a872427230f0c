#!/usr/bin/env python3
"""make bench-kube: figures on a real API server, client-go's elector in the same run. Medians. Arguments choose rows: handover,
crash, requests, many. LEASES=N: of `many` (1000)."""
import datetime, statistics, sys
from rig import *
from election import connections
import field

RUNS = int(os.environ.get("RUNS") or 10)
SCRIPT = "return { on_leading = function(t) io.write('leading\\n') io.flush() end }"


def row(what, goal, values, unit):
    print(f"{what:<66} {statistics.median(values):9.2f} {unit:<6} {min(values):9.2f} .. {max(values):9.2f}   {goal}", flush=True)


def lunarch(c, ns, name, times=("--lease-duration", "15s")):
    return Candidate("-e", SCRIPT, "--lock", f"kube://{ns}/{name}?kubeconfig={c.config}", options=times)


def handover(c, ns):
    took = []
    a = lunarch(c, ns, "ours")
    a.wait("became_leader")
    for _ in range(RUNS):
        b = lunarch(c, ns, "ours")
        b.wait("new_leader")
        a.kill(signal.SIGTERM)
        took.append((b.wait("became_leader")["seen"] - a.wait("stopped_leading")["seen"]) * 1000)
        a = b
    field.leave(a)
    row("graceful handover, 15/10/2", "20 ms", took, "ms")
    took = []
    a = ClientGo(c.config, ns, "theirs", "g", "15s", "10s", "2s")
    a.wait("started")
    for i in range(min(RUNS, 5)):
        b = ClientGo(c.config, ns, "theirs", f"g{i}", "15s", "10s", "2s")
        wait_for(lambda: b.all("new_leader"))
        began = time.monotonic()
        a.kill(signal.SIGTERM)
        took.append((b.wait("started")["at"] - began) * 1000)
        a = b
    a.leave()
    row("  peer: client-go, 15/10/2", "", took, "ms")


def crash(c, ns):
    times = field.STEADY
    took = []
    a = lunarch(c, ns, "crash", times=times)
    a.wait("became_leader")
    for _ in range(min(RUNS, 5)):
        b = lunarch(c, ns, "crash", times=times)
        b.wait("new_leader")
        killed = time.monotonic()
        a.kill(signal.SIGKILL)
        took.append((b.wait("became_leader")["seen"] - killed) * 1000)
        a = b
    field.leave(a)
    row("killed leader, same host (its death is proved): to the next", "", took, "ms")


def requests(c, ns):
    a = lunarch(c, ns, "count")
    a.wait("became_leader")
    b = lunarch(c, ns, "count")
    b.wait("new_leader")
    time.sleep(3)
    before = len(c.requests("lunarch"))
    time.sleep(30)
    seen = [e for e in c.requests("lunarch")[before:] if e["objectRef"].get("name") == "count" and e["stage"] == "ResponseComplete"]
    row("requests a minute: leader's PUTs, 15/10/2", "30", [2 * sum(e["verb"] == "update" for e in seen)], "")
    row("requests a minute: all others, leader and standby", "1", [2 * sum(e["verb"] != "update" for e in seen)], "")
    field.leave(a)
    field.leave(b)


def usage(pid):
    with open(f"/proc/{pid}/stat") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    with open(f"/proc/{pid}/smaps_rollup") as f:
        pss = next(int(line.split()[1]) for line in f if line.startswith("Pss:"))
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), pss


def moment(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def lateness(puts, period):
    """By how much each Lease's longest pause between two renewals was longer than the period."""
    times = {}
    for e in puts:
        times.setdefault(e["objectRef"]["name"], []).append(moment(e["requestReceivedTimestamp"]))
    return [max(b - a for a, b in zip(t, t[1:])) - period for t in map(sorted, times.values()) if len(t) > 1] or [float("inf")]


def many(c, ns):
    count = int(os.environ.get("LEASES") or 1000)
    script = (f"local list = {{}} for i = 1, {count} do list[i] = {{ name = 'n' .. i, on_leading = function() end }} end return list")
    small = Candidate("-e", script.replace(str(count), "1", 1), "--lock", f"kube://{ns}/one-{{name}}?kubeconfig={c.config}", options=[])
    small.wait("became_leader")
    base = usage(small.pid)[1]
    field.leave(small)
    options = ["--lease-duration", "60s", "--renew-deadline", "40s", "--retry-period", "10s"]
    began = time.monotonic()
    a = Candidate("-e", script, "--lock", f"kube://{ns}/many-{{name}}?kubeconfig={c.config}", options=options)
    wait_for(lambda: len(a.all("became_leader")) == count, 300)
    row(f"{count} Leases in one elector: all led after", "", [time.monotonic() - began], "s")
    time.sleep(12)
    cpu, pss = usage(a.pid)
    start = len(c.requests("lunarch"))
    time.sleep(45)
    cpu = usage(a.pid)[0] - cpu
    puts = [e for e in c.requests("lunarch")[start:] if e["verb"] == "update" and e["stage"] == "ResponseComplete" and e["responseStatus"]["code"] == 200]
    row(f"{count} Leases: TCP connections", "a handful", [connections(a.pid, c.port)], "")
    row(f"{count} Leases: CPU a renewal", "", [cpu / max(len(puts), 1) * 1e6], "us")
    row(f"{count} Leases: memory a Lease (elector's PSS, less that of one)", "", [(pss - base) / count], "KB")
    row(f"{count} Leases: a renewal's time in the API server", "", [1000 * (moment(e["stageTimestamp"]) - moment(e["requestReceivedTimestamp"])) for e in puts], "ms")
    row(f"{count} Leases: renewals seen in 45 s, every 10 s each", "", [len(puts)], "")
    row(f"{count} Leases: a renewal later than the retry period of 10 s", "<= 10 s", lateness(puts, 10), "s")
    row(f"{count} Leases: terms lost", "0", [len(a.all("stopped_leading"))], "")
    field.leave(a)


def main():
    rows = {"handover": handover, "crash": crash, "requests": requests, "many": many}
    with AuditedCluster() as c:
        for name in sys.argv[1:] or rows:
            ns = c.namespace(f"bench-{name}")
            c.config = c.kubeconfig(ns, c.account(ns))
            rows[name](c, ns)


main()

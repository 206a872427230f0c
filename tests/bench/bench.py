#!/usr/bin/env python3
"""make bench: figures of this machine, peers and floor in the same run. Medians; --json for programs, --quick for a look."""
import json, os, shutil, signal, socket, statistics, subprocess, sys, time
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import LUNARCH, ROOT, Candidate, children, scratch, stop_everyone, wait_for

QUICK, JSON = "--quick" in sys.argv, "--json" in sys.argv
RUNS = 5 if QUICK else 30
IDLE = 10 if QUICK else 40
rows = []
HELLO = "return { on_leading = function(t) io.write('leading\\n') io.flush() end }"


def row(what, goal, values, unit, note=""):
    values = sorted(values)
    rows.append({"what": what, "goal": goal, "median": statistics.median(values), "min": values[0], "max": values[-1], "unit": unit,
                 "runs": len(values), "note": note})
    if not JSON:
        print(f"{what:<66} {statistics.median(values):9.3f} {unit:<3} {values[0]:9.3f} .. {values[-1]:9.3f}  {goal:>8}  {note}", flush=True)


def first_line(argv, **kw):
    began = time.perf_counter()
    p = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, **kw)
    p.stdout.readline()
    took = (time.perf_counter() - began) * 1000
    return took, p


def start_times(argv, stop=True):
    values = []
    for i in range(RUNS):
        took, p = first_line([a.replace("{i}", str(i)) for a in argv])
        values.append(took)
        if stop:
            p.send_signal(signal.SIGTERM)
        p.wait()
    return values


def starts(directory):
    row("start to on_leading, free file lock (memory)", "10 ms", start_times([LUNARCH, "run", "--lock", directory + "/s{i}", "-e", HELLO]), "ms")
    disk = os.path.join(ROOT, "build", "bench-locks")
    os.makedirs(disk, exist_ok=True)
    row("start to on_leading, free file lock (disk, fsync)", "", start_times([LUNARCH, "run", "--lock", disk + "/s{i}", "-e", HELLO]), "ms")
    shutil.rmtree(disk)
    row("exec: start to the command's first line", "", start_times([LUNARCH, "exec", "--lock", directory + "/e{i}", "--", "echo", "x"], False), "ms")
    row("  peer: flock(1), start to the command's first line", "", start_times(["flock", directory + "/f{i}", "echo", "x"], False), "ms")
    row("  floor: links and initialises the same libraries", "", start_times([os.path.join(ROOT, "build/bench/floor")], False), "ms")


class Runner:
    def __init__(self, lock):
        self.log = Candidate("--lock", lock, "-e", HELLO, stdout=subprocess.PIPE, options=[])
        self.out = self.log.process.stdout


def handovers(directory, hurt):
    values, leader = [], Runner(directory + "/h")
    leader.out.readline()
    for _ in range(RUNS):
        standby = Runner(directory + "/h")
        standby.log.wait("new_leader")
        time.sleep(0.02)
        began = time.perf_counter()
        hurt(leader.log)
        standby.out.readline()
        values.append((time.perf_counter() - began) * 1000)
        leader.log.leave()
        leader = standby
    leader.log.kill(signal.SIGTERM)
    leader.log.leave()
    return values


def kill_all(c):
    guard = c.guard()
    for pid in (c.pid, guard, *children(guard)):
        c.kill(signal.SIGKILL, pid)  # one of them may have died of another's death already


def worker_kills(directory):
    values = []
    for i in range(RUNS):
        a = Runner(f"{directory}/w{i}")
        a.out.readline()
        b = Runner(f"{directory}/w{i}")
        b.log.wait("new_leader")
        time.sleep(0.02)
        worker = a.log.worker()
        began = time.perf_counter()
        os.kill(worker, signal.SIGKILL)
        b.out.readline()
        values.append((time.perf_counter() - began) * 1000)
        for r in (a, b):
            r.log.kill(signal.SIGTERM)
            r.log.leave()
    return values


def flock_handovers(directory):
    values = []
    for i in range(RUNS):
        holder = subprocess.Popen(["flock", f"{directory}/p{i}", "sh", "-c", "echo x; exec sleep 60"], stdout=subprocess.PIPE, start_new_session=True)
        holder.stdout.readline()
        waiter = subprocess.Popen(["flock", f"{directory}/p{i}", "echo", "x"], stdout=subprocess.PIPE)
        time.sleep(0.03)
        began = time.perf_counter()
        os.killpg(holder.pid, signal.SIGTERM)
        waiter.stdout.readline()
        values.append((time.perf_counter() - began) * 1000)
        holder.wait()
        waiter.wait()
    return values


def family(c):
    guard = c.guard()
    return [c.pid, guard, *children(guard)]


def pss(pids):
    total = 0
    for pid in pids:
        with open(f"/proc/{pid}/smaps_rollup") as f:
            total += next(int(line.split()[1]) for line in f if line.startswith("Pss:"))
    return total / 1024


def cpu_ms(pids):
    total = 0
    for pid in pids:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/schedstat") as f:
                total += int(f.read().split()[0]) / 1e6
    return total


def idle(directory):
    leader = Runner(directory + "/idle")
    leader.out.readline()
    standby = Runner(directory + "/idle")
    standby.log.wait("new_leader")
    time.sleep(1)
    row("memory (PSS) of elector + guard + worker, leading, idle", "4 MB", [pss(family(leader.log))], "MB")
    a, b = family(leader.log), family(standby.log)
    before = cpu_ms(a), cpu_ms(b)
    time.sleep(IDLE)
    row("CPU of an idle leader, a minute at 15/10/2", "5 ms", [(cpu_ms(a) - before[0]) * 60 / IDLE], "ms")
    row("CPU of an idle standby, a minute at 15/10/2", "1 ms", [(cpu_ms(b) - before[1]) * 60 / IDLE], "ms")
    for r in (leader, standby):
        r.log.kill(signal.SIGTERM)
        r.log.leave()


MANY = """local n, list = %d, {}
for i = 1, n do list[i] = { name = "e" .. i, lock = "%s/e" .. i, on_leading = function() end } end
return list"""


def many(directory):
    figures = {}
    for n in (1, 1001):
        where = os.path.join(directory, f"many{n}")
        os.mkdir(where)
        c = Candidate("-e", MANY % (n, where), options=[])
        if not c.wait("became_leader", count=n, patience=120):
            print(f"# {len(c.all('became_leader'))} of {n} lead", file=sys.stderr)
            c.log()
        time.sleep(3)
        pids = family(c)
        before = cpu_ms(pids)
        time.sleep(IDLE / 2)
        figures[n] = pss(pids), cpu_ms(pids) - before
        c.kill(signal.SIGTERM)
        c.leave(120)
    row("1,000 elections in a process: added memory of each", "4 KB", [(figures[1001][0] - figures[1][0]) * 1024 / 1000], "KB")
    row("1,000 elections in a process: CPU of a renewal", "60 us", [(figures[1001][1] - figures[1][1]) * 1000 / (1000 * IDLE / 2 / 2)], "us")


def etcd(directory):
    if not (shutil.which("etcd") and shutil.which("etcdctl")):
        return
    ports = []
    for _ in range(2):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            ports.append(s.getsockname()[1])
    url, peer = (f"http://127.0.0.1:{p}" for p in ports)
    server = subprocess.Popen(["etcd", "--data-dir", directory + "/etcd", "--listen-client-urls", url, "--advertise-client-urls", url,
                               "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "default=" + peer],
                              stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    os.environ["ETCDCTL_API"] = "3"
    try:
        wait_for(lambda: subprocess.run(["etcdctl", "--endpoints", url, "endpoint", "health"], capture_output=True).returncode == 0)
        values = start_times(["etcdctl", "--endpoints", url, "lock", "l{i}", "--", "echo", "x"], False)
        row("  peer: etcdctl lock, start to the command's first line", "", values, "ms")
    finally:
        server.terminate()
        server.wait()


def main():
    directory = scratch()
    if not JSON:
        print(f"{'':<66} {'median':>9}       min .. max            to reach", flush=True)
    try:
        starts(directory)
        etcd(directory)
        row("SIGTERM to the leader until the next on_leading", "5 ms", handovers(directory, lambda c: c.kill(signal.SIGTERM)), "ms")
        row("SIGKILL of elector, guard and worker until the next on_leading", "15 ms", handovers(directory, kill_all), "ms")
        row("SIGKILL of the elector until the next on_leading", "15 ms", handovers(directory, lambda c: c.kill(signal.SIGKILL)), "ms")
        row("SIGKILL of the leading worker until the next on_leading", "15 ms", worker_kills(directory), "ms")
        row("  peer: flock(1), SIGTERM until the next command's first line", "", flock_handovers(directory), "ms", "no lease, no tree")
        idle(directory)
        many(directory)
    finally:
        stop_everyone()
        shutil.rmtree(directory, ignore_errors=True)
    if JSON:
        print(json.dumps(rows, indent=1))


main()

#!/usr/bin/env python3
"""doctor: a fit store is called fit, a broken one unfit, and the lock itself is never touched."""
import atexit, json, os, shutil, subprocess, sys, tempfile
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import LUNARCH, Candidate, done, note, ok, same, scratch, stop_everyone, wait_for
from servers import Etcd, Postgres, Redis, ZooKeeper

TMP = scratch()
DISK = tempfile.mkdtemp(prefix="lunarch-doctor-", dir="/var/tmp")
atexit.register(shutil.rmtree, TMP, True)
atexit.register(shutil.rmtree, DISK, True)
atexit.register(stop_everyone)
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith("LUNARCH_")}


def doctor(*args, **more):
    return subprocess.run([LUNARCH, "doctor", *args], capture_output=True, text=True, timeout=600, stdin=subprocess.DEVNULL,
                          env={**CLEAN, **more})


def check(r, status, *words, what):
    if not ok(r.returncode == status and all(w in r.stdout + r.stderr for w in words), what):
        note(f"status {r.returncode}\n{r.stdout}{r.stderr}")


def test_fit():
    c = Candidate("-e", "sleep(1000)", "--lock", os.path.join(TMP, "x"))
    ok(c.wait("became_leader"), "an election runs on the lock")
    token = json.loads(open(os.path.join(TMP, "x")).read())["token"]
    check(doctor("--lock", os.path.join(TMP, "x")), 0, "one winner in each", "larger in every term", "turned away",
          "not written to", "shortest to trust", "is fit", what="a file in memory is fit, and every proof is named")
    same(json.loads(open(os.path.join(TMP, "x")).read())["token"], token, "the election beside it has not noticed")
    c.process.terminate()
    c.process.wait(60)
    same([n for n in os.listdir(TMP) if "doctor" in n], [], "nothing of the examination stays")
    r = doctor("--json", "--lock", os.path.join(DISK, "x"))
    try:
        j = json.loads(r.stdout)
    except ValueError:
        j = {}
    if not ok(r.returncode == 0 and j.get("fit") is True, "a file on a disk is fit, in JSON"):
        note(r.stdout + r.stderr)
    same(sorted(f["name"] for f in j["findings"] if f["verdict"] == "unfit"), [], "and nothing in it is unfit")
    ok(j["renewals"]["count"] > 0 and j["renewals"]["median_us"] <= j["renewals"]["p99_us"] <= j["renewals"]["max_us"] and
       j["shortest_lease_ms"] >= 500 and j["rounds"] > 0, "with the figures")
    same(os.listdir(DISK), [], "nothing stays there either")


def test_stores():
    """The stores of Debian's packages as they come: fit, nothing stays, and what they are is named."""
    for kind, options, word in ((Etcd, (), "etcd 3."), (Redis, (), "Redis "), (Postgres, ("-c", "fsync=on"), "PostgreSQL "), (ZooKeeper, (), "ZooKeeper 3.")):
        with (kind(*options) if options else kind()) as server:
            r = doctor("--json", "--lock", server.url("doctored"))
            j = json.loads(r.stdout or "{}")
            if not ok(r.returncode == 0 and j.get("fit") and word in j["server"], f"{kind.__name__}: fit, and named"):
                note(r.stdout + r.stderr)
                continue
            same([f["name"] for f in j["findings"]],
                 ["connect", "server", "race", "token", "deposed", "acquire", "renew", "notice", "deleted", "lease"], f"{kind.__name__}: every proof was done")
            server.kill()
            check(doctor("--lock", server.url("doctored")), 69, what=f"{kind.__name__}: a server that is not there is 69")


def test_settings():
    """What no race can show, the server's settings do."""
    with Postgres() as server: # the tests' own way: fsync=off
        check(doctor("--lock", server.url("x")), 1, "UNFIT  server", "fsync", what="a database that does not write to its disk is unfit, races or not")
    with Redis() as first, Redis(replica_of=first) as second:
        wait_for(lambda: "state=online" in first.cli("info", "replication"))
        check(doctor("--lock", first.url("x")), 0, "replicas=N", what="a Redis whose replicas are not waited for: fit, with a note")
        check(doctor("--lock", first.url("x") + "?replicas=1"), 0, "1 replicas", what="one whose replica is waited for")


def test_unfit():
    """A file system whose locks lock nobody out: what some network file systems are."""
    source, library = os.path.join(TMP, "nolock.c"), os.path.join(TMP, "nolock.so")
    with open(source, "w") as f:
        f.write("int flock(int fd, int how) { (void)fd; (void)how; return 0; }\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    for tries in range(20):  # whether two of the writers meet is chance
        r = doctor("--lock", os.path.join(DISK, "broken"), LD_PRELOAD=library, ASAN_OPTIONS="verify_asan_link_order=0")
        if r.returncode == 1:
            break
    check(doctor("--lock", "none:"), 1, "8 of 8 writers", "two leaders", what="a lock that is none is found out")
    check(r, 1, "UNFIT", "NOT fit", what="a file system whose locks do not lock is found out")


def test_refused():
    check(doctor(), 2, "lunarch doctor --lock URL", what="without a lock it says which option is missing")
    check(doctor("--lock", "nosuch://x"), 2, "nosuch", what="an unknown scheme")
    os.mkdir(os.path.join(TMP, "ro"))
    check(doctor("--lock", os.path.join(TMP, "nothere", "x")), 69, "nothere", what="a directory that is not there")


test_fit()
test_stores()
test_settings()
test_unfit()
test_refused()
done()

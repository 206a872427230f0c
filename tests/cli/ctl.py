#!/usr/bin/env -S PYTHONPATH=. python3
"""The control socket and ctl; readiness messages to systemd. In namespaces of its own (apart.py), so that it finds
nobody else's sockets."""

import atexit
import datetime
import http.client
import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import time
from typing import Any

from tests.lib import apart
from tests.lib.candidates import Candidate, stop_everyone
from tests.lib.commands import CLEAN, check, run
from tests.lib.processes import LUNARCH, PATIENCE, children, piped, scratch, socket_name, wait_for
from tests.lib.tap import done, ok, same

apart.enter()
TMP = scratch()
atexit.register(shutil.rmtree, TMP, True)
atexit.register(stop_everyone)
CTL = "/var/lib/lunarch/ctl"
SCRIPT = os.path.join(TMP, "s.lua")
with open(SCRIPT, "w") as f:
    f.write(
        'return { on_leading = function(term) print("leading", os.getenv("LUNARCH_CONTROL"), '
        'os.getenv("NOTIFY_SOCKET"),'
        ' os.getenv("LUNARCH_CONTROL_SOCKET")) end, on_stopped = function(term, why) print("stopped", why) end }'
    )


def ask(path: str, method: str, target: str) -> tuple[int, Any]:
    """Status and answer, as any client of HTTP has them."""
    c = http.client.HTTPConnection("lunarch")
    c.sock = socket.socket(socket.AF_UNIX)
    c.sock.settimeout(PATIENCE)
    c.sock.connect(path)
    c.request(method, target)
    r = c.getresponse()
    return r.status, json.loads(r.read())


def test_nobody() -> None:
    check(run("ctl", "--list"), 1, "no elector", what="--list: nobody is 1")
    check(run("ctl", "status"), 69, "no elector", what="ctl with nobody to ask is 69")
    check(
        run("ctl", "--control", TMP + "/nothing.sock", "status"),
        69,
        TMP + "/nothing.sock",
        what="a socket that is not there is named",
    )


def test_one() -> Any:
    lock = TMP + "/lock"
    c = Candidate("--lock", lock, "--identity", "me", SCRIPT)
    lead = c.event("became_leader")
    path = f"{CTL}/{socket_name(c.pid)}"
    ok(
        stat.S_IMODE(os.stat(CTL).st_mode) == 0o700 and stat.S_IMODE(os.stat(path).st_mode) == 0o600,
        "socket and directory are for their user alone",
    )
    same(
        c.event("print")["message"].split(),
        ["leading", path, "nil", "nil"],
        "the script knows its control socket, and no option variable",
    )
    check(run("ctl", "--list"), 0, f"pid {c.pid}", path, lock, what="--list: pid, socket, lock")
    os.symlink("/nowhere", CTL + "/1.sock")
    r = run("ctl", "--list")
    same((r.returncode, r.stderr), (0, ""), "--list: a socket that is gone when it is asked is nobody's")
    os.unlink(CTL + "/1.sock")
    check(run("ctl", "status"), 0, "leading", f"term {lead['term']}", f"token {lead['token']}", lock, what="status")
    got = json.loads(run("ctl", "--json", "status").stdout)
    ok(
        got["pid"] == c.pid
        and got["elections"][0]["leading"] is True
        and got["elections"][0]["identity"] == "me"
        and 0 < got["elections"][0]["remainingMs"] <= 5000,
        "status --json",
    )
    r = run("ctl", "is-leading")
    ok(r.returncode == 0 and r.stdout == "yes\n", "is-leading is 0 while it leads")
    r = run("ctl", "deadline")
    ok(
        r.returncode == 0 and re.fullmatch(r"\d\.\d{3}\n", r.stdout) and 0 < float(r.stdout) <= 5,
        "deadline is the seconds that are left, and nothing else",
        r.stdout,
    )
    got = json.loads(run("ctl", "--json", "deadline").stdout)
    until = datetime.datetime.fromisoformat(got["leadingUntil"].replace("Z", "+00:00")).timestamp()
    ok(
        0 < got["remainingMs"] <= 5000 and until <= time.time() + 5 and got["leadingUntilUptime"] > 0,
        "deadline --json: the time, too, by two clocks",
        str(got),
    )
    later = time.time() + PATIENCE
    while json.loads(run("ctl", "--json", "deadline").stdout)["leadingUntilUptime"] <= got["leadingUntilUptime"]:
        if time.time() > later:
            break
    ok(time.time() <= later, "a renewal makes it later")
    check(run("ctl", "why"), 0, "became_leader", what="why tells the last decisions")
    check(run("ctl", "status", env={"LUNARCH_CONTROL": path}), 0, "leading", what="LUNARCH_CONTROL says whom to ask")
    check(
        run("ctl", "--election", "other", "is-leading"),
        1,
        "other",
        what="an election that there is not is refused by name",
    )

    second = Candidate("--lock", lock, "--identity", "you", SCRIPT)
    second.wait("new_leader")
    check(run("ctl", "status"), 2, "2 electors", "--list", what="with two electors ctl asks which")
    same(run("ctl", "--list").stdout.count("pid "), 2, "--list: both")
    theirs = f"{CTL}/{socket_name(second.pid)}"
    check(run("ctl", "status", SCRIPT), 2, f"2 electors are running with {SCRIPT}", what="and with two of one script")
    other = os.path.join(TMP, "other.lua")
    with open(other, "w") as f:
        f.write("return { on_leading = function() end }\n")
    third = Candidate("--lock", lock + "-3", "--identity", "third", other)
    third.wait("became_leader")
    r = run("ctl", "--list")
    ok(
        f"pid {third.pid}  {CTL}/{socket_name(third.pid)}\n  run {other}\n" in r.stdout,
        "--list shows the script",
        r.stdout,
    )
    check(run("ctl", "status", other), 0, f"file:{lock}-3", what="a script's name says which elector is asked")
    check(run("ctl", "resign", "1h", other), 0, what="also behind a duration")
    ok(third.wait("stopped_leading", "resigned"), "which is then told to that one")
    asked = ["ctl", "--lock", f"file:{lock}-3", "is-leading"]
    wait_for(lambda: run(*asked).returncode == 1)  # the lease is held until the script has stopped
    check(run(*asked), 1, "no", what="--lock chooses the elector with that lock")
    r = run("ctl", "is-leading", "--control", theirs, env={"LUNARCH_LOCK": lock + "-3"})
    ok(r.returncode == 1 and not r.stderr, "LUNARCH_LOCK, which is for who campaigns, chooses nobody", r.stderr)
    check(
        run("ctl", "--lock", lock + "-4", "why"), 69, f"{lock}-4", "--list", what="a lock that no elector has is said"
    )
    check(run("ctl", "why", os.path.join(TMP, "none.lua")), 69, "none.lua", what="and a script that is not there")
    check(run("ctl", "why", "--lock", lock, other), 2, "not both", what="and a script beside a lock")
    third.stop()
    holds = Candidate("--lock", lock + "-4", "--", "sleep", "1000", command="exec")
    holds.wait("became_leader")
    r = run("ctl", "--list")
    ok(
        f"pid {holds.pid}  {CTL}/{socket_name(holds.pid)}\n  exec sleep\n" in r.stdout,
        "--list shows exec's program",
        r.stdout,
    )
    holds.stop()
    many = os.path.join(TMP, "many.lua")
    with open(many, "w") as f:
        f.write(
            "local list = {} for i = 1, 15 do list[i] = { name = 'e' .. i, on_new_leader = print,"
            f" lock = '{lock}-many' .. i }} end return list\n"
        )
    crowd = Candidate(many)
    ok(
        wait_for(lambda: "and 3 more" in run("ctl", "--list").stdout),
        "--list shows a dozen elections of an elector, and the number of the rest",
    )
    same(
        run("ctl", "status", many).stdout.count("following") + run("ctl", "status", many).stdout.count("idle"),
        15,
        "status shows all",
    )
    crowd.stop()
    r = run("ctl", "--control", theirs, "is-leading")
    ok(r.returncode == 1 and r.stdout == "no\n", "is-leading is 1 for a standby")
    r = run("ctl", "--control", theirs, "deadline")
    same((r.returncode, r.stdout), (1, ""), "deadline of a standby: status 1, and no number")
    check(r, 1, "it does not lead: me does", what="and it says who leads")
    check(run("ctl", "--control", theirs, "status"), 0, "following", "leader me", what="a standby says whom it follows")

    check(run("ctl", "--control", theirs, "pause"), 0, what="pause")
    check(run("ctl", "--control", path, "resign", "1h"), 0, what="resign")
    ok(
        c.wait("print", "resigned") and second.wait("no_leader"),
        "the leader resigns, and nobody takes over from it: the other is paused",
    )
    check(run("ctl", "--control", theirs, "resume"), 0, what="resume")
    ok(second.wait("became_leader"), "and takes over when it is resumed")
    run("ctl", "--control", theirs, "pause")
    check(
        run("ctl", "--control", theirs, "status"), 0, "leading", "paused", what="status shows that a leader is paused"
    )
    run("ctl", "--control", theirs, "resume")
    check(run("ctl", "--control", theirs, "reload"), 0, what="reload")
    ok(
        second.wait("print", "reload") and second.wait("became_leader", count=2),
        "a reload ends the term and begins the next",
    )

    os.kill(second.pid, signal.SIGKILL)
    second.leave()
    ok(os.path.exists(theirs), "a killed elector leaves its socket")
    check(run("ctl", "--list"), 0, f"pid {c.pid}", what="--list shows the living")
    ok(not os.path.exists(theirs) and os.path.exists(path), "and removes what the dead left")
    return c, path


def test_protocol(c: Any, path: str) -> None:
    def refused(method: str, target: str, status: int, word: str, what: str) -> None:
        got, answer = ask(path, method, target)
        ok(got == status and answer["ok"] is False and word in answer["error"], what, str((got, answer)))

    refused("GET", "/", 404, "/status", "without a command it says what a command looks like")
    refused("GET", "/fly", 409, "fly", "an unknown command is refused by name")
    refused("POST", "/resign?seconds=-1", 400, "seconds", "a negative time is refused")
    refused("POST", "/resign?seconds=x", 400, "seconds", "a time that is no number is refused")
    refused("POST", "/resign?seconds=1e300", 400, "seconds", "an absurd time is refused")
    refused("POST", "/resign?second=5", 400, "second", "an unknown parameter is refused by name")
    refused("POST", "/resign?election=other", 409, "other", "an election that there is not is refused by name")
    for order in "resign", "handover", "pause", "resume", "reload":
        refused("GET", "/" + order, 405, "POST", f"{order} is not asked for by GET")
    refused("POST", "/status", 405, "GET", "nor status by POST")
    status, answer = ask(path, "GET", "/is-leading")
    ok(status == 200 and answer == {"ok": True, "leading": False}, "any client of HTTP is answered", str(answer))
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(PATIENCE)
        s.connect(path)
        s.sendall(b"GET /status HTTP/1.1\r\nHost: x\r\n\r\n" * 20)
        f, got = s.makefile("rb"), 0
        while got < 20:
            got += f.readline().startswith(b"HTTP/1.1 200")
        same(got, 20, "twenty requests in one go get twenty answers")
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(PATIENCE)
        s.connect(path)
        s.sendall(b"GET /events HTTP/1.1\r\nHost: x\r\n\r\n")
        lines = s.makefile("r")
        event = next(json.loads(line[6:]) for line in lines if line.startswith("data: "))
        ok(event["lock"] == f"file:{TMP}/lock", "/events tells how things are, and what changes")
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(PATIENCE)
        s.connect(path)
        s.sendall(b'{"command":"status"}\n')
        ok(s.recv(100).startswith(b"HTTP/1.1 400 "), "who speaks the protocol of older versions is told at once")

    crowd = [socket.socket(socket.AF_UNIX) for _ in range(200)]
    for s in crowd:
        s.setblocking(False)
        try:
            s.connect(path)
            s.send(b"GET /status HTTP/1.1\r\nHost: x\r\n\r\n" * 50)  # and never reads
        except OSError:
            pass
    check(
        run("ctl", "--control", path, "status"), 0, "lock", what="two hundred clients that never read keep nobody out"
    )
    c.kill(signal.SIGSTOP)
    try:
        for _ in range(1000):
            crowd.append(socket.socket(socket.AF_UNIX))
            crowd[-1].setblocking(False)
            crowd[-1].connect(path)
    except BlockingIOError:
        pass
    late = subprocess.Popen([LUNARCH, "ctl", "--control", path, "status"], stdout=subprocess.PIPE, text=True, env=CLEAN)
    wait_for(lambda: "unix" in open(f"/proc/{late.pid}/wchan").read() or late.poll() is not None)
    c.kill(signal.SIGCONT)
    same(
        ("lock" in late.communicate()[0], late.returncode),
        (True, 0),
        "an elector that has too many to accept first is waited for",
    )
    for s in crowd:
        s.close()
    c.kill(signal.SIGTERM)
    same(c.leave(), 0, "and the elector stops as ever")
    ok(not os.path.exists(path), "its socket is gone with it")


def test_places() -> None:
    path = TMP + "/own.sock"
    c = Candidate("--lock", TMP + "/lock2", "--control", path, SCRIPT)
    ok(c.wait("became_leader") and stat.S_ISSOCK(os.stat(path).st_mode), "--control says where to listen")
    d = Candidate("--lock", TMP + "/lock3", "--control", path, SCRIPT)
    ok(
        d.wait("became_leader") and d.wait("no_control", path),
        "a socket in use is not taken away; the second elector warns and goes on",
    )
    c.kill(signal.SIGKILL)
    c.leave()
    e = Candidate("--lock", TMP + "/lock4", SCRIPT, env={"LUNARCH_CONTROL_SOCKET": path})
    ok(
        e.wait("became_leader") and not e.all("no_control"),
        "a dead elector's socket is replaced; the variable says where, too",
    )
    check(run("ctl", "--control", path, "is-leading"), 0, what="and answers")
    f = Candidate("--lock", TMP + "/lock5", "--control", TMP + "/" + "x" * 200, SCRIPT)
    ok(
        f.wait("became_leader") and f.wait("no_control", "too long"),
        "a path that is too long is a warning with its reason",
    )
    with open(TMP + "/file", "w") as g:
        g.write("precious")
    h = Candidate("--lock", TMP + "/lock6", "--control", TMP + "/file", SCRIPT)
    ok(
        h.wait("no_control", TMP + "/file") and open(TMP + "/file").read() == "precious",
        "a file in its place is left alone",
    )


def starts_up(path: str) -> socket.socket:
    """A socket as an elector has it that begins to listen in this moment: it has a name, and refuses whoever comes."""
    s = socket.socket(socket.AF_UNIX)
    s.bind(path)
    return s


def test_containers() -> None:
    """Electors in PID namespaces of their own are all process 1, and may share the directory."""
    apart_pids = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--"]
    os.makedirs(CTL, mode=0o700, exist_ok=True)
    other = starts_up(f"{CTL}/1.new")
    inside = [
        Candidate("--lock", f"{TMP}/lock-ns{i}", "--identity", f"ns{i}", SCRIPT, prefix=apart_pids) for i in range(2)
    ]
    outside = Candidate("--lock", TMP + "/lock-ns2", "--identity", "ns2", SCRIPT)
    for c in (*inside, outside):
        c.wait("became_leader")
    ok(os.path.lexists(f"{CTL}/1.new"), "containers: what another process 1 is about to listen at is left alone")
    other.close()
    os.unlink(f"{CTL}/1.new")
    electors = [children(c.pid)[0] for c in inside]
    paths = [f"{CTL}/{socket_name(1, os.stat(f'/proc/{e}/ns/pid').st_ino)}" for e in electors]
    same(
        [c.event("print")["message"].split()[1] for c in inside],
        paths,
        "containers: two electors that are process 1 listen at names of their own",
    )
    same([c.all("no_control") for c in (*inside, outside)], [[], [], []], "... and none of them has no socket")
    listed = run("ctl", "--list").stdout
    ok(
        all(f"pid 1  {p}\n" in listed for p in paths) and f"{CTL}/{socket_name(outside.pid)}\n" in listed,
        "... --list shows them beside the one of the machine itself",
        listed,
    )
    for i in range(3):
        got = json.loads(run("ctl", "--json", "--lock", f"file:{TMP}/lock-ns{i}", "status").stdout)
        same(got["elections"][0]["identity"], f"ns{i}", f"... and --lock finds the right one of them: {i + 1}")
    inside[0].kill(signal.SIGKILL, electors[0])
    inside[0].leave()
    listed = run("ctl", "--list").stdout
    ok(
        paths[0] not in listed and paths[1] in listed and not os.path.exists(paths[0]),
        "... of a killed one --list removes what is left, and nothing else",
        listed,
    )
    inside[1].kill(signal.SIGTERM, electors[1])
    inside[1].leave()
    ok(not os.path.exists(paths[1]), "... one that ends takes its own with it")
    outside.stop()


def listen(address: Any) -> Any:
    s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    s.settimeout(60)
    s.bind(address)
    return s


def states(s: Any, last: Any) -> Any:
    """Messages until one has `last`."""
    got: list[str] = []
    while not got or last not in got[-1]:
        got.append(s.recv(4096).decode())
    return got


def test_systemd() -> None:
    for name, address in ("a path", TMP + "/notify"), ("an abstract name", "\0lunarch-test-%d" % os.getpid()):
        s = listen(address)
        env = {"NOTIFY_SOCKET": address.replace("\0", "@"), "LUNARCH_SHUTDOWN_GRACE": "100s"}
        c = Candidate("--lock", TMP + "/lock-systemd", SCRIPT, env=env)
        got = states(s, "READY=1")
        ok("STATUS=" in got[-1], f"systemd, {name}: READY with a status")
        c.wait("became_leader")
        ok("STATUS=leading" in states(s, "leading")[-1], f"systemd, {name}: the status says that it leads")
        same(c.event("print")["message"].split()[2], "nil", "what the script starts cannot speak to systemd for us")
        c.kill(signal.SIGHUP)
        ok(
            "MONOTONIC_USEC=" in states(s, "RELOADING=1")[-1] and states(s, "READY=1"),
            f"systemd, {name}: RELOADING, then READY",
        )
        c.wait("became_leader", count=2)
        c.kill(signal.SIGTERM)
        said = states(s, "STOPPING=1")[-1]
        ok(
            re.fullmatch(r"STOPPING=1\nSTATUS=draining\nEXTEND_TIMEOUT_USEC=10[1-9]\d{6}", said),
            f"systemd, {name}: STOPPING, and how long that may take, beyond TimeoutStopSec",
            said,
        )
        same(c.leave(), 0, "and exit status 0")
        s.close()
    c = Candidate("--lock", TMP + "/lock-systemd", SCRIPT, env={"NOTIFY_SOCKET": TMP + "/nobody"})
    ok(c.wait("became_leader"), "systemd's socket without a listener disturbs nobody")


def test_systemd_drain() -> None:
    s, gate, path = listen(TMP + "/notify-drain"), TMP + "/gate", TMP + "/drain.lua"
    with open(path, "w") as f:
        f.write(
            f"""local function waits() while exec({{ "test", "-e", "{gate}" }}).code ~= 0 do sleep(0.05) end end
            return {{
              {{ name = "slow", lock = "{TMP}/drains", on_leading = function() end, on_stopping = waits }},
              {{ name = "quick", lock = "{TMP}/ends", on_leading = function() end }},
            }}"""
        )
    c = Candidate(path, env={"NOTIFY_SOCKET": TMP + "/notify-drain", "LUNARCH_SHUTDOWN_GRACE": "300s"})
    ok(states(s, "STATUS=leading 2 of 2"), "systemd: the status says how many elections it leads")
    same(run("ctl", "--election", "slow", "resign", "1h", path).returncode, 0, "one resigns")
    c.wait("draining")
    c.wait("stopping", "resigned")
    same(run("ctl", "--election", "quick", "resign", "1h", path).returncode, 0, "and the other one")
    said = states(s, "STATUS=leading")[-1]
    same(said, "STATUS=leading 1 of 2 elections", "who drains still leads")
    c.wait("stopped_leading", "resigned")
    same(
        [e["election"] for e in c.all("stopped_leading")],
        ["quick"],
        "the log says of the other one that it leads no more, and not of this one",
    )
    open(gate, "w").close()
    ok(c.wait("stopped_leading", "resigned", count=2), "until its on_stopping has returned")
    c.stop()
    s.close()


def test_systemd_exec() -> None:
    """A unit of Type=notify that stands by must count as started, or systemd ends it."""
    s, lock = listen(TMP + "/notify-exec"), TMP + "/lock-systemd-exec"
    first = subprocess.Popen([LUNARCH, "exec", "--lock", lock, "--", "sleep", "1000"], stderr=subprocess.DEVNULL)
    wait_for(lambda: subprocess.run([LUNARCH, "status", "--lock", lock], capture_output=True).returncode == 0)
    env = os.environ | {"NOTIFY_SOCKET": TMP + "/notify-exec", "WATCHDOG_USEC": "200000"}
    second = subprocess.Popen(
        [LUNARCH, "exec", "--lock", lock, "--", "sh", "-c", "echo $NOTIFY_SOCKET$WATCHDOG_USEC.; exec sleep 1000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=env,
        text=True,
    )
    ok(
        "STATUS=standing by" in states(s, "READY=1")[-1],
        "systemd, exec: a standby is READY, and says that it stands by",
    )
    first.send_signal(signal.SIGTERM)
    ok(states(s, "STATUS=leading"), "systemd, exec: the status says that it leads")
    same(piped(second.stdout).readline(), ".\n", "systemd, exec: the command cannot speak to systemd for us")
    ok(states(s, "WATCHDOG=1"), "systemd: the watchdog hears that the loop turns")
    second.send_signal(signal.SIGTERM)
    ok(
        "\nEXTEND_TIMEOUT_USEC=45000000" in states(s, "STOPPING=1")[-1],
        "systemd, exec: STOPPING, and how long that may take",
    )
    first.wait(PATIENCE)
    second.wait(PATIENCE)
    s.close()


def test_other_user() -> None:
    """The unit's user is another than who is on call."""
    home = TMP + "/nobody"
    os.mkdir(home)
    os.chown(home, 65534, 65534)
    os.chmod(TMP, 0o755)
    lower = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"]
    c = Candidate(
        "--state-dir", home, "--lock", home + "/lock", "-e", "return {on_leading = function() end}", prefix=lower
    )
    c.event("became_leader")
    listed = run("ctl", "--list").stdout
    ok(
        f"{home}/ctl/" in listed and "  user nobody\n" in listed,
        "root's --list has another user's elector, with the user",
        listed,
    )
    check(run("ctl", "why"), 0, "leads", what="root's `ctl why` finds it where root has none of its own")
    mine = Candidate("--lock", TMP + "/lock-mine", SCRIPT)
    mine.event("became_leader")
    check(run("ctl", "status"), 0, "lock-mine", what="... and takes its own where it has one")
    check(run("ctl", "--lock", home + "/lock", "status"), 0, home, what="... unless another is chosen")
    mine.stop()
    nobody_else = str(1_000_000_000 + os.getpid())  # whose directory in /tmp no other test's electors use
    r = subprocess.run(
        ["setpriv", "--reuid", nobody_else, "--regid", nobody_else, "--clear-groups", "--", LUNARCH, "ctl", "why"],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env=CLEAN,
    )
    check(r, 69, "no elector of this user is running", what="who is neither is told that none of theirs runs")
    check(run("ctl", "why", "etcd://u:secret@h/x"), 2, "--lock etcd://...", what="a URL where a script is expected")
    r = run("status", "etcd://u:secret@h/x")
    check(r, 2, "`lunarch status --lock etcd://...`", what="... as `status` says")
    ok("secret" not in r.stdout + r.stderr, "... without the URL's password", r.stderr)
    c.stop()


test_nobody()
test_other_user()
test_protocol(*test_one())
test_places()
test_containers()
test_systemd()
test_systemd_drain()
test_systemd_exec()
done()

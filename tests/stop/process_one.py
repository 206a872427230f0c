#!/usr/bin/env -S PYTHONPATH=. python3
"""An elector that may have children of other people: as process 1 of a container, or started by a shell that had some.
Its guard is killed beside a child of the term that shows nobody whose it is; and /proc that is another namespace's."""

import json
import os
import signal
import subprocess
from typing import Any

from tests.lib.candidates import STEADY, Candidate, stop_everyone
from tests.lib.processes import LUNARCH, PATIENCE, alive, children, marked, parent, scratch, wait_for
from tests.lib.tap import at_once, done, note, ok, same, skip

MAPPED = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
APART = ["unshare", *MAPPED, "--pid", "--fork", "--kill-child", "--mount-proc", "--"]
# Its environment is empty, and it has closed the descriptors it inherited.
HIDDEN = """
return {
  on_leading = function(term)
    print("leading")
    spawn(exec, { "env", "-i", "/bin/sh", "-c",
      "for fd in /proc/$$/fd/*; do fd=${fd##*/}; [ $fd -le 2 ] || eval \\"exec $fd>&-\\"; done; echo up >> $1; while :;\
 do /bin/sleep 0.05; done", arg[1], arg[2] })
    while true do sleep(1) end
  end,
  on_stopped = function(term, reason) print("stopped " .. reason) end,
}
"""


def called(name: str) -> list[int]:
    """Pids of the living shells that have this word among their arguments, without their children: a child has the
    arguments of its shell from fork to exec, which is long on a busy machine."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                words = f.read().split(b"\0")
            if words[0].endswith(b"sh") and name.encode() in words and alive(int(pid)):
                found[int(pid)] = parent(pid)
        except OSError:
            pass
    return [pid for pid in found if found[pid] not in found]


def is_called(pid: int, word: bytes) -> bool:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as f:
            return word in f.read().split(b"\0")
    except OSError:  # it has ended meanwhile
        return False


class Scene:
    def __init__(self, name: str, prefix: list[str], inside: bool) -> None:
        self.name, self.dir = name, scratch()
        self.word = "hidden-" + os.path.basename(self.dir)
        self.a = self.candidate("a", prefix=prefix, options=[*STEADY, "--log-level", "debug"])
        self.a.wait("print", "leading")
        self.elector = wait_for(lambda: children(self.a.pid))[0] if inside else self.a.pid
        wait_for(lambda: os.path.exists(self.dir + "/up") and called(self.word))
        self.before = called(self.word)
        ok(len(self.before) == 1, f"{name}: a child of the term with an empty environment acts")
        self.b = self.candidate("b")
        self.b.wait("new_leader", "a leads")

    def candidate(self, name: str, options: Any = STEADY, **kw: Any) -> Any:
        return Candidate(
            "--lock",
            self.dir + "/lock",
            "--identity",
            name,
            "-e",
            HIDDEN,
            "--",
            self.word,
            self.dir + "/up",
            options=options,
            **kw,
        )

    def guard(self) -> Any:
        """The one child of the elector that is called so."""
        for pid in children(self.elector):
            try:
                with open(f"/proc/{pid}/comm") as f:
                    if f.read().strip() == "lunarch-guard":
                        return pid
            except OSError:  # another child, which has ended meanwhile
                pass

    def kill_guard(self) -> None:
        os.kill(self.guard(), signal.SIGKILL)
        led = self.b.wait("print", "leading")
        same(
            [p for p in self.before if alive(p)],
            [],
            f"{self.name}: its guard killed, the child is dead when the next one leads",
        )
        ok(led and self.a.all("guard_lost"), f"{self.name}: who leads as soon as that is so")
        if not led:
            self.a.log()

    def resume(self) -> None:
        """The old leader's turn again."""
        self.b.kill(signal.SIGTERM)
        self.b.leave()
        ok(self.a.wait("print", "leading", count=2), f"{self.name}: and campaigns again, with a new guard")

    def end(self) -> None:
        for c in (self.b, self.a):
            c.kill(signal.SIGKILL, self.elector if c is self.a else None)
            c.leave()


def process_one() -> None:
    s = Scene("process 1", APART, inside=True)
    s.kill_guard()
    s.resume()
    s.end()


def strangers() -> None:
    """As `kubectl exec` does it: one process that is still attached, and one that was left behind by its shell."""
    s = Scene("strangers", APART, inside=True)
    enter = [
        "nsenter",
        "--target",
        str(s.elector),
        *(["--user", "--preserve-credentials"] if MAPPED else []),
        "--pid",
        "--mount",
        "--",
    ]
    attached = subprocess.Popen([*enter, "/bin/sleep", "1000"], stdout=subprocess.DEVNULL)
    subprocess.run(
        [*enter, "/bin/sh", "-c", "exec </dev/null >/dev/null 2>&1; setsid /bin/sleep 1000 & setsid /bin/sleep 0.1 &"],
        check=True,
    )

    def others() -> list[int]:
        return [p for p in children(s.elector) if p != s.guard() and alive(p)]

    left = wait_for(lambda: [p for p in others() if is_called(p, b"1000")] if len(others()) <= 1 else [])
    ok(
        left,
        "strangers: what a shell inside leaves behind becomes the elector's child; that another one ends is no reason "
        "to kill it",
    )
    ok(s.a.wait("stranger"), "strangers: it is known as nobody of the term's")
    s.kill_guard()
    ok(all(alive(p) for p in left), "strangers: it lives on, and holds up nobody")
    ok(attached.poll() is None, "strangers: and so does who is still attached")
    s.resume()
    ok(all(alive(p) for p in left), "strangers: through the next term, too")
    s.end()
    attached.kill()
    attached.wait()


def child_before() -> None:
    """A shell that started something and then became the elector."""
    s = Scene("a child before", ["sh", "-c", '/bin/sleep 1000 & exec "$0" "$@"'], inside=False)
    earlier = [p for p in children(s.elector) if p != s.guard()]
    s.kill_guard()
    ok(earlier and all(alive(p) for p in earlier), "a child before: which lives on")
    s.end()
    for p in earlier:
        os.kill(p, signal.SIGKILL)


def unkillable() -> None:
    """A command's child of another user, and no right to kill him: who cannot end his term does not stay as if he
    campaigned on."""
    if os.geteuid() != 0:
        skip("unkillable", "only root can give up the right to kill another user's processes")
        return
    directory = scratch()
    lock = directory + "/lock"
    a = Candidate(
        "--lock",
        lock,
        "--restart",
        "on-loss",
        "--",
        "sh",
        "-c",
        "setpriv --reuid=65534 --clear-groups sleep 1000 & while :; do sleep 0.1; done",
        command="exec",
        prefix=["setpriv", "--bounding-set=-kill", "--inh-caps=-kill"],
    )

    def started() -> list[int]:
        return marked(f"LUNARCH_TERM_LOCK=file:{lock}")

    def is_nobodys(pid: int) -> bool:
        try:
            return os.stat(f"/proc/{pid}").st_uid == 65534
        except OSError:
            return False

    def robbed() -> list[dict[str, Any]]:
        """A renewal under way, which had looked before, may replace what was written by hand: then once more."""
        with open(lock) as f:
            record = json.load(f)
        record.update(holderIdentity="thief", write="0" * 32, state="leading", pid=0, tree="", bootId="")
        with open(lock + ".new", "w") as f:
            json.dump(record, f)
        os.rename(lock + ".new", lock)
        return wait_for(lambda: a.all("stopped_leading"), 5)

    wait_for(lambda: [p for p in started() if is_nobodys(p)])
    wait_for(robbed)
    same(a.leave(), 76, "unkillable: the program ends, also with --restart on-loss")
    ok(
        a.wait("not_reaped") and a.wait("left_to_expire"),
        "unkillable: and says that something lives, and that the lease is left to expire",
    )
    for p in started():
        os.kill(p, signal.SIGKILL)


def foreign_proc() -> None:
    """A PID namespace in which /proc still shows the outer one."""
    directory = scratch()
    unmounted = ["unshare", *MAPPED, "--pid", "--fork", "--kill-child", "--"]

    def refuses(what: str, *command: str) -> None:
        r = subprocess.run(
            [*unmounted, LUNARCH, *command], capture_output=True, text=True, timeout=PATIENCE, stdin=subprocess.DEVNULL
        )
        ok(
            r.returncode not in (0, 127) and "mount -t proc" in r.stderr,
            f"foreign /proc: {what} does not start, and says what to do",
        )
        note(r.stderr)

    refuses("exec", "exec", "--lock", directory + "/lock", "--", "touch", directory + "/ran")
    refuses(
        "run",
        "run",
        "--once",
        "--lock",
        directory + "/lock",
        "-e",
        f"return {{ on_leading = function() exec {{ 'touch', '{directory}/ran' }} end }}",
    )
    same(os.listdir(directory), [], "foreign /proc: nothing has run, and no lock was taken")


at_once(process_one, strangers, child_before, unkillable, foreign_proc)
stop_everyone()
done()

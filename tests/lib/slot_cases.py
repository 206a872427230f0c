"""Slots on a store: several candidates of which so many lead at once, each with a number; candidates that join, leave
and are killed, and one that was told another number. Real processes; who acts is read from what they write themselves.

Used by tests/cli/slots.py and tests/cluster/kubernetes/slots.py."""

import os
import subprocess

from tests.lib.candidates import Candidate, timing
from tests.lib.processes import LUNARCH, PATIENCE, scratch, wait_for
from tests.lib.stores import Store
from tests.lib.tap import ok, same

TIMES = timing("6s", renew="4s", retry="400ms", stop_grace="500ms", kill="250ms", drift="250ms")
# Each line is one write(2), so those of several processes do not mix. A slot's command says when it begins and ends.
WORK = """echo "+ $LUNARCH_SLOT $1" >> "$0"
trap 'echo "- $LUNARCH_SLOT $1" >> "$0"; exit 0' TERM
while :; do sleep 0.05; done"""
SCRIPT = """
local path, me = ...
local function say(sign, term)
  local f = io.open(path, "a") f:setvbuf("full") f:write(sign, " ", term.slot, " ", me, "\\n") f:close()
end
return {
  slots = 3,
  on_start = function() print("on_start") end,
  on_leading = function(term) say("+", term) print("leads " .. term.slot) end,
  on_stopped = function(term) say("-", term) end,
}
"""


class Field:
    """Candidates for the slots of one lock, and the file in which they say who acts."""

    def __init__(self, store: Store, key: str) -> None:
        self.lock, self.path = store.url(key), os.path.join(scratch(), key)
        self.env = {**os.environ, **store.env}
        self.kill_is_end: set[str] = set()
        self.everyone: dict[str, Candidate] = {}

    def join(self, name: str, slots: int = 3) -> Candidate:
        raise NotImplementedError

    def _begin(self, name: str, *args: str, command: str) -> Candidate:
        words = ("--lock", self.lock, "--identity", name, *args)
        self.everyone[name] = Candidate(*words, command=command, options=TIMES, env=self.env, name=name)
        return self.everyone[name]

    def acts(self) -> dict[int, str]:
        """Who acts in which slot, by the order of what they wrote. Raises where two do in one, or one in two."""
        now: dict[int, str] = {}
        lines = open(self.path).read().splitlines() if os.path.exists(self.path) else []
        for sign, slot, name in (line.split() for line in lines):
            if sign == "-":
                now.pop(int(slot), None)
                continue
            if now.get(int(slot)) in self.kill_is_end:
                del now[int(slot)]
            elif int(slot) in now:
                raise RuntimeError(f"slot {slot}: {name} beside {now[int(slot)]}: {lines}")
            if name in now.values():
                raise RuntimeError(f"{name} in two slots: {lines}")
            now[int(slot)] = name
        return {slot: name for slot, name in now.items() if name not in self.kill_is_end}

    def fills(self, *slots: int) -> bool:
        return wait_for(lambda: set(self.acts()) == set(slots))

    def end(self) -> None:
        for c in self.everyone.values():
            c.ask_to_stop()
        for c in self.everyone.values():
            c.stop()


class Commands(Field):
    def join(self, name: str, slots: int = 3) -> Candidate:
        return self._begin(name, "--slots", str(slots), "--", "sh", "-c", WORK, self.path, name, command="exec")


class Scripts(Field):
    def join(self, name: str, slots: int = 3) -> Candidate:
        script = self.path + ".lua"
        with open(script + ".new", "w") as f:
            f.write(SCRIPT)
        os.rename(script + ".new", script)
        return self._begin(name, script, "--", self.path, name, command="run")


def ask(field: Field, command: str, *args: str) -> "subprocess.CompletedProcess[str]":
    words = [LUNARCH, command, "--lock", field.lock, *args]
    return subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, env=field.env)


def leaves_and_dies(store: Store, kind: str, field: Field) -> None:
    for name in ("ann", "bob", "cid", "dan"):
        field.join(name)
    ok(field.fills(1, 2, 3), f"{kind}: three of four lead, each in a slot of its own")
    gone = field.acts()[2]
    field.everyone.pop(gone).stop()
    ok(field.fills(1, 2, 3), f"{kind}: one leaves, and the fourth has its slot")
    same(len(set(field.acts().values())), 3, f"{kind}: ... each process in one")
    dead = field.acts()[1]
    field.kill_is_end.add(dead)
    field.everyone.pop(dead).kill()
    field.join("eve")
    ok(field.fills(1, 2, 3), f"{kind}: one is killed, and one that joins has its slot")


def other_numbers(store: Store, kind: str, field: Field) -> None:
    told = ask(field, "status", "--slots", "3").stdout
    leaders = [line.split()[1] for line in told.splitlines() if line.startswith("leader")]
    same(sorted(leaders), sorted(field.acts().values()), f"{kind}: status shows who leads in each")
    good = ask(field, "doctor", "--slots", "3").stdout
    ok("nobody leads in a slot behind" in good, f"{kind}: doctor finds that all have one number")
    field.join("fay", slots=4)
    ok(field.fills(1, 2, 3, 4), f"{kind}: one that is told four leads in the fourth")
    found = ask(field, "doctor", "--slots", "3").stdout
    ok("fay has led in slot 4" in found, f"{kind}: ... which doctor tells")


def one_process(store: Store, kind: str, field: Field) -> None:
    """Alone it could have all of them."""
    alone = field.join("gus")
    ok(wait_for(lambda: len(field.acts()) == 1), f"{kind}: one that is alone acts in one slot")
    ok(wait_for(lambda: free(field) == 2), f"{kind}: ... and holds no other lock")
    field.join("hal")
    field.join("ida")
    ok(field.fills(1, 2, 3), f"{kind}: ... so two that join lead beside it")
    if isinstance(field, Scripts):
        same(len(alone.all("print", "on_start")), 1, f"{kind}: on_start has run once, not for each slot")


def free(field: Field) -> int:
    told = ask(field, "status", "--slots", "3", "--json").stdout
    return sum('"leading"' not in line for line in told.splitlines())


def run(store: Store) -> None:
    for kind in (Commands, Scripts):
        title = f"{store.name}, {'exec' if kind is Commands else 'run'}"
        field = kind(store, f"slots{kind.__name__.lower()}")
        leaves_and_dies(store, title, field)
        if kind is Commands:
            other_numbers(store, title, field)
        field.end()
        field = kind(store, f"alone{kind.__name__.lower()}")
        one_process(store, title, field)
        field.end()

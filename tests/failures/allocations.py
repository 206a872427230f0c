#!/usr/bin/env -S PYTHONPATH=. python3
"""Each allocation fails once, in a whole term with a standby beside it: the elector goes on or ends, nothing is led
twice, and no process, file or descriptor is left (tests/lib/nth.py).

With FULL all of our own code's (but those of Lua, which are drawn), and 200 of the libraries', of each lock; else some
of some locks, drawn by SEED. Locks can be named; KIND=own or KIND=library tries those alone, ONLY=ROLE/KIND/N that
one."""

import os
import sys

from tests.lib.nth import LIBRARY, OWN, STORES, Fault, Lab, Places, drawn, try_all
from tests.lib.tap import done, note

FULL = bool(os.environ.get("FULL"))
SEED = int(os.environ.get("SEED", "17"))
ONLY = os.environ.get("ONLY")
KIND = os.environ.get("KIND", "")
ROLES = ("elector", "worker")
DRAWN = int(os.environ.get("DRAWN", "200" if FULL else "12"))
LOCKS = sys.argv[1:] or (list(STORES) if FULL else ["file", "exec", "redis", "etcd", "postgres", "kubernetes"])
FEW = 40  # of so few, each is tried
LUA = "allocate"  # runtime/script/script.c: gives Lua its memory


def all_of(lab: Lab) -> tuple[list[Fault], list[Fault]]:
    """Of our own code; of libraries, Lua with them."""
    file, places = lab.count("alloc"), Places()
    own: list[Fault] = []
    theirs: list[Fault] = []
    for role in ROLES if lab.name in ("file", "exec") else ("elector", "driver"):  # the worker knows no lock
        sites = [places.name(at) for at in file.sites(role, OWN)]
        for n, name in enumerate(sites, 1):
            (theirs if name == LUA else own).append(Fault("alloc", role, n, OWN))
        theirs += [Fault("alloc", role, n + 1, LIBRARY) for n in range(file.counts(role)[LIBRARY])]
    return own, theirs


def chosen(lab: Lab) -> list[Fault]:
    own, theirs = all_of(lab)
    note(f"{lab.name}: {len(own)} allocations of our own in a term, {len(theirs)} of libraries")
    own = own if FULL else drawn(own, SEED, DRAWN)
    theirs = theirs if len(theirs) <= FEW else drawn(theirs, SEED, DRAWN)
    return {"own": own, "library": theirs}.get(KIND, own + theirs)


def main() -> None:
    for name in LOCKS:
        lab = Lab(name)
        if ONLY:
            role, kind, n = ONLY.split("/")
            faults = [Fault("alloc", role, int(n), [OWN, LIBRARY][kind != "own"])]
            lab.count("alloc")
        else:
            faults = chosen(lab)
        try_all(lab, faults, f"{name}, seed {SEED}: what follows when an allocation fails", loud=bool(ONLY))
        lab.store.end()
    done()


main()

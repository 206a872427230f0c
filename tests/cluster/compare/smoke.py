#!/usr/bin/env -S PYTHONPATH=. python3
"""make compare does not rot: two of its failures, on Lunarch and etcdctl lock. That etcdctl lock lets two act at once
shows that the comparison can see it."""


from tests.cluster.compare.compare import Comparison, overlap
from tests.cluster.compare.peers import PEERS
from tests.lib.tap import done, note, ok, same

same(overlap([[1.0, 1.5, 2.0], [2.5, 3.0]]), 0, "who acts after another has ended does not act beside it")
same(overlap([[1.0, 1.5, 2.0, 2.5], [2.0, 2.5, 3.0]]), 0.5, "who begins before another has ended does")
same(overlap([[1.0, 1.5, 20.0, 20.5], [5.0, 5.5, 6.0]]), 0, "who was stopped has not acted in between")
ok(overlap([[1.0, 1.5, 2.0], [1.7]]) > 0, "one act in the middle of another's is enough")

names = ("Lunarch exec", "etcdctl lock")
faults = ["key deleted", "holder killed"]
c = Comparison(1, 8, [p for p in PEERS if p.name in names], faults, quiet=True)
c.everything()
note(c.table())
same([r for r in c.results if "error" in r], [], "every run was made")
ok(all(r["next"] == "b" for r in c.results if "next" in r), "in each of them the second one led after the first")
ours = [r for r in c.results if r["peer"] == "Lunarch exec"]
same([r["overlap_s"] for r in ours], [0.0] * 4, "Lunarch's two never act at once")
theirs = [r for r in c.results if r["peer"] == "etcdctl lock"]
ok(len(theirs) == 4 and all(r["overlap_s"] > 0 for r in theirs), "etcdctl lock's two act at once, and it is seen")
done()

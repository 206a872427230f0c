#!/usr/bin/env -S PYTHONPATH=. python3
"""A name server that never answers, in a network namespace of the test's own: what waits for it holds up nobody
else."""

import os
import shutil
import sys
import tempfile

from tests.lib.candidates import Candidate, stop_everyone, timing
from tests.lib.processes import wait_for
from tests.lib.tap import done, ok

STORES = 12  # with a name each; a lookup that hangs takes a thread for ten seconds and more
room = tempfile.mkdtemp(
    prefix="lunarch-lookups-", dir="/var/tmp"
)  # on a disk: what is in memory is written without a thread
with open(os.path.join(room, "resolv.conf"), "w") as f:
    f.write("nameserver 127.0.0.1\nnameserver 127.0.0.2\n")
with open(os.path.join(room, "script.lua"), "w") as f:
    f.write(
        """local elections = { { name = "file", lock = "%s/lock", on_leading = function(term) print "leads" sleep(1e6)\
 end } }
for i = 1, %d do
  elections[#elections + 1] = { name = "dead" .. i, lock = ("redis://dead%%d.invalid/x"):format(i), on_leading =\
 function() print "never" end }
end
return elections
"""
        % (room, STORES)
    )
# Queries arrive, and nobody reads them.
DEAF = """
import os, socket, subprocess, sys
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
subprocess.run(["mount", "--bind", sys.argv[1], "/etc/resolv.conf"], check=True)
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("0.0.0.0", 53))
s.set_inheritable(True)
os.execv(sys.argv[2], sys.argv[2:])
"""
c = Candidate(
    os.path.join(room, "script.lua"),
    options=timing("15s", renew="10s", retry="1s"),
    prefix=["unshare", "--mount", "--net", sys.executable, "-c", DEAF, os.path.join(room, "resolv.conf")],
)
ok(wait_for(lambda: c.said("leads")), "hanging name lookups: the election on a file leads")
ok(
    wait_for(lambda: len({e.get("lock") for e in c.all("read_failed")}) == STORES),
    "hanging name lookups: each of the others says that its host is not found in time",
)
# By now more lookups hang than there are threads for them; what is renewed for another two leases has not waited for
# any.
with open(os.path.join(room, "lock")) as f:
    before = f.read()
ended = wait_for(lambda: c.all("stopped_leading") or c.all("renew_failed"), 20)
ok(not ended, "hanging name lookups: and it goes on leading", ended)
with open(os.path.join(room, "lock")) as f:
    ok(f.read() != before, "hanging name lookups: renewed all the while")
ok(not c.said("never"), "hanging name lookups: nobody leads where nothing was read")
stop_everyone()
shutil.rmtree(room)
done()

#!/usr/bin/env -S PYTHONPATH=. python3
"""lunarch.mysql with a real MariaDB: values are never SQL and come back with their types, transactions are whole or
not at all, every wait ends in time and blocks nobody else, a connection with an answer under way is not used again, TLS
checks who the server is, and an error says what happened and whether anything was sent."""

import json
import os
import re

from tests.lib.candidates import Candidate, stop_everyone
from tests.lib.pki import Pki
from tests.lib.player import SCRIPTS
from tests.lib.processes import PATIENCE, scratch, wait_for
from tests.lib.proxy import Proxy
from tests.lib.servers import MariaDB, free_port
from tests.lib.tap import done, note, ok, same

where = scratch()
os.makedirs(os.path.join(where, "other"))
pki, other = Pki(where), Pki(os.path.join(where, "other"))
pki.sign("client", "/CN=client")
script = os.path.join(SCRIPTS, "mysql_client.lua")
pki.server()
elsewhere = pki.sign("elsewhere", "/CN=elsewhere", "DNS:elsewhere.example")
with MariaDB() as server, MariaDB(pki=pki) as secure, MariaDB(pki=pki, certificate=elsewhere) as misnamed:
    secure.sql("CREATE USER certified@'%' REQUIRE X509; GRANT ALL ON *.* TO certified@'%'")
    proxy = Proxy(server.port)
    c = Candidate(
        *("--lock", "none:", script, "--"),
        *map(str, (server.port, proxy.port, free_port(), secure.port, misnamed.port, where, server.socket)),
        options=(),
    )

    def running(word: str) -> bool:
        """Waits until the server is busy with a statement that has this word in it."""
        return wait_for(lambda: "SLEEP(600), '" + word in server.sql("SHOW FULL PROCESSLIST"))

    c.wait("print", "now lose")
    proxy.lose("up")
    open(os.path.join(where, "lost"), "w").close()
    c.wait("print", "now heal")
    proxy.heal()
    c.wait("print", "now cut")
    running("cut")
    proxy.cut()
    c.wait("print", "now idle cut")
    server.sql("UPDATE t SET name = 'cut idle' WHERE id = 7")
    c.wait("print", "idle was cut")
    proxy.cut()
    c.wait("print", "now freeze")
    server.pause()
    c.wait("print", "now thaw")
    server.resume()
    c.wait("print", "now kill")
    running("kill")
    server.kill()
    c.wait("print", "now start")
    server.start()
    c.wait("print", "now cut transaction")
    running("tx")
    proxy.cut()
    same(c.leave(3 * PATIENCE), 0, "lunarch.mysql does what it says to the end")
said = [e["message"] for e in c.all("print")]
good = True


def says(line: str, what: str, *words: str) -> None:
    """That a line begins so, and has these words in it. A word of the line may be two: this|that."""
    global good
    line = line.replace(" ", "\t").replace("_", " ")
    begins = re.compile(
        "\t".join(f"(?:{word})" if "|" in word else re.escape(word) for word in line.split("\t")) + "\t"
    )
    found = any(begins.match(m + "\t") and all(w in m for w in words) for m in said)
    like = [m for m in said if m.split("\t")[0] == line.split("\t")[0]]
    good &= ok(found, what, f"wanted {line!r} {words}, said {like}")


says("insert 1", "a row is inserted")
says(
    "odd true true true 2026-11-23_01:02:03.500", "a value comes back as it was, whatever SQL it looks like; bytes, too"
)
says("other_mode true true ' 7", "also where backslashes and quotes mean something else")
says("marks ? ?''? x it's_? 3 0.5000", "a question mark in a literal, a name or a comment is none")
says('types true true 1 0 {"a":1} 18446744073709551615 true 1.50 nil true 10 true 2026', "values have their types")
says("null nil 1", "nil is NULL, and NULL nil")
says("changed 1 0 0", "a statement without rows says how many it has changed")
says("none 0 0", "no rows are an empty list")
says("number nil 1", "the number that the server gave to a row is known")
says("many 1000 1000 1000 100", "many rows come in their order")
says("large 2000000", "large values come whole")
says("procedure 1 3", "a procedure's first result counts, and the rest is taken from the connection")
says("one_statement 1064 1", "two statements are none")
says("syntax nil failed false 1064 42000", "what the server refuses is an error with its words and its codes", "SELEC")
says("unique nil failed false 1062 23000", "so is a key that is there")
says("database nil failed true 1049", "so is a database that is not there", "nowhere")
says("password nil denied true 1045 28000", "a wrong password is denied")
says("nobody nil denied true 1045 28000", "so is an unknown user")
says("port nil unreachable true", "a server that is not there is named", "Can't connect")
says("host nil unreachable true", "so is a host that is not there", "no-such-host.invalid")
says("socket nil unreachable true", "so is a socket that is not there", "socket.none")
says("begin nil failed true 1064", "what fails of the first statements fails the opening")
says("unix 1", "a unix socket does")
says("name 1", "a name is looked up")
says("begun READ-COMMITTED 5 utf8mb4", "the first statements are done")
says("closed nil closed true", "a database that was closed stays closed")
says("commit 1 more", "a transaction returns what its function does")
says("committed one true two", "and is done")
says("rollback nil why", "a function that returns nil, err ends it")
says("rolled_back two", "and nothing of it is done")
says("raise false oops", "so does one that raises")
says("raised two", "and nothing of it is done, either")
says("behind_it nil failed true 1064", "behind a statement that failed none is sent")
says("failed_statement nil failed true 1064", "and the transaction fails, whatever its function returns")
says("broken failed two", "nothing of it is done")
says("after_it false tx:query:_the_transaction_has_ended", "a transaction that has ended takes nothing more")
says("deadlock nil conflict true 1213 40001", "of two that wait for each other one fails")
says("one_of_two true 1 2", "the other is done, whole")
says("lock_wait nil conflict false 1205", "a row that another transaction holds is a conflict in the end")
says("fenced 1 1", "a fenced write is done for a larger token")
says(
    "older nil fenced true",
    "and refused to a smaller one, also where tokens are larger than what a double counts",
    "newer leader",
)
says("kept new 1", "nothing of it is done, and fences of different work are apart")
says("both 1", "a function is one transaction")
says("refused_whole nil fenced true", "which is not begun for a smaller token")
ok("never" not in said, "nor is the function called")
says("order 1 1 slow,_newest", "a newer leader's write waits for what an older one has under way")
says("fence_again 1", "a fence that was deleted is made again")
says("ticks true", "other tasks go on meanwhile")
says("slow nil timeout false", "a statement that takes too long is given up")
says("in_time true true", "in time")
says("another_connection true", "its connection is not used again")
says("in_turn 1 2 3 4 5", "tasks take turns")
says("no_turn nil timeout true", "one that waits too long for its turn has sent nothing")
says("holder 0", "and disturbs nobody")
says("after_cancel 5", "a cancelled task takes its statement with it")
says("cancelled_transaction two", "and its transaction")
says("after_many 6", "also in the middle of a long answer")
# At the end of the time libmariadb may be the first to notice.
says("lost_bytes nil timeout|unreachable true", "a network that loses everything is a log-in that is not done in time")
says("healed", "it goes on when that ends")
says("cut nil lost false 2013", "a connection that breaks with a statement under way is lost")
says("idle 8", "one that broke before is made again")
says("frozen nil timeout false", "a server that stands still answers nothing")
says("frozen_log-in nil timeout|unreachable true", "and lets nobody in")
says("thawed", "it goes on when that ends, too")
says("killed nil lost false 2013", "a server that dies in the middle of a statement may have done it")
says("gone nil unreachable true", "one that is dead has not")
says("started", "a new one is found")
says("tx_cut nil lost false 2013", "a transaction whose connection breaks fails")
says("half nil cut_idle", "and nothing of it is done")
says("connection_killed nil lost false 1927", "a connection that the server ends is lost")
says("after_kill 9", "and made again")
for name in ("tls", "tls name", "tls unverified", "tls client"):
    line = name.replace(" ", "_")
    says(f"{line} true 1000000", f"{name}: statements go through TLS")
    says(f"{line}_slow nil timeout false", f"{name}: one that takes too long is given up")
    says(f"{line}_again 1", f"{name}: and the next connection is as good as the first")
says("tls_wrong_ca nil unreachable true 2026", "another authority's server is not spoken to", "certificate")
says("tls_system_ca nil unreachable true 2026", "without ca = the system's are asked", "certificate")
says("tls_no_file nil missing", "a file that is not there is named", "ca.crt.none")
says("tls_wrong_name nil unreachable true 2026", "a certificate for another name is refused", "certificate")
says("tls_no_tls nil unreachable true 2026", "a server without TLS gets no password", "SSL is required")
says("tls_no_client nil denied true 1045", "a server that wants a certificate gets none", "certified")
same(len([m for m in said if m.startswith("misuse")]), 15, "misuse raises")
for word in (
    "one of host = and unix =",
    "did you mean 'timeout'",
    "a port from 1 to 65535",
    "unknown option 'cafile'",
    "not for unix =",
    "found nil",
    "0 values for 1",
    "2 values for 1",
    "found a function",
    "expected the term first",
    "expected a function, found a number",
    "numbers cannot be",
    "did you mean 'query'",
):
    ok(any(m.startswith("misuse") and word in m for m in said), f"with the reason: {word}")
says("still 1", "and leaves the connection as it is")
ok("moon light" not in json.dumps(c.events), "the password is in no log")
if not good:
    note("\n".join(said))
    note("\n".join(e["message"] for e in c.all("hook_failed") + c.all("stopped_leading")))
stop_everyone()
done()

#!/usr/bin/env -S PYTHONPATH=. python3
"""The recipes of docs/safety.md are run as they stand there, on real servers: a write with a larger token is done, one
with the same token again, and one with a smaller token changes nothing. What is a whole example there has a test of its
own (tests/examples). And a receiver ends what a leader has asked for by the time that `ctl deadline` says."""

import http.client
import http.server
import os
import re
import shutil
import subprocess
import threading
from typing import Any

from tests.lib.commands import CLEAN
from tests.lib.processes import LUNARCH, PATIENCE, ROOT, scratch, wait_for
from tests.lib.servers import MariaDB, Postgres, Redis
from tests.lib.tap import ok, run, same

with open(os.path.join(ROOT, "docs", "safety.md"), encoding="utf-8") as _f:
    PAGE = _f.read()
# Larger than 2^53, and one digit more: neither a number with a fraction nor the order of texts would do.
FIRST, SECOND = 9999999999999998, 10000000000000001


def recipe(language: str, begins: str) -> str:
    """The block of that language whose first line begins so."""
    found = [b for b in re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.M | re.S) if b.startswith(begins)]
    if len(found) != 1:
        raise RuntimeError(f"docs/safety.md has {len(found)} blocks of {language} that begin with {begins!r}")
    return found[0]


def a_row(server: Any, changed: str) -> None:
    """changed: what must follow the UPDATE to learn how many rows it has changed."""
    name = type(server).__name__
    server.sql(recipe("sql", "-- once"))

    def write(token: int, amount: int) -> str:
        text = recipe("sql", "-- with each write").partition("\n")[2]  # the rest is one statement
        text = text.replace("TOKEN", str(token)).replace("= 17", f"= {amount}").strip().removesuffix(";")
        return str(server.sql(text + changed))

    same(write(FIRST, 17), "1", f"{name}: a first token writes")
    same(write(SECOND, 17), "1", f"{name}: a larger one, too")
    same(write(SECOND, 17), "1", f"{name}: and again, though nothing but the count of writes is new")
    ok(write(FIRST, 18) in ("0", ""), f"{name}: a smaller one changes no row")
    same(server.sql("SELECT amount FROM stock"), "17", f"{name}: and the newer leader's value stays")


def postgres() -> None:
    """PostgreSQL: the row that is written has the token."""
    with Postgres() as server:
        a_row(server, " RETURNING 1;")


def mysql() -> None:
    """MariaDB: the same statements."""
    with MariaDB() as server:
        a_row(server, "; SELECT ROW_COUNT();")


def redis() -> None:
    """Redis: a script does both in one step."""
    script = recipe("lua", "-- EVAL")
    with Redis() as server:

        def write(token: int, value: str) -> str:
            return str(server.cli("EVAL", script, "2", "{stock}:fence", "{stock}", str(token), value)).strip()

        same(
            [write(FIRST, "1"), write(SECOND, "2"), write(SECOND, "3")],
            ["OK"] * 3,
            "Redis: larger and equal ones write",
        )
        ok("FENCED" in write(FIRST, "4"), "Redis: a smaller one is refused")
        same(server.cli("GET", "{stock}").strip(), "3", "Redis: and the newer leader's value stays")


def over_http() -> None:
    """HTTP: the receiver keeps the largest token."""
    names: dict[str, Any] = {}
    exec(recipe("python", "# keep `largest`"), names)  # the page's own text
    receiver = names["Receiver"]
    receiver.log_message = lambda *_: None
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), receiver)
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def put(token: int, body: str) -> int:
        c = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=60)
        c.request("PUT", "/", body, {"Fencing-Token": str(token)})
        return c.getresponse().status

    same([put(FIRST, "1"), put(SECOND, "2"), put(SECOND, "3")], [204] * 3, "HTTP: larger and equal ones write")
    same(put(FIRST, "4"), 409, "HTTP: a smaller one is refused")
    same(receiver.data, b"3", "HTTP: and the newer leader's value stays")
    server.shutdown()


def log() -> None:
    """A log: whoever reads drops what an old leader has added late."""
    names: dict[str, Any] = {}
    exec(recipe("python", "# (token, value)"), names)
    records = [(FIRST, "a"), (SECOND, "b"), (FIRST, "late"), (SECOND, "c")]
    same(list(names["accepted"](records)), ["a", "b", "c"], "a log: what comes late from an old leader is dropped")


def until_when() -> None:
    """docs/operations.md, Until when: the query of a leader that died ends before another leads, in the receiver."""
    with open(os.path.join(ROOT, "docs", "operations.md"), encoding="utf-8") as f:
        line = next(x for x in f if x.startswith("left=") and "psql" in x).strip()
    ok("SET statement_timeout" in line, "(the page has the line)")
    with Postgres() as server:
        server.sql("CREATE FUNCTION one_step() RETURNS void LANGUAGE sql AS 'SELECT pg_sleep(3600)'")
        running = (
            "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query = 'SELECT one_step()' AND pid <>"
            " pg_backend_pid()"
        )
        psql = {"PGHOST": server.host, "PGPORT": str(server.port), "PGUSER": server.superuser, "PGDATABASE": "postgres"}
        for bounded, left in (False, "1"), (True, "0"):
            step = line if bounded else 'psql -c "SELECT one_step()"'
            home = scratch()
            lock = ("--lock", server.url(f"until-{bounded}"), "--lease-duration", "6s")
            env = {**CLEAN, **psql, "PATH": f"{os.path.dirname(LUNARCH)}:{os.environ['PATH']}"}

            def candidate(which: str, command: str) -> "subprocess.Popen[str]":
                # Directories of their own, as on two machines: neither can prove that the other is dead.
                own = ("--state-dir", os.path.join(home, which))
                return subprocess.Popen(
                    [LUNARCH, "exec", *own, *lock, "--identity", which, "-c", command],
                    env=env,
                    stdout=subprocess.PIPE,
                    text=True,
                )

            first = candidate("first", step + "; sleep 3600")
            wait_for(lambda: server.sql(running) == "1")
            first.kill()
            second = candidate("second", f'psql -At -c "{running}"')
            first.wait()
            out, _ = second.communicate(timeout=PATIENCE)
            what = "with the deadline as its timeout, it is over" if bounded else "without a timeout it goes on"
            same((second.returncode, out.strip()), (0, left), f"PostgreSQL, when another leads after a death: {what}")
            server.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query = 'SELECT one_step()'")
            shutil.rmtree(home, ignore_errors=True)


run([until_when, postgres, mysql, redis, over_http, log])

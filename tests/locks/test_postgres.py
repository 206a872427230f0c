#!/usr/bin/env -S PYTHONPATH=. python3
"""The PostgreSQL lock passes the conformance suite against Debian's server, and its own cases."""

import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
from typing import Any

from tests.lib.field import build
from tests.lib.lock_cases import BASIC, NETWORK, SERVER, full, read_only, run
from tests.lib.lock_driver import NOMINATION, WITHIN, Driver, record, told, tried
from tests.lib.pki import Pki
from tests.lib.processes import LUNARCH, PATIENCE, ROOT, piped, scratch, wait_for
from tests.lib.servers import Bouncer, Postgres, Redis, Server, free_port
from tests.lib.stores import FullPostgres, FullPostgresLog, Postgres as Store
from tests.lib.tap import at_once, done, note, ok, same, skip

SHORT = 4000  # ms; for operations that are to fail soon


def term(holder: str = "a", lease_ms: int = 1000, **fields: Any) -> Any:
    """What a write that begins a term asks for: no token yet."""
    return record(holder, token=0, leaseDurationMs=lease_ms, **fields)


def opened(url: str, lock: str = "a", **env: Any) -> Any:
    d = Driver(env)
    o = d.open(url, lock)
    if not o["ok"]:
        raise RuntimeError(o["err"])
    return d


def behind(server: Any, seconds: float) -> None:
    """Its clock, from its next start."""
    shim, clock = os.path.join(server.dir, "shim.so"), os.path.join(server.dir, "clock")
    shutil.copy(build("shim.c", "-shared", "-fPIC"), shim)
    with open(clock, "wb") as f:
        f.write(struct.pack("q", -seconds * 10**9))
    server.environment = {"LD_PRELOAD": shim, "SHIM_CLOCK": clock}


def docs(start: Any) -> Any:
    """The line of docs/stores/postgres.md that begins so, as it is to be typed."""
    with open(os.path.join(ROOT, "docs", "stores", "postgres.md")) as f:
        return next(line.strip() for line in f if line.strip().startswith(start))


class Psql:
    """A session that stays open."""

    def __init__(self, server: Any) -> None:
        self.process = subprocess.Popen(
            [
                Postgres.binary("psql"),
                "-X",
                "-q",
                "-A",
                "-t",
                "-h",
                "127.0.0.1",
                "-p",
                str(server.port),
                "-U",
                server.superuser,
                "-d",
                "postgres",
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            stderr=subprocess.STDOUT,
        )

    def say(self, text: str) -> Any:
        """Everything it answers until it is done."""
        piped(self.process.stdin).write(text + "\n\\echo done\n")
        piped(self.process.stdin).flush()
        lines = []
        for line in piped(self.process.stdout):
            if line.strip() == "done":
                break
            lines.append(line.strip())
        return "\n".join(lines)

    def end(self) -> None:
        piped(self.process.stdin).close()
        self.process.wait()


def login() -> None:
    with Postgres(auth="scram-sha-256") as server:
        server.sql("CREATE ROLE luna LOGIN PASSWORD 'p a:s/s@w#o'")
        at = f"127.0.0.1:{server.port}"
        secret = "p%20a%3As%2Fs%40w%23o"
        for what, url, said in (
            ("no password", f"postgres://luna@{at}/postgres#x", "no password supplied"),
            ("a wrong one", f"postgres://luna:wr0ng@{at}/postgres#x", "password authentication failed"),
            ("a database that is not there", f"postgres://luna:{secret}@{at}/nowhere#x", '"nowhere" does not exist'),
        ):
            d = opened(url)
            r, w = d.read(within=SHORT), d.write(term(), "", within=SHORT)
            ok(
                told(r, said, at.split(":")[1], outcome=("refused",)) and told(w, said, outcome=("refused",)),
                f"login: {what} is told",
            )
            ok(
                "wr0ng" not in str(r) and "p a:s" not in str(r) and "%20a" not in str(r),
                f"login: {what}: and no secret",
            )
            d.end()
        ways: list[tuple[str, str, dict[str, str]]] = [
            ("in the URL", f"postgres://luna:{secret}@{at}/postgres#x", {}),
            ("in the environment", f"postgres://luna@{at}/postgres#x", {"LUNARCH_LOCK_PASSWORD": "p a:s/s@w#o"}),
            ("in libpq's password file", f"postgres://luna@{at}/postgres?passfile={server.dir}/pass#x", {}),
        ]
        for where, url, env in ways:
            with open(os.path.join(server.dir, "pass"), "w", opener=lambda p, f: os.open(p, f, 0o600)) as f:
                f.write("*:*:*:luna:p a\\:s/s@w#o\n")
            d = opened(url, **env)
            same(d.read()["outcome"], "absent", f"login: with the password {where}")
            d.end()
        rights(server, f"postgres://luna:{secret}@{at}/postgres#x")
        places(server)


def rights(server: Any, url: str) -> None:
    """Who may not make the table is told what to do, and what docs/stores/postgres.md says is enough."""
    d = opened(url)
    w = d.write(term(), "")
    ok(
        told(w, "permission denied", "docs/stores/postgres.md", outcome=("refused",)),
        "rights: who may not make the table is told how it is made",
    )
    server.sql(docs("CREATE TABLE lunarch_locks"))
    server.sql(docs("INSERT INTO lunarch_locks"))
    r = d.read()
    ok(told(r, "permission denied", outcome=("refused",)), "rights: who may not read it is told")
    server.sql(docs("GRANT SELECT").replace("elector", "luna"))
    same(d.do("watch")["watching"], True, "rights: with those of docs/stores/postgres.md a lock can be watched")
    w = tried(lambda: d.write(term(), ""))
    same((w["outcome"], d.read()["outcome"]), ("ok", "ok"), "rights: written, and read")
    same(d.write(record("a", token=w["token"]), w["version"])["outcome"], "ok", "rights: and renewed")
    d.end()


def places(server: Any) -> None:
    """libpq's ways to say where: a directory of sockets, a service, several hosts of which one is dead."""
    with open(os.path.join(server.dir, "services"), "w") as f:
        f.write(f"[moon]\nhost=127.0.0.1\nport={server.port}\nuser={server.superuser}\ndbname=postgres\n")
    env = {"PGSERVICEFILE": os.path.join(server.dir, "services")}
    socket = server.dir.replace("/", "%2F")
    ways: list[tuple[str, str, dict[str, str]]] = [
        ("a directory of sockets", f"postgres://{server.superuser}@{socket}:{server.port}/postgres#p", {}),
        ("a service", "postgresql://?service=moon#p", env),
        (
            "the environment alone",
            "postgres://#p",
            {"PGHOST": "localhost", "PGPORT": str(server.port), "PGUSER": server.superuser, "PGDATABASE": "postgres"},
        ),
        (
            "two hosts, of which one is dead",
            f"postgres://{server.superuser}@127.0.0.1:{free_port()},localhost:{server.port}/postgres#p",
            {},
        ),
    ]
    for what, url, more in ways:
        d = opened(url, **more)
        r = tried(lambda: d.read(within=SHORT))
        w = d.write(record("a"), r["version"])
        same(w["outcome"], "ok", f"places: {what}")
        d.end()
    d = Driver(env)
    o = d.open("postgres://?service=sun#p")
    ok(not o["ok"] and "definition of service" in o["err"], "places: a service that is not there is told at once")
    d.end()


class TlsPostgres(Postgres):
    """A certificate for 127.0.0.1 and localhost, and the authority that signed it."""

    def prepare(self) -> None:
        super().prepare()
        self.pki = Pki(self.dir)
        certificate, key = self.pki.server()
        self.options += ["-c", "ssl=on", "-c", f"ssl_cert_file={certificate}", "-c", f"ssl_key_file={key}"]


def tls() -> None:
    where = scratch()
    with TlsPostgres() as server, Postgres() as plain:
        at, right = (
            f"postgres://{server.superuser}@127.0.0.1:{server.port}/postgres?sslmode=",
            f"sslrootcert={server.pki.ca}",
        )
        named = at.replace("127.0.0.1", "wrong.test")
        for what, url, said in (
            ("another authority", f"{at}verify-full&sslrootcert={Pki(where).ca}#x", "certificate verify failed"),
            ("another name than the certificate's", f"{named}verify-full&{right}&hostaddr=127.0.0.1#x", "wrong.test"),
            ("no authority's file", f"{at}verify-full&sslrootcert={where}/none.pem#x", "none.pem"),
            ("a server that has none", f"{plain.url('x').replace('#', '?sslmode=require#')}", "does not support SSL"),
        ):
            d = opened(url)
            ok(
                told(d.read(), said, outcome=("refused",)) and told(d.write(term(), ""), said, outcome=("refused",)),
                f"TLS: {what} is told, as what will hardly mend itself",
            )
            d.end()
        d = opened(f"{at}verify-full&{right}#x")
        same(
            (d.read()["outcome"], d.write(term(), "")["outcome"]),
            ("absent", "ok"),
            "TLS: with the right one the lock is had, which nobody has taken",
        )
        d.end()
    shutil.rmtree(where)


def web(answer: Any) -> Any:
    """A port at which something says this to whoever comes, whatever it wants."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve(one: Any) -> None:
        try:
            one.sendall(answer)
            while one.recv(65536):
                pass
        except OSError:
            pass
        one.close()

    def accept() -> None:
        while True:
            threading.Thread(target=serve, args=(listening.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return listening.getsockname()[1]


def strangers() -> None:
    with Redis() as other:
        speaking = web(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        for what, port, more, said, within in (
            ("another kind of server", other.port, "?sslmode=disable", "connect", SHORT),
            ("a web server", speaking, "?sslmode=disable", "received H", WITHIN),
            ("a web server that is asked for TLS", speaking, "", "invalid response", WITHIN),
            ("a server that waits for more", web(b""), "", "connect", SHORT),
        ):
            d = opened(f"postgres://u@127.0.0.1:{port}/d{more}#x")
            r, w = d.read(within=within), d.write(term(), "", within=within)
            ok(
                told(r, said, str(port), outcome=("failed",)) and told(w, said, outcome=("failed",)),
                f"strangers: {what} is told",
            )
            same(d.end(), 0, f"strangers: {what}: and the lock closes in peace")
    for url, said in (
        (f"postgres://u@127.0.0.1:{free_port()}/d#x", "refused"),
        ("postgres://u@no-such-host.invalid/d#x", "no-such-host.invalid"),
    ):
        d = opened(url)
        ok(told(d.read(), said, outcome=("failed",)), f"strangers: {said}")
        d.end()
    for url, said in (
        ("postgres://u:secret@h/d", "behind a #"),
        ("postgres://u:secret@h/d#", "behind a #"),
        ("postgres:u:secret@h#x", "libpq URI"),
        ("postgres://u:secret@h/d?nonsense=1#x", "invalid URI query parameter"),
        ("postgres://u:sec%zzret@h/d#x", "percent"),
        ("postgres://h/d?password=secret&nonsense=1#x", "nonsense"),
        ("postgres://h/d?user=u&password=secret", "behind a #"),
        ("postgres://h/d?sslpassword=secret", "behind a #"),
    ):
        d = Driver()
        o = d.open(url)
        ok(
            not o["ok"] and said in o["err"] and "sec" not in o["err"].replace("second", ""),
            f"strangers: {url.replace('secret', '...')} is refused: {said}",
        )
        if o["ok"] or said not in o["err"]:
            note(o)
        d.end()


def tables() -> None:
    with Postgres() as server:
        at = f"postgres://{server.superuser}@127.0.0.1:{server.port}/postgres"
        server.sql('CREATE SCHEMA "my ""s"')
        for name, shown in (("q%22uo'te", "q\"uo'te"), ("my%20%22s.t", '"my ""s".t')):
            d = opened(f"{at}?application_name=x&table={name}#k")
            same(d.write(term(), "")["outcome"], "ok", f"tables: {shown} can be the table's name")
            d.end()
        same(server.sql("""SELECT count(*) FROM "q""uo'te" """), "2", "tables: it has the lock, and the timeline's row")
        same(server.sql('SELECT count(*) FROM "my ""s".t'), "2", "tables: in a schema too")
        server.sql("CREATE TABLE theirs (name text PRIMARY KEY, price int); INSERT INTO theirs VALUES ('k', 7)")
        d = opened(f"{at}?table=theirs#k")
        ok(
            told(d.read(), "another program's") and told(d.write(term(), ""), "another program's"),
            "tables: another program's is not touched",
        )
        same(server.sql("SELECT * FROM theirs"), "k|7", "tables: it is what it was")
        d.end()
        many = [opened(f"{at}?table=fresh#n{i}") for i in range(8)]
        ops = [x.start_write(term(), "") for x in many]
        for x, o in zip(many, ops):
            if x.wait(o)["outcome"] != "ok":
                note(x.wait(o))
        same(
            {x.wait(o)["outcome"] for x, o in zip(many, ops)},
            {"ok"},
            "tables: eight processes that need the same new one make it together",
        )
        for x in many:
            x.end()
        server.sql(
            "CREATE FUNCTION nay() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not at the end'; END "
            "$$; "
            "CREATE CONSTRAINT TRIGGER late AFTER UPDATE ON fresh DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE "
            "FUNCTION nay()"
        )
        d = opened(f"{at}?table=fresh#n0")
        before = d.read()
        w = d.write(record("x"), before["version"])
        ok(w["outcome"] in DOUBT and "not at the end" in w["err"]["text"], "tables: a commit that fails is no success")
        same(d.read()["version"], before["version"], "tables: and has changed nothing")
        d.end()


DOUBT = ("failed", "unknown")


def tokens() -> None:
    with Postgres() as server:
        d, e = opened(server.url("t")), opened(server.url("t"))
        got = []

        def next_term(version: Any, what: str, **more: Any) -> Any:
            w = tried(lambda: d.write(term(), version, **more))
            got.append(w["token"])
            ok(
                w["outcome"] == "ok" and (len(got) == 1 or got[-1] > got[-2]),
                f"tokens: a new term's is larger than all before, {what}",
            )
            return w

        w = next_term("", "the first")
        r = e.read()
        same(r["token"], w["token"], "tokens: who reads a term's first record is told its token")
        for _ in range(3):
            w = next_term(w["version"], "term by term")
        same(d.write(record("a", token=w["token"]), w["version"])["token"], 0, "tokens: a renewal makes none")
        server.sql("DELETE FROM lunarch_locks WHERE name = 't'")
        w = next_term("", "after the record was deleted")
        seen = got[-1] + 3600 * 10**6
        w = next_term(w["version"], "and than what was seen under a clock that was ahead", floor=seen)
        ok(got[-1] > seen, "tokens: which counts")
        server.sql("DELETE FROM lunarch_locks WHERE name = 't'")
        w = next_term("", "nor does a deletion bring it back", floor=got[-1])
        server.sql("ALTER TABLE lunarch_locks RENAME TO gone")
        gone = [d.read(), d.write(record("a"), w["version"]), d.write(term(), "")]
        ok(
            all(told(x, "is not there any more", outcome=("failed",)) for x in gone),
            "tokens: a table that was there and is not is no absent record, and is not made anew",
        )
        server.sql("ALTER TABLE gone RENAME TO lunarch_locks")
        same(d.read()["version"], w["version"], "tokens: it is used again when it is back")
        server.sql("DROP TABLE lunarch_locks")
        d.end(), e.end()
        d, e = opened(server.url("t")), opened(server.url("t"))
        w = next_term("", "after the table was dropped", floor=got[-1])
        server.kill()
        server.start()
        wait_for(lambda: d.read(within=SHORT)["outcome"] == "ok")
        w = next_term(w["version"], "after the server was killed")
        server.sql(f"UPDATE lunarch_locks SET token = {2 ** 60} WHERE name = 't'")
        w = next_term(d.read()["version"], "even if somebody made it huge")
        ok(got[-1] > 2**60, "tokens: which counts")
        d.end(), e.end()


def inherited() -> None:
    """What another client leaves on a session of the pooler moves no lock to another table, and stops none."""
    with Postgres() as server, Bouncer(server, sessions=1) as bouncer:  # or it is left on one that nobody uses
        server.sql("CREATE SCHEMA other; CREATE ROLE stranger; CREATE FUNCTION other.md5(text) RETURNS text "
                   "LANGUAGE sql AS $$ SELECT 'x' $$")  # fmt: skip
        d = opened(bouncer.url("p"))
        w = d.write(term(), "")
        for left in (
            "search_path = other",
            "search_path = other, pg_catalog, public",
            "role = stranger",
            "default_transaction_read_only = on",
            "default_transaction_isolation = serializable",
            "synchronous_commit = off",
        ):
            server.sql(f"SET {left}", port=bouncer.port)
            e = opened(bouncer.url("p"))
            r = e.read()
            same((r["outcome"], r.get("version")), ("ok", w["version"]), f"inherited: {left}: the record is seen")
            same(e.write(term("e"), "")["outcome"], "conflict", f"inherited: {left}: nobody else begins a term")
            w = d.write(record("a", token=1), w["version"], durable=False)
            same(w["outcome"], "ok", f"inherited: {left}: the leader renews")
            name = left.split()[0]
            same(server.sql(f"SHOW {name}", port=bouncer.port), left.split(" = ")[1], "inherited: it is as it was left")
            server.sql(f"RESET {name}", port=bouncer.port)
            e.end()
        count = "SELECT count(*) FROM pg_class WHERE relname = 'lunarch_locks'"
        same(server.sql(count), "1", "inherited: there is one table")
        d.end()


class Balancer(Server):
    """HAProxy, with these `server` lines behind its port."""

    def __init__(self, *lines: str) -> None:
        self.lines = lines
        super().__init__()

    def prepare(self) -> None:
        with open(os.path.join(self.dir, "cfg"), "w") as f:
            f.write("defaults\n mode tcp\n timeout connect 5s\n timeout client 60s\n timeout server 60s\n")
            f.write(f"listen pg\n bind 127.0.0.1:{self.port}\n balance roundrobin\n")
            f.writelines(f" server s{i} 127.0.0.1:{line}\n" for i, line in enumerate(self.lines))

    def command(self) -> list[str]:
        return ["haproxy", "-db", "-f", os.path.join(self.dir, "cfg")]

    def ready(self) -> bool:
        with socket.socket() as s:
            return s.connect_ex(("127.0.0.1", self.port)) == 0


def moved() -> None:
    """A balancer's name moves to another server, while the old one still takes writes: whether what is open is cut, as
    docs/stores/postgres.md demands, or is limited in age, decides whether the old leader goes on."""
    with Postgres() as old, Postgres() as new:
        for cut, age in (("", 0), ("", 1), ("on-marked-down shutdown-sessions", 0)):
            healthy = socket.create_server(("127.0.0.1", 0), backlog=100)  # as what says that the server is the primary
            check = f"check port {healthy.getsockname()[1]} inter 100ms fall 1"
            with Balancer(f"{old.port} {check} {cut}", f"{new.port} backup") as balancer:
                options = f"?max_age={age}" if age else ""
                url = f"postgres://{old.superuser}@127.0.0.1:{balancer.port}/postgres{options}#m{len(cut)}"
                d = opened(url)
                w = d.write(term(), "")
                token = w["token"]
                healthy.shutdown(socket.SHUT_RDWR)
                healthy.close()
                with socket.socket() as s:
                    same(s.connect_ex(("127.0.0.1", balancer.port)), 0, "moved: the balancer is there")

                def behind_it() -> Any:
                    try:
                        return new.port == int(new.sql("SHOW port", port=balancer.port))
                    except RuntimeError:  # it came to the other one in that moment, and was cut
                        return False

                ok(wait_for(behind_it), "moved: new connections come to the other server")
                if age:
                    r = tried(lambda: d.write(record("a", token=token), w["version"], within=SHORT), "failed")
                    good = told(r, "is not there any more")
                    ok(good, "moved: with ?max_age= the old leader leaves the old one, where it could have gone on", r)
                    d.end()
                    continue
                w = d.write(record("a", token=token), w["version"], within=SHORT)
                if cut:
                    ok(w["outcome"] != "ok", "moved: what was open is cut, and the old leader cannot renew")
                    r = tried(lambda: d.read(within=SHORT))
                    ok(
                        told(r, "is not there any more"),
                        "moved: on the other one, which lacks its table, it makes none",
                    )
                else:
                    same(w["outcome"], "ok", "moved: what is open stays where it was: the old leader goes on")
                d.end()


def balanced() -> None:
    """A name behind which there are two primaries is no store."""
    with Postgres() as one, Postgres() as two, Balancer(str(one.port), str(two.port)) as both:
        url = f"postgres://{one.superuser}@127.0.0.1:{both.port}/postgres#b"
        p = subprocess.run([LUNARCH, "doctor", "--lock", url], capture_output=True, text=True, timeout=PATIENCE)
        told_so = "two connections reach two stores: system " in p.stdout
        ok(p.returncode != 0 and told_so, "balanced: doctor says that two connections reach two servers")
        if not told_so:
            note(p.stdout + p.stderr)


def schemas() -> None:
    """Users whose search_path differs mean the same table, or are refused."""
    with Postgres() as server:
        for user in ("anna", "bert"):
            server.sql(f"CREATE ROLE {user} LOGIN; CREATE SCHEMA AUTHORIZATION {user}")
        at = f"@127.0.0.1:{server.port}/postgres"
        a, b = opened(f"postgres://anna{at}#s"), opened(f"postgres://bert{at}#s")
        w = a.write(term("a"), "")
        same(w["outcome"], "ok", "schemas: the first one makes the table where its search_path says")
        ok(told(b.read(), "permission denied", outcome=("refused",)), "schemas: another user looks at that one")
        ok(told(b.write(term("b"), ""), "permission denied", outcome=("refused",)), "schemas: and makes no second one")
        server.sql("GRANT USAGE ON SCHEMA anna TO bert; GRANT SELECT, INSERT, UPDATE ON anna.lunarch_locks TO bert")
        same(tried(lambda: b.read(), "ok")["version"], w["version"], "schemas: with the rights it sees the record")
        server.sql("ALTER ROLE bert SET search_path = bert")
        c = opened(f"postgres://bert{at}#s")
        same(c.read()["version"], w["version"], "schemas: whatever its search_path is")
        server.sql("CREATE TABLE bert.lunarch_locks (LIKE anna.lunarch_locks INCLUDING ALL)")
        server.sql("ALTER TABLE bert.lunarch_locks OWNER TO bert")
        for user in ("anna", "bert"):
            e = opened(f"postgres://{user}{at}#s")
            said = ("anna.lunarch_locks and bert.lunarch_locks", "?table=SCHEMA.NAME")
            ok(
                told(e.read(), *said, outcome=("refused",)) and told(e.write(term(), ""), *said, outcome=("refused",)),
                f"schemas: of two tables of that name none is chosen for {user}",
            )
            e.end()
        e = opened(f"postgres://bert{at}?table=anna.lunarch_locks#s")
        same(e.read()["version"], w["version"], "schemas: the one that the URL names is")
        same(a.write(record("a", token=1), w["version"])["outcome"], "ok", "schemas: who leads goes on")
        for x in (a, b, c, e):
            x.end()


def fence() -> None:
    """A transaction of the user's checks the token: it holds up the next term, and no renewal."""
    with Postgres() as server:
        d, e, psql = opened(server.url("f")), opened(server.url("f")), Psql(server)
        w = d.write(term(), "")
        check = docs("SELECT 1 FROM lunarch_locks").replace(":name", "'f'")
        psql.say("BEGIN;")
        same(psql.say(check.replace(":token", str(w["token"]))), "1", "fence: the token of the term that leads passes")
        ok(
            told(
                e.write(term("b"), w["version"], within=2000),
                "somebody's transaction holds the row",
                outcome=("failed",),
            ),
            "fence: until that transaction ends nobody else is elected",
        )
        token = w["token"]
        for _ in range(5):
            w = d.write(record("a", token=token), w["version"], within=SHORT, durable=False)
        same(w["outcome"], "ok", "fence: but the leader's renewals go on")
        d.open(server.url("other"), lock="other")
        o = d.start_write(term("a"), "", lock="other", within=SHORT)
        stuck = e.start_write(term("b"), w["version"], within=SHORT)
        same(d.wait(o)["outcome"], "ok", "fence: as do other locks")
        psql.say("COMMIT;")
        n = (
            tried(lambda: e.write(term("b"), w["version"], within=SHORT), "ok")
            if e.wait(stuck)["outcome"] != "ok"
            else e.read()
        )
        ok(n and n["token"], "fence: when it has ended the next term begins")
        psql.say("BEGIN;")
        old = server.sql("SELECT token FROM lunarch_locks WHERE name = 'f'")
        same(psql.say(check.replace(":token", str(int(old) - 1))), "", "fence: an old token passes no more")
        psql.say("ROLLBACK;")
        psql.say("BEGIN; SELECT * FROM lunarch_locks WHERE name = 'f' FOR UPDATE;")
        w = d.read()
        x = d.write(record("b", token=1), w["version"], within=2000)
        ok(
            told(x, "somebody's transaction holds the row", outcome=("failed",)),
            "fence: a row that somebody has locked by hand is told in time",
        )
        psql.say("ROLLBACK;")
        psql.end()
        d.end(), e.end()


def fences() -> None:
    """Locks whose rows somebody holds, in one process with others: new terms of these do not wait for those."""
    with Postgres() as server:
        d, psql = opened(server.url("a")), Psql(server)
        w = {}
        for n in ("f1", "f2", "f3"):
            d.open(server.url(n), lock=n)
            w[n] = d.write(term(), "", lock=n)
        psql.say("BEGIN; SELECT 1 FROM lunarch_locks WHERE name LIKE 'f_' FOR KEY SHARE;")
        stuck = [d.start_write(term("b"), w[n]["version"], lock=n) for n in w]
        same(
            d.write(term(), "")["outcome"],
            "ok",
            "fences: another lock's new term, behind three of them, is in time all the same",
        )
        ok(all(d.wait(x)["outcome"] != "ok" for x in stuck), "fences: theirs do")
        psql.say("ROLLBACK;")
        psql.end()
        d.end()


def crashed() -> None:
    """What was answered is there after a crash, renewals too: an older one would end the term too soon for who has not
    seen the newer."""
    with Postgres("-c", "synchronous_commit=off", "-c", "wal_writer_delay=10s") as server:
        d, e = opened(server.url("c")), opened(server.url("c"))
        first = d.write(term(), "")
        d.write(record("a", token=first["token"]), first["version"], durable=False)
        last = e.read()
        w = d.write(record("a", token=first["token"]), last["version"], durable=False)
        server.kill()
        server.start()
        r = tried(lambda: e.read(within=SHORT), "ok")
        ok(
            w["outcome"] == "ok" and r and r["version"] == w["version"] != last["version"],
            "crashed: the last renewal is there, though the server was told not to wait for its disk",
        )
        d.end(), e.end()


def locked() -> None:
    """Somebody has locked the table: each look says so in time, and no session is left behind waiting."""
    with Postgres() as server:
        d, psql = opened(server.url("l")), Psql(server)
        w = d.write(term(), "")
        psql.say("BEGIN; LOCK TABLE lunarch_locks;")
        e = opened(server.url("l"))
        ok(
            all(told(e.read(within=8000), "somebody's transaction holds", outcome=("failed",)) for _ in range(3)),
            "locked: a look says that the table is locked",
        )
        same(
            server.sql("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'lunarch'"),
            "2",
            "locked: on the connection that it has had all the time",
        )
        psql.say("ROLLBACK;")
        same(tried(lambda: e.read(within=SHORT), "ok")["version"], w["version"], "locked: and works when it is not")
        psql.end()
        d.end(), e.end()


def next_record() -> None:
    """The next record beside a lock takes no connection of its own, waits for no standby and nobody's transaction, and
    has the token 0."""
    with Postgres() as server:
        d, psql = opened(server.url("l")), Psql(server)
        d.open_next(server.url("l"))
        d.do("watch")
        w = tried(lambda: d.write(term(), ""), "ok")
        n = d.write(record("zoe", **NOMINATION), "", "n")
        n = d.write(record("zoe", **NOMINATION), n["version"], "n")
        same(n["outcome"], "ok", "next record: it is written")
        same(
            server.sql("SELECT token, server FROM lunarch_locks WHERE name = 'l.next'"),
            "0|",
            "next record: its row has no token, and no doubt",
        )
        same(
            server.sql("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'lunarch'"),
            "1",
            "next record: a process with one lock has one connection still",
        )
        said = psql.say("BEGIN; SELECT 1 FROM lunarch_locks WHERE name = 'l.next' FOR UPDATE;")
        same(said, "1", "next record: somebody's transaction holds its row")
        began = time.monotonic()
        both = (
            d.start_write(record("zoe", **NOMINATION), n["version"], "n"),
            d.start_write(record("a", token=w["token"]), w["version"]),
        )
        held, renewed = d.wait(both[0]), d.wait(both[1])
        ok(told(held, "somebody's transaction holds", outcome=("failed",)), "next record: then it is not written")
        same(renewed["outcome"], "ok", "next record: and the renewal behind it is")
        note(f"after {time.monotonic() - began:.2f} s")
        psql.say("ROLLBACK;")
        psql.end()
        server.sql("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
        server.sql("SELECT pg_reload_conf()")
        shown = "SELECT setting FROM pg_settings WHERE name = 'synchronous_standby_names'"
        ok(
            wait_for(lambda: server.sql(shown) == "nobody"),
            "next record: a standby is to be waited for, and there is none",
        )
        again = d.write(record("zoe", **NOMINATION), n["version"], "n")
        same(again["outcome"], "ok", "next record: it waits for none")
        m = d.write(record("a", token=w["token"]), renewed["version"], within=SHORT)
        same(m["outcome"], "unknown", "next record: a renewal does")
        same(d.end(), 0, "next record: all close in peace")


def prepared() -> None:
    """What comes again is planned once, and what is planned for a table that is another now is planned anew."""
    with Postgres("-c", "log_statement=all") as server:
        d = opened(server.url("p"))
        d.read()  # before there is a table, as candidates do
        w = d.write(term(), "")

        def used(what: str) -> Any:
            d.read()
            with open(server.log) as f:
                return any("execute lunarch_" in line and what in line for line in f)

        for what in ("SELECT CASE WHEN octet_length", "UPDATE"):

            def again() -> Any:
                nonlocal w
                w = d.write(record("a", token=1), w["version"], durable=False)
                return used(what)

            ok(wait_for(again), f"prepared: a {what.split()[0]} is used again")
        server.sql("ALTER TABLE lunarch_locks ALTER COLUMN record TYPE varchar")
        r = tried(lambda: d.read(within=SHORT), "ok")
        same(r and r["version"], w["version"], "prepared: a table that was altered is read again")
        same(d.write(record("a", token=1), w["version"], durable=False)["outcome"], "ok", "prepared: and written")
        d.end()


def planned() -> None:
    """The server plans no statement when a standby's turn has come."""
    with Postgres("-c", "log_statement=all", "-c", "log_planner_stats=on", "-c", "log_line_prefix=[%p] ") as server:
        d = opened(server.url("p"))
        w = d.write(term(), "")
        e = opened(server.url("p"))
        e.do("watch")

        def session() -> Any:
            """What the newest one did, in order."""
            with open(server.log) as f:
                lines = [line for line in f if re.match(r"\[\d+\] LOG:  (PLANNER STATISTICS|execute )", line)]
            return [line for line in lines if line.split()[0] == lines[-1].split()[0]]

        e.read()
        # Both of its writes are rehearsed.
        wait_for(lambda: sum("execute lunarch_" in line and "WITH w AS" in line for line in session()) == 2)
        before = len(session())
        r = e.read()
        same((r["version"], e.write(term("e"), r["version"])["outcome"]), (w["version"], "ok"), "planned: a new term")
        did = session()[before:]  # after it, renewals may be rehearsed already
        last = next((i for i, line in enumerate(did) if "WITH w AS" in line), -1)
        same(
            [line.split()[3].split("_")[0] for line in did[: last + 1]],
            ["lunarch"] * 4,
            "planned: for which nothing had to be planned any more",
        )
        d.end(), e.end()


def pooled() -> None:
    """Behind a pooler that hands out a session per transaction there are no notices, and all else is as ever."""
    with Postgres() as server, Bouncer(server) as bouncer:
        d, e = opened(bouncer.url("p")), opened(bouncer.url("p"))
        d.do("watch")
        d.read()
        w = e.write(term(), "")
        same(w["outcome"], "ok", "pooler: a term")
        token = w["token"]
        for _ in range(20):
            w = e.write(record("a", token=token), w["version"], durable=False)
        same((w["outcome"], d.read()["version"]), ("ok", w["version"]), "pooler: renewals, which another reads")
        same(d.do("watch")["watching"], False, "pooler: there are no notices, so candidates poll")
        ok(d.noticed(d.count() + 1), "pooler: and who believed in them is told to look now and then")
        same(
            server.sql("SHOW statement_timeout", port=bouncer.port),
            "0",
            "pooler: nobody else's session has our settings",
        )
        d.end(), e.end()


def promoted() -> None:
    """A standby that lacks a term, and whose clock is an hour behind, is promoted: nobody is elected before that one's
    lease is over, and then with a larger token."""
    with Postgres() as first:
        both = f"postgres://{first.superuser}@127.0.0.1:{first.port},127.0.0.1:%d/postgres#f"
        d = opened(first.url("f"))
        w = d.write(term("old"), "")
        d.end()
        second = Postgres(standby_of=first, start=False)
        behind(second, 3600)
        second.start()
        d, e, fresh = opened(both % second.port), opened(both % second.port), opened(second.url("f"))
        alone = second.url("f")
        w = d.write(record("", token=w["token"], state="released", leaseDurationMs=1000), w["version"])
        wait_for(lambda: "released" in second.sql("SELECT record FROM lunarch_locks WHERE name = 'f'"))
        ok(told(fresh.read(within=SHORT), "read-only"), "promoted: a standby alone is no store")
        second.sql("ALTER SYSTEM SET primary_conninfo = ''")
        second.sql("SELECT pg_reload_conf()")
        wait_for(lambda: first.sql("SELECT count(*) FROM pg_stat_replication") == "0")
        lost = e.write(term("lost", lease_ms=5000), w["version"])
        same(
            (lost["outcome"], d.read()["record"]["holderIdentity"]),
            ("ok", "lost"),
            "promoted: a term that the standby never hears of",
        )
        first.kill()
        second.promote()
        ok(
            float(second.sql("SELECT extract(epoch FROM clock_timestamp())")) < time.time() - 3000,
            "promoted: its clock is behind",
        )
        r = tried(lambda: d.read(within=SHORT), "ok")
        same(
            (r["record"]["state"], r["version"]),
            ("released", w["version"]),
            "promoted: it shows the record before, who named both servers has found it",
        )
        began = time.monotonic()
        ok(
            told(d.write(term("again"), r["version"]), "promoted", outcome=("failed",)),
            "promoted: nobody is elected at once, not even who wrote that record",
        )
        ok(
            told(fresh.write(term("fresh"), r["version"]), "promoted", outcome=("failed",)),
            "promoted: nor who knows nothing of it",
        )
        time.sleep(1.2)
        late = opened(alone)
        ok(
            told(late.write(term("late"), r["version"]), "promoted", outcome=("failed",)),
            "promoted: who comes later counts from what he sees himself, not by the server's clock",
        )
        n = tried(lambda: d.write(term("again"), r["version"], within=SHORT, floor=lost["token"]))
        ok(
            n["outcome"] == "ok" and time.monotonic() - began >= 4.99,
            "promoted: who has seen the lost term waits for the lease that it published",
        )
        ok(n["token"] > lost["token"], "promoted: then a term begins, with a token larger than that of the lost one")
        same(
            e.write(record("lost", token=1), lost["version"])["outcome"],
            "conflict",
            "promoted: the lost term cannot be renewed there",
        )
        r = late.read()
        same(late.write(term("late"), r["version"])["outcome"], "ok", "promoted: with that the doubt is over for all")
        for x in (d, e, fresh, late):
            x.end()
        second.close()


def goes_on() -> None:
    """A term that the promoted server knows goes on; its leader settles the doubt, and hands over at once."""
    with Postgres() as server:
        d, e = opened(server.url("g")), opened(server.url("g"))
        w = d.write(term("a"), "")
        server.sql("UPDATE lunarch_locks SET token = token + 1 WHERE name = ''")  # as on another timeline
        token = w["token"]

        def renewed() -> Any:
            nonlocal w
            w = d.write(record("a", token=token, leaseDurationMs=1000), w["version"], durable=False)
            return server.sql("SELECT count(*) FROM lunarch_locks WHERE server <> ''") == "2"

        ok(
            wait_for(renewed) and w["outcome"] == "ok",
            "goes on: a leader's renewals name the doubt, and settle it when a lease has passed",
        )
        w = d.write(record("", token=token, state="released", leaseDurationMs=1000), w["version"])
        same(e.write(term("b"), w["version"])["outcome"], "ok", "goes on: then another is elected at once")
        d.end(), e.end()


def full_disk() -> None:
    """The table's disk is full: writes fail and say so; or the log's: the server ends. All goes on with room again."""
    if os.geteuid() != 0:
        skip("out of space", "mounting a small disk needs root")
        return
    for kind in (FullPostgres, FullPostgresLog):
        store = kind()
        run(store, [full])
        store.end()


def together() -> None:
    """Many locks of a process share connections; who writes is not told of its own writes."""
    with Postgres() as server:
        d, e = opened(server.url("n0"), "n0"), opened(server.url("n0"), "n0")
        w = d.write(term("first"), "", lock="n0")
        e.read(lock="n0")
        same(
            server.sql("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'lunarch'"),
            "2",
            "together: who has one lock has one connection",
        )
        server.sql("DELETE FROM lunarch_locks WHERE name = 'n0'")
        names = [f"n{i}" for i in range(50)]
        for n in names[1:]:
            d.open(server.url(n), lock=n)
        for n in names:
            d.do("watch", lock=n)
        ops = [d.start_write(term(n), "", lock=n) for n in names]
        versions = {n: d.wait(o) for n, o in zip(names, ops)}
        same({w["outcome"] for w in versions.values()}, {"ok"}, "together: fifty locks at once")
        same(
            server.sql("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'lunarch'"),
            "3",
            "together: over two connections, beside the other process's one",
        )
        e.do("watch", lock="n0")
        e.read(lock="n0")
        w, heard, before = versions["n0"], 0, d.count("n0")
        for _ in range(10):
            seen = e.count("n0")
            w = d.write(record("a", token=1), w["version"], lock="n0", durable=False)
            heard += e.noticed(seen, "n0")
        same(
            (heard, d.count("n0") - before),
            (10, 0),
            "together: another process is told of each write, who wrote is not",
        )
        same([d.end(), e.end()], [0, 0], "together: all close in peace")


def listing() -> None:
    with Postgres() as server:
        d = Driver()
        who = f"postgresql://{server.superuser}@127.0.0.1:{server.port}/postgres"
        d.open(who, "all", prefix=True)
        same(d.names("all").get("names"), [], "list: without the table there is nothing")
        for name, table in (("one", ""), ("two", ""), ("other", "?table=tenants")):
            url = f"{who}{table}#{name}"
            d.open(url, url)
            d.write(record("a"), "", url)
        same(d.names("all").get("names"), ["one", "two"], "list: a URL that ends before '#' is every row but the mark")
        d.open(f"{who}?table=tenants#o", "o", prefix=True)
        same(d.names("o").get("names"), ["ther"], "list: of the table that is named")
        server.sql("CREATE USER nosy")
        d.open(f"postgres://nosy@127.0.0.1:{server.port}/postgres#", "nosy", prefix=True)
        ok(told(d.names("nosy"), "permission denied", outcome=("refused",)), "list: who may not read it is told")
        d.end()


only = [globals()[n] for n in sys.argv[1:]]
if only:
    at_once(*only)
    done()
store = Store()
run(store, BASIC + NETWORK + SERVER + [read_only])
store.end()
at_once(login, strangers, tls, tables, tokens)
at_once(
    inherited,
    schemas,
    balanced,
    moved,
    fence,
    fences,
    crashed,
    locked,
    next_record,
    prepared,
    planned,
    pooled,
    promoted,
    goes_on,
    together,
    listing,
    full_disk,
)
done()

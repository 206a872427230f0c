"""make bench, locks in Lua: S3 (SeaweedFS) beside litestream's lease, Consul beside `consul lock`, MariaDB; DynamoDB,
Google Cloud Storage and Azure by their stand-ins, of which the runtime's part of the time says something. Their servers
come as packages of Python and Node, as Go modules (make s3-servers consul-server dynamodb-servers gcs-server
nats-server azurite) and from Debian; one that is not there has a line that says so.

A floor is a read and a write of the store, by Python; of the driver's memory, a C program that sends one request by
libcurl."""

import http.client
import os
import signal
import socket
import threading
import time
from typing import Any

from tests.lib import s3_servers
from tests.bench import next_rows
from tests.bench import store_rows
from tests.lib import stores
from tests.lib.candidates import Candidate
from tests.lib.processes import LUNARCH, children, runs_lock_file
from tests.bench.rows import (
    HELLO,
    QUICK,
    RUNS,
    Runner,
    built,
    family,
    first_line,
    handovers,
    pss,
    row,
    standby_of,
    start_times,
)

POKED = {next_rows.WITH: "from SIGTERM", next_rows.CTL: "from its beginning"}
WINDOW = 20 if QUICK else 60  # seconds in which requests are counted


class Counter:
    """Passes connections on to a port, and counts the requests in them, each of which has this word."""

    def __init__(self, port: int, word: bytes = b" HTTP/1.1\r\n") -> None:
        self.target, self.count, self.word = port, 0, word
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        while True:
            try:
                client = self.listener.accept()[0]
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self.target))
            for a, b, asks in (client, server, True), (server, client, False):
                threading.Thread(target=self.pass_on, args=(a, b, asks), daemon=True).start()

    def pass_on(self, a: socket.socket, b: socket.socket, asks: bool) -> None:
        try:
            while piece := a.recv(65536):
                self.count += piece.count(self.word) if asks else 0
                b.sendall(piece)
        except OSError:
            pass
        for s in (a, b):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self) -> None:
        self.listener.close()


class Statements:
    """What a MariaDB server has been asked by others than this."""

    def __init__(self, server: Any) -> None:
        self.server = server

    @property
    def count(self) -> int:
        """Selects and changes; this is one of them."""
        asked = (
            "SELECT CAST(SUM(VARIABLE_VALUE) AS INTEGER) FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME IN "
            "('COM_SELECT', 'COM_UPDATE', 'COM_INSERT', 'COM_DELETE', 'COM_REPLACE')"
        )
        return int(self.server.sql(asked).split()[-1])

    def close(self) -> None:
        pass


def driver_of(c: Candidate) -> Any:
    """The processes of its locks in Lua."""
    return [p for p in children(c.pid) if runs_lock_file(p)]


def memory(url: Any) -> Any:
    """In MB, of all, and of the driver among them."""
    whole, driver = [], []
    for i in range(5 if QUICK else 10):
        r = Runner(url(f"m{i}"))
        r.out.readline()
        time.sleep(0.5)
        driver.append(pss(driver_of(r.log)))
        whole.append(pss(family(r.log)) + driver[-1])
        r.leave()
    return whole, driver


def http_floor(port: int) -> list[float]:
    """The memory of floor_http, in MB."""
    values = []
    for _ in range(5 if QUICK else 10):
        p = first_line([built("floor_http"), f"http://127.0.0.1:{port}/"])[1]
        values.append(pss([p.pid]))
        p.kill()
        p.wait()
        p.stdout.close()
    return values


def requests_a_minute(url: Any, seen: Any) -> Any:
    """Of a leader alone, and of a leader and a standby; with the default times."""
    leader = Runner(url("r"))
    leader.out.readline()
    time.sleep(3)
    alone = seen.count
    time.sleep(WINDOW)
    alone = seen.count - alone
    standby = standby_of(url("r"))
    time.sleep(3)
    both = seen.count
    time.sleep(WINDOW)
    both = seen.count - both
    standby.leave()
    leader.leave()
    return alone * 60 / WINDOW, (both - alone) * 60 / WINDOW


def lua_rows(name: str, url: Any, counted: Any, seen: Any, floor: Any = None, http: int = 0) -> None:
    """url, counted: of a key, and of a key through `seen`, which counts requests. http: the port, if it speaks that."""
    started = start_times([LUNARCH, "run", "--lock", url("s{i}").replace("%7Bi%7D", "{i}"), "-e", HELLO], True)
    row(f"{name}: start to on_leading, free lock", None, started, "ms", floor)
    given = handovers(url("h"), lambda c: c.kill(signal.SIGTERM), store_rows.SETTLE)
    row(f"{name}: SIGTERM to the leader until the next on_leading", None, given, "ms", floor)
    whole, driver = memory(url)
    row(f"{name}: memory (PSS) of elector + guard + worker + driver", None, whole, "MB")
    row(f"{name}: memory (PSS) of the driver", 3.5, driver, "MB", http_floor(http) if http else None)
    leader, standby = requests_a_minute(counted, seen)
    row(f"{name}: requests a minute, leader", None, [leader], "")
    row(f"{name}: requests a minute, standby", None, [standby], "")
    seen.close()


def read_and_write(store: Any) -> Any:
    """Each signed where the store wants it, and on a connection of its own."""
    values = []
    for i in range(RUNS):
        began = time.perf_counter()
        store.get(f"floor{i}")
        store.put(f"floor{i}", b"x" * 660)
        values.append((time.perf_counter() - began) * 1000)
    return values


def poked(name: str, url: Any) -> None:
    """With --poke auto: the hand-over to the one that comes next, by SIGTERM and by `ctl handover`."""
    os.environ["LUNARCH_POKE"] = "auto"
    values: dict[str, list[tuple[float, float]]] = {kind: [] for kind in POKED}
    for first in range(0, RUNS, next_rows.BATCH):
        batch = range(first, min(RUNS, first + next_rows.BATCH))
        groups = [(kind, next_rows.Group(url(f"p{i}{kind[:3]}"))) for i in batch for kind in POKED]
        for _, group in groups:
            group.begin()
        for _, group in groups:
            next_rows.await_next(group.url)
        for kind, group in groups:
            values[kind].append(group.hand_over(kind))
        for _, group in groups:
            group.leave()
    for kind, what in POKED.items():
        for i, since in ((0, what), (1, "from on_stopped")):
            row(f"{name}: hand-over {kind} and --poke auto, {since}", 100, [pair[i] for pair in values[kind]], "ms")
    del os.environ["LUNARCH_POKE"]


S3 = "S3 (SeaweedFS)", stores.S3
CLOUDS: tuple[tuple[str, Any], ...] = (
    ("DynamoDB (Dynalite)", stores.DynamoDB),
    ("Google Cloud Storage (fake-gcs-server)", stores.Gcs),
    ("Azure Blob Storage (Azurite)", stores.AzureBlob),
)
POLLED = (S3, ("MariaDB", stores.MariaDB), *CLOUDS)


def begun(name: str, kind: Any) -> Any:
    """The store, if its server is installed."""
    try:
        store = kind()
    except FileNotFoundError:
        store_rows.absent(name)
        return None
    os.environ.update(store.env)
    return store


def poke(directory: str) -> None:
    """The stores without notices."""
    for name, kind in POLLED:
        store = begun(name, kind)
        if store:
            poked(name, store.url)
            store.end()


def counted_rows(name: str, store: Any) -> None:
    seen = Counter(store.port)
    lua_rows(name, store.url, lambda key: store.url(key, seen), seen, read_and_write(store), store.port)


def clouds(directory: str) -> None:
    for name, kind in CLOUDS:
        store = begun(name, kind)
        if store:
            counted_rows(name, store)
            store.end()


def s3(directory: str) -> None:
    store = begun(*S3)
    if not store:
        return
    counted_rows(S3[0], store)
    if store_rows.go(store_rows.LITESTREAM):
        peer = [store_rows.LITESTREAM, f"http://127.0.0.1:{store.port}", s3_servers.BUCKET]
        store_rows.peer_rows("litestream's lease, in Go", [*peer, "p"], [*peer, "m{i}"])
    else:
        store_rows.absent("litestream's lease (Go)")
    store.end()


def consul_floor(store: Any) -> Any:
    values = []
    c = http.client.HTTPConnection("127.0.0.1", store.port)
    for i in range(RUNS):
        began = time.perf_counter()
        for method, path, body in ("GET", "?consistent", None), ("PUT", "?cas=0", b"x" * 660):
            c.request(method, f"/v1/kv/floor{i}{path}", body)
            c.getresponse().read()
        values.append((time.perf_counter() - began) * 1000)
    c.close()
    return values


def consul(directory: str) -> None:
    try:
        store = stores.Consul()
    except FileNotFoundError:
        store_rows.absent("Consul (make consul-server)")
        return
    seen = Counter(store.port)
    lua_rows("Consul", store.url, lambda key: store.url(key, seen), seen, consul_floor(store), store.port)
    peer = [store.server.program(), "lock", f"-http-addr=127.0.0.1:{store.port}"]
    say = "echo leading; exec sleep 1000"
    row("  peer: consul lock, start to its first line", None, start_times([*peer, "p{i}", say], True), "ms")
    took = store_rows.peer_handovers([*peer, "p", say])
    row("  peer: consul lock, SIGTERM until the next has it", None, took, "ms")
    row(
        "  peer: consul lock, memory (PSS) without its command",
        None,
        store_rows.peer_memory([*peer, "pm{i}", say]),
        "MB",
    )
    store.end()


def nats(directory: str) -> None:
    store = begun("NATS (make nats-server)", stores.Nats)
    if store:
        seen = Counter(store.port, b"PUB ")
        lua_rows("NATS", store.url, lambda key: store.url(key, seen), seen, read_and_write(store))
        store.end()


def mysql(directory: str) -> None:
    store = stores.MariaDB()
    os.environ.update(store.env)
    lua_rows("MariaDB", store.url, store.url, Statements(store.server))
    store.end()


parts = (s3, clouds, consul, nats, mysql, poke)

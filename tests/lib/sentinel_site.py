"""Redis servers, each behind a proxy that can keep some of those out who connect there, and the Sentinels that watch
them. Not a store (stores.py): a site for what happens to one. Used by the tests of redis+sentinel://."""

from typing import Any

from tests.lib.processes import wait_for
from tests.lib.proxy import Proxy
from tests.lib.servers import Redis, Sentinel

DURABLE = ("--appendonly", "yes", "--appendfsync", "always")
# What they say first: a Sentinel its name (CLIENT SETNAME), a replica PING.
SENTINELS, REPLICAS = b"sentinel-", b"*1\r\n$4\r\nPING\r\n"


def url_of(group: list[Sentinel], key: str = "x", more: str = "") -> str:
    at = ",".join(f"{s.host}:{s.port}" for s in group)
    return f"redis+sentinel://{at}/{Sentinel.MASTER}{more}#{key}"


class Way(Proxy):
    """refused: by what is said first."""

    def __init__(self, port: int) -> None:
        self.refused: tuple[bytes, ...] = ()
        self.said: dict[Any, bytes] = {}
        super().__init__(port)

    def is_refused(self, first: bytes) -> bool:
        return any(r in first for r in self.refused)

    async def _accepted(self, reader: Any, writer: Any) -> None:
        first = await reader.read(65536)
        if self.is_refused(first):
            writer.transport.abort()
            return
        self.said[writer] = first
        reader.feed_data(first)
        await super()._accepted(reader, writer)
        del self.said[writer]

    def refuse(self, *who: bytes) -> None:
        """Also those that are connected; nobody: heals it."""

        async def act() -> None:
            self.refused = who
            for pair in list(self.pairs):
                if self.is_refused(self.said.get(pair["client"], b"")):
                    self._reset(pair)

        self._do(act)


class Site:
    """A primary and its replicas, `count` together, and three Sentinels, which know each by its way's address."""

    def __init__(self, count: int = 2, **more: Any) -> None:
        self.servers: list[Redis] = []
        self.ways: dict[Redis, Way] = {}
        for _ in range(count):
            server = Redis(*DURABLE, start=False)
            self.ways[server] = way = Way(server.port)
            server.options += ["--replica-announce-ip", "127.0.0.1", "--replica-announce-port", str(way.port)]
            if self.servers:
                server.options += ["--replicaof", "127.0.0.1", str(self.ways[self.servers[0]].port)]
            self.servers.append(server.start())
        self.group = Sentinel.group(self.ways[self.servers[0]], count - 1, **more)

    def url(self, key: str = "x", more: str = "") -> str:
        return url_of(self.group, key, more)

    def primary(self) -> Any:
        """Whom most Sentinels name; None: nobody."""
        names = [s.named() for s in self.group if s.process]
        return next((r for r in self.servers if 2 * names.count(self.ways[r].port) > len(self.group)), None)

    def promoted(self, old: Redis) -> Redis:
        """The primary, when it is another one."""
        new = wait_for(lambda: next((p for p in [self.primary()] if p and p is not old), None))
        if not new:
            raise RuntimeError("the Sentinels promote nobody")
        return new

    def whole(self) -> bool:
        """The others follow the primary, and all Sentinels name it."""
        primary = self.primary()
        port = str(self.ways[primary].port) if primary else ""
        roles = [s.cli("ROLE").split() for s in self.servers if s is not primary]
        follow = all(r[:1] == ["slave"] and r[2:4] == [port, "connected"] for r in roles)
        return bool(primary and follow and all(s.named() == int(port) for s in self.group))

    def close(self) -> None:
        for s in [*self.group, *self.servers]:
            s.close()
        for way in self.ways.values():
            way.close()

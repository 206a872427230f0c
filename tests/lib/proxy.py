"""A TCP proxy that does to connections what networks do: stalls, cuts, delays, loses, repeats. It knows no protocol;
what is sent "up" goes to the server, what comes "down" to the client. All proxies of a test run on one thread."""

import asyncio
import atexit
import contextlib
import os
import socket
import struct
import threading
from typing import Any

_loop: Any = None
_start = threading.Lock()


def _thread_loop() -> asyncio.unix_events._UnixSelectorEventLoop:
    global _loop
    with _start:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            thread = threading.Thread(target=_loop.run_forever, daemon=True)
            thread.start()
            atexit.register(_end, thread, os.getpid())
    return _loop


def _end(thread: threading.Thread, owner: int) -> None:
    """What still waits when the test ends is cancelled: a task that is only thrown away says so on stderr."""

    async def cancel() -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    if os.getpid() != owner:
        return
    asyncio.run_coroutine_threadsafe(cancel(), _loop).result(30)
    _loop.call_soon_threadsafe(_loop.stop)
    thread.join()
    _loop.close()


class Way:
    """One direction of all connections of a proxy. Set from the proxy's own thread only."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.heal()

    def heal(self) -> None:
        self.delay: float = 0  # seconds before each piece goes on
        self.cut_after = None  # bytes that still pass; then the connection is reset
        self.lose = False  # pieces vanish, and all that follows them; the connection stays
        self.repeat = None  # down: each piece comes twice: "at once", or "late", right after the client's next request
        self.replay: Any = ()  # up: a request with one of these comes once before, on a connection of its own
        self.open.set()


class Proxy:
    """Listens on a port (`port`; at: which one, if not any free one) of an own address and forwards to host:port."""

    def __init__(self, port: int, host: str = "127.0.0.1", at: int = 0, on: str = "127.0.0.1") -> None:
        self.target, self.port, self.on = (host, port), at, on
        self.pairs: list[dict[str, Any]] = []
        self.bytes = {"up": 0, "down": 0}
        self.unanswered: bytes | None = None
        self.replays = 0  # requests that were sent twice
        self._do(self._listen)

    async def _listen(self) -> None:
        self.up, self.down = Way(), Way()
        self.server = await asyncio.start_server(self._accepted, self.on, self.port)
        self.port = self.server.sockets[0].getsockname()[1]

    def _do(self, job: Any, *args: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(job(*args), _thread_loop()).result(30)

    async def _accepted(self, reader: Any, writer: Any) -> None:
        pair = {
            "client": writer,
            "server": None,
            "hurt": set(),
            "late": b"",
            "asked": b"",
            "tasks": [asyncio.current_task()],
        }
        self.pairs.append(pair)
        pumps = []
        try:
            far_reader, far_writer = await asyncio.open_connection(*self.target)
            pair["server"] = far_writer
            pumps = [
                asyncio.create_task(self._pump(pair, reader, far_writer, self.up, "up")),
                asyncio.create_task(self._pump(pair, far_reader, writer, self.down, "down")),
            ]
            pair["tasks"] += pumps
            await asyncio.wait(pumps, return_when=asyncio.FIRST_EXCEPTION)
        except (OSError, asyncio.CancelledError):
            pass
        self._reset(pair)
        await asyncio.gather(*pumps, return_exceptions=True)

    async def _pump(self, pair: Any, reader: Any, writer: Any, way: Any, name: str) -> None:
        while True:
            piece = await reader.read(65536)
            if name == "up" and self.unanswered and self.unanswered in piece:
                self.unanswered, pair["unanswered"] = None, True
            if name == "down" and piece and "unanswered" in pair:
                self._reset(pair)
                return
            if way.delay:
                await asyncio.sleep(way.delay)
            await way.open.wait()
            if way.lose or name in pair["hurt"]:
                pair["hurt"].add(name)  # for good: no stream goes on behind a gap
                if piece:
                    continue
                await asyncio.Event().wait()  # the other side never hears of the end either
            if not piece:
                writer.close()
                return
            pair["asked"] = pair["asked"] + piece if name == "up" else b""
            if any(word in pair["asked"] for word in way.replay):
                await self._replay(pair)
            if way.cut_after is not None:
                piece, way.cut_after = piece[: way.cut_after], max(0, way.cut_after - len(piece))
            self.bytes[name] += len(piece)
            if name == "up" and pair["late"]:
                pair["client"].write(pair["late"])
                pair["late"] = b""
            if name == "down" and way.repeat == "late":
                pair["late"] += piece
            writer.write(piece if way.repeat != "at once" else piece + piece)
            await writer.drain()
            if way.cut_after == 0:
                way.cut_after = None
                self._reset(pair)
                return

    async def _replay(self, pair: Any) -> None:
        """What was asked since the last answer, of which this may be the last piece. It is answered before the one that
        sent it is."""
        request, pair["asked"] = pair["asked"], b""
        reader, writer = await asyncio.open_connection(*self.target)
        writer.write(request)
        self.replays += 1
        try:
            with contextlib.suppress(OSError):  # of a server that takes no such beginning of a connection
                await reader.read(65536)
        finally:
            writer.transport.abort()

    def _reset(self, pair: dict[str, Any]) -> None:
        """With SO_LINGER 0 a close is a reset: nothing that is still queued arrives. Whatever waits for one of the two,
        or for nothing at all, ends."""
        if pair in self.pairs:
            self.pairs.remove(pair)
        for task in pair["tasks"]:
            if task is not asyncio.current_task():
                task.cancel()
        for writer in (pair["client"], pair["server"]):
            if writer:
                s = writer.get_extra_info("socket")
                try:
                    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                except OSError:
                    pass
                writer.transport.abort()

    # ---- faults; each takes effect before it returns ----

    def _set(self, ways: tuple[Any, ...], **what: Any) -> None:
        async def act() -> None:
            for name in ways:
                way = getattr(self, name)
                for key, value in what.items():
                    if key == "frozen":
                        way.open.clear() if value else way.open.set()
                    else:
                        setattr(way, key, value)

        self._do(act)

    def freeze(self, *ways: str) -> None:
        """Nothing passes (that way; both without argument) until thaw; then what was held goes on, late."""
        self._set(ways or ("up", "down"), frozen=True)

    def thaw(self) -> None:
        self._set(("up", "down"), frozen=False)

    def delay(self, seconds: float, *ways: str) -> None:
        self._set(ways or ("down",), delay=seconds)

    def cut_after(self, count: int, way: str = "down") -> None:
        """The next `count` bytes that way pass, then the connection that carried the last of them is reset. 0: a reply
        that is lost with its connection."""
        self._set((way,), cut_after=count)

    def lose_answer_to(self, word: bytes) -> None:
        """The connection that carries these bytes to the server, the next time, is reset when the answer comes."""

        async def act() -> None:
            self.unanswered = word

        self._do(act)

    def lose(self, *ways: str, on: bool = True) -> None:
        """What is sent vanishes and connections stay, as behind a router that forgot them. Until heal, those that lost
        something stay deaf that way; off: new ones lose nothing."""
        self._set(ways or ("up", "down"), lose=on)

    def replay(self, *words: bytes) -> None:
        """Each request with one of these in it reaches the server twice, until it is called with none. No other piece
        does: for what is not a request, as an acknowledgement of HTTP/2, a server has no answer."""
        self._set(("up",), replay=words)

    def repeat(self, when: str) -> None:
        """Answers come twice: "at once", or "late", when the client has asked the next thing and waits for that
        answer."""
        self._set(("down",), repeat=when)

    def cut(self) -> None:
        async def act() -> None:
            for pair in list(self.pairs):
                self._reset(pair)

        self._do(act)

    def heal(self) -> None:
        """Ends every fault. Connections that lost something are cut, since a stream without its middle is none."""

        async def act() -> None:
            self.up.heal()
            self.down.heal()
            for pair in list(self.pairs):
                pair["late"] = b""
                if pair["hurt"]:
                    self._reset(pair)

        self._do(act)

    def close(self) -> None:
        async def act() -> None:
            self.server.close()

        self._do(act)
        self.cut()

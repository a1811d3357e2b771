"""Servers that misbehave as the network does: raw bytes, real RSTs, half-closed and frozen connections.

`raw_server` plays a script of its own; `relay` stands before a real server and spoils what it says.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from enum import Enum, auto
from typing import Final, final

import attrs
import trio

# Reset by the other side: for a script that is the end of its play, as an orderly close is.
_GONE: Final = (trio.BrokenResourceError, trio.ClosedResourceError)

HOST: Final = "127.0.0.1"
GARBAGE: Final = b"\x16\x03\x01 this is not HTTP \x00\r\n\r\n"


@final
@attrs.define(eq=False)
class Peer:
    """One accepted connection, in the hands of a script."""

    stream: trio.SocketStream
    number: int
    """0 for the first connection that the server accepted."""
    _buffered: bytearray = attrs.field(factory=bytearray, init=False)

    async def request(self) -> bytes:
        """Read one request, head and body by its Content-Length. Empty when the client hung up before it."""
        while b"\r\n\r\n" not in self._buffered:
            if not await self._more():
                return b""
        head, _, _ = bytes(self._buffered).partition(b"\r\n\r\n")
        lengths = [line[15:] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        size = len(head) + 4 + int(lengths[0] if lengths else 0)
        while len(self._buffered) < size:
            if not await self._more():
                return b""
        whole = bytes(self._buffered[:size])
        del self._buffered[:size]
        return whole

    async def answer(self, body: bytes = b"ok", *, head: bytes = b"HTTP/1.1 200 OK") -> None:
        """A plain response."""
        await self.stream.send_all(b"%b\r\ncontent-length: %d\r\n\r\n%b" % (head, len(body), body))

    async def reset(self) -> None:
        """A real RST: closing with a linger time of 0 throws away what is unsent and says so."""
        self.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await self.stream.aclose()

    async def _more(self) -> bool:
        try:
            data = await self.stream.receive_some(65536)
        except trio.BrokenResourceError:
            return False
        self._buffered += data
        return bool(data)


@attrs.define(eq=False)
class Accepting:
    """A listening server, and how many connections it has had and has."""

    port: int
    scheme: str = "http"
    host: str = HOST
    accepted: int = attrs.field(default=0, init=False)
    open: int = attrs.field(default=0, init=False)
    _closed: trio.Event = attrs.field(factory=trio.Event, init=False)

    @property
    def base(self) -> str:
        """Its base URL."""
        return f"{self.scheme}://{self.host}:{self.port}"

    @contextmanager
    def connection(self) -> Iterator[int]:
        """The life of one; gives its number."""
        self.accepted += 1
        self.open += 1
        try:
            yield self.accepted - 1
        finally:
            self.open -= 1
            self._closed.set()
            self._closed = trio.Event()

    async def all_closed(self) -> None:
        """Wait until the last connection is gone; fails if one stays."""
        with trio.fail_after(60):
            while self.open:
                await self._closed.wait()


@asynccontextmanager
async def raw_server(script: Callable[[Peer], Awaitable[None]]) -> AsyncIterator[Accepting]:
    """Accept on loopback and run the script for each connection; its end, or its error, closes the connection."""
    listeners = await trio.open_tcp_listeners(0, host=HOST)
    raw = Accepting(listeners[0].socket.getsockname()[1])

    async def serve(stream: trio.SocketStream) -> None:
        with raw.connection() as number, suppress(*_GONE):
            await script(Peer(stream, number))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, serve, listeners)
        yield raw
        nursery.cancel_scope.cancel()


class Fault(Enum):
    """What befalls the answer once `after_bytes` of it have passed."""

    RESET = auto()
    HALF_CLOSE = auto()
    """The end of the stream, while requests are still read."""
    FREEZE = auto()
    GARBAGE = auto()


@final
@attrs.frozen(kw_only=True)
class Weather:
    """What a relay does to answers."""

    slice_bytes: int = 65536
    """At most so many bytes at once."""
    delay_s: float = 0.0
    """Before each slice."""
    fault: Fault | None = None
    after_bytes: int = 0


@asynccontextmanager
async def relay(target_port: int, weather: Weather) -> AsyncIterator[Accepting]:
    """Stand before a server on loopback: requests pass untouched, answers as the weather has it."""

    async def answers(peer: Peer, server: trio.SocketStream) -> None:
        passed = 0
        async for data in server:
            for start in range(0, len(data), weather.slice_bytes):
                piece = data[start : start + weather.slice_bytes]
                await trio.sleep(weather.delay_s)
                if weather.fault and passed + len(piece) >= weather.after_bytes:
                    await peer.stream.send_all(piece[: weather.after_bytes - passed])
                    await _befall(weather.fault, peer)
                    return
                await peer.stream.send_all(piece)
                passed += len(piece)

    async def script(peer: Peer) -> None:
        async with await trio.open_tcp_stream(HOST, target_port) as server, trio.open_nursery() as nursery:

            async def requests() -> None:
                with suppress(*_GONE):
                    async for data in peer.stream:
                        await server.send_all(data)
                nursery.cancel_scope.cancel()

            nursery.start_soon(requests)
            with suppress(*_GONE):
                await answers(peer, server)
            nursery.cancel_scope.cancel()

    async with raw_server(script) as raw:
        yield raw


async def _befall(fault: Fault, peer: Peer) -> None:
    match fault:
        case Fault.RESET:
            await peer.reset()
        case Fault.HALF_CLOSE:
            await peer.stream.send_eof()
            await trio.sleep_forever()
        case Fault.FREEZE:
            await trio.sleep_forever()
        case Fault.GARBAGE:
            await peer.stream.send_all(GARBAGE)
            await trio.sleep_forever()

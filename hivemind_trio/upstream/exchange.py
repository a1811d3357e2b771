"""One request and its response on one connection.

The rule that keeps the pool healthy: a connection goes back only when the request has been sent to its end, the
response has come to its end and both sides want to go on, and it goes back at that moment, whether or not the caller
has taken the last piece. In every other case, cancellation first of all, it is closed. From then on the exchange has no
connection to touch, so it can neither leak one nor disturb the next exchange on it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol, final

import attrs
import trio

from .outgoing import OutgoingRequest
from .response import ResponseParser
from .wire import OutboundWire

_JOINED_BYTES_MAX: Final = 64 * 1024
"""A body up to this size is copied behind its head, to leave in one packet train; above it the copy would cost more."""


class UpstreamExchange(Protocol):
    """Interface of a response for `Upstream`, whichever transport carried it."""

    @property
    def status(self) -> int:
        """Status of the response."""
        ...

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """As they came."""
        ...

    @property
    def trailers(self) -> list[tuple[bytes, bytes]]:
        """Behind a chunked body, once it has been received to its end."""
        ...

    @property
    def at_hand(self) -> bool:
        """True if `receive` returns without waiting."""
        ...

    async def receive(self) -> bytes:
        """Return the next piece as it came; empty at the end. Raises what `translate` knows."""
        ...

    async def aclose(self) -> None:
        """Let go of the connection, read to the end or not."""
        ...


@final
@attrs.define(eq=False)
class IdleConnection:
    """A wire on which no exchange is under way."""

    wire: OutboundWire
    idle_since: float = 0.0


@final
@attrs.define(eq=False)
class PooledExchange:
    """An exchange that owns its connection until it is over."""

    _connection: IdleConnection | None
    _keep: Callable[[IdleConnection], None]
    """Takes the connection back when all ended well."""

    answered: bool = attrs.field(default=False, init=False)
    """True if a byte of a response has arrived."""
    _answer: ResponseParser = attrs.field(init=False)
    _sent: bool = attrs.field(default=False, init=False)
    """The request, to its end."""
    _piece: bytes = attrs.field(default=b"", init=False)

    @property
    def status(self) -> int:
        """Status of the response."""
        return self._answer.status

    @property
    def reason(self) -> bytes:
        """Behind the status."""
        return self._answer.reason

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """As they came."""
        return self._answer.headers

    @property
    def trailers(self) -> list[tuple[bytes, bytes]]:
        """Behind a chunked body, once it has been received to its end."""
        return self._answer.trailers

    async def request(self, outgoing: OutgoingRequest, head: bytes) -> None:
        """Send, and wait for the head. Raises OSError, EOFError, `h11.RemoteProtocolError`; then it is closed."""
        connection = self._connection
        assert connection is not None, "an exchange is used once"
        self._answer = ResponseParser(outgoing.method)
        try:
            self._sent = await self._upload(connection.wire, head, outgoing.body)
            while not self._answer.status:
                self._hear(await connection.wire.receive())
            # A short answer came along with its head: then it is over, and the connection free, before anyone asks.
            self._piece = self._take(connection, None)
        except BaseException:
            self.close()
            raise

    @property
    def at_hand(self) -> bool:
        """True if `receive` returns without waiting: a piece or the end has arrived."""
        return bool(self._piece) or self._connection is None

    async def receive(self) -> bytes:
        """Return the next piece as it came; empty at the end. Raises as `request` does, and is closed then too."""
        piece, self._piece = self._piece, b""
        connection = self._connection
        if piece or connection is None:
            return piece
        try:
            while not piece and self._connection is not None:
                piece = self._take(connection, await connection.wire.receive())
        except BaseException:
            self.close()
            raise
        return piece

    def close(self) -> None:
        """Throw the connection away, unless the exchange has ended well already."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.wire.close()

    async def aclose(self) -> None:
        """Close the exchange; nothing in it waits."""
        self.close()

    async def _upload(self, wire: OutboundWire, head: bytes, body: bytes | bytearray) -> bool:
        """Write it all; False: a response came before the end, or is on its way."""
        parts = (head + body,) if len(body) <= _JOINED_BYTES_MAX else (head, body)
        for part in parts:
            rest = memoryview(part)
            while rest:
                try:
                    taken = wire.send_now(rest)
                except OSError:
                    # It does not want the rest. Most often it has said why: 413, 429, 529.
                    return False
                rest = rest[taken:]
                if taken:
                    # A provider may take a long body as fast as it is sent: others have their turn in between.
                    if rest:
                        await trio.lowlevel.checkpoint()
                    continue
                await wire.room_or_word()
                data = wire.receive_now()
                if data is not None and self._hear(data):
                    return False
        return True

    def _hear(self, data: bytes) -> bool:
        """Take in what came; whether the response's head is complete."""
        if not data:
            raise EOFError("the connection was closed before a response")
        self.answered = True
        return self._answer.begin(data)

    def _take(self, connection: IdleConnection, data: bytes | None) -> bytes:
        """All of the body that has come. At its end the connection goes its way."""
        answer = self._answer
        piece = answer.body(data)
        if answer.over:
            self._connection = None
            if self._sent and answer.clean:
                self._keep(connection)
            else:
                connection.wire.close()
        return piece

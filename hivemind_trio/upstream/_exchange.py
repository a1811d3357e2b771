"""One request and its response on one connection.

The rule that keeps the pool healthy: a connection goes back only when h11 has seen the request's end and the
response's end and both sides want to go on, and it goes back at that moment, whether or not the caller has taken the
last piece. In every other case, cancellation first of all, it is closed. From then on the exchange has no connection
to touch, so it can neither leak one nor disturb the next exchange on it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final, Protocol, final

import attrs
import h11

from ._outgoing import Outgoing
from ._wire import Wire

HEAD_BYTES_MAX: Final = 64 * 1024
"""Of a response; a read that is under way when it is reached may go beyond it by one receive."""

_INFORMATIONAL_MAX: Final = 16
"""1xx heads in one receive. There is no reason for more than two; the first-byte deadline bounds the receives."""

_JOINED_BYTES_MAX: Final = 64 * 1024
"""A body up to this size is copied behind its head, to leave in one packet train; above it the copy would cost more."""


class Exchange(Protocol):
    """What `Upstream` asks of a response, whichever transport it came by."""

    status: int
    headers: list[tuple[bytes, bytes]]

    @property
    def trailers(self) -> list[tuple[bytes, bytes]]:
        """Behind a chunked body, once it has been received to its end."""
        ...

    @property
    def at_hand(self) -> bool:
        """Whether `receive` will return without waiting."""
        ...

    async def receive(self) -> bytes:
        """The next piece as it came; empty at the end. Raises what `translate` knows."""
        ...

    async def aclose(self) -> None:
        """Let go of the connection, read to the end or not."""
        ...


@final
@attrs.define(eq=False)
class Connection:
    """A wire with the state of HTTP/1.1 on it."""

    wire: Wire
    http: h11.Connection = attrs.field(init=False)
    idle_since: float = 0.0

    def __attrs_post_init__(self) -> None:
        self.http = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_BYTES_MAX)


@lru_cache(maxsize=32)
def _stand_in(method: bytes) -> h11.Request:
    # All that h11 needs of a request in order to read its response is the method; the bytes are written by `Outgoing`.
    return h11.Request(method=method, target=b"/", headers=[(b"host", b"upstream")])


@final
@attrs.define(eq=False)
class PooledExchange:
    """An exchange that owns its connection until it is over."""

    _connection: Connection | None
    _keep: Callable[[Connection], None]
    """Takes the connection back when all ended well."""

    status: int = attrs.field(default=0, init=False)
    reason: bytes = attrs.field(default=b"", init=False)
    headers: list[tuple[bytes, bytes]] = attrs.field(factory=list, init=False)
    trailers: list[tuple[bytes, bytes]] = attrs.field(factory=list, init=False)
    answered: bool = attrs.field(default=False, init=False)
    """Whether a byte of a response has come."""
    _piece: bytes = attrs.field(default=b"", init=False)

    async def request(self, outgoing: Outgoing, head: bytes) -> None:
        """Send, and wait for the head. Raises OSError, EOFError, `h11.RemoteProtocolError`; then it is closed."""
        connection = self._connection
        assert connection is not None, "an exchange is used once"
        try:
            connection.http.send(_stand_in(outgoing.method))
            response = await self._upload(connection, head, outgoing.body)
            if response is None:
                connection.http.send(h11.EndOfMessage())
                response = await self._response(connection)
            self.status = response.status_code
            self.reason = response.reason
            self.headers = response.headers.raw_items()
            # A short answer came along with its head: then it is over, and the connection free, before anyone asks.
            self._piece = self._take(connection)
        except BaseException:
            self.close()
            raise

    @property
    def at_hand(self) -> bool:
        """Whether `receive` will return without waiting: a piece is there, or the end."""
        return bool(self._piece) or self._connection is None

    async def receive(self) -> bytes:
        """The next piece as it came; empty at the end. Raises as `request` does, and is closed then too."""
        piece, self._piece = self._piece, b""
        connection = self._connection
        if piece or connection is None:
            return piece
        try:
            while not piece and self._connection is not None:
                data = await connection.wire.receive()
                connection.http.receive_data(data)
                try:
                    piece = self._take(connection)
                except h11.RemoteProtocolError as exc:
                    if data:
                        raise
                    raise EOFError("the connection was closed before the end of the body") from exc
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
        """The same; nothing in it waits."""
        self.close()

    async def _upload(self, connection: Connection, head: bytes, body: bytes) -> h11.Response | None:
        """Write it all. Returns a response that came before the end; then the connection cannot be kept."""
        wire = connection.wire
        parts = (head + body,) if len(body) <= _JOINED_BYTES_MAX else (head, body)
        for part in parts:
            rest = memoryview(part)
            while rest:
                try:
                    taken = wire.send_now(rest)
                except OSError:
                    # It does not want the rest. Most often it has said why: 413, 429, 529.
                    return await self._response(connection)
                rest = rest[taken:]
                if taken:
                    continue
                await wire.room_or_word()
                data = wire.receive_now()
                if data is not None and (response := self._hear(connection, data)):
                    return response
        return None

    async def _response(self, connection: Connection) -> h11.Response:
        while True:
            if response := self._hear(connection, await connection.wire.receive()):
                return response

    def _hear(self, connection: Connection, data: bytes) -> h11.Response | None:
        """Take in what came; the response's head if it is complete. 1xx are passed over."""
        if not data:
            raise EOFError("the connection was closed before a response")
        self.answered = True
        connection.http.receive_data(data)
        for _ in range(_INFORMATIONAL_MAX):
            event = connection.http.next_event()
            if type(event) is h11.Response:
                return event
            if event is h11.NEED_DATA:
                return None
        raise h11.RemoteProtocolError("too many 1xx responses")

    def _take(self, connection: Connection) -> bytes:
        """All of the body that has come. At its end the connection goes its way."""
        http = connection.http
        pieces: list[bytes] = []
        while (event := http.next_event()) is not h11.NEED_DATA:
            if type(event) is h11.Data:
                pieces.append(event.data)
                continue
            assert type(event) is h11.EndOfMessage, event
            self.trailers = event.headers.raw_items()
            self._connection = None
            # Bytes behind the end belong to no request of ours: whatever they are, they are no answer to the next one.
            if http.our_state is http.their_state is h11.DONE and http.trailing_data == (b"", False):
                http.start_next_cycle()
                self._keep(connection)
            else:
                connection.wire.close()
            break
        return b"".join(pieces)

"""The idle connections of one origin: last in, first out."""

from __future__ import annotations

from collections import deque
from typing import final

import attrs
import trio

from .exchange import IdleConnection


@final
@attrs.define(eq=False)
class IdleStack:
    """Stack of idle connections: those used most stay warm, the others sink and expire.

    There is no timer: connections that have been idle for too long are closed when one is taken or put, so an origin
    that is not called any more keeps up to `_connections_max` of them until `close`, or until the provider hangs up.
    """

    _connections_max: int
    _expiry_s: float
    _closed: bool = attrs.field(default=False, init=False)
    _connections: deque[IdleConnection] = attrs.field(factory=deque, init=False)

    def take(self) -> IdleConnection | None:
        """Return the connection that was used last and can still be used. Amortised O(1)."""
        oldest = trio.current_time() - self._expiry_s
        while self._connections:
            connection = self._connections.pop()
            if connection.idle_since >= oldest and connection.wire.is_quiet():
                return connection
            connection.wire.close()
        return None

    def put(self, connection: IdleConnection) -> None:
        """Keep a connection whose exchange has ended well."""
        if self._closed:
            connection.wire.close()
            return
        connection.idle_since = trio.current_time()
        oldest = connection.idle_since - self._expiry_s
        self._connections.append(connection)
        while self._connections[0].idle_since < oldest or len(self._connections) > self._connections_max:
            self._connections.popleft().wire.close()
            if not self._connections:
                return

    def close(self) -> None:
        """Close what is idle, and whatever is put later."""
        self._closed = True
        while self._connections:
            self._connections.pop().wire.close()

    def __len__(self) -> int:
        return len(self._connections)

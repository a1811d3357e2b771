"""Our own transport: HTTP/1.1 on Trio, for many callers that are cancelled often.

httpcore's pool queues requests and scans every connection at every change. Here scheduling owns the number of
connections, so nothing ever waits for one: it is taken from a stack or opened. There are no locks, because nothing
between two checkpoints can be interrupted.
"""

from __future__ import annotations

import ssl
from typing import Final, final

import httpx2
import trio

from .attempt import AttemptDeadlines
from .errors import NotSent
from .exchange import IdleConnection, PooledExchange
from .httpx_adapter import answer
from .idle_connections import IdleStack
from .outgoing import Origin, OutgoingRequest, parse_base
from .wire import open_wire

IDLE_CONNECTIONS_MAX: Final = 256
"""Per origin; more than any cap on calls in flight that a policy is likely to have."""

IDLE_EXPIRY_S: Final = 30.0
"""Below the idle timeout of most front ends (nginx 75 s, cloud balancers 60 s and more). Servers that close sooner
(uvicorn, Node: 5 s) are noticed by their FIN before the connection is used."""

_IGNORE_UNEXPECTED_EOF: Final = getattr(ssl, "OP_IGNORE_UNEXPECTED_EOF", 0)
"""Absent from a Python that was built with OpenSSL 1.1.1, which does not ignore it."""

_SAFE: Final = frozenset({b"GET", b"HEAD", b"OPTIONS", b"TRACE"})


@final
class PoolTransport(httpx2.AsyncBaseTransport):
    """A stack of idle connections per origin; TLS verified against the system's certificate authorities.

    Follows no redirect, keeps no cookie, decodes nothing. `begin` is the lean way in, for `Upstream`;
    `handle_async_request` is httpx2's, so that `httpx2.AsyncClient(transport=PoolTransport())` works as well.
    """

    def __init__(
        self,
        *,
        tls: ssl.SSLContext | None = None,
        idle_connections_max: int = IDLE_CONNECTIONS_MAX,
        idle_expiry_s: float = IDLE_EXPIRY_S,
    ) -> None:
        self._tls = tls or ssl.create_default_context()
        self._tls.set_alpn_protocols(["http/1.1"])
        # Some builds of Python set it (Debian 12): a cut connection would pass for the end of a body without a length.
        self._tls.options &= ~_IGNORE_UNEXPECTED_EOF
        self._idle_connections_max = idle_connections_max
        self._idle_expiry_s = idle_expiry_s
        self._idle: dict[Origin, IdleStack] = {}
        self._closed = False

    async def begin(self, outgoing: OutgoingRequest, attempt: AttemptDeadlines) -> PooledExchange:
        """Send a request and wait for the head of its response.

        Raises OSError, EOFError and `h11.ProtocolError` for `translate`; then, or when cancelled, no connection is
        left behind. A POST is never sent twice. A safe request is, once, if the connection was an old one that ended
        without a byte of response: that is how a server's idle timeout looks from here.
        """
        head = outgoing.head()
        stack = self._stack(outgoing.base.origin)
        connection = stack.take()
        if connection is not None:
            _announce(attempt, connection, stack)
            exchange = PooledExchange(connection, stack.put)
            try:
                await exchange.request(outgoing, head)
            except (OSError, EOFError):
                if exchange.answered or outgoing.method not in _SAFE:
                    raise
            else:
                return exchange
        connection = IdleConnection(await open_wire(outgoing.base.origin, self._tls))
        _announce(attempt, connection, stack)
        exchange = PooledExchange(connection, stack.put)
        await exchange.request(outgoing, head)
        return exchange

    def close_origin(self, base: str) -> None:
        """Close the idle connections to a provider that is gone; those in use are closed when they are done with."""
        stack = self._idle.pop(parse_base(base).origin, None)
        if stack is not None:
            stack.close()

    def idle_connections(self, base: str) -> int:
        """Return the number of idle connections to the origin of this base URL."""
        stack = self._idle.get(parse_base(base).origin)
        return 0 if stack is None else len(stack)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """httpx2's way in. Gathers the request body first, and raises httpx2's exceptions."""
        return await answer(request, self.begin)

    async def aclose(self) -> None:
        """Close what is idle; what is in use is closed when it is done with, and nothing new begins."""
        self._closed = True
        for stack in self._idle.values():
            stack.close()
        await trio.lowlevel.checkpoint()

    def _stack(self, origin: Origin) -> IdleStack:
        if self._closed:
            raise RuntimeError("this transport is closed")
        stack = self._idle.get(origin)
        if stack is None:
            stack = self._idle[origin] = IdleStack(self._idle_connections_max, self._idle_expiry_s)
        return stack


def _announce(attempt: AttemptDeadlines, connection: IdleConnection, stack: IdleStack) -> None:
    """Say that a request is about to be written on a connection; if it may not be, another one can have that."""
    try:
        attempt.sending()
    except NotSent:
        stack.put(connection)
        raise

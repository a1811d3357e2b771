"""httpx2's own transport, for those who need an outgoing proxy or SOCKS."""

from __future__ import annotations

import ssl
from typing import Any, Final, final

import attrs
import httpx2

from .attempt import AttemptDeadlines
from .outgoing import OutgoingRequest
from .pool import IDLE_CONNECTIONS_MAX, IDLE_EXPIRY_S

_SENDING: Final = "http11.send_request_headers.started"


@final
class StockTransport(httpx2.AsyncHTTPTransport):
    """`AsyncHTTPTransport` as we need it: HTTP/1.1, no limit of its own, nothing from the environment.

    It costs three to four times what `PoolTransport` does for a call, and it is less strict. An unasked second answer
    in one packet with the first goes to the next request. An end of a TLS stream without close_notify passes for the
    end of a body that has no length. A server that answers early without reading on is not heard. Closing a TLS
    connection to a peer that has stopped reading may wait for it, and a TLS handshake that is cancelled leaves its
    socket to the garbage collector. Trailers are dropped. Idle connections to a provider that is gone stay until they
    expire.
    """

    def __init__(
        self,
        *,
        tls: ssl.SSLContext | None = None,
        outgoing_proxy: str | None = None,
        idle_connections_max: int = IDLE_CONNECTIONS_MAX,
        idle_expiry_s: float = IDLE_EXPIRY_S,
    ) -> None:
        super().__init__(
            verify=tls or ssl.create_default_context(),
            trust_env=False,
            http1=True,
            # Over HTTP/2 httpcore2 does not tell the upstream of a hang-up, and cancellation uses up its streams.
            http2=False,
            limits=httpx2.Limits(
                max_connections=None,
                max_keepalive_connections=idle_connections_max,
                keepalive_expiry=idle_expiry_s,
            ),
            proxy=outgoing_proxy,
        )


@final
@attrs.define(eq=False)
class StockExchange:
    """A response that came by way of httpx2's interface."""

    status: int
    headers: list[tuple[bytes, bytes]]
    _stream: httpx2.AsyncByteStream
    _pieces: Any  # mostly an async generator, which `AsyncByteStream.__aiter__` is not declared to return

    @property
    def trailers(self) -> list[tuple[bytes, bytes]]:
        """Not to be had: httpcore2 drops them."""
        return []

    @property
    def at_hand(self) -> bool:
        """Never known here."""
        return False

    async def receive(self) -> bytes:
        """Return the next piece as it came; empty at the end."""
        async for piece in self._pieces:
            if piece:
                return bytes(piece)
        return b""

    async def aclose(self) -> None:
        """Let go of the connection; httpcore2 shields what it has to wait for."""
        if hasattr(self._pieces, "aclose"):
            await self._pieces.aclose()
        await self._stream.aclose()


async def begin_stock(
    transport: httpx2.AsyncBaseTransport, outgoing: OutgoingRequest, attempt: AttemptDeadlines
) -> StockExchange:
    """As `PoolTransport.begin`, through any transport of httpx2's kind. Raises `httpx2.TransportError`."""
    outgoing.head()  # for its checks: what we refuse to say, no transport shall say

    async def trace(event: str, _info: object) -> None:
        if event == _SENDING:
            attempt.sending()

    if not isinstance(transport, httpx2.AsyncHTTPTransport):
        attempt.sending()  # it may not tell us when, so assume the worst from the start
    request = httpx2.Request(
        outgoing.method.decode(),
        outgoing.base.url,
        headers=[*outgoing.framing(), *outgoing.headers],
        stream=httpx2.ByteStream(bytes(outgoing.body)),
        extensions={"target": outgoing.target, "trace": trace},
    )
    request.method = outgoing.method.decode()  # httpx2 would have it in capitals
    response = await transport.handle_async_request(request)
    assert isinstance(response.stream, httpx2.AsyncByteStream)
    return StockExchange(response.status_code, response.headers.raw, response.stream, aiter(response.stream))

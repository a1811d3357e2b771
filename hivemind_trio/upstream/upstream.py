"""Requests to providers: bounded in time, byte for byte, and with one kind of error."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Self, final

import attrs
import httpx2

from hivemind_trio.policy import Timeouts

from .attempt import UNBOUNDED, AttemptDeadlines
from .errors import FOREIGN, Stage, UpstreamError, UpstreamErrorKind, translate
from .exchange import UpstreamExchange
from .httpx_transport import begin_stock
from .outgoing import Headers, OutgoingRequest, parse_base
from .pool import PoolTransport


@final
@attrs.define(eq=False)
class UpstreamResponse:
    """A response whose head has come. Iterate over it for the body, once."""

    status: int
    headers: list[tuple[bytes, bytes]]
    """In the order, in the case and as often as they came. Hop-by-hop headers included."""
    _exchange: UpstreamExchange
    _attempt: AttemptDeadlines

    @property
    def trailers(self) -> list[tuple[bytes, bytes]]:
        """Trailers of a chunked body that has been read to its end. Empty over the stock transport."""
        return self._exchange.trailers

    def pause(self) -> None:
        """Stop all timeouts but `total` until the caller asks for the next piece.

        A slow agent is not an idle provider.
        """
        self._attempt.handling()

    def opening(self) -> None:
        """Let `first-byte` run on in place of `idle`, until `opened`: the head alone says nothing."""
        self._attempt.opening()

    def opened(self) -> None:
        """Note that the answer has begun; from here on `idle` holds."""
        self._attempt.opened()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        """Return the next piece as soon as it has come: transfer-coding undone, content-encoding not."""
        if not self._exchange.at_hand:
            self._attempt.reading()
        try:
            piece = await self._exchange.receive()
        except FOREIGN as exc:
            raise translate(exc, Stage.HEADED) from exc
        if not piece:
            raise StopAsyncIteration
        return piece


@final
class Upstream:
    """The way to all providers, over a transport of ours or of httpx2's."""

    def __init__(self, transport: httpx2.AsyncBaseTransport) -> None:
        self._transport = transport
        self._reached: set[str] = set()

    def has_reached(self, base: str) -> bool:
        """Return whether a provider has ever answered, if only with an error."""
        return base in self._reached

    @asynccontextmanager
    async def send(
        self,
        *,
        base: str,
        method: str,
        target: bytes,
        headers: Headers,
        body: bytes | bytearray,
        timeouts: Timeouts = UNBOUNDED,
        may_send: Callable[[], bool] | None = None,
        version_in_base: bool = False,
    ) -> AsyncIterator[UpstreamResponse]:
        """Send one request; the context is the response, and leaving it ends the exchange, read or not.

        Args:
            base: An absolute URL; its path is put before the target.
            target: Path and query of the call; a version that the base URL has as well is not said twice.
            headers: End-to-end headers only. `Host` and `Content-Length` are set here.
            timeouts: `connect` until there is a connection, `first-byte` from then until the response's head, or until
                the caller says `opened` if it has said `opening`, `idle` from one piece to the next unless the caller
                says `pause`, `total` for all of it and what the caller does within the context.
                Without them the caller sees to it that it ends.
            may_send: Asked once there is a connection, right before the request is written; None: it may be sent.
            version_in_base: As in `Base.joined`.

        Raises:
            UpstreamError: And nothing else that has to do with the provider. A deadline ends what the caller does
                within the context and becomes an error when the context is left, so catch it outside.
            NotSent: It may not be sent any more.
        """
        attempt = AttemptDeadlines(timeouts, may_send)
        with attempt.scope:
            exchange = await self._begin(base, method, target, headers, body, attempt, version_in_base=version_in_base)
            attempt.headed()
            self._reached.add(base)
            try:
                yield UpstreamResponse(exchange.status, exchange.headers, exchange, attempt)
            finally:
                await exchange.aclose()
        if attempt.scope.cancelled_caught:
            raise attempt.overdue()

    def close_origin(self, base: str) -> None:
        """Close idle connections to a provider that is gone. The stock transport's close when they expire."""
        if isinstance(self._transport, PoolTransport):
            self._transport.close_origin(base)

    async def aclose(self) -> None:
        """Close the transport."""
        await self._transport.aclose()

    async def _begin(
        self,
        base: str,
        method: str,
        target: bytes,
        headers: Headers,
        body: bytes | bytearray,
        attempt: AttemptDeadlines,
        *,
        version_in_base: bool,
    ) -> UpstreamExchange:
        try:
            place = parse_base(base)
        except ValueError as exc:
            raise UpstreamError(UpstreamErrorKind.CONNECT, f"connect: {exc}", sent=False) from exc
        if not target.startswith(b"/"):
            raise UpstreamError(UpstreamErrorKind.PROTOCOL, "protocol: a target begins with `/`", sent=False)
        path = place.joined(target, version_in_base=version_in_base)
        outgoing = OutgoingRequest(place, method.encode(), path, headers, body)
        try:
            if isinstance(self._transport, PoolTransport):
                return await self._transport.begin(outgoing, attempt)
            return await begin_stock(self._transport, outgoing, attempt)
        except FOREIGN as exc:
            raise translate(exc, attempt.stage) from exc

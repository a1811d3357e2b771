"""The pool as httpx2 knows transports: its requests, responses, timeouts and exceptions."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Self, TypeAlias, final

import attrs
import httpx2
import trio

from hivemind_trio.policy import Timeouts

from .attempt import UNBOUNDED, AttemptDeadlines
from .errors import FOREIGN, Stage, UpstreamError, UpstreamErrorKind, translate
from .exchange import PooledExchange
from .outgoing import Base, OutgoingRequest, origin_of

Begin: TypeAlias = Callable[[OutgoingRequest, AttemptDeadlines], Awaitable[PooledExchange]]

_OURS: Final = frozenset({b"host", b"content-length", b"transfer-encoding", b"connection", b"upgrade"})
_NS_PER_S: Final = 1_000_000_000

_AS_HTTPX2: Final[Mapping[UpstreamErrorKind, type[httpx2.TransportError]]] = {
    UpstreamErrorKind.CONNECT: httpx2.ConnectError,
    UpstreamErrorKind.TLS: httpx2.ConnectError,
    UpstreamErrorKind.RESET: httpx2.ReadError,
    UpstreamErrorKind.FIRST_BYTE: httpx2.ReadTimeout,
    UpstreamErrorKind.IDLE: httpx2.ReadTimeout,
    UpstreamErrorKind.TOTAL: httpx2.ReadTimeout,
    UpstreamErrorKind.PROTOCOL: httpx2.RemoteProtocolError,
    UpstreamErrorKind.TRUNCATED: httpx2.RemoteProtocolError,
}


async def answer(request: httpx2.Request, begin: Begin) -> httpx2.Response:
    """Run httpx2's request through the pool, one way in for two kinds of caller."""
    assert isinstance(request.stream, httpx2.AsyncByteStream)
    authority = request.headers.get("host", "").encode() or request.url.netloc
    outgoing = OutgoingRequest(
        base=Base(origin_of(request.url), authority, b"", request.url),
        method=request.method.encode(),
        target=request.extensions.get("target", request.url.raw_path),
        headers=[(name, value) for name, value in request.headers.raw if name.lower() not in _OURS],
        body=b"".join([chunk async for chunk in request.stream]),
    )
    timeouts = request.extensions.get("timeout", {})
    attempt = AttemptDeadlines(_timeouts(timeouts.get("connect"), timeouts.get("read")))
    with attempt.scope:
        try:
            exchange = await begin(outgoing, attempt)
        except FOREIGN as exc:
            raise _as_httpx2(translate(exc, attempt.stage)) from exc
    if attempt.scope.cancelled_caught:
        if attempt.stage is Stage.CONNECTING:
            raise httpx2.ConnectTimeout("no connection in time")
        raise httpx2.ReadTimeout("no response head in time")
    return httpx2.Response(
        exchange.status,
        headers=exchange.headers,
        stream=_BodyStream(exchange, timeouts.get("read")),
        extensions={"http_version": b"HTTP/1.1", "reason_phrase": exchange.reason},
    )


@final
@attrs.define(eq=False)
class _BodyStream(httpx2.AsyncByteStream):
    _exchange: PooledExchange
    _read_timeout_s: float | None

    # Not a generator: a client that leaves a body early would leave that to the garbage collector.
    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        with trio.move_on_after(math.inf if self._read_timeout_s is None else self._read_timeout_s) as scope:
            try:
                piece = await self._exchange.receive()
            except FOREIGN as exc:
                raise _as_httpx2(translate(exc, Stage.HEADED)) from exc
        if scope.cancelled_caught:
            raise httpx2.ReadTimeout("the body stopped coming")
        if not piece:
            raise StopAsyncIteration
        return piece

    async def aclose(self) -> None:
        await self._exchange.aclose()


def _timeouts(connect_s: float | None, read_s: float | None) -> Timeouts:
    read_ns = UNBOUNDED.first_byte_ns if read_s is None else int(read_s * _NS_PER_S)
    return attrs.evolve(
        UNBOUNDED,
        connect_ns=UNBOUNDED.connect_ns if connect_s is None else int(connect_s * _NS_PER_S),
        first_byte_ns=read_ns,
    )


def _as_httpx2(error: UpstreamError) -> httpx2.TransportError:
    return _AS_HTTPX2[error.kind](error.message)

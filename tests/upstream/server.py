"""A correct HTTP/1.1 server on Trio and h11 that remembers what it saw. Its answers say whose they are."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TypeAlias, final

import attrs
import h11
import trio

from tests.support.relay import HOST, Accepting

Headers: TypeAlias = list[tuple[bytes, bytes]]


@final
@attrs.define(eq=False)
class Seen:
    """A request as the server received it, and the means to answer it."""

    method: bytes
    target: bytes
    headers: Headers
    """As on the wire."""
    body: bytes
    connection: int
    """The number of the connection that it came by, 0 for the first."""
    _http: h11.Connection
    _stream: trio.abc.Stream

    def header(self, name: bytes) -> bytes:
        return next((value for key, value in self.headers if key.lower() == name), b"")

    async def say(self, event: h11.Event) -> None:
        await self._stream.send_all(self._http.send(event) or b"")

    async def head(self, status: int = 200, headers: Headers | None = None) -> None:
        """Without a length among the headers the body is chunked."""
        await self.say(h11.Response(status_code=status, headers=headers or []))

    async def piece(self, data: bytes) -> None:
        await self.say(h11.Data(data))

    async def end(self) -> None:
        await self.say(h11.EndOfMessage())

    async def raw(self, data: bytes) -> None:
        """Bytes that h11 knows nothing of."""
        await self._stream.send_all(data)

    async def hang_up(self) -> None:
        """An orderly end, announced by TLS if it is TLS, though the response promised that one could go on."""
        await self._stream.aclose()

    async def cut(self) -> None:
        """The end of the TCP connection; TLS, if it is TLS, announces nothing."""
        stream = self._stream
        await (stream.transport_stream if isinstance(stream, trio.SSLStream) else stream).aclose()

    @property
    def tls(self) -> trio.SSLStream[trio.SocketStream]:
        assert isinstance(self._stream, trio.SSLStream)
        return self._stream

    async def plain(self, body: bytes, status: int = 200, headers: Headers | None = None) -> None:
        """A response in one segment, as most servers send it."""
        length = [(b"content-length", b"%d" % len(body))]
        events = (
            h11.Response(status_code=status, headers=[*(headers or []), *length]),
            h11.Data(body),
            h11.EndOfMessage(),
        )
        await self._stream.send_all(b"".join([self._http.send(event) or b"" for event in events]))


App: TypeAlias = Callable[[Seen], Awaitable[None]]


@final
@attrs.define(eq=False)
class Server(Accepting):
    """A running server and what it was asked."""

    seen: list[Seen] = attrs.field(factory=list)


@asynccontextmanager
async def serve(app: App, *, tls: ssl.SSLContext | None = None, remember: bool = True) -> AsyncIterator[Server]:
    listeners = await trio.open_tcp_listeners(0, host=HOST)
    server = Server(listeners[0].socket.getsockname()[1], "https" if tls else "http")

    async def connection(plain: trio.SocketStream) -> None:
        stream: trio.abc.Stream = trio.SSLStream(plain, tls, server_side=True, https_compatible=True) if tls else plain
        gone = (trio.BrokenResourceError, trio.ClosedResourceError, h11.ProtocolError)
        with server.connection() as number, suppress(*gone):
            try:
                await _exchanges(stream, app, number, server.seen if remember else None)
            finally:
                await trio.aclose_forcefully(stream)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, connection, listeners)
        yield server
        nursery.cancel_scope.cancel()


async def _exchanges(stream: trio.abc.Stream, app: App, number: int, seen: list[Seen] | None) -> None:
    http = h11.Connection(h11.SERVER)
    while True:
        request: h11.Request | None = None
        body = bytearray()
        while True:
            event = http.next_event()
            if event is h11.NEED_DATA:
                http.receive_data(bytes(await stream.receive_some(65536)))
            elif isinstance(event, h11.Request):
                request = event
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                break
            else:
                return
        assert request is not None
        arrived = Seen(request.method, request.target, request.headers.raw_items(), bytes(body), number, http, stream)
        if seen is not None:
            seen.append(arrived)
        await app(arrived)
        if http.our_state is not h11.DONE or http.their_state is not h11.DONE:
            return
        http.start_next_cycle()


async def echo(seen: Seen) -> None:
    """What came, as JSON, so that a client can tell its own answer from another's."""
    said = {
        "method": seen.method.decode(),
        "target": seen.target.decode(),
        "headers": [[name.decode("latin-1"), value.decode("latin-1")] for name, value in seen.headers],
        "body": seen.body.decode("latin-1"),
        "connection": seen.connection,
    }
    await seen.plain(json.dumps(said).encode())

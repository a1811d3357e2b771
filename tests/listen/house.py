"""A listener on a real loopback socket, clients that talk bytes, and apps with one habit each."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import h11
import trio
import trio.testing

from hivemind_trio.listen import App, Bounds, Listener, Receive, Scope, Send, bind

GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"


def post(body: bytes, *headers: bytes) -> bytes:
    lines = [b"POST / HTTP/1.1", b"host: x", b"content-length: %d" % len(body), *headers]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


@attrs.define(eq=False)
class Client:
    """One connection and an h11 to read the answers with."""

    stream: trio.SocketStream
    h11: h11.Connection = attrs.field(factory=lambda: h11.Connection(h11.CLIENT))

    async def say(self, data: bytes) -> None:
        await self.stream.send_all(data)

    async def raw(self, size: int = 65536) -> bytes:
        return bytes(await self.stream.receive_some(size))

    async def rest(self) -> bytes:
        """Everything until the end; raises `trio.BrokenResourceError` when that is a reset."""
        return b"".join([bytes(piece) async for piece in self.stream])

    async def answer(self, method: bytes = b"GET") -> tuple[int, list[tuple[bytes, bytes]], bytes]:
        """The next answer, whole; raises `h11.RemoteProtocolError` when it ends before that."""
        if self.h11.our_state is not h11.IDLE:
            self.h11.start_next_cycle()
        self.h11.send(h11.Request(method=method, target=b"/", headers=[(b"host", b"x")]))
        self.h11.send(h11.EndOfMessage())
        status, headers, body = 0, [], b""
        while True:
            event = self.h11.next_event()
            if event is h11.NEED_DATA:
                self.h11.receive_data(await self.raw())
            elif isinstance(event, h11.Response):
                status, headers = event.status_code, event.headers.raw_items()
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                return status, headers, body

    async def ask(self, data: bytes = GET) -> tuple[int, bytes]:
        await self.say(data)
        status, _, body = await self.answer()
        return status, body


@attrs.define(eq=False)
class House:
    listener: Listener
    port: int
    reports: list[str]
    nursery: trio.Nursery
    clients: list[Client] = attrs.field(factory=list)

    async def client(self) -> Client:
        self.clients.append(Client(await trio.open_tcp_stream("127.0.0.1", self.port)))
        return self.clients[-1]

    async def emptied(self) -> None:
        """Until no connection is left; the clock has to be one that jumps."""
        for _ in range(1_000):
            if not self.listener.connections:
                return
            await trio.sleep(10)
        raise AssertionError(f"{self.listener.connections} connections are left")


@asynccontextmanager
async def serving(app: App, bounds: Bounds | None = None) -> AsyncIterator[House]:
    reports: list[str] = []
    sockets = bind("127.0.0.1", 0)
    listener = Listener(app, bounds, report=lambda fault, detail, error: reports.append(f"{fault}: {detail}"))
    async with trio.open_nursery() as nursery:
        await nursery.start(listener.run, sockets)
        house = House(listener, sockets[0].getsockname()[1], reports, nursery)
        # A wait that would never end fails instead. By a clock that jumps, the bound is beyond what any test waits for.
        jumps = isinstance(trio.lowlevel.current_clock(), trio.testing.MockClock)
        try:
            with trio.fail_after(10**7 if jumps else 60):
                yield house
        finally:
            for client in house.clients:
                client.stream.socket.close()
            nursery.cancel_scope.cancel()


async def respond(send: Send, body: bytes = b"ok", status: int = 200) -> None:
    headers = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def body_of(receive: Receive) -> bytes | None:
    """None when the client hung up before the end."""
    body: bytes = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message["body"]
        if not message["more_body"]:
            return body


async def echoes(scope: Scope, receive: Receive, send: Send) -> None:
    """Reads the whole body and sends it back; refuses WebSockets."""
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close"})
    elif (body := await body_of(receive)) is not None:
        await respond(send, body)


async def refuses(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers 429 without having read anything."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.close"})
    else:
        await respond(send, b"later", 429)


async def listens(scope: Scope, receive: Receive, send: Send) -> None:
    """Accepts everything and says nothing until the client hangs up."""
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
    else:
        await send({"type": "http.response.start", "status": 200, "headers": []})
    while not (await receive())["type"].endswith(".disconnect"):
        pass


def header(headers: list[tuple[bytes, bytes]], name: bytes) -> list[bytes]:
    return [value for key, value in headers if key.lower() == name]

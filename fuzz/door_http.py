"""The agents' door against any bytes of one client.

Invariant: whatever a client sends, in whatever pieces, its connection ends when it leaves, no task stays behind, the
next client is served, and in HTTP/1.1 nothing is reported: a report would be an exception in our own code.

The first byte chooses the app's habit and whether the client half-closes; the second how the rest is cut.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import trio
import trio.testing

from hivemind_trio.listen import Bounds, Listener, Receive, Scope, Send, bind

BOUNDS = Bounds(header_bytes=2_000, body_buffer_bytes=1_000, linger_ns=10**9)
GOOD = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"

# What a mutator starts from.
SEEDS = (
    b"\x00\xff" + GOOD,
    b"\x01\x09POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\nabc" + GOOD,
    b"\x02\x05POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n" + GOOD,
    b"\x04\xffPOST / HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 3\r\n\r\nabc",
    b"\x01\xffGET / HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-version: 13\r\n"
    b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    b"\x00\xffPRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"
    b"\x00\x00\x04\x01\x05\x00\x00\x00\x01\x82\x84\x86\x01",
)


def one_input(data: bytes) -> None:
    trio.run(_visit, data, clock=trio.testing.MockClock(autojump_threshold=0.01))


async def _visit(data: bytes) -> None:
    habit, width, said = data[0] if data else 0, (data[1] if len(data) > 1 else 0) + 1, data[2:]
    served: list[str] = []
    reports: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        served.append(scope["type"] + scope.get("http_version", ""))
        await (_reads, _refuses)[habit & 1](scope, receive, send)

    sockets = bind("127.0.0.1", 0)
    listener = Listener(app, BOUNDS, report=lambda fault, detail, _: reports.append(f"{fault}: {detail}"))
    async with trio.open_nursery() as nursery:
        await nursery.start(listener.run, sockets)
        address = sockets[0].getsockname()
        before = trio.lowlevel.current_statistics().tasks_living

        async with await trio.open_tcp_stream(*address[:2]) as client:
            try:
                for piece in _cut(said, width):
                    await client.send_all(piece)
                    await trio.testing.wait_all_tasks_blocked()
                if habit & 2:
                    await client.send_eof()
                with trio.move_on_after(0.1):
                    async for _ in client:
                        pass
            except trio.BrokenResourceError:
                pass  # it was told to go
        async with await trio.open_tcp_stream(*address[:2]) as good:
            await good.send_all(GOOD)
            heard = b"".join([bytes(piece) async for piece in good])
        for _ in range(100):
            if listener.connections:
                await trio.sleep(10)
        await trio.testing.wait_all_tasks_blocked()

        assert heard.startswith(b"HTTP/1.1 "), heard
        assert listener.connections == 0
        assert trio.lowlevel.current_statistics().tasks_living == before
        if set(served) <= {"http1.0", "http1.1"} and b"PRI " not in said[:8]:
            assert not reports, reports
        nursery.cancel_scope.cancel()


def _cut(said: bytes, width: int) -> Iterator[bytes]:
    """At most forty pieces, so that an input costs milliseconds."""
    width = max(width, len(said) // 40 + 1)
    for start in range(0, len(said), width):
        yield said[start : start + width]


async def _reads(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        while (await receive())["type"] != "websocket.disconnect":
            pass
        return
    while (message := await receive())["type"] == "http.request":
        if not message["more_body"]:
            await _refuses(scope, receive, send)
            return


async def _refuses(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close"})
        return
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


if __name__ == "__main__":
    for path in sys.argv[1:]:
        with open(path, "rb") as file:
            one_input(file.read())
    if not sys.argv[1:]:
        for seed in SEEDS:
            one_input(seed)

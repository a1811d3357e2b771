"""The provider of the overhead bench: raw Trio sockets and prebuilt bytes, because its cost is not the question.

Run as `python -m bench.load.provider`; prints its port. What it answers is up to the model in the request, see
`Answer`.
"""

from __future__ import annotations

import re
import sys
from typing import Final

import trio

from .wire import FLOOD, FLOOD_BYTES, NOT_FOUND, STREAM_END, Answer, answer, body_length, event, stream_head

FEW_BYTES: Final = 512 * 1024
"""A longer body is not kept whole."""

ANSWER: Final = answer()
STREAM_HEAD: Final = stream_head()
EVENT: Final = event()
MODEL: Final = re.compile(rb'"model": ?"bench-([a-z]+)(?:-(\d+))?(?:-(\d+))?"')


async def converse(connection: trio.SocketStream) -> None:
    """Answer one connection until it ends."""
    try:
        rest = b""
        while True:
            rest, asked = await _request(connection.socket, rest)
            await _answer(connection, asked)
    except (OSError, EOFError, trio.BrokenResourceError):
        pass  # reset, or gone: the load ends by closing, and so do proxies
    finally:
        connection.socket.close()


async def _request(sock: trio.socket.SocketType, rest: bytes) -> tuple[bytes, re.Match[bytes] | None]:
    """The next request's model; None: it names none. And what came behind it. EOFError at the end."""
    while (end := rest.find(b"\r\n\r\n")) < 0:
        rest += await _more(sock)
    head = rest[: end + 2].lower()
    if b"\r\ntransfer-encoding:" in head:
        while not rest.endswith(b"0\r\n\r\n"):
            rest += await _more(sock)
        size = len(rest)
    else:
        size = end + 4 + (body_length(head) or 0)
        if size > FEW_BYTES:
            return await _long(sock, rest, end, size)
        while len(rest) < size:
            rest += await _more(sock)
    # Ours and those that leave the body alone have it at the beginning, and it is not looked for any further.
    return rest[size:], MODEL.search(rest, end + 4, size)


async def _long(sock: trio.socket.SocketType, rest: bytes, end: int, size: int) -> tuple[bytes, re.Match[bytes] | None]:
    """The same for a long body, which is not kept: to put 50 MB together holds up the answers to others for long."""
    while len(rest) < min(size, FEW_BYTES):
        rest += await _more(sock)
    asked = MODEL.search(rest, end + 4, size)
    left = size - len(rest)
    while left > 0:
        rest = await _more(sock)
        left -= len(rest)
    return rest[len(rest) + left :], asked


async def _more(sock: trio.socket.SocketType) -> bytes:
    data = await sock.recv(65536)
    if not data:
        raise EOFError
    return data


async def _answer(connection: trio.SocketStream, asked: re.Match[bytes] | None) -> None:
    if asked is None:
        await connection.send_all(NOT_FOUND)  # LiteLLM asks for the models
        return
    kind, first, second = Answer(asked[1].decode()), int(asked[2] or 0), int(asked[3] or 0)
    match kind:
        case Answer.JSON:
            if first:
                await trio.sleep(first / 1e3)
            await connection.send_all(ANSWER)
        case Answer.HOLD:
            await trio.sleep_forever()
        case Answer.STREAM:
            await connection.send_all(STREAM_HEAD)
            for _ in range(first):
                await trio.sleep(second / 1e3)
                await connection.send_all(EVENT)
            await connection.send_all(STREAM_END)
        case Answer.FLOOD:
            await connection.send_all(STREAM_HEAD)
            for _ in range(first * 1_000_000 // FLOOD_BYTES):
                await connection.send_all(FLOOD)
            await connection.send_all(STREAM_END)


async def main() -> None:
    """Serve until killed."""
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1", backlog=4096)
    print(listeners[0].socket.getsockname()[1], flush=True)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, converse, listeners)
        # Whoever started us holds the other end of standard input: when they are gone, so are we.
        await trio.to_thread.run_sync(sys.stdin.read, abandon_on_cancel=True)
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main)

"""The provider of the overhead bench: raw Trio sockets and prebuilt bytes, because its cost is not the question.

Run as `python -m bench._provider`; prints its port. What it answers is up to the model in the request: `bench-json`,
`bench-stream-N` (N events, 5 ms apart), `bench-hold` (nothing, ever).
"""

from __future__ import annotations

import re
import sys

import trio

from ._wire import EVENT_GAP_S, STREAM_END, answer, body_length, event, stream_head

ANSWER = answer()
STREAM_HEAD = stream_head()
EVENT = event()
MODEL = re.compile(rb'"model": ?"bench-(json|hold|stream-(\d+))"')


async def converse(connection: trio.SocketStream) -> None:
    """Answer one connection until it ends."""
    sock = connection.socket
    rest = b""
    try:
        while True:
            while (end := rest.find(b"\r\n\r\n")) < 0:
                data = await sock.recv(65536)
                if not data:
                    return
                rest += data
            length = body_length(rest[: end + 2])
            assert length is not None, "this provider reads no chunked requests"
            size = end + 4 + length
            while len(rest) < size:
                data = await sock.recv(65536)
                if not data:
                    return
                rest += data
            asked = MODEL.search(rest, end + 4, end + 104)
            assert asked is not None, rest[end + 4 : end + 104]
            rest = rest[size:]
            if asked[1] == b"json":
                await connection.send_all(ANSWER)
            elif asked[1] == b"hold":
                await trio.sleep_forever()
            else:
                await connection.send_all(STREAM_HEAD)
                for _ in range(int(asked[2])):
                    await trio.sleep(EVENT_GAP_S)
                    await connection.send_all(EVENT)
                await connection.send_all(STREAM_END)
    except (OSError, trio.BrokenResourceError):
        pass  # reset, or gone: the load ends by closing, and so do proxies
    finally:
        sock.close()


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

"""The load of the overhead bench: closed loops over kept-alive connections, on raw Trio sockets."""

from __future__ import annotations

import time
from typing import Final, final

import attrs
import trio

from ._wire import body_length


@final
@attrs.frozen(kw_only=True)
class Sample:
    """What one burst of calls came to."""

    latency_ns: list[int]
    """Per call, from the first byte sent to the last received."""
    first_byte_ns: list[int]
    wall_ns: int
    failed: int
    """Calls that got another status than 200, or no answer."""

    @property
    def calls(self) -> int:
        return len(self.latency_ns)

    @property
    def per_second(self) -> float:
        return self.calls * 1e9 / self.wall_ns


@attrs.define(eq=False)
class Client:
    """One connection, opened when it is needed."""

    port: int
    _sock: trio.socket.SocketType | None = attrs.field(init=False, default=None)

    async def call(self, request: bytes) -> tuple[int, int]:
        """One call; time to the first byte and to the last. Raises OSError for anything but a whole 200."""
        if self._sock is None:
            self._sock = trio.socket.socket()
            self._sock.setsockopt(trio.socket.IPPROTO_TCP, trio.socket.TCP_NODELAY, 1)
            await self._sock.connect(("127.0.0.1", self.port))
        sock = self._sock
        began = time.perf_counter_ns()
        left = memoryview(request)
        while left:
            left = left[await sock.send(left) :]
        got = await sock.recv(65536)
        first = time.perf_counter_ns() - began
        while got and (end := got.find(b"\r\n\r\n")) < 0:
            got += await self._more(sock)
        if not got:
            self.close()
            raise OSError("closed without an answer")
        head = got[: end + 2]
        length = body_length(head)
        if length is not None:
            left_over = end + 4 + length - len(got)
            while left_over > 0:
                left_over -= len(await self._more(sock))
        else:
            tail = got[end + 4 :][-5:]
            while tail != b"0\r\n\r\n":
                tail = (tail + await self._more(sock))[-5:]
        whole = time.perf_counter_ns() - began
        if b"connection: close" in head.lower():
            self.close()
        if not head.startswith(b"HTTP/1.1 200"):
            raise OSError(head[:60].decode("latin-1"))
        return first, whole

    async def _more(self, sock: trio.socket.SocketType) -> bytes:
        data = await sock.recv(65536)
        if not data:
            self.close()
            raise OSError("closed within an answer")
        return data

    def close(self) -> None:
        """Idempotent."""
        if self._sock is not None:
            self._sock.close()
            self._sock = None


BURST_S: Final = 4.0
"""After this no further call is begun, however many are left: a slow subject must not make a run last for hours."""


async def closed_loop(port: int, request: bytes, *, clients: int, calls: int) -> Sample:
    """`calls` calls in all by so many clients, each asking again when it has its answer.

    Each makes one more at first, which opens the connections at both ends of the proxy and is not in the sample.
    """
    latency_ns: list[int] = []
    first_byte_ns: list[int] = []
    failed = left = 0
    ends_s = 0.0

    async def one(client: Client) -> None:
        nonlocal left, failed
        while left > 0 and trio.current_time() < ends_s:
            left -= 1
            try:
                first, whole = await client.call(request)
            except OSError:
                failed += 1
            else:
                first_byte_ns.append(first)
                latency_ns.append(whole)

    crowd = [Client(port) for _ in range(clients)]
    left, ends_s = clients, trio.current_time() + BURST_S
    async with trio.open_nursery() as nursery:
        for client in crowd:
            nursery.start_soon(one, client)
    latency_ns.clear()
    first_byte_ns.clear()
    failed, left, ends_s = 0, calls, trio.current_time() + BURST_S
    began = time.perf_counter_ns()
    async with trio.open_nursery() as nursery:
        for client in crowd:
            nursery.start_soon(one, client)
    wall_ns = time.perf_counter_ns() - began
    for client in crowd:
        client.close()
    return Sample(latency_ns=latency_ns, first_byte_ns=first_byte_ns, wall_ns=wall_ns, failed=failed)

"""The load of the overhead bench, on raw Trio sockets: connections, closed loops, and an open one."""

from __future__ import annotations

import time
from typing import Final, final

import attrs
import trio

from .wire import body_length


@final
@attrs.frozen(kw_only=True)
class Sample:
    """What one burst of calls came to."""

    latency_ns: list[int]
    """Per call, from when it was to be sent to the last byte received."""
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

    async def send(self, request: bytes) -> trio.socket.SocketType:
        """Ask, and leave it at that."""
        if self._sock is None:
            self._sock = trio.socket.socket()
            self._sock.setsockopt(trio.socket.IPPROTO_TCP, trio.socket.TCP_NODELAY, 1)
            await self._sock.connect(("127.0.0.1", self.port))
        left = memoryview(request)
        while left:
            left = left[await self._sock.send(left) :]
        return self._sock

    async def call(self, request: bytes) -> tuple[int, int]:
        """One call; time to the first byte and to the last. Raises OSError for anything but a whole 200."""
        if self._sock is None:
            await self.send(b"")  # connecting is not what is timed
        began = time.perf_counter_ns()
        sock = await self.send(request)
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


BURST_S: Final = 3.0
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


OPEN_CALLS_MAX: Final = 2_000
"""Of an open loop at the same time; whoever comes beyond it has failed. No subject that keeps up comes near it."""


async def open_loop(port: int, request: bytes, *, per_second: float, seconds: float) -> Sample:
    """Calls that come evenly, whether or not the ones before them have been answered.

    In the sample is what was answered within the time; of the others nothing is waited for. Latency counts from when a
    call was due, so that a load which falls behind does not flatter whom it is put on.
    """
    latency_ns: list[int] = []
    first_byte_ns: list[int] = []
    failed = under_way = 0
    resting: list[Client] = []

    async def one(due_s: float) -> None:
        nonlocal failed, under_way
        under_way += 1
        client = resting.pop() if resting else Client(port)
        try:
            late_ns = round((trio.current_time() - due_s) * 1e9)
            first, whole = await client.call(request)
        except OSError:
            failed += 1
            client.close()
        except trio.Cancelled:
            client.close()
            raise
        else:
            first_byte_ns.append(late_ns + first)
            latency_ns.append(late_ns + whole)
            resting.append(client)
        finally:
            under_way -= 1

    began_s = trio.current_time()
    async with trio.open_nursery() as nursery:
        for number in range(round(per_second * seconds)):
            due_s = began_s + number / per_second
            await trio.sleep_until(due_s)
            if trio.current_time() >= began_s + seconds:
                break  # the load itself cannot keep up
            if under_way < OPEN_CALLS_MAX:
                nursery.start_soon(one, due_s)
            else:
                failed += 1
        await trio.sleep_until(began_s + seconds)
        wall_ns = round((trio.current_time() - began_s) * 1e9)
        in_time = len(latency_ns)
        nursery.cancel_scope.cancel()
    for client in resting:
        client.close()
    return Sample(
        latency_ns=latency_ns[:in_time], first_byte_ns=first_byte_ns[:in_time], wall_ns=wall_ns, failed=failed
    )

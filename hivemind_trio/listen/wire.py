"""Bytes of accepted connections, without HTTP.

Writing tries the socket first and waits only when the socket is full. Waiting can be cancelled and is bounded; either
way of giving up leaves half a message behind, so it takes the connection along.
"""

from __future__ import annotations

import math
import select
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Final, final

import attrs
import trio

READ_BYTES: Final = 64 * 1024
_SLICE_BYTES: Final = 64 * 1024
_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)
_AT_ONCE: Final = 256
"""Sockets that are dealt with in one turn of the loop: no more than a listener refuses."""


@final
class InboundWire:
    """A non-blocking socket that says once that it has closed.

    Args:
        sock: Accepted, non-blocking; this object closes it.
        patience_s: For each 64 KiB that the peer does not take.
        flusher: Sends what was held back and not followed by anything.
        on_closed: Called once, synchronously, whoever closed it.
        begun: Bytes that were read of it already.
    """

    def __init__(
        self,
        sock: socket.socket,
        patience_s: float,
        flusher: Flusher,
        on_closed: Callable[[], None],
        begun: bytes = b"",
    ) -> None:
        self.closed = False
        self._sock = sock
        self._patience_s = patience_s
        self._flusher = flusher
        self._on_closed = on_closed
        self._held = b""
        self._begun = begun
        self._turn = trio.Lock()

    async def read(self) -> bytes:
        """Return the next piece; empty when the peer is done, gone, or we closed."""
        if self._begun:
            begun, self._begun = self._begun, b""
            return begun
        while not self.closed:
            try:
                await trio.lowlevel.wait_readable(self._sock)
                return self._sock.recv(READ_BYTES)
            except BlockingIOError:
                continue
            except (OSError, trio.ClosedResourceError):
                break
        return b""

    async def read_shared(self, shared: SharedPoll, is_dealt_with: Callable[[bytes], bool]) -> bytes:
        """Return the same, waiting together with other connections."""
        if self._begun or self.closed:
            return await self.read()
        return await shared.receive(self._sock, is_dealt_with)

    def has_unread(self) -> bool:
        """Return True if the peer has sent what was not read yet."""
        if self.closed:
            return False
        try:
            return bool(self._begun or self._sock.recv(1, socket.MSG_PEEK))
        except OSError:
            return False

    def hold(self, data: bytes) -> None:
        """Send `data` together with the next write if that comes before this task next waits, else by itself."""
        self._held += data
        self._flusher.remind(self)

    async def write(self, data: bytes) -> None:
        """Send everything. Nothing is raised when the peer is gone: who reads is told.

        Not a checkpoint while the socket takes all of it, and no cancellation is noticed before the first attempt:
        what was serialised for the peer must reach it, or the connection must end.
        """
        if self._turn.locked():
            # Whoever has the turn sends this too. Waiting for its end is only for the sake of back-pressure, and can
            # be cancelled without harm.
            self._held += data
            async with self._turn:
                return
        if self._held:
            data = self._held + data
            self._held = b""
        sent = self.send_some(data)
        if sent < len(data):
            self._turn.acquire_nowait()
            try:
                await self._write_patiently(memoryview(data)[sent:])
            finally:
                self._turn.release()

    def write_now(self, data: bytes) -> None:
        """Last words: as much as the socket takes, unless somebody is in the middle of a message."""
        if not self._turn.locked():
            self.send_some(self._held + data)
            self._held = b""

    def flush(self, nursery: trio.Nursery) -> None:
        """Send what is held back; if the socket is full, in a task of `nursery`."""
        if not self._held or self.closed:
            return
        if not self._turn.locked():
            self._held = self._held[self.send_some(self._held) :]
        if self._held:
            nursery.start_soon(self.write, b"")

    def finish(self) -> None:
        """Send FIN. Reading goes on."""
        if not self.closed:
            try:
                self._sock.shutdown(socket.SHUT_WR)
            except OSError:
                self.close()  # not connected any more

    def close(self) -> None:
        """Close; whoever waits on the socket wakes up."""
        if not self.closed:
            self.closed = True
            trio.lowlevel.notify_closing(self._sock)
            # First whoever waits leaves: a descriptor that is closed stays in a poll as long as a copy of it is open.
            self._on_closed()
            self._sock.close()

    def reset(self) -> None:
        """Close so that the peer cannot take it for a clean end, dropping what the kernel still has to send."""
        if not self.closed:
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            self.close()

    def send_some(self, data: bytes | memoryview) -> int:
        """Send what the connection takes without waiting; return the number of bytes."""
        if self.closed:
            return len(data)
        try:
            return self._sock.send(data)
        except BlockingIOError:
            return 0
        except OSError:
            self.close()
            return len(data)

    async def _write_patiently(self, rest: memoryview) -> None:
        whole = False
        try:
            while (rest or self._held) and not self.closed:
                if not rest:
                    rest = memoryview(self._held)
                    self._held = b""
                until = max(0, len(rest) - _SLICE_BYTES)
                with trio.move_on_after(self._patience_s) as patience:
                    while len(rest) > until and not self.closed:
                        await trio.lowlevel.wait_writable(self._sock)
                        rest = rest[self.send_some(rest) :]
                if patience.cancelled_caught:
                    return
            whole = True
        except trio.ClosedResourceError:
            pass
        finally:
            if not whole:
                self.reset()


@final
class Flusher:
    """One task for all connections that sends heads whose body did not follow at once.

    The head of an answer is held back so that it can share a write with the first piece of the body. If the app does
    something else first (it waits for its upstream), this task has its turn and the head goes alone.
    """

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._wires: list[InboundWire] = []
        self._parked: trio.lowlevel.Task | None = None

    def remind(self, wire: InboundWire) -> None:
        """Watch a connection until its time limit."""
        self._wires.append(wire)
        if self._parked is not None:
            trio.lowlevel.reschedule(self._parked)
            self._parked = None

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            if not self._wires:
                self._parked = trio.lowlevel.current_task()
                await trio.lowlevel.wait_task_rescheduled(self._unpark)
            wires, self._wires = self._wires, []
            for wire in wires:
                wire.flush(self._nursery)

    def _unpark(self, _: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
        self._parked = None
        return trio.lowlevel.Abort.SUCCEEDED


@final
class SocketPoll:
    """Sockets for which one task waits, with one call of the system for all; calls back when something has come.

    Args:
        on_ready: Given the descriptor of a socket that is here, or was until a moment ago.
        until_s: Time at which `on_turn` is called, whatever comes.
        on_turn: Called after what has come was dealt with.
    """

    def __init__(
        self,
        on_ready: Callable[[int], object],
        until_s: Callable[[], float] = lambda: math.inf,
        on_turn: Callable[[], object] = lambda: None,
    ) -> None:
        self._on_ready = on_ready
        self._until_s = until_s
        self._on_turn = on_turn
        self._numbers: set[int] = set()
        self._poll = select.epoll() if hasattr(select, "epoll") else None
        self._occupied = trio.Event()

    @property
    def is_available(self) -> bool:
        """True if the system can wait for many sockets at once, and `run` has not ended."""
        return self._poll is not None and not self._poll.closed

    def add(self, number: int) -> None:
        """Wait for the socket with this descriptor, too."""
        assert self._poll is not None
        self._poll.register(number, select.EPOLLIN)
        self._numbers.add(number)
        self._occupied.set()

    def remove(self, number: int) -> None:
        """Wait for it no more; before it is closed, for a copy of it would stay."""
        assert self._poll is not None
        self._numbers.remove(number)
        with suppress(OSError, ValueError):  # the socket is closed, or the poll is
            self._poll.unregister(number)

    async def run(self) -> None:
        """Until cancelled."""
        if self._poll is None:
            return
        try:
            while True:
                await self._occupied.wait()
                while self._numbers:
                    with trio.move_on_at(self._until_s()):
                        await trio.lowlevel.wait_readable(self._poll.fileno())
                    for number, _ in self._poll.poll(0, _AT_ONCE):
                        self._on_ready(number)
                    self._on_turn()
                self._occupied = trio.Event()
        finally:
            self._poll.close()


@final
@attrs.define(eq=False)
class _PolledReader:
    sock: socket.socket
    task: trio.lowlevel.Task
    is_dealt_with: Callable[[bytes], bool]
    data: bytes = b""
    error: Exception | None = None


@final
class SharedPoll:
    """Readers of many sockets, of which one task reads until something comes that is for their own.

    A task that waits for a socket by itself costs two system calls and a turn of its coroutines for each request: three
    times what it takes to refuse the request.
    """

    def __init__(self) -> None:
        self._readers: dict[int, _PolledReader] = {}  # by descriptor
        self._poll = SocketPoll(self._read)

    def __len__(self) -> int:
        return len(self._readers)

    @property
    def is_available(self) -> bool:
        """True if the system can wait for many sockets at once, and `run` has not ended."""
        return self._poll.is_available

    async def receive(self, sock: socket.socket, is_dealt_with: Callable[[bytes], bool]) -> bytes:
        """Return the next bytes of a socket that are not dealt with, as they came; empty when the peer is done or gone.

        Whoever closes the socket meanwhile cancels the wait.

        Args:
            sock: Non-blocking.
            is_dealt_with: Given bytes that came by themselves; True: they were all that came, and are answered. It
                may close the socket. What it raises is raised here.
        """
        number = sock.fileno()
        self._poll.add(number)
        reader = self._readers[number] = _PolledReader(sock, trio.lowlevel.current_task(), is_dealt_with)

        def left(_: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
            self._leave(number)
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(left)
        if reader.error is not None:
            raise reader.error
        return reader.data

    async def run(self) -> None:
        """Until cancelled, when nobody waits any more."""
        await self._poll.run()

    def _read(self, number: int) -> None:
        reader = self._readers.get(number)
        if reader is None:
            return  # it was closed when another one was read
        try:
            data = reader.sock.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        try:
            if data and reader.is_dealt_with(data):
                return
        except Exception as error:  # noqa: BLE001 - it is of this connection, and of no other
            reader.error = error
        if number in self._readers:
            self._leave(number)
            reader.data = data
            trio.lowlevel.reschedule(reader.task)

    def _leave(self, number: int) -> None:
        del self._readers[number]
        self._poll.remove(number)

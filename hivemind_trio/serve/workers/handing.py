"""Connections that the supervisor accepts and hands to workers, each to the one that has the fewest.

With `SO_REUSEPORT` the kernel picks by a hash of the addresses: of sixteen connections that stay open, one of two
workers often has eleven. With one socket that all accept from, the worker that wakes first has most of them while
there is little to do.
"""

from __future__ import annotations

import array
import errno
import mmap
import os
import socket
import struct
from typing import Final, Self, final

import attrs
import trio

from hivemind_trio.listen import ConnectionSource

_COUNTS: Final = struct.Struct("=qq")
_ITEM: Final = array.array("i").itemsize

_BATCH: Final = 64
"""Connections accepted before other tasks have a turn."""
_BREATH_S: Final = 0.1
_OUT_OF_SOMETHING: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})


@final
@attrs.define(eq=False)
class ConnectionBoard:
    """Counts of each worker in memory that all share: how many connections it has taken, and how many it has.

    A worker writes its own two numbers, and the supervisor reads them: no message is needed for a connection that ends.
    """

    _memory: mmap.mmap
    file: int

    @classmethod
    def create(cls, workers: int) -> Self:
        """Return a board of zeros."""
        file = os.memfd_create("hivemind-trio-workers", os.MFD_CLOEXEC)
        os.ftruncate(file, workers * _COUNTS.size)
        return cls.opened(file)

    @classmethod
    def opened(cls, file: int) -> Self:
        """Return the board that a descriptor is of."""
        return cls(mmap.mmap(file, 0), file)

    def write(self, place: int, taken: int, has: int) -> None:
        """Write the counts of a worker."""
        _COUNTS.pack_into(self._memory, place * _COUNTS.size, taken, has)

    def read(self, place: int) -> tuple[int, int]:
        """Return the counts of a worker."""
        taken, has = _COUNTS.unpack_from(self._memory, place * _COUNTS.size)
        return taken, has


@final
@attrs.define(eq=False)
class HandedConnections:
    """The worker's end: it accepts as a listening socket does.

    Args:
        sock: From the supervisor.
        address: Where the supervisor listens.
    """

    _sock: socket.socket
    _address: tuple[str, int]
    taken: int = attrs.field(init=False, default=0)
    """Connections accepted here."""

    def fileno(self) -> int:
        """Return the descriptor; -1: it is closed."""
        return self._sock.fileno()

    def setblocking(self, flag: bool) -> None:
        """Make it wait, or not."""
        self._sock.setblocking(flag)

    def getsockname(self) -> tuple[str, int]:
        """Return where the supervisor listens."""
        return self._address

    def accept(self) -> tuple[socket.socket, None]:
        """Return the next connection.

        Raises:
            BlockingIOError: There is none now.
        """
        message, found, _, _ = self._sock.recvmsg(1, socket.CMSG_SPACE(_ITEM), socket.MSG_CMSG_CLOEXEC)
        if not message:
            self.close()  # the supervisor is gone; the channel says so, too
            raise BlockingIOError
        numbers = array.array("i")
        for _, _, data in found:
            numbers.frombytes(data[:_ITEM])
        self.taken += 1
        if not numbers:
            raise OSError(errno.EMFILE, "the connection was lost: too many open files")
        family = socket.AF_INET6 if message == b"6" else socket.AF_INET
        return socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, fileno=numbers[0]), None

    def close(self) -> None:
        """Take no more."""
        if self._sock.fileno() != -1:
            trio.lowlevel.notify_closing(self._sock)
            self._sock.close()

    def is_empty(self) -> bool:
        """Return True if no connection waits to be accepted."""
        if self._sock.fileno() == -1:
            return True
        try:
            return not self._sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except OSError:
            return True


@final
@attrs.define(eq=False)
class Taker:
    """A worker as the supervisor hands it connections.

    Args:
        place: Of the worker, on the board.
    """

    place: int
    _board: ConnectionBoard
    _sock: socket.socket
    handed: int = attrs.field(init=False, default=0)
    rests: bool = attrs.field(init=False, default=False)
    """True while it does not answer: nothing is handed to it."""

    def connections(self) -> int:
        """Return how many it has, with those that are on their way to it."""
        taken, has = self._board.read(self.place)
        return has + self.handed - taken

    def hand(self, connection: socket.socket) -> bool:
        """Send it a connection; False: it takes none now."""
        family = b"6" if connection.family == socket.AF_INET6 else b"4"
        number = array.array("i", [connection.fileno()])
        try:
            self._sock.sendmsg([family], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, number)], socket.MSG_DONTWAIT)
        except OSError:
            return False
        self.handed += 1
        return True

    def close(self) -> None:
        """Hand it nothing more; what is on its way arrives."""
        self._sock.close()


@final
@attrs.define(eq=False)
class Handover:
    """Accepts connections, and hands each to the worker that has the fewest."""

    takers: list[Taker] = attrs.field(init=False, factory=list)
    """Workers that serve now."""
    _changed: trio.Event = attrs.field(init=False, factory=trio.Event)
    closing: bool = attrs.field(init=False, default=False)

    def add(self, taker: Taker) -> None:
        """Hand connections to a worker from now on."""
        self.takers.append(taker)
        self._changed.set()
        self._changed = trio.Event()

    def remove(self, taker: Taker) -> None:
        """Hand it none any more."""
        if taker in self.takers:
            self.takers.remove(taker)
            taker.close()

    async def run(self, sock: ConnectionSource) -> None:
        """Accept from a listening socket until it is closed."""
        sock.setblocking(False)
        while sock.fileno() != -1:
            try:
                while not self.takers:
                    await self._changed.wait()  # they wait in the kernel meanwhile
                await trio.lowlevel.wait_readable(sock)
                for _ in range(_BATCH):
                    connection, _ = sock.accept()
                    with connection:
                        await self.hand(connection)
            except trio.ClosedResourceError:
                return
            except BlockingIOError:
                continue
            except OSError as error:
                if error.errno in _OUT_OF_SOMETHING:
                    await trio.sleep(_BREATH_S)
                continue  # otherwise it was the client who had gone before we looked

    async def hand(self, connection: socket.socket) -> None:
        """Hand a connection to the worker that has the fewest, as soon as one takes it."""
        while not self.closing:
            able = [taker for taker in self.takers if not taker.rests]
            for taker in sorted(able, key=lambda one: (one.connections(), one.handed)):
                if taker.hand(connection):
                    return
            with trio.move_on_after(_BREATH_S):
                await self._changed.wait()

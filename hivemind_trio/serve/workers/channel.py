"""Messages between the supervisor and one worker, both ways, over a pair of sockets.

A message is its length in four bytes, and MessagePack: `(kind, number, name, body)`. A request has one answer of the
same number; a notice has none. Messages arrive in the order in which they were sent, and a notice is handled before
the next message is looked at.
"""

from __future__ import annotations

import socket
import struct
import traceback
from collections.abc import Awaitable, Callable
from enum import IntEnum
from typing import Any, Final, TypeVar, final

import attrs
import msgspec
import trio

_LENGTH: Final = struct.Struct("!I")
_READ_BYTES: Final = 256 * 1024

UNSENT_MAX: Final = 256 * 1024 * 1024
"""Bytes that may wait for the other side to read. A process that is so far behind has stopped."""

INTERNAL: Final = "internal-error"
"""Code of a request that met a bug at the other end; the text is its traceback."""

T = TypeVar("T")

Handler = Callable[[msgspec.Raw], Awaitable[Any]]
"""Given the body of a request; returns that of the answer, or raises `Failed`."""
Listener = Callable[[msgspec.Raw], None]
"""Given the body of a notice."""


class _Kind(IntEnum):
    NOTICE = 0
    REQUEST = 1
    ANSWER = 2
    FAILURE = 3


class ChannelClosed(Exception):  # noqa: N818 - the end of a process, not always an error
    """The other process has ended, or does not read."""


@final
class Failed(Exception):  # noqa: N818 - an answer
    """The request cannot be done.

    Args:
        code: Stable; the one who asks makes an exception of its own of it.
        text: Why, for people.
        lines: Details.
    """

    def __init__(self, code: str, text: str = "", lines: tuple[str, ...] = ()) -> None:
        super().__init__(text or code)
        self.code = code
        self.text = text
        self.lines = lines


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(tuple[int, int, str, msgspec.Raw]).decode


def body_of(body: msgspec.Raw, kind: type[T]) -> T:
    """Return a message's body as a value of a type."""
    return msgspec.msgpack.decode(body, type=kind, strict=False)


@final
@attrs.define(eq=False)
class Channel:
    """One end.

    Args:
        sock: A connected stream socket, which the channel closes.
    """

    _sock: socket.socket
    handlers: dict[str, Handler] = attrs.field(init=False, factory=dict)
    """Name of a request -> what answers it, in a task of its own."""
    listeners: dict[str, Listener] = attrs.field(init=False, factory=dict)
    """Name of a notice -> what hears it."""
    closed: trio.Event = attrs.field(init=False, factory=trio.Event)
    """Set once the other end is gone."""
    _unsent: bytearray = attrs.field(init=False, factory=bytearray)
    _some: trio.Event = attrs.field(init=False, factory=trio.Event)
    _number: int = attrs.field(init=False, default=0)
    _awaited: dict[int, tuple[trio.Event, list[tuple[int, msgspec.Raw]]]] = attrs.field(init=False, factory=dict)
    """Number of a request -> told when its answer is there, and the answer."""

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Pass messages until the other end is gone, or until cancelled."""
        self._sock.setblocking(False)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._write)
                task_status.started()
                await self._read(nursery)
                nursery.cancel_scope.cancel()
        finally:
            self.close()

    def close(self) -> None:
        """End it; who waits for an answer is told."""
        if not self.closed.is_set():
            self.closed.set()
            if self._sock.fileno() != -1:
                trio.lowlevel.notify_closing(self._sock)
                self._sock.close()
            for arrived, _ in self._awaited.values():
                arrived.set()

    def tell(self, name: str, value: object = None) -> None:
        """Send a notice; it is lost if the other end is gone."""
        if not self.closed.is_set():
            self._send(_Kind.NOTICE, 0, name, value)

    async def ask(self, name: str, value: object, kind: type[T]) -> T:
        """Send a request, and return its answer.

        Raises:
            Failed: It cannot be done.
            ChannelClosed: The other end is gone.
        """
        if self.closed.is_set():
            raise ChannelClosed
        self._number += 1
        number, arrived, answers = self._number, trio.Event(), []  # type: ignore[var-annotated]
        self._awaited[number] = arrived, answers
        try:
            self._send(_Kind.REQUEST, number, name, value)
            await arrived.wait()
        finally:
            del self._awaited[number]
        if not answers:
            raise ChannelClosed
        how, body = answers[0]
        if how == _Kind.FAILURE:
            raise Failed(*body_of(body, tuple[str, str, tuple[str, ...]]))
        return body_of(body, kind)

    def _send(self, kind: _Kind, number: int, name: str, value: object) -> None:
        message = _encode((int(kind), number, name, value))
        data = _LENGTH.pack(len(message)) + message
        sent = 0
        if not self._unsent:
            try:
                sent = self._sock.send(data)
            except BlockingIOError:
                pass
            except OSError:
                return  # the reader finds out
        if sent < len(data):
            self._unsent += data[sent:]
            self._some.set()
            if len(self._unsent) > UNSENT_MAX:
                self.close()

    async def _write(self) -> None:
        """Send what the socket had no room for."""
        while True:
            await self._some.wait()
            self._some = trio.Event()
            while self._unsent:
                try:
                    await trio.lowlevel.wait_writable(self._sock)
                    del self._unsent[: self._sock.send(self._unsent)]
                except BlockingIOError:
                    continue
                except (OSError, trio.ClosedResourceError):
                    return

    async def _read(self, nursery: trio.Nursery) -> None:
        held = bytearray()
        while True:
            try:
                await trio.lowlevel.wait_readable(self._sock)
                data = self._sock.recv(_READ_BYTES)
            except BlockingIOError:
                continue
            except (OSError, trio.ClosedResourceError):
                return
            if not data:
                return
            held += data
            begin = 0
            while len(held) - begin >= _LENGTH.size:
                (length,) = _LENGTH.unpack_from(held, begin)
                end = begin + _LENGTH.size + length
                if len(held) < end:
                    break
                self._take(bytes(held[begin + _LENGTH.size : end]), nursery)
                begin = end
            del held[:begin]

    def _take(self, message: bytes, nursery: trio.Nursery) -> None:
        kind, number, name, body = _decode(message)
        body = msgspec.Raw(bytes(body))
        if kind == _Kind.NOTICE:
            self.listeners[name](body)
        elif kind == _Kind.REQUEST:
            nursery.start_soon(self._answer, number, name, body)
        elif (awaited := self._awaited.get(number)) is not None:
            awaited[1].append((kind, body))
            awaited[0].set()

    async def _answer(self, number: int, name: str, body: msgspec.Raw) -> None:
        try:
            handler = self.handlers.get(name)
            if handler is None:
                raise Failed("unknown-request", f"no request `{name}`")
            value = await handler(body)
            if not self.closed.is_set():
                self._send(_Kind.ANSWER, number, name, value)
        except Failed as failed:
            self._fail(number, name, failed)
        except Exception as error:  # noqa: BLE001 - one question must not end a process with all its calls
            self._fail(number, name, Failed(INTERNAL, "".join(traceback.format_exception(error))))

    def _fail(self, number: int, name: str, failed: Failed) -> None:
        if not self.closed.is_set():
            self._send(_Kind.FAILURE, number, name, (failed.code, failed.text, failed.lines))

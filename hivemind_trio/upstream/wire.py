"""A connected socket, plain or TLS, that never blocks.

TLS is a non-blocking `ssl.SSLSocket` rather than `trio.SSLStream`: it saves 20 µs for each piece of a stream, half of
what the piece costs, and the two kinds of socket then differ only in the names of "not now".
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import Final, final

import attrs
import trio

from .outgoing import Origin

# Above the 16 KiB of a TLS record: a read then never leaves decrypted bytes behind in OpenSSL, where the kernel would
# not see them, and waiting for the kernel's "readable" is enough.
RECEIVE_BYTES_MAX: Final = 64 * 1024

# OpenSSL wants a write that did not fit repeated with the same bytes, so a large body goes in slices.
_SEND_BYTES_MAX: Final = 256 * 1024

_NOT_NOW: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


@final
@attrs.define(eq=False)
class OutboundWire:
    """Bytes out, bytes in. Used by one task at a time."""

    _socket: socket.socket

    async def receive(self) -> bytes:
        """Wait for bytes; empty at the end of the stream. Always a checkpoint. Raises OSError."""
        while True:
            await trio.lowlevel.wait_readable(self._socket)
            if (data := self.receive_now()) is not None:
                return data

    def receive_now(self) -> bytes | None:
        """Return the bytes that are there already; None: nothing yet. Raises OSError."""
        try:
            return self._socket.recv(RECEIVE_BYTES_MAX)
        except _NOT_NOW:
            return None

    def send_now(self, data: memoryview) -> int:
        """Return the number of these bytes that the socket took at once; it may be 0. Raises OSError."""
        try:
            return self._socket.send(data[:_SEND_BYTES_MAX])
        except _NOT_NOW:
            return 0

    async def room_or_word(self) -> None:
        """Wait until the socket takes more, or the peer has something to say."""
        async with trio.open_nursery() as nursery:

            async def until(event: Callable[[socket.socket], Awaitable[None]]) -> None:
                await event(self._socket)
                nursery.cancel_scope.cancel()

            nursery.start_soon(until, trio.lowlevel.wait_readable)
            nursery.start_soon(until, trio.lowlevel.wait_writable)

    def is_quiet(self) -> bool:
        """Return True if an idle connection is still open and no byte has arrived.

        Reading is the whole test: an end, an error and unasked bytes show at once, and a TLS session ticket, which is
        none of these, is taken in. What has come spoils the connection, so it is not kept.
        """
        try:
            self._socket.recv(1)
        except _NOT_NOW:
            return True
        except OSError:
            return False
        return False

    def close(self) -> None:
        """At once; the kernel says the rest. May be called again."""
        self._socket.close()


async def open_wire(origin: Origin, context: ssl.SSLContext) -> OutboundWire:
    """Connect to whichever address of the host answers first (RFC 6555), and shake hands if it is TLS.

    Raises OSError, of which `ssl.SSLError` is one. Leaves nothing open when it raises or is cancelled.
    """
    stream = await trio.open_tcp_stream(origin.host, origin.port)  # sets TCP_NODELAY
    connected = socket.socket(fileno=stream.socket.detach())
    try:
        connected.setblocking(False)
        if not origin.tls:
            return OutboundWire(connected)
        # A close without a close_notify must not pass for the end of a body, hence no suppression.
        secured = context.wrap_socket(
            connected, server_hostname=origin.host, do_handshake_on_connect=False, suppress_ragged_eofs=False
        )
    except BaseException:
        connected.close()
        raise
    try:
        await _shake_hands(secured)
    except BaseException:
        secured.close()
        raise
    return OutboundWire(secured)


async def _shake_hands(secured: ssl.SSLSocket) -> None:
    while True:
        try:
            secured.do_handshake()
        except ssl.SSLWantReadError:
            await trio.lowlevel.wait_readable(secured)
        except ssl.SSLWantWriteError:
            await trio.lowlevel.wait_writable(secured)
        else:
            return

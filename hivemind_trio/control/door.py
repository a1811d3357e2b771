"""The control listener of a running proxy."""

from __future__ import annotations

import socket
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final, final

import attrs
import trio

from hivemind_trio.listen import App, Bounds, Listener, bind

from .socket_file import SUFFIX, SocketUnavailable, bind_control, is_listening, runtime_folder

_NEVER_NS: Final = sys.maxsize

BOUNDS: Final = Bounds(
    connections=2_048,
    # An operator is served above all when the proxy is overloaded.
    turn_ns=_NEVER_NS,
    linger_bytes=1024 * 1024,
)


@final
@attrs.frozen
class ControlSocket:
    """A Unix socket that listens, and its path."""

    sock: socket.socket
    path: Path

    @classmethod
    def open(cls, name: str, port: int) -> ControlSocket:
        """Return the socket of a proxy; where another proxy of the same policy has it, one named by the port, too.

        Args:
            name: As `socket_name` returned it.
            port: Of the agents' listener.

        Raises:
            SocketUnavailable: It cannot be made.
        """
        try:
            folder = runtime_folder()
        except RuntimeError as error:
            help_text = "set XDG_RUNTIME_DIR to a folder that can be written to"
            raise SocketUnavailable(f"no place for a control socket: {error}", help_text) from None
        path = folder / f"{name}{SUFFIX}"
        if is_listening(path):
            path = folder / f"{name}-{port}{SUFFIX}"
        return cls(bind_control(path), path)


def control_url(sock: socket.socket) -> str:
    """Return the URL of an address that listens."""
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def listen_on_loopback(app: App, nursery: trio.Nursery) -> str:
    """Begin to serve the control API on a free port of loopback, for as long as the nursery is open; its URL."""
    sockets = bind("127.0.0.1", 0)
    await nursery.start(Listener(app, BOUNDS).run, sockets)
    return control_url(sockets[0])


@asynccontextmanager
async def open_control(
    app: App, where: ControlSocket | None, addresses: Sequence[socket.socket] = ()
) -> AsyncIterator[None]:
    """Serve the control API within the context; leaving it ends every connection and removes the socket.

    Args:
        app: The app.
        where: The Unix socket; None: there is none.
        addresses: Listening sockets of TCP.
    """
    sockets = [*([where.sock] if where is not None else []), *addresses]
    async with trio.open_nursery() as nursery:
        try:
            if sockets:
                await nursery.start(Listener(app, BOUNDS).run, sockets)
            yield
        finally:
            # Before the process ends, or the next one would have to find out that nobody listens.
            if where is not None:
                with suppress(OSError):
                    where.path.unlink()
            nursery.cancel_scope.cancel()

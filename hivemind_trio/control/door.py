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
from hivemind_trio.store import make_private

from .routes import problem
from .socket_file import SUFFIX, SocketUnavailable, bind_control, is_listening, runtime_folder

_NEVER_NS: Final = sys.maxsize

BOUNDS: Final = Bounds(
    connections=2_048,
    # An operator is served above all when the proxy is overloaded.
    turn_ns=_NEVER_NS,
    linger_bytes=1024 * 1024,
)

_UNREAD: Final = {
    400: ("bad-request", "the request is not valid HTTP"),
    408: ("request-timeout", "the request did not arrive in time"),
    431: ("header-too-large", f"the head of the request is larger than {BOUNDS.header_bytes:,} bytes"),
    505: ("http-version", "this version of HTTP is not spoken; send HTTP/1.1"),
}
"""Status of an answer in place of the app -> code and words."""


@final
@attrs.frozen
class ControlSocket:
    """A Unix socket that listens, and its path."""

    sock: socket.socket
    path: Path
    link: Path | None = None
    """Link to it in the runtime directory, by which commands find it; None: it is there itself, or there is none."""

    @classmethod
    def open(cls, name: str, port: int, path: Path | None = None) -> ControlSocket:
        """Return the socket of a proxy; where another proxy of the same policy has it, one named by the port, too.

        Args:
            name: As `socket_name` returned it.
            port: Of the agents' listener.
            path: Where it is, with a link to it in the runtime directory; None: in the runtime directory.

        Raises:
            SocketUnavailable: It cannot be made.
        """
        if path is not None:
            link = _link_for(path, name, port)  # once it listens, it may look like another proxy's
            return cls(bind_control(path), path, _linked(link, path))
        try:
            usual = _usual_path(name, port)
        except RuntimeError as error:
            help_text = "set XDG_RUNTIME_DIR to a folder that can be written to"
            raise SocketUnavailable(f"no place for a control socket: {error}", help_text) from None
        return cls(bind_control(usual), usual)

    def remove(self) -> None:
        """Remove it from the file system: the next proxy need not find out that nobody listens."""
        for path in (self.link, self.path):
            if path is not None:
                with suppress(OSError):
                    path.unlink()


def _usual_path(name: str, port: int) -> Path:
    """Return the path in the runtime directory.

    Raises:
        RuntimeError: There is no such directory.
    """
    path = runtime_folder() / f"{name}{SUFFIX}"
    return path.with_name(f"{name}-{port}{SUFFIX}") if is_listening(path) else path


def _link_for(path: Path, name: str, port: int) -> Path | None:
    """Return the place of a link to a socket that does not listen yet; None: it needs none, or there is none."""
    try:
        link = _usual_path(name, port)
        is_there = (path.parent.resolve(), path.name) == (link.parent.resolve(), link.name)
    except (OSError, RuntimeError):
        return None
    return None if is_there else link


def _linked(link: Path | None, path: Path) -> Path | None:
    """Return a new link to a socket in the runtime directory; None: there can be none."""
    if link is None:
        return None
    try:
        make_private(link.parent)
        link.unlink(missing_ok=True)
        link.symlink_to(path)
    except OSError:
        return None
    return link


def control_url(sock: socket.socket) -> str:
    """Return the URL of an address that listens."""
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _listener(app: App) -> Listener:
    return Listener(app, BOUNDS, unread_answer=unread_problem)


def unread_problem(status: int) -> tuple[bytes, bytes]:
    """Return header lines and body of an error that the app did not see: problem details, as all errors are."""
    code, words = _UNREAD.get(status, ("internal-error", "internal error; standard error of the proxy has its cause"))
    answer = problem(status, words, code)
    return b"content-type: %b\r\n" % answer.content_type.encode(), answer.body


async def listen_on_loopback(app: App, nursery: trio.Nursery) -> str:
    """Begin to serve the control API on a free port of loopback, for as long as the nursery is open; its URL."""
    sockets = bind("127.0.0.1", 0)
    await nursery.start(_listener(app).run, sockets)
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
                await nursery.start(_listener(app).run, sockets)
            yield
        finally:
            if where is not None:
                where.remove()
            nursery.cancel_scope.cancel()

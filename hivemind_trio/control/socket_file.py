"""Unix sockets of the control API: their place, their making, and those at which a proxy listens."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, final

from hivemind_trio.store import make_private, policy_key, state_home

FOLDER: Final = "hivemind-trio"
SUFFIX: Final = ".sock"
BACKLOG: Final = 64

PATH_MAX: Final = 107
"""Bytes of a Unix socket's path that Linux takes; BSD takes 103."""


@final
class SocketUnavailable(Exception):  # noqa: N818 - the proxy serves without it
    """There can be no control socket; `help` says what to do."""

    def __init__(self, message: str, help_text: str) -> None:
        super().__init__(message)
        self.help = help_text


def runtime_folder() -> Path:
    """Return the folder of control sockets: in `$XDG_RUNTIME_DIR`, or else that of the states.

    Raises:
        RuntimeError: There is neither, for there is no home directory.
    """
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    return Path(runtime) / FOLDER if Path(runtime).is_absolute() else state_home()


def socket_name(policy: str | None, port: int) -> str:
    """Return the name of a proxy's socket, without its suffix: that of its state.

    Args:
        policy: Path of the policy's file; None: it was made from what is found.
        port: Of the agents' listener: it tells proxies without a policy apart.
    """
    return policy_key(policy, port)


def bind_control(path: Path) -> socket.socket:
    """Return a listening socket at a path, which only this user may connect to.

    One that nobody listens at any more is replaced.

    Raises:
        SocketUnavailable: It cannot be made, or another proxy listens there.
    """
    try:
        make_private(path.parent)
        if is_listening(path):
            raise SocketUnavailable(f"another proxy listens at {path}", "stop it, or serve another policy")
        fresh = path.with_name(f"{path.name}.{os.getpid()}")
        with suppress(FileNotFoundError):
            fresh.unlink()
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with socket_address(fresh) as address:
                sock.bind(address)
            # Nobody can connect before it listens, and from then on the mode holds.
            fresh.chmod(0o600)
            sock.listen(BACKLOG)
            fresh.rename(path)
        except BaseException:
            sock.close()
            with suppress(OSError):
                fresh.unlink()
            raise
    except OSError as error:
        help_text = (
            'name a folder that can be written to by XDG_RUNTIME_DIR, XDG_STATE_HOME or `server { admin "unix:/path" }`'
        )
        raise SocketUnavailable(f"no control socket at {path}: {error.strerror or error}", help_text) from None
    return sock


def connected(path: Path) -> socket.socket:
    """Return a connection to the proxy that listens at a path.

    Raises:
        OSError: None does.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with socket_address(path) as address:
            sock.connect(address)
    except BaseException:
        sock.close()
        raise
    return sock


def is_listening(path: Path) -> bool:
    """Return True if a proxy listens at a path."""
    try:
        connected(path).close()
    except OSError:
        return False
    return True


def running_sockets(name: str = "") -> list[Path]:
    """Return the sockets at which a proxy listens, by name; of a socket and links to it, one.

    Args:
        name: Only those of this policy; empty: all.
    """
    try:
        found = sorted(path for path in runtime_folder().glob(f"*{SUFFIX}") if path.name.startswith(name))
    except (OSError, RuntimeError):
        return []
    running: dict[Path, Path] = {}
    for path in found:
        if is_listening(path):
            running.setdefault(path.resolve(), path)
    return list(running.values())


@contextmanager
def socket_address(path: Path) -> Iterator[str]:
    """Give the path as the system takes it: a long one by its folder's descriptor."""
    text = str(path)
    if len(os.fsencode(text)) <= PATH_MAX or not Path("/proc/self/fd").is_dir():
        yield text
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)

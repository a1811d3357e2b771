"""Listening sockets of our own."""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import MutableMapping
from typing import Any, Final, Protocol

import trio

BACKLOG: Final = 1024

# A peer that acknowledges nothing for a minute is gone, whatever TCP's own quarter of an hour says; the same for one
# that has fallen silent on a connection where nothing is being sent, which is what a queued call looks like.
_USER_TIMEOUT_MS: Final = 60_000
_PROBE_AFTER_S: Final = 30
_PROBE_EVERY_S: Final = 10

_FIRST_PASSED: Final = 3
"""Number of the first socket that systemd passes."""

_UNSUITABLE: Final = (
    "they must be TCP sockets that listen; write `ListenStream=127.0.0.1:8787` and `Accept=no` in the socket unit"
)


class ConnectionSource(Protocol):
    """Source of connections: a listening socket, or another process that hands them over."""

    def accept(self) -> tuple[socket.socket, Any]:
        """Return the next connection.

        Raises:
            BlockingIOError: There is none now.
        """
        ...

    def fileno(self) -> int:
        """Return the descriptor to wait for; -1: it is closed."""
        ...

    def setblocking(self, flag: bool, /) -> None:
        """Make it wait, or not."""
        ...

    def getsockname(self) -> Any:
        """Return the address at which clients reach it."""
        ...

    def close(self) -> None:
        """Take no more."""
        ...


def bind(host: str, port: int) -> list[socket.socket]:
    """Return listening sockets, one for each address that `host` stands for. `::` takes IPv4 too, where systems can.

    TCP_USER_TIMEOUT and keep-alive probes, where the platform has them, are set here and inherited by what is accepted.

    Args:
        host: A name or an address of either family.
        port: 0 takes any free one, the same for all addresses.

    Raises:
        OSError: The name is unknown, or the address is in use or not ours; the message says which, for an operator.
    """
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror as error:
        raise OSError(error.errno, f"cannot listen on {where}: {error.strerror}") from error

    sockets: list[socket.socket] = []
    try:
        alone = len(dict.fromkeys(found)) == 1
        for family, _, _, _, address in dict.fromkeys(found):
            # The port that the first address was given is asked of the others too: one URL, both families.
            chosen = port or (sockets[0].getsockname()[1] if sockets else 0)
            both = alone and address[0] == "::" and socket.has_dualstack_ipv6()
            sockets.append(_listening(family, (address[0], chosen, *address[2:]), both=both))
    except OSError as error:
        for sock in sockets:
            sock.close()
        raise OSError(error.errno, f"cannot listen on {where}: {_explained(error)}") from error
    return sockets


def inherited(environment: MutableMapping[str, str]) -> list[socket.socket]:
    """Return the listening sockets that systemd passes to this process (`sd_listen_fds(3)`); empty: none.

    Their variables are taken out of the environment, for they are not meant for children.

    Raises:
        OSError: One of them is no TCP socket that listens; the message says what to write in the unit.
    """
    whose, count = environment.pop("LISTEN_PID", ""), environment.pop("LISTEN_FDS", "")
    environment.pop("LISTEN_FDNAMES", None)
    if whose != str(os.getpid()) or not count.isdigit():
        return []
    sockets: list[socket.socket] = []
    try:
        for number in range(_FIRST_PASSED, _FIRST_PASSED + int(count)):
            sock = socket.socket(fileno=number)
            sockets.append(sock)
            is_stream = sock.family in (socket.AF_INET, socket.AF_INET6) and sock.type == socket.SOCK_STREAM
            if not is_stream or not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                raise OSError(errno.EINVAL, _UNSUITABLE)
            sock.set_inheritable(False)
            sock.setblocking(False)
            _notice_silence(sock)
    except OSError as error:
        for sock in sockets:
            sock.close()
        reason = error.strerror or str(error)
        raise OSError(error.errno, f"cannot listen on the sockets that systemd passes: {reason}") from error
    return sockets


def peer_of(sock: trio.socket.SocketType) -> tuple[str, int] | None:
    """Return the other end of a connection: address and port, or user and process at a Unix socket.

    None: the system does not say.
    """
    if sock.family in (socket.AF_INET, socket.AF_INET6):
        host, port = sock.getpeername()[:2]
        # A socket for both families shows an IPv4 address so; it is one caller, however it came.
        return host.removeprefix("::ffff:") if "." in host else host, port
    if sock.family == socket.AF_UNIX and hasattr(socket, "SO_PEERCRED"):
        size = struct.calcsize("3i")
        process, user, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
        return f"user {user} process", process
    return None


def _listening(family: int, address: tuple[str | int, ...], *, both: bool) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        if os.name == "posix":  # on Windows the option would let a second process steal the port
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, not both)
        _notice_silence(sock)
        sock.bind(address)
        sock.listen(BACKLOG)
    except BaseException:
        sock.close()
        raise
    return sock


def _notice_silence(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_USER_TIMEOUT", _USER_TIMEOUT_MS),
        ("TCP_KEEPIDLE", _PROBE_AFTER_S),
        ("TCP_KEEPINTVL", _PROBE_EVERY_S),
    ):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _explained(error: OSError) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            return "the address is in use; is another proxy running?"
        case errno.EADDRNOTAVAIL:
            return "this machine does not have that address"
        case errno.EACCES:
            return "not permitted; ports below 1024 usually need privileges"
        case _:
            return error.strerror or str(error)

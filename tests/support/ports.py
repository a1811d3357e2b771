"""Ports of loopback that a test knows before anything listens there."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def kept_port() -> Iterator[int]:
    """Give a port that servers of this test may have, one after the other, and nobody else is given meanwhile.

    The socket here is bound and does not listen. Linux lets another socket listen beside it if both say SO_REUSEADDR,
    and gives the port to no socket that asks for any port, nor to a connection that goes out.
    """
    with socket.socket() as kept:
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.bind(("127.0.0.1", 0))
        yield int(kept.getsockname()[1])
